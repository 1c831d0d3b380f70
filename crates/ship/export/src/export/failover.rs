//! Which of several collectors gets which conversation.
//!
//! Each conversation has an order of collectors, by its identifier and their keys, the same at
//! all hosts: the first that is there gets it. So the part of one that is gone goes to all others, one that is new
//! takes its part from all, and nothing else moves. That one is gone is known by ICMP, or by its answers that stay out (`answers.rs`), and that
//! it is there again by the absence of both: also while it is gone it gets a datagram with each drain, which
//! says how much was exported.

use std::collections::{HashMap, VecDeque};

const SECOND: u64 = 1_000_000_000;
/// One that was gone is there again when nothing was refused for so long.
const QUIET: u64 = 5 * SECOND;
/// A datagram that says that a conversation has moved may be lost: it is said for so long.
const REPEAT: u64 = 10 * SECOND;
/// Changes that are remembered; whoever was silent for more is taken to have moved.
const CHANGES: usize = 16;

/// A collector of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Member {
    /// Which one it is: its number is never given to another.
    number: u32,
    /// By which conversations are shared out.
    key: u64,
    up: bool,
}

/// Who is there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Set(Vec<Member>);

impl Set {
    /// Whose turn it is: of those that are there the one with the greatest number; of all when none is.
    fn turn(&self, id: u64) -> usize {
        let nobody = self.0.iter().all(|place| !place.up);
        let there = self.0.iter().enumerate();
        there
            .filter(|(_, place)| place.up || nobody)
            .max_by_key(|(_, place)| weight(id, place.key))
            .map_or(0, |(at, _)| at)
    }

    fn number(&self, at: usize) -> Option<u32> {
        self.0.get(at).map(|place| place.number)
    }
}

/// A number by conversation and collector (the finalizer of SplitMix64).
fn weight(id: u64, key: u64) -> u64 {
    let mut x = id ^ key;
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Who is there now, and who was before.
#[derive(Debug, Default)]
pub struct Sets {
    now: Set,
    /// Until when others were there, the latest first.
    before: VecDeque<(u64, Set)>,
    forgotten: bool,
}

impl Sets {
    /// Which collector gets a conversation, by its place in the set.
    pub fn turn(&self, id: u64) -> usize {
        match self.now.0.len() {
            0 | 1 => 0,
            _ => self.now.turn(id),
        }
    }

    /// Whether another collector may have got a conversation since its last packet but those that are
    /// new, which was at `since_ns`.
    pub fn moved(&self, id: u64, since_ns: u64) -> bool {
        if self.before.is_empty() {
            return false;
        }
        let now = self.now.number(self.turn(id));
        let since = since_ns.saturating_sub(REPEAT);
        let recent = self.before.iter().take_while(|(until, _)| *until >= since);
        let (mut seen, mut moved) = (0, false);
        for (_, set) in recent {
            seen += 1;
            moved |= set.number(set.turn(id)) != now;
        }
        moved || (seen == self.before.len() && self.forgotten)
    }
}

/// What is known of a collector.
#[derive(Clone, Copy, Default, Debug)]
struct Collector {
    refused: u64,
    refused_ns: u64,
    failovers: u64,
}

/// A collector as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// Which one it is: its number is never given to another.
    pub number: u32,
    /// By which conversations are shared out.
    pub key: u64,
    /// How often it has refused something so far.
    pub refused: u64,
}

/// Finds out who is there.
#[derive(Debug, Default)]
pub struct Failover {
    sets: Sets,
    updated: bool,
    collectors: HashMap<u32, Collector>,
}

impl Failover {
    /// Updates the collectors to those that there are now; turns are places in their order.
    pub fn update(&mut self, all: impl Iterator<Item = Present>, now_ns: u64) -> &Sets {
        let mut set = Set::default();
        for one in all {
            let was_up = self.is_up(one.number);
            let known = self.collectors.entry(one.number).or_default();
            let mut up = was_up;
            if one.refused > known.refused {
                known.refused_ns = now_ns;
                known.failovers += u64::from(was_up);
                up = false;
            } else if now_ns.saturating_sub(known.refused_ns) >= QUIET {
                up = true;
            }
            known.refused = one.refused;
            set.0.push(Member {
                number: one.number,
                key: one.key,
                up,
            });
        }
        let there = |number: &u32| set.0.iter().any(|place| place.number == *number);
        self.collectors.retain(|number, _| there(number));
        if set != self.sets.now {
            let before = std::mem::replace(&mut self.sets.now, set);
            // Before the first update nothing was exported.
            if self.updated {
                self.sets.before.push_front((now_ns, before));
                self.sets.forgotten |= self.sets.before.len() > CHANGES;
                self.sets.before.truncate(CHANGES);
            }
        }
        self.updated = true;
        &self.sets
    }

