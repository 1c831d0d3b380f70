//! Which packets are counted: those that match a filter, and of these one of N.

use skua_filter::{Filter, FilterError, Instruction};
use skua_flow::Cause;
use skua_packet::{Frame, LinkType};

use crate::ProbeError;

/// Class, mode and size of classic BPF loads (linux/bpf_common.h): packet bytes at a constant place,
/// or at one relative to X.
const CLASS: u16 = 0x07;
const CLASS_LD: u16 = 0x00;
const CLASS_LDX: u16 = 0x01;
const MODE: u16 = 0xe0;
const MODE_ABS: u16 = 0x20;
const MODE_IND: u16 = 0x40;
/// Where the MAC addresses end and a VLAN tag stands.
const TAG_AT: usize = 12;
const TAG_LEN: usize = 4;

/// Expression compiled for each kind of link, when it is met.
#[derive(Clone, Debug)]
struct Filters {
    expression: String,
    ethernet: Filter,
    /// Some expressions (`ether host …`) mean nothing without an Ethernet header.
    ip: Option<Filter>,
}

/// Decides packet by packet, as the kernel programs do: first the filter, then sampling.
#[derive(Clone, Debug)]
pub struct Selection {
    filters: Option<Filters>,
    sampler: Sampler,
    /// A packet with its tag put back, kept to save allocations.
    tagged: Vec<u8>,
}

impl Selection {
    /// An empty expression chooses all; `sampling` is 1:N, 1 for all. `seed` starts the sequence of
    /// random numbers, which then repeats exactly.
    ///
    /// # Errors
    ///
    /// When the expression is wrong.
    pub fn new(expression: &str, sampling: u32, seed: u32) -> Result<Self, FilterError> {
        let filters = if expression.trim().is_empty() {
            None
        } else {
            Some(Filters {
                expression: expression.to_owned(),
                ethernet: Filter::compile(expression, skua_filter::LinkType::Ethernet)?,
                ip: None,
            })
        };
        Ok(Self {
            filters,
            sampler: Sampler::new(sampling, seed),
            tagged: Vec::new(),
        })
    }

    /// Changes the sequence of random numbers.
    pub(crate) fn reseed(&mut self, seed: u32) {
        self.sampler.state = (self.sampler.state ^ seed).max(1);
    }

    /// Compiles the expression for a kind of link, so that errors come before the first packet.
    ///
    /// # Errors
    ///
    /// When the expression means nothing there, or no filter can be applied to such links.
    pub fn prepare(&mut self, link: LinkType) -> Result<(), ProbeError> {
        let Some(filters) = &mut self.filters else {
            return Ok(());
        };
        match link {
            LinkType::Ethernet => {}
            LinkType::RawIp => {
                if filters.ip.is_none() {
                    let filter =
                        Filter::compile(&filters.expression, skua_filter::LinkType::RawIp)?;
                    filters.ip = Some(filter);
                }
            }
            other => return Err(ProbeError::FilterLink(other)),
        }
        Ok(())
    }

    /// Why a packet is not counted, none when it is. `tag` is the VLAN tag that was removed from it
    /// (EtherType, tag control information): the filter sees it in its place.
    ///
    /// # Errors
    ///
    /// As [`prepare`](Self::prepare), when that was not called for this kind of link.
    #[inline]
    pub fn verdict(
        &mut self,
        frame: &Frame<'_>,
        tag: Option<(u16, u16)>,
    ) -> Result<Option<Cause>, ProbeError> {
        if self.filters.is_some() && !self.matches(frame, tag)? {
            return Ok(Some(Cause::Filtered));
        }
        Ok((!self.sampler.samples_next()).then_some(Cause::SampledOut))
    }

    fn matches(&mut self, frame: &Frame<'_>, tag: Option<(u16, u16)>) -> Result<bool, ProbeError> {
        self.prepare(frame.link)?;
        let filter = match &self.filters {
            Some(filters) if frame.link == LinkType::Ethernet => &filters.ethernet,
            Some(Filters { ip: Some(ip), .. }) => ip,
            _ => return Ok(true),
        };
        Ok(match (tag, frame.data.split_at_checked(TAG_AT)) {
            (Some((ethertype, tci)), Some((addresses, rest))) => {
                self.tagged.clear();
                self.tagged.extend_from_slice(addresses);
                self.tagged.extend_from_slice(&ethertype.to_be_bytes());
                self.tagged.extend_from_slice(&tci.to_be_bytes());
                self.tagged.extend_from_slice(rest);
                let wire_len = frame.wire_len.saturating_add(TAG_LEN as u32);
                filter.matches_captured(&self.tagged, wire_len)
            }
            _ => filter.matches_captured(frame.data, frame.wire_len),
        })
    }

