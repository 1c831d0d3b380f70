//! A capture that runs: the probe, the state it fills, and what ends it.

use std::{
    io::Read as _,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::event::epoll;
use skua_config::{Config, arguments::CaptureType};
use skua_flow::{FlowUpdate, Mark, Prefix};
use skua_kernel::{HookKind, flow::FlowTableConfig};
use skua_probe::{
    Description, LiveAddresses, Probe, ProbeError, SocketProbe, Wake,
    ebpf::{EbpfConfig, EbpfProbe, LADDER},
    userspace::{Capture, UserspaceConfig, UserspaceProbe},
};
use skua_process::{
    heap::Peak,
    host::{secret_seed, unix_ns},
};
use skua_state::{
    DrainWait, Observers, Shared, State,
    sockets::{self, Sockets},
};
use skua_topology::SharedGraph;

use crate::{
    heads::{self, Heads},
    rights,
    sockets::start,
};

/// A probe with its state.
pub struct Session {
    probe: Box<dyn Probe>,
    shared: Shared,
    sockets: Option<Box<dyn SocketProbe>>,
    /// Readable when a signal came or a reader wants a drain.
    wake: UnixStream,
    /// Readable when that is, or when sockets have ended.
    any_wake: OwnedFd,
    /// When sockets were taken last because they said so.
    sockets_taken: Instant,
    /// Memory that sockets and their owners have taken.
    peak: Peak,
    stop: Arc<AtomicBool>,
    own_sockets: OwnSockets,
    /// Reads what is said in conversations.
    heads: Option<Heads>,
}

/// Sockets of ours, whose traffic is left out when that is wanted and the probe can.
#[derive(Clone)]
pub struct OwnSockets(Option<Arc<skua_kernel::flow::OwnSockets>>);

impl OwnSockets {
    /// Marks a socket, and those that it accepts.
    pub fn mark(&self, socket: BorrowedFd<'_>) -> anyhow::Result<()> {
        if let Some(own) = &self.0 {
            own.mark(socket)?;
        }
        Ok(())
    }
}

/// Sockets that have ended are taken at most so often because they say so.
const TAKE_INTERVAL: Duration = Duration::from_millis(50);

/// A descriptor that is readable when one of two is.
fn poll_both(one: &UnixStream, other: Option<BorrowedFd<'_>>) -> anyhow::Result<OwnedFd> {
    let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [Some(one.as_fd()), other].into_iter().flatten() {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&both, fd, data, epoll::EventFlags::IN)?;
    }
    Ok(both)
}

fn table_config(config: &Config, seed: u64) -> FlowTableConfig {
    FlowTableConfig {
        max_entries: config.flow.max_entries,
        sampling: config.flow.sampling,
        tunnels: config.flow.tunnels,
        idle_timeout: config.flow.idle_timeout,
        closed_timeout: config.flow.closed_timeout,
        hash_seed: seed,
        filter: config.flow.filter.clone(),
        exclude_self: config.flow.exclude_self,
        max_addresses: config.flow.addresses.max_entries,
        ..FlowTableConfig::default()
    }
}

/// A probe of the configured type.
fn start_probe(config: &Config, seed: u64) -> anyhow::Result<Box<dyn Probe>> {
    let addresses = config.flow.addresses.marks()?;
    if let Some(hook) = config.agent.hook {
        return Ok(Box::new(ebpf(config, &addresses, seed, vec![hook])?));
    }
    match config.agent.capture_type {
        CaptureType::Ebpf => Ok(Box::new(ebpf(config, &addresses, seed, LADDER.to_vec())?)),
        CaptureType::Xdp if config.flow.exclude_self => bail!(
            "leaving out our own traffic (flow.exclude_self) needs tc: at XDP there are no sockets yet"
        ),
        CaptureType::Xdp => Ok(Box::new(ebpf(
            config,
            &addresses,
            seed,
            vec![HookKind::Xdp],
        )?)),
        CaptureType::Afpacket => userspace(config, &addresses, seed, Capture::Afpacket),
        CaptureType::Pcap => userspace(config, &addresses, seed, Capture::Pcap),
        CaptureType::Auto => match ebpf(config, &addresses, seed, LADDER.to_vec()) {
            Ok(probe) => Ok(Box::new(probe)),
            // This kernel, or our rights in it, do not let us have a flow table there.
            Err(no_hook @ ProbeError::NoHook(_)) => {
                match userspace(config, &addresses, seed, Capture::Afpacket) {
                    Ok(probe) => {
                        let reason = rights::reason(&no_hook);
                        tracing::warn!("{reason}; counting in user space instead (afpacket)");
                        Ok(probe)
                    }
                    Err(error) => Err(error.context(no_hook)),
                }
            }
            Err(error) => Err(error.into()),
        },
    }
}

