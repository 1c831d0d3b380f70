//! The thread that reads one interface's packets and counts them.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::{PipeFlags, pipe_with},
};
use skua_afpacket::{CaptureStats, Error, Gso, Packet};
use skua_flow::{Batch, CapturePoint, Captured, Cause, Counters, Direction, FlowTable};
use skua_packet::{Frame, LinkType};

use super::{Shared, source::Source};
use crate::{Packets, ProbeError, Selection};

/// How long to wait for the last packets of an interface that went down.
const LAST_PACKETS: Duration = Duration::from_millis(500);
/// Pause after an interface was reported as down.
const REST: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A running thread. Dropping it has it count what is still there, and waits for that.
pub(crate) struct Reader {
    /// The thread ends when this is closed.
    alive: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    ring_bytes: usize,
}

impl Reader {
    pub(super) fn start(
        source: Source,
        point: CapturePoint,
        selection: Selection,
        packets: Option<Packets>,
        shared: Arc<Shared>,
    ) -> Result<Self, ProbeError> {
        let (end, alive) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|error| ProbeError::Wait(error.into()))?;
        let ring_bytes = source.ring_bytes();
        let link = source.link_type().unwrap_or_default();
        let counting = Counting::new(link, point, selection, packets, shared);
        let thread = std::thread::Builder::new()
            .name(format!("capture-{}", point.ifindex))
            .spawn(move || run(source, counting, &end))
            .map_err(ProbeError::Wait)?;
        Ok(Self {
            alive: Some(alive),
            thread: Some(thread),
            ring_bytes,
        })
    }

    /// Has the thread finish without waiting for it.
    pub(super) fn request_stop(&mut self) {
        self.alive = None;
    }

    /// Kernel memory of its ring.
    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

fn run(mut source: Source, mut counting: Counting, end: &OwnedFd) {
    let failed = loop {
        match step(&mut source, &mut counting, end) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
    };
    match failed {
        None | Some(Error::InterfaceGone { .. }) => {}
        Some(error) => tracing::warn!(%error, "capture ends"),
    }
    match source.finish(|packets| counting.count(packets)) {
        Ok(stats) => counting.losses(&stats),
        Err(error) => tracing::warn!(%error, "the last packets may be missing"),
    }
}

/// Waits for packets and counts them; false when it is time to end.
fn step(source: &mut Source, counting: &mut Counting, end: &OwnedFd) -> Result<bool, Error> {
    let mut fds = [
        PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN | PollFlags::ERR),
        PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN),
    ];
    // Interrupted is as good as woken for nothing; other errors it cannot have.
    if poll(&mut fds, None).is_err() {
        return Ok(true);
    }
    if !fds[1].revents().is_empty() {
        return Ok(false);
    }
    // Nothing signals the last packet of an interface that goes down.
    let timeout = match fds[0].revents().contains(PollFlags::ERR) {
        true => LAST_PACKETS,
        false => Duration::ZERO,
    };
    loop {
        let more = match source.read(timeout, |packets| counting.count(packets)) {
            Ok(more) => more,
            Err(Error::InterfaceDown { interface }) => {
                tracing::info!(interface, "down");
                // If the error stays, this limits the rate of polls.
                let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&REST));
                false
            }
            Err(error) => return Err(error),
        };
        let stats = source.stats()?;
        counting.losses(&stats);
        if !more || timeout.is_zero() {
            return Ok(true);
        }
    }
}

/// Counts one interface's packets in the table that all share.
pub(super) struct Counting {
    link: LinkType,
    point: CapturePoint,
    selection: Selection,
    /// Where packets are wanted, not only their counts.
    packets: Option<Packets>,
    shared: Arc<Shared>,
    /// The ring's losses that were counted in the table.
    counted: CaptureStats,
}

