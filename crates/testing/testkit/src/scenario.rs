//! Byte strings that stand for a list of packets: what fuzzers mutate and seeds are written as.
//!
//! Three bytes of settings, then for each packet five bytes (how much longer it was on the wire,
//! segments, VLAN, two of length) and its bytes. Every byte string means something, so that no
//! mutation is wasted.

use crate::capture::{Capture, LinkType};

/// How packets start, in the order of their numbers in a scenario.
const LINK_TYPES: [LinkType; 6] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
    LinkType::LOOP,
];

/// A list of packets with settings.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// How all packets start.
    pub link_type: LinkType,
    /// Whether to decode tunnels.
    pub tunnels: bool,
    /// Entries that the flow table may have, at least 1.
    pub max_entries: usize,
    packets: &'a [u8],
}

/// A packet of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Captured bytes.
    pub data: &'a [u8],
    /// Length on the wire.
    pub wire_length: u32,
    /// `gso_segs`.
    pub segments: u16,
    /// A VLAN tag that the card stripped.
    pub stripped_vlan: Option<u16>,
}

impl<'a> Scenario<'a> {
    /// Reads a scenario.
    pub fn new(bytes: &'a [u8]) -> Self {
        let (settings, packets) = match bytes.split_first_chunk::<3>() {
            Some((settings, packets)) => (*settings, packets),
            None => ([0; 3], bytes),
        };
        let [link, tunnels, entries] = settings;
        Self {
            link_type: LINK_TYPES[usize::from(link) % LINK_TYPES.len()],
            tunnels: tunnels & 1 != 0,
            max_entries: usize::from(entries) + 1,
            packets,
        }
    }

    /// The packets.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'a>> + use<'a> {
        let mut rest = self.packets;
        std::iter::from_fn(move || {
            let ([more, segments, vlan, low, high], after) = rest.split_first_chunk::<5>()?;
            let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
            let (data, next) = after.split_at(length);
            rest = next;
            Some(Packet {
                data,
                wire_length: length as u32 + 16 * u32::from(*more),
                segments: u16::from(*segments),
                // Few identifiers, so that flows meet.
                stripped_vlan: (*vlan != 0).then_some(u16::from(*vlan & 7)),
            })
        })
    }
}

/// The scenario that a capture makes, if its link type is one of a scenario's.
pub fn seed(capture: &Capture, tunnels: bool) -> Option<Vec<u8>> {
    let link_type = capture.interfaces[0].link_type;
    let number = LINK_TYPES.iter().position(|known| *known == link_type)?;
    let mut bytes = vec![number as u8, u8::from(tunnels), 200];
    for record in &capture.records {
        let length = u16::try_from(record.data.len()).ok()?;
        let more = (record.wire_length - u32::from(length))
            .div_ceil(16)
            .min(255);
        bytes.extend_from_slice(&[more as u8, 1, 0]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&record.data);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_their_captures() {
        let capture = crate::named("snap_64").unwrap();
        let bytes = seed(&capture, true).unwrap();
        let scenario = Scenario::new(&bytes);
        assert_eq!(scenario.link_type, LinkType::ETHERNET);
        assert!(scenario.tunnels);
        let data: Vec<_> = scenario.packets().map(|packet| packet.data).collect();
        let records: Vec<_> = capture.records.iter().map(|r| r.data.as_slice()).collect();
        assert_eq!(data, records);
    }

    #[test]
    fn any_bytes_are_a_scenario() {
        for bytes in [&[][..], &[255], &[255; 20], &[0; 9]] {
            let total: usize = Scenario::new(bytes).packets().map(|p| p.data.len()).sum();
            assert!(total <= bytes.len());
        }
    }
}
