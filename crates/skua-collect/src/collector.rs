//! From datagrams to lines.

use std::{net::IpAddr, time::Duration};

use skua_wire::{
    DecodeError,
    sflow::{
        self, Conversation, ConversationTcp, Counters, CountersSample, Datagram, FlowSample,
        Header, Record, Sample,
        own::{flags, service},
    },
};

use crate::{
    SECOND,
    conversation::{BYTES, Conversations, PACKETS, RETRANSMITTED, Reported},
    counts::{Cause, Counts, Sum, Summary},
    key::{Oriented, Rule},
    line::Line,
    sampled::Packet,
    stream::Streams,
    window::{Fate, Windows},
};

/// An agent's clock may differ by so much before its times are set right: delays on the way and the
/// time that a datagram waits are no difference of clocks.
const CLOCK_TOLERANCE_NS: u64 = 5 * SECOND;
/// What is forgotten is looked for so often.
const SWEEP_NS: u64 = 10 * SECOND;
const RST: u8 = 0x04;

/// What a collector is to do, and what it may take.
#[derive(Clone, Copy, Debug)]
pub struct CollectorConfig {
    /// Length of a window.
    pub window: Duration,
    /// How long after its end a window is closed.
    pub wait: Duration,
    /// Keys in open windows at most.
    pub max_keys: usize,
    /// Conversations, and points that tell of them, that are remembered at most.
    pub max_conversations: usize,
    /// Agents at most.
    pub max_agents: usize,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            wait: Duration::from_secs(15),
            max_keys: 1_000_000,
            max_conversations: 1_000_000,
            max_agents: 16_384,
        }
    }
}

/// Sums up what agents tell.
#[derive(Debug)]
pub struct Collector {
    window_ns: u64,
    streams: Streams,
    conversations: Conversations,
    windows: Windows,
    counts: Counts,
    lines: u64,
    swept_ns: u64,
}

