//! The interfaces that a probe captures: which are selected, their captures, and their accounts.

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use skua_kernel::{KernelError, flow::PointTraffic};
use skua_link::{Link, LinkStats};

use crate::{
    Account, LivePoints, PointAccount, PointState, ProbeError, Wake, Watched,
    account::add_point,
    follow::Scope,
    unix_ns,
    watch::{RESTING, Watch, grown},
};

/// Number of the namespace, and index of the interface.
pub(crate) type Key = (u16, u32);

/// An interface, while something captures there and until its last counters are taken.
struct Point<C> {
    link: Link,
    /// When it was attached, ns since the Unix epoch.
    since_ns: u64,
    /// The interface's counters when it was attached.
    counters_then: LinkStats,
    /// What captures; dropping it ends that.
    capture: Option<C>,
    account: PointAccount,
}

/// Interfaces with what captures there.
pub(crate) struct Interfaces<C> {
    pub scope: Scope,
    pub watch: Watch,
    points: BTreeMap<Key, Point<C>>,
    /// Points whose interface was removed but whose counters have not been read yet.
    leaving: Vec<Key>,
    /// Interfaces that cannot be captured, so that this is logged once.
    refused: HashSet<Key>,
    /// Interfaces for which there were too many programs: tried again when some were unloaded.
    crowded_out: BTreeMap<Key, Link>,
    /// All counts except those in `points`.
    pub account: Account,
}

impl<C> Interfaces<C> {
    /// Finds the namespaces; nothing is captured yet.
    pub fn new(
        interfaces: &[String],
        points: Option<&LivePoints>,
        all_netns: bool,
    ) -> Result<Self, ProbeError> {
        let scope = Scope::new(interfaces, points);
        let watch = scope.watch(all_netns)?;
        Ok(Self {
            scope,
            watch,
            points: BTreeMap::new(),
            leaving: Vec::new(),
            refused: HashSet::new(),
            crowded_out: BTreeMap::new(),
            account: Account::default(),
        })
    }

    /// The namespaces to begin with. Those of capture points come with these.
    pub fn first_namespaces(&self) -> Vec<u16> {
        match self.scope.points() {
            Some(_) => Vec::new(),
            None => self.watch.numbers(),
        }
    }

    /// The interfaces that are attached to.
    pub fn attached(&self) -> Vec<Key> {
        let points = self.points.iter();
        let attached = points.filter(|(_, point)| point.account.attached);
        attached.map(|(key, _)| *key).collect()
    }

    /// An interface that appeared or has changed, when it is selected and not captured yet.
    pub fn newcomer(&mut self, number: u16, link: Link) -> Option<Link> {
        let key = (number, link.ifindex);
        if let Some(point) = self.points.get_mut(&key)
            && point.account.attached
        {
            // Renamed, perhaps.
            point.account.interface.clone_from(&link.name);
            point.link = link;
            return None;
        }
        let selected = self.scope.wants(self.inode(number), &link) && !self.refused.contains(&key);
        selected.then_some(link)
    }

    fn inode(&self, number: u16) -> u64 {
        self.watch.inode(number).unwrap_or_default()
    }

    /// Records what captures an interface now.
    pub fn joined(&mut self, number: u16, link: Link, hook: &'static str, capture: C) {
        let (key, inode) = ((number, link.ifindex), self.inode(number));
        let namespace = self.watch.namespace(number);
        let namespace = namespace.map(|n| n.name.clone()).unwrap_or_default();
        tracing::info!(interface = link.name, namespace, hook, "attached");
        self.crowded_out.remove(&key);
        // An interface with this index may have been removed since the last drain, with its counters not
        // yet read: its successor continues the same capture point.
        self.leaving.retain(|leaving| *leaving != key);
        let mut account = match self.points.remove(&key) {
            Some(point) => point.account,
            None => PointAccount::default(),
        };
        account.interface.clone_from(&link.name);
        account.netns = namespace;
        account.netns_inode = inode;
        account.hook = hook;
        account.attached = true;
        self.scope.note(inode, link.ifindex, PointState::Active);
        let point = Point {
            counters_then: grown(&link.stats, &account.interface_counters),
            link,
            since_ns: unix_ns(),
            capture: Some(capture),
            account,
        };
        self.points.insert(key, point);
    }

    /// Records that an interface cannot be captured: until it changes, or at all, which is logged once.
    /// Returns whether it can be later.
    pub fn failed(&mut self, number: u16, link: &Link, error: &ProbeError) -> bool {
        let inode = self.inode(number);
        // libpcap requires that it is up: once it is, the monitor reports it again.
        let down = matches!(
            error,
            ProbeError::Capture(skua_afpacket::Error::InterfaceDown { .. })
        );
        let too_many = matches!(
            error,
            ProbeError::Kernel(KernelError::TooManyPrograms { .. })
        );
        let state = match down {
            true => PointState::Waiting(error.to_string()),
            false => PointState::Refused(error.to_string()),
        };
        self.scope.note(inode, link.ifindex, state);
        if too_many {
            // Capture points have a state for that.
            if self.scope.points().is_some() {
                return false;
            }
            if self.crowded_out.is_empty() {
                tracing::warn!(
                    interface = link.name, %error,
                    "interfaces of further network namespaces are not watched"
                );
            } else {
                tracing::debug!(interface = link.name, %error, "not watched");
            }
            self.crowded_out
                .insert((number, link.ifindex), link.clone());
            return true;
        }
        if !down {
            // Capture points have a state for that.
            if self.scope.points().is_none() {
                self.refused.insert((number, link.ifindex));
            }
            tracing::warn!(interface = link.name, %error, "not watched");
        }
        down
    }

