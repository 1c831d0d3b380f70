//! Namespaces and interfaces, over netlink.
//!
//! One thread waits for the monitors of all namespaces, for changes of the mounts (which is how named
//! namespaces come and go), for the end of the processes that others are named after, and for the next time
//! to read counters. It applies the kernel's events one by one, in their order.

mod engine;
mod events;
mod interface;
mod kinds;
mod listing;
mod names;
mod neighbours;
mod nodes;
mod relations;
mod routes;
mod space;

use crate::{DiscoveryConfig, DiscoveryError, counters::Shared, inventory::Wake};
use engine::{Engine, READ_AT_ONCE};
pub(crate) use relations::OWNERSHIP;
use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, Timespec, epoll, eventfd},
    fs::{Mode, OFlags},
    process::{Pid, PidfdFlags, pidfd_open},
};
use skua_topology::SharedGraph;
use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc, thread::JoinHandle, time::Instant};

/// Most descriptors that are handled in one turn.
const READY_AT_ONCE: usize = 64;

/// What is waited for: the kind in the upper half, the number of the namespace in the lower one.
const STOP: u64 = 0;
const MOUNTS: u64 = 1 << 32;
const MONITOR: u64 = 2 << 32;
const ETHTOOL: u64 = 3 << 32;
const PROCESS: u64 = 4 << 32;
const WISH: u64 = 5 << 32;

/// The thread that follows namespaces; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Provider {
    thread: Option<JoinHandle<()>>,
    stop: Arc<OwnedFd>,
}

impl Provider {
    /// Fills the graph, then follows changes; also returns the identifier of the host's node. A call of
    /// `request` lists namespaces again.
    pub fn start(
        config: DiscoveryConfig,
        graph: SharedGraph,
        counters: Arc<Shared>,
        request: Wake,
    ) -> Result<(Self, Arc<str>), DiscoveryError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(DiscoveryError::system("eventfd"))?;
        let stop = Arc::new(stop);
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(DiscoveryError::system("epoll"))?;
        let follow = config.all_netns;
        // Opened before namespaces are listed, so that no change is missed.
        let mounts = follow.then(open_mounts).flatten();
        let waiting = Loop {
            epoll,
            mounts,
            processes: HashMap::new(),
            request,
            engine: Engine::new(config, graph, counters)?,
        };
        waiting
            .wait_for(waiting.request.descriptor(), WISH, epoll::EventFlags::IN)
            .map_err(DiscoveryError::system("epoll"))?;
        waiting
            .wait_for(&*stop, STOP, epoll::EventFlags::IN)
            .map_err(DiscoveryError::system("epoll"))?;
        if let Some(mounts) = &waiting.mounts {
            // Always readable; changes come as errors.
            let flags = epoll::EventFlags::PRI;
            waiting
                .wait_for(mounts, MOUNTS, flags)
                .map_err(DiscoveryError::system("epoll"))?;
        }
        let host = waiting.engine.host().clone();
        let thread = std::thread::Builder::new()
            .name("discover-net".into())
            .spawn(move || waiting.run())
            .map_err(DiscoveryError::system("starting a thread"))?;
        let thread = Some(thread);
        Ok((Self { thread, stop }, host))
    }

    /// Whether the thread still works.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The mounts of our mount namespace: `ip netns add` mounts a file, and `ip netns del` unmounts it. A watch
/// on the directory would only report the file, before it is a namespace.
fn open_mounts() -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty()).ok()
}

struct Loop {
    engine: Engine,
    epoll: OwnedFd,
    mounts: Option<OwnedFd>,
    request: Wake,
    /// Processes that namespaces are named after, by number of the namespace.
    processes: HashMap<u16, (String, OwnedFd)>,
}

impl Loop {
    fn wait_for(
        &self,
        what: impl std::os::fd::AsFd,
        token: u64,
        flags: epoll::EventFlags,
    ) -> Result<(), rustix::io::Errno> {
        epoll::add(&self.epoll, what, epoll::EventData::new_u64(token), flags)
    }

    fn run(mut self) {
        let mut ready = Vec::with_capacity(READY_AT_ONCE);
        loop {
            self.follow();
            let rest = self.engine.next().saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: rest.subsec_nanos().into(),
            };
            ready.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "discovery has ended: cannot wait");
                    return;
                }
            }
            for event in &ready {
                let token = event.data.u64();
                let number = (token & 0xffff) as u16;
                match token & !0xffff {
                    STOP => return,
                    MONITOR => {
                        self.engine.read(number, READ_AT_ONCE);
                    }
                    ETHTOOL => self.engine.read_ethtool(number, READ_AT_ONCE),
                    PROCESS => {
                        self.processes.remove(&number);
                        self.engine.list_namespaces.request(Instant::now());
                    }
                    WISH => {
                        self.request.clear();
                        self.engine.list_namespaces.request(Instant::now());
                    }
                    _ => self.engine.list_namespaces.request(Instant::now()),
                }
            }
            self.engine.work(Instant::now());
        }
    }

    /// Waits for what has been opened since.
    fn follow(&mut self) {
        for number in std::mem::take(&mut self.engine.opened) {
            let Some(space) = self.engine.spaces.get(&number) else {
                continue;
            };
            let flags = epoll::EventFlags::IN;
            let token = u64::from(number);
            let added = self.wait_for(&space.sockets.monitor, MONITOR | token, flags);
            if let Some(monitor) = &space.sockets.ethtool_monitor {
                let _ = self.wait_for(monitor, ETHTOOL | token, flags);
            }
            if let Err(error) = added {
                // Out of descriptors: changes are seen at the next listing.
                tracing::warn!(%error, "cannot wait for changes of a network namespace");
            }
        }
        self.follow_processes();
    }

    /// Waits for the end of the processes that namespaces are named after: a namespace ends with the last
    /// one, unless we keep it.
    fn follow_processes(&mut self) {
        let namespaces = &self.engine.namespaces;
        self.processes
            .retain(|number, (name, _)| namespaces.get(*number).is_some_and(|n| n.name == *name));
        for namespace in namespaces.list() {
            let number = namespace.number;
            let pid = namespace.name.strip_prefix("pid:");
            let Some(pid) = pid.filter(|_| !self.processes.contains_key(&number)) else {
                continue;
            };
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            // Without pidfd (before 5.3) it is seen when counters are read.
            let Some(Ok(fd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
                continue;
            };
            let token = PROCESS | u64::from(number);
            if self.wait_for(&fd, token, epoll::EventFlags::IN).is_ok() {
                self.processes.insert(number, (namespace.name.clone(), fd));
            }
        }
    }
}
