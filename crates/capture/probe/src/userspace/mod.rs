//! Probes that take every packet to user space and count it there, for where the kernel cannot keep
//! the flow table: by a packet ring (`afpacket`) or libpcap (`pcap`). One thread for each interface
//! reads its ring; all count in one table, which they lock for each block of packets.

pub mod dpdk;
mod polling;
mod reader;
mod source;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::event::{EventfdFlags, eventfd};
use skua_flow::{
    Ageing, CapturePoint, Direction, Drained, EndReason, FlowTable, FlowUpdate, Mark, Prefix,
    TableConfig,
};
use skua_kernel::{
    flow::{CauseCounters, FlowTableConfig, LinkKind},
    next_tick,
};
use skua_link::Link;
use skua_packet::LinkType;

use crate::{
    Account, AddressEdit, Description, LiveAddresses, LivePoints, Packets, PacketsConfig, Probe,
    ProbeError, Selection, Wake, Watched, WatchedNamespace,
    follow::Follow,
    interfaces::{Interfaces, patience},
    watch::{link_kind, thread_cpu_ns},
};
use reader::Reader;
use source::{CaptureNeeds, Source};

/// Memory of packet rings: up to so many of them have so many bytes each. All together less than 512 MiB;
/// then no further interface is watched.
const RINGS: [(usize, usize); 3] = [(16, 8 << 20), (64, 2 << 20), (1024, 256 << 10)];

/// How packets come to user space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capture {
    /// A ring shared with the kernel (TPACKET_V3).
    Afpacket,
    /// libpcap. It reports neither super-packets (GSO, GRO) nor a packet's direction: they count as one
    /// packet of their length, and all packets as received.
    Pcap,
}

impl Capture {
    /// Name as users see it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Afpacket => "afpacket",
            Self::Pcap => "pcap",
        }
    }
}

/// What the probe is to watch.
#[derive(Clone, Debug)]
pub struct UserspaceConfig {
    /// How.
    pub capture: Capture,
    /// Names of interfaces; empty for all that are up.
    pub interfaces: Vec<String>,
    /// In all network namespaces instead of only our own.
    pub all_netns: bool,
    /// Capture points, in place of both.
    pub points: Option<LivePoints>,
    /// Packets to keep or stream in addition to flows; none: packets are only counted.
    pub packets: Option<PacketsConfig>,
    /// The flow table.
    pub table: FlowTableConfig,
    /// The address set at the start.
    pub addresses: Vec<(Prefix, Mark)>,
    /// Time between drains (`agent.flow.ebpf.kernel_scan_interval`).
    pub scan_interval: Duration,
}

impl Default for UserspaceConfig {
    fn default() -> Self {
        Self {
            capture: Capture::Afpacket,
            interfaces: Vec::new(),
            all_netns: false,
            points: None,
            packets: None,
            table: FlowTableConfig::default(),
            addresses: Vec::new(),
            scan_interval: Duration::from_secs(10),
        }
    }
}

/// The table, and when it calls for a drain.
struct Table {
    flows: FlowTable,
    /// Number of entries at which to request a drain; none: it was requested.
    wake_at: Option<u64>,
}

/// What the readers' threads and the probe share.
struct Shared {
    table: Mutex<Table>,
    /// Readable when the table fills up (an eventfd).
    wakeups: OwnedFd,
}

impl Shared {
    fn new(config: &FlowTableConfig) -> Result<Self, ProbeError> {
        let flows = FlowTable::new(&TableConfig {
            max_entries: config.max_entries as usize,
            idle_timeout: Some(config.idle_timeout),
            tunnels: config.tunnels,
            seed: config.hash_seed,
        });
        let wakeups = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| ProbeError::Wait(error.into()))?;
        Ok(Self {
            table: Mutex::new(Table {
                flows,
                wake_at: Some(u64::from(config.max_entries).div_ceil(2)),
            }),
            wakeups,
        })
    }

    /// Yields what changed, ends what has aged.
    fn drain(&self, config: &FlowTableConfig, sink: &mut dyn FnMut(&FlowUpdate)) -> Drained {
        let mut table = self.lock();
        let ageing = ageing(config, table.flows.len(), unix_ns());
        let drained = table.flows.drain_aged(&ageing, sink);
        // Call again when half of what is free is taken.
        let free = u64::from(config.max_entries).saturating_sub(table.flows.len() as u64);
        table.wake_at = Some(table.flows.inserted() + (free / 2).max(1));
        drained
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A thread that panicked left at most one packet half counted.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls for a drain when the table fills up; once.
    fn check(&self, table: &mut Table) {
        if table.wake_at.is_some_and(|at| table.flows.inserted() >= at) {
            table.wake_at = None;
            // It cannot be full: it is read before it is written again.
            let _ = rustix::io::write(&self.wakeups, &1u64.to_ne_bytes());
        }
    }
}

