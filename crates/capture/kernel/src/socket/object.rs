//! The objects of the socket programs: loading, sharing of maps, attaching.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use libbpf_rs::{Link, MapCore as _, OpenObject};

use super::{
    SocketTracerConfig,
    layout::{Plain as _, Settings},
};
use crate::{
    KernelError,
    embedded::{self, Loaded, object},
};

/// The kernel features for TCP's states and for snapshots of open sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rung {
    /// BTF tracepoints, socket storage, iterators: 5.15.
    Btf,
    /// Raw tracepoints, kprobes and a hash table, with a ring buffer: 5.8.
    HashRing,
    /// The same with perf events, types of the kernel from a file if need be: 5.4.
    HashPerf,
}

impl Rung {
    /// Best first.
    pub const LADDER: [Self; 3] = [Self::Btf, Self::HashRing, Self::HashPerf];

    /// As users see it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Btf => "BTF tracepoints with socket storage and iterators (5.15)",
            Self::HashRing => "raw tracepoints and kprobes with a hash table and ring buffer (5.8)",
            Self::HashPerf => "raw tracepoints and kprobes with a hash table and perf events (5.4)",
        }
    }

    /// The hook of TCP's states.
    pub(super) fn hook(self) -> &'static str {
        match self {
            Self::Btf => "tp_btf/inet_sock_set_state",
            Self::HashRing | Self::HashPerf => "raw_tp/inet_sock_set_state",
        }
    }

    /// The hooks of snapshots of open sockets.
    pub(super) fn snapshot_hooks(self) -> &'static str {
        match self {
            Self::Btf => "iter/task_file, iter/bpf_sk_storage_map",
            Self::HashRing | Self::HashPerf => "kprobe/sock_diag_save_cookie, proc_tgid_stat",
        }
    }

    fn bytes(self) -> (&'static str, &'static [u8]) {
        match self {
            Self::Btf => ("socket_btf", object!("socket_btf")),
            Self::HashRing => ("socket_hash_ring", object!("socket_hash_ring")),
            Self::HashPerf => ("socket_hash_perf", object!("socket_hash_perf")),
        }
    }
}

/// Maps that all objects of a rung share.
const SHARED_MAPS: [&str; 4] = ["tracks", "ended", "losses", "pairs"];

/// Programs of the first object that are run by reading, not by events.
const ITERATORS: [&str; 2] = ["socket_files", "socket_open"];

/// Sockets that a table has room for in any case, so that the proof finds some.
const LEAST_SOCKETS: u32 = 256;

/// Ports listened on, on kernels where the owner of a listening socket is kept beside it.
const MOST_LISTENERS: u32 = 16_384;

/// Programs of the first object that kprobes run: their functions differ from kernel to kernel.
pub(super) const PROBED_LATER: [&str; 10] = [
    "socket_grafted",
    "socket_accept",
    "socket_tcp_close",
    "socket_tcp_shutdown",
    "socket_udp_connect",
    "socket_udp_connected",
    "socket_udp_send",
    "socket_udp_destroy",
    "socket_looked",
    "socket_owner",
];

/// An object's programs, attached until it is dropped.
pub(super) struct Attached {
    pub object: Loaded,
    links: Vec<Link>,
}

fn cannot_attach(error: impl std::error::Error + Send + Sync + 'static) -> KernelError {
    KernelError::System {
        what: "cannot attach a socket program",
        source: std::io::Error::other(error),
    }
}

impl Attached {
    /// Loads the first object of a rung; attaches nothing yet.
    pub(super) fn load(
        rung: Rung,
        settings: Settings,
        config: &SocketTracerConfig,
        ring_bytes: u32,
        pairs: Option<BorrowedFd<'_>>,
    ) -> Result<Self, KernelError> {
        let object = embedded::load(
            rung.bytes(),
            settings.bytes(),
            config.btf.as_deref(),
            |open| {
                for mut map in open.maps_mut() {
                    match (map.name().to_str(), pairs) {
                        // libbpf makes perf events for each CPU.
                        (Some("ended"), _) if rung == Rung::HashPerf => {}
                        (Some("ended"), _) => map.set_max_entries(ring_bytes)?,
                        (Some("listeners"), _) => {
                            map.set_max_entries(config.max_sockets.clamp(1, MOST_LISTENERS))?
                        }
                        (Some("tracks"), _) if rung != Rung::Btf => {
                            map.set_max_entries(config.max_sockets.max(LEAST_SOCKETS))?;
                        }
                        (Some("pairs"), Some(inner)) => map.set_inner_map_fd(inner)?,
                        _ => {}
                    }
                }
                Ok(())
            },
        )?;
        Ok(Self {
            object,
            links: Vec::new(),
        })
    }

    /// Attaches the programs that events run.
    pub(super) fn attach(&mut self) -> Result<(), KernelError> {
        for program in self.object.progs_mut() {
            let elsewhere = ITERATORS
                .iter()
                .chain(&PROBED_LATER)
                .any(|name| program.name() == *name);
            if program.autoload() && !elsewhere {
                self.links.push(program.attach().map_err(cannot_attach)?);
            }
        }
        Ok(())
    }

