//! Captures on this host: each has a probe, a thread and a store of its own.

use std::{
    io::Read as _,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use anyhow::Context as _;
use skua_analyzer::capture::{
    Capture, CaptureRunner, CaptureType, NodePoint, PointState as Fares, Running,
};
use skua_flow::FlowUpdate;
use skua_kernel::flow::FlowTableConfig;
use skua_probe::{
    LivePoints, Packets, PacketsConfig, PointId, PointSet, PointState, Probe, ProbeError, Wake,
    ebpf::{EbpfConfig, EbpfProbe},
    userspace::{self, UserspaceConfig, UserspaceProbe},
};
use uuid::Uuid;

use crate::{
    config::Config,
    session::{host_name, secret_seed},
    state::{Shared, State},
};

/// Longest part of a packet that can be kept.
const WHOLE_PACKET: u32 = 65_536;

/// What is captured, for queries.
#[derive(Clone)]
pub struct CaptureSet {
    /// Identifier of the capture.
    pub id: Uuid,
    /// Its flows.
    pub shared: Shared,
    /// Its packets, when some are kept.
    pub packets: Option<Packets>,
}

/// All captures that run on this host.
#[derive(Clone, Default)]
pub struct CaptureSets(Arc<RwLock<Vec<CaptureSet>>>);

impl CaptureSets {
    /// Those that run now.
    pub fn all(&self) -> Vec<CaptureSet> {
        let sets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sets.clone()
    }

    /// One of them.
    pub fn get(&self, id: Uuid) -> Option<CaptureSet> {
        self.all().into_iter().find(|set| set.id == id)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<CaptureSet>)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Starts captures on this host.
#[derive(Clone)]
pub struct LocalRunner {
    /// Settings that captures have in common.
    pub config: Config,
    /// Where captures are to be found that run.
    pub sets: CaptureSets,
}

/// A capture that runs.
struct Capturing {
    id: Uuid,
    points: LivePoints,
    sets: CaptureSets,
    stop: Arc<AtomicBool>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl LocalRunner {
    fn table(&self, capture: &Capture, seed: u64) -> FlowTableConfig {
        let config = &self.config;
        FlowTableConfig {
            max_entries: config.captures.max_entries,
            sampling: capture.sampling_rate,
            tunnels: config.flow.tunnels,
            idle_timeout: config.flow.idle_timeout,
            closed_timeout: config.flow.closed_timeout,
            hash_seed: seed,
            filter: capture.bpf_filter.clone(),
            ..FlowTableConfig::default()
        }
    }

    fn packets(&self, capture: &Capture) -> Option<PacketsConfig> {
        let bytes = match capture.header_size {
            0 => WHOLE_PACKET,
            bytes => bytes.min(WHOLE_PACKET),
        };
        (capture.raw_packet_limit != 0).then(|| PacketsConfig {
            first: u8::try_from(capture.raw_packet_limit).unwrap_or(0),
            bytes,
            ..PacketsConfig::default()
        })
    }

    fn probe(
        &self,
        capture: &Capture,
        points: &LivePoints,
        seed: u64,
    ) -> anyhow::Result<Box<dyn Probe>> {
        let scan_interval = std::time::Duration::from_secs(capture.polling_interval.max(1).into());
        let userspace = |kind| -> anyhow::Result<Box<dyn Probe>> {
            Ok(Box::new(UserspaceProbe::start(UserspaceConfig {
                capture: kind,
                points: Some(points.clone()),
                packets: self.packets(capture),
                table: self.table(capture, seed),
                scan_interval,
                ..UserspaceConfig::default()
            })?))
        };
        match capture.r#type {
            CaptureType::Ebpf => Ok(Box::new(EbpfProbe::start(EbpfConfig {
                points: Some(points.clone()),
                packets: self.packets(capture),
                table: self.table(capture, seed),
                scan_interval,
                ..EbpfConfig::default()
            })?)),
            CaptureType::Afpacket => userspace(userspace::Capture::Afpacket),
            CaptureType::Pcap => userspace(userspace::Capture::Pcap),
            other => anyhow::bail!("captures of type {} are not built yet", other.name()),
        }
    }

    fn begin(&self, capture: &Capture) -> anyhow::Result<Capturing> {
        let points = LivePoints::new(PointSet::new())?;
        let (wake, waker) = UnixStream::pair().context("cannot make a socket pair")?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let worker = Worker {
            runner: self.clone(),
            capture: capture.clone(),
            points: points.clone(),
            wake,
            stop: stop.clone(),
        };
        let far = waker.try_clone()?;
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || worker.run(far, &tell))?;
        // A probe lives on the thread that uses it.
        let set = told.recv().context("the capture's thread ended")??;
        self.sets.change(|sets| sets.push(set));
        Ok(Capturing {
            id: capture.uuid,
            points,
            sets: self.sets.clone(),
            stop,
            waker,
            thread: Some(thread),
        })
    }
}

/// The thread of a capture.
struct Worker {
    runner: LocalRunner,
    capture: Capture,
    points: LivePoints,
    wake: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn run(self, waker: UnixStream, tell: &mpsc::Sender<anyhow::Result<CaptureSet>>) {
        let started = self.start(waker);
        let (mut probe, shared) = match started {
            Ok((probe, set)) => {
                let shared = set.shared.clone();
                // Whoever asked for it waits.
                let _ = tell.send(Ok(set));
                (probe, shared)
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        if let Err(error) = self.follow(&mut *probe, &shared) {
            tracing::error!(capture = %self.capture.uuid, %error, "a capture ended");
        }
    }

    fn start(&self, waker: UnixStream) -> anyhow::Result<(Box<dyn Probe>, CaptureSet)> {
        let seed = secret_seed();
        let probe = self.runner.probe(&self.capture, &self.points, seed)?;
        let memory = self.runner.config.captures.memory;
        let mut state = State::new(memory, usize::MAX >> 16, seed, self.capture.sampling_rate);
        state.set_origin(&host_name(), &self.capture.uuid.to_string());
        state.map_memory = probe.map_memory();
        state.rung = probe.describe().rung;
        let set = CaptureSet {
            id: self.capture.uuid,
            shared: Shared::new(state, waker),
            packets: probe.packets(),
        };
        Ok((probe, set))
    }

    /// Drains until it is stopped, and a last time after detaching.
    fn follow(&self, probe: &mut dyn Probe, shared: &Shared) -> anyhow::Result<()> {
        while !self.stop.load(Ordering::Acquire) {
            let woken = probe.wait(Some(self.wake.as_fd()), None)?;
            let mut ignored = [0; 64];
            while matches!((&self.wake).read(&mut ignored), Ok(n) if n > 0) {}
            if woken == Wake::Caller && !shared.take_wanted() {
                continue;
            }
            drain(probe, shared, |probe, sink| probe.drain(woken, sink))?;
        }
        drain(probe, shared, |probe, sink| probe.finish(sink))
    }
}

fn drain(
    probe: &mut dyn Probe,
    shared: &Shared,
    drain: impl FnOnce(&mut dyn Probe, &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError>,
) -> anyhow::Result<()> {
    let mut state = shared.lock();
    for interface in probe.interfaces() {
        state.name_interface(&interface);
    }
    state.begin_drain();
    drain(probe, &mut |update| state.apply(update))?;
    state.account = probe.account();
    state.drains += 1;
    drop(state);
    shared.announce();
    Ok(())
}

fn id(point: &NodePoint) -> PointId {
    PointId {
        netns: point.netns_inode.into(),
        ifindex: point.ifindex,
    }
}

impl Running for Capturing {
    fn set_points(&mut self, points: &[NodePoint]) {
        self.points.replace(points.iter().map(id).collect());
    }

    fn state(&self, point: &NodePoint) -> Fares {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Fares::Refused("the capture ended; the log says why".into());
        }
        match self.points.state(id(point)) {
            Some(PointState::Active) => Fares::Active,
            Some(state @ (PointState::Refused(_) | PointState::Gone)) => {
                Fares::Refused(state.reason().into())
            }
            Some(PointState::Waiting(_)) | None => Fares::Pending,
        }
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A full socket means that the thread has been woken already.
        let _ = std::io::Write::write(&mut &self.waker, b"e");
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
        self.sets
            .change(|sets| sets.retain(|set| set.id != self.id));
    }
}

impl CaptureRunner for LocalRunner {
    fn check(&self, capture: &Capture) -> Result<(), String> {
        if !matches!(
            capture.r#type,
            CaptureType::Ebpf | CaptureType::Afpacket | CaptureType::Pcap
        ) {
            return Err(format!(
                "captures of type {} are not built yet: ebpf, afpacket or pcap",
                capture.r#type.name()
            ));
        }
        if !capture.target.is_empty() {
            return Err("Target: captures that send copies are not built yet".into());
        }
        Ok(())
    }

    fn start(&self, capture: &Capture) -> Result<Box<dyn Running>, String> {
        match self.begin(capture) {
            Ok(capturing) => Ok(Box::new(capturing)),
            Err(error) => Err(crate::output::one_line(&error)),
        }
    }
}