fn ebpf(
    config: &Config,
    addresses: &[(Prefix, Mark)],
    seed: u64,
    hooks: Vec<HookKind>,
) -> Result<EbpfProbe, ProbeError> {
    EbpfProbe::start(EbpfConfig {
        hooks,
        interfaces: config.agent.interfaces.clone(),
        all_netns: config.agent.all_netns,
        table: table_config(config, seed),
        addresses: addresses.to_vec(),
        scan_interval: config.agent.flow.ebpf.kernel_scan_interval,
        packets: heads::packets(&config.app),
        ..EbpfConfig::default()
    })
}

fn userspace(
    config: &Config,
    addresses: &[(Prefix, Mark)],
    seed: u64,
    capture: Capture,
) -> anyhow::Result<Box<dyn Probe>> {
    if config.flow.exclude_self {
        bail!(
            "leaving out our own traffic (flow.exclude_self) needs capture type ebpf: \
             {} does not see whose socket a packet comes from",
            capture.name()
        );
    }
    Ok(Box::new(UserspaceProbe::start(UserspaceConfig {
        capture,
        interfaces: config.agent.interfaces.clone(),
        all_netns: config.agent.all_netns,
        table: table_config(config, seed),
        addresses: addresses.to_vec(),
        scan_interval: config.agent.flow.ebpf.kernel_scan_interval,
        packets: heads::packets(&config.app),
        ..UserspaceConfig::default()
    })?))
}

impl Session {
    /// Starts to capture.
    pub fn start(
        config: &Config,
        records: usize,
        graph: Option<SharedGraph>,
        observers: Observers,
    ) -> anyhow::Result<Self> {
        rights::check(config.agent.capture_type)?;
        let (wake, waker) = UnixStream::pair().context("cannot make a socket pair")?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // A second signal ends the process at once.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
            signal_hook::low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        let seed = secret_seed();
        let probe = start_probe(config, seed)?;
        let mut state = State::new(config.history.memory, records, seed, config.flow.sampling);
        state.set_origin(&config.host_name(), None, graph, observers);
        state.map_memory = probe.map_memory().into();
        state.rung = probe.describe().rung;
        let heads = probe
            .packets()
            .map(|packets| Heads::read(&config.app, config.flow.tunnels, &packets));
        state.lookups = heads.as_ref().map(Heads::log);
        let mut sockets = None;
        if let Some(mut started) = start(config) {
            // What is there already, before the first packet.
            let watched = &mut started.state;
            sockets::drain(&mut *started.probe, unix_ns(), &mut |change| {
                change(watched)
            })?;
            state.sockets = Some(started.state);
            sockets = Some(started.probe);
        }
        let any_wake = poll_both(&wake, sockets.as_deref().and_then(|s| s.wake()))?;
        let own_sockets = match config.flow.exclude_self {
            true => probe.own_sockets()?,
            false => None,
        };
        let session = Self {
            sockets,
            any_wake,
            sockets_taken: Instant::now(),
            peak: Peak::default(),
            probe,
            shared: Shared::new(state, waker),
            wake,
            stop,
            own_sockets: OwnSockets(own_sockets.map(Arc::new)),
            heads,
        };
        for interface in session.probe.interfaces() {
            session.shared.write().name_interface(&interface);
        }
        Ok(session)
    }

    /// By which sockets are marked as ours.
    pub fn own_sockets(&self) -> OwnSockets {
        self.own_sockets.clone()
    }

    /// The state.
    pub fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// The address set, to change it.
    pub fn addresses(&self) -> LiveAddresses {
        self.probe.addresses()
    }

