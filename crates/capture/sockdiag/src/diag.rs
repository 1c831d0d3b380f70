//! The probe: polls the sockets of several namespaces and receives their ends.

use crate::Error;
use crate::netlink::{DestroyMonitor, DiagSocket};
use crate::process::Processes;
use crate::proof::{self, Proof};
use crate::record::Record;
use crate::table::Table;
use rustix::time::{ClockId, clock_gettime};
use skua_link::{Namespace, NamespaceId};
use skua_socket::{HookState, HookStatus, SocketLosses, SocketUpdate};
use std::os::fd::{AsFd, BorrowedFd};

/// `net.ipv4.tcp_syn_retries` where it cannot be read.
const SYN_RETRIES: u8 = 6;

/// A namespace that is watched.
#[derive(Debug)]
struct Watched {
    id: NamespaceId,
    query: DiagSocket,
    monitor: Option<DestroyMonitor>,
    /// Dropped notifications at the last reading of the kernel's counter.
    dropped: u64,
    syn_retries: u8,
    /// The last poll saw all sockets.
    complete: bool,
}

/// Watches sockets without BPF. See `docs/sockets.md`, section 6.
#[derive(Debug)]
pub struct SockDiag {
    namespaces: Vec<Watched>,
    /// Namespaces that could not be watched, and why.
    refused: Vec<(NamespaceId, String)>,
    table: Table,
    processes: Processes,
    proof: Proof,
    ring_full: u64,
}

