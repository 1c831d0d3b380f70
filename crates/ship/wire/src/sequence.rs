//! Sequence numbers of an exporter: loss, datagrams out of order, restarts.

/// Gaps that are stored, to distinguish late datagrams from others.
const GAPS: usize = 16;
/// A larger jump ahead is a restart, not a loss.
const MOST_LOST: u32 = 1 << 24;
/// Tolerance for the exporter's start time, computed from its uptime, between datagrams (clocks in
/// whole seconds, network delay), in ms.
const BOOT_JITTER_MS: u64 = 10_000;

/// Result of a datagram's sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// So many units are missing before this one.
    pub lost: u32,
    /// Units counted as lost that this datagram brought late.
    pub recovered: u32,
    /// Datagrams sent later arrived before it.
    pub late: bool,
    /// The exporter has restarted.
    pub restarted: bool,
}

/// Missing numbers: `length` from `start` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Gap {
    start: u32,
    length: u32,
}

/// Meaning of a datagram's number. The standards define the first, but not all exporters comply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Numbering {
    /// Units before its own.
    #[default]
    Before,
    /// Units with its own.
    With,
    /// Datagrams, where it should be records.
    Datagrams,
}

const NUMBERINGS: [Numbering; 3] = [Numbering::Before, Numbering::With, Numbering::Datagrams];
/// A numbering is settled when it fits this many datagrams more than others.
const LEAD: u8 = 2;

/// Follows the sequence numbers of one stream, modulo 2³². A unit is what the stream numbers:
/// datagrams (sFlow, NetFlow 9) or records (NetFlow 5, IPFIX). Exporters with non-standard
/// numbering of records are recognised by their first datagrams.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    numbering: Numbering,
    /// Whether `numbering` is known.
    settled: bool,
    /// How many datagrams fitted, by `NUMBERINGS`.
    fits: [u8; 3],
    /// Number and units of the last datagram received.
    last: Option<(u32, u32)>,
    /// Loss counted before the numbering was settled; reverted if the numbering differs.
    unsettled_lost: u32,
    /// Units of the last datagram that the numbering may leave out.
    uncertain: u32,
    /// Number of the next datagram, none before the first.
    next: Option<u32>,
    /// Lengths of 0 are free.
    gaps: [Gap; GAPS],
    /// Where the next gap is noted.
    hand: usize,
    /// When the exporter started, ms since the Unix epoch.
    boot_ms: Option<u64>,
    /// What a datagram after an unexplained step back would have if that was a restart.
    after_step_back: Option<u32>,
}

impl Sequence {
    /// Processes a datagram with this `number` and so many units. `boot_ms` is when the exporter
    /// started (ms since the Unix epoch, by its uptime), if known.
    pub fn step(&mut self, number: u32, units: u32, boot_ms: Option<u64>) -> Step {
        self.step_uncertain(number, units, 0, boot_ms)
    }

    /// As [`step`](Self::step), when of the units so many may be left out of the numbers.
    pub fn step_uncertain(
        &mut self,
        number: u32,
        units: u32,
        uncertain: u32,
        boot_ms: Option<u64>,
    ) -> Step {
        let before = std::mem::replace(&mut self.uncertain, uncertain);
        let mut taken_back = 0;
        if !self.settled && before == 0 && uncertain == 0 {
            taken_back = self.find_numbering(number, units);
        }
        self.last = Some((number, units));
        let slack = match self.numbering {
            Numbering::Before => before,
            Numbering::With => uncertain,
            Numbering::Datagrams => 0,
        };
        let (number, units) = match self.numbering {
            Numbering::Before => (number, units),
            Numbering::With => (number.wrapping_sub(units), units),
            Numbering::Datagrams => (number, 1),
        };
        // Those were not numbered: the exporter is right where it should be.
        if self
            .next
            .is_some_and(|next| next.wrapping_sub(number) <= slack)
        {
            self.next = Some(number);
        }
        let mut step = self.follow(number, units, boot_ms);
        if !self.settled {
            self.unsettled_lost = (self.unsettled_lost + step.lost).saturating_sub(step.recovered);
            // With several records the numbering may differ.
            step.late &= units == 1 || step.recovered > 0;
        }
        step.recovered += taken_back;
        step
    }

    /// Finds the numbering that fits. Returns the loss that a wrong numbering caused.
    fn find_numbering(&mut self, number: u32, units: u32) -> u32 {
        let Some((last, last_units)) = self.last else {
            return 0;
        };
        let expected = NUMBERINGS.map(|numbering| {
            last.wrapping_add(match numbering {
                Numbering::Before => last_units,
                Numbering::With => units,
                Numbering::Datagrams => 1,
            })
        });
        if expected == [number; 3] {
            return 0;
        }
        for (fits, expected) in self.fits.iter_mut().zip(expected) {
            *fits += u8::from(number == expected);
        }
        let leads = |place: usize| {
            let others = (0..3).filter(|other| *other != place);
            let best = others.map(|other| self.fits[other]).max();
            self.fits[place] >= best.unwrap_or(0) + LEAD
        };
        let Some(place) = (0..3).find(|place| leads(*place)) else {
            // So many that did not lead: the standard's.
            self.settled = self.fits.iter().any(|fits| *fits > u8::MAX - LEAD - 1);
            return 0;
        };
        self.settled = true;
        self.numbering = NUMBERINGS[place];
        if self.numbering == Numbering::Before {
            return 0;
        }
        self.next = None;
        self.gaps = Default::default();
        std::mem::take(&mut self.unsettled_lost)
    }

