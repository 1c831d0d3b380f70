//! The flow table that lives in the kernel: loading its programs, attaching them, draining it.

mod addresses;
mod drain;
mod eviction;
pub(crate) mod filter;
mod layout;
mod namespaces;
mod object;
mod packets;
mod proof;
mod tables;

pub use addresses::Addresses;
pub use drain::DrainStats;
pub use object::{FlowObject, LinkKind, Rung};
pub use packets::{PacketConfig, PacketRing, SentPacket};
pub use proof::{Proof, prove};
use skua_flow::HashKey;
pub use skua_flow::PointTraffic;

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher as _, RandomState},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use libbpf_rs::MapCore as _;

use crate::bindings::flow::PointKey;
use crate::plain::Plain as _;
use crate::{
    Direction, HookKind, KernelError, budget::Purpose, clock, grace::Grace, mapping::Window,
    ring::Ring, ticks::Ticks,
};
use eviction::Eviction;
use filter::{FilterProgram, FilterSet};
use layout::{Control, PROBES, Settings};
use namespaces::{Further, Serves};
use tables::Member;

/// Slots per entry: the table is half full when it has `max_entries` live entries, so that probe
/// sequences stay short, and three quarters full at the height of a burst.
const SLOTS_PER_ENTRY: u64 = 2;

/// Live entries at the height of a burst, until a drain has made room again.
fn most_entries(max_entries: u32) -> u32 {
    max_entries.saturating_add(max_entries / 2)
}

/// Slots at most: an index and a reason share 32 bits in the drain.
const MAX_SLOTS: u64 = (1 << 30) - PROBES as u64;

/// At most one packet of a flow in so many ns is looked at, and what is new of a side.
const LOOK_NS: u64 = 1 << 33;

/// What a flow table is made with.
#[derive(Clone, Debug)]
pub struct FlowTableConfig {
    /// Live entries that the table holds from drain to drain (`flow.max_entries`); bursts may
    /// take half as many more until a drain has made room.
    pub max_entries: u32,
    /// Count one packet of N; 1 counts all.
    pub sampling: u32,
    /// Decode tunnels.
    pub tunnels: bool,
    /// Entry ends after this long without packets.
    pub idle_timeout: Duration,
    /// A closed TCP connection's entry ends after this long without packets.
    pub closed_timeout: Duration,
    /// Seed of the hash, secret so that an attacker cannot aim at one slot.
    pub hash_seed: u64,
    /// Interfaces in all namespaces together at most.
    pub max_points: u32,
    /// Pcap expression; empty counts all.
    pub filter: String,
    /// Leave out the traffic of sockets given to [`OwnSockets::mark`]; tc programs only.
    pub exclude_self: bool,
    /// Prefixes that an address set may have (`flow.addresses.max_entries`); 0: there is never one,
    /// and nothing is paid for it.
    pub max_addresses: u32,
    /// Send packets to user space, too; none: never, and nothing is paid for it.
    pub packets: Option<PacketConfig>,
    /// Use the programs of other tables that want it and have the same settings, `hash_seed` and limits among them: the
    /// kernel verifies them once. Where it cannot (before 6.2), the table has programs of its own.
    pub share_programs: bool,
}

impl Default for FlowTableConfig {
    fn default() -> Self {
        Self {
            max_entries: 500_000,
            sampling: 1,
            tunnels: false,
            idle_timeout: Duration::from_secs(120),
            closed_timeout: Duration::from_secs(5),
            hash_seed: RandomState::new().hash_one(0),
            max_points: 4096,
            filter: String::new(),
            exclude_self: false,
            max_addresses: 0,
            packets: None,
            share_programs: false,
        }
    }
}

/// Number of causes.
pub const CAUSES: usize = skua_flow::Cause::ALL.len();

/// Packets and bytes by cause, for one direction of one capture point.
pub type CauseCounters = [skua_flow::Counters; CAUSES];

