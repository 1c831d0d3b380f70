//! Routes.

use crate::attribute::{attribute, attributes, read_ip, read_u16, read_u32};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
// linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
/// A cached copy of a route, not a route.
const RTM_F_CLONED: u32 = 0x200;

/// A next hop of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// Index of the interface; 0 when there is none (unreachable, blackhole).
    pub ifindex: u32,
    /// The next router; none when the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Share among several ways, from 1.
    pub weight: u32,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Number of the routing table.
    pub table: u32,
    /// Network of the destination, all zero for the default route.
    pub destination: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
    /// Type of service that it is for, 0 for all.
    pub tos: u8,
    /// Metric: the least wins.
    pub priority: u32,
    /// Its origin (RTPROT_…, linux/rtnetlink.h).
    pub protocol: u8,
    /// RTN_… of linux/rtnetlink.h: 1 unicast, 2 local, 3 broadcast, 6 blackhole…
    pub kind: u8,
    /// Address to send from.
    pub source: Option<IpAddr>,
    /// At least one.
    pub hops: Vec<NextHop>,
}

/// Decodes the payload of an RTM_NEWROUTE or RTM_DELROUTE (`struct rtmsg`); none of other families
/// and of cached routes.
pub(crate) fn decode(payload: &[u8]) -> Option<Route> {
    let (head, rest) = payload.split_first_chunk::<12>()?;
    let flags = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]);
    let any: IpAddr = match head[0] {
        AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    if flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = Route {
        table: head[4].into(),
        destination: any,
        prefix: head[1],
        tos: head[3],
        priority: 0,
        protocol: head[5],
        kind: head[7],
        source: None,
        hops: Vec::new(),
    };
    let mut single = NextHop {
        ifindex: 0,
        gateway: None,
        weight: 1,
    };
    for (kind, value) in attributes(rest) {
        match kind {
            RTA_DST => route.destination = read_ip(value).unwrap_or(any),
            RTA_OIF => single.ifindex = read_u32(value).unwrap_or(0),
            RTA_GATEWAY | RTA_VIA => single.gateway = gateway(kind, value),
            RTA_PRIORITY => route.priority = read_u32(value).unwrap_or(0),
            RTA_PREFSRC => route.source = read_ip(value),
            RTA_TABLE => route.table = read_u32(value).unwrap_or(route.table),
            RTA_MULTIPATH => route.hops = hops(value),
            _ => {}
        }
    }
    if route.hops.is_empty() {
        route.hops.push(single);
    }
    Some(route)
}

/// RTA_VIA has the address of a router of another family behind the number of the family.
fn gateway(kind: u16, value: &[u8]) -> Option<IpAddr> {
    match kind {
        RTA_VIA => read_ip(value.get(2..)?),
        _ => read_ip(value),
    }
}

/// The ways in RTA_MULTIPATH (`struct rtnexthop`, each with attributes).
fn hops(mut rest: &[u8]) -> Vec<NextHop> {
    let mut hops = Vec::new();
    while let Some(head) = rest.first_chunk::<8>() {
        let length = usize::from(read_u16(head).unwrap_or(0));
        let Some(inner) = rest.get(8..length) else {
            break;
        };
        let via = [RTA_GATEWAY, RTA_VIA];
        hops.push(NextHop {
            ifindex: u32::from_ne_bytes([head[4], head[5], head[6], head[7]]),
            gateway: via
                .into_iter()
                .find_map(|kind| gateway(kind, attribute(inner, kind)?)),
            weight: u32::from(head[3]) + 1,
        });
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    #[test]
    fn several_ways_each_have_their_router() {
        let hop = |ifindex: u8, gateway: &[u8]| {
            let inner = Attributes::default().with(RTA_GATEWAY, gateway);
            let length = 8 + inner.bytes().len() as u8;
            [&[length, 0, 0, 2, ifindex, 0, 0, 0][..], inner.bytes()].concat()
        };
        let hops = [hop(3, &[10, 0, 0, 1]), hop(4, &[10, 0, 1, 1])].concat();
        // IPv4, 24 bits, table 254, by the administrator, unicast
        let message = Attributes::after(&[2, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0])
            .with(RTA_DST, &[10, 9, 0, 0])
            .with_u32(RTA_PRIORITY, 20)
            .with(RTA_MULTIPATH, &hops);
        let route = decode(message.bytes()).unwrap();
        assert_eq!(route.destination.to_string(), "10.9.0.0");
        assert_eq!((route.prefix, route.priority, route.table), (24, 20, 254));
        let found: Vec<_> = route
            .hops
            .iter()
            .map(|hop| (hop.ifindex, hop.gateway.unwrap().to_string(), hop.weight))
            .collect();
        assert_eq!(
            found,
            [(3, "10.0.0.1".into(), 3), (4, "10.0.1.1".into(), 3)]
        );
    }

    #[test]
    fn cut_and_foreign_messages_are_no_routes() {
        assert!(decode(&[2, 24]).is_none());
        // RTNL_FAMILY_IPMR
        assert!(decode(&[128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_none());
        // A next hop whose length exceeds the message.
        let message = Attributes::after(&[2, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0])
            .with(RTA_MULTIPATH, &[200, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(decode(message.bytes()).unwrap().hops[0].ifindex, 0);
    }
}
