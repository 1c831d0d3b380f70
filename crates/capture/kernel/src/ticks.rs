//! The kernel's ticks (jiffies), by which programs know the time of a packet: reading them is a load, while reading even the
//! coarse clock takes nearly as long as all else that a program does with a packet.
//!
//! The kernel counts a tick whenever CLOCK_MONOTONIC has gone on by the length of one (`tick_do_update_jiffies64`), so that
//! both differ by a constant. A program that says which tick it is measures that: a tick that is there has begun, so each
//! answer bounds the constant from above. It bounds nothing from below, for the processor that counts may be late: other
//! work holds it up, or the host of a virtual machine. The least of all answers is taken, and each drain asks again.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    KernelError,
    clock::{self, monotonic_ns},
    embedded::{self, Loaded, object},
};

/// Two ticks that agree as exactly as this were both counted in time.
const GOOD_NS: i64 = 50_000;
/// In a busy machine, the best after this time is taken.
const PATIENCE: Duration = Duration::from_millis(100);

/// What was measured in this process.
struct Measured {
    program: OwnedFd,
    /// The least so far.
    offset: AtomicI64,
    length_ns: i64,
}

static MEASURED: OnceLock<Measured> = OnceLock::new();

/// Makes times of ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    /// CLOCK_MONOTONIC at tick 0, ns; mostly long before the machine began.
    pub(crate) offset: i64,
    /// Between two ticks.
    pub(crate) length_ns: i64,
}

impl Ticks {
    /// Those of this kernel.
    ///
    /// # Errors
    ///
    /// The kernel does not take or run the program.
    pub(crate) fn measured() -> Result<Self, KernelError> {
        let measured = match MEASURED.get() {
            Some(measured) => measured,
            None => {
                let new = measure()?;
                MEASURED.get_or_init(|| new)
            }
        };
        Ok(measured.ticks())
    }

    /// The same after one more measurement.
    pub(crate) fn refined(self) -> Self {
        let Some(measured) = MEASURED.get() else {
            return self;
        };
        // What the kernel ran once it runs again; what is known stays right without.
        if let Ok(offset) = measured.bound() {
            measured.offset.fetch_min(offset, Relaxed);
        }
        measured.ticks()
    }

    /// The number of the tick at a time of CLOCK_MONOTONIC.
    pub(crate) fn at(self, ns: u64) -> i64 {
        (ns as i64).saturating_sub(self.offset) / self.length_ns
    }

    /// CLOCK_MONOTONIC when a tick began, of whose number the lower half is known; seen from `now`, at most 2^31 ticks
    /// before or after it (24 days at 1,000 ticks a second).
    pub(crate) fn begin_ns(self, tick: u32, now: u64) -> u64 {
        let now = self.at(now);
        let since = (now as u32).wrapping_sub(tick) as i32;
        let tick = now - i64::from(since);
        let begin = tick.saturating_mul(self.length_ns);
        begin.saturating_add(self.offset).max(0) as u64
    }

    /// The largest power of 2 of ticks that take at most so many ns.
    pub(crate) fn shift_within(self, ns: u64) -> u8 {
        (ns / self.length_ns as u64).max(1).ilog2() as u8
    }
}

impl Measured {
    fn ticks(&self) -> Ticks {
        Ticks {
            offset: self.offset.load(Relaxed),
            length_ns: self.length_ns,
        }
    }

    /// The offset is at most this.
    fn bound(&self) -> Result<i64, KernelError> {
        let tick = present(self.program.as_fd())?;
        Ok(begin(tick, self.length_ns))
    }
}

/// When tick 0 began if this one begins now.
fn begin(tick: i64, length_ns: i64) -> i64 {
    (monotonic_ns() as i64).saturating_sub(tick.saturating_mul(length_ns))
}

fn load() -> Result<Loaded, KernelError> {
    embedded::load(("ticks", object!("ticks")), &[], None, |_| Ok(()))
}

