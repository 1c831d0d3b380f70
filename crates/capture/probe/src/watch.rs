//! Following network namespaces and their interfaces as they come and go.

use std::{
    collections::BTreeSet,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_kernel::flow::LinkKind;
use skua_link::{
    Changes, Link, LinkEvent, LinkMonitor, LinkSocket, LinkStats, Namespace, Namespaces,
    nearest_names,
};

use crate::{ProbeError, Wake, WatchedNamespace};

/// What happened to interfaces of the namespace with the number.
pub(crate) enum Change {
    /// An interface is there, or has changed.
    Updated(u16, Link),
    /// An interface was removed.
    Removed(u16, u32),
    /// All interfaces that exist; all others were removed.
    All(u16, Vec<Link>),
}

/// How long a probe without capture points sleeps at a time.
pub(crate) const RESTING: Duration = Duration::from_secs(3600);

/// What is readable.
pub(crate) struct Ready<const N: usize> {
    /// Of the descriptors that were given.
    pub given: [bool; N],
    /// Namespaces whose monitors are readable, for [`Watch::read`].
    pub namespaces: Vec<u16>,
}

/// Namespaces with their monitors.
pub(crate) struct Watch {
    namespaces: Namespaces,
    monitors: Vec<(u16, LinkMonitor)>,
    /// Namespaces whose monitor failed: tried again by [`recover`](Self::recover).
    lost: Vec<u16>,
}

impl Watch {
    /// Finds the namespaces, and makes sure that interfaces of these names are there.
    pub fn start(all_netns: bool, names: &[String]) -> Result<Self, ProbeError> {
        let watch = Self {
            namespaces: Namespaces::discover(all_netns)?,
            monitors: Vec::new(),
            lost: Vec::new(),
        };
        let mut known = Vec::new();
        for namespace in watch.namespaces.list() {
            match LinkSocket::open_in(namespace).and_then(|mut s| s.list()) {
                Ok(links) => known.extend(links.into_iter().map(|l| l.name)),
                Err(error) if namespace.number == 0 => return Err(error.into()),
                Err(_) => {}
            }
        }
        match names.iter().find(|name| !known.contains(name)) {
            Some(name) => Err(unknown_interface(name, &known)),
            None => Ok(watch),
        }
    }

    /// No namespace until [`select`](Self::select) selects some.
    pub fn selected() -> Result<Self, ProbeError> {
        Ok(Self {
            namespaces: Namespaces::selected()?,
            monitors: Vec::new(),
            lost: Vec::new(),
        })
    }

    /// Selects the namespaces with these inode numbers. Returns those to follow now, and those to follow no
    /// more, which may include our own.
    pub fn select(&mut self, inodes: BTreeSet<u64>) -> Changes {
        let own = self.inode(0);
        let wanted = own.is_some_and(|own| inodes.contains(&own));
        let followed = self.follows(0);
        let changes = self.namespaces.select(inodes);
        let mut changes = self.let_go(changes);
        if wanted && !followed {
            changes.added.push(0);
        } else if followed && !wanted {
            self.monitors.retain(|(number, _)| *number != 0);
            self.lost.retain(|number| *number != 0);
        }
        changes
    }

    /// Whether no namespace is followed.
    pub fn is_idle(&self) -> bool {
        self.monitors.is_empty() && self.lost.is_empty()
    }

    fn follows(&self, number: u16) -> bool {
        let mut monitors = self.monitors.iter().map(|(n, _)| n);
        monitors.any(|n| *n == number) || self.lost.contains(&number)
    }

    /// Inode number of a namespace.
    pub fn inode(&self, number: u16) -> Option<u64> {
        self.namespaces.get(number).map(|n| n.id.inode)
    }

    /// Numbers of the namespaces with their inode numbers.
    pub fn inodes(&self) -> Vec<(u16, u64)> {
        let list = self.namespaces.list().iter();
        list.map(|n| (n.number, n.id.inode)).collect()
    }

    /// The namespace with an inode number.
    pub fn number(&self, inode: u64) -> Option<u16> {
        let mut list = self.namespaces.list().iter();
        list.find(|n| n.id.inode == inode).map(|n| n.number)
    }

    /// An interface with fresh counters; none when there is none.
    pub fn link(&self, number: u16, ifindex: u32) -> Result<Option<Link>, ProbeError> {
        match self.namespaces.get(number) {
            Some(namespace) => Ok(LinkSocket::open_in(namespace)?.get(ifindex)?),
            None => Ok(None),
        }
    }

    /// Numbers of the namespaces.
    pub fn numbers(&self) -> Vec<u16> {
        self.namespaces.list().iter().map(|n| n.number).collect()
    }

    /// The namespace of this number.
    pub fn namespace(&self, number: u16) -> Option<&Namespace> {
        self.namespaces.get(number)
    }

    /// The namespaces with their addresses; none where these cannot be read.
    pub fn namespaces(&self) -> Vec<WatchedNamespace> {
        self.namespaces
            .list()
            .iter()
            .map(|namespace| WatchedNamespace {
                number: namespace.number,
                inode: namespace.id.inode as u32,
                addresses: LinkSocket::open_in(namespace)
                    .and_then(|mut socket| socket.addresses())
                    .unwrap_or_default(),
            })
            .collect()
    }

    /// Runs `work` in a namespace: on our own thread when that is our own.
    pub fn enter<T: Send>(
        &self,
        number: u16,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, ProbeError> {
        match self.namespaces.get(number) {
            Some(namespace) if number != 0 => Ok(namespace.enter(work)?),
            _ => Ok(work()),
        }
    }

    /// Begins to follow a namespace's interfaces, and lists them. Only for our own it is an error
    /// that this cannot be done.
    pub fn follow(&mut self, number: u16) -> Result<Vec<Link>, ProbeError> {
        match self.open(number) {
            Ok(links) => Ok(links.unwrap_or_default()),
            Err(error) if number == 0 => Err(error),
            Err(error) => {
                let namespace = self.namespaces.get(number).map(|n| n.name.as_str());
                tracing::warn!(namespace, %error, "cannot watch this namespace");
                Ok(Vec::new())
            }
        }
    }

    /// Opens a monitor, and lists the interfaces; none when the namespace has ended.
    fn open(&mut self, number: u16) -> Result<Option<Vec<Link>>, ProbeError> {
        let Some(namespace) = self.namespaces.get(number) else {
            return Ok(None);
        };
        // First listen, then list: nothing falls in between.
        let monitor = LinkMonitor::open_in(namespace)?;
        let links = LinkSocket::open_in(namespace)?.list()?;
        self.monitors.push((number, monitor));
        Ok(Some(links))
    }

    /// Waits until one of the given descriptors or a monitor is readable, or `until`.
    pub fn poll<const N: usize>(
        &self,
        given: &[Option<BorrowedFd<'_>>; N],
        until: Instant,
    ) -> Result<Ready<N>, ProbeError> {
        let monitors = self.monitors.iter().map(|(_, monitor)| monitor.as_fd());
        let fds = given.iter().flatten().copied().chain(monitors);
        let mut ready = readable(fds, until)?.into_iter();
        Ok(Ready {
            given: given.map(|given| given.is_some() && ready.next().unwrap_or(false)),
            namespaces: ready
                .zip(&self.monitors)
                .filter(|(ready, _)| *ready)
                .map(|(_, (number, _))| *number)
                .collect(),
        })
    }

    /// Reads a namespace's monitor. A monitor that fails is dropped until [`recover`](Self::recover):
    /// capturing continues meanwhile.
    pub fn read(&mut self, number: u16) -> Vec<Change> {
        self.changes(number).unwrap_or_else(|error| {
            let namespace = self.namespaces.get(number).map(|n| n.name.as_str());
            tracing::warn!(namespace, %error, "cannot follow interfaces; will try again");
            self.monitors.retain(|(n, _)| *n != number);
            self.lost.push(number);
            Vec::new()
        })
    }

    fn changes(&mut self, number: u16) -> Result<Vec<Change>, ProbeError> {
        let mut changes = Vec::new();
        let Some((_, monitor)) = self.monitors.iter_mut().find(|(n, _)| *n == number) else {
            return Ok(changes);
        };
        for event in monitor.read()? {
            changes.push(match event {
                LinkEvent::New(link) => Change::Updated(number, link),
                LinkEvent::Deleted { ifindex, .. } => Change::Removed(number, ifindex),
                LinkEvent::Resync => match self.namespaces.get(number) {
                    Some(namespace) => Change::All(number, LinkSocket::open_in(namespace)?.list()?),
                    None => continue,
                },
            });
        }
        Ok(changes)
    }

    /// Tries to follow those namespaces again whose monitor failed.
    pub fn recover(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for number in std::mem::take(&mut self.lost) {
            match self.open(number) {
                Ok(Some(links)) => changes.push(Change::All(number, links)),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(number, %error, "still cannot follow interfaces");
                    self.lost.push(number);
                }
            }
        }
        changes
    }

    /// Finds namespaces again; those that have ended are not followed any more. When they cannot be listed,
    /// nothing has changed.
    pub fn refresh(&mut self) -> Changes {
        let changes = self.namespaces.refresh();
        self.let_go(changes)
    }

    fn let_go(&mut self, changes: Result<Changes, skua_link::Error>) -> Changes {
        let changes = changes.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list network namespaces");
            Changes::default()
        });
        self.monitors
            .retain(|(number, _)| !changes.removed.contains(number));
        self.lost.retain(|number| !changes.removed.contains(number));
        changes
    }

    /// Calls `take` for every interface of the namespaces that are followed, with fresh counters.
    pub fn each_link(&self, mut take: impl FnMut(u16, &Link)) {
        let list = self.namespaces.list().iter();
        for namespace in list.filter(|n| self.follows(n.number)) {
            let Ok(links) = LinkSocket::open_in(namespace).and_then(|mut s| s.list()) else {
                continue;
            };
            for link in &links {
                take(namespace.number, link);
            }
        }
    }
}

