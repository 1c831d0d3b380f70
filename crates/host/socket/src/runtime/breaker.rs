//! Suspends sockets that hang or send invalid data.

use std::time::{Duration, Instant};

/// Failures in a row after which a socket is left alone.
const FAILURES: u32 = 3;
/// For how long the first time; then twice as long each time.
const PAUSE: Duration = Duration::from_secs(30);
/// At most that long.
const LONGEST: Duration = Duration::from_secs(600);

/// State of one socket.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// Whether the socket may be queried.
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// It answered as it should.
    pub(super) fn good(&mut self) {
        *self = Self::default();
    }

    /// It did not.
    pub(super) fn bad(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if let Some(more) = self.failures.checked_sub(FAILURES) {
            let pause = PAUSE.saturating_mul(1 << more.min(10));
            self.until = Some(now + pause.min(LONGEST));
        }
    }

    /// Whether there was no failure.
    pub(super) fn is_good(&self) -> bool {
        self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_open_it_for_longer_and_longer() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        breaker.bad(start);
        breaker.bad(start);
        breaker.good();
        breaker.bad(start);
        breaker.bad(start);
        assert!(breaker.allows(start));
        breaker.bad(start);
        assert!(!breaker.allows(start + PAUSE - Duration::from_millis(1)));
        assert!(breaker.allows(start + PAUSE));
        breaker.bad(start + PAUSE);
        assert!(!breaker.allows(start + PAUSE * 3 - Duration::from_millis(1)));
        assert!(breaker.allows(start + PAUSE * 3));
        for _ in 0..100 {
            breaker.bad(start);
        }
        assert!(breaker.allows(start + LONGEST));
        breaker.good();
        assert!(breaker.allows(start) && breaker.is_good());
    }
}
