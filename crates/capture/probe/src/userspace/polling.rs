//! Threads that poll DPDK's ports, one for each queue, for all captures of a port.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, netdevice::index_to_name, socket};
use skua_afpacket::{Direction, Gso, GsoKind, Packet, Vlan};
use skua_dpdk::{Burst, Error, Port, PortInfo, PortStats, Queue, Settings};

use super::{reader::Counting, unix_ns};
use crate::ProbeError;

/// Rest when a queue is empty: from the shortest, doubled each time it is still empty, up to the longest.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(2);
/// Bursts that are still taken at the end; devices that make packets themselves are never empty.
const LAST_BURSTS: usize = 256;
/// EtherType of the tags that ports take off.
const VLAN: u16 = 0x8100;

/// The ports that are polled, by name. Held while captures of them come and go.
static PORTS: Mutex<BTreeMap<String, Polled>> = Mutex::new(BTreeMap::new());

/// A port with the threads that poll it. Dropping it ends them, after the queued packets were counted.
struct Polled {
    port: Arc<Port>,
    /// The kernel's interface behind it, if it has one that is ours to see.
    interface: Option<u32>,
    lists: Vec<Arc<Mutex<Vec<Watcher>>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Captures so far.
    started: u64,
    users: usize,
}

/// What a capture counts of one queue.
struct Watcher {
    number: u64,
    counting: Counting,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left at most one packet half counted.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Polled {
    fn start(settings: &Settings, device: &str) -> Result<Self, ProbeError> {
        let (port, queues) = Port::open(settings, device)?;
        let index = port.info().map_or(0, |info| info.ifindex);
        let mut polled = Self {
            port,
            interface: (index > 0 && is_there(index)).then_some(index),
            lists: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
            started: 0,
            users: 0,
        };
        for queue in queues {
            let list = Arc::default();
            let (theirs, stop) = (Arc::clone(&list), Arc::clone(&polled.stop));
            let thread = std::thread::Builder::new()
                .name(format!("dpdk-{}", queue.number()))
                .spawn(move || poll(queue, &theirs, &stop))
                .map_err(ProbeError::Wait)?;
            polled.lists.push(list);
            polled.threads.push(thread);
        }
        Ok(polled)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether the kernel has an interface of this index, in the namespace of this process.
fn is_there(index: u32) -> bool {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
    socket.is_ok_and(|socket| index_to_name(&socket, index).is_ok())
}

/// Why nothing can come any more.
fn removal(port: &Port, interface: Option<u32>) -> Option<Error> {
    let reason = if port.info().is_none_or(|info| info.removed) {
        "it was removed".to_owned()
    } else {
        let interface = interface.filter(|index| !is_there(*index))?;
        format!("the interface behind it (index {interface}) was removed")
    };
    Some(Error::Device {
        device: port.name().to_owned(),
        reason,
    })
}

/// Polls a queue.
fn poll(mut queue: Queue, list: &Mutex<Vec<Watcher>>, stop: &AtomicBool) {
    let _polling = queue.register_thread();
    let mut rest = SHORTEST;
    while !stop.load(Ordering::Acquire) {
        match poll_burst(&mut queue, list) {
            Burst::MOST => rest = SHORTEST,
            0 => {
                std::thread::sleep(rest);
                rest = (rest * 2).min(LONGEST);
            }
            _ => {
                rest = SHORTEST;
                std::thread::sleep(rest);
            }
        }
    }
    for _ in 0..LAST_BURSTS {
        if poll_burst(&mut queue, list) == 0 {
            break;
        }
    }
}

/// Counts a burst; how many packets were in it.
fn poll_burst(queue: &mut Queue, list: &Mutex<Vec<Watcher>>) -> usize {
    let mut watchers = lock(list);
    if watchers.is_empty() {
        // No reader has subscribed yet: packets stay in the queue for the first.
        return 0;
    }
    let burst = queue.receive();
    if burst.is_empty() {
        return 0;
    }
    let timestamp_ns = unix_ns();
    for watcher in watchers.iter_mut() {
        let mut packets = burst.packets().map(|packet| captured(packet, timestamp_ns));
        watcher.counting.count(&mut packets);
    }
    burst.len()
}

fn captured(packet: skua_dpdk::Packet<'_>, timestamp_ns: u64) -> Packet<'_> {
    Packet {
        data: packet.data,
        length: packet.length,
        timestamp_ns,
        vlan: packet.stripped_vlan.map(|tci| Vlan { tci, tpid: VLAN }),
        direction: Direction::Unknown,
        ifindex: 0,
        gso: packet.segment.map(|size| Gso {
            kind: GsoKind::Tcp4,
            size,
            transport: None,
        }),
    }
}

/// A capture's part in the polling of a port. Dropping it ends that.
pub(super) struct Subscription {
    number: u64,
    name: String,
    /// None only while it is dropped.
    port: Option<Arc<Port>>,
    interface: Option<u32>,
    /// Losses of the port when this began.
    then: PortStats,
}

impl Subscription {
    /// Counts the packets of a port from now on; `make` makes the counter of each queue.
    pub(super) fn start(
        settings: &Settings,
        device: &str,
        mut make: impl FnMut(u16) -> Counting,
    ) -> Result<Self, ProbeError> {
        let name = skua_dpdk::device_name(device)?.to_owned();
        let mut ports = lock(&PORTS);
        let polled = match ports.remove(&name) {
            Some(polled) => polled,
            None => Polled::start(settings, device)?,
        };
        let polled = ports.entry(name.clone()).or_insert(polled);
        if let Some(why) = removal(&polled.port, polled.interface) {
            if polled.users == 0 {
                ports.remove(&name);
            }
            return Err(why.into());
        }
        polled.started += 1;
        polled.users += 1;
        let number = polled.started;
        let then = polled.port.stats().unwrap_or_default();
        for (queue, list) in polled.lists.iter().enumerate() {
            let counting = make(queue as u16);
            lock(list).push(Watcher { number, counting });
        }
        Ok(Self {
            number,
            name,
            port: Some(Arc::clone(&polled.port)),
            interface: polled.interface,
            then,
        })
    }

    /// What the port is.
    pub(super) fn info(&self) -> Option<PortInfo> {
        self.port.as_ref()?.info()
    }

    /// Why nothing can come any more, if so.
    pub(super) fn removal(&self) -> Option<Error> {
        removal(self.port.as_ref()?, self.interface)
    }

    /// Packets that the port lost since this began, or since the last time.
    pub(super) fn losses(&mut self) -> PortStats {
        let now = self.port.as_ref().and_then(|port| port.stats());
        let now = now.unwrap_or(self.then);
        let then = std::mem::replace(&mut self.then, now);
        PortStats {
            packets: now.packets.saturating_sub(then.packets),
            bytes: now.bytes.saturating_sub(then.bytes),
            missed: now.missed.saturating_sub(then.missed),
            errors: now.errors.saturating_sub(then.errors),
            no_buffer: now.no_buffer.saturating_sub(then.no_buffer),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut ports = lock(&PORTS);
        self.port = None;
        let Some(polled) = ports.get_mut(&self.name) else {
            return;
        };
        polled.users -= 1;
        let last = polled.users == 0;
        if last {
            polled.end();
        }
        for list in &polled.lists {
            lock(list).retain(|watcher| watcher.number != self.number);
        }
        if last {
            ports.remove(&self.name);
        }
    }
}
