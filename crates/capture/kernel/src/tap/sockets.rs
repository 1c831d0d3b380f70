//! The sockets to copy, and the program that adds those of processes that connect.

use std::{
    collections::{BTreeSet, HashSet},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd as _, AsRawFd as _},
    time::Duration,
};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, MapType};

use super::{failed, share};
use crate::{
    KernelError,
    bindings::tap as c,
    embedded::{self, Loaded, object},
    grace::Grace,
    plain::Plain as _,
    socket::open_root,
};

/// Sockets of a tap at most.
pub const MAX_SOCKETS: usize = 131_072;
/// `tasks` in `bpf/tap/connect.bpf.c`.
const MAX_TASKS: usize = 4_096;
/// How long a deselected socket stays in the set: its last packets come when it is closed.
const LINGER: Duration = Duration::from_secs(3);
/// Entries that are read with one system call.
const BATCH: u32 = 4_096;

/// A socket, by what its packets have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TapSocket {
    /// IP protocol number.
    pub protocol: u8,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end; none: any.
    pub remote: Option<SocketAddr>,
}

/// Selects processes whose next connections are copied.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TapTask {
    /// Number in the initial pid namespace.
    Process(u32),
    /// Name, of which 15 bytes count.
    Name(String),
    /// Id of a control group, as the socket probe reports it for tasks.
    Group(u64),
}

type Key = [u8; size_of::<c::TapSocket>()];
type PortKey = [u8; 4];

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl TapSocket {
    fn key(&self) -> Key {
        let remote = self.remote;
        let socket = c::TapSocket {
            local: octets(self.local.ip()),
            remote: remote.map(|remote| octets(remote.ip())).unwrap_or_default(),
            local_port: self.local.port().to_be(),
            remote_port: remote.map_or(0, |remote| remote.port().to_be()),
            protocol: self.protocol,
            pad: [0; 3],
        };
        let mut key = [0; size_of::<c::TapSocket>()];
        key.copy_from_slice(socket.bytes());
        key
    }
}

impl TapTask {
    /// `struct tap_task`.
    fn key(&self) -> [u8; 24] {
        let mut key = [0; 24];
        let kind: u64 = match self {
            Self::Process(pid) => {
                key[8..16].copy_from_slice(&u64::from(*pid).to_ne_bytes());
                0
            }
            Self::Name(name) => {
                let bytes = name.as_bytes();
                let bytes = &bytes[..bytes.len().min(15)];
                key[8..8 + bytes.len()].copy_from_slice(bytes);
                1
            }
            Self::Group(id) => {
                key[8..16].copy_from_slice(&id.to_ne_bytes());
                2
            }
        };
        key[..8].copy_from_slice(&kind.to_ne_bytes());
        key
    }
}

/// The program at the root of the control groups. Dropping it detaches it.
struct Connect {
    _link: Link,
    _object: Loaded,
    tasks: MapHandle,
}

/// The sockets of a tap.
pub struct SocketSet {
    pub(super) map: MapHandle,
    /// Their local ports.
    pub(super) ports: MapHandle,
    grace: Grace,
    connect: Option<Connect>,
    tasks: BTreeSet<TapTask>,
    held: usize,
    left_out: usize,
}

/// How full the set of sockets is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketsHeld {
    /// Sockets in the set.
    pub held: usize,
    /// Sockets beyond the limit.
    pub left_out: usize,
    /// Connections are added before their first packet.
    pub prompt: bool,
}

impl SocketSet {
    /// An empty one.
    pub(super) fn new() -> Result<Self, KernelError> {
        let map = create("sockets", size_of::<Key>(), MAX_SOCKETS)?;
        let ports = create("ports", size_of::<u32>(), usize::from(u16::MAX) + 1)?;
        let connect = match Connect::attach(&map, &ports) {
            Ok(connect) => Some(connect),
            Err(error) => {
                tracing::info!(%error, "the first packets of connections may not be tapped");
                None
            }
        };
        Ok(Self {
            map,
            ports,
            grace: Grace::new()?,
            connect,
            tasks: BTreeSet::new(),
            held: 0,
            left_out: 0,
        })
    }

    /// What is in it.
    pub(super) fn status(&self) -> SocketsHeld {
        SocketsHeld {
            held: self.held,
            left_out: self.left_out,
            prompt: self.connect.is_some(),
        }
    }

    /// Sets the sockets to copy, from a poll that began at `polled_ns` (CLOCK_MONOTONIC). Sockets that the
    /// kernel added since then, and those of the previous set, stay.
    pub(super) fn set(&mut self, wanted: &[TapSocket], polled_ns: u64) -> Result<(), KernelError> {
        let changed = || failed("cannot change the sockets of a tap");
        let keys: HashSet<Key> = wanted.iter().map(TapSocket::key).collect();
        let time = polled_ns.to_ne_bytes();
        let mut there = 0;
        let mut obsolete: Vec<Vec<u8>> = Vec::new();
        let entries = self
            .map
            .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(changed())?;
        for (key, value) in entries {
            let is_selected = <&Key>::try_from(key.as_slice()).is_ok_and(|key| keys.contains(key));
            if is_selected || lingers(&value, polled_ns) {
                there += 1;
            } else {
                obsolete.push(key);
            }
        }
        for key in &obsolete {
            // The kernel's own hand never takes one away.
            self.map.delete(key).map_err(changed())?;
        }
        self.left_out = 0;
        let needed: HashSet<PortKey> = keys.iter().map(port_of).collect();
        for port in &needed {
            self.ports
                .update(port, &time, MapFlags::ANY)
                .map_err(changed())?;
        }
        for key in &keys {
            match self.map.update(key, &time, MapFlags::EXIST) {
                Ok(()) => continue,
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
                Err(error) => return Err(changed()(error)),
            }
            if there >= MAX_SOCKETS || self.map.update(key, &time, MapFlags::ANY).is_err() {
                self.left_out += 1;
            } else {
                there += 1;
            }
        }
        self.held = there;
        self.clear_ports(&needed, polled_ns)
    }

