//! Following network namespaces and their interfaces as they come and go.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    time::Instant,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_kernel::flow::LinkKind;
use skua_link::{
    Changes, Link, LinkEvent, LinkMonitor, LinkSocket, LinkStats, Namespace, Namespaces,
    nearest_names,
};

use crate::{ProbeError, WatchedNamespace};

/// What happened to interfaces of the namespace with the number.
pub(crate) enum Change {
    /// An interface is there, or has changed.
    Seen(u16, Link),
    /// An interface is gone.
    Gone(u16, u32),
    /// All interfaces that are there; others are gone.
    All(u16, Vec<Link>),
}

/// What is readable.
pub(crate) struct Ready {
    /// Of the descriptors that were given.
    pub given: Vec<bool>,
    /// Places of monitors, for [`Watch::read`].
    pub monitors: Vec<usize>,
}

/// Namespaces with their monitors.
pub(crate) struct Watch {
    namespaces: Namespaces,
    monitors: Vec<(u16, LinkMonitor)>,
}

impl Watch {
    /// Finds the namespaces, and makes sure that interfaces of these names are there.
    pub fn start(all_netns: bool, names: &[String]) -> Result<Self, ProbeError> {
        let watch = Self {
            namespaces: Namespaces::discover(all_netns)?,
            monitors: Vec::new(),
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

    /// Numbers of the namespaces.
    pub fn numbers(&self) -> Vec<u16> {
        self.namespaces.list().iter().map(|n| n.number).collect()
    }

    /// The namespace of this number.
    pub fn namespace(&self, number: u16) -> Option<&Namespace> {
        self.namespaces.get(number)
    }

    /// The namespaces with their addresses; none where these cannot be asked for.
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

    /// Begins to follow a namespace's interfaces, and lists them.
    pub fn follow(&mut self, number: u16) -> Result<Vec<Link>, ProbeError> {
        let Some(namespace) = self.namespaces.get(number) else {
            return Ok(Vec::new());
        };
        // First listen, then list: nothing falls in between.
        let opened = LinkMonitor::open_in(namespace)
            .and_then(|monitor| Ok((monitor, LinkSocket::open_in(namespace)?.list()?)));
        let (monitor, links) = match opened {
            Ok(opened) => opened,
            Err(error) if number == 0 => return Err(error.into()),
            Err(error) => {
                tracing::warn!(namespace = namespace.name, %error, "cannot watch this namespace");
                return Ok(Vec::new());
            }
        };
        self.monitors.push((number, monitor));
        Ok(links)
    }

    /// Waits until one of the given descriptors or a monitor is readable, or `until`.
    pub fn poll(&self, given: &[BorrowedFd<'_>], until: Instant) -> Result<Ready, ProbeError> {
        let rest = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: rest.as_secs() as i64,
            tv_nsec: i64::from(rest.subsec_nanos()),
        };
        let monitors = self.monitors.iter().map(|(_, monitor)| monitor.as_fd());
        let mut fds: Vec<PollFd<'_>> = given
            .iter()
            .copied()
            .chain(monitors)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => fds.iter_mut().for_each(PollFd::clear_revents),
            Err(error) => return Err(ProbeError::Wait(error.into())),
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (given, monitors) = fds.split_at(given.len());
        Ok(Ready {
            given: given.iter().map(ready).collect(),
            monitors: (0..monitors.len())
                .filter(|i| ready(&monitors[*i]))
                .collect(),
        })
    }

    /// What a monitor has to tell.
    pub fn read(&mut self, monitor: usize) -> Result<Vec<Change>, ProbeError> {
        let Some((number, monitor)) = self.monitors.get_mut(monitor) else {
            return Ok(Vec::new());
        };
        let number = *number;
        let mut changes = Vec::new();
        for event in monitor.read()? {
            changes.push(match event {
                LinkEvent::New(link) => Change::Seen(number, link),
                LinkEvent::Deleted { ifindex, .. } => Change::Gone(number, ifindex),
                LinkEvent::Resync => match self.namespaces.get(number) {
                    Some(namespace) => Change::All(number, LinkSocket::open_in(namespace)?.list()?),
                    None => continue,
                },
            });
        }
        Ok(changes)
    }

    /// Looks for namespaces again; those that are gone are not followed any more.
    pub fn refresh(&mut self) -> Result<Changes, ProbeError> {
        let changes = self.namespaces.refresh()?;
        self.monitors
            .retain(|(number, _)| !changes.removed.contains(number));
        Ok(changes)
    }

    /// Calls `take` for every interface that is there now, with fresh counters.
    pub fn each_link(&self, mut take: impl FnMut(u16, &Link)) {
        for namespace in self.namespaces.list() {
            let Ok(links) = LinkSocket::open_in(namespace).and_then(|mut s| s.list()) else {
                continue;
            };
            for link in &links {
                take(namespace.number, link);
            }
        }
    }
}

/// Whether an interface is to be watched: it has one of the names, or without names it is up.
pub(crate) fn wanted(names: &[String], link: &Link) -> bool {
    if names.is_empty() {
        link.up
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
    // linux/if_arp.h: PPP, RAWIP, TUNNEL, TUNNEL6, SIT, IPGRE, IP6GRE, NONE
    const IP_ONLY: [u16; 8] = [512, 519, 768, 769, 776, 778, 823, 0xfffe];
    if link.has_ethernet_header() {
        Some(LinkKind::Ethernet)
    } else if IP_ONLY.contains(&link.arphrd) {
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

/// CPU time of the calling thread, ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
