//! The UDP socket of a receiver.

use std::{
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
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
    /// Listens, with room for so many bytes in its queue if the kernel allows.
    ///
    /// # Errors
    ///
    /// When that is not possible there.
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
        // Beyond net.core.rmem_max only with CAP_NET_ADMIN: what can be had will do.
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

    /// The next datagram, none when there is none now.
    ///
    /// # Errors
    ///
    /// Those of the network, like an ICMP error; the socket goes on.
    pub fn receive(&self, buffer: &mut [u8]) -> std::io::Result<Option<(usize, SocketAddr)>> {
        match self.socket.recv_from(buffer) {
            Ok((length, from)) => Ok(Some((length, unmapped(from)))),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
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
