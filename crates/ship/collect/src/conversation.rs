//! What is remembered of conversations: how far each point has told, so that sums become differences,
//! and how much of it was counted, so that what several tell is counted once.

use crate::{
    HashMap, SECOND,
    compact::{self, Compact, Seen},
    key::Rule,
    stream::Stream,
    window::LineKey,
};

/// A conversation that has ended is remembered for so long.
pub(crate) const LINGER: u64 = 60 * SECOND;
/// One that has ended and of which one agent has told is kept whole for so long: until then a second one
/// is compared with the first.
const COMPARE: u64 = 15 * SECOND;
/// Points of a conversation that are forgotten with it at once.
const POINTS: usize = 16;
/// One that is silent, for so long.
const FORGET: u64 = 900 * SECOND;

/// So long after the first agent others are taken to have told the same collector before us: longer than two drains
/// are apart.
const HANDOVER: u64 = 30 * SECOND;

/// Sums of a conversation, by place.
pub(crate) type Sums = [u64; 11];
/// Packets sent by the first side; the second's follow, also of those below.
pub(crate) const PACKETS: usize = 0;
/// Bytes.
pub(crate) const BYTES: usize = 2;
/// Segments that came again.
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
const TOLD: usize = 6;
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
    std::array::from_fn(|place| sums[place].saturating_sub(than[place]))
}

/// A record, its pairs in canonical order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    pub(crate) stream: u32,
    pub(crate) id: u64,
    pub(crate) tracking_id: u64,
    pub(crate) first: bool,
    /// Others may have been told of it in between.
    pub(crate) moved: bool,
    /// Sums are of what is new since the last record, as exporters of NetFlow and IPFIX tell, and each direction may
    /// have a record of its own: `first` and `ended` say that a beginning or an end is among what it is of.
    pub(crate) delta: bool,
    pub(crate) ended: bool,
    /// Place of what its end counts as besides, like [`RESET`].
    pub(crate) how: Option<usize>,
    /// By the agent's clock, as the last.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Packets and bytes since the beginning, retransmitted segments.
    pub(crate) total: [u64; TOLD],
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

/// What a point of an agent has told.
#[derive(Debug)]
struct Report {
    tracking_id: u64,
    last_ns: u64,
    open: bool,
    /// As in its last record.
    raw: [u64; TOLD],
    /// Over all conversations between these ports, and all runs of the agent.
    sums: Sums,
}

/// What an agent has told, by the most that one of its points did.
#[derive(Clone, Copy, Debug)]
struct Agent {
    stream: u32,
    epoch: u32,
    /// Packets and bytes that it had told in runs before.
    base: [u64; 4],
    /// What it has told of them.
    told: [u64; 4],
}

/// A conversation, or several between the same ports, one after the other.
#[derive(Debug)]
struct Conversation {
    key: LineKey,
    client_first: bool,
    rule: Rule,
    /// The window that it was last counted in, and what it brought there.
    window: u64,
    in_window: InWindow,
    heard_ns: u64,
    counted: Sums,
    /// When it was first told of, and packets and bytes that were told to others before that: what `counted` and the sums
    /// of its points begin at.
    since_ns: u64,
    origin: [u64; 4],
    rtt_of: u64,
    agents: [Option<Agent>; 2],
    /// Differences between agents that were told.
    settled: [u64; 4],
    /// Points of it whose conversation goes on.
    open: u32,
    /// An exporter has told of it, which may be anywhere between the hosts: what it counts less was not lost between them.
    exported: bool,
    /// An exporter says that it is over. Records of its other direction, or of other exporters, may still come.
    over: bool,
    /// Streams and identifiers of points that have told of it.
    points: Vec<(u32, u64)>,
    /// Of the last record of each agent, by its clock.
    last_ns: [u64; 2],
}

