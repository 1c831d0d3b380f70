//! Packets that come to user space.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    time::Duration,
};

use libbpf_rs::MapHandle;
use rustix::event::{PollFd, PollFlags, poll};

use super::layout::{Plain as _, TapPacket};
use crate::{Direction, KernelError, bindings::tap::FROM_EGRESS, clock, ring::Ring};

const HEAD: usize = size_of::<TapPacket>();
/// The smallest message: a head and the smallest room for a packet.
const SMALLEST: usize = HEAD + 128;
/// `packets` in `bpf/tap/source.bpf.c`.
const RING_BYTES: u32 = 1 << 22;

/// A packet as a program sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TappedPacket<'a> {
    /// When, ns since the Unix epoch.
    pub time_ns: u64,
    /// Number of its source.
    pub source: u32,
    /// Direction at the interface.
    pub direction: Direction,
    /// Length of the whole packet in bytes, without `tag`.
    pub length: u32,
    /// The outermost VLAN tag, when it is not in `data`: EtherType, tag control information.
    pub tag: Option<(u16, u16)>,
    /// Its bytes from the Ethernet header on, cut.
    pub data: &'a [u8],
}

impl<'a> TappedPacket<'a> {
    fn read(bytes: &'a [u8], offset_ns: i64) -> Option<Self> {
        let head = TapPacket::read(bytes)?;
        let tag = (head.tag_protocol, head.tag);
        Some(Self {
            time_ns: head.time.saturating_add_signed(offset_ns),
            source: head.source & !FROM_EGRESS,
            direction: match head.source & FROM_EGRESS {
                0 => Direction::Ingress,
                _ => Direction::Egress,
            },
            length: head.length,
            tag: (tag.0 != 0).then_some(tag),
            data: bytes[HEAD..].get(..head.captured as usize)?,
        })
    }
}

/// The reader of a tap's packets.
pub struct PacketReader {
    ring: Ring,
}

impl PacketReader {
    pub(super) fn new(map: &MapHandle) -> Result<Self, KernelError> {
        Ok(Self {
            ring: Ring::new(map.as_fd(), RING_BYTES, SMALLEST)?,
        })
    }

    /// Readable when packets should be taken.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.ring.wake()
    }

    /// Waits for packets, at most so long.
    pub fn wait(&self, patience: Duration) {
        let mut fds = [PollFd::from_borrowed_fd(self.wake(), PollFlags::IN)];
        // A signal, too, only ends the wait.
        let _ = poll(&mut fds, patience.try_into().ok().as_ref());
    }

    /// Hands out the pending packets, in the order in which they were sent; true when there may be more.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&TappedPacket<'_>)) -> Result<bool, KernelError> {
        let offset = clock::unix_offset_ns();
        self.ring.drain(&mut |bytes| {
            if let Some(packet) = TappedPacket::read(bytes, offset) {
                sink(&packet);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_and_one_that_is_cut_is_none() {
        let mut message = [0u8; HEAD + 10];
        message[8..12].copy_from_slice(&64u32.to_ne_bytes());
        message[12..16].copy_from_slice(&10u32.to_ne_bytes());
        message[16..20].copy_from_slice(&(3 | FROM_EGRESS).to_ne_bytes());
        message[20..22].copy_from_slice(&0x8100u16.to_ne_bytes());
        message[22..24].copy_from_slice(&5u16.to_ne_bytes());
        let packet = TappedPacket::read(&message, 7).unwrap();
        assert_eq!((packet.time_ns, packet.source, packet.length), (7, 3, 64));
        assert_eq!(packet.direction, Direction::Egress);
        assert_eq!((packet.tag, packet.data.len()), (Some((0x8100, 5)), 10));
        for length in [0, HEAD - 1, HEAD + 9] {
            assert!(TappedPacket::read(&message[..length], 0).is_none());
        }
    }
}
