//! Notifications of the kernel.

use crate::request::{BUFFER, MSG_TRUNC};
use crate::{Error, Namespace, Protocol, messages};
use netlink_packet_core::NLMSG_OVERRUN;
use netlink_sys::Socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Room for about a thousand notifications until they are read, in bytes.
pub const MONITOR_QUEUE: usize = 4 << 20;
/// Linux's number of this error, the same on all architectures that Rust's std supports.
const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

/// A notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A message.
    Message {
        /// Its type (RTM_…, or the family of generic netlink).
        kind: u16,
        /// Its flags (NLM_F_…).
        flags: u16,
        /// What it says.
        payload: &'a [u8],
    },
    /// The kernel had to drop notifications, or one could not be read: everything must be listed again.
    Lost,
}

/// Follows multicast groups in one network namespace: that in which it was opened.
///
/// Open it before listing what it reports, so that no change is missed. It keeps its namespace alive.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Opens a monitor of `groups` in the calling thread's namespace, with room for notifications
    /// of `queue` bytes. Groups that this kernel does not have are left out, except the first.
    pub fn open(protocol: Protocol, groups: &[u32], queue: usize) -> Result<Self, Error> {
        let mut socket = protocol.open()?;
        // A larger queue than the system's limit needs CAP_NET_ADMIN; without it the limit will
        // do, for a lost event is reported.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, queue).is_err() {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, queue)
                .map_err(|e| Error::netlink("setting the queue's size")(e.into()))?;
        }
        socket
            .set_non_blocking(true)
            .map_err(Error::netlink("setting non-blocking"))?;
        socket.bind_auto().map_err(Error::netlink("binding"))?;
        for (at, group) in groups.iter().enumerate() {
            let joined = socket.add_membership(*group);
            if at == 0 {
                joined.map_err(Error::netlink("subscribing to changes"))?;
            }
        }
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Opens a monitor in `namespace`; it stays there.
    pub fn open_in(
        protocol: Protocol,
        groups: &[u32],
        queue: usize,
        namespace: &Namespace,
    ) -> Result<Self, Error> {
        namespace.enter(|| Self::open(protocol, groups, queue))?
    }

    /// Hands out the queued notifications, in the order in which they happened, without waiting; at most so
    /// many datagrams. True: all are read.
    pub fn read(&mut self, most: usize, mut take: impl FnMut(Notice<'_>)) -> Result<bool, Error> {
        for _ in 0..most {
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer, MSG_TRUNC) {
                Ok((length, sender)) => {
                    // Port 0 is the kernel; others are not believed.
                    if sender.port_number() != 0 {
                        continue;
                    }
                    if length > self.buffer.len() {
                        take(Notice::Lost);
                    } else {
                        read_datagram(&self.buffer, &mut take);
                    }
                }
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => take(Notice::Lost),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::netlink("reading changes")(e)),
            }
        }
        Ok(false)
    }
}

/// Hands out the messages of a datagram. What cannot be read counts as lost.
fn read_datagram(datagram: &[u8], take: &mut impl FnMut(Notice<'_>)) {
    for message in messages(datagram) {
        match message {
            Err(_) => take(Notice::Lost),
            Ok(message) if message.message_type() == NLMSG_OVERRUN => take(Notice::Lost),
            Ok(message) => take(Notice::Message {
                kind: message.message_type(),
                flags: message.flags(),
                payload: message.payload(),
            }),
        }
    }
}

impl AsFd for Monitor {
    /// Descriptor that becomes readable when there are notifications.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
