//! The datagram streams of agents: identity, exported sums, clocks.

use std::{collections::HashSet, net::IpAddr};

use serde::Serialize;
use skua_wire::{
    Sequence, Step,
    sflow::{AgentReport, Header},
};

use crate::{HashMap, RandomState, SECOND, counts::Sum};

/// One address may use 1/`SHARE` of the table.
const SHARE: usize = 16;
/// An agent silent for this long is removed when space is needed. Its conversations have expired by then.
const SILENT: u64 = 900 * SECOND;
/// A stream with a single datagram is kept this long.
const ONCE: u64 = 60 * SECOND;

/// What identifies a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Identity {
    from: IpAddr,
    agent: IpAddr,
    sub_agent: u32,
    /// It is NetFlow or IPFIX.
    exports: bool,
}

impl Identity {
    fn of(from: IpAddr, header: &Header) -> Self {
        Self {
            from,
            agent: header.agent.to_canonical(),
            sub_agent: header.sub_agent,
            exports: false,
        }
    }
}

/// The result of a datagram's sequence number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepped {
    /// Number of its stream.
    pub(crate) number: u32,
    pub(crate) step: Step,
    /// Sequence number of the newest datagram of the stream.
    pub(crate) newest: u32,
    /// When the agent wrote it, by our clock; earlier than now if the agent stored it.
    pub(crate) sent_ns: u64,
}

/// Sums that agents exported, since we know them.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    records: u64,
    sum: Sum,
}

impl Tally {
    fn less(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_sub(other.records),
            sum: Sum {
                packets: self.sum.packets.saturating_sub(other.sum.packets),
                bytes: self.sum.bytes.saturating_sub(other.sum.bytes),
            },
        }
    }

    fn plus(self, other: Self) -> Self {
        let mut sum = self;
        sum.records = sum.records.saturating_add(other.records);
        sum.sum.add(other.sum.packets, other.sum.bytes);
        sum
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    identity: Identity,
    sequence: Sequence,
    /// Changes with each run of the agent.
    pub(crate) epoch: u32,
    instance: Option<u64>,
    /// Instance of the previous run; its datagrams are too late now.
    before_instance: Option<u64>,
    /// Whether we have its datagrams from the first one on.
    pub(crate) from_start: bool,
    /// The agent's clock at the first datagram of this run, ns.
    pub(crate) joined_ns: u64,
    /// Latest time, by the agent's clock, of records that were not stored.
    pub(crate) forgotten_ns: u64,
    /// Sums exported before that.
    base: Tally,
    /// Sums exported up to its newest datagram.
    exported: Tally,
    /// Sums of runs before this one.
    before: Tally,
    /// Sums exported by those runs before we knew them.
    base_before: Tally,
    lost_before: u64,
    /// Records that the agent could not export.
    agent_lost: u64,
    /// Of this run and those before.
    pub(crate) got_records: u64,
    pub(crate) got: Sum,
    datagrams: u64,
    /// When the last datagram arrived, by our clock.
    received_ns: u64,
    lost: u64,
    /// Sequence number of the newest datagram of this run, 0: none.
    newest: u32,
    /// Our clock less the agent's, ns.
    pub(crate) skew_ns: i64,
}

/// An agent as a summary shows it.
#[derive(Clone, Debug, Serialize)]
pub struct AgentLine {
    /// The agent's address in its datagrams.
    pub agent: IpAddr,
    /// Source address of its datagrams.
    pub from: IpAddr,
    /// Distinguishes several agents of one address.
    pub sub_agent: u32,
    /// Whether it is one of Skua's.
    pub skua: bool,
    /// Whether it is an exporter of NetFlow or IPFIX.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exports: bool,
    /// Datagrams received.
    pub datagrams: u64,
    /// Datagrams that did not.
    pub lost_datagrams: u64,
    /// Records received.
    pub records: u64,
    /// Records sent, as the agent reports.
    pub exported_records: u64,
    /// Records sent that did not arrive.
    pub lost_records: u64,
    /// Records that the agent could not send, as it reports.
    pub agent_lost_records: u64,
    /// Sums exported, as the agent reports.
    pub exported: Sum,
    /// Sums received.
    pub got: Sum,
    /// Sums exported before this collector knew the agent: to another collector, or to none.
    pub exported_before: Sum,
    /// Our clock less the agent's, ms.
    pub clock_ms: i64,
}

impl AgentLine {
    /// Which stream it is; lines are in this order.
    pub(crate) fn key(&self) -> (IpAddr, IpAddr, u32, bool) {
        (self.agent, self.from, self.sub_agent, self.exports)
    }
}

impl RemovedAgents {
    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        self.agents == 0
    }
}