/// Whether an interface should be watched: it has one of the names, or without names it is up and was not
/// made by Skua itself.
pub(crate) fn wanted(names: &[String], link: &Link) -> bool {
    if names.is_empty() {
        link.up && !skua_link::is_own_interface(&link.name)
    } else {
        names.contains(&link.name)
    }
}

/// What the counters grew by.
pub(crate) fn grown(now: &LinkStats, then: &LinkStats) -> LinkStats {
    LinkStats {
        rx_packets: now.rx_packets.wrapping_sub(then.rx_packets),
        tx_packets: now.tx_packets.wrapping_sub(then.tx_packets),
        rx_bytes: now.rx_bytes.wrapping_sub(then.rx_bytes),
        tx_bytes: now.tx_bytes.wrapping_sub(then.tx_bytes),
        rx_errors: now.rx_errors.wrapping_sub(then.rx_errors),
        tx_errors: now.tx_errors.wrapping_sub(then.tx_errors),
        rx_dropped: now.rx_dropped.wrapping_sub(then.rx_dropped),
        tx_dropped: now.tx_dropped.wrapping_sub(then.tx_dropped),
    }
}

/// What the packets of an interface begin with, none when we cannot read them.
pub fn link_kind(link: &Link) -> Option<LinkKind> {
    if link.has_ethernet_header() {
        Some(LinkKind::Ethernet)
    } else if link.has_ip_header() {
        Some(LinkKind::Ip)
    } else {
        None
    }
}