    fn follow(&mut self, number: u32, units: u32, boot_ms: Option<u64>) -> Step {
        let Some(next) = self.next else {
            self.begin(number, units, boot_ms);
            return Step::default();
        };
        if number == next {
            self.advance(number, units, boot_ms);
            return Step::default();
        }
        if self.booted_again(boot_ms) {
            self.begin(number, units, boot_ms);
            return Step {
                restarted: true,
                ..Step::default()
            };
        }
        // Comparison modulo 2³²: the sign of the difference.
        let ahead = number.wrapping_sub(next);
        if ahead.cast_signed() > 0 {
            return self.ahead(next, number, ahead, units, boot_ms);
        }
        self.behind(number, units, boot_ms)
    }

    /// The next number is unknown after this datagram.
    pub fn forget_next(&mut self) {
        self.next = None;
        self.last = None;
    }

    fn begin(&mut self, number: u32, units: u32, boot_ms: Option<u64>) {
        *self = Self {
            numbering: self.numbering,
            settled: self.settled,
            fits: self.fits,
            last: self.last,
            unsettled_lost: self.unsettled_lost,
            uncertain: self.uncertain,
            ..Self::default()
        };
        self.advance(number, units, boot_ms);
    }

    fn advance(&mut self, number: u32, units: u32, boot_ms: Option<u64>) {
        self.next = Some(number.wrapping_add(units));
        self.boot_ms = boot_ms.or(self.boot_ms);
        self.after_step_back = None;
    }

    /// Whether the exporter started later than before. (Its uptime wraps after 49.7 days, but then
    /// the numbers continue.)
    fn booted_again(&self, boot_ms: Option<u64>) -> bool {
        match (self.boot_ms, boot_ms) {
            (Some(then), Some(now)) => now > then.saturating_add(BOOT_JITTER_MS),
            _ => false,
        }
    }

    fn ahead(
        &mut self,
        next: u32,
        number: u32,
        lost: u32,
        units: u32,
        boot_ms: Option<u64>,
    ) -> Step {
        if lost > MOST_LOST {
            self.begin(number, units, boot_ms);
            return Step {
                restarted: true,
                ..Step::default()
            };
        }
        self.gaps[self.hand] = Gap {
            start: next,
            length: lost,
        };
        self.hand = (self.hand + 1) % GAPS;
        self.advance(number, units, boot_ms);
        Step {
            lost,
            ..Step::default()
        }
    }

    fn behind(&mut self, number: u32, units: u32, boot_ms: Option<u64>) -> Step {
        if let Some(recovered) = self.fill(number, units) {
            return Step {
                recovered,
                late: true,
                ..Step::default()
            };
        }
        // A duplicate, or later than the stored gaps, or a restart that no uptime shows: then the
        // numbers continue from there.
        let restarted = self.after_step_back == Some(number) && boot_ms.is_none();
        if restarted {
            self.begin(number, units, boot_ms);
        } else {
            self.after_step_back = Some(number.wrapping_add(units));
        }
        Step {
            restarted,
            late: !restarted,
            ..Step::default()
        }
    }

    /// Removes units from the gap where they were missing; returns how many, none if in no gap.
    fn fill(&mut self, number: u32, units: u32) -> Option<u32> {
        let place = self
            .gaps
            .iter()
            .position(|gap| number.wrapping_sub(gap.start) < gap.length)?;
        let gap = self.gaps[place];
        let before = number.wrapping_sub(gap.start);
        let recovered = units.min(gap.length - before);
        self.gaps[place].length = before;
        let after = gap.length - before - recovered;
        if after > 0 {
            let rest = Gap {
                start: number.wrapping_add(recovered),
                length: after,
            };
            if before == 0 {
                self.gaps[place] = rest;
            } else {
                self.gaps[self.hand] = rest;
                self.hand = (self.hand + 1) % GAPS;
            }
        }
        Some(recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(sequence: &mut Sequence, numbers: &[u32]) -> Vec<Step> {
        numbers.iter().map(|n| sequence.step(*n, 1, None)).collect()
    }

    fn sum(steps: &[Step]) -> (u32, u32, usize, usize) {
        (
            steps.iter().map(|s| s.lost).sum(),
            steps.iter().map(|s| s.recovered).sum(),
            steps.iter().filter(|s| s.late).count(),
            steps.iter().filter(|s| s.restarted).count(),
        )
    }

    #[test]
    fn loss_is_counted_and_wraps() {
        let mut sequence = Sequence::default();
        let found = steps(&mut sequence, &[u32::MAX - 1, u32::MAX, 2, 3]);
        assert_eq!(sum(&found), (2, 0, 0, 0));
    }

    #[test]
    fn late_is_no_loss() {
        let mut sequence = Sequence::default();
        // 3, 4, 5 are missing, then all arrive, 4 first.
        let found = steps(&mut sequence, &[1, 2, 6, 4, 3, 5, 7]);
        assert_eq!(sum(&found), (3, 3, 3, 0));
        // Once more is neither loss nor recovery.
        assert_eq!(sum(&steps(&mut sequence, &[4, 8])), (0, 0, 1, 0));
    }

    #[test]
    fn records_are_units() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.step(100, 30, None), Step::default());
        assert_eq!(sequence.step(160, 30, None).lost, 30);
        assert_eq!(sequence.step(130, 20, None).recovered, 20);
        assert_eq!(sequence.step(150, 20, None).recovered, 10);
        assert_eq!(sequence.step(190, 1, None), Step::default());
    }