impl SockDiag {
    /// Watches the sockets of these namespaces. Namespaces that may not be entered are left out
    /// (see [`describe`](Self::describe)); it is an error only when none is left.
    pub fn start<'a>(namespaces: impl Iterator<Item = &'a Namespace>) -> Result<Self, Error> {
        let mut probe = Self {
            namespaces: Vec::new(),
            refused: Vec::new(),
            table: Table::default(),
            processes: Processes::new(),
            proof: Proof::default(),
            ring_full: 0,
        };
        let mut first_error = None;
        for namespace in namespaces {
            if let Err(error) = probe.watch(namespace) {
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            Some(error) if probe.namespaces.is_empty() => Err(error),
            _ => Ok(probe),
        }
    }

    /// Watches these namespaces from now on, and no others. Sockets of a namespace that is left
    /// out are forgotten without an end.
    pub fn set_namespaces<'a>(&mut self, namespaces: impl Iterator<Item = &'a Namespace>) {
        let selected: Vec<&Namespace> = namespaces.collect();
        let is_selected = |id: NamespaceId| selected.iter().any(|namespace| namespace.id == id);
        self.namespaces.retain(|watched| is_selected(watched.id));
        self.refused.retain(|(id, _)| is_selected(*id));
        let kept = &self.namespaces;
        self.table
            .keep_namespaces(&|netns| kept.iter().any(|watched| inode(watched.id) == netns));
        for namespace in selected {
            let is_known = self.namespaces.iter().any(|w| w.id == namespace.id)
                || self.refused.iter().any(|(id, _)| *id == namespace.id);
            if !is_known {
                // It is noted in `refused`.
                let _ = self.watch(namespace);
            }
        }
    }

    fn watch(&mut self, namespace: &Namespace) -> Result<(), Error> {
        let prove = self.namespaces.is_empty();
        let watched = namespace
            .enter(|| Watched::open(namespace.id, prove))
            .map_err(Error::from)
            .and_then(|opened| opened);
        match watched {
            Ok((watched, proof)) => {
                if let Some(proof) = proof {
                    self.proof = proof;
                }
                self.namespaces.push(watched);
                Ok(())
            }
            Err(error) => {
                self.refused.push((namespace.id, error.to_string()));
                Err(error)
            }
        }
    }

    /// Descriptors that become readable when sockets have ended: then call [`ended`](Self::ended),
    /// for the kernel drops what does not fit.
    pub fn wake(&self) -> Vec<BorrowedFd<'_>> {
        let monitors = self.namespaces.iter().filter_map(|w| w.monitor.as_ref());
        monitors.map(AsFd::as_fd).collect()
    }

    /// Gives the sockets that have ended since the last call to `sink`, without waiting.
    pub fn ended(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) {
        for watched in &mut self.namespaces {
            let Some(monitor) = &mut watched.monitor else {
                continue;
            };
            let (netns, syn_retries) = (inode(watched.id), watched.syn_retries);
            let table = &mut self.table;
            let heard = monitor.read(&mut |record: &Record| {
                table.destroyed(netns, syn_retries, record, now_ns(), sink);
            });
            match heard {
                Ok(heard) => {
                    self.ring_full += heard.unreadable;
                    if heard.overrun {
                        // How many is known only inside the namespace: `drops` reads it there.
                        self.ring_full += watched.drops();
                    }
                }
                // The monitor failed: ends are found by polls from now on.
                Err(_) => watched.monitor = None,
            }
        }
    }

    /// Polls all sockets and gives each open one to `sink`, listening ones included. Ends that the poll has
    /// found come first.
    pub fn open(&mut self, sink: &mut dyn FnMut(&SocketUpdate)) {
        self.table.begin(now_ns());
        for watched in &mut self.namespaces {
            let netns = inode(watched.id);
            let table = &mut self.table;
            let result = watched
                .query
                .dump_all(&mut |record| table.observe(netns, record, sink));
            watched.complete = result.is_ok();
        }
        self.processes.scan(&self.table.inodes());
        // A socket that ended during the poll is reported as ended, not as open.
        self.ended(sink);
        let (processes, namespaces) = (&self.processes, &self.namespaces);
        self.table.finish(
            &|inode| processes.holder(inode),
            &|netns| {
                let watched = namespaces.iter().find(|w| inode(w.id) == netns);
                watched.is_some_and(|watched| watched.complete)
            },
            sink,
        );
    }

    /// What did not become a record. `ring_full`: ends that the kernel dropped because they were not read
    /// in time, also of sockets without a record; `table_full`: open sockets (once per poll) beyond the
    /// limit.
    pub fn losses(&self) -> SocketLosses {
        SocketLosses {
            ring_full: self.ring_full,
            table_full: self.table.table_full(),
            ..SocketLosses::default()
        }
    }

    /// Connections that came and went between two polls and whose address and numbers the kernel had
    /// cleared before it reported their end: a blocking connect that failed, and a close with a linger time
    /// of 0.
    pub fn unrecorded(&self) -> u64 {
        self.table.unrecorded()
    }

    /// What works here.
    pub fn describe(&self) -> Vec<HookStatus> {
        let mut all = vec![self.proof.dump.clone(), self.proof.destroyed.clone()];
        for watched in &self.namespaces {
            let missing = watched.monitor.as_ref().map(|m| m.missing.join("; "));
            let reason = match missing {
                Some(missing) if missing.is_empty() => continue,
                Some(missing) => missing,
                None => "cannot be read".to_owned(),
            };
            all.push(HookStatus {
                capability: proof::CLOSE,
                hook: format!("{} in namespace {}", proof::GROUPS, inode(watched.id)),
                state: HookState::Unsupported,
                reason,
            });
        }
        all.extend(self.refused.iter().map(|(id, reason)| HookStatus {
            capability: proof::EXISTING,
            hook: format!("{} in namespace {}", proof::DUMP, inode(*id)),
            state: HookState::Unsupported,
            reason: reason.clone(),
        }));
        all
    }
}

impl Watched {
    /// Opens the sockets in the calling thread's namespace; with `prove` shows that they work.
    fn open(id: NamespaceId, prove: bool) -> Result<(Self, Option<Proof>), Error> {
        let mut query = DiagSocket::open()?;
        let mut monitor = DestroyMonitor::open();
        let proof = prove.then(|| proof::prove(&mut query, monitor.as_mut()));
        let syn_retries = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_syn_retries");
        let watched = Self {
            id,
            query,
            monitor: monitor.ok(),
            dropped: 0,
            syn_retries: syn_retries
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(SYN_RETRIES),
            complete: false,
        };
        Ok((watched, proof))
    }

    /// Notifications dropped since the last call; at least one.
    fn drops(&mut self) -> u64 {
        let Some(monitor) = &self.monitor else {
            return 0;
        };
        let Some(total) = monitor.dropped() else {
            return 1;
        };
        let new = total.saturating_sub(self.dropped);
        self.dropped = total;
        new.max(1)
    }
}

/// Inode number of a namespace: 32 bits in the kernel.
fn inode(id: NamespaceId) -> u32 {
    u32::try_from(id.inode).unwrap_or(0)
}

/// Nanoseconds since the Unix epoch.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
