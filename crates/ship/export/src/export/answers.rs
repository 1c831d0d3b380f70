//! Whether a collector answers.
//!
//! sFlow has no answers, and ICMP does not come through all firewalls. Our collectors answer when they are asked
//! (docs/wire.md); others never do, and are taken to be there unless ICMP says that they are not.

use skua_config::export::Expected;

const SECOND: u64 = 1_000_000_000;
/// Without an answer for so long it is asked again, each time.
const AGAIN: u64 = SECOND;
/// Without an answer for so long it is gone.
const PATIENCE: u64 = 4 * SECOND;
/// One that does not answer and was refused is tried again after so long.
const QUIET: u64 = 2 * SECOND;

/// What is known of one.
#[derive(Debug)]
pub struct Answers {
    expected: Expected,
    /// It has answered.
    heard: bool,
    /// When it was asked first since it last answered.
    asked_ns: Option<u64>,
    /// When it was asked by a datagram of its own.
    again_ns: Option<u64>,
    refused_ns: u64,
    gone: bool,
}

/// What there is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NextStep {
    /// It is to be asked by a datagram of its own.
    pub ask: bool,
    /// It is found gone, or still is and is asked once more.
    pub silent: bool,
}

impl Answers {
    /// Nothing is known.
    pub fn new(expected: Expected) -> Self {
        let always = expected == Expected::Always;
        Self {
            expected,
            heard: false,
            asked_ns: always.then_some(0),
            again_ns: None,
            refused_ns: 0,
            gone: always,
        }
    }

    /// Whether answers are expected of it.
    pub fn expects(&self) -> bool {
        match self.expected {
            Expected::Auto => self.heard,
            Expected::Always => true,
            Expected::Never => false,
        }
    }

    /// Whether it has answered.
    pub fn heard(&self) -> bool {
        self.heard
    }

    /// Whether it is gone.
    pub fn gone(&self) -> bool {
        self.gone
    }

    /// Whether there is something to wait for, so that [`next_step`](Self::next_step) is due soon. Whether one that was
    /// never heard does answer is waited for as long as for others.
    pub fn waits(&self, now_ns: u64) -> bool {
        let asked = self
            .asked_ns
            .is_some_and(|asked_ns| self.expects() || now_ns.saturating_sub(asked_ns) < PATIENCE);
        self.gone || (asked && self.expected != Expected::Never)
    }

    /// A datagram that asks was sent.
    pub fn asked(&mut self, now_ns: u64) {
        let since = self.asked_ns.filter(|_| self.expects());
        self.asked_ns = since.or(Some(now_ns));
    }

    /// It has answered.
    pub fn answered(&mut self) {
        if self.expected != Expected::Never {
            (self.heard, self.gone, self.asked_ns) = (true, false, None);
        }
    }

    /// A datagram was refused (ICMP).
    pub fn refused(&mut self, now_ns: u64) {
        (self.gone, self.refused_ns) = (true, now_ns);
        self.asked_ns.get_or_insert(now_ns);
    }

    /// What the sender has to do now.
    pub fn next_step(&mut self, now_ns: u64) -> NextStep {
        if !self.expects() {
            if self.gone && now_ns.saturating_sub(self.refused_ns) >= QUIET {
                self.gone = false;
            }
            return NextStep::default();
        }
        let Some(asked_ns) = self.asked_ns else {
            return NextStep::default();
        };
        let waited = now_ns.saturating_sub(asked_ns);
        let found_gone = !self.gone && waited >= PATIENCE;
        self.gone |= found_gone;
        let lately = |again_ns: u64| now_ns.saturating_sub(again_ns) < AGAIN;
        let ask = (self.gone || waited >= AGAIN) && !self.again_ns.is_some_and(lately);
        if ask {
            self.again_ns = Some(now_ns);
        }
        NextStep {
            ask,
            silent: found_gone || (ask && self.gone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000 * SECOND;

    /// Asks for the next step ten times a second until a time; how often that was to ask the collector.
    fn pass(answers: &mut Answers, from: u64, to: u64) -> usize {
        let times = (from * 10..to * 10).map(|tenth| START + tenth * SECOND / 10);
        times.filter(|now| answers.next_step(*now).ask).count()
    }

    #[test]
    fn one_that_has_answered_and_is_silent_is_gone_until_it_answers() {
        let mut answers = Answers::new(Expected::Auto);
        answers.asked(START);
        // Nobody knows whether it ever will.
        assert_eq!(pass(&mut answers, 0, 60), 0);
        assert!(!answers.gone());
        answers.answered();
        assert_eq!(pass(&mut answers, 60, 70), 0);
        answers.asked(START + 70 * SECOND);
        assert!((2..=4).contains(&pass(&mut answers, 70, 73)));
        assert!(!answers.gone());
        assert!(pass(&mut answers, 73, 83) >= 9);
        assert!(answers.gone() && answers.waits(START + 83 * SECOND));
        answers.answered();
        assert!(!answers.gone() && !answers.waits(START + 83 * SECOND));
    }

    #[test]
    fn one_that_never_answers_is_gone_while_it_refuses() {
        let mut answers = Answers::new(Expected::Never);
        answers.answered();
        answers.refused(START);
        assert_eq!(pass(&mut answers, 0, 1), 0);
        assert!(answers.gone());
        pass(&mut answers, 1, 3);
        assert!(!answers.gone());
        let mut always = Answers::new(Expected::Always);
        assert!(always.gone() && always.next_step(START).ask);
        always.answered();
        assert!(!always.gone());
    }
}