    /// Attaches a program to the entry or the return of a kernel function.
    pub(super) fn attach_probe(
        &mut self,
        program: &'static str,
        function: &str,
        at_return: bool,
    ) -> Result<(), KernelError> {
        let program = self
            .object
            .progs_mut()
            .find(|p| p.name() == program)
            .ok_or(KernelError::Missing(program))?;
        let link = program
            .attach_kprobe(at_return, function)
            .map_err(|error| {
                cannot_attach(std::io::Error::other(format!("{function}: {error:#}")))
            })?;
        self.links.push(link);
        Ok(())
    }

    /// How many programs are attached.
    pub(super) fn links(&self) -> usize {
        self.links.len()
    }

    /// Detaches what was attached after there were `count`.
    pub(super) fn detach_from(&mut self, count: usize) {
        self.links.truncate(count);
    }

    /// An iterator over the file tables, and one over the sockets that are known.
    pub(super) fn iterators(&self) -> Result<(Link, Link), KernelError> {
        let program = |name: &'static str| {
            self.object
                .progs_mut()
                .find(|p| p.name() == name)
                .ok_or(KernelError::Missing(name))
        };
        let files = program("socket_files")?.attach().map_err(cannot_attach)?;
        let open = program("socket_open")?
            .attach_iter(self.map("tracks")?.as_fd())
            .map_err(cannot_attach)?;
        Ok((files, open))
    }

    /// Loads another object on the maps of this one.
    fn load_beside(
        &self,
        bytes: (&'static str, &[u8]),
        settings: Settings,
        btf: Option<&Path>,
        prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
    ) -> Result<Loaded, KernelError> {
        embedded::load(bytes, settings.bytes(), btf, |open| {
            for mut map in open.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                if SHARED_MAPS.contains(&name.as_str())
                    && let Some(shared) = self.object.maps().find(|m| m.name() == name.as_str())
                {
                    map.reuse_fd(shared.as_fd())?;
                }
            }
            prepare(open)
        })
    }

    /// The hooks of the unified hierarchy's root.
    pub(super) fn cgroup(
        &self,
        settings: Settings,
        config: &SocketTracerConfig,
        root: &OwnedFd,
    ) -> Result<Self, KernelError> {
        let object = self.load_beside(
            ("socket_cgroup", object!("socket_cgroup")),
            settings,
            config.btf.as_deref(),
            |open| {
                for mut program in open.progs_mut() {
                    if program.name().to_string_lossy().contains("sendmsg") {
                        program.set_autoload(config.udp_sends);
                    }
                }
                Ok(())
            },
        )?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if program.autoload() {
                links.push(
                    program
                        .attach_cgroup(root.as_raw_fd())
                        .map_err(cannot_attach)?,
                );
            }
        }
        Ok(Self { object, links })
    }

    /// The exit of inet_csk_accept, by the number of arguments that it has in this kernel: with
    /// the wrong one the program does not load.
    pub(super) fn accept(
        &self,
        settings: Settings,
        config: &SocketTracerConfig,
    ) -> Result<Self, KernelError> {
        let mut refused = None;
        for fitting in ["socket_accept_2", "socket_accept_4"] {
            let loaded = self
                .load_beside(
                    ("socket_accept", object!("socket_accept")),
                    settings,
                    config.btf.as_deref(),
                    |open| {
                        for mut program in open.progs_mut() {
                            program.set_autoload(program.name() == fitting);
                        }
                        Ok(())
                    },
                )
                .and_then(attach_all);
            match loaded {
                Ok(attached) => return Ok(attached),
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        Err(refused.unwrap_or(KernelError::Missing("socket_accept")))
    }

    /// A map by name.
    pub(super) fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, KernelError> {
        self.object
            .maps()
            .find(|m| m.name() == name)
            .ok_or(KernelError::Missing(name))
    }
}

/// Paths of control groups as they are made.
pub(super) fn paths(
    rung: Rung,
    config: &SocketTracerConfig,
    bytes: u32,
) -> Result<Attached, KernelError> {
    let object: (_, &[u8]) = match rung {
        Rung::Btf => ("socket_paths", object!("socket_paths")),
        Rung::HashRing => ("socket_paths_raw", object!("socket_paths_raw")),
        Rung::HashPerf => ("socket_paths_perf", object!("socket_paths_perf")),
    };
    embedded::load(object, &[], config.btf.as_deref(), |open| {
        for mut map in open.maps_mut() {
            if map.name() == "paths" && rung != Rung::HashPerf {
                map.set_max_entries(bytes)?;
            }
        }
        Ok(())
    })
    .and_then(attach_all)
}

fn attach_all(object: Loaded) -> Result<Attached, KernelError> {
    let mut attached = Attached {
        object,
        links: Vec::new(),
    };
    attached.attach()?;
    Ok(attached)
}
