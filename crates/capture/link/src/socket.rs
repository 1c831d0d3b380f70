//! Listing interfaces and following their changes over rtnetlink.

use crate::{Error, Link, MONITOR_QUEUE, Monitor, Namespace, Notice, Protocol, Requests, link};
use netlink_packet_core::{ErrorBuffer, NetlinkBuffer, Parseable as _};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// Of an interface that is up (linux/if.h).
const IFF_UP: u32 = 1;
/// Multicast group of interface changes (RTNLGRP_LINK, linux/rtnetlink.h).
const RTNLGRP_LINK: u32 = 1;
/// A list is begun again at most so often when the kernel says that it changed underway.
const LIST_ATTEMPTS: u32 = 8;
/// Datagrams that one [`LinkMonitor::read`] takes at most, so that a flood cannot hold it.
const READ_AT_MOST: usize = 1024;
/// As many times when some were lost; no queue has more.
const READS_AT_MOST: usize = 64;
/// Linux's number of this error, the same on all architectures that Rust's std supports.
const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();

/// A socket that lists interfaces of one network namespace: that in which it was opened.
#[derive(Debug)]
pub struct LinkSocket(Requests);

impl LinkSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Requests::open(Protocol::Route)?))
    }

    /// Opens a socket in `namespace`; it stays there.
    pub fn open_in(namespace: &Namespace) -> Result<Self, Error> {
        namespace.enter(Self::open)?
    }

    /// All interfaces, also those that are down. The list is consistent: when interfaces come or
    /// go underway it is begun again.
    pub fn list(&mut self) -> Result<Vec<Link>, Error> {
        for _ in 0..LIST_ATTEMPTS {
            let mut links = Vec::new();
            let take = |kind, payload: &[u8]| collect(&mut links, kind, payload);
            if self.0.dump(RTM_GETLINK, &link_request(0), take)? {
                return Ok(links);
            }
        }
        Err(Error::Interrupted(LIST_ATTEMPTS))
    }

    /// The addresses of all interfaces, each once. Those that come or go underway may be missing.
    pub fn addresses(&mut self) -> Result<Vec<IpAddr>, Error> {
        let mut addresses = Vec::new();
        // struct ifaddrmsg of all families and interfaces
        self.0.dump(RTM_GETADDR, &[0; 8], |kind, payload| {
            if kind != RTM_NEWADDR {
                return Ok(());
            }
            let message =
                AddressMessage::parse(payload).map_err(|e| Error::Decode(e.to_string()))?;
            let (mut local, mut address) = (None, None);
            for attribute in &message.attributes {
                match attribute {
                    // Of a point-to-point interface `Address` is the other end's.
                    AddressAttribute::Local(ip) => local = Some(*ip),
                    AddressAttribute::Address(ip) => address = Some(*ip),
                    _ => {}
                }
            }
            addresses.extend(local.or(address));
            Ok(())
        })?;
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// The interface with this index, with fresh counters; `None` when there is none.
    pub fn get(&mut self, ifindex: u32) -> Result<Option<Link>, Error> {
        let mut links = Vec::new();
        let take = |kind, payload: &[u8]| collect(&mut links, kind, payload);
        match self.0.get(RTM_GETLINK, &link_request(ifindex), take) {
            Err(Error::Netlink { source, .. }) if source.raw_os_error() == Some(ENODEV) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(links.pop()),
        }
    }

    /// Brings the interface with this index up.
    pub fn set_up(&mut self, ifindex: u32) -> Result<(), Error> {
        let mut request = link_request(ifindex);
        // Flags, and which of them change.
        request[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
        request[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
        self.0.change(RTM_SETLINK, &request)
    }
}

/// The payload of an RTM_GETLINK (`struct ifinfomsg`, linux/rtnetlink.h).
pub(crate) fn link_request(ifindex: u32) -> [u8; 16] {
    let mut request = [0; 16];
    request[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    request
}

fn collect(links: &mut Vec<Link>, kind: u16, payload: &[u8]) -> Result<(), Error> {
    if kind == RTM_NEWLINK {
        links.extend(link::decode(payload)?.map(|decoded| decoded.link));
    }
    Ok(())
}

/// What happened to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// It is new, or something about it (name, flags, address, master…) has changed.
    New(Link),
    /// It was deleted, or moved to another namespace.
    Deleted {
        /// Index that it had.
        ifindex: u32,
        /// Name that it had.
        name: String,
        /// It lives on in another namespace.
        moved: bool,
    },
    /// The kernel had to drop events: list the interfaces again.
    Resync,
}

/// Follows the interfaces of one network namespace: that in which it was opened.
///
/// Open it before the interfaces are listed, so that no change is missed. An open monitor keeps its
/// namespace alive: drop it when [`crate::Namespaces::refresh`] reports the namespace as removed.
#[derive(Debug)]
pub struct LinkMonitor(Monitor);

impl LinkMonitor {
    /// Opens a monitor in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        let monitor = Monitor::open(Protocol::Route, &[RTNLGRP_LINK], MONITOR_QUEUE)?;
        Ok(Self(monitor))
    }

    /// Opens a monitor in `namespace`; it stays there.
    pub fn open_in(namespace: &Namespace) -> Result<Self, Error> {
        namespace.enter(Self::open)?
    }

    /// Reads the pending events, in the order in which they happened, without waiting. After a flood some
    /// may be left: the descriptor is then still readable.
    ///
    /// When some were lost, [`LinkEvent::Resync`] is the last one: the kernel reports the loss before those
    /// that are still queued, which are older than the present state, and sends nothing until they have
    /// been read (`netlink_overrun`).
    pub fn read(&mut self) -> Result<Vec<LinkEvent>, Error> {
        let mut events = Vec::new();
        let mut lost = false;
        for _ in 0..READS_AT_MOST {
            let from = events.len();
            let all = self
                .0
                .read(READ_AT_MOST, |notice| add_event(notice, &mut events))?;
            let read = events.split_off(from);
            lost |= read.contains(&LinkEvent::Resync);
            events.extend(read.into_iter().filter(|event| *event != LinkEvent::Resync));
            if all || !lost {
                break;
            }
        }
        if lost {
            events.push(LinkEvent::Resync);
        }
        Ok(events)
    }
}

impl AsFd for LinkMonitor {
    /// Descriptor that becomes readable when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Adds one [`LinkEvent::Resync`], once in a row.
fn resync(events: &mut Vec<LinkEvent>) {
    if events.last() != Some(&LinkEvent::Resync) {
        events.push(LinkEvent::Resync);
    }
}

/// Adds the event of a notification. One that cannot be read counts as lost.
fn add_event(notice: Notice<'_>, events: &mut Vec<LinkEvent>) {
    let Notice::Message { kind, payload, .. } = notice else {
        return resync(events);
    };
    let deleted = match kind {
        RTM_NEWLINK => false,
        RTM_DELLINK => true,
        _ => return,
    };
    match link::decode(payload) {
        Ok(None) => {}
        Ok(Some(decoded)) if deleted => events.push(LinkEvent::Deleted {
            ifindex: decoded.link.ifindex,
            name: decoded.link.name,
            moved: decoded.moved_to.is_some(),
        }),
        Ok(Some(decoded)) => events.push(LinkEvent::New(decoded.link)),
        Err(_) => resync(events),
    }
}

/// The messages of a datagram, each checked to lie wholly within it.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<NetlinkBuffer<&[u8]>, Error>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match NetlinkBuffer::new_checked(rest) {
            Ok(message) => {
                let length = message.length() as usize;
                let (whole, _) = rest.split_at(length);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                Some(Ok(NetlinkBuffer::new(whole)))
            }
            Err(error) => {
                rest = &[];
                Some(Err(Error::Decode(error.to_string())))
            }
        }
    })
}

/// The error that an NLMSG_ERROR carries; its code 0 is an acknowledgement.
pub fn check_error(payload: &[u8], action: &'static str) -> Result<(), Error> {
    let error = ErrorBuffer::new_checked(payload).map_err(|e| Error::Decode(e.to_string()))?;
    match error.code() {
        None => Ok(()),
        Some(code) => Err(Error::netlink(action)(io::Error::from_raw_os_error(
            code.get().saturating_neg(),
        ))),
    }
}
