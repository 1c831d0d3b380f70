//! The frames to send: generated packets, or those of a capture file.

use crate::{
    InjectError, Kind, Template,
    track::{self, Track},
};
use skua_file::CaptureFile;
use std::collections::BTreeSet;

/// Longest capture file in bytes.
pub const MAX_FILE_BYTES: usize = 16 << 20;

/// Packets in a capture file at most.
const MAX_FILE_PACKETS: usize = 200_000;

/// What packets carry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many random ones, others in each packet.
    Random(usize),
}

impl Payload {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Random(length) => *length,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What makes packets belong to different flows: the identifier of ICMP, else the source port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// All have the same: one conversation.
    #[default]
    Unique,
    /// Each has another by chance.
    Random,
    /// Each has one more than that before.
    Increment,
}

/// The frames to send.
#[derive(Clone, Debug)]
pub enum Frames {
    /// Packets that are made.
    Made {
        /// The first of them.
        template: Template,
        /// What they carry.
        payload: Payload,
        /// By how many bytes the payload of each is longer than that before.
        growth: usize,
        /// By what they are distinguished.
        mode: Mode,
        /// Where chance begins: the same packets from the same number.
        seed: u64,
    },
    /// Packets of a file, one after the other.
    File(Vec<Box<[u8]>>),
}

impl Frames {
    /// The packets of a capture file (pcap or pcapng). Their link type must match the interface.
    pub fn from_file(bytes: &[u8], ethernet: bool) -> Result<Self, InjectError> {
        let failed = |error: &dyn std::fmt::Display| InjectError::File(error.to_string());
        if bytes.len() > MAX_FILE_BYTES {
            return Err(failed(&format_args!("at most {MAX_FILE_BYTES} bytes")));
        }
        let mut file = CaptureFile::new("the file", bytes).map_err(|e| failed(&e))?;
        let wanted = track::link_type(ethernet);
        let mut frames = Vec::new();
        while let Some(packet) = file.next_packet().map_err(|e| failed(&e))? {
            if packet.link_type != wanted {
                return Err(failed(&format_args!(
                    "packet {} is {:?}, the interface needs {wanted:?}",
                    frames.len() + 1,
                    packet.link_type
                )));
            }
            if packet.data.len() < packet.wire_len as usize {
                return Err(failed(&format_args!(
                    "packet {} has only {} of its {} bytes",
                    frames.len() + 1,
                    packet.data.len(),
                    packet.wire_len
                )));
            }
            if frames.len() >= MAX_FILE_PACKETS {
                return Err(failed(&format_args!("at most {MAX_FILE_PACKETS} packets")));
            }
            frames.push(packet.data.into());
        }
        if let Some(cut) = file.cut_off() {
            return Err(failed(cut));
        }
        if frames.is_empty() {
            return Err(failed(&"it has no packets"));
        }
        Ok(Self::File(frames))
    }

    /// Whether `count` of these can be sent.
    pub(crate) fn check(&self, count: u64) -> Result<(), InjectError> {
        match self {
            Self::Made {
                template,
                payload,
                growth,
                ..
            } => {
                let steps = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
                template.check(payload.len().saturating_add(growth.saturating_mul(steps)))
            }
            Self::File(_) => Ok(()),
        }
    }

    /// Frames sent for a `count`: a file's frames are repeated `count` times.
    pub fn total(&self, count: u64) -> u64 {
        match self {
            Self::Made { .. } => count,
            Self::File(frames) => count.saturating_mul(frames.len() as u64),
        }
    }

    /// The frame with a number, counted from 0: written into `buffer`, or lying here.
    pub(crate) fn frame<'a>(&'a self, number: u64, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        match self {
            Self::Made {
                template,
                payload,
                growth,
                mode,
                seed,
            } => {
                let mut chance = fastrand::Rng::with_seed(seed.wrapping_add(number));
                let template = nth(template, *mode, number, &mut chance);
                let more = growth.saturating_mul(usize::try_from(number).unwrap_or(usize::MAX));
                let more = more.min(crate::MAX_PAYLOAD);
                let mut bytes = match payload {
                    Payload::Bytes(bytes) => bytes.clone(),
                    Payload::Random(length) => vec![0; *length],
                };
                let fixed = match payload {
                    Payload::Bytes(bytes) => bytes.len(),
                    Payload::Random(_) => 0,
                };
                bytes.resize(bytes.len() + more, 0);
                chance.fill(&mut bytes[fixed..]);
                template.write(&bytes, buffer);
                buffer
            }
            Self::File(frames) => &frames[(number % frames.len() as u64) as usize],
        }
    }

    /// The conversations of the first `total` frames; the first frame's is the first.
    pub(crate) fn tracks(&self, total: u64, ethernet: bool) -> (Option<u64>, BTreeSet<Track>) {
        let distinct = match self {
            Self::Made {
                mode: Mode::Unique, ..
            } => 1,
            Self::Made { .. } => total,
            Self::File(frames) => total.min(frames.len() as u64),
        };
        let link = track::link_type(ethernet);
        let mut first = None;
        let mut all = BTreeSet::new();
        let mut buffer = Vec::new();
        for number in 0..distinct {
            let bytes = match self {
                // Payload makes no difference, and would take most of the time.
                Self::Made {
                    template,
                    mode,
                    seed,
                    ..
                } => {
                    let mut chance = fastrand::Rng::with_seed(seed.wrapping_add(number));
                    nth(template, *mode, number, &mut chance).write(&[], &mut buffer);
                    &buffer[..]
                }
                Self::File(_) => self.frame(number, &mut buffer),
            };
            let Some(level) = track::level(bytes, link) else {
                continue;
            };
            let track = Track::of(&level);
            first.get_or_insert(track.id);
            all.insert(track);
        }
        (first, all)
    }
}

/// The packet with a number.
fn nth(first: &Template, mode: Mode, number: u64, chance: &mut fastrand::Rng) -> Template {
    let mut template = *first;
    template.sequence = match template.kind {
        Kind::Tcp4 | Kind::Tcp6 => template.sequence,
        _ => template.sequence.wrapping_add(number as u32),
    };
    let mark = match first.kind.has_ports() {
        true => &mut template.source_port,
        false => &mut template.icmp_id,
    };
    match mode {
        Mode::Unique => {}
        // As Skydive: the first has what was asked for.
        Mode::Random if number == 0 => {}
        // No port that needs rights.
        Mode::Random => *mark = chance.u16(1024..),
        Mode::Increment => *mark = mark.wrapping_add(number as u16),
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Addresses;

    #[test]
    fn the_first_of_random_packets_is_what_was_asked_for() {
        for kind in [Kind::Icmp4, Kind::Icmp6, Kind::Tcp4, Kind::Udp6] {
            let asked = Template {
                kind,
                addresses: Addresses {
                    macs: None,
                    from: [10, 0, 0, 1].into(),
                    to: [10, 0, 0, 2].into(),
                },
                source_port: 7,
                destination_port: 8,
                icmp_id: 7,
                sequence: 0,
                flags: 0,
                ttl: 64,
            };
            let mut chance = fastrand::Rng::with_seed(1);
            let mark = |template: Template| match kind.has_ports() {
                true => template.source_port,
                false => template.icmp_id,
            };
            let mut marks = (0..3).map(|n| mark(nth(&asked, Mode::Random, n, &mut chance)));
            assert_eq!(marks.next(), Some(7), "{kind:?}");
            assert!(marks.all(|mark| mark >= 1_024), "{kind:?}");
        }
    }
}
