//! The main probe: the flow table in the kernel, attached to interfaces as they come and go.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use skua_flow::{FlowUpdate, Mark, Prefix};
use skua_kernel::{
    Attachment, HookKind, KernelError,
    flow::{DrainStats, FlowTable, FlowTableConfig, OwnSockets, PacketRing, Proof, Wakeups, prove},
    next_tick,
};
use skua_link::Link;

pub use crate::Wake;
use crate::{
    Account, AddressEdit, Description, LiveAddresses, LivePoints, Packets, PacketsConfig, Probe,
    ProbeError, Watched, WatchedNamespace,
    follow::Follow,
    interfaces::{Interfaces, patience},
    watch::{link_kind, thread_cpu_ns},
};

/// What the probe is to watch.
#[derive(Clone, Debug)]
pub struct EbpfConfig {
    /// Names of interfaces; empty for all that are up.
    pub interfaces: Vec<String>,
    /// In all network namespaces instead of only our own.
    pub all_netns: bool,
    /// Capture points, in place of both.
    pub points: Option<LivePoints>,
    /// Packets to keep or stream in addition to flows; none: the programs have no code for that.
    pub packets: Option<PacketsConfig>,
    /// The flow table.
    pub table: FlowTableConfig,
    /// The address set at the start.
    pub addresses: Vec<(Prefix, Mark)>,
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
            points: None,
            packets: None,
            table: FlowTableConfig::default(),
            addresses: Vec::new(),
            scan_interval: Duration::from_secs(10),
            hooks: LADDER.to_vec(),
        }
    }
}

/// The probe; see [`Probe`] for its use.
pub struct EbpfProbe {
    config: EbpfConfig,
    /// The hook that is used, and what was found out about those before it.
    hook: HookKind,
    proofs: Vec<(HookKind, Proof)>,
    table: FlowTable,
    wakeups: Wakeups,
    addresses: LiveAddresses,
    packets: Option<(Packets, PacketRing)>,
    interfaces: Interfaces<Vec<Attachment>>,
    next_drain: Instant,
}

impl EbpfProbe {
    /// Loads the programs and attaches them to the interfaces that are there.
    pub fn start(config: EbpfConfig) -> Result<Self, ProbeError> {
        let (hook, proofs) = choose_hook(&config.hooks)?;
        let table = FlowTable::new(
            hook,
            FlowTableConfig {
                packets: config.packets.map(|packets| packets.in_kernel()),
                // Captures come and go; what watches all interfaces stays.
                share_programs: config.points.is_some(),
                ..config.table.clone()
            },
        )?;
        let packets = match (config.packets, table.packets()?) {
            (Some(config), Some(ring)) => Some((Packets::of_programs(config)?, ring)),
            _ => None,
        };
        let wakeups = table.wakeups()?;
        let addresses = live_addresses(&table)?;
        // Before anything is attached.
        addresses.edit(AddressEdit::Replace(&config.addresses))?;
        let points = config.points.as_ref();
        let interfaces = Interfaces::new(&config.interfaces, points, config.all_netns)?;
        let numbers = interfaces.first_namespaces();
        let next_drain = next_tick(config.scan_interval);
        let mut probe = Self {
            config,
            hook,
            proofs,
            table,
            wakeups,
            addresses,
            packets,
            interfaces,
            next_drain,
        };
        let mut refused = None;
        for number in numbers {
            let refusal = probe.follow(number)?;
            refused = refused.or(refusal);
        }
        // All named interfaces were refused, so nothing would be seen; without names others may appear.
        if let Some(error) = refused
            && !probe.config.interfaces.is_empty()
            && probe.interfaces.attached().is_empty()
        {
            return Err(error);
        }
        probe.points_changed()?;
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

    /// Drains the packets that programs sent.
    fn drain_packets(&mut self) -> Result<(), ProbeError> {
        if let Some((packets, ring)) = &mut self.packets {
            while ring.drain(&mut |packet| packets.record(packet))? {}
        }
        Ok(())
    }

    /// Makes programs send all packets while a live stream is open.
    fn watchers_changed(&mut self) -> Result<(), ProbeError> {
        let Some((packets, ring)) = &mut self.packets else {
            return Ok(());
        };
        let watched = packets.clear_wake();
        ring.set_live(watched)?;
        // What was sent before without a call: from here on each packet calls, when nothing
        // waits before it.
        self.drain_packets()?;
        if let (true, Some((packets, _))) = (watched, &self.packets) {
            packets.started();
        }
        Ok(())
    }

    /// Nothing is attached and nothing left to be drained: capture points may be an empty set.
    fn rests(&self) -> bool {
        self.interfaces.rests() && self.table.live() == 0
    }

    /// After a drain: adds up what each point counted.
    fn settle(&mut self, stats: &DrainStats) -> Result<(), ProbeError> {
        self.interfaces.drained(stats.updates, &stats.traffic);
        for ((netns, ifindex), account) in self.interfaces.accounts() {
            if let Some([ingress, egress]) = self.table.point_counters(netns, ifindex)? {
                account.ingress = ingress;
                account.egress = egress;
            }
        }
        for (netns, ifindex) in self.interfaces.take_leaving() {
            self.table.remove_point(netns, ifindex)?;
        }
        Ok(())
    }
}

impl Follow for EbpfProbe {
    type Capture = Vec<Attachment>;

    fn interfaces(&mut self) -> &mut Interfaces<Self::Capture> {
        &mut self.interfaces
    }

