//! The socket probe in the kernel: begin and end of TCP and UDP sockets of the whole host, with
//! their owners and TCP's own numbers. The contract is `docs/sockets.md`.

mod cgroup;
mod dump;
mod kprobes;
mod layout;
mod messages;
mod namespaces;
mod object;
mod owners;
mod pairs;
mod perf;
mod proof;
mod snapshot;

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    path::PathBuf,
};

use libbpf_rs::{MapCore as _, MapFlags};
use skua_socket::{HookState, HookStatus, PairUpdate, SocketLosses, SocketUpdate};

use crate::{KernelError, KernelTypes, clock, embedded, ring::Ring};
pub(crate) use cgroup::open_root;
use dump::Dump;
use layout::{CgroupMade, Clock, Plain as _, RawRecord, Settings};
use messages::Messages;
use object::Attached;
pub use object::Rung;
use pairs::Pairs;
use perf::Perf;
use snapshot::{IteratorBuffer, Snapshot};

/// What a tracer is made with.
#[derive(Clone, Debug)]
pub struct SocketTracerConfig {
    /// The kernel sums up ended connections by pairs, instead of one message for each.
    pub aggregate: bool,
    /// Know UDP sockets by their first send, too. Costs some tens of ns for each send of a socket
    /// that is not connected.
    pub udp_sends: bool,
    /// Sockets at a time at most, at least 256, where the kernel has no storage in the socket
    /// itself (before 5.15). Each takes 210 bytes of kernel memory from the start.
    pub max_sockets: u32,
    /// Pairs from drain to drain at most (aggregate mode), at least 1,024.
    pub max_pairs: u32,
    /// Room for ended sockets from drain to drain, bytes; rounded up to a power of two. A socket
    /// takes 240.
    pub ring_bytes: u32,
    /// Types of the running kernel, for a kernel that does not export them.
    pub btf: Option<PathBuf>,
}

impl Default for SocketTracerConfig {
    fn default() -> Self {
        Self {
            aggregate: false,
            udp_sends: true,
            max_sockets: 65_536,
            max_pairs: 16_384,
            ring_bytes: 8 << 20,
            btf: None,
        }
    }
}

/// Pairs that a table has room for in any case, so that the proof finds some.
const LEAST_PAIRS: u32 = 1024;

/// Room for paths of control groups from drain to drain.
const PATH_RING_BYTES: u32 = 256 << 10;

/// Socket programs, attached; dropping it detaches them.
pub struct SocketTracer {
    rung: Rung,
    // Links before objects, readers before maps: dropped in this order.
    ended: Messages,
    paths: Option<(Messages, Attached)>,
    pairs: Option<Pairs>,
    snapshot: Snapshot,
    /// Objects on the maps of `main`.
    _beside: Vec<Attached>,
    main: Attached,
    hooks: Vec<HookStatus>,
    /// What came while we proved the hooks, for the first drains.
    early: Vec<SocketUpdate>,
    early_pairs: Vec<PairUpdate>,
}

impl SocketTracer {
    /// Loads and attaches the best rung that proves to see an exchange of our own.
    pub fn start(config: SocketTracerConfig) -> Result<Self, KernelError> {
        Self::with_rungs(&Rung::LADDER, config)
    }

    /// As [`start`](Self::start), with the rungs to try.
    pub fn with_rungs(rungs: &[Rung], mut config: SocketTracerConfig) -> Result<Self, KernelError> {
        let types = KernelTypes::find(config.btf.as_deref())?;
        if types == KernelTypes::Missing {
            return Err(KernelError::NoTypes(types.describe()));
        }
        config.btf = types.file().map(Into::into);
        let mut refused = Vec::new();
        for rung in rungs.iter().copied() {
            match Self::attach(rung, &config).and_then(|tracer| proof::prove(tracer, &config)) {
                Ok(tracer) => return Ok(tracer),
                Err(error) => {
                    tracing::info!(rung = rung.describe(), %error, "rung not taken");
                    refused.push(format!("{}: {error}", rung.describe()));
                }
            }
        }
        Err(KernelError::NoRung(refused.join("; ")))
    }

