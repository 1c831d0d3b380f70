//! Messages of ended sockets, by whichever way the kernel has.

use std::os::fd::BorrowedFd;

use super::perf::Perf;
use crate::{KernelError, ring::Ring, sink::Sink};

/// Where a rung's programs put their messages.
pub(super) enum Messages {
    /// One ring buffer.
    Ring(Ring),
    /// Perf events of each CPU.
    Perf(Perf),
}

impl Messages {
    /// Readable when there is much to take.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ring(ring) => ring.wake(),
            Self::Perf(perf) => perf.wake(),
        }
    }

    /// Drains all messages.
    pub(super) fn drain(&mut self, sink: &mut Sink<'_>) -> Result<(), KernelError> {
        match self {
            Self::Ring(ring) => ring.drain(sink).map(drop),
            Self::Perf(perf) => perf.drain(sink),
        }
    }
}
