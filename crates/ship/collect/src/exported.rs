//! Records of NetFlow and IPFIX.
//!
//! They are deltas, mostly of one direction. Counts are joined with those of other exporters and agents for the same
//! conversation. Sampled records are estimates, added up like sampled packets.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use skua_flow::{CapturePoint, Conversation, Direction, Ports as FlowPorts};
use skua_packet::{Level, Network, Transport};
use skua_wire::netflow::{Decoder, Flow};

use crate::{
    Collector, SECOND,
    conversation::{BYTES, PACKETS, RESET, RETRANSMITTED, Reported},
    counts::{Cause, Sum},
    key::{Oriented, Rule, Side},
    sampled::well_known_serves,
    window::LineKey,
};

const TCP: u8 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
/// Least difference between an exporter's clock and ours that corrects its times.
const CLOCK_TOLERANCE_NS: u64 = 5 * SECOND;

/// What exporters of NetFlow and IPFIX need beside what all need.
#[derive(Default)]
pub(crate) struct Exported {
    decoder: Decoder,
    /// Flows of the current datagram.
    flows: Vec<(Option<Level>, Flow)>,
}

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exported")
            .field("sessions", &self.decoder.sessions())
            .finish_non_exhaustive()
    }
}

/// The current datagram.
#[derive(Clone, Copy)]
struct Current {
    stream: u32,
    now_ns: u64,
    /// Our clock minus the exporter's, ns; 0 below the tolerance.
    skew_ns: i64,
}

/// A flow with what it is by.
struct ExportedFlow<'a> {
    flow: &'a Flow,
    protocol: u8,
    /// Source and destination.
    sides: [Side; 2],
    tracking_id: u64,
}

impl<'a> ExportedFlow<'a> {
    /// None when it is not of IP.
    fn of(level: &Level, flow: &'a Flow) -> Option<Self> {
        let nowhere = CapturePoint {
            netns: 0,
            ifindex: 0,
            direction: Direction::Ingress,
        };
        let ports = match level.transport {
            Transport::Ports { src, dst } => [src, dst],
            Transport::Tcp(tcp) => [tcp.src_port, tcp.dst_port],
            Transport::None | Transport::Icmp(_) => [0; 2],
        };
        let side = |address: [u8; 16], port| Side {
            address: IpAddr::V6(Ipv6Addr::from(address)).to_canonical(),
            port,
        };
        let by_ports = FlowPorts::of(&level.transport, level.network);
        let found = Conversation::new(nowhere, level, &by_ports, [0; 6]);
        (level.network != Network::None).then(|| Self {
            flow,
            protocol: level.proto,
            sides: [side(level.src, ports[0]), side(level.dst, ports[1])],
            tracking_id: found.key.tracking_id(),
        })
    }

    /// What one side sent, multiplied by the sampling rate.
    fn sent(&self, side: usize) -> Sum {
        let rate = u64::from(self.flow.sampling.max(1));
        Sum {
            packets: self.flow.packets[side].saturating_mul(rate),
            bytes: self.flow.bytes[side].saturating_mul(rate),
        }
    }

    /// Whether the destination is the server, and by which rule.
    fn serves(&self) -> (Option<bool>, Rule) {
        match self.flow.opened_by_source() {
            Some(opened) => (Some(opened), Rule::Syn),
            None => match well_known_serves(self.sides) {
                Some(serves) => (Some(serves), Rule::WellKnown),
                None => (None, Rule::Unknown),
            },
        }
    }

    fn all_flags(&self) -> u8 {
        match self.protocol {
            TCP => self.flow.tcp_flags[0] | self.flow.tcp_flags[1],
            _ => 0,
        }
    }

    /// The record in the form of agents' records.
    fn reported(&self, current: &Current) -> Reported {
        let [source, destination] = self.sides;
        let turned = source > destination;
        let in_order = |[source, destination]: [u64; 2]| match turned {
            false => [source, destination],
            true => [destination, source],
        };
        let mut total = [0; 6];
        let sent = [self.sent(0), self.sent(1)];
        total[PACKETS..BYTES].copy_from_slice(&in_order(sent.map(|sum| sum.packets)));
        total[BYTES..RETRANSMITTED].copy_from_slice(&in_order(sent.map(|sum| sum.bytes)));
        let [a, b, c, d, ..] = total;
        let (serves, rule) = self.serves();
        let sides = match turned {
            false => [source, destination],
            true => [destination, source],
        };
        let oriented = Oriented::new(self.protocol, sides, serves.map(|to| to != turned));
        let flags = self.all_flags();
        let reset = flags & RST != 0;
        Reported {
            stream: current.stream,
            // Ingress and egress are two observation points of an exporter.
            id: self.tracking_id ^ u64::from(self.flow.egress),
            tracking_id: self.tracking_id,
            first: self.protocol != TCP || flags & SYN != 0,
            moved: false,
            delta: true,
            ended: self.flow.has_ended() || flags & (FIN | RST) != 0,
            how: reset.then_some(RESET),
            first_ns: self.flow.first_ns,
            last_ns: self.flow.last_ns,
            total,
            new: [a, b, c, d],
            handshake_ns: 0,
            srtt_ns: 0,
            rule,
            key: LineKey {
                key: oriented.key,
                names: [0; 2],
            },
            client_first: oriented.client_first,
        }
    }
}

