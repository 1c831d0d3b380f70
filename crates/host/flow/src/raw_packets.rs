//! Packets themselves: the first ones of each flow, kept in bounded memory.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::{Direction, FlowKey};

/// Bytes before each packet in a [`PacketBuffer`].
const HEAD: usize = 32;
/// A VLAN tag stands behind the two MAC addresses.
const TAG_AT: usize = 12;
/// Memory of a flow in addition to its packets: its key twice, the buffer, its share of the map.
const FLOW_OVERHEAD: usize = 256;
/// Buffers of dropped flows, kept for new ones; not part of the bounded memory.
const MOST_SPARE: usize = 64;
/// A larger buffer is not kept.
const MOST_SPARE_BYTES: usize = 16 << 10;
/// Entries of the flow table that come one after the other under one key and whose first packets are
/// kept: connections that use the same ports again.
const MOST_ENTRIES: usize = 8;
/// A record begins and ends by clocks a little coarser than that of packets, ns.
const EARLY_NS: u64 = 1_000_000;
const LATE_NS: u64 = 10_000_000;

/// A packet as it was seen on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObservedPacket<'a> {
    /// When, ns since the Unix epoch.
    pub time_ns: u64,
    /// The agent's number of the network namespace.
    pub netns: u16,
    /// Interface index there.
    pub ifindex: u32,
    /// Direction at the interface.
    pub direction: Direction,
    /// LINKTYPE_ number of the first header (1 Ethernet, 101 IP).
    pub link_type: u32,
    /// Length of the whole packet in bytes, without `tag`.
    pub length: u32,
    /// The outermost VLAN tag when it is not in `data`: EtherType, tag control information.
    pub tag: Option<(u16, u16)>,
    /// The bytes that were captured, from the link header on.
    pub data: &'a [u8],
}

/// A packet as it is kept and handed out: as on the wire, tags in their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawPacket<'a> {
    /// When, ns since the Unix epoch.
    pub time_ns: u64,
    /// The agent's number of the network namespace.
    pub netns: u16,
    /// Interface index there.
    pub ifindex: u32,
    /// Direction at the interface.
    pub direction: Direction,
    /// LINKTYPE_ number (1 Ethernet, 101 IP).
    pub link_type: u32,
    /// Length of the whole packet in bytes; a super-packet (GSO, GRO) is one packet.
    pub length: u32,
    /// Its bytes from the link header on, cut.
    pub data: &'a [u8],
}

/// Packets one behind the other in one piece of memory.
#[derive(Clone, Default, Debug)]
pub struct PacketBuffer {
    bytes: Vec<u8>,
    packets: usize,
}

impl PacketBuffer {
    /// Adds a packet, of which at most `most` bytes.
    pub fn push(&mut self, packet: &ObservedPacket<'_>, most: usize) {
        let tag = packet
            .tag
            .filter(|_| packet.data.len() >= TAG_AT)
            .map(|(protocol, tci)| {
                let ([a, b], [c, d]) = (protocol.to_be_bytes(), tci.to_be_bytes());
                [a, b, c, d]
            });
        let (before, behind) = match tag {
            Some(_) => packet.data.split_at(TAG_AT),
            None => (packet.data, &[][..]),
        };
        let inserted = tag.as_ref().map_or(&[][..], |tag| &tag[..]);
        let captured = (packet.data.len() + inserted.len()).min(most);
        let length = packet.length.saturating_add(inserted.len() as u32);
        self.bytes.reserve(HEAD + captured);
        self.bytes.extend_from_slice(&packet.time_ns.to_ne_bytes());
        for word in [
            length,
            captured as u32,
            packet.ifindex,
            packet.link_type,
            u32::from(packet.netns),
            u32::from(packet.direction == Direction::Egress),
        ] {
            self.bytes.extend_from_slice(&word.to_ne_bytes());
        }
        let mut left = captured;
        for part in [before, inserted, behind] {
            let part = &part[..part.len().min(left)];
            self.bytes.extend_from_slice(part);
            left -= part.len();
        }
        self.packets += 1;
    }

    /// The packets, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = RawPacket<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (packet, behind) = read(rest)?;
            rest = behind;
            Some(packet)
        })
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Bytes that are in use.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all packets; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets = 0;
    }

    /// Removes the oldest packet.
    fn forget_first(&mut self) {
        if let Some((_, behind)) = read(&self.bytes) {
            let gone = self.bytes.len() - behind.len();
            self.bytes.drain(..gone);
            self.packets -= 1;
        }
    }
}

fn read(bytes: &[u8]) -> Option<(RawPacket<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let (time, words) = head.split_first_chunk::<8>()?;
    let mut words = words.chunks_exact(4).map(|word| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(word);
        u32::from_ne_bytes(bytes)
    });
    let [length, captured, ifindex, link_type, netns, egress] =
        std::array::from_fn(|_| words.next().unwrap_or(0));
    let (data, behind) = rest.split_at_checked(captured as usize)?;
    let packet = RawPacket {
        time_ns: u64::from_ne_bytes(*time),
        netns: netns as u16,
        ifindex,
        direction: match egress {
            0 => Direction::Ingress,
            _ => Direction::Egress,
        },
        link_type,
        length,
        data,
    };
    Some((packet, behind))
}