impl Stream {
    fn line(&self) -> AgentLine {
        let exported = self.all_exported();
        AgentLine {
            agent: self.identity.agent,
            from: self.identity.from,
            sub_agent: self.identity.sub_agent,
            skua: self.instance.is_some(),
            exports: self.identity.exports,
            datagrams: self.datagrams,
            lost_datagrams: self.lost,
            records: self.got_records,
            exported_records: exported.records,
            lost_records: exported.records.saturating_sub(self.got_records),
            agent_lost_records: self.all_lost(),
            exported: exported.sum,
            got: self.got,
            exported_before: self.base_before.plus(self.base).sum,
            clock_ms: self.skew_ns / 1_000_000,
        }
    }

    fn all_lost(&self) -> u64 {
        self.lost_before.saturating_add(self.agent_lost)
    }

    fn all_exported(&self) -> Tally {
        self.before.plus(self.exported.less(self.base))
    }

    /// Applies an agent's report of the time before a datagram. `newest`: no datagram received before
    /// was sent later.
    pub(crate) fn report(&mut self, report: &AgentReport, header: &Header, newest: bool, now: u64) {
        let tally = Tally {
            records: report.records,
            sum: Sum {
                packets: report.packets,
                bytes: report.bytes,
            },
        };
        if self.instance != Some(report.instance) {
            self.before = self.all_exported();
            self.base_before = self.base_before.plus(self.base);
            self.lost_before = self.all_lost();
            self.agent_lost = 0;
            self.epoch += u32::from(self.instance.is_some());
            self.before_instance = self.instance.replace(report.instance);
            // Without earlier exports nothing was missed, whatever the sequence number.
            self.from_start = header.sequence == 1 || report.records == 0;
            self.joined_ns = report.now_ns;
            self.base = if self.from_start {
                Tally::default()
            } else {
                tally
            };
            self.exported = tally;
        } else if newest {
            self.exported = tally;
        }
        if newest {
            self.agent_lost = report.lost;
            self.skew_ns = now.wrapping_sub(report.now_ns).cast_signed();
        }
    }

    /// Adds a record of the newest datagram to the exported sums.
    pub(crate) fn count_exported(&mut self, packets: u64, bytes: u64) {
        self.exported.records = self.exported.records.saturating_add(1);
        self.exported.sum.add(packets, bytes);
    }
}

/// All streams.
#[derive(Debug)]
pub(crate) struct Streams {
    numbers: HashMap<Identity, u32>,
    all: HashMap<u32, Stream>,
    /// Streams of each sender.
    senders: HashMap<IpAddr, usize>,
    /// Number of the next one.
    next: u32,
    most: usize,
    removed: RemovedAgents,
}

/// Sums of agents that were silent for long and removed.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct RemovedAgents {
    /// How many.
    pub agents: u64,
    /// Sums exported, as they reported.
    pub exported: Sum,
    /// Sums received.
    pub got: Sum,
    /// Sums exported before this collector knew them.
    pub exported_before: Sum,
}

