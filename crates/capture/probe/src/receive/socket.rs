//! The UDP socket of a receiver.

use std::{
    io::IoSliceMut,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg},
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::ProbeError;

/// A UDP socket that never blocks, and what the kernel dropped for it.
pub struct Socket {
    socket: UdpSocket,
    inode: u64,
    v6: bool,
}

impl Socket {
    /// Listens, with a queue of this many bytes if the kernel allows.
    ///
    /// # Errors
    ///
    /// When listening fails.
    pub fn bind(address: SocketAddr, queue_bytes: usize) -> Result<Self, ProbeError> {
        let listen = |source| ProbeError::Listen { address, source };
        let socket = UdpSocket::bind(address).map_err(listen)?;
        Self::of(socket, address, queue_bytes)
    }

    /// The same, as one of several sockets at this address, between which the kernel shares senders.
    ///
    /// # Errors
    ///
    /// As with [`bind`](Self::bind).
    pub fn bind_shared(address: SocketAddr, queue_bytes: usize) -> Result<Self, ProbeError> {
        let open = || -> rustix::io::Result<UdpSocket> {
            let family = match address {
                SocketAddr::V4(_) => AddressFamily::INET,
                SocketAddr::V6(_) => AddressFamily::INET6,
            };
            let flags = SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            Ok(socket.into())
        };
        let socket = open().map_err(|error| ProbeError::Listen {
            address,
            source: error.into(),
        })?;
        Self::of(socket, address, queue_bytes)
    }

    fn of(socket: UdpSocket, address: SocketAddr, queue_bytes: usize) -> Result<Self, ProbeError> {
        let listen = |source| ProbeError::Listen { address, source };
        socket.set_nonblocking(true).map_err(listen)?;
        // Beyond net.core.rmem_max only with CAP_NET_ADMIN: a smaller queue is accepted.
        if sockopt::set_socket_recv_buffer_size_force(&socket, queue_bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, queue_bytes);
        }
        let inode = rustix::fs::fstat(&socket)
            .map_err(|error| listen(error.into()))?
            .st_ino;
        Ok(Self {
            socket,
            inode,
            v6: address.is_ipv6(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next datagram, none when the queue is empty.
    ///
    /// # Errors
    ///
    /// Those of the network, like an ICMP error; the socket stays usable.
    pub fn receive(&self, buffer: &mut [u8]) -> std::io::Result<Option<(usize, SocketAddr)>> {
        match self.socket.recv_from(buffer) {
            Ok((length, from)) => Ok(Some((length, unmapped(from)))),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Receives queued datagrams, at most [`MANY`], with one system call, and hands each to `each`. Returns
    /// how many there were.
    ///
    /// # Errors
    ///
    /// Those of the network, like an ICMP error; the socket stays usable.
    pub fn receive_many(
        &self,
        buffers: &mut ReceiveBuffers,
        mut each: impl FnMut(&[u8], SocketAddr),
    ) -> std::io::Result<usize> {
        let mut places = buffers.buffer.chunks_exact_mut(STRIDE);
        let mut slices: [_; MANY] = std::array::from_fn(|_| {
            let place = places.next().unwrap_or_default();
            [IoSliceMut::new(place)]
        });
        let fd = self.socket.as_raw_fd();
        let received = recvmmsg(
            fd,
            &mut buffers.headers,
            slices.iter_mut(),
            MsgFlags::MSG_DONTWAIT,
            None,
        );
        let received = match received {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let mut count = 0;
        for message in received {
            count += 1;
            let Some(from) = message.address.as_ref().and_then(sender) else {
                continue;
            };
            each(message.iovs().next().unwrap_or_default(), unmapped(from));
        }
        Ok(count)
    }

    /// A second handle of the socket, to answer from the same address.
    ///
    /// # Errors
    ///
    /// When there are too many open files.
    pub fn answering(&self) -> std::io::Result<Answering> {
        Ok(Answering {
            socket: self.socket.try_clone()?,
            v6: self.v6,
        })
    }

    /// Datagrams that the kernel dropped since the socket is there, because its queue was full.
    pub fn dropped(&self) -> Option<u64> {
        let file = match self.v6 {
            false => "/proc/thread-self/net/udp",
            true => "/proc/thread-self/net/udp6",
        };
        drops(&std::fs::read_to_string(file).ok()?, self.inode)
    }
}

/// Sends answers to the senders of a [`Socket`].
pub struct Answering {
    socket: UdpSocket,
    v6: bool,
}

impl Answering {
    /// Sends a datagram, at once or not at all.
    ///
    /// # Errors
    ///
    /// When the socket's queue is full, or there is no route.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> std::io::Result<()> {
        let to = match to.ip() {
            // As at a socket of both families.
            IpAddr::V4(v4) if self.v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), to.port()),
            _ => to,
        };
        self.socket.send_to(bytes, to).map(|_| ())
    }
}

/// Datagrams that one system call takes at most.
pub const MANY: usize = 64;
/// The longest datagram of UDP, and some more: pieces whose beginnings were multiples of a page apart would
/// drive each other out of the processor's caches.
const STRIDE: usize = 65_536 + 23 * 64;

/// Room for the datagrams that one system call takes.
pub struct ReceiveBuffers {
    buffer: Vec<u8>,
    headers: MultiHeaders<SockaddrStorage>,
}

impl Default for ReceiveBuffers {
    fn default() -> Self {
        Self {
            // Of pages that nothing was written to there are none.
            buffer: vec![0; MANY * STRIDE],
            headers: MultiHeaders::preallocate(MANY, None),
        }
    }
}

fn sender(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddr::new(IpAddr::V6(v6.ip()), v6.port()))
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The column "drops" (the last) of the socket whose inode (the tenth) is this.
fn drops(table: &str, inode: u64) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let found: u64 = columns.nth(9)?.parse().ok()?;
        (found == inode).then(|| columns.next_back()?.parse().ok())?
    })
}