    /// Steps of datagrams with so many records each, numbered by `number(before, units, index)`.
    fn numbered(units: &[u32], number: impl Fn(u32, u32, u32) -> u32) -> Vec<Step> {
        let (mut sequence, mut before) = (Sequence::default(), 1_000);
        let mut steps = Vec::new();
        for (place, units) in units.iter().enumerate() {
            let number = number(before, *units, place as u32);
            steps.push(sequence.step(number, *units, None));
            before += units;
        }
        steps
    }

    #[test]
    fn other_ways_of_numbering_are_no_loss() {
        let units = [20, 27, 28, 26, 26, 24, 27, 9, 30, 14, 27, 26];
        let net = |steps: &[Step]| {
            let (lost, recovered, late, restarted) = sum(steps);
            (lost - recovered, late, restarted)
        };
        let before = numbered(&units, |before, _, _| before);
        assert_eq!(before, vec![Step::default(); units.len()]);
        assert_eq!(
            net(&numbered(&units, |before, units, _| before + units)),
            (0, 0, 0)
        );
        assert_eq!(net(&numbered(&units, |_, _, place| place)), (0, 0, 0));
        // Loss is still detected: two datagrams are missing.
        let mut sequence = Sequence::default();
        let mut lost = 0_i64;
        let mut with = 0;
        for (place, units) in units.into_iter().cycle().take(100).enumerate() {
            with += units;
            if place == 50 || place == 51 {
                continue;
            }
            let step = sequence.step(with, units, None);
            lost += i64::from(step.lost) - i64::from(step.recovered);
        }
        assert_eq!(lost, i64::from(units[50 % 12] + units[51 % 12]));
    }

    #[test]
    fn what_may_not_be_numbered_is_no_loss() {
        for (with, counted) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let (mut sequence, mut number) = (Sequence::default(), 7);
            let mut all = Vec::new();
            for place in 0..60_u32 {
                let options = u32::from(place % 8 == 0);
                let numbered = 20 + place % 5 + options * counted;
                let sent = if with { number + numbered } else { number };
                number += numbered;
                // Datagram 43 is lost.
                if place != 43 {
                    let units = 20 + place % 5 + options;
                    all.push(sequence.step_uncertain(sent, units, options, None));
                }
            }
            let (lost, recovered, late, restarted) = sum(&all);
            assert_eq!(
                (lost - recovered, late, restarted),
                (23, 0, 0),
                "{with} {counted}"
            );
        }
    }

    #[test]
    fn a_later_boot_is_a_restart() {
        let mut sequence = Sequence::default();
        let boot = Some(1_000_000);
        for number in 500..600 {
            assert_eq!(sequence.step(number, 1, boot), Step::default());
        }
        let again = Some(2_000_000);
        assert!(sequence.step(3, 1, again).restarted);
        assert_eq!(sequence.step(4, 1, again), Step::default());
        // Ahead, too.
        assert!(sequence.step(100, 1, Some(3_000_000)).restarted);
    }

    #[test]
    fn a_restart_without_uptime_shows_by_numbers_that_go_on() {
        let mut sequence = Sequence::default();
        let found = steps(&mut sequence, &[700, 701, 0, 1, 2, 3]);
        assert_eq!(sum(&found), (0, 0, 1, 1));
        let found = steps(&mut sequence, &[4, 0x8000_0000, 0x8000_0001]);
        assert_eq!(sum(&found).0, 0);
    }

    #[test]
    fn a_duplicate_is_late_and_changes_nothing() {
        let mut sequence = Sequence::default();
        let boot = Some(1);
        for number in 0..9 {
            assert_eq!(sequence.step(number, 1, boot), Step::default());
        }
        for number in [7, 8] {
            let step = sequence.step(number, 1, boot);
            assert!(step.late && !step.restarted && step.lost == 0);
        }
        assert_eq!(sequence.step(9, 1, boot), Step::default());
    }
}