    /// Stops capturing an interface, which may have been removed.
    pub fn left(&mut self, key: Key) {
        self.refused.remove(&key);
        if let Some(point) = self.points.get_mut(&key) {
            tracing::info!(interface = point.link.name, "not attached any more");
            point.capture = None;
            point.account.attached = false;
            self.leaving.push(key);
        }
    }

    /// Forgets interfaces that were removed before there were enough programs to watch them.
    pub fn forget(&mut self, number: u16, gone: impl Fn(u32) -> bool) {
        self.crowded_out
            .retain(|(netns, ifindex), _| *netns != number || !gone(*ifindex));
    }

    /// Takes the interfaces that are not watched because there were too many programs, to try them again or
    /// put them back.
    pub fn take_crowded_out(&mut self) -> BTreeMap<Key, Link> {
        std::mem::take(&mut self.crowded_out)
    }

    /// Puts one back.
    pub fn put_crowded_out(&mut self, key: Key, link: Link) {
        self.crowded_out.insert(key, link);
    }

    /// What captures, to be changed.
    pub fn captures_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.points.values_mut().filter_map(|p| p.capture.as_mut())
    }

    /// What captures.
    pub fn captures(&self) -> impl Iterator<Item = &C> {
        self.points.values().filter_map(|p| p.capture.as_ref())
    }

    /// Stops all captures; their counters stay until [`ended`](Self::ended).
    pub fn end(&mut self) {
        for point in self.points.values_mut() {
            point.capture = None;
        }
    }

    /// Nothing is attached to any more.
    pub fn ended(&mut self) {
        self.end();
        for point in self.points.values_mut() {
            point.account.attached = false;
        }
    }

    /// Each with its account.
    pub fn accounts(&mut self) -> impl Iterator<Item = (Key, &mut PointAccount)> {
        let points = self.points.iter_mut();
        points.map(|(key, point)| (*key, &mut point.account))
    }

    /// The account of one.
    pub fn account_of(&mut self, key: Key) -> Option<&mut PointAccount> {
        self.points.get_mut(&key).map(|point| &mut point.account)
    }

    /// Adds what a drain found.
    pub fn drained<'a>(
        &mut self,
        updates: u64,
        traffic: impl IntoIterator<Item = (&'a Key, &'a PointTraffic)>,
    ) {
        self.account.updates += updates;
        for (key, traffic) in traffic {
            let account = match self.points.get_mut(key) {
                Some(point) => &mut point.account,
                None => &mut self.account.removed,
            };
            account.flows += *traffic;
        }
    }

    /// Takes the removed interfaces, after their last counters were read.
    pub fn take_leaving(&mut self) -> Vec<Key> {
        let leaving = std::mem::take(&mut self.leaving);
        for key in &leaving {
            if let Some(point) = self.points.remove(key) {
                add_point(&mut self.account.removed, &point.account);
            }
        }
        leaving
    }

    /// Reads the interfaces' own counters.
    pub fn read_counters(&mut self) {
        let points = &mut self.points;
        self.watch.each_link(|number, link| {
            if let Some(point) = points.get_mut(&(number, link.ifindex))
                && point.account.attached
            {
                point.account.interface_counters = grown(&link.stats, &point.counters_then);
            }
        });
    }

    /// All that was counted, with fresh counters of the interfaces.
    pub fn whole_account(&mut self) -> Account {
        self.read_counters();
        self.account.not_watched = self.crowded_out.len() as u64;
        self.account.points = self
            .points
            .iter()
            .map(|(key, point)| (*key, point.account.clone()))
            .collect();
        self.account.clone()
    }

    /// What is captured, for users.
    pub fn watched(&self) -> Vec<Watched> {
        let points = self.points.iter();
        points
            .map(|((netns, ifindex), point)| Watched {
                netns: *netns,
                ifindex: *ifindex,
                netns_name: point.account.netns.clone(),
                name: point.link.name.clone(),
                netns_inode: point.account.netns_inode,
                since_ns: point.since_ns,
            })
            .collect()
    }

    /// Nothing is captured and nothing left to be drained but what may be in the table: capture points may be
    /// an empty set.
    pub fn rests(&self) -> bool {
        self.scope.points().is_some()
            && self.watch.is_idle()
            && self.points.is_empty()
            && self.leaving.is_empty()
    }
}

/// How long to wait; or the reason to wake up. A resting probe has no drains.
pub(crate) fn patience(
    next_drain: Instant,
    until: Option<Instant>,
    resting: bool,
) -> Result<Instant, Wake> {
    let now = Instant::now();
    if now >= next_drain && !resting {
        return Err(Wake::Interval);
    }
    if until.is_some_and(|until| now >= until) {
        return Err(Wake::Caller);
    }
    let next = if resting { now + RESTING } else { next_drain };
    Ok(until.map_or(next, |until| until.min(next)))
}
