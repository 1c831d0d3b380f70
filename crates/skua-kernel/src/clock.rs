//! The kernel's monotonic clock against wall-clock time.

use std::{
    mem::MaybeUninit,
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

/// When whoever does something once per interval does it next: when CLOCK_MONOTONIC is a multiple of the
/// interval, between half an interval and one and a half from now. All who have the same interval wake up at
/// once, so that the CPU is left asleep in between.
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

/// What to add to CLOCK_MONOTONIC ns to get ns since the Unix epoch. Read anew for each drain, since
/// the wall clock may be set.
pub fn unix_offset_ns() -> i64 {
    let before = read(libc::CLOCK_MONOTONIC);
    let wall = read(libc::CLOCK_REALTIME);
    let after = read(libc::CLOCK_MONOTONIC);
    (wall - (before + after) / 2) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

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
