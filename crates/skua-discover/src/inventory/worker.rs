//! A thread that looks at something when it is called, when descriptors say so, or when it is time.

use crate::DiscoveryError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// What a worker looks at.
pub(super) trait Source: Send + 'static {
    /// Descriptors that become readable when there is something new; `work` reads them empty.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// When to look without being called.
    fn next(&self) -> Instant;

    /// Until when it rests, whoever calls: looking is not to take too much of the time.
    fn quiet_until(&self) -> Instant;

    /// Looks; `called`: not only because it is time.
    fn work(&mut self, called: bool);
}

/// Calls a worker.
#[derive(Debug, Clone)]
pub(crate) struct Wake(Arc<OwnedFd>);

impl Wake {
    /// Of a worker that has not begun yet.
    pub fn new() -> Result<Self, DiscoveryError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self(Arc::new(
            fd.map_err(DiscoveryError::system("eventfd"))?,
        )))
    }

    /// Has the worker look soon. Several calls before it does are one.
    pub fn call(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Takes the calls.
    pub fn take(&self) -> bool {
        rustix::io::read(&*self.0, &mut [0; 8]).is_ok()
    }

    /// Readable when it was called.
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.0
    }
}

/// A thread with a source; dropping it ends it.
#[derive(Debug)]
pub(super) struct Worker {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    wake: Wake,
}

impl Worker {
    /// Begins to look.
    pub fn start(name: &str, wake: Wake, source: impl Source) -> Result<Self, DiscoveryError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, called) = (stop.clone(), wake.clone());
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(source, &called, &stopping))
            .map_err(DiscoveryError::system("starting a thread"))?;
        Ok(Self {
            thread: Some(thread),
            stop,
            wake,
        })
    }

    /// Whether the thread still works.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.call();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut source: impl Source, wake: &Wake, stop: &AtomicBool) {
    let mut called = true;
    while !stop.load(Ordering::Acquire) {
        let now = Instant::now();
        let (quiet, next) = (source.quiet_until(), source.next());
        let open = now >= quiet;
        if open && (called || now >= next) {
            source.work(std::mem::take(&mut called));
            continue;
        }
        let until = if open { next } else { quiet };
        match wait(&source, wake, open, until.saturating_duration_since(now)) {
            Ok(ready) => called |= ready,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "a part of discovery has ended: cannot wait");
                return;
            }
        }
    }
}

/// Waits for a call or, when it is `open`, for what the source's descriptors have; whether there is any.
fn wait(
    source: &impl Source,
    wake: &Wake,
    open: bool,
    patience: Duration,
) -> Result<bool, rustix::io::Errno> {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    let mut waiting = vec![PollFd::from_borrowed_fd(wake.0.as_fd(), PollFlags::IN)];
    let descriptors = if open {
        source.descriptors()
    } else {
        Vec::new()
    };
    for descriptor in &descriptors {
        waiting.push(PollFd::from_borrowed_fd(*descriptor, PollFlags::IN));
    }
    let ready = poll(&mut waiting, Some(&timeout))?;
    wake.take();
    Ok(ready > 0)
}