    /// Whether the filter reads only the first `bytes` of a packet.
    pub fn reads_within(&self, bytes: u32) -> bool {
        let reads_below =
            |filter: &Filter| filter.instructions().iter().all(|i| reads_below(i, bytes));
        self.filters
            .as_ref()
            .is_none_or(|f| reads_below(&f.ethernet) && f.ip.as_ref().is_none_or(reads_below))
    }
}

/// Whether an instruction reads nothing beyond `bytes`. X holds the end of a header: half of the bytes are
/// left for that.
fn reads_below(instruction: &Instruction, bytes: u32) -> bool {
    let load = matches!(instruction.code & CLASS, CLASS_LD | CLASS_LDX);
    match instruction.code & MODE {
        MODE_ABS if load => instruction.k < bytes.saturating_sub(4),
        MODE_IND if load => instruction.k < bytes / 2,
        _ => true,
    }
}

/// Takes one packet of N at random, as the kernel does.
#[derive(Clone, Debug)]
struct Sampler {
    every: u32,
    /// State of a xorshift generator (Marsaglia 2003), never 0.
    state: u32,
}

impl Sampler {
    fn new(every: u32, seed: u32) -> Self {
        Self {
            every,
            state: (seed ^ 0x9e37_79b9).max(1),
        }
    }

    #[inline]
    fn samples_next(&mut self) -> bool {
        if self.every <= 1 {
            return true;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.state.is_multiple_of(self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP from 10.0.0.1:1 to 10.0.0.2:53.
    fn frame() -> Vec<u8> {
        let mut frame = vec![2; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..16].copy_from_slice(&[0x45, 0]);
        frame[20..22].copy_from_slice(&[0, 0]);
        frame[23] = 17;
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34..38].copy_from_slice(&[0, 1, 0, 53]);
        frame
    }

    fn verdict(expression: &str, tag: Option<(u16, u16)>) -> Option<Cause> {
        let bytes = frame();
        let frame = Frame {
            stripped_vlan: tag.map(|(_, tci)| tci),
            ..Frame::ethernet(&bytes)
        };
        let mut selection = Selection::new(expression, 1, 1).unwrap();
        selection.verdict(&frame, tag).unwrap()
    }

    #[test]
    fn a_stripped_tag_is_seen_where_it_was() {
        let tag = Some((0x8100, 0x2005));
        assert_eq!(verdict("udp port 53", None), None);
        assert_eq!(verdict("udp port 53", tag), Some(Cause::Filtered));
        assert_eq!(verdict("vlan 5 and udp port 53", tag), None);
        assert_eq!(
            verdict("vlan 6 and udp port 53", tag),
            Some(Cause::Filtered)
        );
        assert_eq!(verdict("vlan 5", None), Some(Cause::Filtered));
        // The tag's four bytes are part of the length.
        assert_eq!(verdict("greater 64", tag), None);
        assert_eq!(verdict("greater 64", None), Some(Cause::Filtered));
    }

    #[test]
    fn one_of_n_is_taken() {
        let bytes = frame();
        let mut selection = Selection::new("", 10, 7).unwrap();
        let taken = (0..100_000)
            .filter(|_| {
                selection
                    .verdict(&Frame::ethernet(&bytes), None)
                    .unwrap()
                    .is_none()
            })
            .count();
        assert!((9_500..10_500).contains(&taken), "{taken}");
    }

    #[test]
    fn how_far_a_filter_reads_is_known() {
        let far = |expression: &str| {
            let selection = Selection::new(expression, 1, 1).unwrap();
            !selection.reads_within(512)
        };
        assert!(!far("") && !far("tcp port 80 and net fd00::/8") && !far("vlan and udp"));
        assert!(far("ether[600] = 1") && far("udp[700:2] = 5"));
    }

    #[test]
    fn what_cannot_be_filtered_is_said() {
        let mut selection = Selection::new("ether host 2:0:0:0:0:1", 1, 1).unwrap();
        assert!(selection.prepare(LinkType::RawIp).is_err());
        assert!(selection.prepare(LinkType::LinuxSll).is_err());
        let mut all = Selection::new(" ", 1, 1).unwrap();
        assert!(all.prepare(LinkType::LinuxSll).is_ok());
    }
}