/// When a datagram was written by its exporter's clock, ns since the Unix epoch; none when it is too short.
fn written_ns(datagram: &[u8]) -> Option<u64> {
    let at = match datagram.get(1)? {
        10 => 4,
        _ => 8,
    };
    let seconds: [u8; 4] = datagram.get(at..at + 4)?.try_into().ok()?;
    Some(u64::from(u32::from_be_bytes(seconds)) * SECOND)
}

impl Collector {
    /// Processes a datagram of NetFlow or IPFIX.
    pub(crate) fn export(&mut self, from: SocketAddr, bytes: &[u8], now_ns: u64) {
        let skew_ns =
            written_ns(bytes).map_or(0, |written| now_ns.wrapping_sub(written).cast_signed());
        let skew_ns = match skew_ns.unsigned_abs() > CLOCK_TOLERANCE_NS {
            true => skew_ns,
            false => 0,
        };
        let mut exported = std::mem::take(&mut self.exported);
        let Exported { decoder, flows } = &mut exported;
        let outcome = decoder.decode(from, bytes, now_ns, &mut |flow, section| {
            flows.push(flow.as_packet(section));
        });
        if let Some(error) = outcome.error {
            self.counts.unreadable(from.ip(), &error);
        }
        self.counts.skipped += outcome.options;
        self.counts
            .lose(Cause::NoTemplate, outcome.no_template.sets);
        self.counts
            .lose(Cause::ExporterGap, outcome.step.lost.into());
        let gaps = &mut self.counts.lost[Cause::ExporterGap as usize];
        *gaps = gaps.saturating_sub(outcome.step.recovered.into());
        self.counts.restarts += u64::from(outcome.step.restarted);
        // A sender without flows gets no stream.
        if !flows.is_empty() {
            match self.streams.exporter(from.ip(), skew_ns, now_ns) {
                Some(stream) => {
                    let current = Current {
                        stream,
                        now_ns,
                        skew_ns,
                    };
                    for (level, flow) in flows.drain(..) {
                        self.exported_flow(&current, level.as_ref(), &flow);
                    }
                }
                None => {
                    let cause = match self.streams.sender_full(from.ip()) {
                        true => Cause::SenderFull,
                        false => Cause::AgentsFull,
                    };
                    self.counts.lose(cause, 1);
                    flows.clear();
                }
            }
        }
        self.exported = exported;
    }

    /// Counts sets whose template never arrived.
    pub(crate) fn expire_exported(&mut self, now_ns: u64, all: bool) {
        let decoder = &mut self.exported.decoder;
        let lost = match all {
            true => decoder.give_up(),
            false => decoder.expire(now_ns),
        };
        self.counts.lose(Cause::NoTemplate, lost.sets);
    }

    fn exported_flow(&mut self, current: &Current, level: Option<&Level>, flow: &Flow) {
        let Some(exported) = level.and_then(|level| ExportedFlow::of(level, flow)) else {
            if self.shard.is_first() {
                self.counts.lose(Cause::NoPacket, 1);
            }
            return;
        };
        if let Some(stream) = self.streams.get(current.stream) {
            let sum = |pair: [u64; 2]| pair[0].saturating_add(pair[1]);
            stream.count_exported(sum(flow.packets), sum(flow.bytes));
        }
        let [one, other] = exported.sides.map(|side| side.address);
        if !self.shard.has(exported.protocol, one, other) {
            return;
        }
        // The window is by the last packet, but never in the future when the exporter's clock is
        // ahead.
        let seen_ns = flow.last_ns.saturating_add_signed(current.skew_ns);
        let seen_ns = seen_ns.min(current.now_ns);
        match flow.sampling {
            0 | 1 => self.exported_sums(current, &exported, seen_ns),
            _ => self.exported_estimate(current, &exported, seen_ns),
        }
    }

    fn exported_sums(&mut self, current: &Current, exported: &ExportedFlow<'_>, seen_ns: u64) {
        self.counts.clock_corrected += u64::from(current.skew_ns != 0);
        let window = self.windows.of(seen_ns);
        let reported = exported.reported(current);
        // Exporters report seconds or minutes after the last packet. A window closed in between is reopened and
        // writes another line.
        let opens = Some(current.now_ns);
        self.add_record(
            &reported,
            (window, opens),
            exported.sides,
            (current.now_ns, 1),
        );
    }

    /// Sampled flows are estimates, and are not compared with other reports.
    fn exported_estimate(&mut self, current: &Current, exported: &ExportedFlow<'_>, seen_ns: u64) {
        if let Some(stream) = self.streams.get(current.stream) {
            let sum = |pair: [u64; 2]| pair[0].saturating_add(pair[1]);
            stream.got_records += 1;
            stream
                .got
                .add(sum(exported.flow.packets), sum(exported.flow.bytes));
        }
        let (serves, rule) = exported.serves();
        let [source, destination] = exported.sides;
        for (side, sides, serves) in [
            (0, [source, destination], serves),
            (1, [destination, source], serves.map(|to| !to)),
        ] {
            let sum = exported.sent(side);
            if sum == Sum::NONE {
                continue;
            }
            self.counts.samples += 1;
            let oriented = Oriented::new(exported.protocol, sides, serves);
            let sampled = self.windows.sampled(seen_ns, (&oriented, rule), sum);
            self.add_sample(&sampled, current.stream, Some(current.now_ns));
        }
    }
}
