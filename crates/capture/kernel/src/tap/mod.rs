//! Copying packets in the kernel: programs at sources that choose and copy, programs at monitors that
//! tag, cut and encapsulate what only they see.
//!
//! A change of what is chosen loads new programs with sets of their own, and puts them in the place of
//! the old ones by one exchange: each packet meets all of the old choice or all of the new one.

mod addresses;
mod layout;
mod sockets;
mod stream;

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
    time::Duration,
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, OpenObject};
use skua_filter::{Filter, LinkType};

pub use addresses::{AddressSelection, Role};
pub use layout::{
    Cause, Count, Encapsulation, MAX_SOURCES, Monitor, MonitorCounters, OUTPUTS, Output,
    SourceCounters,
};
pub use sockets::{MAX_SOCKETS, SocketSet, SocketsHeld, TapSocket, TapTask};
pub use stream::{PacketReader, TappedPacket};

use crate::{
    Attachment, Direction, HookKind, KernelError,
    bindings::tap as c,
    budget::Purpose,
    embedded::{self, Loaded, object},
    flow::{LinkKind, Rung, filter::FilterProgram},
    private_network,
};
use layout::{Plain as _, Settings, TapSource};

/// Sets whose size is that of what they hold.
const SETS: [&str; 5] = ["hosts4", "hosts6", "prefixes4", "prefixes6", "macs"];

/// Which packets are copied, and how.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TapChoice {
    /// Random number of this process, by which its copies are known.
    pub process: u32,
    /// Random number of the tap.
    pub tap: u32,
    /// Pcap expression; empty: all packets.
    pub filter: String,
    /// Addresses of which a packet must have one.
    pub addresses: AddressSelection,
    /// Only packets of the sockets that [`TapMaps::set_sockets`] sets.
    pub sockets: bool,
    /// One packet of so many, at random; 0 and 1: all.
    pub sampling: u32,
    /// Packets per second at most; 0: no limit.
    pub packet_rate: u64,
    /// Bits per second at most, from the Ethernet header on; 0: no limit.
    pub bit_rate: u64,
    /// A packet that was copied at ingress is not copied at egress.
    pub dedup: bool,
    /// Conversations are spread over several monitors.
    pub balance: bool,
    /// Bytes of a packet that reach the monitor; 0: all.
    pub cut: u32,
    /// VLAN identifier for the first source, one more for each further one; 0: no tag.
    pub vlan: u16,
    /// Packets go to user space, not to monitors.
    pub stream: bool,
}

impl TapChoice {
    /// Name and bytes of the object for sources.
    fn object(&self) -> (&'static str, &'static [u8]) {
        match self.stream {
            false => ("tap_source", object!("tap_source")),
            true => ("tap_stream", object!("tap_stream")),
        }
    }
}

/// How far ahead of its rate a tap may be.
const BURST: Duration = Duration::from_millis(100);

/// The programs' clock for rates, parts of a nanosecond.
const TICKS: u64 = 1_024;

/// Time that one of `rate` per second takes.
fn interval(rate: u64) -> u64 {
    (1_000_000_000 * TICKS).checked_div(rate).unwrap_or(0)
}

impl TapChoice {
    fn settings(&self) -> Settings {
        let bit = |bit: u32, on: bool| if on { bit } else { 0 };
        let limited = self.packet_rate > 0 || self.bit_rate > 0;
        Settings {
            process: self.process,
            tap: self.tap,
            flags: self.addresses.flags()
                | bit(c::TAP_SOCKETS, self.sockets)
                | bit(c::TAP_DEDUP, self.dedup)
                | bit(c::TAP_RATE, limited)
                | bit(c::TAP_BALANCE, self.balance),
            sampling: match self.sampling {
                0 | 1 => 0,
                one_of => ((1u64 << 32) / u64::from(one_of)) as u32,
            },
            packet_time: interval(self.packet_rate),
            bit_time: interval(self.bit_rate),
            burst: BURST.as_nanos() as u64 * TICKS,
            cut: self.cut,
            vlan: self.vlan.into(),
        }
    }
}

