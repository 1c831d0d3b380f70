//! Where a detector stands and sends packets to: interfaces by name, which come and go.

use std::{
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use skua_kernel::{flow::LinkKind, steer::Target};
use skua_link::{
    Link, LinkEvent, LinkMonitor, LinkSocket, NAMED, Namespace, NamespaceId, Namespaces, Protocol,
    Requests, namespace_id,
};
use skua_steer::{Action, Destination, Detector};

/// The network namespace of a detector.
pub struct DetectorNamespace {
    namespace: Namespace,
    /// Its file, when it has a name.
    path: Option<PathBuf>,
    monitor: LinkMonitor,
    socket: LinkSocket,
}

fn identity(path: &Path) -> std::io::Result<NamespaceId> {
    let meta = path.metadata()?;
    Ok(NamespaceId {
        device: meta.dev(),
        inode: meta.ino(),
    })
}

impl DetectorNamespace {
    /// That of a name below /run/netns, or our own.
    pub fn open(name: &str) -> anyhow::Result<Self> {
        let (namespace, path) = match name {
            "" => (Namespace::own()?, None),
            name => {
                let path = Path::new(NAMED).join(name);
                let missing = || format!("network namespace {name} is not there");
                let namespace = Namespace {
                    // The numbers are for those that the probe watches.
                    number: u16::MAX,
                    name: name.to_owned(),
                    id: identity(&path).with_context(missing)?,
                    file: File::open(&path).with_context(missing)?.into(),
                };
                (namespace, Some(path))
            }
        };
        Ok(Self {
            monitor: LinkMonitor::open_in(&namespace)?,
            socket: LinkSocket::open_in(&namespace)?,
            namespace,
            path,
        })
    }

    /// Whether the name still means this namespace. We keep it alive, its name does not.
    pub fn is_there(&self) -> bool {
        let same = |path: &PathBuf| identity(path).is_ok_and(|id| id == self.namespace.id);
        self.path.as_ref().is_none_or(same)
    }

    /// Whether the caller has to check from time to time that it is still there.
    pub fn is_named(&self) -> bool {
        self.path.is_some()
    }

    /// Takes what has changed; says which interfaces are gone.
    pub fn changes(&mut self) -> anyhow::Result<Vec<u32>> {
        let events = self.monitor.read()?.into_iter();
        Ok(events
            .filter_map(|event| match event {
                LinkEvent::Deleted { ifindex, .. } => Some(ifindex),
                _ => None,
            })
            .collect())
    }

    /// All interfaces.
    pub fn links(&mut self) -> anyhow::Result<Vec<Link>> {
        Ok(self.socket.list()?)
    }

    /// Runs something in the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        Ok(self.namespace.enter(work)?)
    }

    /// MAC address of the other end of a veth pair; none when that is nowhere to be seen.
    fn peer_mac(&self, link: &Link, links: &[Link]) -> anyhow::Result<Option<[u8; 6]>> {
        let Some(peer) = link.link else {
            return Ok(None);
        };
        let Some(id) = link.link_netnsid else {
            let near = links.iter().find(|other| other.ifindex == peer);
            return Ok(near.and_then(|near| near.mac));
        };
        let mut requests = Requests::open_in(Protocol::Route, &self.namespace)?;
        for namespace in Namespaces::discover(true)?.list() {
            if namespace_id(&mut requests, namespace)? == Some(id) {
                let found = LinkSocket::open_in(namespace)?.get(peer)?;
                return Ok(found.and_then(|found| found.mac));
            }
        }
        Ok(None)
    }

    /// Where packets go; an error is why they cannot.
    pub fn target(
        &self,
        action: &Action,
        destination: &Destination,
        links: &[Link],
    ) -> anyhow::Result<Target> {
        let to = &destination.to;
        let link = links
            .iter()
            .find(|link| link.name == *to)
            .with_context(|| format!("{to} is not there"))?;
        if !link.up {
            anyhow::bail!("{to} is down");
        }
        if !link.running {
            anyhow::bail!("{to} has no carrier: its other end is down");
        }
        if !link.has_ethernet_header() {
            anyhow::bail!("{to} takes no Ethernet frames");
        }
        let redirect = matches!(action, Action::Redirect(_));
        let veth = link.kind.as_deref() == Some("veth");
        let (mac, source_mac) = destination.macs();
        let mac = match mac {
            Some(mac) => mac,
            // A copy stays as it is.
            None if !redirect => [0; 6],
            None if veth => self.peer_mac(link, links)?.with_context(|| {
                format!("the other end of {to} is not to be found; say its mac")
            })?,
            None => anyhow::bail!("{to} has no other end that is known; say a mac"),
        };
        Ok(Target {
            ifindex: link.ifindex,
            peer: redirect && veth && link.link_netnsid.is_some(),
            destination: mac,
            source: source_mac.or(link.mac).unwrap_or_default(),
            veth,
            ..Target::default()
        })
    }
}

impl AsFd for DetectorNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

/// How packets of an interface begin; an error when the detector cannot work on them.
pub fn link_kind(detector: &Detector, link: &Link) -> anyhow::Result<LinkKind> {
    if link.has_ethernet_header() {
        return Ok(LinkKind::Ethernet);
    }
    if detector.action.destination().is_some() {
        anyhow::bail!(
            "{} has no Ethernet header: its packets can be marked, dropped and reported only",
            link.name
        );
    }
    Ok(LinkKind::Ip)
}