/// The datagram that is read.
#[derive(Clone, Copy)]
struct Current<'a> {
    header: &'a Header,
    stream: u32,
    /// Whether none that came was sent later.
    newest: bool,
    now_ns: u64,
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Collector {
    /// A collector that knows nothing.
    pub fn new(config: &CollectorConfig) -> Self {
        Self {
            window_ns: ns(config.window).max(1),
            streams: Streams::new(config.max_agents),
            conversations: Conversations::new(config.max_conversations),
            windows: Windows::new(ns(config.window), ns(config.wait), config.max_keys),
            counts: Counts::default(),
            lines: 0,
            swept_ns: 0,
        }
    }

    /// Takes a datagram that came from an address at `now_ns` (since the Unix epoch).
    pub fn datagram(&mut self, from: IpAddr, bytes: &[u8], now_ns: u64) {
        self.counts.datagrams += 1;
        self.counts.datagram_bytes += bytes.len() as u64;
        if let Err(error) = self.read(from, bytes, now_ns) {
            self.counts.lose(Cause::DecodeError, 1);
            self.counts.last_error = Some(format!("{from}: {error}"));
        }
    }

    fn read(&mut self, from: IpAddr, bytes: &[u8], now_ns: u64) -> Result<(), DecodeError> {
        let datagram = sflow::decode(bytes)?;
        let Some((stream, step)) =
            self.streams
                .step(from, &datagram.header, instance(&datagram), now_ns)
        else {
            self.counts.lose(Cause::AgentsFull, 1);
            return Ok(());
        };
        let gaps = &mut self.counts.lost[Cause::SequenceGap as usize];
        *gaps = (*gaps + u64::from(step.lost)).saturating_sub(step.recovered.into());
        self.counts.restarts += u64::from(step.restarted);
        if step.late && step.recovered == 0 {
            self.counts.lose(Cause::Duplicate, 1);
            return Ok(());
        }
        let current = Current {
            header: &datagram.header,
            stream,
            newest: !step.late,
            now_ns,
        };
        let mut wrong = Ok(());
        for sample in datagram.samples() {
            let done = sample.and_then(|sample| match sample {
                Sample::Flow(sample) => self.flow_sample(&current, &sample),
                Sample::Counters(sample) => self.counters_sample(&current, &sample),
                Sample::Other { .. } => {
                    self.counts.skipped += 1;
                    Ok(())
                }
            });
            // What is wrong in one sample does not hide the next.
            wrong = wrong.and(done);
        }
        wrong
    }

    fn counters_sample(
        &mut self,
        current: &Current<'_>,
        sample: &CountersSample<'_>,
    ) -> Result<(), DecodeError> {
        for record in sample.records() {
            match record? {
                Counters::Agent(report) => {
                    if let Some(stream) = self.streams.get(current.stream) {
                        stream.report(&report, current.header, current.newest, current.now_ns);
                    }
                }
                Counters::Interface(_) | Counters::Ethernet(_) | Counters::Other { .. } => {
                    self.counts.skipped += 1;
                }
            }
        }
        Ok(())
    }

    fn flow_sample(
        &mut self,
        current: &Current<'_>,
        sample: &FlowSample<'_>,
    ) -> Result<(), DecodeError> {
        let (mut packet, mut seen_ns, mut told, mut tcp) = (None, None, None, None);
        let mut wrong = Ok(());
        for record in sample.records() {
            match record {
                Ok(Record::RawHeader(raw)) => packet = Packet::of_header(&raw).or(packet),
                Ok(Record::Ip(ip)) => packet = packet.or(Packet::of_ip(&ip)),
                Ok(Record::Timestamp(ns)) => seen_ns = Some(ns),
                Ok(Record::Conversation(record)) => told = Some(record),
                Ok(Record::ConversationTcp(record)) => tcp = Some(record),
                Ok(Record::Other { .. }) => self.counts.skipped += 1,
                Ok(_) => {}
                Err(error) => wrong = wrong.and(Err(error)),
            }
        }
        match (packet, told) {
            (None, _) => self.counts.lose(Cause::NoPacket, 1),
            (Some(packet), Some(told)) => {
                self.conversation(current, &packet, seen_ns, &told, tcp.as_ref());
            }
            (Some(packet), None) => self.packet(current, &packet, sample.head.rate),
        }
        wrong
    }

    /// Counts a sampled packet, which stands for `rate`.
    fn packet(&mut self, current: &Current<'_>, packet: &Packet, rate: u32) {
        self.counts.samples += 1;
        let packets = u64::from(rate.max(1));
        let bytes = packet.bytes.saturating_mul(packets);
        let (oriented, rule) = packet.oriented();
        let window = self.windows.of(current.now_ns);
        let fate =
            self.windows
                .add_sample(window, (&oriented, rule), packets, bytes, current.stream);
        let sum = Sum { packets, bytes };
        match fate {
            Fate::Counted => self.counts.estimated.add(packets, bytes),
            fate => self.left_out(fate, sum),
        }
    }

    fn left_out(&mut self, fate: Fate, sum: Sum) {
        let (cause, sums) = match fate {
            Fate::Late => (Cause::Late, &mut self.counts.late),
            Fate::KeysFull => (Cause::KeysFull, &mut self.counts.keys_full),
            Fate::Counted => return,
        };
        sums.add(sum.packets, sum.bytes);
        self.counts.lose(cause, 1);
    }

    fn conversation(
        &mut self,
        current: &Current<'_>,
        packet: &Packet,
        seen_ns: Option<u64>,
        told: &Conversation,
        tcp: Option<&ConversationTcp>,
    ) {
        self.counts.records += 1;
        let Some(stream) = self.streams.get(current.stream) else {
            return;
        };
        let factor = u64::from(told.sampling.max(1));
        let sum = |pair: [u32; 2]| u64::from(pair[0]) + u64::from(pair[1]);
        stream.got_records += 1;
        if current.newest {
            stream.tells(sum(told.new_packets), sum(told.new_bytes));
        }
        // Its window is by the time of its last packet, by our clock.
        let last_ns = seen_ns.unwrap_or(current.now_ns);
        let mut seen_ns = last_ns;
        // One that adds no packets tells of an end, which was noticed only now.
        if told.new_packets == [0; 2] {
            seen_ns = current.now_ns;
        }
        let mut first_ns = told.first_ns;
        if stream.skew_ns.unsigned_abs() > CLOCK_TOLERANCE_NS {
            self.counts.clock_corrected += 1;
            seen_ns = seen_ns.saturating_add_signed(stream.skew_ns);
            first_ns = first_ns.saturating_add_signed(stream.skew_ns);
        }
        let seen_ns = seen_ns.min(current.now_ns);
        let window = self.windows.of(seen_ns);
        let reported = Reported {
            first_ns,
            ..reported(current.stream, packet, last_ns, told, tcp)
        };
        let added = self
            .conversations
            .take(&reported, stream, window, current.now_ns);
        let traffic = |sums: &[u64; 9]| Sum {
            packets: sums[PACKETS].saturating_add(sums[PACKETS + 1]),
            bytes: sums[BYTES].saturating_add(sums[BYTES + 1]),
        };
        let (point, more) = (traffic(&added.point), traffic(&added.conversation));
        // What the agent says it told is not scaled up.
        stream.got.add(point.packets / factor, point.bytes / factor);
        let counts = &mut self.counts;
        counts.got.add(point.packets, point.bytes);
        counts.elsewhere.add(
            point.packets.saturating_sub(more.packets),
            point.bytes.saturating_sub(more.bytes),
        );
        counts.untracked += u64::from(!added.tracked);
        if added.point == [0; 9] {
            counts.old_records += 1;
        }
        let [one, other] = packet.sides;
        let client = match added.client_first {
            true => one.min(other),
            false => one.max(other),
        };
        let port = client.port;
        match self.windows.add(window, &added, port, current.stream) {
            Fate::Counted => self.counts.counted.add(more.packets, more.bytes),
            fate => self.left_out(fate, more),
        }
    }

    /// When [`close`](Self::close) has something to do next, ns since the Unix epoch.
    pub fn next_close(&self) -> Option<u64> {
        self.windows.next_close()
    }

    /// Closes the windows that are over at `now_ns`, and hands out their lines.
    pub fn close(&mut self, now_ns: u64, each: &mut dyn FnMut(&Line<'_>)) {
        if now_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = now_ns;
            self.forget(now_ns, false);
        }
        self.write(now_ns, false, each);
    }

    /// Closes all windows and forgets everything but what was counted.
    pub fn finish(&mut self, now_ns: u64, each: &mut dyn FnMut(&Line<'_>)) {
        self.forget(now_ns, true);
        self.write(now_ns, true, each);
    }

    fn forget(&mut self, now_ns: u64, all: bool) {
        let window = self.windows.of(now_ns);
        let windows = &mut self.windows;
        self.conversations.sweep(now_ns, all, &mut |settled| {
            windows.settle(window, &settled);
        });
    }

    fn write(&mut self, now_ns: u64, all: bool, each: &mut dyn FnMut(&Line<'_>)) {
        let (length, lines) = (self.window_ns, &mut self.lines);
        self.windows.close(now_ns, all, &mut |window, key, sums| {
            *lines += 1;
            each(&Line::new(window, length, key, sums));
        });
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// All sums as they are now.
    pub fn summary(&self) -> Summary {
        let counts = &self.counts;
        let agents = self.streams.lines();
        let (mut told, mut missing) = (Sum::default(), Sum::default());
        for agent in &agents {
            told.add(agent.told.packets, agent.told.bytes);
            missing.add(
                agent.told.packets.saturating_sub(agent.got.packets),
                agent.told.bytes.saturating_sub(agent.got.bytes),
            );
        }
        Summary {
            datagrams: counts.datagrams,
            datagram_bytes: counts.datagram_bytes,
            records: counts.records,
            old_records: counts.old_records,
            untracked: counts.untracked,
            samples: counts.samples,
            skipped: counts.skipped,
            restarts: counts.restarts,
            clock_corrected: counts.clock_corrected,
            told,
            got: counts.got,
            missing,
            elsewhere: counts.elsewhere,
            late: counts.late,
            keys_full: counts.keys_full,
            counted: counts.counted,
            estimated: counts.estimated,
            lost: Cause::ALL
                .into_iter()
                .map(|cause| (cause.name(), counts.of(cause)))
                .filter(|(_, units)| *units > 0)
                .collect(),
            lines: self.lines,
            conversations: self.conversations.len(),
            agents,
            last_error: counts.last_error.clone(),
        }
    }
}

/// Which run of its agent a datagram is of: our agents say so in the first sample.
fn instance(datagram: &Datagram<'_>) -> Option<u64> {
    match datagram.samples().next()?.ok()? {
        Sample::Counters(sample) => sample.records().find_map(|record| match record {
            Ok(Counters::Agent(report)) => Some(report.instance),
            _ => None,
        }),
        _ => None,
    }
}

/// A record with its pairs in the order of addresses and ports, whoever spoke first.
fn reported(
    stream: u32,
    packet: &Packet,
    last_ns: u64,
    told: &Conversation,
    tcp: Option<&ConversationTcp>,
) -> Reported {
    let [source, destination] = packet.sides;
    let turned = source > destination;
    let factor = u64::from(told.sampling.max(1));
    let pair = |[source, destination]: [u64; 2]| match turned {
        false => [source, destination].map(|value| value.saturating_mul(factor)),
        true => [destination, source].map(|value| value.saturating_mul(factor)),
    };
    let mut total = [0; 9];
    total[PACKETS..BYTES].copy_from_slice(&pair(told.packets));
    total[BYTES..RETRANSMITTED].copy_from_slice(&pair(told.bytes));
    if let Some(tcp) = tcp {
        let sums = pair(tcp.retransmitted.map(u64::from));
        total[RETRANSMITTED..RETRANSMITTED + 2].copy_from_slice(&sums);
    }
    let mut new = [0; 4];
    new[PACKETS..BYTES].copy_from_slice(&pair(told.new_packets.map(u64::from)));
    new[BYTES..].copy_from_slice(&pair(told.new_bytes.map(u64::from)));
    let serves = match (
        told.service & service::SOURCE != 0,
        told.service & service::DESTINATION != 0,
    ) {
        (false, true) => Some(true),
        (true, false) => Some(false),
        _ => None,
    };
    let rule = match serves {
        Some(_) => Rule::of(told.service & service::RULE),
        None => Rule::Unknown,
    };
    let serves = serves.filter(|_| rule != Rule::Unknown);
    let sides = match turned {
        false => [source, destination],
        true => [destination, source],
    };
    let oriented = Oriented::new(packet.protocol, sides, serves.map(|to| to != turned));
    let rtt_ns = tcp.map_or(0, |tcp| match (tcp.server_rtt_ns, tcp.client_rtt_ns) {
        (0, _) | (_, 0) => 0,
        (server, client) => u64::from(server) + u64::from(client),
    });
    Reported {
        stream,
        id: told.id,
        tracking_id: told.tracking_id,
        first: told.flags & flags::FIRST != 0,
        ended: matches!(told.end, 1 | 2),
        reset: tcp.is_some_and(|tcp| (tcp.flags[0] | tcp.flags[1]) & RST != 0),
        first_ns: told.first_ns,
        last_ns,
        total,
        new,
        rtt_ns,
        rule,
        key: oriented.key,
        client_first: oriented.client_first,
    }
}