    fn attach(rung: Rung, config: &SocketTracerConfig) -> Result<Self, KernelError> {
        // A ring buffer is a power of two and at least a page.
        let ring_bytes = config
            .ring_bytes
            .clamp(64 << 10, 1 << 30)
            .next_power_of_two();
        let settings = Settings {
            wake_at: ring_bytes / 4,
            aggregate: config.aggregate.into(),
            ..Settings::default()
        };
        let pairs = match config.aggregate {
            true => Some(Pairs::new(config.max_pairs.max(LEAST_PAIRS))?),
            false => None,
        };
        let template = pairs.as_ref().map(Pairs::template);
        let mut main = Attached::load(rung, settings, config, ring_bytes, template)?;
        if let Some(pairs) = &pairs {
            pairs.install(main.map("pairs")?.as_fd())?;
        }
        let ended = messages(rung, &main, "ended", ring_bytes, size_of::<RawRecord>())?;
        let mut hooks = Vec::new();
        let mut beside = Vec::new();
        // The hooks that name owners first: what begins then is complete.
        let snapshot = match rung {
            Rung::Btf => {
                let cgroup =
                    cgroup::open_root().and_then(|root| main.cgroup(settings, config, &root));
                beside.extend(note(&mut hooks, proof::CGROUP_HOOKS, cgroup));
                let accept = main.accept(settings, config);
                beside.extend(note(&mut hooks, proof::ACCEPT_HOOKS, accept));
                main.attach()?;
                let (files, open) = main.iterators()?;
                Snapshot::Iterators {
                    files,
                    open,
                    buffer: IteratorBuffer::new(),
                }
            }
            Rung::HashRing | Rung::HashPerf => {
                hooks = kprobes::attach(&mut main, config)?;
                main.attach()?;
                Snapshot::Dump(Dump::default())
            }
        };
        let paths = object::paths(rung, config, PATH_RING_BYTES).and_then(|attached| {
            let least = size_of::<CgroupMade>();
            let messages = messages(rung, &attached, "paths", PATH_RING_BYTES, least)?;
            Ok((messages, attached))
        });
        let paths = note(&mut hooks, proof::path_hooks(rung), paths);
        let mut tracer = Self {
            rung,
            ended,
            paths,
            pairs,
            snapshot,
            _beside: beside,
            main,
            hooks,
            early: Vec::new(),
            early_pairs: Vec::new(),
        };
        // What was open before.
        tracer.snapshot.find(&tracer.main)?;
        Ok(tracer)
    }

