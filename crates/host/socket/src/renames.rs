//! Services that got another name after they were first met.

use std::collections::VecDeque;

/// Most changes that are kept: more than containers whose runtimes answer between two drains.
const KEPT: usize = 4096;

/// Changes of services' names, numbered in their order. Bounded: the oldest are forgotten.
#[derive(Debug, Default)]
pub struct Renames {
    count: u64,
    /// Former and new names of the latest.
    latest: VecDeque<(String, String)>,
}

impl Renames {
    /// Remembers a change; an equal name is none.
    pub(crate) fn add(&mut self, former: &str, now: &str) {
        if former == now {
            return;
        }
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back((former.to_owned(), now.to_owned()));
        self.count += 1;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Former and new names of all changes after the first `seen`, in their order.
    pub fn since(&self, seen: u64) -> impl Iterator<Item = (&str, &str)> {
        let new = usize::try_from(self.count.saturating_sub(seen)).unwrap_or(usize::MAX);
        let known = self.latest.len().saturating_sub(new);
        let latest = self.latest.iter().skip(known);
        latest.map(|(former, now)| (former.as_str(), now.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_few_are_kept() {
        let mut renames = Renames::default();
        renames.add("0123456789ab", "web");
        renames.add("same", "same");
        assert_eq!(renames.count(), 1);
        assert_eq!(
            renames.since(0).collect::<Vec<_>>(),
            [("0123456789ab", "web")]
        );
        assert_eq!(renames.since(1).count(), 0);
        for number in 0..2 * KEPT {
            renames.add(&number.to_string(), "x");
        }
        assert_eq!(renames.since(1).count(), KEPT);
        assert_eq!(renames.since(renames.count() - 1).count(), 1);
    }
}
