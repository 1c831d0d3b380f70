//! Slows down clients that guess passwords.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Failures before the first wait.
const FREE: u32 = 5;
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// Failures are forgotten after this time without another.
const MEMORY: Duration = Duration::from_secs(600);
/// Addresses that are remembered.
const ADDRESSES: usize = 4096;

struct Failures {
    number: u32,
    last: Instant,
}

impl Failures {
    /// How long one has to wait after the last.
    fn wait(&self) -> Duration {
        match self.number.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(6)).min(LONGEST),
        }
    }
}

/// Failed logins by address.
#[derive(Default)]
pub struct Throttle(HashMap<IpAddr, Failures>);

impl Throttle {
    /// How long an address must wait before its next attempt.
    pub fn wait(&self, address: IpAddr, now: Instant) -> Duration {
        self.0.get(&address).map_or(Duration::ZERO, |failures| {
            (failures.last + failures.wait()).saturating_duration_since(now)
        })
    }

    /// Counts a failure.
    pub fn failed(&mut self, address: IpAddr, now: Instant) {
        if !self.0.contains_key(&address) && self.0.len() >= ADDRESSES {
            self.0
                .retain(|_, f| now.saturating_duration_since(f.last) < MEMORY);
            if self.0.len() >= ADDRESSES {
                let oldest = self.0.iter().min_by_key(|(_, f)| f.last).map(|(a, _)| *a);
                oldest.map(|address| self.0.remove(&address));
            }
        }
        let failures = self.0.entry(address).or_insert(Failures {
            number: 0,
            last: now,
        });
        if now.saturating_duration_since(failures.last) >= MEMORY {
            failures.number = 0;
        }
        failures.number = failures.number.saturating_add(1);
        failures.last = now;
    }

    /// Forgets what failed before.
    pub fn succeeded(&mut self, address: IpAddr) {
        self.0.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_minute_and_are_forgotten() {
        let mut throttle = Throttle::default();
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..13 {
            throttle.failed(a, now);
            waits.push(throttle.wait(a, now).as_secs());
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.wait(b, now), Duration::ZERO);
        now += LONGEST;
        assert_eq!(throttle.wait(a, now), Duration::ZERO);
        throttle.failed(a, now);
        assert_eq!(throttle.wait(a, now), LONGEST);
        now += MEMORY;
        throttle.failed(a, now);
        assert_eq!(throttle.wait(a, now), Duration::ZERO);
        for _ in 0..9 {
            throttle.failed(a, now);
        }
        throttle.succeeded(a);
        assert_eq!(throttle.wait(a, now), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded() {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        for n in 0..10_000u32 {
            throttle.failed(
                IpAddr::from(n.to_be_bytes()),
                now + Duration::from_millis(n.into()),
            );
        }
        assert_eq!(throttle.0.len(), ADDRESSES);
        assert!(
            throttle
                .0
                .contains_key(&IpAddr::from(9_999u32.to_be_bytes()))
        );
    }
}