    fn attach(&mut self, number: u16, link: &Link) -> Result<Vec<Attachment>, ProbeError> {
        let kind = link_kind(link).ok_or_else(|| ProbeError::UnsupportedLink {
            name: link.name.clone(),
            arphrd: link.arphrd,
        })?;
        if let Some(inode) = self.interfaces.watch.inode(number) {
            self.table.add_namespace(number, inode)?;
        }
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
        Ok(self.interfaces.watch.enter(number, attach_all)??)
    }

    fn hook_of(&self, capture: &Self::Capture) -> &'static str {
        capture.first().map_or("none", |a| a.kind().name())
    }

    fn wait_for_detached(&mut self) -> Result<(), ProbeError> {
        Ok(self.table.wait_for_programs()?)
    }

    fn has_room(&self) -> bool {
        self.table.shares_programs() == Some(true) || skua_kernel::has_room_for_namespaces()
    }

    fn namespace_removed(&mut self, number: u16) {
        self.table.remove_namespace(number);
    }
}

impl Probe for EbpfProbe {
    fn wait(
        &mut self,
        caller: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> Result<Wake, ProbeError> {
        loop {
            let next = match patience(self.next_drain, until, self.rests()) {
                Ok(next) => next,
                Err(wake) => return Ok(wake),
            };
            let points = self.interfaces.scope.points().map(LivePoints::as_fd);
            let packets = self.packets.as_ref();
            let given = [
                Some(self.wakeups.as_fd()),
                caller,
                points,
                packets.map(|(packets, _)| packets.as_fd()),
                packets.map(|(_, ring)| ring.wake()),
            ];
            let ready = self.interfaces.watch.poll(&given, next)?;
            for namespace in ready.namespaces {
                let changes = self.interfaces.watch.read(namespace);
                self.links_changed(changes);
            }
            let [drain, called, points, watchers, packets] = ready.given;
            if packets {
                self.drain_packets()?;
            }
            if watchers {
                self.watchers_changed()?;
            }
            if points {
                self.points_changed()?;
            }
            if drain {
                self.wakeups.clear();
                return Ok(Wake::Pressure);
            }
            if called {
                return Ok(Wake::Caller);
            }
        }
    }

    fn read_packets(&mut self) -> Result<(), ProbeError> {
        self.drain_packets()
    }

    fn drain(&mut self, wake: Wake, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        let started = thread_cpu_ns();
        self.drain_packets()?;
        let stats = self.table.drain(sink)?;
        self.settle(&stats)?;
        if wake == Wake::Interval {
            self.next_drain = next_tick(self.config.scan_interval);
            self.refresh_namespaces()?;
        }
        self.interfaces.account.drained(wake, started);
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        self.interfaces.end();
        // Of the same moment as what was counted.
        self.interfaces.read_counters();
        self.interfaces.ended();
        let stats = self.table.finish(sink)?;
        // All programs have ended by now.
        self.drain_packets()?;
        if let Some((packets, _)) = &self.packets {
            packets.end();
        }
        self.settle(&stats)
    }

    fn account(&mut self) -> Account {
        let account = &mut self.interfaces.account;
        account.live = self.table.live();
        account.inserted = self.table.inserted();
        account.max_entries = u64::from(self.table.config().max_entries);
        account.addresses = self.addresses.counts();
        self.interfaces.whole_account()
    }

    fn interfaces(&self) -> Vec<Watched> {
        self.interfaces.watched()
    }

    fn namespaces(&self) -> Vec<WatchedNamespace> {
        self.interfaces.watch.namespaces()
    }

    fn describe(&self) -> Description {
        Description {
            // A hook may have fallen back to another kind: generic XDP.
            hook: self
                .interfaces
                .captures()
                .flatten()
                .map(Attachment::kind)
                .find(|kind| *kind != self.hook)
                .unwrap_or(self.hook)
                .name(),
            rung: self.table.rung().describe().to_owned(),
        }
    }

    fn addresses(&self) -> LiveAddresses {
        self.addresses.clone()
    }

    fn points(&self) -> Option<LivePoints> {
        self.interfaces.scope.points().cloned()
    }

    fn packets(&self) -> Option<Packets> {
        self.packets.as_ref().map(|(packets, _)| packets.clone())
    }

    fn own_sockets(&self) -> Result<Option<OwnSockets>, ProbeError> {
        Ok(Some(self.table.own_sockets()?))
    }

    fn map_memory(&self) -> Vec<(String, u64)> {
        self.table.map_memory()
    }
}

fn live_addresses(table: &FlowTable) -> Result<LiveAddresses, ProbeError> {
    let mut kernel = table.addresses()?;
    Ok(LiveAddresses::new(
        table.config().max_addresses,
        move |set| match &mut kernel {
            Some(kernel) => Ok(kernel.set(set)?),
            None => Err(ProbeError::NoAddresses),
        },
    ))
}

/// Hooks that were proven: kernels do not change while we run.
static PROVEN: Mutex<Vec<HookKind>> = Mutex::new(Vec::new());

fn proof_of(hook: HookKind) -> Proof {
    let proven = || PROVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if proven().contains(&hook) {
        return Proof::Active;
    }
    let proof = prove(hook);
    if proof == Proof::Active {
        proven().push(hook);
    }
    proof
}

/// The first hook that is proven to work, with all that was found out on the way.
fn choose_hook(hooks: &[HookKind]) -> Result<(HookKind, Vec<(HookKind, Proof)>), ProbeError> {
    let mut proofs = Vec::new();
    for hook in hooks {
        let proof = proof_of(*hook);
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
