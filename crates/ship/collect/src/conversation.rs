//! The state of conversations: what each observation point has reported, so that sums become
//! differences, and what was counted, so that reports of several points are counted once.

use crate::{
    HashMap, SECOND,
    compact::{self, Compact, RecordClass},
    key::Rule,
    stream::Stream,
    window::LineKey,
};

/// A conversation that has ended is tracked for this long.
pub(crate) const LINGER: u64 = 60 * SECOND;
/// An ended conversation that one agent reported stays in the table this long, to be compared with the
/// report of a second agent.
const COMPARE: u64 = 15 * SECOND;
/// Points of a conversation that are forgotten with it at once.
const POINTS: usize = 16;
/// A silent conversation is kept this long.
const FORGET: u64 = 900 * SECOND;

/// For this long after the first report, agents may still arrive from the same former collector: longer than the
/// time between two drains.
const HANDOVER: u64 = 30 * SECOND;

/// Sums of a conversation; the constants below are their indexes.
pub(crate) type Sums = [u64; 11];
/// Packets sent by the first side; the second's follow, also of those below.
pub(crate) const PACKETS: usize = 0;
/// Bytes.
pub(crate) const BYTES: usize = 2;
/// Retransmitted segments.
pub(crate) const RETRANSMITTED: usize = 4;
/// Beginnings.
pub(crate) const BEGUN: usize = 6;
/// Ends, by FIN, RST or silence.
pub(crate) const ENDED: usize = 7;
/// Ends by RST after an answer.
pub(crate) const RESET: usize = 8;
/// Attempts that were answered with RST.
pub(crate) const REFUSED: usize = 9;
/// Attempts that were not answered.
pub(crate) const TIMED_OUT: usize = 10;
/// What an agent's sums are of; the rest is counted here.
const REPORTED: usize = 6;
/// Packets and bytes of both sides.
const TRAFFIC: std::ops::Range<usize> = 0..4;

/// The greater of each.
fn raise<const N: usize>(sums: &mut [u64; N], to: &[u64; N]) {
    for (sum, to) in sums.iter_mut().zip(to) {
        *sum = (*sum).max(*to);
    }
}

/// What `sums` has more than `than`.
fn excess<const N: usize>(sums: &[u64; N], than: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|index| sums[index].saturating_sub(than[index]))
}

/// A record, its pairs in canonical order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    pub(crate) stream: u32,
    pub(crate) id: u64,
    pub(crate) tracking_id: u64,
    pub(crate) first: bool,
    /// The agent may have reported it to another collector in between.
    pub(crate) moved: bool,
    /// Sums are deltas since the last record, as of NetFlow and IPFIX, and each direction may have a record of its
    /// own: `first` and `ended` then say that the delta includes the beginning or the end.
    pub(crate) delta: bool,
    pub(crate) ended: bool,
    /// Index of the sum that its end also adds to, like [`RESET`].
    pub(crate) how: Option<usize>,
    /// By the agent's clock, as the last.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Packets and bytes since the beginning, retransmitted segments.
    pub(crate) total: [u64; REPORTED],
    /// Packets and bytes that are new.
    pub(crate) new: [u64; 4],
    /// Handshake, ns; 0 unknown.
    pub(crate) handshake_ns: u64,
    /// Smoothed round-trip time of a socket, ns; 0 unknown.
    pub(crate) srtt_ns: u64,
    pub(crate) rule: Rule,
    /// Names are of client and server.
    pub(crate) key: LineKey,
    pub(crate) client_first: bool,
}

/// Sums reported by one observation point of an agent.
#[derive(Debug)]
struct Report {
    tracking_id: u64,
    last_ns: u64,
    open: bool,
    /// As in its last record.
    raw: [u64; REPORTED],
    /// Over all conversations between these ports, and all runs of the agent.
    sums: Sums,
}

/// Sums reported by an agent: the largest of its observation points.
#[derive(Clone, Copy, Debug)]
struct Agent {
    stream: u32,
    epoch: u32,
    /// Packets and bytes reported in earlier runs of the agent.
    base: [u64; 4],
    /// Packets and bytes reported.
    reported: [u64; 4],
}