fn measure() -> Result<Measured, KernelError> {
    let loaded = load()?;
    let program = loaded.progs().next().ok_or(KernelError::Missing("ticks"))?;
    let program = program
        .as_fd()
        .try_clone_to_owned()
        .map_err(|_| KernelError::last("cannot keep the program of ticks"))?;
    let length_ns = clock::coarse_resolution_ns().max(1) as i64;
    let begun = monotonic_ns();
    let mut tick = present(program.as_fd())?;
    let mut best = begin(tick, length_ns);
    // Of the tick that was counted soonest after its begin, apart from the best one.
    let mut second = i64::MAX;
    while best.abs_diff(second) > GOOD_NS as u64
        && monotonic_ns() - begun < PATIENCE.as_nanos() as u64
    {
        let next = present(program.as_fd())?;
        if next == tick {
            continue;
        }
        tick = next;
        let offset = begin(tick, length_ns);
        second = second.min(offset.max(best));
        best = best.min(offset);
    }
    Ok(Measured {
        program,
        offset: best.into(),
        length_ns,
    })
}

/// Which tick it is.
fn present(program: BorrowedFd<'_>) -> Result<i64, KernelError> {
    // The kernel requires a packet.
    let mut packet = [0u8; 64];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        data_out: packet.as_mut_ptr().cast(),
        data_size_out: packet.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: options and the packet in it outlive the call, which writes at most as many bytes as it has.
    let ran = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if ran < 0 {
        return Err(KernelError::last("cannot read the kernel's ticks"));
    }
    let [a, b, c, d, e, f, g, h, ..] = packet;
    Ok(i64::from_ne_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_times_on_both_sides_of_an_overflow() {
        let length_ns = 4_000_000;
        // Linux begins to count 300 s before its 32 bits overflow.
        let first_tick = i64::from(u32::MAX - 75_000 + 1);
        let ticks = Ticks {
            offset: 1_000 - first_tick * length_ns,
            length_ns,
        };
        for since_boot in [20, 21, 74_999, 75_000, 75_001, 10_000_000] {
            let tick = (first_tick + since_boot) as u32;
            let began = 1_000 + (since_boot * length_ns) as u64;
            for now in [
                began,
                began + 3_999_999,
                began + 3_600_000_000_000,
                began - 40_000_000,
            ] {
                assert_eq!(ticks.begin_ns(tick, now), began, "{since_boot} at {now}");
            }
        }
    }

    #[test]
    fn measuring_again_only_makes_it_more_exact() {
        let first = Ticks::measured().expect("needs root");
        let mut before = first;
        for _ in 0..50 {
            let ticks = before.refined();
            assert!(ticks.offset <= before.offset);
            before = ticks;
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(before.offset > first.offset - first.length_ns);
    }

    #[test]
    fn periods_are_powers_of_two_of_ticks() {
        let milliseconds = |hz: i64| {
            let length_ns = 1_000_000_000 / hz;
            let ticks = Ticks {
                offset: 0,
                length_ns,
            };
            ((length_ns << ticks.shift_within(1 << 33)) as f64 / 1e6).round() as u64
        };
        let expected = [5_120, 8_192, 6_827, 8_192];
        assert_eq!([100, 250, 300, 1_000].map(milliseconds), expected);
    }

    #[test]
    fn the_tick_of_now_began_at_most_a_tick_ago() {
        let mut ticks = Ticks::measured().expect("needs root");
        let loaded = load().unwrap();
        let program = loaded.progs().next().unwrap();
        for _ in 0..100 {
            let before = monotonic_ns();
            let tick = present(program.as_fd()).unwrap() as u32;
            let after = monotonic_ns();
            ticks = ticks.refined();
            let began = ticks.begin_ns(tick, after);
            let length = ticks.length_ns as u64;
            // Known from above by two ticks or more of which one was hardly late.
            assert!(began <= after + length / 4, "{began} {after}");
            // Whoever counts may have been held up.
            let late = PATIENCE.as_nanos() as u64;
            assert!(began + length + late >= before, "{began} {before}");
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}
