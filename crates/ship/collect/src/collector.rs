//! From datagrams to lines.

use std::{
    hint::black_box,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use skua_wire::{
    DecodeError,
    netflow::is_netflow,
    sflow::{
        self, Conversation, Counters, CountersSample, FlowSample, Header, Sample, own::report,
    },
};

use crate::{
    SECOND,
    answer::{Answers, First},
    conversation::{BYTES, Conversations, PACKETS, Prefetch, Reported, Sums, Tracking},
    counts::{Cause, Counts, Sum},
    exported::Exported,
    key::Side,
    line::Line,
    names::{Defined, Names},
    reading::Reading,
    sampled::Packet,
    shard::Shard,
    stream::Streams,
    window::{Outcome, Sampled, Windows},
};

/// Least difference between an agent's clock and ours that corrects its times: network delay and
/// queues cause smaller ones.
const CLOCK_TOLERANCE_NS: u64 = 5 * SECOND;
/// Interval between two sweeps of expired entries.
const SWEEP_NS: u64 = 10 * SECOND;

/// Settings and limits of a collector.
#[derive(Clone, Copy, Debug)]
pub struct CollectorConfig {
    /// Length of a window.
    pub window: Duration,
    /// How long after its end a window is closed.
    pub wait: Duration,
    /// Keys in open windows at most.
    pub max_keys: usize,
    /// Most conversations that are tracked; of observation points twice as many.
    pub max_conversations: usize,
    /// Agents at most.
    pub max_agents: usize,
    /// Names of services at most.
    pub max_names: usize,
    /// The part of the traffic that this collector sums up.
    pub shard: Shard,
    /// Random number of this run; answers carry it to the agents.
    pub instance: u64,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            wait: Duration::from_secs(15),
            max_keys: 1_000_000,
            max_conversations: 1_000_000,
            max_agents: 16_384,
            max_names: 65_536,
            shard: Shard::default(),
            instance: 0,
        }
    }
}

/// Source address of a datagram. NetFlow exporters at one address are distinguished by their ports.
#[derive(Clone, Copy, Debug)]
pub struct Sender(SocketAddr);

impl From<SocketAddr> for Sender {
    fn from(from: SocketAddr) -> Self {
        Self(from)
    }
}

impl From<IpAddr> for Sender {
    fn from(from: IpAddr) -> Self {
        Self((from, 0).into())
    }
}

/// Sums up what agents and exporters report.
#[derive(Debug)]
pub struct Collector {
    window_ns: u64,
    pub(crate) shard: Shard,
    pub(crate) streams: Streams,
    pub(crate) conversations: Conversations,
    pub(crate) windows: Windows,
    pub(crate) counts: Counts,
    names: Names,
    defined: Defined,
    answers: Answers,
    pub(crate) exported: Exported,
    /// Sampled packets of the current datagram.
    sampled: Vec<Sampled>,
    /// Conversations of the current datagram.
    pending: Vec<ConversationSample>,
    pub(crate) lines: u64,
    swept_ns: u64,
}

/// Most records that are applied together.
pub(crate) const TOGETHER: usize = 32;

/// A flow sample with a conversation record.
#[derive(Debug)]
struct ConversationSample {
    packet: Packet,
    conversation: Conversation,
    read: Reading,
}

