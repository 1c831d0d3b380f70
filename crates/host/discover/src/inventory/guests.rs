//! Virtual machines, and other processes that hold a tap or tun device.
//!
//! The kernel says of each descriptor of `/dev/net/tun` which device it drives (`iff:` in
//! `/proc/PID/fdinfo`). Processes are searched when a device comes, goes, or changes its state, as it does
//! when a process opens or closes it. libvirt says of its domains what processes do not.

use super::{
    Common,
    libvirt::{Domain, Libvirt},
    place::{self, int, map_of, number, some, text},
    procfs,
    worker::Source,
};
use crate::{
    LibvirtFolders, counters, host, ident,
    netlink::OWNERSHIP,
    writer::{Hangs, Writer},
};
use skua_kernel::next_tick;
use skua_socket::Pids;
use skua_topology::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::BorrowedFd,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Name of this provider in `@Origin`.
pub(super) const NAME: &str = "guest";
/// Holders at most.
const MOST: usize = 4_096;
/// A device is announced before its process has set it up completely: it is polled again.
const POLL_AGAIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
const SHARE: u32 = 20;

const LAYER2: &str = "layer2";
const KEYS: &[&str] = &[
    "Name",
    "Type",
    "TID",
    "PID",
    "NSPID",
    "Executable",
    "Interfaces",
    "State",
    "UUID",
    "DomainID",
];
/// Keys that libvirt's taps get.
const TAP: &str = "Libvirt";
const TAP_MAC: &str = "PeerIntfMAC";

/// What identifies a guest: libvirt's stay when they are stopped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// Process and its start.
    Process(u32, u64),
    /// Identifier of a domain.
    Domain(String),
}

/// What a process says of itself.
#[derive(Default)]
struct Holder {
    pid: Option<u32>,
    kind: &'static str,
    name: String,
    executable: String,
    interfaces: BTreeSet<String>,
    /// Nodes of the devices.
    devices: BTreeSet<Arc<str>>,
    /// What libvirt says.
    domain: Option<Domain>,
}

struct KnownGuest {
    node: Arc<str>,
    parent: Hangs,
    /// Edges by device.
    devices: BTreeMap<Arc<str>, Hangs>,
}

/// Follows the holders of tap and tun devices.
pub(super) struct Guests {
    common: Common,
    writer: Writer,
    boot: String,
    known: HashMap<Key, KnownGuest>,
    libvirt: Libvirt,
    /// Nodes of taps that have libvirt's keys.
    taps: BTreeSet<Arc<str>>,
    settled: bool,
    poll_again: bool,
    next: Option<Instant>,
    earliest: Instant,
}

impl Guests {
    pub fn new(common: Common, folders: &LibvirtFolders) -> Self {
        let now = Instant::now();
        Self {
            writer: common.writer(NAME, MOST),
            boot: host::boot(),
            common,
            known: HashMap::new(),
            libvirt: Libvirt::new(folders),
            taps: BTreeSet::new(),
            settled: false,
            poll_again: false,
            next: None,
            earliest: now,
        }
    }

    /// Nodes of tap and tun devices, by namespace and name.
    fn devices(&self) -> Devices {
        let mut devices = Devices::new();
        for node in place::of_type(&self.common.graph, &self.common.host, "tuntap") {
            if let Some(inode) = number(&node, "NetNsInode") {
                devices.insert((inode, text(&node, "Name").to_owned()), node.id.clone());
            }
        }
        devices
    }

    /// The host's own namespace.
    fn own_space(&self) -> Option<u64> {
        let graph = self.common.graph.read();
        let host = graph.current_node(&self.common.host_node);
        host.and_then(|host| number(&host, "NetNsInode"))
    }