/// The probe; see [`Probe`] for its use.
pub struct UserspaceProbe {
    config: UserspaceConfig,
    packets: Option<Packets>,
    selection: Selection,
    shared: Arc<Shared>,
    addresses: LiveAddresses,
    interfaces: Interfaces<Reader>,
    next_drain: Instant,
}

impl UserspaceProbe {
    /// Starts to capture on the existing interfaces.
    ///
    /// # Errors
    ///
    /// When the filter is wrong, a named interface does not exist, or the right to capture is missing.
    pub fn start(config: UserspaceConfig) -> Result<Self, ProbeError> {
        let seed = config.table.hash_seed;
        let selection = Selection::new(&config.table.filter, config.table.sampling, seed as u32)?;
        let shared = Arc::new(Shared::new(&config.table)?);
        let points = config.points.as_ref();
        let interfaces = Interfaces::new(&config.interfaces, points, config.all_netns)?;
        let numbers = interfaces.first_namespaces();
        let packets = config.packets.map(Packets::new).transpose()?;
        let next_drain = next_tick(config.scan_interval);
        let addresses = live_addresses(config.table.max_addresses, &shared);
        addresses.edit(AddressEdit::Replace(&config.addresses))?;
        let mut probe = Self {
            packets,
            selection,
            shared,
            addresses,
            config,
            interfaces,
            next_drain,
        };
        for number in numbers {
            for link in probe.interfaces.watch.follow(number)? {
                match probe.link_updated(number, link) {
                    // It would be the same with every other.
                    Err(ProbeError::Capture(error @ skua_afpacket::Error::Denied { .. }))
                        if number == 0 =>
                    {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
        }
        probe.points_changed()?;
        Ok(probe)
    }

    /// Nothing is captured and nothing left to be drained: capture points may be an empty set.
    fn rests(&self) -> bool {
        self.interfaces.rests() && self.shared.lock().flows.is_empty()
    }

    /// After a drain: adds up what each point counted.
    fn settle(&mut self, drained: &Drained) {
        self.interfaces.drained(drained.updates, &drained.traffic);
        let mut table = self.shared.lock();
        for (place, counters) in table.flows.points() {
            let key = (place.netns, place.ifindex);
            let Some(account) = self.interfaces.account_of(key) else {
                continue;
            };
            let causes: &mut CauseCounters = match place.direction {
                Direction::Ingress => &mut account.ingress,
                Direction::Egress => &mut account.egress,
            };
            for (cause, sum) in counters.iter() {
                causes[cause as usize] = sum;
            }
        }
        for (netns, ifindex) in self.interfaces.take_leaving() {
            table.flows.remove_point(netns, ifindex);
        }
        self.interfaces.account.live = table.flows.len() as u64;
        self.interfaces.account.inserted = table.flows.inserted();
    }
}

fn live_addresses(most: u32, shared: &Arc<Shared>) -> LiveAddresses {
    let shared = Arc::clone(shared);
    LiveAddresses::new(most, move |set| {
        shared.lock().flows.set_addresses(Arc::clone(set));
        Ok(())
    })
}

/// Bytes of one more ring, none when there are enough.
fn ring_bytes(rings: usize) -> Option<usize> {
    RINGS
        .iter()
        .find(|(most, _)| rings < *most)
        .map(|(_, bytes)| *bytes)
}

/// Which entries a drain ends: the fuller the table, the shorter they may be quiet. (The kernel's table
/// uses the rate of new entries; here a drain is cheap.)
pub(crate) fn ageing(config: &FlowTableConfig, live: usize, now_ns: u64) -> Ageing {
    const SECOND: u64 = 1_000_000_000;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let idle_ns = ns(config.idle_timeout);
    let limit = match live as u64 * 10 / u64::from(config.max_entries.max(1)) {
        0..5 => idle_ns,
        5 => idle_ns.min(10 * SECOND),
        6 => idle_ns.min(2 * SECOND),
        _ => 0,
    };
    Ageing {
        now_ns,
        idle_ns: limit,
        idle_reason: if limit < idle_ns {
            EndReason::Evicted
        } else {
            EndReason::Idle
        },
        closed_ns: ns(config.closed_timeout),
    }
}

/// Time now, ns since the Unix epoch.
pub fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

impl Follow for UserspaceProbe {
    type Capture = Reader;

    fn interfaces(&mut self) -> &mut Interfaces<Self::Capture> {
        &mut self.interfaces
    }

    fn attach(&mut self, number: u16, link: &Link) -> Result<Reader, ProbeError> {
        let unsupported = || ProbeError::UnsupportedLink {
            name: link.name.clone(),
            arphrd: link.arphrd,
        };
        let link_type = match link_kind(link).ok_or_else(unsupported)? {
            LinkKind::Ethernet => LinkType::Ethernet,
            LinkKind::Ip => LinkType::RawIp,
        };
        let rings = self.interfaces.captures().count();
        let ring_bytes = ring_bytes(rings).ok_or(ProbeError::TooManyRings(rings))?;
        let mut selection = self.selection.clone();
        // Each interface has a sequence of random numbers of its own.
        selection.reseed(u32::from(number) << 16 ^ link.ifindex);
        selection.prepare(link_type)?;
        let needs = CaptureNeeds {
            selection: &selection,
            packet_bytes: self.config.packets.map_or(0, |packets| packets.bytes),
        };
        let open = || Source::open(self.config.capture, link, link_type, ring_bytes, &needs);
        let source = self.interfaces.watch.enter(number, open)??;
        // libpcap may have its own idea of how packets of this interface start.
        selection.prepare(source.link_type().ok_or_else(unsupported)?)?;
        let point = CapturePoint {
            netns: number,
            ifindex: link.ifindex,
            direction: Direction::Ingress,
        };
        let packets = self.packets.clone();
        Reader::start(source, point, selection, packets, Arc::clone(&self.shared))
    }

    fn hook_of(&self, _: &Self::Capture) -> &'static str {
        self.config.capture.name()
    }

    fn wait_for_detached(&mut self) -> Result<(), ProbeError> {
        // Readers have counted everything before they end.
        Ok(())
    }
}

impl Probe for UserspaceProbe {
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
            let given = [Some(self.shared.wakeups.as_fd()), caller, points];
            let ready = self.interfaces.watch.poll(&given, next)?;
            for namespace in ready.namespaces {
                let changes = self.interfaces.watch.read(namespace);
                self.links_changed(changes);
            }
            let [drain, called, points] = ready.given;
            if points {
                self.points_changed()?;
            }
            if drain {
                let _ = rustix::io::read(&self.shared.wakeups, &mut [0; 8]);
                return Ok(Wake::Pressure);
            }
            if called {
                return Ok(Wake::Caller);
            }
        }
    }

