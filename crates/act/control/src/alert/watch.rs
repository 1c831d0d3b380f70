//! When an alert fires and when it is over.

use super::AlertTurn;
use std::time::Duration;

/// How an alert stands. Times count from an arbitrary moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Watch {
    /// It is not so.
    #[default]
    Quiet,
    /// It is so since then, but not for long enough.
    Rising(Duration),
    /// It has fired.
    Firing,
    /// It has fired, and is not so any more since then, but not for long enough.
    Falling(Duration),
}

impl Watch {
    /// Takes the result of the evaluation at `now`.
    pub fn step(&mut self, so: bool, now: Duration, hold: Duration) -> Option<AlertTurn> {
        let since = match (*self, so) {
            (Self::Quiet, true) | (Self::Firing, false) => now,
            (Self::Rising(since), true) | (Self::Falling(since), false) => since,
            (Self::Quiet | Self::Rising(_), false) => {
                *self = Self::Quiet;
                return None;
            }
            (Self::Firing | Self::Falling(_), true) => {
                *self = Self::Firing;
                return None;
            }
        };
        let over = now.saturating_sub(since) >= hold;
        *self = match (so, over) {
            (true, true) => Self::Firing,
            (true, false) => Self::Rising(since),
            (false, true) => Self::Quiet,
            (false, false) => Self::Falling(since),
        };
        over.then_some(match so {
            true => AlertTurn::Fired,
            false => AlertTurn::Resolved,
        })
    }

    /// Time of the next evaluation even if nothing happens.
    pub fn due(&self, hold: Duration) -> Option<Duration> {
        match self {
            Self::Rising(since) | Self::Falling(since) => Some(*since + hold),
            Self::Quiet | Self::Firing => None,
        }
    }

    /// Name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Rising(_) => "pending",
            Self::Firing | Self::Falling(_) => "firing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_fires_after_the_hold_time_and_once() {
        let mut watch = Watch::default();
        assert_eq!(watch.step(true, at(100), HOLD), None);
        assert_eq!(watch.due(HOLD), Some(at(130)));
        assert_eq!(watch.step(true, at(129), HOLD), None);
        assert_eq!(watch.step(true, at(130), HOLD), Some(AlertTurn::Fired));
        assert_eq!(watch.step(true, at(500), HOLD), None);
        assert_eq!(watch.due(HOLD), None);
    }

    #[test]
    fn what_does_not_last_does_nothing() {
        let mut watch = Watch::default();
        watch.step(true, at(0), HOLD);
        assert_eq!(watch.step(false, at(20), HOLD), None);
        assert_eq!(watch.step(true, at(25), HOLD), None);
        assert_eq!(watch.step(true, at(54), HOLD), None, "it counts anew");
        assert_eq!(watch.step(true, at(55), HOLD), Some(AlertTurn::Fired));
        // The same at the end of it.
        assert_eq!(watch.step(false, at(60), HOLD), None);
        assert_eq!(watch.step(true, at(70), HOLD), None);
        assert_eq!(watch.step(false, at(80), HOLD), None);
        assert_eq!(watch.name(), "firing");
        assert_eq!(watch.step(false, at(109), HOLD), None);
        assert_eq!(watch.step(false, at(110), HOLD), Some(AlertTurn::Resolved));
        assert_eq!(watch.step(false, at(999), HOLD), None);
    }

    #[test]
    fn without_hold_time_every_turn_counts() {
        let mut watch = Watch::default();
        let turns: Vec<_> = [true, true, false, true, false, false]
            .into_iter()
            .map(|so| watch.step(so, at(7), Duration::ZERO))
            .collect();
        let (fired, resolved) = (Some(AlertTurn::Fired), Some(AlertTurn::Resolved));
        assert_eq!(turns, [fired, None, resolved, fired, resolved, None]);
    }
}
