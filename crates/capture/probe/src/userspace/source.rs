//! AF_PACKET and libpcap behind one interface.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use skua_afpacket::{
    AfPacketCapture, CaptureStats, Error, Options, Packet, PacketSource,
    pcap_live::{self, PcapCapture},
};
use skua_link::Link;
use skua_packet::LinkType;

use super::Capture;
use crate::{ProbeError, Selection};

/// Bytes kept of each packet: all headers, but for absurdly long chains of them.
const HEADERS: u32 = 512;
/// When the filter reads beyond the headers.
const WHOLE_PACKET: u32 = 256 << 10;
/// Longest time that a packet waits for its block to fill.
const BLOCK_TIMEOUT_MS: u32 = 100;
/// Size of one block: large enough for a super-packet where whole packets are kept.
const BLOCK_BYTES: usize = 256 << 10;
/// In small rings.
const SMALL_BLOCK_BYTES: usize = 64 << 10;
/// Blocks that a ring has at least.
const BLOCKS: usize = 4;

/// The part of packets that a capture must hand over.
pub(super) struct CaptureNeeds<'a> {
    /// The filter that reads them.
    pub selection: &'a Selection,
    /// Bytes of packets that are kept or streamed.
    pub packet_bytes: u32,
}

/// An open capture of one interface.
pub(super) struct Source {
    kind: Kind,
    ring_bytes: usize,
    /// Packets that the ring's blocks announced and that made no sense.
    unreadable: u64,
}

enum Kind {
    Afpacket(AfPacketCapture, LinkType),
    Pcap(PcapCapture),
}

impl Source {
    /// Opens a capture in the calling thread's network namespace.
    pub(super) fn open(
        capture: Capture,
        link: &Link,
        link_type: LinkType,
        ring_bytes: usize,
        needs: &CaptureNeeds<'_>,
    ) -> Result<Self, ProbeError> {
        let snaplen = match needs.selection.reads_within(HEADERS) {
            true => needs.packet_bytes.clamp(HEADERS, WHOLE_PACKET),
            false => WHOLE_PACKET,
        };
        let kind = match capture {
            Capture::Afpacket => {
                let block_bytes = match ring_bytes >= BLOCKS * BLOCK_BYTES {
                    true => BLOCK_BYTES,
                    false => SMALL_BLOCK_BYTES,
                };
                let options = Options {
                    loopback: link.is_loopback(),
                    ring_bytes,
                    block_bytes,
                    block_timeout_ms: BLOCK_TIMEOUT_MS,
                    snaplen,
                    ..Options::new(link.ifindex, link.name.as_str())
                };
                Kind::Afpacket(AfPacketCapture::open(&options)?, link_type)
            }
            Capture::Pcap => Kind::Pcap(PcapCapture::open(&pcap_live::Options {
                buffer_bytes: ring_bytes as u32,
                snaplen,
                timeout_ms: BLOCK_TIMEOUT_MS,
                ..pcap_live::Options::new(link.name.as_str())
            })?),
        };
        Ok(Self {
            kind,
            ring_bytes,
            unreadable: 0,
        })
    }

    /// How packets start; none when they cannot be read.
    pub(super) fn link_type(&self) -> Option<LinkType> {
        match &self.kind {
            Kind::Afpacket(_, link_type) => Some(*link_type),
            Kind::Pcap(capture) => LinkType::from_pcap(u32::try_from(capture.linktype()).ok()?),
        }
    }

    /// Size of its ring.
    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Gives available packets to `take`, waiting for them at most `timeout`; false when there were none.
    pub(super) fn read(
        &mut self,
        timeout: Duration,
        mut take: impl FnMut(&mut dyn Iterator<Item = Packet<'_>>),
    ) -> Result<bool, Error> {
        match &mut self.kind {
            Kind::Afpacket(capture, _) => {
                let Some(block) = capture.poll(timeout)? else {
                    return Ok(false);
                };
                let mut packets = block.packets();
                take(&mut packets);
                self.unreadable += packets.size_hint().1.unwrap_or(0) as u64;
                Ok(true)
            }
            Kind::Pcap(capture) => {
                let count = capture.dispatch(timeout, &mut |p| take(&mut std::iter::once(*p)))?;
                Ok(count > 0)
            }
        }
    }

    /// Stops receiving, gives the remaining packets to `take`, and returns the final counters.
    pub(super) fn finish(
        &mut self,
        mut take: impl FnMut(&mut dyn Iterator<Item = Packet<'_>>),
    ) -> Result<CaptureStats, Error> {
        let mut one = |packet: &Packet<'_>| take(&mut std::iter::once(*packet));
        let stats = match &mut self.kind {
            Kind::Afpacket(capture, _) => capture.finish(&mut one),
            Kind::Pcap(capture) => capture.finish(&mut one),
        }?;
        Ok(self.with_unreadable(stats))
    }

    /// Counters up to now.
    pub(super) fn stats(&mut self) -> Result<CaptureStats, Error> {
        let stats = match &mut self.kind {
            Kind::Afpacket(capture, _) => capture.stats(),
            Kind::Pcap(capture) => capture.stats(),
        }?;
        Ok(self.with_unreadable(stats))
    }

    fn with_unreadable(&self, stats: CaptureStats) -> CaptureStats {
        CaptureStats {
            unreadable: stats.unreadable + self.unreadable,
            ..stats
        }
    }
}

impl AsFd for Source {
    /// Readable when there are packets.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Afpacket(capture, _) => capture.as_fd(),
            Kind::Pcap(capture) => capture.as_fd(),
        }
    }
}