/// A conversation, or several between the same ports, one after the other.
#[derive(Debug)]
struct Conversation {
    key: LineKey,
    client_first: bool,
    rule: Rule,
    /// The last window with a record of the conversation, and its sums there.
    window: u64,
    in_window: InWindow,
    heard_ns: u64,
    counted: Sums,
    /// Time of the first report, and the packets and bytes reported to other collectors before: the origin of `counted`
    /// and of the points' sums.
    since_ns: u64,
    origin: [u64; 4],
    rtt_of: u64,
    agents: [Option<Agent>; 2],
    /// Differences between agents that are already counted.
    settled: [u64; 4],
    /// Observation points whose conversation is open.
    open: u32,
    /// A NetFlow or IPFIX exporter reported it. Exporters may be anywhere between the hosts, so a smaller count there is
    /// no loss between the hosts.
    exported: bool,
    /// An exporter reported the end. Records of the other direction, or of other exporters, may follow.
    over: bool,
    /// Streams and identifiers of the points that reported it.
    points: Vec<(u32, u64)>,
    /// Of the last record of each agent, by its clock.
    last_ns: [u64; 2],
}

/// Sums of a conversation in one window.
#[derive(Clone, Copy, Debug, Default)]
struct InWindow {
    sums: Sums,
    handshake_ns: u64,
    rtt_ns: u64,
    records: u32,
    stream: u32,
    joined: bool,
}

impl Conversation {
    /// Applies names that were unknown, and a more reliable client and server side. Returns the sums
    /// that move to another key.
    fn refine(&mut self, reported: &Reported) -> Option<Moved> {
        let before = (self.key, self.client_first);
        let mut names = self.names();
        for (name, reported) in names.iter_mut().zip(reported.names()) {
            if *name == 0 {
                *name = reported;
            }
        }
        if reported.rule < self.rule {
            self.rule = reported.rule;
            self.key.key = reported.key.key;
            self.client_first = reported.client_first;
        }
        self.key.names = in_order(names, self.client_first);
        let counted = &self.in_window;
        (before.0 != self.key && counted.records > 0).then_some(Moved {
            window: self.window,
            from: before.0,
            from_client_first: before.1,
            to_client_first: self.client_first,
            sums: counted.sums,
            handshake_ns: counted.handshake_ns,
            rtt_ns: counted.rtt_ns,
            records: counted.records,
            joined: counted.joined,
            stream: counted.stream,
            rule: self.rule,
        })
    }

    /// Names of the first and the second side.
    fn names(&self) -> [u32; 2] {
        in_order(self.key.names, self.client_first)
    }

    /// The compact entry of the ended conversation.
    fn ended(&self, tracking_id: u64, now: u64) -> (u64, compact::Entry) {
        let streams = self.agents.map(|agent| agent.map(|agent| agent.stream));
        (
            tracking_id,
            compact::Entry::ended(streams, self.last_ns, now),
        )
    }

    /// Where the sums of another point begin, of which `before` was reported to other collectors. Agents drain at
    /// different times, so the former collector knew more of one agent than of the other, and has counted the larger
    /// sums. Also returns how much to add to the present points, as the origin moves back.
    ///
    /// Only differences that are possible between two drains count: agents that started at different times differ by
    /// more.
    fn align(
        &mut self,
        before: &[u64; REPORTED],
        new: &[u64; 4],
        now: u64,
    ) -> ([u64; 4], [u64; 4]) {
        let (mut begin, mut back) = ([0; 4], [0; 4]);
        if now.saturating_sub(self.since_ns) > HANDOVER {
            return (begin, back);
        }
        for index in TRAFFIC {
            let ahead = before[index].saturating_sub(self.origin[index]);
            let behind = self.origin[index].saturating_sub(before[index]);
            if ahead > 0 && ahead <= self.counted[index] {
                begin[index] = ahead;
                self.counted[index] += ahead;
            } else if behind > 0 && behind <= new[index] {
                back[index] = behind;
                self.origin[index] = before[index];
                self.counted[index] += behind;
            }
        }
        for agent in self.agents.iter_mut().flatten() {
            // An agent without reports starts at the new origin.
            if agent.reported != [0; 4] {
                for index in TRAFFIC {
                    agent.reported[index] += back[index];
                }
            }
        }
        (begin, back)
    }