    fn drain(&mut self, wake: Wake, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        let started = thread_cpu_ns();
        let drained = self.shared.drain(&self.config.table, sink);
        self.settle(&drained);
        if wake == Wake::Interval {
            self.next_drain = next_tick(self.config.scan_interval);
            self.refresh_namespaces()?;
        }
        self.interfaces.account.drained(wake, started);
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        // All are signalled first, so that they finish at the same time.
        for reader in self.interfaces.captures_mut() {
            reader.request_stop();
        }
        // Of the same moment as what was counted.
        self.interfaces.read_counters();
        self.interfaces.ended();
        let drained = self.shared.lock().flows.finish(sink);
        if let Some(packets) = &self.packets {
            packets.end();
        }
        self.settle(&drained);
        Ok(())
    }

    fn account(&mut self) -> Account {
        let account = &mut self.interfaces.account;
        account.max_entries = u64::from(self.config.table.max_entries);
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
            hook: self.config.capture.name(),
            rung: match self.config.capture {
                Capture::Afpacket => "packet ring (TPACKET_V3), counted in user space",
                Capture::Pcap => "libpcap, counted in user space",
            }
            .to_owned(),
        }
    }

    fn addresses(&self) -> LiveAddresses {
        self.addresses.clone()
    }

    fn points(&self) -> Option<LivePoints> {
        self.interfaces.scope.points().cloned()
    }

    fn packets(&self) -> Option<Packets> {
        self.packets.clone()
    }

    fn map_memory(&self) -> Vec<(String, u64)> {
        let readers = self.interfaces.captures();
        vec![(
            "packet rings".to_owned(),
            readers.map(|reader| reader.ring_bytes() as u64).sum(),
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_take_bounded_memory() {
        let all: usize = (0..).map_while(ring_bytes).sum();
        assert!(all < 512 << 20, "{all}");
        assert_eq!((0..).map_while(ring_bytes).count(), 1024);
    }

    #[test]
    fn pressure_ends_the_least_recently_active_first() {
        let config = FlowTableConfig {
            max_entries: 100,
            ..FlowTableConfig::default()
        };
        let limits = [0, 50, 60, 70, 100].map(|live| {
            let ageing = ageing(&config, live, 1);
            (ageing.idle_ns / 1_000_000_000, ageing.idle_reason)
        });
        assert_eq!(
            limits,
            [
                (120, EndReason::Idle),
                (10, EndReason::Evicted),
                (2, EndReason::Evicted),
                (0, EndReason::Evicted),
                (0, EndReason::Evicted)
            ]
        );
    }
}
