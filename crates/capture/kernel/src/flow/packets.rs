//! Packets that the flow programs send in addition to counting them.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    sync::atomic::Ordering::Release,
};

use skua_flow::FlowKey;

use super::{
    LinkKind,
    layout::{Control, key},
    object::FlowObject,
};
use crate::{
    Direction, KernelError,
    bindings::flow::{PACKET_FIRST, PACKET_HEAD, PACKET_LIVE, PACKET_MOST, PacketHead},
    clock,
    grace::Grace,
    mapping::Window,
    plain::Plain as _,
    ring::Ring,
};

const HEAD: usize = size_of::<PacketHead>();
/// The smallest message: a head and the smallest room for a packet.
const SMALLEST: usize = HEAD + 128;
const RING_BYTES: std::ops::RangeInclusive<u32> = 1 << 18..=1 << 28;

/// Which packets are sent, and how much of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketConfig {
    /// The first packets of each entry; 0: none, but all of them while a live stream is open.
    pub first: u8,
    /// Heads of conversations per second and CPU at most, see `bpf/flow/heads.h`; 0: none.
    pub heads: u32,
    /// How many segments of each side of a connection are heads; of other datagrams than those of DNS, when this is not 0,
    /// the first of each side.
    pub head_segments: u8,
    /// Bytes of a packet from its link header on, at least 1 and at most 65,536.
    pub bytes: u32,
    /// Memory of the ring through which they come: made a power of two from 256 KiB to 256 MiB.
    pub ring_bytes: u32,
}

impl Default for PacketConfig {
    fn default() -> Self {
        Self {
            first: 0,
            heads: 0,
            head_segments: 0,
            bytes: 256,
            ring_bytes: 4 << 20,
        }
    }
}

impl PacketConfig {
    pub(super) fn most_bytes(&self) -> u32 {
        self.bytes.clamp(1, PACKET_MOST)
    }

    pub(super) fn ring_size(&self) -> u32 {
        let (least, most) = RING_BYTES.into_inner();
        self.ring_bytes.clamp(least, most).next_power_of_two()
    }
}

/// A packet as a program sent it.
#[derive(Clone, Copy, Debug)]
pub struct SentPacket<'a> {
    /// The flow that it was counted in. Of one that is in no flow only namespace and interface are
    /// right.
    pub key: FlowKey,
    /// Place among the first packets of its entry from 1 on; none: it is not one of them.
    pub index: Option<u8>,
    /// It is for live streams.
    pub live: bool,
    /// It is one of those in which something is said.
    pub head: bool,
    /// When, ns since the Unix epoch.
    pub time_ns: u64,
    /// Direction at the interface.
    pub direction: Direction,
    /// Type of the first header.
    pub link: LinkKind,
    /// Length of the whole packet in bytes, without `tag`.
    pub length: u32,
    /// The outermost VLAN tag, when it is not in `data`: EtherType, tag control information.
    pub tag: Option<(u16, u16)>,
    /// Its bytes from the link header on, cut.
    pub data: &'a [u8],
}

impl<'a> SentPacket<'a> {
    /// From `struct packet_head` and what follows; `offset_ns` makes wall-clock time of the
    /// programs' clock.
    fn read(bytes: &'a [u8], offset_ns: i64) -> Option<Self> {
        let head = PacketHead::read(bytes)?;
        let why = u32::from(head.why);
        let tag = (head.tag_protocol, head.tag);
        Some(Self {
            key: key(head.key),
            time_ns: head.time.saturating_add_signed(offset_ns),
            length: head.length,
            data: bytes[HEAD..].get(..head.captured as usize)?,
            tag: (tag.0 != 0).then_some(tag),
            index: (why & PACKET_FIRST != 0 && head.index > 0).then_some(head.index),
            live: why & PACKET_LIVE != 0,
            head: why & PACKET_HEAD != 0,
            direction: match head.direction {
                0 => Direction::Ingress,
                _ => Direction::Egress,
            },
            link: match head.ethernet {
                0 => LinkKind::Ip,
                _ => LinkKind::Ethernet,
            },
        })
    }
}

/// The reader of the packets.
pub struct PacketRing {
    ring: Ring,
    control: Window<Control>,
    grace: Grace,
}

impl PacketRing {
    pub(super) fn new(object: &FlowObject, config: &PacketConfig) -> Result<Self, KernelError> {
        let map = object.map("packets")?;
        Ok(Self {
            ring: Ring::new(map.as_fd(), config.ring_size(), SMALLEST)?,
            control: Window::map(object.map("control")?.as_fd(), 0, 1)?,
            grace: Grace::new()?,
        })
    }

    /// Readable when packets should be drained: at once while a live stream is open, else when the ring
    /// fills up.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.ring.wake()
    }

    /// Sets whether a live stream is open. All programs use the new value when this returns.
    ///
    /// # Errors
    ///
    /// When the kernel does not let us wait for the programs.
    pub fn set_live(&mut self, live: bool) -> Result<(), KernelError> {
        self.control.elements()[0].live.store(live.into(), Release);
        self.grace.wait()
    }

    /// Hands out the pending packets, in the order in which they were sent; true when there may be more.
    ///
    /// # Errors
    ///
    /// When the ring cannot be read.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&SentPacket<'_>)) -> Result<bool, KernelError> {
        let offset = clock::unix_offset_ns();
        self.ring.drain(&mut |bytes| {
            if let Some(packet) = SentPacket::read(bytes, offset) {
                sink(&packet);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_a_size_that_the_kernel_takes() {
        let size = |ring_bytes| {
            PacketConfig {
                ring_bytes,
                ..PacketConfig::default()
            }
            .ring_size()
        };
        assert_eq!(
            [0, 300_000, u32::MAX].map(size),
            [1 << 18, 1 << 19, 1 << 28]
        );
    }

    #[test]
    fn a_message_that_is_cut_is_none() {
        let mut message = [0u8; HEAD + 10];
        message[68..72].copy_from_slice(&10u32.to_ne_bytes());
        message[76] = PACKET_FIRST as u8;
        message[77] = 1;
        let packet = SentPacket::read(&message, 5).unwrap();
        assert_eq!(
            (packet.index, packet.live, packet.time_ns),
            (Some(1), false, 5)
        );
        assert_eq!(packet.data.len(), 10);
        assert!(SentPacket::read(&message[..HEAD + 9], 5).is_none());
        assert!(SentPacket::read(&message[..HEAD - 1], 5).is_none());
    }
}
