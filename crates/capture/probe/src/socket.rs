//! What sources of sockets have in common.

pub mod diag;
mod tracer;

use std::os::fd::BorrowedFd;

pub use skua_kernel::socket::{SocketTracer, SocketTracerConfig};
use skua_socket::{HookStatus, PairUpdate, SocketLosses, SocketUpdate};

use crate::ProbeError;

/// A live source of sockets. Use it from one thread: at each drain first [`ended`](Self::ended), then
/// [`pairs`](Self::pairs), [`cgroups`](Self::cgroups) and [`open`](Self::open).
pub trait SocketProbe {
    /// Becomes readable when ended sockets must be drained before the kernel's buffer is full; none when
    /// the rung has no such signal.
    fn wake(&self) -> Option<BorrowedFd<'_>>;

    /// Hands out the sockets that have ended since the last call.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn ended(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), ProbeError>;

    /// Reports all open sockets.
    ///
    /// # Errors
    ///
    /// When they cannot be listed.
    fn open(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), ProbeError>;

    /// Reports the connections that have ended since the last call, summed up by pair; none unless that is
    /// configured.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn pairs(&mut self, sink: &mut dyn FnMut(&PairUpdate)) -> Result<(), ProbeError> {
        let _ = sink;
        Ok(())
    }

    /// Hands out the control groups that were made since the last call: id and path.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn cgroups(&mut self, sink: &mut dyn FnMut(u64, &[u8])) -> Result<(), ProbeError> {
        let _ = sink;
        Ok(())
    }

    /// What did not become a record, since the start.
    fn losses(&self) -> SocketLosses;

    /// How each capability is had.
    fn hooks(&self) -> Vec<HookStatus>;

    /// What it works with, as users see it.
    fn describe(&self) -> String;

    /// Bytes of kernel memory that it takes, by name.
    fn map_memory(&self) -> Vec<(String, u64)>;
}
