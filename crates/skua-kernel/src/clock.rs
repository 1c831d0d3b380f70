//! The kernel's monotonic clock against wall-clock time.

use std::mem::MaybeUninit;

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

/// What to add to CLOCK_MONOTONIC ns to get ns since the Unix epoch. Read anew for each drain, since
/// the wall clock may be set.
pub fn unix_offset_ns() -> i64 {
    let before = read(libc::CLOCK_MONOTONIC);
    let wall = read(libc::CLOCK_REALTIME);
    let after = read(libc::CLOCK_MONOTONIC);
    (wall - (before + after) / 2) as i64
}