    /// Difference between the agents' sums that is not yet counted.
    fn settle(&mut self) -> [u64; 4] {
        let [Some(one), Some(other)] = &self.agents else {
            return [0; 4];
        };
        if self.exported {
            return [0; 4];
        }
        let mut more = [0; 4];
        for index in TRAFFIC {
            let apart = one.reported[index].abs_diff(other.reported[index]);
            more[index] = apart.saturating_sub(self.settled[index]);
            self.settled[index] = self.settled[index].max(apart);
        }
        more
    }
}

/// Swaps a pair between client first and first side first.
fn in_order([first, second]: [u32; 2], client_first: bool) -> [u32; 2] {
    match client_first {
        true => [first, second],
        false => [second, first],
    }
}

impl Reported {
    fn names(&self) -> [u32; 2] {
        in_order(self.key.names, self.client_first)
    }
}

/// Sums that move to another key of a window, since names or sides became known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) window: u64,
    pub(crate) from: LineKey,
    pub(crate) from_client_first: bool,
    pub(crate) to_client_first: bool,
    pub(crate) rule: Rule,
    pub(crate) sums: Sums,
    pub(crate) handshake_ns: u64,
    pub(crate) rtt_ns: u64,
    pub(crate) records: u32,
    /// Whether a second agent's first report was in that window.
    pub(crate) joined: bool,
    pub(crate) stream: u32,
}

/// What a record adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    /// Added to the sums of its observation point: packets and bytes.
    pub(crate) point: Sums,
    /// Added to the sums of the conversation.
    pub(crate) conversation: Sums,
    /// Differences between two hosts, once both have reported the end.
    pub(crate) apart: [u64; 4],
    /// A handshake that was not counted yet, ns.
    pub(crate) handshake_ns: u64,
    /// A round-trip time, the first in this window, ns.
    pub(crate) rtt_ns: u64,
    pub(crate) key: LineKey,
    /// Sums counted under another key before.
    pub(crate) moved: Option<Moved>,
    pub(crate) client_first: bool,
    pub(crate) rule: Rule,
    /// Whether it is counted in this window for the first time.
    pub(crate) new_in_window: bool,
    /// Whether this record is the first of a second agent.
    pub(crate) joined: bool,
    /// How far it could be remembered.
    pub(crate) tracking: Tracking,
    /// Whether the sums of its observation point are stored.
    pub(crate) remembered: bool,
}

/// How far a conversation could be remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tracking {
    /// Reports of several points are compared.
    Joined,
    /// Only the first point is counted.
    First,
    /// Not tracked and not counted, since other points may report it, too.
    Full,
}

/// Differences of a conversation that is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) key: LineKey,
    pub(crate) client_first: bool,
    pub(crate) apart: [u64; 4],
}

/// The entries of a record's sums, if they exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefetch<'a> {
    report: Option<&'a Report>,
    conversation: Option<&'a Conversation>,
}

impl Prefetch<'_> {
    /// Reads something of each line of the processor's cache in which they are.
    pub(crate) fn read(&self) -> u64 {
        let report = self.report.map_or(0, |one| {
            one.tracking_id ^ one.raw[0] ^ one.sums[0] ^ one.sums[10]
        });
        let conversation = self.conversation.map_or(0, |one| {
            let agents = one.agents.iter().flatten();
            let agents = agents.fold(0, |all, agent| all ^ agent.base[0] ^ agent.reported[3]);
            let inside = &one.in_window;
            let sums = one.counted[0] ^ one.counted[10] ^ inside.sums[0] ^ inside.sums[10];
            agents ^ sums ^ one.settled[0] ^ one.window
        });
        report ^ conversation
    }

    /// Its window and key.
    pub(crate) fn key(&self) -> Option<(u64, LineKey)> {
        self.conversation.map(|one| (one.window, one.key))
    }
}

