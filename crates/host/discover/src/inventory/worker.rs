//! A thread that polls a source when it is called, when descriptors are readable, or when it is time.

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

/// How long to sleep at a time when there is nothing to wait for but calls.
const RESTING: Duration = Duration::from_secs(3_600);

/// What a worker polls.
pub(super) trait Source: Send + 'static {
    /// Descriptors that become readable when there is something new; `work` reads them empty.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// When to poll without a call; none when all changes are announced.
    fn next(&self) -> Option<Instant>;

    /// Until when the source rests, calls included: polling must not take too much of the time.
    fn quiet_until(&self) -> Instant;

    /// Polls; `called`: not only because it is time.
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

    /// Makes the worker poll soon. Several calls before that are one.
    pub fn call(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Clears the calls.
    pub fn clear(&self) -> bool {
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
    /// Starts the thread.
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
        if now >= quiet && (called || next.is_some_and(|next| now >= next)) {
            source.work(std::mem::take(&mut called));
            continue;
        }
        // Who is called waits for its rest to end, and for nothing else.
        let until = if called {
            quiet
        } else {
            next.map_or(now + RESTING, |next| next.max(quiet))
        };
        match wait(&source, wake, called, until.saturating_duration_since(now)) {
            Ok(ready) => called |= ready,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "a part of discovery has ended: cannot wait");
                return;
            }
        }
    }
}

/// Waits for a call or, unless it was `called` already, for what the source's descriptors have; whether there
/// is any.
fn wait(
    source: &impl Source,
    wake: &Wake,
    called: bool,
    patience: Duration,
) -> Result<bool, rustix::io::Errno> {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    let mut waiting = vec![PollFd::from_borrowed_fd(wake.0.as_fd(), PollFlags::IN)];
    let descriptors = if called {
        Vec::new()
    } else {
        source.descriptors()
    };
    for descriptor in &descriptors {
        waiting.push(PollFd::from_borrowed_fd(*descriptor, PollFlags::IN));
    }
    let ready = poll(&mut waiting, Some(&timeout))?;
    wake.clear();
    Ok(ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Sends whether each poll was called; rests after each.
    struct TestSource {
        sender: Sender<bool>,
        rest: Duration,
        quiet_until: Instant,
        ready: Wake,
    }

    impl Source for TestSource {
        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            vec![self.ready.descriptor().as_fd()]
        }

        fn next(&self) -> Option<Instant> {
            None
        }

        fn quiet_until(&self) -> Instant {
            self.quiet_until
        }

        fn work(&mut self, called: bool) {
            self.ready.clear();
            self.quiet_until = Instant::now() + self.rest;
            let _ = self.sender.send(called);
        }
    }

    fn start(rest: Duration) -> (Worker, Wake, Wake, Receiver<bool>) {
        let (sender, polls) = channel();
        let (wake, ready) = (Wake::new().unwrap(), Wake::new().unwrap());
        let source = TestSource {
            sender,
            rest,
            quiet_until: Instant::now(),
            ready: ready.clone(),
        };
        let worker = Worker::start("looks", wake.clone(), source).unwrap();
        assert!(polls.recv().unwrap(), "at the start it looks");
        (worker, wake, ready, polls)
    }

    #[test]
    fn without_a_time_it_looks_when_it_is_called_or_told() {
        let (worker, wake, ready, polls) = start(Duration::ZERO);
        for waking in [&wake, &ready, &wake] {
            waking.call();
            assert!(polls.recv().unwrap());
        }
        drop(worker);
        assert!(polls.recv().is_err(), "nobody called");
    }

    #[test]
    fn while_it_rests_it_does_not_look_and_can_be_ended() {
        let (worker, wake, ready, polls) = start(RESTING);
        for waking in [&ready, &wake, &ready, &wake] {
            waking.call();
        }
        drop(worker);
        assert!(polls.recv().is_err());
    }
}
