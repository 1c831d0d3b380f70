//! When to return free memory to the system: after a peak, the allocator keeps free memory between
//! allocations in use for ever.

use std::time::{Duration, Instant};

/// Interval of measuring memory: it requires a walk through all data.
const INTERVAL: Duration = Duration::from_secs(60);
/// Less memory is not worth returning.
const WORTH: usize = 4 << 20;

/// The most memory in use since memory was last returned.
pub struct Peak {
    measured_at: Instant,
    bytes: usize,
}

impl Default for Peak {
    fn default() -> Self {
        Self {
            measured_at: Instant::now(),
            bytes: 0,
        }
    }
}

impl Peak {
    /// Whether memory should be measured.
    pub fn is_due(&mut self) -> bool {
        let due = self.measured_at.elapsed() >= INTERVAL;
        if due {
            self.measured_at = Instant::now();
        }
        due
    }

    /// Whether so little is in use that the rest should be returned to the system.
    pub fn has_fallen(&mut self, bytes: usize) -> bool {
        let fallen = bytes < self.bytes / 2 && self.bytes - bytes >= WORTH;
        self.bytes = if fallen { bytes } else { self.bytes.max(bytes) };
        fallen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_a_peak() {
        let mut peak = Peak::default();
        let mib = |n: usize| n << 20;
        let fallen: Vec<bool> = [1, 40, 100, 60, 49, 49, 10, 5, 1, 0]
            .map(mib)
            .map(|bytes| peak.has_fallen(bytes))
            .into();
        let expected = [
            false, false, false, false, true, false, true, false, true, false,
        ];
        // 49 of 100, 10 of 49, 1 of 10 MiB; 1 MiB is not worth it.
        assert_eq!(fallen, expected);
    }
}