    /// Guests: libvirt's domains, and other holders of devices.
    fn guests(&mut self) -> HashMap<Key, Holder> {
        let devices = self.devices();
        let mut found = self.holders(&devices);
        let own = self.own_space();
        let mut taps = BTreeSet::new();
        for domain in self.libvirt.domains() {
            let process = domain.pid.and_then(|pid| {
                // The state of a domain stays when the machine is switched off: its process may be another's.
                let start = procfs::start_ns(pid)?;
                let qemu = procfs::executable(pid)?;
                is_qemu(&qemu).then_some((pid, start))
            });
            let mut domain = domain;
            if process.is_none() && domain.pid.take().is_some() {
                (domain.state, domain.id) = ("DOWN", None);
            }
            let holder = process.and_then(|(pid, start)| found.remove(&Key::Process(pid, start)));
            let mut holder = holder.unwrap_or_else(|| Holder {
                pid: domain.pid,
                ..Holder::default()
            });
            holder.kind = "libvirt";
            holder.name.clone_from(&domain.name);
            if let (Some(pid), true) = (domain.pid, holder.executable.is_empty()) {
                holder.executable = procfs::shown(&procfs::executable(pid).unwrap_or_default());
            }
            for interface in &domain.interfaces {
                let at = |space: Option<u64>| devices.get(&(space?, interface.target.clone()));
                let device = at(domain.pid.and_then(procfs::netns)).or_else(|| at(own));
                let (Some(device), Some(_)) = (device, domain.pid) else {
                    continue;
                };
                holder.devices.insert(device.clone());
                holder.interfaces.insert(interface.target.clone());
                taps.insert(device.clone());
                let text = |text: &str| (!text.is_empty()).then(|| Value::from(text));
                let about = map_of([
                    ("MAC", text(&interface.mac)),
                    ("Domain", text(&domain.name)),
                    ("BusType", text(&interface.bus_type)),
                    ("BusInfo", text(&interface.bus_info)),
                    ("Alias", text(&interface.alias)),
                ]);
                self.show(device, TAP, Some(about.into()));
                self.show(device, TAP_MAC, text(&interface.mac));
            }
            let key = Key::Domain(domain.uuid.clone());
            holder.domain = Some(domain);
            found.insert(key, holder);
        }
        // Those of a domain that is gone; at first also those that an earlier run left.
        let mut left = std::mem::replace(&mut self.taps, taps);
        if !std::mem::replace(&mut self.settled, true) {
            let having = place::of_type(&self.common.graph, &self.common.host, "tuntap");
            let having = having
                .into_iter()
                .filter(|node| node.metadata.get(TAP).is_some());
            left.extend(having.map(|node| node.id.clone()));
        }
        for tap in left.difference(&self.taps) {
            self.show(tap, TAP, None);
            self.show(tap, TAP_MAC, None);
        }
        found
    }

    fn show(&self, device: &str, key: &str, value: Option<Value>) {
        place::show(
            &self.common.graph,
            &self.common.counters,
            device,
            key,
            value,
        );
    }

    /// The holders of all devices.
    fn holders(&self, devices: &Devices) -> HashMap<Key, Holder> {
        let mut found = HashMap::new();
        if devices.is_empty() {
            return found;
        }
        let own = self.own_space();
        for pid in procfs::all() {
            let Some((machine, held)) = held(pid) else {
                continue;
            };
            let Some(start) = procfs::start_ns(pid) else {
                continue;
            };
            // The device is where its opener was, which is where it is now, but for those that were
            // given it by a daemon of the host.
            let netns = procfs::netns(pid);
            let device = |name: &String| {
                let at = |inode: Option<u64>| devices.get(&(inode?, name.clone()));
                at(netns).or_else(|| at(own)).cloned()
            };
            let nodes: BTreeSet<Arc<str>> = held.iter().filter_map(device).collect();
            if nodes.is_empty() {
                continue;
            }
            if found.len() >= MOST {
                counters::add(&self.common.counters.omitted_nodes, 1);
                continue;
            }
            if let Some(holder) = holder(pid, machine, held, nodes) {
                found.insert(Key::Process(pid, start), holder);
            }
        }
        found
    }

