//! Lost records by cause.

use std::io;

/// Why something was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The writer could not keep up.
    Queue,
    /// Disk or quota full.
    DiskFull,
    /// The disk can only be read, or refuses otherwise.
    Io,
    /// Larger than the log's limit.
    TooLarge,
}

impl Cause {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            io::ErrorKind::FileTooLarge => Self::TooLarge,
            _ => Self::Io,
        }
    }
}

/// Records that were not written, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// The writer could not keep up.
    pub queue: u64,
    /// Disk or quota full.
    pub disk_full: u64,
    /// The disk can only be read, or refuses otherwise.
    pub io: u64,
    /// Larger than the log's limit.
    pub too_large: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, cause: Cause, records: u64) {
        let counter = match cause {
            Cause::Queue => &mut self.queue,
            Cause::DiskFull => &mut self.disk_full,
            Cause::Io => &mut self.io,
            Cause::TooLarge => &mut self.too_large,
        };
        *counter = counter.saturating_add(records);
    }

    /// Name and number of each cause, for metrics.
    pub fn by_cause(&self) -> [(&'static str, u64); 4] {
        [
            ("queue", self.queue),
            ("disk_full", self.disk_full),
            ("io", self.io),
            ("too_large", self.too_large),
        ]
    }

    /// All together.
    pub fn total(&self) -> u64 {
        let all = self.by_cause();
        all.iter()
            .fold(0, |sum, (_, records)| sum.saturating_add(*records))
    }
}