/// All conversations.
#[derive(Debug)]
pub(crate) struct Conversations {
    // Boxed: hash tables have up to twice as many slots as entries, and move entries when they
    // grow.
    reports: HashMap<(u32, u64), Box<Report>>,
    all: HashMap<u64, Box<Conversation>>,
    /// Conversations that have ended, and those beyond the table's limit.
    compact: Compact,
    most: usize,
}

impl Conversations {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            reports: HashMap::default(),
            all: HashMap::default(),
            compact: Compact::new(most),
            most,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Those of which little is remembered.
    pub(crate) fn compact(&self) -> usize {
        self.compact.len()
    }

    /// What a record of this stream, of a point and a conversation, is going to change.
    pub(crate) fn find(&self, stream: u32, id: u64, tracking_id: u64) -> Prefetch<'_> {
        Prefetch {
            report: self.reports.get(&(stream, id)).map(|one| &**one),
            conversation: self.all.get(&tracking_id).map(|one| &**one),
        }
    }

    /// Adds a record that counts in `window`.
    pub(crate) fn add_record(
        &mut self,
        reported: &Reported,
        stream: &Stream,
        window: u64,
        now: u64,
    ) -> Added {
        let known = self.reports.contains_key(&(reported.stream, reported.id));
        let earlier = reported_before(reported, stream);
        if !known && self.all.contains_key(&reported.tracking_id) {
            // Space for both hosts of each conversation, and for some of their other interfaces.
            if self.reports.len() >= self.most.saturating_mul(2) {
                return not_joined(reported, false, Tracking::First);
            }
        } else if !known {
            let fits = self.all.len() < self.most && self.reports.len() < self.most * 2;
            match self.compact.classify(reported, stream, now, fits) {
                RecordClass::New => {}
                RecordClass::Counted => return not_joined(reported, false, Tracking::Joined),
                RecordClass::Other => return not_joined(reported, false, Tracking::First),
                RecordClass::First => return not_joined(reported, true, Tracking::First),
                RecordClass::Full => return not_joined(reported, false, Tracking::Full),
            }
        }
        let conversation = self.all.entry(reported.tracking_id).or_insert_with(|| {
            Box::new(Conversation {
                key: reported.key,
                client_first: reported.client_first,
                rule: reported.rule,
                window: u64::MAX,
                in_window: InWindow::default(),
                heard_ns: now,
                counted: [0; 11],
                since_ns: now,
                origin: std::array::from_fn(|index| earlier[index]),
                rtt_of: 0,
                agents: [None; 2],
                settled: [0; 4],
                open: 0,
                exported: false,
                over: false,
                points: Vec::new(),
                last_ns: [0; 2],
            })
        });
        let moved = conversation.refine(reported);
        let both = |one: &Conversation| one.agents.iter().all(Option::is_some);
        let joined = both(conversation);
        let agent = agent(conversation, reported.stream, stream.epoch);
        let joined = !joined && both(conversation);
        let base = agent.map_or([0; 4], |agent| agent.base);
        let rejoined = base != [0; 4];
        let (begin, back) = match known || rejoined || reported.delta {
            true => ([0; 4], [0; 4]),
            false => conversation.align(&earlier, &reported.new, now),
        };
        if back != [0; 4] {
            for point in &conversation.points {
                if let Some(report) = self.reports.get_mut(point) {
                    for index in TRAFFIC {
                        report.sums[index] += back[index];
                    }
                }
            }
        }
        let report = self
            .reports
            .entry((reported.stream, reported.id))
            .or_insert_with(|| {
                conversation.open += 1;
                if conversation.points.len() < POINTS {
                    conversation.points.push((reported.stream, reported.id));
                }
                let mut sums = [0; 11];
                sums[TRAFFIC].copy_from_slice(&begin);
                if rejoined {
                    // The agent's earlier run has reported its beginning.
                    sums = conversation.counted;
                    sums[TRAFFIC].copy_from_slice(&base);
                }
                Box::new(Report {
                    tracking_id: reported.tracking_id,
                    last_ns: 0,
                    open: true,
                    raw: earlier,
                    sums,
                })
            });
        let before = report.sums;
        let newer = reported.last_ns > report.last_ns;
        let packets = |sums: &[u64; REPORTED]| sums[PACKETS].saturating_add(sums[PACKETS + 1]);
        let begins = report.last_ns == 0;
        let later = reported.first_ns > report.last_ns;
        let fewer = packets(&reported.total) < packets(&report.raw);
        let restarted = match reported.delta {
            false => !begins && newer && (reported.first || later || fewer),
            true => !begins && later && reported.first && conversation.over,
        };
        if restarted {
            report.raw = [0; REPORTED];
            if !report.open {
                report.open = true;
                conversation.open += 1;
            }
        }
        if reported.moved && !begins {
            let known = before_new(reported);
            raise(&mut report.raw, &known);
        }
        let more = match reported.delta {
            false => excess(&reported.total, &report.raw),
            true => reported.total,
        };
        if !reported.delta {
            raise(&mut report.raw, &reported.total);
        }
        for (sum, more) in report.sums.iter_mut().zip(more) {
            *sum = sum.saturating_add(more);
        }
        if (begins && !rejoined && reported.first) || restarted {
            report.sums[BEGUN] += 1;
        }
        report.last_ns = report.last_ns.max(reported.last_ns);
        if reported.delta {
            conversation.exported = true;
            conversation.over = reported.ended || (conversation.over && !restarted);
            if reported.ended && report.sums[ENDED] < report.sums[BEGUN] {
                report.sums[ENDED] += 1;
                if let Some(index) = reported.how {
                    report.sums[index] += 1;
                }
            }
        } else if reported.ended && report.open {
            report.open = false;
            conversation.open = conversation.open.saturating_sub(1);
            report.sums[ENDED] += 1;
            if let Some(index) = reported.how {
                report.sums[index] += 1;
            }
        }
        let (point, sums) = (excess(&report.sums, &before), report.sums);
        let agents = conversation.agents.iter_mut().flatten();
        let mut agents = agents.zip(&mut conversation.last_ns);
        if let Some((agent, last_ns)) = agents.find(|(agent, _)| agent.stream == reported.stream) {
            for index in TRAFFIC {
                agent.reported[index] = agent.reported[index].max(sums[index]);
            }
            *last_ns = (*last_ns).max(reported.last_ns);
        }
        let more = excess(&sums, &conversation.counted);
        raise(&mut conversation.counted, &sums);
        conversation.heard_ns = now;
        let begun = conversation.counted[BEGUN].max(1);
        let handshake_ns = if reported.handshake_ns > 0 && conversation.rtt_of < begun {
            conversation.rtt_of = begun;
            reported.handshake_ns
        } else {
            0
        };
        let new_in_window = std::mem::replace(&mut conversation.window, window) != window;
        let inside = &mut conversation.in_window;
        if new_in_window {
            *inside = InWindow::default();
        }
        for (sum, more) in inside.sums.iter_mut().zip(more) {
            *sum = sum.saturating_add(more);
        }
        inside.records = inside.records.saturating_add(1);
        inside.stream = reported.stream;
        inside.joined |= joined;
        inside.handshake_ns = inside.handshake_ns.saturating_add(handshake_ns);
        let rtt_ns = match (inside.rtt_ns, handshake_ns) {
            (0, 0) => reported.srtt_ns,
            (0, handshake_ns) => handshake_ns,
            _ => 0,
        };
        inside.rtt_ns = inside.rtt_ns.max(rtt_ns);
        let added = Added {
            point,
            conversation: more,
            apart: match conversation.open {
                0 => conversation.settle(),
                _ => [0; 4],
            },
            handshake_ns,
            rtt_ns,
            moved,
            key: conversation.key,
            client_first: conversation.client_first,
            rule: conversation.rule,
            new_in_window,
            joined,
            tracking: Tracking::Joined,
            remembered: true,
        };
        // All points have reported the end: keep a compact entry only.
        if conversation.open == 0
            && both(conversation)
            && self
                .compact
                .keep(conversation.ended(reported.tracking_id, now))
        {
            for point in std::mem::take(&mut conversation.points) {
                self.reports.remove(&point);
            }
            self.all.remove(&reported.tracking_id);
        }
        added
    }

    /// A record that was added to the conversation is counted in no window.
    pub(crate) fn not_counted(&mut self, tracking_id: u64) {
        if let Some(conversation) = self.all.get_mut(&tracking_id) {
            conversation.in_window = InWindow::default();
        }
    }

    /// Passes the numbers of all names in use to `used`.
    pub(crate) fn names(&self, used: &mut dyn FnMut(u32)) {
        let all = self.all.values().flat_map(|one| one.key.names);
        all.for_each(used);
    }

    /// Removes conversations that have ended or are silent for long; `all`: all.
    pub(crate) fn sweep(&mut self, now: u64, all: bool, settled: &mut dyn FnMut(Settled)) {
        self.compact.sweep(now, all);
        let compact = &mut self.compact;
        self.all.retain(|tracking_id, conversation| {
            let silent = now.saturating_sub(conversation.heard_ns);
            let ended = conversation.open == 0;
            let goes = all
                || silent > FORGET
                || ((ended || conversation.over) && silent > LINGER)
                || (ended
                    && silent > COMPARE
                    && compact.keep(conversation.ended(*tracking_id, now)));
            if goes {
                let apart = conversation.settle();
                if apart != [0; 4] {
                    settled(Settled {
                        key: conversation.key,
                        client_first: conversation.client_first,
                        apart,
                    });
                }
            }
            !goes
        });
        let conversations = &self.all;
        self.reports
            .retain(|_, report| conversations.contains_key(&report.tracking_id));
    }
}