fn failed(what: &'static str) -> impl Fn(libbpf_rs::Error) -> KernelError {
    move |error| KernelError::System {
        what,
        source: std::io::Error::other(error),
    }
}

/// Makes the maps of an object those that another one has.
fn share(open: &mut OpenObject, shared: &[(&str, &MapHandle)]) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut() {
        let known = shared.iter().find(|(name, _)| map.name() == *name);
        if let Some((_, handle)) = known {
            map.reuse_fd(handle.as_fd())?;
        }
    }
    Ok(())
}

fn map(object: &Loaded, name: &'static str) -> Result<MapHandle, KernelError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or(KernelError::Missing(name))?;
    MapHandle::try_from(&map).map_err(failed("cannot hold a map of a tap"))
}

fn program<'a>(object: &'a Loaded, name: &'static str) -> Result<BorrowedFd<'a>, KernelError> {
    let program = object.progs().find(|program| program.name() == name);
    program
        // SAFETY: the descriptor lives as long as the object, which the result borrows; the temporary
        // `Program` does not own it.
        .map(|program| unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) })
        .ok_or(KernelError::Missing(name))
}

/// What all programs of a tap share, for any selection.
pub struct TapMaps {
    counters: MapHandle,
    buckets: MapHandle,
    monitors: MapHandle,
    monitor_counters: MapHandle,
    sequence: MapHandle,
    packets: Option<MapHandle>,
    sockets: Option<SocketSet>,
}

impl TapMaps {
    /// Makes them; which, is known from what the tap is to do at first.
    ///
    /// # Errors
    /// The kernel refuses: it is too old, or rights are missing.
    pub fn new(choice: &TapChoice) -> Result<Self, KernelError> {
        let settings = Settings::default();
        let settings = settings.bytes();
        let none = |_: &mut OpenObject| Ok(());
        let source = embedded::load(choice.object(), settings, None, none)?;
        let monitor = embedded::load(
            ("tap_monitor", object!("tap_monitor")),
            settings,
            None,
            none,
        )?;
        Ok(Self {
            counters: map(&source, "counters")?,
            buckets: map(&source, "buckets")?,
            monitors: map(&monitor, "monitors")?,
            monitor_counters: map(&monitor, "monitor_counters")?,
            sequence: map(&monitor, "sequence")?,
            packets: match choice.stream {
                true => Some(map(&source, "packets")?),
                false => None,
            },
            sockets: choice.sockets.then(SocketSet::new).transpose()?,
        })
    }

