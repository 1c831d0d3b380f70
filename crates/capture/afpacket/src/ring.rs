//! Reading packets from a ring of TPACKET_V3 blocks.

use crate::packet::{Direction, Gso, GsoKind, Packet, Vlan};
use crate::sys::RingMemory;
use std::mem::{offset_of, size_of};

// Positions within a block's header (`struct tpacket_block_desc`).
const BLOCK: usize = offset_of!(libc::tpacket_block_desc, hdr);
const BLOCK_PACKETS: usize = BLOCK + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const BLOCK_FIRST: usize = BLOCK + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

// Positions within a packet's header (`struct tpacket3_hdr`); its address follows it.
const NEXT: usize = offset_of!(libc::tpacket3_hdr, tp_next_offset);
const SECONDS: usize = offset_of!(libc::tpacket3_hdr, tp_sec);
const NANOSECONDS: usize = offset_of!(libc::tpacket3_hdr, tp_nsec);
const KEPT: usize = offset_of!(libc::tpacket3_hdr, tp_snaplen);
const LENGTH: usize = offset_of!(libc::tpacket3_hdr, tp_len);
const STATUS: usize = offset_of!(libc::tpacket3_hdr, tp_status);
const START: usize = offset_of!(libc::tpacket3_hdr, tp_mac);
const VLAN_TCI: usize =
    offset_of!(libc::tpacket3_hdr, hv1) + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci);
const VLAN_TPID: usize =
    offset_of!(libc::tpacket3_hdr, hv1) + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid);
const ADDRESS: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
const PACKET_TYPE: usize = ADDRESS + offset_of!(libc::sockaddr_ll, sll_pkttype);
const IFINDEX: usize = ADDRESS + offset_of!(libc::sockaddr_ll, sll_ifindex);
const HEADERS: usize = ADDRESS + size_of::<libc::sockaddr_ll>();

/// `struct virtio_net_hdr` (linux/virtio_net.h), which the kernel puts right before the packet,
/// in the machine's byte order.
const VNET_HEADER: usize = 10;
const VNET_NEEDS_CHECKSUM: u8 = 1;
/// Flag in the kind of a super-packet: TCP with ECN.
const VNET_GSO_ECN: u8 = 0x80;

/// EtherType of a VLAN tag whose kind the kernel does not report (before 3.14).
const ETH_P_8021Q: u16 = 0x8100;
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// A ring and the block that comes next.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: RingMemory,
    next: usize,
    unreadable: u64,
}

impl Ring {
    pub(crate) fn new(memory: RingMemory) -> Self {
        Self {
            memory,
            next: 0,
            unreadable: 0,
        }
    }

    /// Whether a block waits.
    pub(crate) fn is_ready(&self) -> bool {
        self.memory.is_ours(self.next)
    }

    /// The next block, if it waits.
    pub(crate) fn next_block(&mut self) -> Option<Block<'_>> {
        self.is_ready().then(|| Block { ring: self })
    }

    /// Packets up to now that could not be read.
    pub(crate) fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

/// A block of packets. It goes back to the kernel when it is dropped, even when not all of its packets have
/// been read.
#[derive(Debug)]
pub struct Block<'a> {
    ring: &'a mut Ring,
}

impl Block<'_> {
    /// Number of packets in the block.
    pub fn len(&self) -> usize {
        u32_at(self.bytes(), BLOCK_PACKETS).unwrap_or(0) as usize
    }

    /// Whether there are none: the kernel hands over an empty block at times.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packets, oldest first.
    pub fn packets(&self) -> Packets<'_> {
        let bytes = self.bytes();
        Packets {
            block: bytes,
            position: u32_at(bytes, BLOCK_FIRST).unwrap_or(0) as usize,
            left: self.len(),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.ring.memory.bytes(self.ring.next).unwrap_or_default()
    }
}

impl<'a> IntoIterator for &'a Block<'_> {
    type Item = Packet<'a>;
    type IntoIter = Packets<'a>;

    fn into_iter(self) -> Packets<'a> {
        self.packets()
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.ring.memory.give_back(self.ring.next);
        self.ring.next = (self.ring.next + 1) % self.ring.memory.blocks();
    }
}

impl Block<'_> {
    /// Gives every packet to `packets`; what cannot be read is counted.
    pub(crate) fn dispatch(self, packets: &mut dyn FnMut(&Packet<'_>)) -> u64 {
        let mut iterator = self.packets();
        for packet in &mut iterator {
            packets(&packet);
        }
        let unreadable = iterator.left as u64;
        let read = self.len() as u64 - unreadable;
        self.ring.unreadable += unreadable;
        read
    }
}

/// The packets of a [`Block`].
#[derive(Debug)]
pub struct Packets<'a> {
    block: &'a [u8],
    position: usize,
    left: usize,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        if self.left == 0 {
            return None;
        }
        // Whatever the kernel writes, nothing outside of the block is read: at something that
        // makes no sense the block ends, and `left` says how many packets that costs.
        let (packet, next) = read_packet(self.block.get(self.position..)?)?;
        self.left -= 1;
        // The last packet's offset is 0; a loop ends with `left`.
        self.position += next;
        Some(packet)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// Reads the packet whose header `frame` starts with; also returns where the next one starts.
