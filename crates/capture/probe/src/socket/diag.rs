//! Sockets without programs in the kernel: by NETLINK_SOCK_DIAG.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use skua_link::Namespaces;
use skua_sockdiag::SockDiag;
use skua_socket::{HookStatus, SocketLosses, SocketUpdate};

use super::SocketProbe;
use crate::ProbeError;

/// The last rung of the socket probe. It follows namespaces itself.
pub struct DiagProbe {
    namespaces: Namespaces,
    diag: SockDiag,
    /// Readable when one of the monitors is.
    wake: OwnedFd,
}

impl DiagProbe {
    /// Begins to watch the sockets of all namespaces that can be entered.
    ///
    /// # Errors
    ///
    /// When not even those of our own can be listed.
    pub fn start() -> Result<Self, ProbeError> {
        let namespaces = Namespaces::discover(true)?;
        let diag = SockDiag::start(namespaces.list().iter())?;
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wait)?;
        let probe = Self {
            namespaces,
            diag,
            wake,
        };
        probe.watch()?;
        Ok(probe)
    }

    /// Watches all monitors; the kernel removes those that were closed.
    fn watch(&self) -> Result<(), ProbeError> {
        for monitor in self.diag.wake() {
            let data = epoll::EventData::new_u64(0);
            match epoll::add(&self.wake, monitor, data, epoll::EventFlags::IN) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(wait(error)),
            }
        }
        Ok(())
    }
}

fn wait(error: rustix::io::Errno) -> ProbeError {
    ProbeError::Wait(error.into())
}

impl SocketProbe for DiagProbe {
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.as_fd())
    }

    fn ended(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), ProbeError> {
        self.diag.ended(sink);
        Ok(())
    }

    fn open(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), ProbeError> {
        let changes = self.namespaces.refresh()?;
        if changes != skua_link::Changes::default() {
            self.diag.set_namespaces(self.namespaces.list().iter());
            self.watch()?;
        }
        self.diag.open(sink);
        Ok(())
    }

    fn losses(&self) -> SocketLosses {
        self.diag.losses()
    }

    fn hooks(&self) -> Vec<HookStatus> {
        self.diag.describe()
    }

    fn describe(&self) -> String {
        "sock_diag, polled with every drain".to_owned()
    }

    fn map_memory(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
