//! Addresses of interfaces.

use crate::attribute::{attributes, read_ip};
use std::net::IpAddr;

// linux/if_addr.h
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub ifindex: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of its network's prefix in bits.
    pub prefix: u8,
}

/// Decodes the payload of an RTM_NEWADDR or RTM_DELADDR (`struct ifaddrmsg`); none of families
/// other than IPv4 and IPv6.
pub(crate) fn decode(payload: &[u8]) -> Option<Address> {
    let (head, rest) = payload.split_first_chunk::<8>()?;
    let ifindex = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    let (mut local, mut address) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            // Of a point-to-point interface the other one is that of the other end.
            IFA_LOCAL => local = read_ip(value),
            IFA_ADDRESS => address = read_ip(value),
            _ => {}
        }
    }
    Some(Address {
        ifindex,
        ip: local.or(address)?,
        prefix: head[1],
    })
}