/// What a conversation has brought in a window.
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
    /// Takes who is at its sides, as far as that was not known, and which one offers the service, when
    /// that is known better. Hands out what goes from one key to another.
    fn know(&mut self, told: &Reported) -> Option<Moved> {
        let before = (self.key, self.client_first);
        let mut names = self.names();
        for (name, told) in names.iter_mut().zip(told.names()) {
            if *name == 0 {
                *name = told;
            }
        }
        if told.rule < self.rule {
            self.rule = told.rule;
            self.key.key = told.key.key;
            self.client_first = told.client_first;
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

    /// What is remembered of it when it has ended.
    fn ended(&self, tracking_id: u64, now: u64) -> (u64, compact::Entry) {
        let streams = self.agents.map(|agent| agent.map(|agent| agent.stream));
        (
            tracking_id,
            compact::Entry::ended(streams, self.last_ns, now),
        )
    }

    /// Where the sums of a further point begin, of which `before` was told to others: no drains are at the same time,
    /// so that the collector before us knew more of one agent than of the other, and has counted the most that one
    /// of them told. Also returns by how much the points that are there have to go on, as the origin goes back.
    ///
    /// Only what can have been told between two drains is taken for such a difference: others, of agents that began
    /// to count at different times, say nothing.
    fn align(&mut self, before: &[u64; TOLD], new: &[u64; 4], now: u64) -> ([u64; 4], [u64; 4]) {
        let (mut begin, mut back) = ([0; 4], [0; 4]);
        if now.saturating_sub(self.since_ns) > HANDOVER {
            return (begin, back);
        }
        for place in TRAFFIC {
            let ahead = before[place].saturating_sub(self.origin[place]);
            let behind = self.origin[place].saturating_sub(before[place]);
            if ahead > 0 && ahead <= self.counted[place] {
                begin[place] = ahead;
                self.counted[place] += ahead;
            } else if behind > 0 && behind <= new[place] {
                back[place] = behind;
                self.origin[place] = before[place];
                self.counted[place] += behind;
            }
        }
        for agent in self.agents.iter_mut().flatten() {
            // One that has told nothing yet begins at the new origin.
            if agent.told != [0; 4] {
                for place in TRAFFIC {
                    agent.told[place] += back[place];
                }
            }
        }
        (begin, back)
    }

    /// What the agents' sums differ by and was not told.
    fn settle(&mut self) -> [u64; 4] {
        let [Some(one), Some(other)] = &self.agents else {
            return [0; 4];
        };
        if self.exported {
            return [0; 4];
        }
        let mut more = [0; 4];
        for place in TRAFFIC {
            let apart = one.told[place].abs_diff(other.told[place]);
            more[place] = apart.saturating_sub(self.settled[place]);
            self.settled[place] = self.settled[place].max(apart);
        }
        more
    }
}

/// A pair with the client's first from one with the first side's first, or the other way round.
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

/// What goes from one key of a window to another, since more is known of its conversation.
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
    /// Whether a second agent told of it there for the first time.
    pub(crate) joined: bool,
    pub(crate) stream: u32,
}

/// What a record adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    /// To what its point has told: packets and bytes.
    pub(crate) point: Sums,
    /// To what was counted of the conversation.
    pub(crate) conversation: Sums,
    /// Differences between two hosts, known when both say that it has ended.
    pub(crate) apart: [u64; 4],
    /// A handshake that was not counted yet, ns.
    pub(crate) handshake_ns: u64,
    /// A round-trip time, the first in this window, ns.
    pub(crate) rtt_ns: u64,
    pub(crate) key: LineKey,
    /// What was counted under another key.
    pub(crate) moved: Option<Moved>,
    pub(crate) client_first: bool,
    pub(crate) rule: Rule,
    /// Whether it is counted in this window for the first time.
    pub(crate) new_in_window: bool,
    /// Whether a second agent tells of it now.
    pub(crate) joined: bool,
    /// How far it could be remembered.
    pub(crate) room: Room,
    /// Whether it is remembered how far its point has told.
    pub(crate) remembered: bool,
}

/// How far a conversation could be remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// What several tell of it is compared.
    Joined,
    /// What the first who told of it says is counted, and what others say is not.
    First,
    /// Not at all: it is not counted, since others may tell of it, too.
    Full,
}

/// Differences of a conversation that is forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) key: LineKey,
    pub(crate) client_first: bool,
    pub(crate) apart: [u64; 4],
}