impl Streams {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            numbers: HashMap::default(),
            all: HashMap::default(),
            senders: HashMap::default(),
            next: 0,
            most,
            removed: RemovedAgents::default(),
        }
    }

    /// Processes a datagram's sequence number; none if there are too many streams.
    pub(crate) fn step(
        &mut self,
        from: IpAddr,
        header: &Header,
        report: Option<&AgentReport>,
        now_ns: u64,
    ) -> Option<Stepped> {
        let number = self.index(Identity::of(from, header), now_ns)?;
        let stream = self.get(number)?;
        stream.datagrams += 1;
        stream.received_ns = now_ns;
        let kept_ns = report.map_or(0, |report| u64::from(report.kept_ms) * 1_000_000);
        let sent_ns = now_ns.saturating_sub(kept_ns);
        let stepped = |step, newest| Stepped {
            number,
            step,
            newest,
            sent_ns,
        };
        let instance = report.map(|report| report.instance);
        let other = instance.filter(|_| stream.instance.is_some() && stream.instance != instance);
        if other.is_some() && other == stream.before_instance {
            let late = Step {
                late: true,
                ..Step::default()
            };
            return Some(stepped(late, 0));
        }
        if other.is_some() {
            (stream.sequence, stream.newest) = (Sequence::default(), 0);
        }
        let boot_ms = (sent_ns / 1_000_000).saturating_sub(header.uptime_ms.into());
        let mut step = stream.sequence.step(header.sequence, 1, Some(boot_ms));
        step.restarted |= other.is_some();
        stream.lost = (stream.lost + u64::from(step.lost)).saturating_sub(step.recovered.into());
        if !step.late {
            stream.newest = header.sequence;
        }
        Some(stepped(step, stream.newest))
    }

    /// The stream of a NetFlow or IPFIX exporter that sent a datagram; none if there are too many streams.
    pub(crate) fn exporter(&mut self, from: IpAddr, skew_ns: i64, now_ns: u64) -> Option<u32> {
        let from = from.to_canonical();
        let identity = Identity {
            from,
            agent: from,
            sub_agent: 0,
            exports: true,
        };
        let number = self.index(identity, now_ns)?;
        let stream = self.get(number)?;
        stream.datagrams += 1;
        stream.received_ns = now_ns;
        stream.skew_ns = skew_ns;
        Some(number)
    }

    /// The number of a stream, which is new when there is none; none when there are too many.
    fn index(&mut self, identity: Identity, now_ns: u64) -> Option<u32> {
        let from = identity.from;
        let number = match self.numbers.get(&identity) {
            Some(number) => *number,
            None if self.all.len() >= self.most => return None,
            None if self.of_sender(from) >= self.share() => return None,
            None => {
                let number = self.number();
                self.numbers.insert(identity, number);
                *self.senders.entry(from).or_default() += 1;
                let stream = Stream {
                    identity,
                    sequence: Sequence::default(),
                    epoch: 0,
                    instance: None,
                    before_instance: None,
                    from_start: false,
                    joined_ns: 0,
                    forgotten_ns: 0,
                    base: Tally::default(),
                    exported: Tally::default(),
                    before: Tally::default(),
                    base_before: Tally::default(),
                    lost_before: 0,
                    agent_lost: 0,
                    got_records: 0,
                    got: Sum::default(),
                    datagrams: 0,
                    received_ns: now_ns,
                    lost: 0,
                    newest: 0,
                    skew_ns: 0,
                };
                self.all.insert(number, stream);
                number
            }
        };
        Some(number)
    }

    /// Sequence number of the newest datagram received of an agent's run.
    pub(crate) fn newest(&self, from: IpAddr, header: &Header, instance: u64) -> Option<u32> {
        let number = *self.numbers.get(&Identity::of(from, header))?;
        let stream = self.all.get(&number)?;
        (stream.instance == Some(instance)).then_some(stream.newest)
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Stream> {
        self.all.get_mut(&number)
    }

    /// A number that no stream has; of four billion none returns before it is forgotten.
    fn number(&mut self) -> u32 {
        while self.all.contains_key(&self.next) || self.next == u32::MAX {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }

    /// Streams of one sender at most.
    fn share(&self) -> usize {
        self.most.div_ceil(SHARE)
    }

    fn of_sender(&self, from: IpAddr) -> usize {
        self.senders.get(&from).copied().unwrap_or(0)
    }

    /// Whether a new stream of an address does not fit because that address has too many.
    pub(crate) fn sender_full(&self, from: IpAddr) -> bool {
        self.of_sender(from) >= self.share()
    }

    /// Removes silent streams, where more than half of the table is used: by all, or by one sender.
    pub(crate) fn sweep(&mut self, now_ns: u64) {
        let crowded = self.all.len() > self.most / 2;
        let share = self.share();
        let many = self.senders.iter().filter(|(_, many)| **many > share / 2);
        let many: HashSet<IpAddr, RandomState> = many.map(|(from, _)| *from).collect();
        if !crowded && many.is_empty() {
            return;
        }
        let (numbers, senders, removed) = (&mut self.numbers, &mut self.senders, &mut self.removed);
        self.all.retain(|_, stream| {
            let silent = now_ns.saturating_sub(stream.received_ns);
            let limit = if stream.datagrams < 2 { ONCE } else { SILENT };
            let from = stream.identity.from;
            if silent <= limit || !(crowded || many.contains(&from)) {
                return true;
            }
            numbers.remove(&stream.identity);
            match senders.get(&from).copied() {
                None | Some(0 | 1) => senders.remove(&from),
                Some(more) => senders.insert(from, more - 1),
            };
            let line = stream.line();
            removed.agents += 1;
            for (sum, more) in [
                (&mut removed.exported, line.exported),
                (&mut removed.got, line.got),
                (&mut removed.exported_before, line.exported_before),
            ] {
                sum.add(more.packets, more.bytes);
            }
            false
        });
    }

    /// Sums of removed streams.
    pub(crate) fn removed(&self) -> RemovedAgents {
        self.removed
    }

    /// What the agent of a stream calls itself.
    pub(crate) fn agent(&self, number: u32) -> Option<IpAddr> {
        let stream = self.all.get(&number)?;
        Some(stream.identity.agent)
    }

    /// All of them, as they are shown.
    pub(crate) fn lines(&self) -> Vec<AgentLine> {
        let mut lines: Vec<_> = self.all.values().map(Stream::line).collect();
        lines.sort_by_key(AgentLine::key);
        lines
    }
}