    /// Creates what a changed selection needs in addition.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ready(&mut self, choice: &TapChoice) -> Result<(), KernelError> {
        if choice.sockets && self.sockets.is_none() {
            self.sockets = Some(SocketSet::new()?);
        }
        Ok(())
    }

    /// Takes the set of sockets, so that the next programs have one of their own.
    pub fn take_sockets(&mut self) -> Option<SocketSet> {
        self.sockets.take()
    }

    /// Puts it back.
    pub fn put_sockets(&mut self, sockets: Option<SocketSet>) {
        self.sockets = sockets;
    }

    /// Sets the sockets to copy, from a poll that began at `polled_ns` (CLOCK_MONOTONIC), and the tasks
    /// whose next connections are copied. Sockets of the previous set stay for three seconds.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_sockets(
        &mut self,
        sockets: &[TapSocket],
        tasks: &BTreeSet<TapTask>,
        polled_ns: u64,
    ) -> Result<(), KernelError> {
        let Some(set) = &mut self.sockets else {
            return Ok(());
        };
        set.set_tasks(tasks)?;
        set.set(sockets, polled_ns)
    }

    /// How many sockets are wanted; none when packets are not chosen by that.
    pub fn sockets(&self) -> Option<SocketsHeld> {
        self.sockets.as_ref().map(SocketSet::status)
    }

    /// Reads what comes to user space; none when packets go to monitors.
    ///
    /// # Errors
    /// The ring cannot be mapped.
    pub fn reader(&self) -> Result<Option<PacketReader>, KernelError> {
        self.packets.as_ref().map(PacketReader::new).transpose()
    }

    fn per_cpu(map: &MapHandle, place: u32) -> Result<Vec<Vec<u8>>, KernelError> {
        let found = map.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(failed("cannot read the counters of a tap"))?;
        Ok(found.unwrap_or_default())
    }

    /// What happened to the packets of a source in one direction.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn source(&self, number: u32, direction: Direction) -> Result<SourceCounters, KernelError> {
        let place = 2 * number + u32::from(direction == Direction::Egress);
        Ok(SourceCounters::read(&Self::per_cpu(&self.counters, place)?))
    }

    /// What happened to the copies for a monitor.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn monitor(&self, number: u32) -> Result<MonitorCounters, KernelError> {
        let per_cpu = Self::per_cpu(&self.monitor_counters, number)?;
        Ok(MonitorCounters::read(&per_cpu))
    }

    /// Says what a monitor is; none: it is not there now.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_monitor(&self, number: u32, monitor: Option<&Monitor>) -> Result<(), KernelError> {
        let key = number.to_ne_bytes();
        let changed = match monitor {
            Some(monitor) => {
                let monitor = monitor.layout();
                self.monitors.update(&key, monitor.bytes(), MapFlags::ANY)
            }
            None => match self.monitors.delete(&key) {
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
                other => other,
            },
        };
        changed.map_err(failed("cannot change a monitor"))
    }
}

/// The programs of a tap for the sources of one network namespace.
pub struct SourcePrograms {
    object: Loaded,
    sources: MapHandle,
    outputs: MapHandle,
    /// The expression before them, by link and direction; none: all packets match.
    filters: Option<Vec<((LinkKind, Direction), FilterProgram)>>,
}

/// Programs of an object for sources.
fn name(link: LinkKind, direction: Direction) -> &'static str {
    match (link, direction) {
        (LinkKind::Ethernet, Direction::Ingress) => "tap_ingress",
        (LinkKind::Ethernet, Direction::Egress) => "tap_egress",
        (LinkKind::Ip, Direction::Ingress) => "tap_ingress_ip",
        (LinkKind::Ip, Direction::Egress) => "tap_egress_ip",
    }
}

const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];