    fn refresh(&mut self) {
        let holders = self.guests();
        let gone: Vec<_> = self
            .known
            .keys()
            .filter(|key| !holders.contains_key(*key))
            .cloned()
            .collect();
        for key in gone {
            if let Some(known) = self.known.remove(&key) {
                self.writer.remove_node(&known.node);
            }
        }
        for (key, holder) in holders {
            self.write(key, &holder);
        }
        self.writer.settle();
        counters::set(&self.common.counters.guests, self.known.len());
    }

    fn write(&mut self, key: Key, holder: &Holder) {
        let metadata = self.metadata(holder);
        let identity = match &key {
            Key::Process(pid, start) => format!("{NAME}/{}/{pid}/{start}", self.boot),
            Key::Domain(uuid) => format!("{NAME}/libvirt/{uuid}"),
        };
        let known = match self.known.entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => {
                let known = known.into_mut();
                self.writer.set_node(&known.node, KEYS, metadata);
                known
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                let Some(node) = self.writer.add_node(&identity, KEYS, metadata) else {
                    return;
                };
                entry.insert(KnownGuest {
                    node,
                    parent: None,
                    devices: BTreeMap::new(),
                })
            }
        };
        let host = &self.common.host_node;
        self.writer
            .hang(&mut known.parent, host, &known.node, OWNERSHIP);
        let writer = &mut self.writer;
        known.devices.retain(|device, edge| {
            let held = holder.devices.contains(device);
            if !held && let Some((_, edge)) = edge {
                writer.drop_edge(edge);
            }
            held
        });
        for device in &holder.devices {
            let edge = known.devices.entry(device.clone()).or_default();
            writer.hang(edge, device, &known.node, LAYER2);
        }
    }

    fn metadata(&self, holder: &Holder) -> Map {
        let domain = holder.domain.as_ref();
        // A number of another namespace than the host's is not shown in its place.
        let host = self.common.pids == Pids::Host;
        let pid = holder.pid.filter(|_| host);
        let ns_pid = holder
            .pid
            .and_then(|pid| procfs::ns_pid(pid).or((!host).then_some(pid)));
        let interfaces = holder.interfaces.iter();
        let interfaces: Vec<Value> = interfaces.map(|name| Value::from(name.as_str())).collect();
        let tid = ident::tid(&self.common.host_tid, &holder.name, holder.kind);
        map_of([
            ("Name", some(Some(&holder.name))),
            ("Type", some(Some(holder.kind))),
            ("TID", Some(Value::Str(tid))),
            ("PID", pid.map(int)),
            ("NSPID", ns_pid.map(int)),
            (
                "Executable",
                some(Some(&*holder.executable).filter(|path| !path.is_empty())),
            ),
            ("Interfaces", Some(Value::List(interfaces.into()))),
            ("State", some(domain.map(|domain| domain.state))),
            ("UUID", some(domain.map(|domain| &*domain.uuid))),
            ("DomainID", domain.and_then(|domain| domain.id).map(int)),
        ])
    }
}

/// Nodes of devices by namespace and name.
type Devices = HashMap<(u64, String), Arc<str>>;

/// Whether an executable is QEMU.
fn is_qemu(executable: &[u8]) -> bool {
    let base = executable.rsplit(|byte| *byte == b'/').next();
    base.is_some_and(|name| name.starts_with(b"qemu"))
}

/// The names of the devices that a process holds, and whether it runs a machine by KVM.
fn held(pid: u32) -> Option<(bool, BTreeSet<String>)> {
    let (mut machine, mut names) = (false, BTreeSet::new());
    for (number, what) in procfs::descriptors(pid) {
        machine |= what == Path::new("anon_inode:kvm-vm");
        // In a container it may be elsewhere.
        if !what.ends_with("net/tun") {
            continue;
        }
        let info = procfs::descriptor_info(pid, &number).unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("iff:"));
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        names.extend(name.map(|name| procfs::shown(name.as_bytes())));
    }
    (!names.is_empty()).then_some((machine, names))
}

