//! The kernel's monotonic clock against wall-clock time.

use std::{
    mem::MaybeUninit,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant},
};

fn read(clock: libc::clockid_t) -> i128 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a writable timespec; zeroed is a valid timespec if the call fails.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// CLOCK_MONOTONIC in ns.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC) as u64
}

/// How far the coarse clock goes on at a time, ns: the length of the kernel's tick.
pub(crate) fn coarse_resolution_ns() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a writable timespec; zeroed is a valid timespec if the call fails.
    let time = unsafe {
        libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_nsec as u64
}

/// The next time for work that is done once per interval: when CLOCK_MONOTONIC is a multiple of the
/// interval, between 0.5 and 1.5 intervals from now. Timers of the same interval expire together, so the
/// CPU sleeps in between.
pub fn next_tick(interval: Duration) -> Instant {
    tick_after(monotonic_ns(), Instant::now(), interval)
}

fn tick_after(monotonic_ns: u64, now: Instant, interval: Duration) -> Instant {
    let Some(interval_ns) = u64::try_from(interval.as_nanos()).ok().filter(|ns| *ns > 0) else {
        return now + interval;
    };
    let half = interval_ns / 2;
    let since_tick = monotonic_ns.saturating_add(half) % interval_ns;
    now + Duration::from_nanos(half + (interval_ns - since_tick))
}

/// How far two readings of the offset may differ by their error alone, or by a clock that is slewed for a
/// moment, ns.
const SAME_NS: u64 = 1_000_000;
/// Readings of the offset at one time: the best one counts, because an interrupt or another process may
/// have delayed the others.
const READINGS: usize = 4;
/// The offset that is in use; 0 before the first.
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// What to add to CLOCK_MONOTONIC ns to get ns since the Unix epoch. All conversions in a process use the
/// same value, so that two reports of one packet have the same time, until the wall clock is set or has
/// been slewed by a millisecond.
pub fn unix_offset_ns() -> i64 {
    let read = || {
        let before = read(libc::CLOCK_MONOTONIC);
        let wall = read(libc::CLOCK_REALTIME);
        let after = read(libc::CLOCK_MONOTONIC);
        (after - before, (wall - (before + after) / 2) as i64)
    };
    let best = (0..READINGS).map(|_| read()).min();
    let held = OFFSET.load(Relaxed);
    let offset = held_or_new(held, best.unwrap_or_default().1);
    if offset != held {
        OFFSET.store(offset, Relaxed);
    }
    offset
}

fn held_or_new(held: i64, measured: i64) -> i64 {
    if held != 0 && held.abs_diff(measured) < SAME_NS {
        held
    } else {
        measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_changes_only_when_the_clock_was_set() {
        let first = unix_offset_ns();
        assert!((0..1_000).all(|_| unix_offset_ns() == first));
        assert_eq!(held_or_new(0, 5), 5);
        assert_eq!(held_or_new(7_000_000, 7_999_999), 7_000_000);
        assert_eq!(held_or_new(7_000_000, 8_000_000), 8_000_000);
        assert_eq!(held_or_new(7_000_000, -7_000_000), -7_000_000);
    }

    #[test]
    fn ticks_are_multiples_of_the_interval_and_not_too_near() {
        const TEN: Duration = Duration::from_secs(10);
        let now = Instant::now();
        let at = |seconds: f64, interval| {
            let tick = tick_after((seconds * 1e9) as u64, now, interval);
            seconds + (tick - now).as_secs_f64()
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} is not {b}");
        near(at(100.0, TEN), 110.0);
        near(at(100.001, TEN), 110.0);
        near(at(104.9, TEN), 110.0);
        // Less than half an interval before the next one.
        near(at(105.1, TEN), 120.0);
        near(at(109.9, TEN), 120.0);
        near(at(7.0, Duration::from_secs(3_600)), 3_600.0);
        near(at(3_599.0, Duration::from_secs(3_600)), 7_200.0);
        assert_eq!(tick_after(5, now, Duration::ZERO), now);
    }
}
