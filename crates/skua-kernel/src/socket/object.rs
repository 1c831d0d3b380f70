//! The objects of the socket programs: loading, sharing of maps, attaching.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use libbpf_rs::{Link, MapCore as _, Object, OpenObject};

use super::{
    SocketTracerConfig,
    layout::{Plain as _, Settings},
};
use crate::{
    KernelError,
    embedded::{self, object},
};

/// A way to use the kernel for TCP's states and for what is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rung {
    /// BTF tracepoints, socket storage, iterators: 5.15.
    Btf,
}

impl Rung {
    /// Best first.
    pub(super) const LADDER: [Self; 1] = [Self::Btf];

    /// As users see it.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Btf => "BTF tracepoints with socket storage and iterators (5.15)",
        }
    }

    /// The hook of TCP's states.
    pub(super) fn hook(self) -> &'static str {
        match self {
            Self::Btf => "tp_btf/inet_sock_set_state",
        }
    }

    /// The hooks of looks at what is open.
    pub(super) fn look(self) -> &'static str {
        match self {
            Self::Btf => "iter/task_file, iter/bpf_sk_storage_map",
        }
    }

    fn bytes(self) -> (&'static str, &'static [u8]) {
        match self {
            Self::Btf => ("socket_btf", object!("socket_btf")),
        }
    }
}

/// Maps that all objects of a rung share.
const SHARED_MAPS: [&str; 4] = ["tracks", "ended", "losses", "pairs"];

/// Programs of the first object that are run by reading, not by events.
const ITERATORS: [&str; 2] = ["socket_files", "socket_open"];

/// An object's programs, attached until it is dropped.
pub(super) struct Attached {
    pub object: Object,
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
                        (Some("ended"), _) => map.set_max_entries(ring_bytes)?,
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
            if program.autoload() && !ITERATORS.iter().any(|name| program.name() == *name) {
                self.links.push(program.attach().map_err(cannot_attach)?);
            }
        }
        Ok(())
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
    ) -> Result<Object, KernelError> {
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
pub(super) fn paths(config: &SocketTracerConfig, bytes: u32) -> Result<Attached, KernelError> {
    embedded::load(
        ("socket_paths", object!("socket_paths")),
        &[],
        config.btf.as_deref(),
        |open| {
            for mut map in open.maps_mut() {
                if map.name() == "paths" {
                    map.set_max_entries(bytes)?;
                }
            }
            Ok(())
        },
    )
    .and_then(attach_all)
}

fn attach_all(object: Object) -> Result<Attached, KernelError> {
    let mut attached = Attached {
        object,
        links: Vec::new(),
    };
    attached.attach()?;
    Ok(attached)
}
