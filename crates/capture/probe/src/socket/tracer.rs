//! Sockets by programs in the kernel.

use std::os::fd::BorrowedFd;

use skua_kernel::socket::SocketTracer;
use skua_socket::{HookStatus, PairUpdate, SocketLosses, SocketUpdate};

use super::SocketProbe;
use crate::ProbeError;

impl SocketProbe for SocketTracer {
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.wake()
    }

    fn ended(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), ProbeError> {
        Ok(self.ended(sink)?)
    }

    fn open(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), ProbeError> {
        Ok(self.open(sink)?)
    }

    fn pairs(&mut self, sink: &mut dyn FnMut(&PairUpdate)) -> Result<(), ProbeError> {
        Ok(self.pairs(sink)?)
    }

    fn cgroups(&mut self, sink: &mut dyn FnMut(u64, &[u8])) -> Result<(), ProbeError> {
        self.cgroups(sink);
        Ok(())
    }

    fn losses(&self) -> SocketLosses {
        self.losses()
    }

    fn hooks(&self) -> Vec<HookStatus> {
        self.hooks()
    }

    fn describe(&self) -> String {
        self.describe()
    }

    fn map_memory(&self) -> Vec<(String, u64)> {
        self.map_memory()
    }
}
