//! Who owns sockets on the host of an agent: kept as long as one of its flows has them and there is room.

use skua_flow::{Numbered, Used};
use std::{collections::HashMap, num::NonZeroU32, sync::Arc};

use crate::protocol::Party;

/// Bytes of a party beside its texts: itself, and its places in both tables.
const BESIDE: usize = size_of::<CachedParty>() + size_of::<Party>() + 96;

struct CachedParty {
    party: Arc<Party>,
    /// The message that had it last.
    last_used: u64,
}

/// See the module.
pub(crate) struct Parties {
    kept: Numbered<CachedParty>,
    numbers: HashMap<Arc<Party>, NonZeroU32>,
    /// Bytes that they take, and at most.
    bytes: usize,
    most: usize,
    messages: u64,
    /// Records and parties that came since all flows were gone through, and how many flows there were.
    since: usize,
    flows: usize,
    forgotten: u64,
}

fn bytes_of(party: &Party) -> usize {
    BESIDE + party.texts.iter().map(|text| text.len()).sum::<usize>()
}

impl Parties {
    /// None yet, and so many bytes at most.
    pub fn new(most: usize) -> Self {
        Self {
            kept: Numbered::default(),
            numbers: HashMap::new(),
            bytes: 0,
            most,
            messages: 0,
            since: 0,
            flows: 0,
            forgotten: 0,
        }
    }

    /// The party with that number in a record; none when it was forgotten.
    pub fn get(&self, number: NonZeroU32) -> Option<&Party> {
        Some(&*self.kept.get(number)?.party)
    }

    /// Parties that ended flows have, or flows that come, and beyond the limit.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Numbers of the parties of a message with so many `records`, in its order. `note` notes the numbers that
    /// flows have, and says how many flows there are.
    pub fn numbers_of(
        &mut self,
        parties: Vec<Party>,
        records: usize,
        note: impl FnOnce(&mut Used) -> usize,
    ) -> Vec<Option<NonZeroU32>> {
        self.messages += 1;
        self.since += records + parties.len();
        if self.bytes >= self.most / 4 * 3 {
            self.sweep(note);
        }
        let mut number_of = |party| {
            let found = self.number(party);
            self.forgotten += u64::from(found.is_none());
            found
        };
        parties.into_iter().map(&mut number_of).collect()
    }

    fn number(&mut self, party: Party) -> Option<NonZeroU32> {
        if let Some(number) = self.numbers.get(&party) {
            let kept = self.kept.get_mut(*number)?;
            kept.last_used = self.messages;
            return Some(*number);
        }
        let bytes = bytes_of(&party);
        if self.bytes + bytes > self.most {
            return None;
        }
        let party = Arc::new(party);
        let number = self.kept.insert(CachedParty {
            party: party.clone(),
            last_used: self.messages,
        })?;
        self.numbers.insert(party, number);
        self.bytes += bytes;
        Some(number)
    }

    /// Lets go what no flow has, and when that is too little what only ended flows have. All flows are gone
    /// through only when a 32nd of their number has come since: it may be asked for with each message.
    fn sweep(&mut self, note: impl FnOnce(&mut Used) -> usize) {
        if self.since < self.flows / 32 {
            return;
        }
        self.since = 0;
        let mut used = Used::default();
        self.flows = note(&mut used);
        let unused = self.kept.take_unused(&used);
        self.free(unused);
        if self.bytes < self.most / 4 * 3 {
            return;
        }
        let (mut bytes, enough) = (self.bytes, self.most / 2);
        let last_used = |kept: &CachedParty| kept.last_used;
        let oldest = self.kept.take_least_used(&used, last_used, |_, next| {
            let enough = bytes <= enough;
            bytes = bytes.saturating_sub(bytes_of(&next.party));
            enough
        });
        self.forgotten += oldest.len() as u64;
        self.free(oldest);
    }

    fn free(&mut self, kept: Vec<(NonZeroU32, CachedParty)>) {
        for (_, kept) in kept {
            self.bytes -= bytes_of(&kept.party);
            self.numbers.remove(&kept.party);
        }
        if self.numbers.capacity() > 4 * self.numbers.len().max(16) {
            self.numbers.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(pid: u32, text: &str) -> Party {
        Party {
            texts: [text, "", "", "", ""].map(Into::into),
            pid,
            uid: None,
        }
    }

    #[test]
    fn the_last_owners_have_names_however_many_came_before() {
        const MOST: usize = 1 << 20;
        let mut parties = Parties::new(MOST);
        let mut flows: Vec<NonZeroU32> = Vec::new();
        for pid in 1..100_000 {
            let numbers = parties.numbers_of(vec![party(pid, "curl")], 1, |used| {
                flows.iter().for_each(|number| used.note(*number, false));
                // The first one goes on.
                used.note(flows[0], true);
                flows.len()
            });
            flows.push(numbers[0].expect("room"));
            // As many as may be in memory beside them.
            if flows.len() > 10_000 {
                flows.drain(1..5_000);
            }
            assert!(parties.bytes <= MOST);
        }
        let pid = |at: usize| parties.get(flows[at]).map(|party| party.pid);
        let mut last = flows.len() - 1000..flows.len();
        let first = 100_000 - flows.len();
        assert!(last.all(|at| pid(at) == Some((first + at) as u32)));
        assert_eq!((pid(0), pid(1)), (Some(1), None));
        assert!(parties.forgotten() > 0);
        assert_eq!(parties.numbers.len(), parties.kept.len());
    }

    #[test]
    fn what_no_flow_has_goes_first_and_is_not_missed() {
        let mut parties = Parties::new(1 << 20);
        let kept = parties.numbers_of(vec![party(1, "kept")], 1, |_| 0)[0].unwrap();
        for pid in 2..100_000 {
            let numbers = parties.numbers_of(vec![party(pid, "gone")], 1, |used| {
                used.note(kept, false);
                1
            });
            assert!(numbers[0].is_some());
        }
        assert_eq!(&*parties.get(kept).unwrap().texts[0], "kept");
        assert_eq!(parties.forgotten(), 0);
    }

    #[test]
    fn more_than_there_is_room_for_is_counted_and_takes_no_memory() {
        let mut parties = Parties::new(1 << 20);
        let text = "x".repeat(1000);
        let mut named: Vec<Option<NonZeroU32>> = Vec::new();
        for message in 0..10 {
            let many = (0..1000).map(|pid| party(1000 * message + pid, &text));
            // All that have a name are of flows that go on.
            let numbers = parties.numbers_of(many.collect(), 1000, |used| {
                let numbers = named.iter().flatten();
                numbers.for_each(|number| used.note(*number, true));
                named.len()
            });
            named.extend(numbers);
        }
        assert!(parties.bytes <= 1 << 20);
        let nameless = named.iter().filter(|number| number.is_none()).count();
        assert_eq!(parties.forgotten() as usize, nameless);
        assert!(nameless > 8000);
    }
}