impl SourcePrograms {
    /// Loads them.
    ///
    /// # Errors
    /// The expression is wrong, or the kernel refuses.
    pub fn load(choice: &TapChoice, shared: &TapMaps) -> Result<Self, KernelError> {
        let sets: Vec<_> = SETS
            .into_iter()
            .filter_map(|name| Some((name, choice.addresses.entries(name)?)))
            .collect();
        let mut maps = vec![("counters", &shared.counters), ("buckets", &shared.buckets)];
        maps.extend(shared.packets.as_ref().map(|packets| ("packets", packets)));
        if let Some(set) = &shared.sockets {
            maps.extend([("sockets", &set.map), ("ports", &set.ports)]);
        }
        let object = embedded::load(choice.object(), choice.settings().bytes(), None, |open| {
            share(open, &maps)?;
            for mut map in open.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                let size = sets.iter().find(|(set, _)| *set == name);
                if let Some((_, entries)) = size {
                    map.set_max_entries(entries.len().max(1) as u32)?;
                }
            }
            Ok(())
        })?;
        for (name, entries) in &sets {
            let set = map(&object, name)?;
            for (key, value) in entries {
                set.update(key, value, MapFlags::ANY)
                    .map_err(failed("cannot fill the sets of a tap"))?;
            }
        }
        if choice.addresses.flags() & (c::TAP_HOSTS4 | c::TAP_HOSTS6) != 0 {
            let bits = map(&object, "host_bits")?;
            bits.update(&[0; 4], &choice.addresses.host_bits(), MapFlags::ANY)
                .map_err(failed("cannot fill the sets of a tap"))?;
        }
        let filters = match choice.filter.trim() {
            "" => None,
            expression => {
                let mut kinds = vec![(
                    LinkKind::Ethernet,
                    Filter::compile(expression, LinkType::Ethernet)?,
                )];
                // Some (`ether host …`) mean nothing without an Ethernet header.
                let bare = Filter::compile(expression, LinkType::RawIp);
                kinds.extend(
                    bare.ok()
                        .filter(|_| choice.stream)
                        .map(|bare| (LinkKind::Ip, bare)),
                );
                let mut filters = Vec::new();
                for (link, filter) in &kinds {
                    for direction in BOTH {
                        let program = program(&object, name(*link, direction))?;
                        let before =
                            FilterProgram::before(filter, Rung::TcSwap, program, Purpose::Any)?;
                        filters.push(((*link, direction), before));
                    }
                }
                Some(filters)
            }
        };
        Ok(Self {
            sources: map(&object, "sources")?,
            outputs: map(&object, "outputs")?,
            filters,
            object,
        })
    }

    /// The program to attach to an interface of that kind. Without Ethernet header there is one only
    /// when packets go to user space.
    ///
    /// # Errors
    /// There is none.
    pub fn program(
        &self,
        link: LinkKind,
        direction: Direction,
    ) -> Result<BorrowedFd<'_>, KernelError> {
        match &self.filters {
            Some(filters) => {
                let fits = |(place, _): &&((LinkKind, Direction), _)| *place == (link, direction);
                let found = filters.iter().find(fits);
                let missing =
                    KernelError::Missing("an expression that has a meaning without Ethernet");
                found.map(|(_, filter)| filter.as_fd()).ok_or(missing)
            }
            None => program(&self.object, name(link, direction)),
        }
    }

    /// Says that an interface is a source, under which number, and in which directions it is tapped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add_source(
        &self,
        ifindex: u32,
        number: u32,
        directions: &[Direction],
    ) -> Result<(), KernelError> {
        let bit = |direction: &Direction| match direction {
            Direction::Ingress => 1,
            Direction::Egress => 2,
        };
        let tapped = directions.iter().map(bit).fold(0, |all, bit| all | bit);
        let source = TapSource { number, tapped };
        self.sources
            .update(&ifindex.to_ne_bytes(), source.bytes(), MapFlags::ANY)
            .map_err(failed("cannot add a source to a tap"))
    }

    /// Removes an interface from the sources.
    pub fn remove_source(&self, ifindex: u32) {
        // It may be missing.
        let _ = self.sources.delete(&ifindex.to_ne_bytes());
    }

    /// Where copies go.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_outputs(&self, outputs: &[Output; OUTPUTS]) -> Result<(), KernelError> {
        for (place, output) in (0u32..).zip(outputs) {
            self.outputs
                .update(&place.to_ne_bytes(), output.layout().bytes(), MapFlags::ANY)
                .map_err(failed("cannot say where copies go"))?;
        }
        Ok(())
    }
}

/// The programs on the side of the monitors.
pub struct MonitorPrograms {
    object: Loaded,
}

impl MonitorPrograms {
    /// Loads them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load(choice: &TapChoice, shared: &TapMaps) -> Result<Self, KernelError> {
        let maps = [
            ("monitors", &shared.monitors),
            ("monitor_counters", &shared.monitor_counters),
            ("sequence", &shared.sequence),
        ];
        let object = embedded::load(
            ("tap_monitor", object!("tap_monitor")),
            choice.settings().bytes(),
            None,
            |open| share(open, &maps),
        )?;
        Ok(Self { object })
    }

    /// For ingress of the far end of the tap's own veth pair.
    ///
    /// # Errors
    /// This build is damaged.
    pub fn deliver(&self) -> Result<BorrowedFd<'_>, KernelError> {
        program(&self.object, "tap_deliver")
    }

    /// For egress of a monitor that copies come to straight.
    ///
    /// # Errors
    /// This build is damaged.
    pub fn finish(&self) -> Result<BorrowedFd<'_>, KernelError> {
        program(&self.object, "tap_finish")
    }
}