    /// Number of interfaces watched.
    pub fn interfaces(&self) -> usize {
        self.probe.interfaces().len()
    }

    /// How it captures.
    pub fn describe(&self) -> Description {
        self.probe.describe()
    }

    /// Drains until a signal comes or `duration` has passed; `after` is called after each drain
    /// and may end it by an error.
    pub fn run(
        &mut self,
        duration: Option<Duration>,
        mut after: impl FnMut(&Shared) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let end = duration.map(|d| Instant::now() + d);
        while !self.stop.load(Ordering::Acquire) && end.is_none_or(|e| Instant::now() < e) {
            let wake = self.probe.wait(Some(self.any_wake.as_fd()), end)?;
            let mut ignored = [0; 64];
            let mut called = false;
            while matches!(self.wake.read(&mut ignored), Ok(n) if n > 0) {
                called = true;
            }
            if wake == Wake::Caller && !self.shared.take_wanted() {
                if !called {
                    self.apply_ended_sockets();
                }
                continue;
            }
            self.drain(wake)?;
            after(&self.shared)?;
        }
        Ok(())
    }

    /// Reads the sockets that have ended before the kernel's buffer of them is full.
    fn apply_ended_sockets(&mut self) {
        // Sock_diag reports each end at once: read many at a time.
        std::thread::sleep(TAKE_INTERVAL.saturating_sub(self.sockets_taken.elapsed()));
        self.sockets_taken = Instant::now();
        let shared = &self.shared;
        if let Some(probe) = &mut self.sockets
            && let Err(error) = sockets::apply_ended(&mut **probe, &mut |change| {
                if let Some(sockets) = &mut shared.drain(&mut DrainWait::default()).sockets {
                    change(sockets);
                }
            })
        {
            tracing::warn!(%error, "sockets that have ended cannot be read");
        }
    }

    /// Looks at the sockets, so that flows find theirs. The kernel is read without the lock.
    fn drain_sockets(&mut self, now_ns: u64, waited: &mut DrainWait) {
        let Some(probe) = &mut self.sockets else {
            return;
        };
        let shared = &self.shared;
        let mut change = |change: &mut dyn FnMut(&mut Sockets)| {
            if let Some(sockets) = &mut shared.drain(waited).sockets {
                change(sockets);
            }
        };
        let namespaces = self.probe.namespaces();
        change(&mut |sockets| sockets.set_namespaces(&namespaces));
        if let Err(error) = sockets::drain(&mut **probe, now_ns, &mut change) {
            tracing::warn!(%error, "sockets cannot be read");
        }
    }

    /// Drains with what `read` hands out of the probe.
    fn drain_with(
        &mut self,
        read: impl FnOnce(&mut dyn Probe, &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError>,
    ) -> anyhow::Result<()> {
        let now_ns = unix_ns();
        let mut waited = DrainWait::default();
        self.drain_sockets(now_ns, &mut waited);
        if let Some(heads) = &self.heads {
            self.probe.read_packets()?;
            heads.expire(now_ns);
        }
        let interfaces = self.probe.interfaces();
        let mut state = self.shared.drain(&mut waited);
        for interface in interfaces {
            state.name_interface(&interface);
        }
        state.begin_drain_at(now_ns);
        state.join_late();
        read(&mut *self.probe, &mut |update| state.apply(update))?;
        state.end_drain(self.probe.account());
        state.waits.add(waited);
        drop(state);
        self.shared.announce();
        Ok(())
    }

    fn drain(&mut self, wake: Wake) -> anyhow::Result<()> {
        self.drain_with(|probe, sink| probe.drain(wake, sink))?;
        if self.peak.is_due() {
            let state = self.shared.read();
            let sockets = state.sockets.as_ref();
            let in_use = sockets.map(|s| s.store.memory() + s.owners.memory());
            drop(state);
            if in_use.is_some_and(|bytes| self.peak.has_fallen(bytes)) {
                skua_kernel::release_free_memory();
            }
        }
        Ok(())
    }

    /// Detaches, drains a last time, and returns the state.
    pub fn finish(mut self) -> anyhow::Result<Shared> {
        self.drain_with(|probe, sink| probe.finish(sink))?;
        Ok(self.shared)
    }
}
