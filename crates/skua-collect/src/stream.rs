//! The streams of datagrams of agents: who they are, what they say that they told, how their clocks go.

use std::net::IpAddr;

use serde::Serialize;
use skua_wire::{
    Sequence, Step,
    sflow::{AgentReport, Header},
};

use crate::{HashMap, counts::Sum};

/// A stream by who sends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Identity {
    from: IpAddr,
    agent: IpAddr,
    sub_agent: u32,
}

impl Identity {
    fn of(from: IpAddr, header: &Header) -> Self {
        Self {
            from,
            agent: header.agent.to_canonical(),
            sub_agent: header.sub_agent,
        }
    }
}

/// What the number of a datagram tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepped {
    /// Number of its stream.
    pub(crate) number: u32,
    pub(crate) step: Step,
    /// Sequence number of the newest datagram of the stream.
    pub(crate) newest: u32,
    /// When it was written, by our clock: before now when it was kept for a time.
    pub(crate) sent_ns: u64,
}

/// What agents say that they told, since we know of them.
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
    /// Of the run before; what comes of it now is too late.
    before_instance: Option<u64>,
    /// Whether we have its datagrams from the first one on.
    pub(crate) from_start: bool,
    /// The agent's clock when we first heard of this run, ns.
    pub(crate) joined_ns: u64,
    /// What it had told before that.
    base: Tally,
    /// What it has told by the end of its newest datagram.
    told: Tally,
    /// Sums of runs before this one.
    before: Tally,
    /// What those had told before we knew of them.
    base_before: Tally,
    lost_before: u64,
    /// Records that it could not tell of.
    agent_lost: u64,
    /// Of this run and those before.
    pub(crate) got_records: u64,
    pub(crate) got: Sum,
    datagrams: u64,
    lost: u64,
    /// Sequence number of the newest datagram of this run, 0: none.
    newest: u32,
    /// Our clock less the agent's, ns.
    pub(crate) skew_ns: i64,
}

/// An agent as a summary shows it.
#[derive(Clone, Debug, Serialize)]
pub struct AgentLine {
    /// The address that it gives itself.
    pub agent: IpAddr,
    /// Where its datagrams come from.
    pub from: IpAddr,
    /// Tells several of one address apart.
    pub sub_agent: u32,
    /// Whether it is one of Skua's.
    pub skua: bool,
    /// Datagrams that came.
    pub datagrams: u64,
    /// Datagrams that did not.
    pub lost_datagrams: u64,
    /// Records that came.
    pub records: u64,
    /// Records that it says it sent.
    pub told_records: u64,
    /// Of them, those that did not come.
    pub lost_records: u64,
    /// Records that it says it could not send.
    pub agent_lost_records: u64,
    /// What it says that it told.
    pub told: Sum,
    /// What of it came.
    pub got: Sum,
    /// What it says that it had told before we knew of it: to others, or to nobody.
    pub told_before: Sum,
    /// Our clock less the agent's, ms.
    pub clock_ms: i64,
}

impl AgentLine {
    /// Whether it is the same stream.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let identity = |line: &Self| (line.agent, line.from, line.sub_agent);
        identity(self) == identity(other)
    }
}

impl Stream {
    fn line(&self) -> AgentLine {
        let told = self.all_told();
        AgentLine {
            agent: self.identity.agent,
            from: self.identity.from,
            sub_agent: self.identity.sub_agent,
            skua: self.instance.is_some(),
            datagrams: self.datagrams,
            lost_datagrams: self.lost,
            records: self.got_records,
            told_records: told.records,
            lost_records: told.records.saturating_sub(self.got_records),
            agent_lost_records: self.all_lost(),
            told: told.sum,
            got: self.got,
            told_before: self.base_before.plus(self.base).sum,
            clock_ms: self.skew_ns / 1_000_000,
        }
    }

    fn all_lost(&self) -> u64 {
        self.lost_before.saturating_add(self.agent_lost)
    }

    fn all_told(&self) -> Tally {
        self.before.plus(self.told.less(self.base))
    }

    /// Takes what the agent says of the time before a datagram. `newest`: none that came was sent later.
    pub(crate) fn report(&mut self, report: &AgentReport, header: &Header, newest: bool, now: u64) {
        let tally = Tally {
            records: report.records,
            sum: Sum {
                packets: report.packets,
                bytes: report.bytes,
            },
        };
        if self.instance != Some(report.instance) {
            self.before = self.all_told();
            self.base_before = self.base_before.plus(self.base);
            self.lost_before = self.all_lost();
            self.agent_lost = 0;
            self.epoch += u32::from(self.instance.is_some());
            self.before_instance = self.instance.replace(report.instance);
            // With nothing told before, nothing was missed, whatever the number says.
            self.from_start = header.sequence == 1 || report.records == 0;
            self.joined_ns = report.now_ns;
            self.base = if self.from_start {
                Tally::default()
            } else {
                tally
            };
            self.told = tally;
        } else if newest {
            self.told = tally;
        }
        if newest {
            self.agent_lost = report.lost;
            self.skew_ns = now.wrapping_sub(report.now_ns).cast_signed();
        }
    }

    /// Takes note of a record in the newest datagram: its agent has told so much more.
    pub(crate) fn tells(&mut self, packets: u64, bytes: u64) {
        self.told.records = self.told.records.saturating_add(1);
        self.told.sum.add(packets, bytes);
    }
}

/// All streams.
#[derive(Debug)]
pub(crate) struct Streams {
    numbers: HashMap<Identity, u32>,
    list: Vec<Stream>,
    most: usize,
}

impl Streams {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            numbers: HashMap::default(),
            list: Vec::new(),
            most,
        }
    }

    /// What the number of a datagram tells; none when there are too many streams.
    pub(crate) fn step(
        &mut self,
        from: IpAddr,
        header: &Header,
        report: Option<&AgentReport>,
        now_ns: u64,
    ) -> Option<Stepped> {
        let identity = Identity::of(from, header);
        let number = match self.numbers.get(&identity) {
            Some(number) => *number,
            None if self.list.len() >= self.most => return None,
            None => {
                let number = self.list.len() as u32;
                self.numbers.insert(identity, number);
                self.list.push(Stream {
                    identity,
                    sequence: Sequence::default(),
                    epoch: 0,
                    instance: None,
                    before_instance: None,
                    from_start: false,
                    joined_ns: 0,
                    base: Tally::default(),
                    told: Tally::default(),
                    before: Tally::default(),
                    base_before: Tally::default(),
                    lost_before: 0,
                    agent_lost: 0,
                    got_records: 0,
                    got: Sum::default(),
                    datagrams: 0,
                    lost: 0,
                    newest: 0,
                    skew_ns: 0,
                });
                number
            }
        };
        let stream = self.get(number)?;
        stream.datagrams += 1;
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

    /// Sequence number of the newest datagram that has come of a run of an agent.
    pub(crate) fn newest(&self, from: IpAddr, header: &Header, instance: u64) -> Option<u32> {
        let number = *self.numbers.get(&Identity::of(from, header))?;
        let stream = self.list.get(number as usize)?;
        (stream.instance == Some(instance)).then_some(stream.newest)
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Stream> {
        self.list.get_mut(number as usize)
    }

    /// What the agent of a stream calls itself.
    pub(crate) fn agent(&self, number: u32) -> Option<IpAddr> {
        let stream = self.list.get(number as usize)?;
        Some(stream.identity.agent)
    }

    /// All of them, as they are shown.
    pub(crate) fn lines(&self) -> Vec<AgentLine> {
        self.list.iter().map(Stream::line).collect()
    }
}
