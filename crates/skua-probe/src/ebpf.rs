//! The main probe: the flow table in the kernel, attached to interfaces as they come and go.

use std::{
    collections::{BTreeMap, HashSet},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_flow::FlowUpdate;
use skua_kernel::{
    Attachment, HookKind, KernelError,
    flow::{DrainStats, FlowTable, FlowTableConfig, LinkKind, Proof, Wakeups, prove},
};
use skua_link::{Link, LinkEvent, LinkMonitor, LinkSocket, LinkStats, Namespaces, nearest_names};

use crate::{Account, PointAccount, ProbeError, account::add_point};

/// What the probe is to watch.
#[derive(Clone, Debug)]
pub struct EbpfConfig {
    /// Names of interfaces; empty for all that are up.
    pub interfaces: Vec<String>,
    /// In all network namespaces instead of only our own.
    pub all_netns: bool,
    /// The flow table.
    pub table: FlowTableConfig,
    /// Time between drains (`agent.flow.ebpf.kernel_scan_interval`).
    pub scan_interval: Duration,
    /// Hooks to try, best first.
    pub hooks: Vec<HookKind>,
}

/// The ladder: tcx (6.6), clsact, packet socket filter.
pub const LADDER: [HookKind; 3] = [HookKind::Tcx, HookKind::Clsact, HookKind::Socket];

impl Default for EbpfConfig {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            all_netns: false,
            table: FlowTableConfig::default(),
            scan_interval: Duration::from_secs(10),
            hooks: LADDER.to_vec(),
        }
    }
}

/// Why [`EbpfProbe::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// It is time for a drain.
    Interval,
    /// The table fills up: drain now.
    Pressure,
    /// The caller's descriptor is readable.
    Caller,
}

struct Point {
    link: Link,
    /// The interface's counters when it was attached.
    counters_then: LinkStats,
    attachments: Vec<Attachment>,
    account: PointAccount,
}

/// The probe. Use it from one thread: [`wait`](Self::wait), then [`drain`](Self::drain), at the end
/// [`finish`](Self::finish).
pub struct EbpfProbe {
    config: EbpfConfig,
    /// The hook that is used, and what was found out about those before it.
    hook: HookKind,
    proofs: Vec<(HookKind, Proof)>,
    table: FlowTable,
    wakeups: Wakeups,
    namespaces: Namespaces,
    monitors: Vec<(u16, LinkMonitor)>,
    points: BTreeMap<(u16, u32), Point>,
    /// Points whose interface is gone but whose counters were not yet taken.
    leaving: Vec<(u16, u32)>,
    /// Interfaces that we could not attach to, so that we complain once.
    refused: HashSet<(u16, u32)>,
    account: Account,
    next_drain: Instant,
}

impl EbpfProbe {
    /// Loads the programs and attaches them to the interfaces that are there.
    pub fn start(config: EbpfConfig) -> Result<Self, ProbeError> {
        let (hook, proofs) = choose_hook(&config.hooks)?;
        let mut table = FlowTable::new(hook, config.table.clone())?;
        let wakeups = table.wakeups()?;
        let namespaces = Namespaces::discover(config.all_netns)?;
        let numbers: Vec<u16> = namespaces.list().iter().map(|n| n.number).collect();
        for number in &numbers {
            table.add_namespace(*number)?;
        }
        let next_drain = Instant::now() + config.scan_interval;
        let mut probe = Self {
            config,
            hook,
            proofs,
            table,
            wakeups,
            namespaces,
            monitors: Vec::new(),
            points: BTreeMap::new(),
            leaving: Vec::new(),
            refused: HashSet::new(),
            account: Account::default(),
            next_drain,
        };
        probe.check_names()?;
        for number in numbers {
            probe.follow(number)?;
        }
        Ok(probe)
    }

    /// The flow table, for what `skua doctor` and `/metrics` show.
    pub fn table(&self) -> &FlowTable {
        &self.table
    }

    /// The hook that is used.
    pub fn hook(&self) -> HookKind {
        self.hook
    }

    /// The hooks that were tried, in order; the last is used.
    pub fn proofs(&self) -> &[(HookKind, Proof)] {
        &self.proofs
    }

