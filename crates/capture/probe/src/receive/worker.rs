//! A thread that ends when it is signalled.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    thread::JoinHandle,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::{PipeFlags, pipe_with},
};

use crate::ProbeError;

/// Dropping it ends the thread and waits for that.
pub(super) struct Worker {
    alive: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread; `work` gets a descriptor that is readable (hung up) when it is to end.
    pub(super) fn start(
        name: String,
        work: impl FnOnce(&OwnedFd) + Send + 'static,
    ) -> Result<Self, ProbeError> {
        let (end, alive) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|error| ProbeError::Wait(error.into()))?;
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || work(&end))
            .map_err(ProbeError::Wait)?;
        Ok(Self {
            alive: Some(alive),
            thread: Some(thread),
        })
    }

    /// Signals the thread to end without waiting for it.
    pub(super) fn request_stop(&mut self) {
        self.alive = None;
    }

    /// Whether the thread has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

/// What [`await_readable`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readable {
    /// The thread is to end.
    End,
    /// The descriptor is readable.
    Ready,
    /// Neither, for the whole time.
    Silent,
}

/// Waits until a descriptor is readable, or the thread is to end, or `timeout` is over.
pub(super) fn await_readable(
    fd: BorrowedFd<'_>,
    end: &OwnedFd,
    timeout: Option<&Timespec>,
) -> Readable {
    let mut fds = [
        PollFd::from_borrowed_fd(fd, PollFlags::IN),
        PollFd::new(end, PollFlags::IN),
    ];
    match poll(&mut fds, timeout) {
        Ok(0) => Readable::Silent,
        // Interrupted is as good as woken for nothing.
        Err(_) => Readable::Ready,
        Ok(_) if !fds[1].revents().is_empty() => Readable::End,
        Ok(_) => Readable::Ready,
    }
}
