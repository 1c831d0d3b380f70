//! Requests to the kernel over netlink, and their answers.

use crate::{Error, Namespace, check_error, messages};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
};
use netlink_sys::{
    Socket, SocketAddr,
    protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE},
};

/// The kernel writes dumps in datagrams of up to 32 KiB; a notification is smaller.
pub(crate) const BUFFER: usize = 64 << 10;
/// MSG_TRUNC of recv(2), the same on all architectures.
pub(crate) const MSG_TRUNC: i32 = 0x20;
/// Length of a message's head (`struct nlmsghdr`, linux/netlink.h).
const HEAD: usize = 16;

/// Which part of the kernel is spoken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// NETLINK_ROUTE: interfaces, addresses, routes, neighbours.
    Route,
    /// NETLINK_GENERIC: ethtool.
    Generic,
    /// NETLINK_NETFILTER: nftables.
    Netfilter,
}

impl Protocol {
    pub(crate) fn open(self) -> Result<Socket, Error> {
        let number = match self {
            Self::Route => NETLINK_ROUTE,
            Self::Generic => NETLINK_GENERIC,
            Self::Netfilter => NETLINK_NETFILTER,
        };
        Socket::new(number).map_err(Error::netlink("opening a socket"))
    }
}

/// A socket for requests in one network namespace: that in which it was opened.
#[derive(Debug)]
pub struct Requests {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Requests {
    /// Opens a socket in the calling thread's namespace.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        Ok(Self {
            socket: protocol.open()?,
            buffer: Vec::with_capacity(BUFFER),
            sequence: 0,
        })
    }

    /// Opens a socket in `namespace`; it stays there.
    pub fn open_in(protocol: Protocol, namespace: &Namespace) -> Result<Self, Error> {
        namespace.enter(|| Self::open(protocol))?
    }

    /// Requests one object and hands out type and payload of the messages of the answer.
    pub fn get(
        &mut self,
        kind: u16,
        payload: &[u8],
        take: impl FnMut(u16, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.send(kind, 0, payload)?;
        self.answers(take).map(drop)
    }

    /// Requests all objects of a kind, as [`get`](Self::get). False: the kernel says that they changed
    /// while it listed them.
    pub fn dump(
        &mut self,
        kind: u16,
        payload: &[u8],
        take: impl FnMut(u16, &[u8]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        self.send(kind, NLM_F_DUMP, payload)?;
        self.answers(take)
    }

    /// Has something changed and waits for the kernel to say that it is done.
    pub fn change(&mut self, kind: u16, payload: &[u8]) -> Result<(), Error> {
        self.change_with(kind, 0, payload)
    }

    /// As [`change`](Self::change), with more flags (NLM_F_CREATE and the like).
    pub(crate) fn change_with(
        &mut self,
        kind: u16,
        flags: u16,
        payload: &[u8],
    ) -> Result<(), Error> {
        self.send(kind, NLM_F_ACK | flags, payload)?;
        self.answers(|_, _| Ok(())).map(drop)
    }

    fn send(&mut self, kind: u16, flags: u16, payload: &[u8]) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEAD + payload.len()).unwrap_or(u32::MAX);
        let mut request = Vec::with_capacity(HEAD + payload.len());
        request.extend_from_slice(&length.to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        request.extend_from_slice(&0u32.to_ne_bytes());
        request.extend_from_slice(payload);
        self.socket
            .send_to(&request, &SocketAddr::new(0, 0), 0)
            .map_err(Error::netlink("asking"))?;
        Ok(())
    }

    /// Reads the answer to the last request to its end.
    fn answers(
        &mut self,
        mut take: impl FnMut(u16, &[u8]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        const ACTION: &str = "reading an answer";
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
                consistent &= message.flags() & NLM_F_DUMP_INTR == 0;
                match message.message_type() {
                    NLMSG_DONE => return Ok(consistent),
                    NLMSG_ERROR => {
                        check_error(message.payload(), ACTION)?;
                        return Ok(consistent);
                    }
                    kind => {
                        take(kind, message.payload())?;
                        if message.flags() & NLM_F_MULTIPART == 0 {
                            return Ok(consistent);
                        }
                    }
                }
            }
        }
    }
}