#[inline]
fn read_packet(frame: &[u8]) -> Option<(Packet<'_>, usize)> {
    let header = frame.get(..HEADERS)?;
    let start = usize::from(u16_at(header, START)?);
    let kept = u32_at(header, KEPT)? as usize;
    let data = frame.get(start..)?.get(..kept)?;
    let vnet = frame.get(start.checked_sub(VNET_HEADER)?..start)?;
    let status = u32_at(header, STATUS)?;
    let vlan = if status & libc::TP_STATUS_VLAN_VALID != 0 {
        let tpid = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => ETH_P_8021Q,
            _ => u16_at(header, VLAN_TPID)?,
        };
        // 16 bits in a field of 32.
        Some(Vlan {
            tci: u32_at(header, VLAN_TCI)? as u16,
            tpid,
        })
    } else {
        None
    };
    let packet = Packet {
        data,
        length: u32_at(header, LENGTH)?,
        timestamp_ns: u64::from(u32_at(header, SECONDS)?) * NANOSECONDS_PER_SECOND
            + u64::from(u32_at(header, NANOSECONDS)?),
        vlan,
        direction: Direction::from_packet_type(*header.get(PACKET_TYPE)?),
        ifindex: u32_at(header, IFINDEX)?,
        gso: read_gso(vnet),
    };
    Some((packet, u32_at(header, NEXT)? as usize))
}

/// How a super-packet is cut, from its `struct virtio_net_hdr`.
#[inline]
fn read_gso(vnet: &[u8]) -> Option<Gso> {
    let &[flags, gso_type, _, _, size_0, size_1, start_0, start_1, ..] = vnet else {
        return None;
    };
    let kind = match gso_type & !VNET_GSO_ECN {
        1 => GsoKind::Tcp4,
        3 => GsoKind::UdpFragments,
        4 => GsoKind::Tcp6,
        5 => GsoKind::UdpDatagrams,
        _ => return None,
    };
    Some(Gso {
        kind,
        size: u16::from_ne_bytes([size_0, size_1]),
        // The checksum of a super-packet is still to be made, from the transport header on.
        transport: (flags & VNET_NEEDS_CHECKSUM != 0)
            .then(|| u16::from_ne_bytes([start_0, start_1])),
    })
}

#[inline]
fn u32_at(bytes: &[u8], position: usize) -> Option<u32> {
    bytes
        .get(position..)?
        .first_chunk()
        .map(|word| u32::from_ne_bytes(*word))
}

#[inline]
fn u16_at(bytes: &[u8], position: usize) -> Option<u16> {
    bytes
        .get(position..)?
        .first_chunk()
        .map(|word| u16::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as the kernel writes it, with a packet of `kept` bytes.
    fn frame(kept: usize) -> Vec<u8> {
        let start = HEADERS + VNET_HEADER;
        let mut frame = vec![0; start + kept];
        frame[START..START + 2].copy_from_slice(&(start as u16).to_ne_bytes());
        frame[KEPT..KEPT + 4].copy_from_slice(&(kept as u32).to_ne_bytes());
        frame[LENGTH..LENGTH + 4].copy_from_slice(&9000_u32.to_ne_bytes());
        frame[SECONDS..SECONDS + 4].copy_from_slice(&7_u32.to_ne_bytes());
        frame[NANOSECONDS..NANOSECONDS + 4].copy_from_slice(&5_u32.to_ne_bytes());
        frame[PACKET_TYPE] = libc::PACKET_OUTGOING;
        frame
    }

    #[test]
    fn fields_are_where_the_kernel_puts_them() {
        // From linux/if_packet.h: 48 bytes of header, 20 of address.
        assert_eq!((ADDRESS, HEADERS), (48, 68));
        let mut frame = frame(60);
        let vnet = HEADERS;
        frame[vnet..vnet + 2].copy_from_slice(&[VNET_NEEDS_CHECKSUM, 4 | VNET_GSO_ECN]);
        frame[vnet + 4..vnet + 6].copy_from_slice(&1428_u16.to_ne_bytes());
        frame[vnet + 6..vnet + 8].copy_from_slice(&54_u16.to_ne_bytes());
        frame[STATUS..STATUS + 4].copy_from_slice(
            &(libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID).to_ne_bytes(),
        );
        frame[VLAN_TCI..VLAN_TCI + 4].copy_from_slice(&0x2005_u32.to_ne_bytes());
        frame[VLAN_TPID..VLAN_TPID + 2].copy_from_slice(&0x88a8_u16.to_ne_bytes());
        let (packet, next) = read_packet(&frame).unwrap();
        assert_eq!((packet.data.len(), packet.length, next), (60, 9000, 0));
        assert_eq!(packet.timestamp_ns, 7_000_000_005);
        assert_eq!(packet.direction, Direction::Outgoing);
        assert_eq!(
            packet.vlan,
            Some(Vlan {
                tci: 0x2005,
                tpid: 0x88a8
            })
        );
        let gso = Gso {
            kind: GsoKind::Tcp6,
            size: 1428,
            transport: Some(54),
        };
        assert_eq!(packet.gso, Some(gso));
    }

    #[test]
    fn nothing_outside_of_the_block_is_read() {
        let frame = frame(60);
        for length in 0..frame.len() {
            assert!(read_packet(&frame[..length]).is_none(), "{length}");
        }
        // A start before the headers' end, and lengths that overflow.
        for (position, bytes) in [
            (START, vec![3, 0]),
            (KEPT, vec![0xff; 4]),
            (START, vec![0xff; 2]),
        ] {
            let mut frame = frame.clone();
            frame[position..position + bytes.len()].copy_from_slice(&bytes);
            assert!(read_packet(&frame).is_none());
        }
    }
}