/// A flow table in the kernel. Dropping it frees the maps; attachments are separate.
pub struct FlowTable {
    config: FlowTableConfig,
    settings: Settings,
    /// As in the settings.
    rung: Rung,
    /// The maps, and the programs for our own network namespace.
    first: FlowObject,
    /// The programs for interfaces of our own namespace without an Ethernet header, once there is one.
    first_ip: Option<FlowObject>,
    /// The programs for further namespaces, on the same maps.
    further: Further,
    /// The programs that it shares with other tables, instead of those in `first` and `further`.
    member: Option<Member>,
    /// The filter by kind of link; none counts all.
    filters: Option<FilterSet>,
    /// Filter programs made so far, each with the array through which it calls the flow program.
    filter_programs: HashMap<(Serves, Direction, LinkKind), FilterProgram>,
    control: Window<Control>,
    ticks: Ticks,
    grace: Grace,
    /// Indices of the slots that end in this drain; kept to save allocations.
    dying: Vec<u32>,
    /// Freed slots that the last drain had to leave as tombstones.
    tombs: usize,
    /// How the table fills up, and which entries are evicted.
    eviction: Eviction,
    /// Connections whose ports were used again.
    ended: Ring,
}

impl FlowTable {
    /// Creates the maps and loads the programs for the agent's own namespace (number 0), by the
    /// best rung that this kernel takes.
    /// `hook` says which kind of programs.
    pub fn new(hook: HookKind, config: FlowTableConfig) -> Result<Self, KernelError> {
        Self::with_rungs(Rung::ladder(hook), config)
    }

    /// As [`new`](Self::new), with the rungs to try.
    pub fn with_rungs(rungs: &[Rung], config: FlowTableConfig) -> Result<Self, KernelError> {
        let filters = FilterSet::compile(&config.filter)?;
        let slot_count = slot_count(config.max_entries);
        let ticks = Ticks::measured()?;
        let hash_key = HashKey::new(config.hash_seed).words();
        let [print_key @ .., _] = HashKey::new(!config.hash_seed).words();
        let settings = Settings {
            look_shift: ticks.shift_within(LOOK_NS),
            hash_key,
            print_key,
            hash_zeros: layout::added_by_zeros(&hash_key),
            print_zeros: layout::added_by_zeros(&print_key),
            slot_count,
            most_entries: most_entries(config.max_entries),
            sampling: config.sampling.max(1),
            tunnels: config.tunnels.into(),
            exclude_self: config.exclude_self.into(),
            addresses: (config.max_addresses > 0).into(),
            first_packets: config.packets.map_or(0, |packets| packets.first),
            packet_bytes: config.packets.map_or(0, |packets| packets.most_bytes()),
            head_rate: config.packets.map_or(0, |packets| packets.heads),
            head_segments: config.packets.map_or(0, |packets| packets.head_segments),
            ..Settings::default()
        };
        let (object, rung, settings, member) = match shared(rungs, settings, &config) {
            Some((object, settings, member)) => (object, tables::RUNG, settings, Some(member)),
            None => {
                let (object, rung, settings) = FlowObject::load_best(rungs, settings, &config)?;
                (object, rung, settings, None)
            }
        };
        let control = Window::map(object.map("control")?.as_fd(), 0, 1)?;
        let ended = Ring::new(
            object.map("ended_flows")?.as_fd(),
            ended_ring_size(config.max_entries),
            size_of::<layout::Ended>(),
        )?;
        let eviction = Eviction::new(
            config.max_entries,
            settings.most_entries,
            clock::monotonic_ns(),
        );
        let table = Self {
            config,
            settings,
            rung,
            first: object,
            first_ip: None,
            further: Further::default(),
            member,
            filters,
            filter_programs: HashMap::new(),
            control,
            ticks,
            grace: Grace::new()?,
            dying: Vec::new(),
            tombs: 0,
            eviction,
            ended,
        };
        table.set_wakeup();
        table.set_ended_wakeup();
        Ok(table)
    }

    /// Kernel memory of a table with so many entries, in bytes, without its small maps.
    pub fn memory(max_entries: u32) -> u64 {
        let slots = u64::from(slot_count(max_entries) + PROBES);
        let slot = size_of::<layout::Slot>() + size_of::<layout::ColdSlot>();
        slots * slot as u64
    }

    /// The period of looks at a time of CLOCK_MONOTONIC: of each flow, its programs look at the first packet in each.
    pub fn look_period(&self, monotonic_ns: u64) -> u64 {
        (self.ticks.at(monotonic_ns) >> self.settings.look_shift) as u64
    }

    /// The rung of the ladder that was taken.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// The configuration.
    pub fn config(&self) -> &FlowTableConfig {
        &self.config
    }