    /// Removes ports that no socket has any more.
    fn clear_ports(&self, needed: &HashSet<PortKey>, polled_ns: u64) -> Result<(), KernelError> {
        let changed = || failed("cannot change the ports of a tap");
        let entries = self
            .ports
            .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(changed())?;
        let idle = entries.filter(|(port, since)| {
            !lingers(since, polled_ns)
                && <&PortKey>::try_from(port.as_slice()).is_ok_and(|port| !needed.contains(port))
        });
        let idle: Vec<Vec<u8>> = idle.map(|(port, _)| port).collect();
        if idle.is_empty() {
            return Ok(());
        }
        for port in &idle {
            self.ports.delete(port).map_err(changed())?;
        }
        // The kernel may have put one there in the meantime, and now puts the socket there.
        self.grace.wait()?;
        let entries = self
            .map
            .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(changed())?;
        for (key, since) in entries {
            if let Ok(key) = <&Key>::try_from(key.as_slice()) {
                let put = self.ports.update(&port_of(key), &since, MapFlags::NO_EXIST);
                match put {
                    Err(error) if error.kind() != libbpf_rs::ErrorKind::AlreadyExists => {
                        return Err(changed()(error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Tasks whose connections are added as they begin; those that exceed the map are found by polls alone.
    pub(super) fn set_tasks(&mut self, wanted: &BTreeSet<TapTask>) -> Result<(), KernelError> {
        let Some(connect) = &self.connect else {
            return Ok(());
        };
        let changed = failed("cannot change the processes of a tap");
        let wanted: BTreeSet<TapTask> = wanted.iter().take(MAX_TASKS).cloned().collect();
        for task in self.tasks.difference(&wanted) {
            connect.tasks.delete(&task.key()).map_err(&changed)?;
        }
        let one = 1u32.to_ne_bytes();
        for task in wanted.difference(&self.tasks) {
            let key = task.key();
            connect
                .tasks
                .update(&key, &one, MapFlags::ANY)
                .map_err(&changed)?;
        }
        self.tasks = wanted;
        Ok(())
    }
}

/// A set with times as values.
fn create(name: &'static str, key: usize, entries: usize) -> Result<MapHandle, KernelError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    MapHandle::create(
        MapType::Hash,
        Some(name),
        key as u32,
        8,
        entries as u32,
        &options,
    )
    .map_err(failed("cannot make the sockets of a tap"))
}

/// Whether what was there at a moment (a value) counts still.
fn lingers(since: &[u8], polled_ns: u64) -> bool {
    let since = since.first_chunk();
    let since = since.map_or(0, |time| u64::from_ne_bytes(*time));
    since.saturating_add(LINGER.as_nanos() as u64) > polled_ns
}

/// The key of a socket's local port: network order, in the lower half of a word.
fn port_of(key: &Key) -> PortKey {
    u32::from(u16::from_ne_bytes([key[32], key[33]])).to_ne_bytes()
}

impl Connect {
    fn attach(sockets: &MapHandle, ports: &MapHandle) -> Result<Self, KernelError> {
        let object = embedded::load(("tap_connect", object!("tap_connect")), &[], None, |open| {
            share(open, &[("sockets", sockets), ("ports", ports)])
        })?;
        let root = open_root()?;
        let program = object.progs_mut().next();
        let program = program.ok_or(KernelError::Missing("tap_connect"))?;
        let link = program
            .attach_cgroup(root.as_fd().as_raw_fd())
            .map_err(failed("cannot attach to the root of the control groups"))?;
        Ok(Self {
            _link: link,
            tasks: super::map(&object, "tasks")?,
            _object: object,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_kernel() {
        let socket = TapSocket {
            protocol: 6,
            local: "10.0.0.1:80".parse().unwrap(),
            remote: Some("[fd00::2]:65535".parse().unwrap()),
        };
        let key = socket.key();
        assert_eq!(key[8..16], [0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!((key[16], key[31]), (0xfd, 2));
        assert_eq!(key[32..], [0, 80, 0xff, 0xff, 6, 0, 0, 0]);
        assert_eq!(port_of(&key), [0, 80, 0, 0]);
        let waits = TapSocket {
            remote: None,
            ..socket
        };
        assert_eq!(waits.key()[16..32], [0; 16]);
        let name = TapTask::Name("a-name-that-is-too-long".into()).key();
        assert_eq!(&name[8..], b"a-name-that-is-\0");
        assert_ne!(TapTask::Process(7).key(), TapTask::Group(7).key());
    }
}