    /// Readable when a quarter of the ring is full: then [`ended`](Self::ended) should be called.
    pub fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ended.wake())
    }

    /// Hands out the sockets that ended since the last call.
    pub fn ended(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), KernelError> {
        for update in self.early.drain(..) {
            sink(&update);
        }
        let clock = Clock(clock::unix_offset_ns());
        self.ended.drain(&mut |bytes| {
            if let Some(update) = RawRecord::read(bytes).and_then(|r| r.update(clock)) {
                sink(&update);
            }
        })
    }

    /// Reports all open sockets of all network namespaces, listening ones included. A socket that changes
    /// meanwhile may be reported twice, or only in the next snapshot.
    pub fn open(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) -> Result<(), KernelError> {
        let clock = Clock(clock::unix_offset_ns());
        self.snapshot.run(&self.main, &mut |record| {
            if let Some(update) = record.update(clock) {
                sink(&update);
            }
        })
    }

    /// Hands out the sums of connections that ended since the last call (aggregate mode; else there are
    /// none). Each connection is in exactly one drain.
    pub fn pairs(&mut self, sink: &mut dyn FnMut(&PairUpdate)) -> Result<(), KernelError> {
        for update in self.early_pairs.drain(..) {
            sink(&update);
        }
        let Some(pairs) = &mut self.pairs else {
            return Ok(());
        };
        let clock = Clock(clock::unix_offset_ns());
        let outer = self.main.map("pairs")?;
        pairs.drain(outer.as_fd(), &mut |key, sums| {
            if let Some(update) = layout::pair(key, sums, clock) {
                sink(&update);
            }
        })
    }

    /// Reports the control groups that were made since the last call: id and path below the hierarchy's
    /// root. Of a storm only the first few thousand are kept.
    pub fn cgroups(&mut self, sink: &mut dyn FnMut(u64, &[u8])) {
        let Some((ring, _)) = &mut self.paths else {
            return;
        };
        let drained = ring.drain(&mut |bytes| {
            let Some(made) = CgroupMade::read(bytes) else {
                return;
            };
            let path = size_of::<CgroupMade>()..size_of::<CgroupMade>() + made.length as usize;
            if let Some(path) = bytes.get(path) {
                sink(made.id, path);
            }
        });
        // They only help where the mounted hierarchy is read too late.
        if let Err(error) = drained {
            tracing::debug!(%error, "no paths of control groups");
        }
    }

    /// What became no record, since the start.
    pub fn losses(&self) -> SocketLosses {
        SocketLosses {
            ring_full: self.count(0),
            table_full: self.count(1),
            pairs_full: self.count(2),
        }
    }

    /// How often the kernel refused a socket's storage; the program tries up to four times
    /// (`track_storage.h`), and a socket that gets none is counted as `table_full`.
    pub fn storage_refusals(&self) -> u64 {
        self.count(3)
    }

    /// A counter of `enum socket_loss`, over all processors.
    fn count(&self, cause: u32) -> u64 {
        let values = self.main.map("losses").ok().and_then(|map| {
            map.lookup_percpu(&cause.to_ne_bytes(), MapFlags::ANY)
                .ok()
                .flatten()
        });
        values
            .unwrap_or_default()
            .iter()
            .filter_map(|v| Some(u64::from_ne_bytes(v.get(..8)?.try_into().ok()?)))
            .sum()
    }

    /// How each hook does.
    pub fn hooks(&self) -> Vec<HookStatus> {
        self.hooks.clone()
    }

    /// The rung taken.
    pub fn describe(&self) -> String {
        self.rung.describe().into()
    }

    /// Kernel memory of each map by name, bytes. Storage in the sockets themselves is not in it.
    pub fn map_memory(&self) -> Vec<(String, u64)> {
        let mut maps = embedded::map_memory(&self.main.object);
        if let Some((_, attached)) = &self.paths {
            maps.extend(embedded::map_memory(&attached.object));
        }
        if let Some(pairs) = &self.pairs {
            maps.push(("pairs".into(), pairs.memory()));
        }
        maps
    }
}

/// Opens a map of messages of at least `message` bytes.
fn messages(
    rung: Rung,
    of: &Attached,
    map: &'static str,
    bytes: u32,
    message: usize,
) -> Result<Messages, KernelError> {
    let map = of.map(map)?;
    Ok(match rung {
        Rung::HashPerf => Messages::Perf(Perf::new(map.as_fd(), bytes)?),
        Rung::Btf | Rung::HashRing => Messages::Ring(Ring::new(map.as_fd(), bytes, message)?),
    })
}

/// Notes hooks as silent until they are proven, or why there are none.
fn note<T>(
    hooks: &mut Vec<HookStatus>,
    of: &[proof::Hook],
    attached: Result<T, KernelError>,
) -> Option<T> {
    let (state, reason) = match &attached {
        Ok(_) => (HookState::Silent, String::new()),
        Err(error) => (HookState::Unsupported, error.to_string()),
    };
    hooks.extend(of.iter().map(|hook| HookStatus {
        capability: hook.capability,
        hook: hook.hook.into(),
        state,
        reason: reason.clone(),
    }));
    attached.ok()
}