/// Which packets are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawPacketLimits {
    /// The first packets of each flow; 0 keeps none.
    pub first: u8,
    /// Bytes of each packet.
    pub bytes: usize,
    /// Memory for all of them in bytes: above it, the oldest flows' packets are dropped.
    pub memory: usize,
}

/// What was kept and what was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RawPacketStats {
    /// Packets kept since the start.
    pub kept: u64,
    /// Of these, packets that had to go because memory was full.
    pub forgotten: u64,
    /// Flows that had packets and of which all had to go.
    pub forgotten_flows: u64,
    /// Flows that have packets now.
    pub flows: u64,
    /// Memory in use, bytes.
    pub memory: u64,
}

/// The first packets of flows.
#[derive(Debug)]
pub struct RawPackets {
    limits: RawPacketLimits,
    flows: HashMap<FlowKey, PacketBuffer>,
    /// In the order in which their first packets came.
    order: VecDeque<FlowKey>,
    spare: Vec<PacketBuffer>,
    stats: RawPacketStats,
    memory: usize,
}

impl RawPackets {
    /// Keeps nothing yet.
    pub fn new(limits: RawPacketLimits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            order: VecDeque::new(),
            spare: Vec::new(),
            stats: RawPacketStats::default(),
            memory: 0,
        }
    }

    /// The limits.
    pub fn limits(&self) -> RawPacketLimits {
        self.limits
    }

    /// Keeps one of the first packets of a flow.
    pub fn keep(&mut self, key: &FlowKey, packet: &ObservedPacket<'_>) {
        let first = usize::from(self.limits.first);
        if first == 0 {
            return;
        }
        self.stats.kept += 1;
        let spare = &mut self.spare;
        let order = &mut self.order;
        let memory = &mut self.memory;
        let buffer = self.flows.entry(*key).or_insert_with(|| {
            order.push_back(*key);
            let buffer = spare.pop().unwrap_or_default();
            *memory += FLOW_OVERHEAD + buffer.bytes.capacity();
            buffer
        });
        if buffer.len() >= first.saturating_mul(MOST_ENTRIES) {
            buffer.forget_first();
            self.stats.forgotten += 1;
        }
        let before = buffer.bytes.capacity();
        buffer.push(packet, self.limits.bytes);
        self.memory += buffer.bytes.capacity() - before;
        while self.memory > self.limits.memory && self.forget_oldest() {}
    }

    /// Lets the flow go that came first; false when there is none.
    fn forget_oldest(&mut self) -> bool {
        let Some(mut buffer) = self
            .order
            .pop_front()
            .and_then(|oldest| self.flows.remove(&oldest))
        else {
            return false;
        };
        self.stats.forgotten += buffer.len() as u64;
        self.stats.forgotten_flows += 1;
        self.memory -= FLOW_OVERHEAD + buffer.bytes.capacity();
        if self.spare.len() < MOST_SPARE && buffer.bytes.capacity() <= MOST_SPARE_BYTES {
            buffer.clear();
            self.spare.push(buffer);
        }
        true
    }

    /// Visits the packets that are kept of a flow which was active from `start_ns` to `last_ns` (ns
    /// since the Unix epoch), by time, each with its place among them from 1 on. Later connections
    /// between the same ports have the same key, and another time.
    pub fn of_flow(
        &self,
        key: &FlowKey,
        start_ns: u64,
        last_ns: u64,
        mut visit: impl FnMut(usize, &RawPacket<'_>),
    ) {
        let Some(buffer) = self.flows.get(key) else {
            return;
        };
        let time = start_ns.saturating_sub(EARLY_NS)..=last_ns.saturating_add(LATE_NS);
        let mut packets: Vec<_> = buffer
            .iter()
            .filter(|packet| time.contains(&packet.time_ns))
            .collect();
        // CPUs hand packets over in their own time, and a flow may have had several entries.
        packets.sort_by_key(|packet| packet.time_ns);
        packets.truncate(self.limits.first.into());
        for (place, packet) in packets.iter().enumerate() {
            visit(place + 1, packet);
        }
    }

    /// How many packets [`of_flow`](Self::of_flow) has.
    pub fn count(&self, key: &FlowKey, start_ns: u64, last_ns: u64) -> usize {
        let mut count = 0;
        self.of_flow(key, start_ns, last_ns, |_, _| count += 1);
        count
    }

    /// What was kept and what was dropped.
    pub fn stats(&self) -> RawPacketStats {
        RawPacketStats {
            flows: self.flows.len() as u64,
            memory: self.memory as u64,
            ..self.stats
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(time_ns: u64, data: &[u8]) -> ObservedPacket<'_> {
        ObservedPacket {
            time_ns,
            netns: 3,
            ifindex: 7,
            direction: Direction::Egress,
            link_type: 1,
            length: 1000,
            tag: None,
            data,
        }
    }

    fn key(number: u8) -> FlowKey {
        FlowKey {
            proto: number,
            ..FlowKey::default()
        }
    }

    fn times(packets: &RawPackets, number: u8, start: u64, last: u64) -> Vec<(usize, u64)> {
        let mut times = Vec::new();
        packets.of_flow(&key(number), start, last, |place, packet| {
            times.push((place, packet.time_ns));
        });
        times
    }

    const LIMITS: RawPacketLimits = RawPacketLimits {
        first: 2,
        bytes: 64,
        memory: 1 << 20,
    };

    #[test]
    fn packets_come_out_as_they_went_in() {
        let mut buffer = PacketBuffer::default();
        let bytes: Vec<u8> = (0..100).collect();
        buffer.push(&packet(5, &bytes), 64);
        buffer.push(&packet(6, &[]), 64);
        let tagged = ObservedPacket {
            tag: Some((0x8100, 0x2007)),
            ..packet(7, &bytes[..20])
        };
        buffer.push(&tagged, 64);
        let out: Vec<_> = buffer.iter().collect();
        assert_eq!((out.len(), buffer.len()), (3, 3));
        assert_eq!((out[0].data, out[0].length), (&bytes[..64], 1000));
        assert_eq!((out[0].netns, out[0].ifindex, out[0].link_type), (3, 7, 1));
        assert_eq!(out[0].direction, Direction::Egress);
        assert!(out[1].data.is_empty());
        assert_eq!(out[2].length, 1004);
        let expected = [&bytes[..12], &[0x81, 0, 0x20, 7], &bytes[12..20]].concat();
        assert_eq!(out[2].data, expected);
    }

    #[test]
    fn a_tag_is_cut_with_what_is_cut() {
        let bytes = [9; 40];
        for most in [0, 11, 12, 14, 16, 17, 44, 60] {
            let mut buffer = PacketBuffer::default();
            let tagged = ObservedPacket {
                tag: Some((0x88a8, 5)),
                ..packet(7, &bytes)
            };
            buffer.push(&tagged, most);
            let out = buffer.iter().next().unwrap();
            assert_eq!(out.data.len(), most.min(44));
        }
    }

    #[test]
    fn the_first_by_time_are_those_of_the_record() {
        let mut packets = RawPackets::new(LIMITS);
        let second = 1_000_000_000;
        for time in [
            second + 2,
            second + 1,
            second + 3,
            9 * second,
            9 * second + 1,
        ] {
            packets.keep(&key(1), &packet(time, b"x"));
        }
        assert_eq!(
            times(&packets, 1, second + 1, second + 3),
            [(1, second + 1), (2, second + 2)]
        );
        assert_eq!(
            times(&packets, 1, 9 * second, 9 * second),
            [(1, 9 * second), (2, 9 * second + 1)]
        );
        assert_eq!(times(&packets, 1, 4 * second, 5 * second), []);
        assert_eq!(times(&packets, 2, 0, u64::MAX), []);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_flow_goes() {
        let mut packets = RawPackets::new(RawPacketLimits {
            memory: 10 * (FLOW_OVERHEAD + 256),
            ..LIMITS
        });
        for number in 0..200 {
            for time in 0..2 {
                packets.keep(&key(number), &packet(time, &[number; 64]));
                assert!(packets.stats().memory <= packets.limits().memory as u64);
            }
        }
        let stats = packets.stats();
        assert_eq!(stats.kept, 400);
        assert!((5..=20).contains(&stats.flows), "{stats:?}");
        assert_eq!(stats.forgotten, 2 * stats.forgotten_flows);
        assert_eq!(stats.forgotten_flows + stats.flows, 200);
        assert_eq!(times(&packets, 199, 0, 10).len(), 2);
        assert_eq!(times(&packets, 0, 0, 10), []);
    }

    #[test]
    fn ports_that_are_used_again_and_again_take_bounded_memory() {
        let mut packets = RawPackets::new(LIMITS);
        for time in 0..1000 {
            packets.keep(&key(1), &packet(time << 40, b"abc"));
        }
        let stats = packets.stats();
        assert_eq!(stats.kept - stats.forgotten, 2 * MOST_ENTRIES as u64);
        assert_eq!(times(&packets, 1, 999 << 40, 999 << 40).len(), 1);
    }

    #[test]
    fn nothing_is_kept_without_being_asked_for() {
        let mut packets = RawPackets::new(RawPacketLimits { first: 0, ..LIMITS });
        packets.keep(&key(1), &packet(1, b"abc"));
        assert_eq!(packets.stats(), RawPacketStats::default());
    }
}
