//! A probe with the thread that drains it and the store that its flows go to.

use std::{
    io::Read as _,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use skua_control::capture::Capture;
use skua_flow::FlowUpdate;
use skua_probe::{
    Probe, ProbeError, Wake,
    receive::{ReceiveCause, Received},
};
use skua_process::host::secret_seed;
use skua_state::{
    DrainWait, Shared, State,
    captures::{CaptureSet, CaptureSets},
};

use crate::captures::{run::LocalRunner, target::Sending};

/// A probe that runs. Dropping it drains it a last time and ends it.
pub struct Part {
    number: u64,
    sets: CaptureSets,
    stop: Arc<AtomicBool>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Part {
    /// Starts what `open` makes, given the seed of its table. With a node, all flows are of that one.
    pub fn start<P: Probe + 'static, T: Send + 'static>(
        runner: &LocalRunner,
        capture: &Capture,
        node: Option<&str>,
        open: impl FnOnce(u64) -> anyhow::Result<(P, T)> + Send + 'static,
    ) -> anyhow::Result<(Self, T)> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (wake, waker) = UnixStream::pair().context("cannot make a socket pair")?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            number,
            runner: runner.clone(),
            capture: capture.clone(),
            node: node.map(str::to_owned),
            wake,
            stop: stop.clone(),
        };
        let far = waker.try_clone()?;
        let (opened, result) = mpsc::channel();
        // A probe lives on the thread that uses it.
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || worker.run(far, open, &opened))?;
        let (set, more) = result.recv().context("the capture's thread ended")??;
        runner.sets.change(|sets| sets.push(set));
        let part = Self {
            number,
            sets: runner.sets.clone(),
            stop,
            waker,
            thread: Some(thread),
        };
        Ok((part, more))
    }

    /// Whether it ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A full socket means that the thread has been woken already.
        let _ = std::io::Write::write(&mut &self.waker, b"e");
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
        let number = self.number;
        self.sets
            .change(|sets| sets.retain(|set| set.number != number));
    }
}

/// The thread of a probe.
struct Worker {
    number: u64,
    runner: LocalRunner,
    capture: Capture,
    node: Option<String>,
    wake: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn run<P: Probe, T>(
        self,
        waker: UnixStream,
        open: impl FnOnce(u64) -> anyhow::Result<(P, T)>,
        result: &mpsc::Sender<anyhow::Result<(CaptureSet, T)>>,
    ) {
        // The same for all: captures share programs that have it as a constant.
        static SEED: OnceLock<u64> = OnceLock::new();
        let seed = *SEED.get_or_init(secret_seed);
        let opened = open(seed).and_then(|(probe, more)| {
            let packets = probe.packets();
            let sending = Sending::start(&self.capture, packets.as_ref())?;
            Ok((sending, probe, more))
        });
        let (mut sending, mut probe, more) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // The caller waits for it.
                let _ = result.send(Err(error));
                return;
            }
        };
        let mut set = self.set(&probe, seed, waker);
        set.sent = sending.as_ref().map(Sending::sent);
        let shared = set.shared.clone();
        let _ = result.send(Ok((set, more)));
        if let Err(error) = self.follow(&mut probe, &shared, &mut sending) {
            tracing::error!(capture = %self.capture.uuid, %error, "a capture ended");
        }
    }

    fn set(&self, probe: &dyn Probe, seed: u64, waker: UnixStream) -> CaptureSet {
        let runner = &self.runner;
        let memory = runner.config.captures.memory;
        let mut state = State::new(memory, usize::MAX >> 16, seed, self.capture.sampling_rate);
        state.set_origin(
            &runner.config.host_name(),
            Some(self.capture.uuid),
            Some(runner.graph.clone()),
            runner.observers.clone(),
        );
        if let Some(node) = &self.node {
            state.set_node(node);
        }
        state.map_memory = probe.map_memory().into();
        state.rung = probe.describe().rung;
        CaptureSet {
            file: None,
            number: self.number,
            id: self.capture.uuid,
            shared: Shared::new(state, waker),
            packets: probe.packets(),
            sent: None,
        }
    }

    /// Drains until it is stopped, and a last time after detaching.
    fn follow(
        &self,
        probe: &mut dyn Probe,
        shared: &Shared,
        sending: &mut Option<Sending>,
    ) -> anyhow::Result<()> {
        let mut losses = Losses::default();
        while !self.stop.load(Ordering::Acquire) {
            let woken = probe.wait(Some(self.wake.as_fd()), None)?;
            let mut ignored = [0; 64];
            while matches!((&self.wake).read(&mut ignored), Ok(n) if n > 0) {}
            if woken == Wake::Caller && !shared.take_wanted() {
                continue;
            }
            drain(probe, shared, sending, |probe, sink| {
                probe.drain(woken, sink)
            })?;
            losses.warn(&self.capture, &shared.read().account.received);
        }
        drain(probe, shared, sending, |probe, sink| probe.finish(sink))
    }
}

/// Says in the log what a receiver lost, at most once a minute.
#[derive(Default)]
struct Losses {
    said: u64,
    at: Option<Instant>,
}

impl Losses {
    const INTERVAL: Duration = Duration::from_secs(60);

    fn warn(&mut self, capture: &Capture, received: &Received) {
        // Senders that are not allowed are left out on purpose.
        let causes = || {
            received
                .causes()
                .filter(|(cause, _)| *cause != ReceiveCause::NotAllowed)
        };
        let lost = causes().map(|(_, units)| units).sum();
        let early = self.at.is_some_and(|at| at.elapsed() < Self::INTERVAL);
        if lost <= self.said || early {
            return;
        }
        (self.said, self.at) = (lost, Some(Instant::now()));
        let causes: Vec<String> = causes()
            .map(|(cause, units)| format!("{} {units}", cause.name()))
            .collect();
        tracing::warn!(
            capture = %capture.uuid,
            lost = causes.join(", "),
            last_error = received.last_error.as_deref().unwrap_or_default(),
            "what others send is lost before it becomes a flow"
        );
    }
}

fn drain(
    probe: &mut dyn Probe,
    shared: &Shared,
    sending: &mut Option<Sending>,
    drain: impl FnOnce(&mut dyn Probe, &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError>,
) -> anyhow::Result<()> {
    let interfaces = probe.interfaces();
    let mut waited = DrainWait::default();
    let mut state = shared.drain(&mut waited);
    for interface in interfaces {
        state.name_interface(&interface);
    }
    state.begin_drain();
    drain(probe, &mut |update| {
        state.apply(update);
        if let Some(sending) = sending {
            sending.send_flow(update);
        }
    })?;
    state.end_drain(probe.account());
    state.waits.add(waited);
    drop(state);
    if let Some(sending) = sending {
        sending.end_drain();
    }
    shared.announce();
    Ok(())
}