    /// Adds a further namespace, by its inode's number, before a program is requested for it.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn add_namespace(&mut self, number: u16, inode: u64) -> Result<(), KernelError> {
        if let Some(member) = &mut self.member {
            return member.add_namespace(number, inode);
        }
        if number == 0 {
            return Ok(());
        }
        let filtered = self.filters.is_some();
        let load = || FlowObject::load_for_all(self.rung, self.settings, filtered, &self.first);
        self.further.add(number, inode, load)
    }

    /// Removes a namespace that has ended, and unloads the programs that only it had.
    pub fn remove_namespace(&mut self, number: u16) {
        self.filter_programs
            .retain(|(serves, ..), _| *serves != Serves::One(number));
        self.further.remove(number);
        if let Some(member) = &mut self.member {
            member.remove_namespace(number);
        }
    }

    /// Whether further namespaces share their programs, so that their number is not limited. None before
    /// the first is added.
    pub fn shares_programs(&self) -> Option<bool> {
        match self.member {
            Some(_) => Some(true),
            None => self.further.shares(),
        }
    }

    /// The program to attach: the flow program, or the filter before it. None where the hook has none
    /// (egress at XDP). Programs of a further namespace, which [`add_namespace`](Self::add_namespace) must
    /// have added, are loaded at the first request.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooManyPrograms`], or the kernel refuses.
    pub fn program(
        &mut self,
        netns: u16,
        direction: Direction,
        link: LinkKind,
    ) -> Result<Option<BorrowedFd<'_>>, KernelError> {
        let Some((flow, left)) = self.rung.program_names(direction, link) else {
            return Ok(None);
        };
        if self.member.is_some() {
            return self.shared_program(direction, link).map(Some);
        }
        let filtered = self.filters.is_some();
        let (object, serves) = match (netns, link) {
            (0, LinkKind::Ethernet) => (&self.first, Serves::Ours),
            (0, LinkKind::Ip) => {
                if self.first_ip.is_none() {
                    let (settings, first) = (self.settings, &self.first);
                    let loaded =
                        FlowObject::load_sharing(self.rung, settings, link, filtered, first)?;
                    self.first_ip = Some(loaded);
                }
                let ip = self.first_ip.as_ref();
                (ip.ok_or(KernelError::Missing("programs"))?, Serves::Ours)
            }
            _ => self.further.object(netns, link, || {
                let settings = Settings {
                    netns,
                    ..self.settings
                };
                FlowObject::load_sharing(self.rung, settings, link, filtered, &self.first)
            })?,
        };
        let flow = object.program(flow)?;
        let purpose = match serves {
            Serves::One(_) => Purpose::Namespace,
            Serves::Ours | Serves::Further | Serves::All => Purpose::Any,
        };
        let program = match (
            self.filter_programs.entry((serves, direction, link)),
            &self.filters,
        ) {
            (Entry::Occupied(known), _) => known.into_mut(),
            (Entry::Vacant(place), Some(filters)) => {
                let (filter, left) = (filters.of(link)?, object.program(left)?);
                place.insert(FilterProgram::load(filter, self.rung, flow, left, purpose)?)
            }
            (Entry::Vacant(_), None) if self.rung != Rung::Socket => return Ok(Some(flow)),
            (Entry::Vacant(place), None) => {
                let fits = filter::fits_socket(flow).map_err(|source| KernelError::System {
                    what: "cannot read the size of a program",
                    source,
                })?;
                if fits {
                    return Ok(Some(flow));
                }
                let all = filter::everything(link)?;
                place.insert(FilterProgram::before(&all, self.rung, flow, purpose)?)
            }
        };
        Ok(Some(FilterProgram::as_fd(program)))
    }

    /// The entrance to the programs that the table shares, or the filter before it.
    fn shared_program(
        &mut self,
        direction: Direction,
        link: LinkKind,
    ) -> Result<BorrowedFd<'_>, KernelError> {
        let (settings, maps) = (self.settings, &self.first);
        let Some(member) = &mut self.member else {
            return Err(KernelError::Missing("shared programs"));
        };
        let Some(filters) = &self.filters else {
            return member.entrance(direction, link, false, settings, maps);
        };
        let program = match self.filter_programs.entry((Serves::All, direction, link)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let mut entrance = |left| {
                    let program = member.entrance(direction, link, left, settings, maps)?;
                    let program = program.try_clone_to_owned();
                    program.map_err(|source| KernelError::System {
                        what: "cannot duplicate a descriptor",
                        source,
                    })
                };
                let (flow, left) = (entrance(false)?, entrance(true)?);
                vacant.insert(FilterProgram::load(
                    filters.of(link)?,
                    self.rung,
                    flow.as_fd(),
                    left.as_fd(),
                    Purpose::Any,
                )?)
            }
        };
        Ok(FilterProgram::as_fd(program))
    }

    /// Makes the counters of a capture point. To be called before attaching.
    pub fn add_point(&self, netns: u16, ifindex: u32) -> Result<(), KernelError> {
        let map = self.first.map("points")?;
        let size = map.value_size() as usize;
        let zero = vec![vec![0u8; size]; libbpf_rs::num_possible_cpus().unwrap_or(1)];
        match map.update_percpu(
            point_key(netns, ifindex).bytes(),
            &zero,
            libbpf_rs::MapFlags::NO_EXIST,
        ) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::AlreadyExists => {
                Err(KernelError::System {
                    what: "cannot make the counters of an interface",
                    source: std::io::Error::other(error),
                })
            }
            _ => Ok(()),
        }
    }

    /// Forgets the counters of a capture point.
    pub fn remove_point(&self, netns: u16, ifindex: u32) -> Result<(), KernelError> {
        // Not there is as good as deleted.
        let _ = self
            .first
            .map("points")?
            .delete(point_key(netns, ifindex).bytes());
        Ok(())
    }

    /// Counters by cause of a capture point: ingress, egress. None when it is not known.
    pub fn point_counters(
        &self,
        netns: u16,
        ifindex: u32,
    ) -> Result<Option<[CauseCounters; 2]>, KernelError> {
        let values = self
            .first
            .map("points")?
            .lookup_percpu(point_key(netns, ifindex).bytes(), libbpf_rs::MapFlags::ANY)
            .map_err(|error| KernelError::System {
                what: "cannot read the counters of an interface",
                source: std::io::Error::other(error),
            })?;
        Ok(values.map(|values| sum_counters(&values)))
    }

    /// Counters of packets on interfaces without counters of their own (more than `max_points`).
    pub fn unattributed_counters(&self) -> Result<[CauseCounters; 2], KernelError> {
        let values = self
            .first
            .map("no_point")?
            .lookup_percpu(&0u32.to_ne_bytes(), libbpf_rs::MapFlags::ANY)
            .map_err(|error| KernelError::System {
                what: "cannot read the counters of unknown interfaces",
                source: std::io::Error::other(error),
            })?;
        Ok(values
            .map(|values| sum_counters(&values))
            .unwrap_or_default())
    }

    /// A handle to change the address set, of which there must be only one; none without `max_addresses`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn addresses(&self) -> Result<Option<Addresses>, KernelError> {
        match self.config.max_addresses {
            0 => Ok(None),
            _ => Addresses::new(&self.first).map(Some),
        }
    }

    /// The packets that programs send; none without [`FlowTableConfig::packets`]. There must be one
    /// reader at a time.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn packets(&self) -> Result<Option<PacketRing>, KernelError> {
        match &self.config.packets {
            None => Ok(None),
            Some(config) => PacketRing::new(&self.first, config).map(Some),
        }
    }

    /// Returns when every program run that began before the call has ended: what was detached
    /// before counts nothing any more.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn wait_for_programs(&self) -> Result<(), KernelError> {
        self.grace.wait()
    }

    /// By which sockets are marked as our own, also when the table is elsewhere.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn own_sockets(&self) -> Result<OwnSockets, KernelError> {
        let map = libbpf_rs::MapHandle::try_from(&self.first.map("own_sockets")?);
        map.map(OwnSockets).map_err(OwnSockets::failed)
    }

    /// Live entries now.
    pub fn live(&self) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        let control = &self.control.elements()[0];
        control
            .inserted
            .load(Relaxed)
            .saturating_sub(control.freed.load(Relaxed))
    }

    /// Entries made since the start, and packets that the full table refused one.
    fn wanted(&self) -> u64 {
        use std::sync::atomic::Ordering::Acquire;
        let control = &self.control.elements()[0];
        control.inserted.load(Acquire) + control.refused.load(Acquire)
    }

    /// Entries made since the start.
    pub fn inserted(&self) -> u64 {
        self.control.elements()[0]
            .inserted
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Bytes of kernel memory of each map, by name.
    pub fn map_memory(&self) -> Vec<(String, u64)> {
        self.first.map_memory()
    }

    /// Becomes readable when the table fills up. The messages carry nothing.
    pub fn wakeups(&self) -> Result<Wakeups, KernelError> {
        let failed = |error| KernelError::System {
            what: "cannot listen to the flow table",
            source: std::io::Error::other(error),
        };
        let map = self.first.map("wakeups")?;
        let mut builder = libbpf_rs::RingBufferBuilder::new();
        builder.add(&map, |_| 0).map_err(failed)?;
        Ok(Wakeups(builder.build().map_err(failed)?))
    }

    /// Elements of the slot maps: probing begins at one of the first `slot_count`.
    fn slots(&self) -> usize {
        (self.settings.slot_count + PROBES) as usize
    }
}

