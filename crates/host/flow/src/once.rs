//! What drains add to conversations that are counted once, however many points see them.

use crate::{Counters, FlowRecord, FlowUpdate};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a drain added to a conversation: of each direction, what it added to the most that one point counted. Of the
/// records that the drain changed the one that stands for the conversation has it, the others have nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Once {
    /// Sent by `lo`.
    pub lo_sent: Counters,
    /// Sent by `hi`.
    pub hi_sent: Counters,
    /// Whether the conversation began.
    pub begun: bool,
    /// Whether it ended: it goes on at no point.
    pub ended: bool,
}

impl Once {
    /// What the drain at `drained_ns` added to a conversation that only one point sees.
    pub fn alone(record: &FlowRecord, drained_ns: u64) -> Self {
        let (lo_sent, hi_sent) = (record.interval.lo_sent, record.interval.hi_sent);
        let nothing = lo_sent.is_zero() && hi_sent.is_zero();
        Self {
            lo_sent,
            hi_sent,
            begun: !nothing && (lo_sent, hi_sent) == (record.lo_sent, record.hi_sent),
            ended: record.end.is_some() && record.updated_ns == drained_ns,
        }
    }

    fn add(&mut self, other: &Self) {
        self.lo_sent += other.lo_sent;
        self.hi_sent += other.hi_sent;
        self.begun |= other.begun;
        self.ended |= other.ended;
    }
}

/// The other points of a conversation.
#[derive(Default)]
pub(crate) struct Others {
    points: usize,
    /// The most that one of them counted, of `lo` and `hi`.
    most: [Counters; 2],
}

impl Others {
    pub fn add(&mut self, record: &FlowRecord) {
        self.points += 1;
        self.most[0].raise(record.lo_sent);
        self.most[1].raise(record.hi_sent);
    }

    /// What an update, which is in the record, adds to the most.
    pub fn added(&self, record: &FlowRecord, update: &FlowUpdate) -> [Counters; 2] {
        let beyond = |own: u64, others: u64, new: u64| own.saturating_sub(others).min(new);
        let added = |own: Counters, others: Counters, new: Counters| Counters {
            packets: beyond(own.packets, others.packets, new.packets),
            bytes: beyond(own.bytes, others.bytes, new.bytes),
        };
        [
            added(record.lo_sent, self.most[0], update.lo_sent),
            added(record.hi_sent, self.most[1], update.hi_sent),
        ]
    }
}

/// What an update of a drain has of what other points had counted before.
struct Elsewhere {
    place: u32,
    /// The record may leave its place before the drain ends.
    serial: u64,
    counted: [Counters; 2],
    /// Whether it made the record.
    new: bool,
}

/// Of the drain that is under way, or the last.
#[derive(Default)]
pub(crate) struct OnceTable {
    elsewhere: Vec<Elsewhere>,
    /// Of places whose conversations have other points, or had some.
    shared: HashMap<u32, Once>,
}

impl OnceTable {
    pub fn clear(&mut self) {
        self.elsewhere.clear();
        self.shared.clear();
    }

    /// Notes an update of the record at a place.
    pub fn note(
        &mut self,
        place: u32,
        (record, update): (&FlowRecord, &FlowUpdate),
        others: &Others,
        new: bool,
    ) {
        if others.points == 0 {
            return;
        }
        let [lo, hi] = others.added(record, update);
        self.elsewhere.push(Elsewhere {
            place,
            serial: record.serial,
            counted: [update.lo_sent.less(lo), update.hi_sent.less(hi)],
            new,
        });
    }

    /// Ends a drain that changed the records at these places: `others` has the other points of a place, `stands_before`
    /// which of two of them stands for the conversation.
    pub fn end<'a, O: Iterator<Item = u32>>(
        &mut self,
        drained_ns: u64,
        touched: &[u32],
        record: impl Fn(u32) -> &'a FlowRecord,
        others: impl Fn(u32) -> O,
        stands_before: impl Fn(&FlowRecord, &FlowRecord) -> bool,
    ) {
        for place in touched {
            let mut points = others(*place).peekable();
            if points.peek().is_none() {
                continue;
            }
            let mut once = Once::alone(record(*place), drained_ns);
            once.ended &= points.all(|other| record(other).end.is_some());
            self.shared.insert(*place, once);
        }
        for known in self.elsewhere.drain(..) {
            let record = record(known.place);
            if record.serial == known.serial {
                // The other points may have left since.
                let alone = || Once::alone(record, drained_ns);
                let once = self.shared.entry(known.place).or_insert_with(alone);
                once.lo_sent = once.lo_sent.less(known.counted[0]);
                once.hi_sent = once.hi_sent.less(known.counted[1]);
                once.begun &= !known.new;
            }
        }
        for place in touched {
            let Some(once) = self.shared.get(place).copied() else {
                continue;
            };
            let best = others(*place).fold(*place, |best, other| {
                let changed = self.shared.contains_key(&other);
                if changed && stands_before(record(other), record(best)) {
                    other
                } else {
                    best
                }
            });
            if best != *place {
                self.shared.insert(*place, Once::default());
                self.shared.entry(best).or_default().add(&once);
            }
        }
    }

    /// Whether no changed conversation has other points.
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }

    /// What the drain added to the conversation of a place, if that has other points.
    pub fn get(&self, place: u32) -> Option<&Once> {
        self.shared.get(&place)
    }
}
