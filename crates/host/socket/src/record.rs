//! A socket as the store keeps it and users see it.

use std::net::{IpAddr, SocketAddr};

use serde::{Serialize, Serializer};
use skua_flow::{ConversationOwner, ServiceRule};

use crate::{
    End, Opener, Owner, Protocol, SocketState, SocketUpdate, Span, TaskRule, TcpMetrics, fields,
    owner::OwnerId,
};

/// A socket, summed up from its updates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SocketRecord {
    /// [`SocketUpdate::id`].
    pub id: u64,
    /// Protocol.
    pub protocol: Protocol,
    /// State now, or the last one before the end.
    pub state: SocketState,
    /// Inode number of its network namespace.
    pub netns: u32,
    /// Local address.
    pub local: SocketAddr,
    /// The other side.
    pub remote: Option<SocketAddr>,
    /// The opener.
    pub opener: Opener,
    /// Owner.
    pub owner: Option<OwnerId>,
    /// How the owner was found.
    pub owner_by: TaskRule,
    /// Begin, ns since the Unix epoch; 0: older than the probe.
    pub start_ns: u64,
    /// Established, ns since the Unix epoch; 0: never, or not seen.
    pub established_ns: u64,
    /// Last poll or end, ns since the Unix epoch.
    pub now_ns: u64,
    /// Drain with which the record changed last, ns since the Unix epoch.
    pub updated_ns: u64,
    /// Why it ended.
    pub end: Option<End>,
    /// TCP's metrics.
    pub tcp: Option<TcpMetrics>,
    /// Connections that wait for accept, and the most that may.
    pub backlog: Option<(u32, u32)>,
}

impl SocketRecord {
    /// The record of an update.
    pub fn new(update: &SocketUpdate, owner: Option<OwnerId>, updated_ns: u64) -> Self {
        Self {
            id: update.id,
            protocol: update.protocol,
            state: update.state,
            netns: update.netns,
            local: canonical(update.local),
            remote: update.remote.map(canonical),
            opener: update.opener,
            owner,
            owner_by: owner.map_or(TaskRule::Unknown, |_| update.task_rule),
            start_ns: update.start_ns,
            established_ns: update.established_ns,
            now_ns: update.now_ns,
            updated_ns,
            end: update.end,
            tcp: update.tcp,
            backlog: update.backlog,
        }
    }

    /// Applies a later update; values that it no longer has stay.
    pub fn apply(&mut self, update: &SocketUpdate, owner: Option<OwnerId>, updated_ns: u64) {
        let old = *self;
        *self = Self::new(update, owner, updated_ns);
        // An owner that is known better than now stays: at the end only the closer may be left.
        if old.owner.is_some() && (self.owner.is_none() || old.owner_by < self.owner_by) {
            (self.owner, self.owner_by) = (old.owner, old.owner_by);
        }
        if self.opener == Opener::Unknown {
            self.opener = old.opener;
        }
        if self.remote.is_none() {
            self.remote = old.remote;
        }
        if self.local.port() == 0 {
            self.local = old.local;
        }
        let known = |new: u64, old: u64| if new == 0 { old } else { new };
        self.start_ns = known(self.start_ns, old.start_ns);
        self.established_ns = known(self.established_ns, old.established_ns);
        self.tcp = self.tcp.or(old.tcp);
        self.backlog = self.backlog.or(old.backlog);
        let (now_ns, updated_ns) = (self.now_ns, self.updated_ns);
        (self.now_ns, self.updated_ns) = (old.now_ns, old.updated_ns);
        let changed = *self != old;
        self.now_ns = now_ns;
        if changed {
            self.updated_ns = updated_ns;
        }
    }

    /// Whether it waits for others: a listening TCP socket, or a UDP socket without a fixed peer that
    /// did not speak first. What such a one answered to first is only one of its clients.
    pub fn listens(&self) -> bool {
        match self.state {
            SocketState::Listen => true,
            SocketState::UdpUnconnected => self.opener != Opener::Local,
            _ => false,
        }
    }

    /// The other side of a connection, or of what stands for one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.remote.filter(|_| !self.listens())
    }

    /// From its begin to its end, or to the last poll that saw it: after that another socket may have its
    /// endpoints.
    pub fn life(&self) -> Span {
        Span {
            first_ns: self.start_ns,
            last_ns: self.now_ns,
        }
    }

    /// Time from the begin to the end or the last poll, ns; none when the begin is not known.
    pub fn age_ns(&self) -> Option<u64> {
        (self.start_ns != 0).then(|| self.now_ns.saturating_sub(self.start_ns))
    }

    /// Whether a connection came about.
    pub fn was_established(&self) -> bool {
        self.established_ns != 0
            || !matches!(
                self.state,
                SocketState::SynSent | SocketState::SynRecv | SocketState::Close
            )
    }
}

/// IPv4 in IPv6 as IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Which side of a socket offers the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceSide {
    /// Whether it is the local side.
    pub local: bool,
    /// How that is known.
    pub by: ServiceRule,
}

/// What records show of an owner.
pub fn conversation_owner(owner: &Owner) -> ConversationOwner<'_> {
    let container = owner.container.as_deref();
    let pod = container.and_then(|c| c.pod.as_ref());
    ConversationOwner {
        process: &owner.process,
        pid: owner.pid,
        user: owner.user.as_deref().unwrap_or_default(),
        uid: Some(owner.uid),
        container: container.map_or("", |c| c.name.as_deref().unwrap_or(&c.id)),
        pod: pod
            .and_then(|p| p.name.as_deref().or(p.uid.as_deref()))
            .unwrap_or_default(),
        unit: owner.unit.as_deref().unwrap_or_default(),
    }
}

/// A socket with its names, ready to be written as JSON by [`Serialize`] or as a CSV row; both have
/// the fields of [`fields::FIELDS`].
#[derive(Clone, Copy, Debug)]
pub struct SocketLine<'a> {
    /// The socket.
    pub record: &'a SocketRecord,
    /// Its owner.
    pub owner: ConversationOwner<'a>,
    /// Path or name of the owner's executable, empty when not known.
    pub executable: &'a str,
    /// The owner's number in its own PID namespace; 0: the same, or not known.
    pub ns_pid: u32,
    /// Which side offers the service.
    pub service: Option<ServiceSide>,
}

impl Serialize for SocketLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        skua_record::serialize(fields::FIELDS, self, serializer)
    }
}

/// Whether an address is meant for every address of the host.
pub(crate) fn is_wildcard(address: IpAddr) -> bool {
    address.is_unspecified()
}