/// The maps of a table that shares programs, and its part in these; none where it cannot or must not.
fn shared(
    rungs: &[Rung],
    settings: Settings,
    config: &FlowTableConfig,
) -> Option<(FlowObject, Settings, Member)> {
    let possible = config.share_programs
        && !config.exclude_self
        && config.max_addresses == 0
        && rungs.first() == Some(&tables::RUNG);
    if !possible {
        return None;
    }
    let settings = Settings {
        gso_size: 1,
        ..settings
    };
    let filtered = !config.filter.trim().is_empty();
    let joined = || {
        let maps = FlowObject::load_maps(tables::RUNG, settings, config)?;
        let member = Member::join(settings, filtered, &maps)?;
        Ok((maps, settings, member))
    };
    joined()
        .inspect_err(|error: &KernelError| {
            tracing::info!(%error, "a capture has programs of its own");
        })
        .ok()
}

/// The table's calls for a drain; readable when there is one.
pub struct Wakeups(libbpf_rs::RingBuffer<'static>);

impl Wakeups {
    /// Discards the pending wake-ups.
    pub fn clear(&self) {
        // The messages are empty, and an error cannot be reported here.
        let _ = self.0.consume();
    }
}

impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring buffer owns the epoll descriptor and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.0.epoll_fd()) }
    }
}