/// Where a record's sums are, as far as they are there.
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
            let agents = agents.fold(0, |all, agent| all ^ agent.base[0] ^ agent.told[3]);
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
    // In boxes: tables have up to twice as many places as entries, and move them when they grow.
    reports: HashMap<(u32, u64), Box<Report>>,
    all: HashMap<u64, Box<Conversation>>,
    /// Those that have ended, and those for which there was no room.
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

    /// Takes a record that counts in `window`.
    pub(crate) fn add_record(
        &mut self,
        told: &Reported,
        stream: &Stream,
        window: u64,
        now: u64,
    ) -> Added {
        let known = self.reports.contains_key(&(told.stream, told.id));
        let heard = unheard(told, stream);
        if !known && self.all.contains_key(&told.tracking_id) {
            // Both hosts of each conversation find room, and some of its other interfaces.
            if self.reports.len() >= self.most.saturating_mul(2) {
                return not_joined(told, false, Room::First);
            }
        } else if !known {
            let room = self.all.len() < self.most && self.reports.len() < self.most * 2;
            match self.compact.seen(told, stream, now, room) {
                Seen::New => {}
                Seen::Again => return not_joined(told, false, Room::Joined),
                Seen::Other => return not_joined(told, false, Room::First),
                Seen::First => return not_joined(told, true, Room::First),
                Seen::Full => return not_joined(told, false, Room::Full),
            }
        }
        let conversation = self.all.entry(told.tracking_id).or_insert_with(|| {
            Box::new(Conversation {
                key: told.key,
                client_first: told.client_first,
                rule: told.rule,
                window: u64::MAX,
                in_window: InWindow::default(),
                heard_ns: now,
                counted: [0; 11],
                since_ns: now,
                origin: std::array::from_fn(|place| heard[place]),
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
        let moved = conversation.know(told);
        let both = |one: &Conversation| one.agents.iter().all(Option::is_some);
        let joined = both(conversation);
        let agent = agent(conversation, told.stream, stream.epoch);
        let joined = !joined && both(conversation);
        let base = agent.map_or([0; 4], |agent| agent.base);
        let again = base != [0; 4];
        let (begin, back) = match known || again || told.delta {
            true => ([0; 4], [0; 4]),
            false => conversation.align(&heard, &told.new, now),
        };
        if back != [0; 4] {
            for point in &conversation.points {
                if let Some(report) = self.reports.get_mut(point) {
                    for place in TRAFFIC {
                        report.sums[place] += back[place];
                    }
                }
            }
        }
        let report = self
            .reports
            .entry((told.stream, told.id))
            .or_insert_with(|| {
                conversation.open += 1;
                if conversation.points.len() < POINTS {
                    conversation.points.push((told.stream, told.id));
                }
                let mut sums = [0; 11];
                sums[TRAFFIC].copy_from_slice(&begin);
                if again {
                    // That it was there the agent's earlier run has told.
                    sums = conversation.counted;
                    sums[TRAFFIC].copy_from_slice(&base);
                }
                Box::new(Report {
                    tracking_id: told.tracking_id,
                    last_ns: 0,
                    open: true,
                    raw: heard,
                    sums,
                })
            });
        let before = report.sums;
        let newer = told.last_ns > report.last_ns;
        let packets = |sums: &[u64; TOLD]| sums[PACKETS].saturating_add(sums[PACKETS + 1]);
        let begins = report.last_ns == 0;
        let later = told.first_ns > report.last_ns;
        let fewer = packets(&told.total) < packets(&report.raw);
        let anew = match told.delta {
            false => !begins && newer && (told.first || later || fewer),
            true => !begins && later && told.first && conversation.over,
        };
        if anew {
            report.raw = [0; TOLD];
            if !report.open {
                report.open = true;
                conversation.open += 1;
            }
        }
        if told.moved && !begins {
            let known = before_new(told);
            raise(&mut report.raw, &known);
        }
        let more = match told.delta {
            false => excess(&told.total, &report.raw),
            true => told.total,
        };
        if !told.delta {
            raise(&mut report.raw, &told.total);
        }
        for (sum, more) in report.sums.iter_mut().zip(more) {
            *sum = sum.saturating_add(more);
        }
        if (begins && !again && told.first) || anew {
            report.sums[BEGUN] += 1;
        }
        report.last_ns = report.last_ns.max(told.last_ns);
        if told.delta {
            conversation.exported = true;
            conversation.over = told.ended || (conversation.over && !anew);
            if told.ended && report.sums[ENDED] < report.sums[BEGUN] {
                report.sums[ENDED] += 1;
                if let Some(place) = told.how {
                    report.sums[place] += 1;
                }
            }
        } else if told.ended && report.open {
            report.open = false;
            conversation.open = conversation.open.saturating_sub(1);
            report.sums[ENDED] += 1;
            if let Some(place) = told.how {
                report.sums[place] += 1;
            }
        }
        let (point, sums) = (excess(&report.sums, &before), report.sums);
        let agents = conversation.agents.iter_mut().flatten();
        let mut agents = agents.zip(&mut conversation.last_ns);
        if let Some((agent, last_ns)) = agents.find(|(agent, _)| agent.stream == told.stream) {
            for place in TRAFFIC {
                agent.told[place] = agent.told[place].max(sums[place]);
            }
            *last_ns = (*last_ns).max(told.last_ns);
        }
        let more = excess(&sums, &conversation.counted);
        raise(&mut conversation.counted, &sums);
        conversation.heard_ns = now;
        let begun = conversation.counted[BEGUN].max(1);
        let handshake_ns = if told.handshake_ns > 0 && conversation.rtt_of < begun {
            conversation.rtt_of = begun;
            told.handshake_ns
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
        inside.stream = told.stream;
        inside.joined |= joined;
        inside.handshake_ns = inside.handshake_ns.saturating_add(handshake_ns);
        let rtt_ns = match (inside.rtt_ns, handshake_ns) {
            (0, 0) => told.srtt_ns,
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
            room: Room::Joined,
            remembered: true,
        };
        // Nobody has anything to add.
        if conversation.open == 0
            && both(conversation)
            && self.compact.keep(conversation.ended(told.tracking_id, now))
        {
            for point in std::mem::take(&mut conversation.points) {
                self.reports.remove(&point);
            }
            self.all.remove(&told.tracking_id);
        }
        added
    }

    /// A record that was taken is in no window.
    pub(crate) fn not_counted(&mut self, tracking_id: u64) {
        if let Some(conversation) = self.all.get_mut(&tracking_id) {
            conversation.in_window = InWindow::default();
        }
    }

    /// Tells the numbers of all names.
    pub(crate) fn names(&self, used: &mut dyn FnMut(u32)) {
        let all = self.all.values().flat_map(|one| one.key.names);
        all.for_each(used);
    }

    /// Forgets what has ended or is silent for long; `all`: everything.
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
        told: [0; 4],
    };
    for place in &mut conversation.agents {
        let agent = place.get_or_insert(new);
        if agent.stream == stream {
            if agent.epoch < epoch {
                agent.epoch = epoch;
                agent.base = agent.told;
            }
            return Some(*agent);
        }
    }
    None
}

/// What a point that is new to us had told to nobody, or to somebody before us.
fn unheard(told: &Reported, stream: &Stream) -> [u64; TOLD] {
    // A record may be the first that comes because the first was lost; but not where it may have come, and nothing
    // of it is remembered.
    let ours = (stream.from_start || told.first_ns >= stream.joined_ns)
        && told.first_ns > stream.forgotten_ns;
    let recent = told.last_ns.saturating_sub(told.first_ns) < LINGER;
    if told.first || told.delta || (ours && recent && !told.moved) {
        return [0; TOLD];
    }
    before_new(told)
}

/// What was there before what a record says is new.
fn before_new(told: &Reported) -> [u64; TOLD] {
    let mut raw = told.total;
    for place in TRAFFIC {
        raw[place] = raw[place].saturating_sub(told.new[place]);
    }
    raw
}

/// A record that is not compared with what others tell of its conversation: what it says is new counts as
/// such, or not at all.
fn not_joined(told: &Reported, counts: bool, room: Room) -> Added {
    let mut sums = [0; 11];
    sums[TRAFFIC].copy_from_slice(&told.new);
    sums[BEGUN] = told.first.into();
    sums[ENDED] = told.ended.into();
    if let Some(place) = told.how.filter(|_| told.ended) {
        sums[place] = 1;
    }
    let handshake_ns = match told.first && counts {
        true => told.handshake_ns,
        false => 0,
    };
    Added {
        point: sums,
        conversation: if counts { sums } else { [0; 11] },
        apart: [0; 4],
        handshake_ns,
        rtt_ns: handshake_ns,
        moved: None,
        key: told.key,
        client_first: told.client_first,
        rule: told.rule,
        new_in_window: counts,
        joined: false,
        room,
        remembered: false,
    }
}