fn holder(
    pid: u32,
    machine: bool,
    interfaces: BTreeSet<String>,
    devices: BTreeSet<Arc<str>>,
) -> Option<Holder> {
    let executable = procfs::executable(pid).unwrap_or_default();
    let (kind, name) = if machine || is_qemu(&executable) {
        let groups = procfs::cgroups(pid);
        let libvirt = [&b"machine-qemu"[..], b"libvirt"];
        let libvirt = libvirt
            .iter()
            .any(|part| groups.windows(part.len()).any(|window| window == *part));
        // Only of a machine are arguments read, and of them only its name.
        let name = machine_name(&procfs::arguments(pid));
        (if libvirt { "libvirt" } else { "vm" }, name)
    } else {
        ("process", None)
    };
    Some(Holder {
        pid: Some(pid),
        kind,
        name: name.or_else(|| procfs::comm(pid))?,
        executable: procfs::shown(&executable),
        interfaces,
        devices,
        domain: None,
    })
}

/// The name in QEMU's `-name [guest=]NAME[,…]`, in which `,,` is a comma.
fn machine_name(arguments: &[Vec<u8>]) -> Option<String> {
    let at = arguments
        .iter()
        .position(|argument| argument == b"-name" || argument == b"--name")?;
    let text = String::from_utf8_lossy(arguments.get(at + 1)?);
    let text = text.replace(",,", "\0");
    let name =
        text.split(',')
            .enumerate()
            .find_map(|(place, part)| match part.split_once('=') {
                Some(("guest", name)) => Some(name),
                None if place == 0 => Some(part),
                _ => None,
            })?;
    let name = name.replace('\0', ",");
    (!name.is_empty()).then(|| procfs::shown(name.as_bytes()))
}

impl Source for Guests {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.libvirt.descriptor().into_iter().collect()
    }

    fn next(&self) -> Option<Instant> {
        self.next
    }

    fn quiet_until(&self) -> Instant {
        self.earliest
    }

    fn work(&mut self, called: bool) {
        let now = Instant::now();
        let new_folder = self.libvirt.watch();
        // The holder of a device that stays may have ended.
        let ended = |key: &Key| match key {
            Key::Process(pid, start) => procfs::start_ns(*pid) != Some(*start),
            Key::Domain(_) => false,
        };
        if called || self.poll_again || new_folder || self.known.keys().any(ended) {
            self.refresh();
        }
        let end = Instant::now();
        self.earliest = end + PAUSE.max((end - now) * SHARE);
        // Once more after each call.
        self.poll_again = called;
        self.next = match called {
            true => Some(end + POLL_AGAIN),
            // Without any, only a new device or domain can bring one, and that is announced.
            false => {
                let polled = !self.known.is_empty() || self.libvirt.has_unwatched();
                polled.then(|| next_tick(self.common.interval))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_machines() {
        let name = |line: &str| {
            let arguments: Vec<Vec<u8>> = line.split(' ').map(|a| a.as_bytes().to_vec()).collect();
            machine_name(&arguments)
        };
        assert_eq!(name("qemu -name web -m 1").as_deref(), Some("web"));
        assert_eq!(
            name("qemu -name guest=db,debug-threads=on").as_deref(),
            Some("db")
        );
        assert_eq!(
            name("qemu -name debug-threads=on,guest=a,,b").as_deref(),
            Some("a,b")
        );
        for nameless in ["qemu -m 1", "qemu -name", "qemu -name process=x"] {
            assert_eq!(name(nameless), None, "{nameless}");
        }
        assert_eq!(
            name("qemu -name a\x1b[31m").as_deref(),
            Some("a\\u{1b}[31m")
        );
    }
}