/// The error for an interface that is not there, with a suggestion.
pub fn unknown_interface(name: &str, known: &[String]) -> ProbeError {
    let near = nearest_names(name, known.iter().map(String::as_str), 1);
    let suggestion = match near.first() {
        Some(near) => format!(" (did you mean {near}?)"),
        None => format!("; there are: {}", known.join(", ")),
    };
    ProbeError::UnknownInterface {
        name: name.into(),
        suggestion,
    }
}

/// Waits for the next drain of a probe that watches no interfaces: until `wakeups` (an eventfd) or the
/// caller's descriptor is readable, or it is time.
pub(crate) fn wait_for(
    wakeups: &OwnedFd,
    caller: Option<BorrowedFd<'_>>,
    next_drain: Instant,
    until: Option<Instant>,
) -> Result<Wake, ProbeError> {
    loop {
        let now = Instant::now();
        if now >= next_drain {
            return Ok(Wake::Interval);
        }
        if until.is_some_and(|until| now >= until) {
            return Ok(Wake::Caller);
        }
        let next = until.map_or(next_drain, |until| until.min(next_drain));
        let given: Vec<BorrowedFd<'_>> = std::iter::once(wakeups.as_fd()).chain(caller).collect();
        let ready = readable(given.into_iter(), next)?;
        if ready.first() == Some(&true) {
            let _ = rustix::io::read(wakeups, &mut [0; 8]);
            return Ok(Wake::Pressure);
        }
        if ready.contains(&true) {
            return Ok(Wake::Caller);
        }
    }
}

/// Waits until one of the descriptors is readable, or `until`; says which are.
fn readable<'a>(
    fds: impl Iterator<Item = BorrowedFd<'a>>,
    until: Instant,
) -> Result<Vec<bool>, ProbeError> {
    let rest = until.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: rest.as_secs() as i64,
        tv_nsec: i64::from(rest.subsec_nanos()),
    };
    let mut fds: Vec<PollFd<'_>> = fds
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => fds.iter_mut().for_each(PollFd::clear_revents),
        Err(error) => return Err(ProbeError::Wait(error.into())),
    }
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// CPU time of the calling thread, ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