    fn is_up(&self, number: u32) -> bool {
        let mut all = self.sets.now.0.iter();
        all.find(|place| place.number == number)
            .is_none_or(|place| place.up)
    }

    /// Whether one is there, and how often others took its part.
    pub fn state(&self, number: u32) -> (bool, u64) {
        let failovers = self.collectors.get(&number).map_or(0, |one| one.failovers);
        (self.is_up(number), failovers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(sets: &Sets) -> Vec<usize> {
        (0..3_000).map(|id| sets.turn(id)).collect()
    }

    /// The keys of a list's places.
    fn key(place: u64) -> u64 {
        (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Collectors with these numbers, which have refused so much.
    fn present<const N: usize>(all: [(u32, u64); N]) -> impl Iterator<Item = Present> {
        all.into_iter().map(|(number, refused)| Present {
            number,
            key: key(number.into()),
            refused,
        })
    }

    fn at(s: u64) -> u64 {
        1_000 * SECOND + s * SECOND
    }

    #[test]
    fn only_the_part_of_who_is_gone_moves_and_it_comes_back() {
        let mut failover = Failover::default();
        let three = |one, two, three| present([(0, one), (1, two), (2, three)]);
        let all = turns(failover.update(three(0, 0, 0), at(0)));
        for place in 0..3 {
            let part = all.iter().filter(|turn| **turn == place).count();
            assert!((900..1_100).contains(&part), "{part}");
        }
        let sets = failover.update(three(0, 1, 0), at(2));
        let without = turns(sets);
        for (id, (before, now)) in (0..).zip(all.iter().zip(&without)) {
            assert_ne!(*now, 1);
            assert_eq!(before != now, *before == 1);
            // Exported last before, and long after the change.
            assert_eq!(sets.moved(id, at(1)), *before == 1);
            assert!(!sets.moved(id, at(13)));
        }
        assert!(without.contains(&0) && without.contains(&2));
        assert_eq!(failover.state(1), (false, 1));
        // It still refuses.
        assert_eq!(turns(failover.update(three(0, 2, 0), at(5))), without);
        assert_eq!(turns(failover.update(three(0, 2, 0), at(9))), without);
        assert_eq!(turns(failover.update(three(0, 2, 0), at(10))), all);
        // When nobody is there, each has its own.
        assert_eq!(turns(failover.update(three(1, 3, 1), at(12))), all);
    }

    #[test]
    fn one_that_comes_takes_its_part_and_what_others_keep_has_not_moved() {
        let mut failover = Failover::default();
        let numbers = |sets: &Sets, of: &[u32]| -> Vec<u32> {
            turns(sets).into_iter().map(|turn| of[turn]).collect()
        };
        let sets = failover.update(present([(3, 0), (5, 0), (7, 0)]), at(0));
        let before = numbers(sets, &[3, 5, 7]);
        assert!((0..3_000).all(|id| !sets.moved(id, at(0))));
        // Another order is no change of who gets what.
        let sets = failover.update(present([(8, 0), (7, 0), (5, 0), (3, 0)]), at(60));
        let more = numbers(sets, &[8, 7, 5, 3]);
        let moved = before.iter().zip(&more).filter(|(one, other)| one != other);
        assert!(moved.clone().all(|(_, now)| *now == 8));
        assert!((600..900).contains(&moved.count()));
        for (id, (before, now)) in (0..).zip(before.iter().zip(&more)) {
            assert_eq!(sets.moved(id, at(50)), before != now);
        }
        // One goes: its part goes to the others, and nothing else moves.
        let sets = failover.update(present([(8, 0), (5, 0), (3, 0)]), at(120));
        let less = numbers(sets, &[8, 5, 3]);
        for (before, now) in more.iter().zip(&less) {
            assert_eq!(before != now, *before == 7);
        }
        assert_eq!(failover.state(7), (true, 0));
        assert_eq!(failover.collectors.len(), 3);
    }
}
