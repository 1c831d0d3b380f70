//! Receives the few frames of one protocol on all interfaces of a network namespace.

use crate::{Direction, sys};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// A packet socket for one EtherType: the kernel copies no other frames. It receives in the network namespace of the
/// thread that opened it, and may then be used from any other.
#[derive(Debug)]
pub struct ProtocolListener {
    socket: OwnedFd,
}

/// A frame of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its length in bytes; what exceeds the buffer is cut off.
    pub length: usize,
    /// Index of the interface.
    pub ifindex: u32,
    /// For whom it was.
    pub direction: Direction,
}

impl ProtocolListener {
    /// Opens one for an EtherType.
    ///
    /// # Errors
    ///
    /// Without the right to (CAP_NET_RAW).
    pub fn open(ethertype: u16) -> io::Result<Self> {
        let socket = sys::open_socket()?;
        // All interfaces.
        sys::bind(&socket, 0, ethertype)?;
        Ok(Self { socket })
    }

    /// Has an interface receive frames to a group's address, which network cards leave out otherwise; until the
    /// listener is dropped.
    ///
    /// # Errors
    ///
    /// The interface has gone, or has no such addresses.
    pub fn join(&self, ifindex: u32, group: [u8; 6]) -> io::Result<()> {
        let ifindex = i32::try_from(ifindex);
        let mut address = [0; 8];
        address[..6].copy_from_slice(&group);
        let request = libc::packet_mreq {
            mr_ifindex: ifindex.map_err(|_| io::ErrorKind::InvalidInput)?,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: address,
        };
        let option = libc::PACKET_ADD_MEMBERSHIP;
        sys::set_option(&self.socket, libc::SOL_PACKET, option, &request)
    }

    /// The next frame, if one is there.
    ///
    /// # Errors
    ///
    /// An interface went down, or the kernel is out of memory; later calls may succeed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        match sys::receive(&self.socket, buffer) {
            Ok((length, address)) => Ok(Some(Received {
                length: length.min(buffer.len()),
                ifindex: u32::try_from(address.sll_ifindex).unwrap_or(0),
                direction: Direction::from_packet_type(address.sll_pkttype),
            })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for ProtocolListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