    /// Waits for the next drain. `caller` is a descriptor of the caller's that ends the wait, as
    /// does the time `until`.
    pub fn wait(
        &mut self,
        caller: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> Result<Wake, ProbeError> {
        loop {
            let now = Instant::now();
            if now >= self.next_drain {
                return Ok(Wake::Interval);
            }
            if until.is_some_and(|until| now >= until) {
                return Ok(Wake::Caller);
            }
            let next = until.map_or(self.next_drain, |until| until.min(self.next_drain));
            let rest = next - now;
            let timeout = Timespec {
                tv_sec: rest.as_secs() as i64,
                tv_nsec: i64::from(rest.subsec_nanos()),
            };
            let mut fds = vec![PollFd::from_borrowed_fd(
                self.wakeups.as_fd(),
                PollFlags::IN,
            )];
            fds.extend(caller.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let first_monitor = fds.len();
            fds.extend(
                self.monitors
                    .iter()
                    .map(|(_, m)| PollFd::from_borrowed_fd(m.as_fd(), PollFlags::IN)),
            );
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => continue,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(ProbeError::Wait(error.into())),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let changed: Vec<usize> = ready[first_monitor..]
                .iter()
                .enumerate()
                .filter_map(|(i, ready)| ready.then_some(i))
                .collect();
            for i in changed {
                self.read_links(i)?;
            }
            if ready[0] {
                self.wakeups.clear();
                return Ok(Wake::Pressure);
            }
            if first_monitor == 2 && ready[1] {
                return Ok(Wake::Caller);
            }
        }
    }

    /// Hands out what was counted since the last drain.
    pub fn drain(&mut self, wake: Wake, sink: impl FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        let started = thread_cpu_ns();
        let stats = self.table.drain(sink)?;
        self.settle(&stats)?;
        if wake == Wake::Interval {
            self.next_drain = (self.next_drain + self.config.scan_interval)
                .max(Instant::now() + self.config.scan_interval / 2);
            self.refresh_namespaces()?;
        }
        self.account.drains += 1;
        self.account.pressed_drains += u64::from(wake == Wake::Pressure);
        self.account.drain_ns += thread_cpu_ns() - started;
        Ok(())
    }

    /// Detaches from everything and drains a last time.
    pub fn finish(&mut self, sink: impl FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        for point in self.points.values_mut() {
            point.attachments.clear();
        }
        // Of the same moment as what was counted.
        self.read_interface_counters();
        for point in self.points.values_mut() {
            point.account.attached = false;
        }
        let stats = self.table.finish(sink)?;
        self.settle(&stats)
    }

    /// What was seen and lost so far, up to the last drain.
    pub fn account(&mut self) -> Account {
        self.read_interface_counters();
        self.account.points = self
            .points
            .iter()
            .map(|(key, point)| (*key, point.account.clone()))
            .collect();
        self.account.live = self.table.live();
        self.account.inserted = self.table.inserted();
        self.account.max_entries = u64::from(self.table.config().max_entries);
        self.account.clone()
    }

    /// Name of an interface that is or was watched.
    pub fn interface_name(&self, netns: u16, ifindex: u32) -> Option<(&str, &str)> {
        self.points
            .get(&(netns, ifindex))
            .map(|p| (p.account.netns.as_str(), p.link.name.as_str()))
    }

    /// Names of all watched interfaces by (namespace, index).
    pub fn interfaces(&self) -> impl Iterator<Item = (u16, u32, &str, &str)> {
        self.points.iter().map(|((netns, ifindex), p)| {
            (
                *netns,
                *ifindex,
                p.account.netns.as_str(),
                p.link.name.as_str(),
            )
        })
    }

    fn check_names(&self) -> Result<(), ProbeError> {
        let mut known = Vec::new();
        for namespace in self.namespaces.list() {
            match LinkSocket::open_in(namespace).and_then(|mut s| s.list()) {
                Ok(links) => known.extend(links.into_iter().map(|l| l.name)),
                Err(error) if namespace.number == 0 => return Err(error.into()),
                Err(_) => {}
            }
        }
        for name in &self.config.interfaces {
            if !known.contains(name) {
                return Err(unknown_interface(name, &known));
            }
        }
        Ok(())
    }

    fn follow(&mut self, number: u16) -> Result<(), ProbeError> {
        let Some(namespace) = self.namespaces.get(number) else {
            return Ok(());
        };
        // First listen, then list: nothing falls in between.
        let opened = LinkMonitor::open_in(namespace)
            .and_then(|monitor| Ok((monitor, LinkSocket::open_in(namespace)?.list()?)));
        let (monitor, links) = match opened {
            Ok(opened) => opened,
            Err(error) if number == 0 => return Err(error.into()),
            Err(error) => {
                tracing::warn!(namespace = namespace.name, %error, "cannot watch this namespace");
                return Ok(());
            }
        };
        self.monitors.push((number, monitor));
        for link in links {
            self.link_seen(number, link);
        }
        Ok(())
    }

    fn read_links(&mut self, monitor: usize) -> Result<(), ProbeError> {
        let Some((number, monitor)) = self.monitors.get_mut(monitor) else {
            return Ok(());
        };
        let number = *number;
        for event in monitor.read()? {
            match event {
                LinkEvent::New(link) => self.link_seen(number, link),
                LinkEvent::Deleted { ifindex, .. } => self.link_gone(number, ifindex),
                LinkEvent::Resync => self.list_again(number)?,
            }
        }
        Ok(())
    }

    fn list_again(&mut self, number: u16) -> Result<(), ProbeError> {
        let Some(namespace) = self.namespaces.get(number) else {
            return Ok(());
        };
        let links = LinkSocket::open_in(namespace)?.list()?;
        let there: HashSet<u32> = links.iter().map(|l| l.ifindex).collect();
        let gone: Vec<u32> = self
            .points
            .keys()
            .filter(|(n, i)| *n == number && !there.contains(i))
            .map(|(_, i)| *i)
            .collect();
        for ifindex in gone {
            self.link_gone(number, ifindex);
        }
        for link in links {
            self.link_seen(number, link);
        }
        Ok(())
    }

    fn link_seen(&mut self, number: u16, link: Link) {
        let key = (number, link.ifindex);
        if let Some(point) = self.points.get_mut(&key)
            && point.account.attached
        {
            // Renamed, perhaps.
            point.account.interface.clone_from(&link.name);
            point.link = link;
            return;
        }
        let wanted = if self.config.interfaces.is_empty() {
            link.up
        } else {
            self.config.interfaces.contains(&link.name)
        };
        if !wanted || self.refused.contains(&key) {
            return;
        }
        match self.attach(number, &link) {
            Ok(attachments) => {
                let namespace = self
                    .namespaces
                    .get(number)
                    .map(|n| n.name.clone())
                    .unwrap_or_default();
                let hook = attachments.first().map_or("none", |a| a.kind().name());
                tracing::info!(interface = link.name, namespace, hook, "attached");
                // One with this index may be gone since the last drain, and its counters not
                // taken yet: what takes its place is the same capture point, which goes on.
                self.leaving.retain(|leaving| *leaving != key);
                let mut account = match self.points.remove(&key) {
                    Some(point) => point.account,
                    None => PointAccount::default(),
                };
                account.interface.clone_from(&link.name);
                account.netns = namespace;
                account.hook = hook;
                account.attached = true;
                self.points.insert(
                    key,
                    Point {
                        counters_then: grown(&link.stats, &account.interface_counters),
                        link,
                        attachments,
                        account,
                    },
                );
            }
            Err(error) => {
                self.refused.insert(key);
                tracing::warn!(interface = link.name, %error, "not watched");
            }
        }
    }

    fn attach(&mut self, number: u16, link: &Link) -> Result<Vec<Attachment>, ProbeError> {
        let kind = link_kind(link).ok_or_else(|| ProbeError::UnsupportedLink {
            name: link.name.clone(),
            arphrd: link.arphrd,
        })?;
        self.table.add_point(number, link.ifindex)?;
        let hook = self.hook;
        let mut programs = Vec::new();
        for direction in hook.directions(link.is_loopback()) {
            if let Some(program) = self.table.program(number, *direction, kind)? {
                let program = program.try_clone_to_owned().map_err(ProbeError::Wait)?;
                programs.push((*direction, program));
            }
        }
        if programs.is_empty() {
            return Err(ProbeError::UnsupportedLink {
                name: link.name.clone(),
                arphrd: link.arphrd,
            });
        }
        let attach_all = || -> Result<Vec<Attachment>, KernelError> {
            programs
                .iter()
                .map(|(direction, program)| {
                    Attachment::new(program.as_fd(), link.ifindex, *direction, hook)
                })
                .collect()
        };
        let attached = match self.namespaces.get(number) {
            Some(namespace) if number != 0 => namespace.enter(attach_all)?,
            _ => attach_all(),
        };
        Ok(attached?)
    }

    fn link_gone(&mut self, number: u16, ifindex: u32) {
        self.refused.remove(&(number, ifindex));
        if let Some(point) = self.points.get_mut(&(number, ifindex)) {
            tracing::info!(interface = point.link.name, "gone");
            // The kernel has detached the programs with the interface.
            point.attachments.clear();
            point.account.attached = false;
            self.leaving.push((number, ifindex));
        }
    }

    fn refresh_namespaces(&mut self) -> Result<(), ProbeError> {
        let changes = self.namespaces.refresh()?;
        for number in changes.removed {
            self.monitors.retain(|(n, _)| *n != number);
            let gone: Vec<u32> = self
                .points
                .keys()
                .filter(|(n, _)| *n == number)
                .map(|(_, i)| *i)
                .collect();
            for ifindex in gone {
                self.link_gone(number, ifindex);
            }
            self.table.remove_namespace(number);
        }
        for number in changes.added {
            self.table.add_namespace(number)?;
            self.follow(number)?;
        }
        Ok(())
    }

    /// After a drain: adds up what each point counted.
    fn settle(&mut self, stats: &DrainStats) -> Result<(), ProbeError> {
        self.account.updates += stats.updates;
        for (key, traffic) in &stats.traffic {
            let account = match self.points.get_mut(key) {
                Some(point) => &mut point.account,
                None => &mut self.account.gone,
            };
            account.flows.ingress += traffic.ingress;
            account.flows.egress += traffic.egress;
            account.flows.mixed += traffic.mixed;
        }
        for ((netns, ifindex), point) in &mut self.points {
            if let Some([ingress, egress]) = self.table.point_counters(*netns, *ifindex)? {
                point.account.ingress = ingress;
                point.account.egress = egress;
            }
        }
        for key in std::mem::take(&mut self.leaving) {
            if let Some(point) = self.points.remove(&key) {
                add_point(&mut self.account.gone, &point.account);
                self.table.remove_point(key.0, key.1)?;
            }
        }
        Ok(())
    }

    fn read_interface_counters(&mut self) {
        for namespace in self.namespaces.list() {
            let Ok(links) = LinkSocket::open_in(namespace).and_then(|mut s| s.list()) else {
                continue;
            };
            for link in links {
                if let Some(point) = self.points.get_mut(&(namespace.number, link.ifindex))
                    && point.account.attached
                {
                    point.account.interface_counters = grown(&link.stats, &point.counters_then);
                }
            }
        }
    }
}

/// The first hook that is proven to work, with all that was found out on the way.
fn choose_hook(hooks: &[HookKind]) -> Result<(HookKind, Vec<(HookKind, Proof)>), ProbeError> {
    let mut proofs = Vec::new();
    for hook in hooks {
        let proof = prove(*hook);
        tracing::info!(
            hook = hook.name(),
            proof = proof.name(),
            reason = proof.reason(),
            "hook"
        );
        let active = proof == Proof::Active;
        proofs.push((*hook, proof));
        if active {
            return Ok((*hook, proofs));
        }
    }
    let reasons: Vec<String> = proofs
        .iter()
        .map(|(hook, proof)| format!("{} is {}: {}", hook.name(), proof.name(), proof.reason()))
        .collect();
    Err(ProbeError::NoHook(reasons.join("; ")))
}

fn grown(now: &LinkStats, then: &LinkStats) -> LinkStats {
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

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