/// Bytes of the ring of ended connections: room for one of 33 entries between drains, at least 490;
/// when half of it is taken the programs call for a drain.
fn ended_ring_size(max_entries: u32) -> u32 {
    max_entries
        .saturating_mul(8)
        .clamp(1 << 17, 1 << 24)
        .next_power_of_two()
}

/// Places to begin probing for a number of entries.
fn slot_count(max_entries: u32) -> u32 {
    (u64::from(max_entries) * SLOTS_PER_ENTRY).clamp(64, MAX_SLOTS) as u32
}

fn point_key(netns: u16, ifindex: u32) -> PointKey {
    PointKey {
        ifindex,
        netns: netns.into(),
    }
}

fn sum_counters(cpus: &[Vec<u8>]) -> [CauseCounters; 2] {
    let mut sum = [CauseCounters::default(); 2];
    for value in cpus {
        for (i, pair) in value.chunks_exact(16).take(2 * CAUSES).enumerate() {
            let word = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&pair[at..at + 8]);
                u64::from_ne_bytes(bytes)
            };
            sum[i / CAUSES][i % CAUSES] += skua_flow::Counters {
                packets: word(0),
                bytes: word(8),
            };
        }
    }
    sum
}

/// Our own sockets, whose traffic is left out.
#[derive(Debug)]
pub struct OwnSockets(libbpf_rs::MapHandle);

impl OwnSockets {
    /// Marks a socket, and with it those that it will accept, as our own.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn mark(&self, socket: BorrowedFd<'_>) -> Result<(), KernelError> {
        let key = socket.as_raw_fd().to_ne_bytes();
        self.0
            .update(&key, &1u32.to_ne_bytes(), libbpf_rs::MapFlags::ANY)
            .map_err(Self::failed)
    }

    fn failed(error: libbpf_rs::Error) -> KernelError {
        KernelError::System {
            what: "cannot mark our own socket",
            source: std::io::Error::other(error),
        }
    }
}
