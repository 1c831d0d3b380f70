//! Which of several collectors is told of which conversation.
//!
//! Each conversation has an order of collectors, by its identifier and their places in the list, the same at
//! all hosts: the first that is there is told. So the part of one that is gone goes to all others, and
//! nothing else moves. That one is gone is known by ICMP, or by its answers that stay out (`answers.rs`), and that
//! it is there again by the absence of both: also while it is gone it gets a datagram with each drain, which
//! says what was told.

use std::collections::VecDeque;

const SECOND: u64 = 1_000_000_000;
/// One that was gone is there again when nothing was refused for so long.
const QUIET: u64 = 5 * SECOND;
/// A datagram that says that a conversation has moved may be lost: it is said for so long.
const REPEAT: u64 = 10 * SECOND;
/// Changes that are remembered; whoever was silent for more is taken to have moved.
const CHANGES: usize = 16;

/// Who is there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Set(Vec<bool>);

impl Set {
    /// Whose turn it is: of those that are there the one with the greatest number; of all when none is.
    fn turn(&self, id: u64) -> usize {
        let nobody = !self.0.contains(&true);
        let there = self.0.iter().enumerate();
        there
            .filter(|(_, up)| **up || nobody)
            .max_by_key(|(place, _)| weight(id, *place))
            .map_or(0, |(place, _)| place)
    }
}

/// A number by conversation and collector (the finalizer of SplitMix64).
fn weight(id: u64, place: usize) -> u64 {
    let mut x = id ^ (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Who is there now, and who was before.
#[derive(Debug)]
pub struct Sets {
    now: Set,
    /// Until when others were there, the latest first.
    before: VecDeque<(u64, Set)>,
    forgotten: bool,
}

impl Sets {
    /// Who is told of a conversation.
    pub fn turn(&self, id: u64) -> usize {
        match self.now.0.len() {
            0 | 1 => 0,
            _ => self.now.turn(id),
        }
    }

    /// Whether somebody else may have been told of a conversation since its last packet but those that are
    /// new, which was at `since_ns`.
    pub fn moved(&self, id: u64, since_ns: u64) -> bool {
        if self.before.is_empty() {
            return false;
        }
        let now = self.turn(id);
        let since = since_ns.saturating_sub(REPEAT);
        let recent = self.before.iter().take_while(|(until, _)| *until >= since);
        let (mut seen, mut moved) = (0, false);
        for (_, set) in recent {
            seen += 1;
            moved |= set.turn(id) != now;
        }
        moved || (seen == self.before.len() && self.forgotten)
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Collector {
    refused: u64,
    refused_ns: u64,
    failovers: u64,
}

/// Finds out who is there.
#[derive(Debug)]
pub struct Failover {
    sets: Sets,
    collectors: Vec<Collector>,
}

impl Failover {
    /// All of them are there.
    pub fn new(count: usize) -> Self {
        Self {
            sets: Sets {
                now: Set(vec![true; count]),
                before: VecDeque::new(),
                forgotten: false,
            },
            collectors: vec![Collector::default(); count],
        }
    }

    /// Takes how often each has refused something so far.
    pub fn look(&mut self, refused: impl Iterator<Item = u64>, now_ns: u64) -> &Sets {
        let mut set = self.sets.now.clone();
        for ((one, up), refused) in self.collectors.iter_mut().zip(&mut set.0).zip(refused) {
            if refused > one.refused {
                one.refused_ns = now_ns;
                one.failovers += u64::from(*up);
                *up = false;
            } else if now_ns.saturating_sub(one.refused_ns) >= QUIET {
                *up = true;
            }
            one.refused = refused;
        }
        if set != self.sets.now {
            let before = std::mem::replace(&mut self.sets.now, set);
            self.sets.before.push_front((now_ns, before));
            self.sets.forgotten |= self.sets.before.len() > CHANGES;
            self.sets.before.truncate(CHANGES);
        }
        &self.sets
    }

    /// Of each whether it is there, and how often others took its part.
    pub fn states(&self) -> Vec<(bool, u64)> {
        let up = self.sets.now.0.iter();
        let failovers = self.collectors.iter().map(|one| one.failovers);
        up.copied().zip(failovers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(sets: &Sets) -> Vec<usize> {
        (0..3_000).map(|id| sets.turn(id)).collect()
    }

    #[test]
    fn only_the_part_of_who_is_gone_moves_and_it_comes_back() {
        let mut failover = Failover::new(3);
        let at = |s: u64| 1_000 * SECOND + s * SECOND;
        let all = turns(failover.look([0, 0, 0].into_iter(), at(0)));
        for place in 0..3 {
            let part = all.iter().filter(|turn| **turn == place).count();
            assert!((900..1_100).contains(&part), "{part}");
        }
        let sets = failover.look([0, 1, 0].into_iter(), at(2));
        let without = turns(sets);
        for (id, (before, now)) in (0..).zip(all.iter().zip(&without)) {
            assert_ne!(*now, 1);
            assert_eq!(before != now, *before == 1);
            // Last told before, and long after the change.
            assert_eq!(sets.moved(id, at(1)), *before == 1);
            assert!(!sets.moved(id, at(13)));
        }
        assert!(without.contains(&0) && without.contains(&2));
        assert_eq!(failover.states()[1], (false, 1));
        // It still refuses.
        assert_eq!(turns(failover.look([0, 2, 0].into_iter(), at(5))), without);
        assert_eq!(turns(failover.look([0, 2, 0].into_iter(), at(9))), without);
        assert_eq!(turns(failover.look([0, 2, 0].into_iter(), at(10))), all);
        // When nobody is there, each has its own.
        assert_eq!(turns(failover.look([1, 3, 1].into_iter(), at(12))), all);
    }
}
