//! Selects the runtimes to query about a container.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime as Tokio};
use tokio::time::timeout;

use super::breaker::Breaker;
use super::http::Server;
use super::{Answer, Fail, RuntimeConfig, cri, docker, lxd};
use crate::container::{Found, Runtime};

/// Sockets whose failures are remembered; only users' sockets can be so many.
const SOCKETS: usize = 1024;

/// A socket and the runtime that listens there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Socket {
    pub(super) path: PathBuf,
    pub(super) runtime: Runtime,
}

/// Sockets that may know the container, the likely ones first.
pub(super) fn sockets(config: &RuntimeConfig, found: &Found) -> Vec<Socket> {
    // Else the owner of /user.slice/user-1000.slice could claim a name of the host's containers.
    let (docker, podman, containerd, crio) = match found.user.filter(|&user| user != 0) {
        Some(user) => {
            let Some(users) = &config.users else {
                return Vec::new();
            };
            let folder = users.join(user.to_string());
            let docker = vec![folder.join("docker.sock")];
            let podman = vec![folder.join("podman/podman.sock")];
            (docker, podman, Vec::new(), Vec::new())
        }
        None => (
            config.docker.clone(),
            config.podman.clone(),
            config.containerd.clone(),
            config.crio.clone(),
        ),
    };
    let all = [
        (Runtime::Containerd, containerd),
        (Runtime::CriO, crio),
        (Runtime::Docker, docker),
        (Runtime::Podman, podman),
    ];
    // Their control groups are LXC's, and only of the host's containers.
    let host = found.user.is_none_or(|user| user == 0);
    let instances = [
        (Runtime::Lxd, config.lxd.clone()),
        (Runtime::Incus, config.incus.clone()),
    ];
    let instances = instances
        .into_iter()
        .filter(|_| host && found.runtime == Runtime::Lxc);
    all.into_iter()
        .filter(|(runtime, _)| *runtime == found.runtime || found.runtime == Runtime::Unknown)
        .chain(instances)
        .flat_map(|(runtime, paths)| paths.into_iter().map(move |path| Socket { path, runtime }))
        .collect()
}

/// Queries runtimes, one after the other.
pub(super) struct Asker {
    config: RuntimeConfig,
    tokio: Tokio,
    breakers: HashMap<PathBuf, Breaker>,
}

impl Asker {
    pub(super) fn new(config: RuntimeConfig) -> io::Result<Self> {
        Ok(Self {
            config,
            tokio: Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build()?,
            breakers: HashMap::new(),
        })
    }

    /// The first answer of a socket, else the most specific failure.
    pub(super) fn query(&mut self, found: &Found) -> Answer {
        let mut failure = Fail::Unreachable;
        for socket in sockets(&self.config, found) {
            match self.ask_one(&socket, found) {
                Ok(mut names) => {
                    names.runtime = Some(socket.runtime);
                    return Ok(names);
                }
                Err(fail) => failure = failure.max(fail),
            }
        }
        Err(failure)
    }

    fn ask_one(&mut self, socket: &Socket, found: &Found) -> Answer {
        if self.breakers.len() >= SOCKETS {
            self.breakers.retain(|_, breaker| !breaker.is_good());
        }
        if self.breakers.len() >= SOCKETS {
            self.breakers.clear();
        }
        let breaker = self.breakers.entry(socket.path.clone()).or_default();
        if !breaker.allows(Instant::now()) {
            return Err(Fail::Suspended);
        }
        let server = Server {
            path: &socket.path,
            user: found.user.filter(|&user| user != 0),
            max_answer: self.config.max_answer,
        };
        let asked = async {
            timeout(self.config.timeout, query(server, socket.runtime, found))
                .await
                .unwrap_or(Err(Fail::Timeout))
        };
        let answer = self.tokio.block_on(asked);
        match answer {
            Ok(_) | Err(Fail::Unknown) => breaker.good(),
            Err(Fail::Timeout | Fail::Rubbish) => breaker.bad(Instant::now()),
            // Cheap to try again.
            Err(Fail::Unreachable | Fail::Suspended) => {}
        }
        answer
    }
}

async fn query(server: Server<'_>, runtime: Runtime, found: &Found) -> Answer {
    match runtime {
        Runtime::Containerd => match cri::query(server, found).await {
            Err(Fail::Unknown) => cri::ask_containerd(server, found).await,
            answer => answer,
        },
        Runtime::CriO => cri::query(server, found).await,
        Runtime::Lxd | Runtime::Incus => lxd::query(server, found).await,
        _ => docker::query(server, found).await,
    }
}