impl Counting {
    pub(super) fn new(
        link: LinkType,
        point: CapturePoint,
        selection: Selection,
        packets: Option<Packets>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            link,
            point,
            selection,
            packets,
            shared,
            counted: CaptureStats::default(),
        }
    }

    pub(super) fn count(&mut self, packets: &mut dyn Iterator<Item = Packet<'_>>) {
        let shared = Arc::clone(&self.shared);
        let mut table = shared.lock();
        self.count_in(&mut table.flows, packets);
        shared.check(&mut table);
    }

    fn count_in<'a>(
        &mut self,
        flows: &mut FlowTable,
        packets: &mut (dyn Iterator<Item = Packet<'a>> + '_),
    ) {
        let mut batch = Batch::default();
        let watched = self.packets.as_ref().filter(|packets| !packets.is_idle());
        for packet in packets {
            let frame = frame(&packet, self.link);
            let point = CapturePoint {
                direction: match packet.direction.is_outgoing() {
                    true => Direction::Egress,
                    false => Direction::Ingress,
                },
                ..self.point
            };
            let tag = packet.vlan.map(|vlan| (vlan.tpid, vlan.tci));
            match self.selection.verdict(&frame, tag) {
                Ok(None) => {
                    let captured = Captured {
                        point,
                        frame,
                        now_ns: packet.timestamp_ns,
                    };
                    match watched {
                        Some(packets) => packets.count(flows, &captured, tag),
                        None => batch.push(flows, captured),
                    }
                }
                Ok(Some(cause)) => flows.leave_out(point, &frame, cause),
                // Cannot be: the filter was prepared for this kind of link.
                Err(_) => flows.leave_out(point, &frame, Cause::NoDecode),
            }
        }
        batch.flush(flows);
    }

    /// Counts what the ring lost since the last time.
    fn losses(&mut self, stats: &CaptureStats) {
        let lost = [
            (Cause::RingFull, stats.drops - self.counted.drops),
            (Cause::NoDecode, stats.unreadable - self.counted.unreadable),
        ];
        self.counted = *stats;
        for (cause, packets) in lost {
            if packets > 0 {
                let counters = Counters::new(packets, 0);
                self.shared.lock().flows.count(self.point, cause, counters);
            }
        }
    }
}

/// A captured packet as a frame for the decoder.
fn frame<'a>(packet: &Packet<'a>, link: LinkType) -> Frame<'a> {
    let one = Frame {
        data: packet.data,
        wire_len: packet.length,
        link,
        stripped_vlan: packet.vlan.map(|vlan| vlan.tci),
        segments: 1,
    };
    match packet.gso {
        None => one,
        Some(gso) => Frame {
            segments: segments(packet, gso, one),
            ..one
        },
    }
}

/// Number of wire packets in a super-packet.
fn segments(packet: &Packet<'_>, gso: Gso, one: Frame<'_>) -> u16 {
    let count = match packet.segments() {
        Some(segments) => segments.count,
        // The kernel said how long the segments are, but not where their payload begins.
        None if gso.size > 0 => {
            let tunnels = skua_packet::Options { tunnels: true };
            let headers = skua_packet::decode(&one, tunnels).map_or(0, |d| d.header_len());
            let payload = packet.length.saturating_sub(headers);
            payload.div_ceil(u32::from(gso.size))
        }
        None => 1,
    };
    u16::try_from(count.max(1)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_afpacket::GsoKind;

    #[test]
    fn super_packets_stand_for_their_segments() {
        // Ethernet, IPv4, TCP with 12 bytes of options, 3,000 bytes of payload.
        let mut data = vec![0; 66];
        data[12..15].copy_from_slice(&[8, 0, 0x45]);
        data[23] = 6;
        data[46] = 8 << 4;
        for transport in [Some(34), None] {
            let packet = Packet {
                data: &data,
                length: 66 + 3_000,
                timestamp_ns: 1,
                vlan: None,
                direction: skua_afpacket::Direction::Host,
                ifindex: 1,
                gso: Some(Gso {
                    kind: GsoKind::Tcp4,
                    size: 1_400,
                    transport,
                }),
            };
            assert_eq!(frame(&packet, LinkType::Ethernet).segments, 3);
            let plain = Packet {
                gso: None,
                ..packet
            };
            assert_eq!(frame(&plain, LinkType::Ethernet).segments, 1);
        }
    }
}
