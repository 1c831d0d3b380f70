//! Queries container runtimes for names, on a thread of their own: a query may hang.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::container::{Found, Runtime};

mod asker;
mod breaker;
mod cri;
mod docker;
mod http;
mod lxd;
mod messages;

use asker::Asker;
pub use lxd::Instance;

/// Where runtimes are queried, and for how long.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Sockets of Docker's API.
    pub docker: Vec<PathBuf>,
    /// Sockets of Podman's API.
    pub podman: Vec<PathBuf>,
    /// Sockets of containerd.
    pub containerd: Vec<PathBuf>,
    /// Sockets of CRI-O.
    pub crio: Vec<PathBuf>,
    /// Sockets of LXD.
    pub lxd: Vec<PathBuf>,
    /// Sockets of Incus.
    pub incus: Vec<PathBuf>,
    /// Folder with a folder per user (`/run/user`), for Docker and Podman without root. A user's runtime is
    /// only queried about containers under that user's slice.
    pub users: Option<PathBuf>,
    /// Longest that one socket may take for one question.
    pub timeout: Duration,
    /// Longest answer that is read, bytes.
    pub max_answer: usize,
    /// Most questions that wait.
    pub max_waiting: usize,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Self {
            docker: paths(&["/run/docker.sock"]),
            podman: paths(&["/run/podman/podman.sock"]),
            containerd: paths(&[
                "/run/containerd/containerd.sock",
                "/run/k3s/containerd/containerd.sock",
            ]),
            crio: paths(&["/run/crio/crio.sock"]),
            // The path of the control group already has the name.
            lxd: Vec::new(),
            incus: Vec::new(),
            users: Some("/run/user".into()),
            timeout: Duration::from_secs(2),
            max_answer: 4 * 1024 * 1024,
            max_waiting: 1024,
        }
    }
}

/// What happened to questions, by cause; since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuntimeCounters {
    /// Answered with names.
    pub answered: u64,
    /// No runtime knows the container.
    pub unknown: u64,
    /// The socket does not exist or does not accept.
    pub unreachable: u64,
    /// No answer in time.
    pub timeout: u64,
    /// The answer was not understood, too long, or cut off.
    pub rubbish: u64,
    /// Not queried, because the socket hung or sent invalid data too often; it is tried again later.
    pub suspended: u64,
    /// Queries that exceeded the queue; they are repeated.
    pub queue_full: u64,
}

/// A runtime's description of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names {
    /// The runtime, where the path does not say it.
    pub(crate) runtime: Option<Runtime>,
    pub(crate) name: Option<String>,
    pub(crate) image: Option<String>,
    pub(crate) pod_name: Option<String>,
    pub(crate) pod_namespace: Option<String>,
    pub(crate) pod_uid: Option<String>,
    /// By name; only as many as are kept.
    pub(crate) labels: Vec<(String, String)>,
    /// Settings, of LXD and Incus.
    pub(crate) instance: Option<Box<Instance>>,
}

/// Why there are no names, what says least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fail {
    Unreachable,
    Unknown,
    Suspended,
    Rubbish,
    Timeout,
}

pub(crate) type Answer = Result<Names, Fail>;

/// Our ends of the channels to and from the querying thread. Nobody waits for the lock: it lets readers share owners.
type Ends = (Sender<Found>, Mutex<Receiver<(Found, Answer)>>);

/// Questions on their way.
pub(crate) struct Lookups {
    config: RuntimeConfig,
    /// The querying thread; started with the first query.
    asker: Option<Ends>,
    /// Queries whose answer was not received yet.
    waiting: usize,
    counters: RuntimeCounters,
}

impl Lookups {
    pub(crate) fn new(config: RuntimeConfig) -> Self {
        Self {
            config,
            asker: None,
            waiting: 0,
            counters: RuntimeCounters::default(),
        }
    }

    /// Whether there is a runtime to ask about this container.
    pub(crate) fn has_runtime(&self, found: &Found) -> bool {
        !asker::sockets(&self.config, found).is_empty()
    }

    /// Queues a query, if the queue has space. The answer comes later.
    pub(crate) fn request(&mut self, found: &Found) -> bool {
        if self.waiting >= self.config.max_waiting {
            self.counters.queue_full += 1;
            return false;
        }
        if self.asker.is_none() {
            self.asker = begin(&self.config);
        }
        let sent = self
            .asker
            .as_ref()
            .is_some_and(|(questions, _)| questions.send(found.clone()).is_ok());
        if sent {
            self.waiting += 1;
        } else {
            self.asker = None;
            self.counters.unreachable += 1;
        }
        sent
    }

    /// An answer that came meanwhile.
    pub(crate) fn answer(&mut self) -> Option<(Found, Answer)> {
        let (_, answers) = self.asker.as_mut()?;
        let (found, answer) = answers.get_mut().ok()?.try_recv().ok()?;
        self.waiting -= 1;
        let counter = match answer {
            Ok(_) => &mut self.counters.answered,
            Err(Fail::Unreachable) => &mut self.counters.unreachable,
            Err(Fail::Unknown) => &mut self.counters.unknown,
            Err(Fail::Suspended) => &mut self.counters.suspended,
            Err(Fail::Rubbish) => &mut self.counters.rubbish,
            Err(Fail::Timeout) => &mut self.counters.timeout,
        };
        *counter += 1;
        Some((found, answer))
    }

    pub(crate) fn counters(&self) -> RuntimeCounters {
        self.counters
    }
}

/// Starts the thread. It ends when the receiver of its answers is dropped.
fn begin(config: &RuntimeConfig) -> Option<Ends> {
    let (questions, to_ask) = channel::<Found>();
    let (answered, answers) = channel();
    let mut asker = Asker::new(config.clone()).ok()?;
    thread::Builder::new()
        .name("skua-names".into())
        .spawn(move || {
            for found in to_ask {
                let answer = asker.query(&found);
                if answered.send((found, answer)).is_err() {
                    return;
                }
            }
        })
        .ok()?;
    Some((questions, Mutex::new(answers)))
}

#[cfg(test)]
mod tests;