/// The current datagram.
#[derive(Clone, Copy)]
struct Current<'a> {
    header: &'a Header,
    stream: u32,
    /// Whether no datagram received before was sent later.
    newest: bool,
    now_ns: u64,
    /// When the agent wrote it, by our clock; earlier than now if the agent stored it.
    sent_ns: u64,
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Collector {
    /// A collector without state.
    pub fn new(config: &CollectorConfig) -> Self {
        Self {
            window_ns: ns(config.window).max(1),
            shard: config.shard,
            names: Names::new(config.max_names),
            defined: Defined::new(),
            streams: Streams::new(config.max_agents),
            conversations: Conversations::new(config.max_conversations),
            windows: Windows::new(ns(config.window), ns(config.wait), config.max_keys),
            counts: Counts::default(),
            answers: Answers::new(config.instance),
            exported: Exported::default(),
            sampled: Vec::with_capacity(TOGETHER),
            pending: Vec::with_capacity(TOGETHER),
            lines: 0,
            swept_ns: 0,
        }
    }

    /// Processes a datagram of sFlow, NetFlow or IPFIX received at `now_ns` (since the Unix epoch). Returns the answer if the datagram
    /// requests one; of several shards, only the first one's answer is sent.
    pub fn datagram(
        &mut self,
        from: impl Into<Sender>,
        bytes: &[u8],
        now_ns: u64,
    ) -> Option<&[u8]> {
        let Sender(from) = from.into();
        self.counts.datagrams += 1;
        self.counts.datagram_bytes += bytes.len() as u64;
        self.answers.clear();
        if is_netflow(bytes) {
            self.export(from, bytes, now_ns);
            return None;
        }
        let from = from.ip();
        if let Err(error) = self.read(from, bytes, now_ns) {
            self.counts.unreadable(from, &error);
        }
        self.answers.written()
    }

    fn read(&mut self, from: IpAddr, bytes: &[u8], now_ns: u64) -> Result<(), DecodeError> {
        let datagram = sflow::decode(bytes)?;
        let first = First::of(&datagram);
        let report = match &first {
            First::Question(hello) => {
                let newest = self.streams.newest(from, &datagram.header, hello.instance);
                let newest = newest.unwrap_or(0);
                self.answers
                    .write(&datagram.header, newest, hello.instance, now_ns);
                return Ok(());
            }
            First::Report(report) => Some(report),
            First::Other => None,
        };
        let Some(current) = self.streams.step(from, &datagram.header, report, now_ns) else {
            let cause = match self.streams.sender_full(from) {
                true => Cause::SenderFull,
                false => Cause::AgentsFull,
            };
            self.counts.lose(cause, 1);
            return Ok(());
        };
        let (stream, step, sent_ns) = (current.number, current.step, current.sent_ns);
        if let Some(report) = report.filter(|report| report.flags & report::ASKS != 0) {
            let header = &datagram.header;
            self.answers
                .write(header, current.newest, report.instance, now_ns);
        }
        let gaps = &mut self.counts.lost[Cause::SequenceGap as usize];
        *gaps = (*gaps + u64::from(step.lost)).saturating_sub(step.recovered.into());
        self.counts.restarts += u64::from(step.restarted);
        self.counts.kept += u64::from(sent_ns < now_ns);
        if step.late && step.recovered == 0 {
            self.counts.lose(Cause::Duplicate, 1);
            return Ok(());
        }
        self.defined.clear();
        let current = Current {
            header: &datagram.header,
            stream,
            newest: !step.late,
            now_ns,
            sent_ns,
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
            // An error in one sample does not discard the next.
            wrong = wrong.and(done);
        }
        self.add_samples(stream);
        self.apply_exported(&current);
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
                        stream.report(&report, current.header, current.newest, current.sent_ns);
                    }
                }
                Counters::Seal => {}
                Counters::Interface(_)
                | Counters::Ethernet(_)
                | Counters::Hello(_)
                | Counters::Other { .. } => {
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
        let (read, wrong) = Reading::of(sample, &mut self.names, &mut self.defined);
        self.counts.lose(Cause::NamesFull, read.nameless);
        self.counts.skipped += read.skipped;
        if read.is_reverse {
            return wrong;
        }
        let shard = self.shard;
        let ours = |packet: &Packet| {
            let [one, other] = packet.sides.map(|side| side.address);
            shard.has(packet.protocol, one, other)
        };
        match (&read.packet, &read.conversation) {
            (None, _) if self.shard.is_first() => self.counts.lose(Cause::NoPacket, 1),
            (None, _) => {}
            (Some(packet), Some(conversation)) => {
                self.count_exported(current, conversation);
                if ours(packet) {
                    let (packet, conversation) = (*packet, *conversation);
                    self.pending.push(ConversationSample {
                        packet,
                        conversation,
                        read,
                    });
                    if self.pending.len() >= TOGETHER {
                        self.apply_exported(current);
                    }
                }
            }
            (Some(packet), None) if ours(packet) => self.packet(current, packet, sample.head.rate),
            (Some(_), None) => {}
        }
        wrong
    }

    /// Counts a sampled packet, which represents `rate` packets.
    fn packet(&mut self, current: &Current<'_>, packet: &Packet, rate: u32) {
        self.counts.samples += 1;
        let packets = u64::from(rate.max(1));
        let bytes = packet.bytes.saturating_mul(packets);
        let (oriented, rule) = packet.oriented();
        let sum = Sum { packets, bytes };
        let sampled = self.windows.sampled(current.now_ns, (&oriented, rule), sum);
        self.sampled.push(sampled);
        if self.sampled.len() >= TOGETHER {
            self.add_samples(current.stream);
        }
    }

    /// Adds the sampled packets of a datagram.
    fn add_samples(&mut self, stream: u32) {
        let mut sampled = std::mem::take(&mut self.sampled);
        self.windows.prefetch(sampled.iter().map(Sampled::key));
        for packet in sampled.drain(..) {
            self.add_sample(&packet, stream, None);
        }
        self.sampled = sampled;
    }

    /// Adds a sampled packet. `opens`: a closed window is reopened, at this time.
    pub(crate) fn add_sample(&mut self, packet: &Sampled, stream: u32, opens: Option<u64>) {
        match self.windows.add_sample(packet, stream, opens) {
            Outcome::Counted => {
                let sum = packet.sum;
                self.counts.estimated.add(sum.packets, sum.bytes);
            }
            outcome => self.left_out(outcome, packet.sum),
        }
    }

    fn left_out(&mut self, outcome: Outcome, sum: Sum) {
        let (cause, sums) = match outcome {
            Outcome::Late => (Cause::Late, &mut self.counts.late),
            Outcome::KeysFull => (Cause::KeysFull, &mut self.counts.keys_full),
            Outcome::Counted => return,
        };
        sums.add(sum.packets, sum.bytes);
        self.counts.lose(cause, 1);
    }

    /// Adds to the stream's exported sums, whichever shard the conversation belongs to.
    fn count_exported(&mut self, current: &Current<'_>, conversation: &Conversation) {
        let sum = |pair: [u32; 2]| u64::from(pair[0]) + u64::from(pair[1]);
        if current.newest
            && let Some(stream) = self.streams.get(current.stream)
        {
            stream.count_exported(sum(conversation.new_packets), sum(conversation.new_bytes));
        }
    }

    /// Applies the conversations of the current datagram.
    fn apply_exported(&mut self, current: &Current<'_>) {
        let mut all = std::mem::take(&mut self.pending);
        self.prefetch(current.stream, &all);
        for ConversationSample {
            packet,
            conversation,
            read,
        } in all.drain(..)
        {
            self.conversation(current, &packet, &conversation, &read);
        }
        self.pending = all;
    }

    /// Prefetches the entries that will change: see [`Windows::prefetch`].
    fn prefetch(&self, stream: u32, all: &[ConversationSample]) {
        let mut fetched = [None; TOGETHER];
        for (fetched, ConversationSample { conversation, .. }) in fetched.iter_mut().zip(all) {
            *fetched = Some(self.conversations.find(
                stream,
                conversation.id,
                conversation.tracking_id,
            ));
        }
        let fetched = fetched.iter().flatten();
        black_box(fetched.clone().fold(0, |all, fetched| all ^ fetched.read()));
        self.windows.prefetch(fetched.filter_map(Prefetch::key));
    }

    fn conversation(
        &mut self,
        current: &Current<'_>,
        packet: &Packet,
        conversation: &Conversation,
        read: &Reading,
    ) {
        let Some(stream) = self.streams.get(current.stream) else {
            return;
        };
        // Its window is by the time of its last packet, by our clock.
        let last_ns = read.seen_ns.unwrap_or(current.sent_ns);
        let mut seen_ns = last_ns;
        // A record without new packets reports an end, which the agent noticed only now.
        if conversation.new_packets == [0; 2] {
            seen_ns = current.sent_ns;
        }
        if stream.skew_ns.unsigned_abs() > CLOCK_TOLERANCE_NS {
            self.counts.clock_corrected += 1;
            seen_ns = seen_ns.saturating_add_signed(stream.skew_ns);
        }
        let seen_ns = seen_ns.min(current.sent_ns);
        let window = self.windows.of(seen_ns);
        let reported = read.reported(current.stream, packet, conversation, last_ns);
        let kept = current.sent_ns < current.now_ns;
        let opens = kept.then_some(current.now_ns);
        // An agent's exported sums are not multiplied by the sampling rate.
        let factor = u64::from(conversation.sampling.max(1));
        self.add_record(
            &reported,
            (window, opens),
            packet.sides,
            (current.now_ns, factor),
        );
    }

    /// Adds a record to a window. A closed window is reopened if there is a time for that. The stream's own sums are
    /// smaller by `factor`.
    pub(crate) fn add_record(
        &mut self,
        reported: &Reported,
        (window, opens): (u64, Option<u64>),
        sides: [Side; 2],
        (now_ns, factor): (u64, u64),
    ) {
        self.counts.records += 1;
        let Some(stream) = self.streams.get(reported.stream) else {
            return;
        };
        stream.got_records += 1;
        let added = self
            .conversations
            .add_record(reported, stream, window, now_ns);
        if !added.remembered {
            stream.forgotten_ns = stream.forgotten_ns.max(reported.last_ns);
        }
        let traffic = |sums: &Sums| Sum {
            packets: sums[PACKETS].saturating_add(sums[PACKETS + 1]),
            bytes: sums[BYTES].saturating_add(sums[BYTES + 1]),
        };
        let (point, more) = (traffic(&added.point), traffic(&added.conversation));
        stream.got.add(point.packets / factor, point.bytes / factor);
        let counts = &mut self.counts;
        counts.got.add(point.packets, point.bytes);
        let elsewhere = match added.tracking {
            Tracking::Joined | Tracking::First => &mut counts.elsewhere,
            Tracking::Full => &mut counts.conversations_full,
        };
        elsewhere.add(
            point.packets.saturating_sub(more.packets),
            point.bytes.saturating_sub(more.bytes),
        );
        counts.untracked += u64::from(added.tracking != Tracking::Joined);
        match added.tracking {
            Tracking::Joined => {}
            Tracking::First => counts.lose(Cause::NotJoined, 1),
            Tracking::Full => counts.lose(Cause::ConversationsFull, 1),
        }
        counts.old_records += u64::from(added.point == [0; 11]);
        let [one, other] = sides;
        let client = match added.client_first {
            true => one.min(other),
            false => one.max(other),
        };
        let outcome = self
            .windows
            .add(window, &added, (client.port, reported.stream), opens);
        match outcome {
            Outcome::Counted => self.counts.counted.add(more.packets, more.bytes),
            outcome => {
                self.conversations.not_counted(reported.tracking_id);
                self.left_out(outcome, more);
            }
        }
    }

    /// When [`close`](Self::close) has something to do next, ns since the Unix epoch.
    pub fn next_close(&self) -> Option<u64> {
        self.windows.next_close()
    }

    /// Closes the windows that are over at `now_ns`, and passes their lines to `each`.
    pub fn close(&mut self, now_ns: u64, each: &mut dyn FnMut(&Line<'_>)) {
        if now_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = now_ns;
            self.forget(now_ns, false);
        }
        self.write(now_ns, false, each);
    }

    /// Closes all windows and forgets everything but the counts.
    pub fn finish(&mut self, now_ns: u64, each: &mut dyn FnMut(&Line<'_>)) {
        self.forget(now_ns, true);
        self.write(now_ns, true, each);
    }

    fn forget(&mut self, now_ns: u64, all: bool) {
        if !all {
            self.streams.sweep(now_ns);
        }
        self.expire_exported(now_ns, all);
        let window = self.windows.of(now_ns);
        let windows = &mut self.windows;
        self.conversations.sweep(now_ns, all, &mut |settled| {
            windows.settle(window, &settled);
        });
        if self.names.crowded() {
            let (conversations, windows) = (&self.conversations, &self.windows);
            self.names.retain(|used| {
                conversations.names(used);
                windows.names(used);
            });
        }
    }

    fn write(&mut self, now_ns: u64, all: bool, each: &mut dyn FnMut(&Line<'_>)) {
        let (length, lines) = (self.window_ns, &mut self.lines);
        let known = (&self.names, &self.streams);
        self.windows.close(now_ns, all, &mut |window, key, sums| {
            *lines += 1;
            each(&Line::new(window, length, key, sums, known));
        });
    }

    /// Passes the lines of open windows to `each`, with their sums so far.
    pub fn peek(&self, each: &mut dyn FnMut(&Line<'_>)) {
        self.windows.peek(&mut |window, key, sums| {
            let known = (&self.names, &self.streams);
            each(&Line::new(window, self.window_ns, key, sums, known));
        });
    }

    /// All counts.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
