//! Listing interfaces and following their changes over rtnetlink.

use crate::{Error, Link, Namespace, link};
use netlink_packet_core::{
    ErrorBuffer, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_OVERRUN, NetlinkBuffer, NetlinkMessage,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
/// Multicast group of interface changes (RTNLGRP_LINK, linux/rtnetlink.h).
const RTNLGRP_LINK: u32 = 1;
/// The kernel writes dumps in datagrams of up to 32 KiB; a notification is smaller.
const BUFFER: usize = 64 << 10;
/// Room for about a thousand notifications until they are read.
const MONITOR_QUEUE: usize = 4 << 20;
/// A list is begun again at most so often when the kernel says that it changed underway.
const LIST_ATTEMPTS: u32 = 8;
/// Datagrams that one [`LinkMonitor::read`] takes at most, so that a flood cannot hold it.
const READ_AT_MOST: usize = 1024;
/// Linux's numbers of these errors, the same on all architectures that Rust's std supports.
const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();
const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();

/// A socket that asks for interfaces of one network namespace: that in which it was opened.
#[derive(Debug)]
pub struct LinkSocket {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl LinkSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        let socket = open_socket()?;
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(BUFFER),
            sequence: 0,
        })
    }

    /// Opens a socket in `namespace`; it goes on asking there.
    pub fn open_in(namespace: &Namespace) -> Result<Self, Error> {
        namespace.enter(Self::open)?
    }

    /// All interfaces, also those that are down. The list is consistent: when interfaces come or
    /// go underway it is begun again.
    pub fn list(&mut self) -> Result<Vec<Link>, Error> {
        for _ in 0..LIST_ATTEMPTS {
            let mut links = Vec::new();
            self.request(0, NLM_F_DUMP)?;
            if self.answers(&mut links)? {
                return Ok(links);
            }
        }
        Err(Error::Interrupted(LIST_ATTEMPTS))
    }

    /// The interface with this index, with fresh counters; `None` when there is none.
    pub fn get(&mut self, ifindex: u32) -> Result<Option<Link>, Error> {
        let mut links = Vec::new();
        self.request(ifindex, 0)?;
        match self.answers(&mut links) {
            Err(Error::Netlink { source, .. }) if source.raw_os_error() == Some(ENODEV) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(links.pop()),
        }
    }

    /// Sends RTM_GETLINK.
    fn request(&mut self, ifindex: u32, flags: u16) -> Result<(), Error> {
        let mut link = LinkMessage::default();
        link.header.index = ifindex;
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetLink(link));
        self.sequence = self.sequence.wrapping_add(1);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut request = vec![0; message.buffer_len()];
        message.serialize(&mut request);
        self.socket
            .send_to(&request, &SocketAddr::new(0, 0), 0)
            .map_err(Error::netlink("asking for interfaces"))?;
        Ok(())
    }

    /// Reads the answer to the last request to its end. False: the kernel says that the
    /// interfaces changed while it listed them.
    fn answers(&mut self, links: &mut Vec<Link>) -> Result<bool, Error> {
        const ACTION: &str = "reading interfaces";
        let mut consistent = true;
        loop {
            self.buffer.clear();
            // MSG_TRUNC: the true length is returned, so that a cut is noticed.
            let (length, _) = self
                .socket
                .recv_from(&mut self.buffer, MSG_TRUNC)
                .map_err(Error::netlink(ACTION))?;
            if length > self.buffer.len() {
                return Err(Error::Decode(format!("{length} bytes at once")));
            }
            for message in messages(&self.buffer) {
                let message = message?;
                if message.sequence_number() != self.sequence {
                    // The rest of an answer that an earlier error left unread.
                    continue;
                }
                let multipart = message.flags() & NLM_F_MULTIPART != 0;
                consistent &= message.flags() & NLM_F_DUMP_INTR == 0;
                match message.message_type() {
                    NLMSG_DONE => return Ok(consistent),
                    NLMSG_ERROR => {
                        check_error(message.payload(), ACTION)?;
                        return Ok(consistent);
                    }
                    RTM_NEWLINK => {
                        if let Some(decoded) = link::decode(message.payload())? {
                            links.push(decoded.link);
                        }
                        if !multipart {
                            return Ok(consistent);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// What happened to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// It is new, or something about it (name, flags, address, master…) has changed.
    New(Link),
    /// It is gone from this namespace: deleted, or moved to another one.
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
/// Open it before the interfaces are listed, so that nothing falls in between. An open monitor
/// keeps its namespace alive: drop it when [`crate::Namespaces::refresh`] says that the namespace
/// is gone.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl LinkMonitor {
    /// Opens a monitor in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        let mut socket = open_socket()?;
        // A larger queue than the system's limit needs CAP_NET_ADMIN; without it the limit will
        // do, for a lost event is reported.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, MONITOR_QUEUE).is_err()
        {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, MONITOR_QUEUE)
                .map_err(|e| Error::netlink("setting the queue's size")(e.into()))?;
        }
        socket
            .set_non_blocking(true)
            .map_err(Error::netlink("setting non-blocking"))?;
        socket.bind_auto().map_err(Error::netlink("binding"))?;
        socket
            .add_membership(RTNLGRP_LINK)
            .map_err(Error::netlink("subscribing to interface changes"))?;
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Opens a monitor in `namespace`; it goes on watching there.
    pub fn open_in(namespace: &Namespace) -> Result<Self, Error> {
        namespace.enter(Self::open)?
    }

    /// Takes the events that are there, in the order in which they happened, without waiting.
    /// After a flood some may be left: the descriptor is then still readable.
    pub fn read(&mut self) -> Result<Vec<LinkEvent>, Error> {
        let mut events = Vec::new();
        for _ in 0..READ_AT_MOST {
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer, MSG_TRUNC) {
                Ok((length, sender)) => {
                    // Port 0 is the kernel; others are not believed.
                    if sender.port_number() != 0 {
                        continue;
                    }
                    if length > self.buffer.len() {
                        resync(&mut events);
                    } else {
                        read_events(&self.buffer, &mut events);
                    }
                }
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => resync(&mut events),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::netlink("reading interface changes")(e)),
            }
        }
        Ok(events)
    }
}

impl AsFd for LinkMonitor {
    /// Descriptor that becomes readable when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Adds one [`LinkEvent::Resync`], once in a row.
fn resync(events: &mut Vec<LinkEvent>) {
    if events.last() != Some(&LinkEvent::Resync) {
        events.push(LinkEvent::Resync);
    }
}

/// Decodes one datagram of notifications. What cannot be read counts as lost.
fn read_events(datagram: &[u8], events: &mut Vec<LinkEvent>) {
    for message in messages(datagram) {
        let Ok(message) = message else {
            return resync(events);
        };
        let deleted = match message.message_type() {
            RTM_NEWLINK => false,
            RTM_DELLINK => true,
            NLMSG_OVERRUN => {
                resync(events);
                continue;
            }
            _ => continue,
        };
        match link::decode(message.payload()) {
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
}

/// MSG_TRUNC of recv(2), the same on all architectures.
const MSG_TRUNC: i32 = 0x20;
/// Part of an answer of several messages (linux/netlink.h).
const NLM_F_MULTIPART: u16 = netlink_packet_core::NLM_F_MULTIPART;

fn open_socket() -> Result<Socket, Error> {
    Socket::new(NETLINK_ROUTE).map_err(Error::netlink("opening a socket"))
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