/// IPv4 senders at a socket of both families are IPv4.
pub(super) fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_taken_at_once_with_their_senders() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = Socket::bind(address.parse().unwrap(), 4 << 20).unwrap();
            let senders = [1, 2].map(|_| UdpSocket::bind(address).unwrap());
            let (mut buffers, mut got) = (ReceiveBuffers::default(), Vec::new());
            let each = |got: &mut Vec<_>, bytes: &[u8], from| got.push((bytes.to_vec(), from));
            assert_eq!(socket.receive_many(&mut buffers, |_, _| ()).unwrap(), 0);
            for number in 0..=255 {
                let sent = vec![number; usize::from(number) * 20];
                let to = socket.address().unwrap();
                senders[usize::from(number % 2)].send_to(&sent, to).unwrap();
                if number % 100 == 99 {
                    while socket
                        .receive_many(&mut buffers, |bytes, from| each(&mut got, bytes, from))
                        .unwrap()
                        > 0
                    {}
                }
            }
            let mut calls = 0;
            while socket
                .receive_many(&mut buffers, |bytes, from| each(&mut got, bytes, from))
                .unwrap()
                > 0
            {
                calls += 1;
            }
            assert_eq!((got.len(), calls), (256, 1));
            for (number, (bytes, from)) in (0..=255).zip(got) {
                assert_eq!(bytes, vec![number; usize::from(number) * 20]);
                let sender = &senders[usize::from(number % 2)];
                assert_eq!(from, sender.local_addr().unwrap());
            }
        }
    }

    #[test]
    fn drops_are_the_kernels() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), 4096).unwrap();
        assert_eq!(socket.dropped(), Some(0));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..1_000 {
            sender
                .send_to(&[0; 1_000], socket.address().unwrap())
                .unwrap();
        }
        let (mut got, mut buffer) = (0, [0; 2_000]);
        while socket.receive(&mut buffer).unwrap().is_some() {
            got += 1;
        }
        assert_eq!(socket.dropped(), Some(1_000 - got));
        assert!(got > 0 && got < 1_000);
        let v6 = Socket::bind("[::1]:0".parse().unwrap(), 4096).unwrap();
        assert_eq!(v6.dropped(), Some(0));
    }
}
