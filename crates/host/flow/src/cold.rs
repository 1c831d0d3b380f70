//! What few packets of an entry touch (`struct flow_cold` of `bpf/flow/flow.h`).

use crate::{Carries, Counters, LinkUpdate};
use skua_packet::Level;

/// At most one packet of so many ns is looked at, and what is new of a side: 8.6 s.
const LOOK_SHIFT: u32 = 33;

/// Offset of no Ethernet header.
const NO_LINK: u32 = u32::MAX;

/// Whether the clock went on so far that a packet is looked at.
#[inline]
pub(crate) fn is_time(last_ns: u64, now_ns: u64) -> bool {
    (last_ns ^ now_ns) >> LOOK_SHIFT != 0
}

/// What a level of a packet shows beside what is counted.
#[derive(Clone, Copy)]
pub(crate) struct Sight {
    /// Offset of its Ethernet header.
    link: u32,
    tags: [u16; 2],
    label: Option<u32>,
    carries: Carries,
    pub(crate) fragment: bool,
    /// A request of ICMP echo, or its reply.
    pub(crate) echo: Option<bool>,
}

impl Sight {
    /// Of a packet that is one level in Ethernet.
    pub(crate) const PLAIN: Self = Self {
        link: 0,
        tags: [0; 2],
        label: None,
        carries: Carries(0),
        fragment: false,
        echo: None,
    };

    #[inline]
    pub(crate) fn of(level: &Level, child: Option<&Level>) -> Self {
        let carries = child.and_then(|child| Some((child.tunnel?, child.label.is_some())));
        Self {
            link: if level.ethernet { level.start } else { NO_LINK },
            tags: level.more_vlans,
            label: level.label,
            carries: carries.map_or(Carries(0), |(tunnel, labels)| Carries::new(tunnel, labels)),
            fragment: level.fragment != skua_packet::Fragment::Whole,
            echo: level.echo_request(),
        }
    }
}

/// The same of an entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cold {
    link: LinkUpdate,
    /// Both addresses mixed, as each side sent them last; 0 none.
    pair: [u16; 2],
    carries: Carries,
    fragments: u64,
}

impl Cold {
    /// Takes over what a packet of a side shows; `frame` has its bytes.
    #[cold]
    pub(crate) fn look(&mut self, side: usize, sight: &Sight, frame: &[u8]) {
        if let Some([destination, source]) = macs(frame, sight.link)
            && (destination, source) != ([0; 6], [0; 6])
        {
            if self.link.macs == [[0; 6]; 2] {
                self.link.macs[side] = source;
                self.link.macs[1 - side] = destination;
            }
            let [destination, source] = [destination, source].map(word);
            let sum = source.wrapping_add(destination << 16 | destination >> 32);
            let pair = (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16 | 1;
            let before = std::mem::replace(&mut self.pair[side], pair);
            if before != 0 && before != pair {
                self.link.moved = self.link.moved.saturating_add(1);
            }
        }
        if self.link.inner_tags == [0; 2] {
            self.link.inner_tags = sight.tags;
        }
        let label = &mut self.link.labels[side];
        *label = label.or(sight.label);
        self.carries = self.carries.or(sight.carries);
    }

    /// Counts fragments.
    pub(crate) fn fragments(&mut self, counters: Counters) {
        self.fragments = self.fragments.saturating_add(counters.packets);
    }

    /// What a drain yields; resets the differences.
    pub(crate) fn drain(&mut self) -> (LinkUpdate, u64, Carries) {
        let link = self.link;
        self.link.moved = 0;
        (link, std::mem::take(&mut self.fragments), self.carries)
    }
}

/// Destination and source of the Ethernet header at an offset.
fn macs(frame: &[u8], offset: u32) -> Option<[[u8; 6]; 2]> {
    let header: &[u8; 12] = frame.get(offset as usize..)?.first_chunk()?;
    let (destination, source) = header.split_at(6);
    Some([*destination.first_chunk()?, *source.first_chunk()?])
}

fn word([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}
