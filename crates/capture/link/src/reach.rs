//! How an address is reached from a namespace: interface, next hop, and its MAC address.

use crate::attribute::{Attributes, attribute, read_ip, read_u32};
use crate::{Dump, Error, Protocol, Requests, RouteEvent};
use std::net::IpAddr;

// linux/rtnetlink.h
const RTM_GETROUTE: u16 = 26;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTN_UNICAST: u8 = 1;
/// Where the attributes of a route begin (`struct rtmsg`).
const ROUTE_HEAD: usize = 12;
// linux/neighbour.h
const NDA_DST: u16 = 1;
const NTF_USE: u8 = 1;
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// Needs no question: reachable, without ARP, permanent.
const NUD_SURE: u16 = 0x02 | 0x40 | 0x80;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const NLM_F_CREATE: u16 = 0x400;

/// How an address is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Interface that packets leave by.
    pub ifindex: u32,
    /// Address that they are sent from.
    pub source: IpAddr,
    /// MAC address of the next hop; none when it is not known yet. The kernel is resolving it then.
    pub mac: Option<[u8; 6]>,
}

fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    }
}

impl Reach {
    /// Finds the route in the calling thread's namespace; none when it is not a unicast one. Makes the
    /// kernel resolve the next hop's MAC address, or confirm it.
    ///
    /// # Errors
    /// The kernel refuses, or there is no route.
    pub fn find(address: IpAddr) -> Result<Option<Self>, Error> {
        let mut requests = Requests::open(Protocol::Route)?;
        let (family, bytes) = octets(address);
        let mut head = [0; ROUTE_HEAD];
        head[0] = family;
        head[1] = bytes.len() as u8 * 8;
        let request = Attributes::after(&head).with(RTA_DST, &bytes);
        let mut found = None;
        requests.get(RTM_GETROUTE, request.bytes(), |kind, payload| {
            if kind == RTM_NEWROUTE && payload.get(7) == Some(&RTN_UNICAST) {
                let rest = payload.get(ROUTE_HEAD..).unwrap_or_default();
                let ip = |kind| attribute(rest, kind).and_then(read_ip);
                let ifindex = attribute(rest, RTA_OIF).and_then(read_u32);
                found = ifindex
                    .zip(ip(RTA_PREFSRC))
                    .map(|(ifindex, source)| (ifindex, source, ip(RTA_GATEWAY).unwrap_or(address)));
            }
            Ok(())
        })?;
        let Some((ifindex, source, hop)) = found else {
            return Ok(None);
        };
        let mut known = neighbour(&mut requests, ifindex, hop)?;
        // A permanent entry would lose that state if the kernel were told to confirm it.
        if known.is_none_or(|(_, state)| state & NUD_SURE == 0) {
            resolve(&mut requests, ifindex, hop)?;
            known = neighbour(&mut requests, ifindex, hop)?;
        }
        Ok(Some(Self {
            ifindex,
            source,
            mac: known.map(|(mac, _)| mac),
        }))
    }
}

/// MAC address and state of a neighbour whose address is known.
fn neighbour(
    requests: &mut Requests,
    ifindex: u32,
    hop: IpAddr,
) -> Result<Option<([u8; 6], u16)>, Error> {
    let mut found = None;
    Dump::Neighbours.request(requests, |event| {
        if let RouteEvent::Neighbour(neighbour) = event
            && neighbour.ifindex == ifindex
            && neighbour.ip == Some(hop)
            && neighbour.state & NUD_VALID != 0
            && let Ok(mac) = neighbour.mac.as_slice().try_into()
        {
            found = Some((mac, neighbour.state));
        }
    })?;
    Ok(found)
}

/// Has the kernel use an entry of its neighbours, as a packet would.
fn resolve(requests: &mut Requests, ifindex: u32, hop: IpAddr) -> Result<(), Error> {
    let (family, bytes) = octets(hop);
    // struct ndmsg
    let mut head = [0; 12];
    head[0] = family;
    head[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    head[10] = NTF_USE;
    let request = Attributes::after(&head).with(NDA_DST, &bytes);
    requests.change_with(RTM_NEWNEIGH, NLM_F_CREATE, request.bytes())
}