/// Tries whether a program can be attached to loopback by a hook, in a namespace that is made for that.
///
/// # Errors
/// It cannot.
pub fn try_hook(program: BorrowedFd<'_>, hook: HookKind) -> Result<(), KernelError> {
    const LOOPBACK: u32 = 1;
    std::thread::scope(|scope| {
        let tried = scope.spawn(|| {
            private_network::enter()?;
            let direction = Direction::Egress;
            Attachment::in_passing_namespace(program, LOOPBACK, direction, hook).map(drop)
        });
        tried.join().unwrap_or_else(|_| {
            Err(KernelError::System {
                what: "cannot try a hook",
                source: std::io::Error::other("thread died"),
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    const LOOPBACK: u32 = 1;

    /// Sends so many datagrams over loopback of the thread's namespace.
    fn talk(count: usize) {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..count {
            from.send_to(b"x", to.local_addr().unwrap()).unwrap();
            to.recv(&mut [0; 8]).unwrap();
        }
    }

    /// Needs root, as all tests of kernel programs do.
    #[test]
    fn a_program_is_replaced_where_it_hangs_on_each_hook() {
        if std::env::var_os("SKUA_NO_ROOT_TESTS").is_some_and(|value| value == "1") {
            return;
        }
        let work = || {
            private_network::enter().unwrap();
            for hook in [HookKind::Tcx, HookKind::Clsact] {
                // Without a number all would be taken for copies.
                let all = TapChoice {
                    process: 7,
                    ..TapChoice::default()
                };
                let maps = TapMaps::new(&all).unwrap();
                let matched = || {
                    let counters = maps.source(0, Direction::Ingress).unwrap();
                    let lost = counters.dropped[Cause::NoMonitor as usize];
                    // There is no monitor, and that is no reason to keep anything up.
                    assert_eq!(counters.matched, lost);
                    counters.matched.packets
                };
                let load = |choice: &TapChoice| {
                    let programs = SourcePrograms::load(choice, &maps).unwrap();
                    programs
                        .add_source(LOOPBACK, 0, &[Direction::Ingress])
                        .unwrap();
                    programs
                };
                let first = load(&all);
                let mut attached = Attachment::in_passing_namespace(
                    first
                        .program(LinkKind::Ethernet, Direction::Ingress)
                        .unwrap(),
                    LOOPBACK,
                    Direction::Ingress,
                    hook,
                )
                .unwrap();
                talk(10);
                assert_eq!(matched(), 10, "{hook:?}");
                let none = load(&TapChoice {
                    filter: "tcp".into(),
                    ..all.clone()
                });
                attached
                    .replace(
                        none.program(LinkKind::Ethernet, Direction::Ingress)
                            .unwrap(),
                    )
                    .unwrap();
                drop(first);
                talk(10);
                assert_eq!(matched(), 10, "{hook:?}");
                let mut addresses = AddressSelection::default();
                addresses.add_prefix("127.0.0.0/8".parse().unwrap(), Role::SOURCE);
                let again = load(&TapChoice {
                    addresses,
                    ..all.clone()
                });
                attached
                    .replace(
                        again
                            .program(LinkKind::Ethernet, Direction::Ingress)
                            .unwrap(),
                    )
                    .unwrap();
                talk(10);
                assert_eq!(matched(), 20, "{hook:?}");
                assert!(attached.is_there());
                drop(attached);
                talk(10);
                assert_eq!(matched(), 20, "{hook:?}");
            }
        };
        std::thread::spawn(work).join().unwrap();
    }
}
