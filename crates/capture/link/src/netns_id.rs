//! The kernel's identifiers of namespaces, which are relative to a namespace.

use crate::attribute::{Attributes, attribute, read_i32};
use crate::{Error, Requests};
use std::os::fd::{AsFd, AsRawFd as _};

const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
// linux/net_namespace.h
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// Identifier of the namespace `of` in the namespace of `requests` (RTM_GETNSID), none when it has none
/// there. It is the value of [`crate::Link::link_netnsid`].
pub fn namespace_id(requests: &mut Requests, of: impl AsFd) -> Result<Option<i32>, Error> {
    let fd = of.as_fd().as_raw_fd();
    // struct rtgenmsg
    let request = Attributes::after(&[0]).with(NETNSA_FD, &fd.to_ne_bytes());
    let mut found = None;
    requests.get(RTM_GETNSID, request.bytes(), |kind, payload| {
        if kind == RTM_NEWNSID {
            found = decode(payload);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The identifier that an answer or a notification is about, none when there is none.
pub(crate) fn decode(payload: &[u8]) -> Option<i32> {
    let id = attribute(payload.get(4..)?, NETNSA_NSID);
    id.and_then(read_i32).filter(|id| *id >= 0)
}