/// The agent in a conversation; none when there are two others.
fn agent(conversation: &mut Conversation, stream: u32, epoch: u32) -> Option<Agent> {
    let new = Agent {
        stream,
        epoch,
        base: [0; 4],
        reported: [0; 4],
    };
    for slot in &mut conversation.agents {
        let agent = slot.get_or_insert(new);
        if agent.stream == stream {
            if agent.epoch < epoch {
                agent.epoch = epoch;
                agent.base = agent.reported;
            }
            return Some(*agent);
        }
    }
    None
}

/// What a new point had reported before: to another collector, or to none.
fn reported_before(reported: &Reported, stream: &Stream) -> [u64; REPORTED] {
    // An earlier record may be lost. Then the sums count from 0, unless earlier records may have arrived and been
    // forgotten.
    let ours = (stream.from_start || reported.first_ns >= stream.joined_ns)
        && reported.first_ns > stream.forgotten_ns;
    let recent = reported.last_ns.saturating_sub(reported.first_ns) < LINGER;
    if reported.first || reported.delta || (ours && recent && !reported.moved) {
        return [0; REPORTED];
    }
    before_new(reported)
}

/// The sums without the packets and bytes that are new.
fn before_new(reported: &Reported) -> [u64; REPORTED] {
    let mut raw = reported.total;
    for index in TRAFFIC {
        raw[index] = raw[index].saturating_sub(reported.new[index]);
    }
    raw
}

/// The result for a record that is not compared with other points: its new packets count if `counts`.
fn not_joined(reported: &Reported, counts: bool, tracking: Tracking) -> Added {
    let mut sums = [0; 11];
    sums[TRAFFIC].copy_from_slice(&reported.new);
    sums[BEGUN] = reported.first.into();
    sums[ENDED] = reported.ended.into();
    if let Some(index) = reported.how.filter(|_| reported.ended) {
        sums[index] = 1;
    }
    let handshake_ns = match reported.first && counts {
        true => reported.handshake_ns,
        false => 0,
    };
    Added {
        point: sums,
        conversation: if counts { sums } else { [0; 11] },
        apart: [0; 4],
        handshake_ns,
        rtt_ns: handshake_ns,
        moved: None,
        key: reported.key,
        client_first: reported.client_first,
        rule: reported.rule,
        new_in_window: counts,
        joined: false,
        tracking,
        remembered: false,
    }
}
