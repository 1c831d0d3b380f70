//! Making and removing pairs of virtual Ethernet interfaces.

use crate::{Attributes, Error, LinkSocket, Namespace, Protocol, Requests, socket::link_request};
use std::os::fd::{AsFd as _, AsRawFd as _};

// linux/rtnetlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
// linux/if_link.h
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const AF_INET6: u16 = 10;
// linux/if.h
const IFF_NOARP: u32 = 1 << 7;
/// Longest packet that a veth pair takes.
const MTU: u32 = 65_535;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

/// Names of interfaces that Skua makes for itself begin so; a random number and the end (`a`, `b`) follow.
pub const OWN_PREFIX: &str = "sktap";
/// Hexadecimal digits of that number.
const OWN_DIGITS: usize = 6;

/// Whether an interface is one of those that Skua makes for itself, by its name.
pub fn is_own_interface(name: &str) -> bool {
    let rest = name.strip_prefix(OWN_PREFIX).unwrap_or_default();
    rest.len() == OWN_DIGITS + 1
        && rest.ends_with(['a', 'b'])
        && rest.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `struct ifinfomsg` of an interface that is still to be, without ARP.
fn no_arp() -> [u8; 16] {
    let mut fixed = link_request(0);
    fixed[8..12].copy_from_slice(&IFF_NOARP.to_ne_bytes());
    fixed[12..].copy_from_slice(&IFF_NOARP.to_ne_bytes());
    fixed
}

fn named(name: &str) -> Attributes {
    let mut text = name.as_bytes().to_vec();
    text.push(0);
    Attributes::after(&no_arp())
        .with(IFLA_IFNAME, &text)
        .with_u32(IFLA_MTU, MTU)
        .with_u32(IFLA_TXQLEN, 0)
}

/// Makes a veth pair, `near` in one namespace and `far` in another or the same one, for frames of any
/// length. They have no ARP, no IPv6 addresses, and are down. Returns their indices.
///
/// # Errors
/// A name is taken, or the kernel refuses.
pub fn create_veth(near: (&Namespace, &str), far: (&Namespace, &str)) -> Result<(u32, u32), Error> {
    let mut requests = Requests::open_in(Protocol::Route, near.0)?;
    let number = far.0.as_fd().as_raw_fd();
    let peer = named(far.1).with_u32(IFLA_NET_NS_FD, number as u32);
    let data = Attributes::default().with(VETH_INFO_PEER, peer.bytes());
    let info = Attributes::default()
        .with(IFLA_INFO_KIND, b"veth\0")
        .nest(IFLA_INFO_DATA, data);
    let request = named(near.1).nest(IFLA_LINKINFO, info);
    requests.change_with(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, request.bytes())?;
    let index = |(namespace, name): (&Namespace, &str)| -> Result<u32, Error> {
        let links = LinkSocket::open_in(namespace)?.list()?;
        let link = links.into_iter().find(|link| link.name == name);
        let ifindex = link
            .map(|link| link.ifindex)
            .ok_or_else(|| Error::Decode(format!("{name} was made, and is not there")))?;
        let mode = Attributes::default().with(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
        let spec = Attributes::default().nest(AF_INET6, mode);
        let quiet = Attributes::after(&link_request(ifindex)).nest(IFLA_AF_SPEC, spec);
        // Fails where there is no IPv6, which is as good.
        let _ = Requests::open_in(Protocol::Route, namespace)?.change(RTM_SETLINK, quiet.bytes());
        Ok(ifindex)
    };
    Ok((index(near)?, index(far)?))
}

/// Removes an interface; of a veth pair also the other end.
///
/// # Errors
/// It is not there, or cannot be removed.
pub fn delete_link(namespace: &Namespace, ifindex: u32) -> Result<(), Error> {
    let mut requests = Requests::open_in(Protocol::Route, namespace)?;
    requests.change(RTM_DELLINK, &link_request(ifindex))
}
