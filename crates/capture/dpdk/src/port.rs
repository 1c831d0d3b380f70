//! A port and its queues.

use std::{
    collections::BTreeSet,
    ffi::CString,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Error,
    eal::{self, complaining},
    sys::{self, Buffers, Opened, Registered},
};

/// Names of the open ports. Locked while ports are opened and closed: DPDK allows only one thread at a
/// time.
static CONTROL: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// How ports are opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Arguments of DPDK's environment (EAL), as programs of DPDK take them before `--`. Those of the
    /// first port that is opened count.
    pub arguments: Vec<String>,
    /// Receive queues, if the device has so many; it spreads conversations among them (RSS).
    pub queues: u16,
    /// Packets that fit into each queue, if the device allows so many.
    pub descriptors: u16,
}

impl Default for Settings {
    /// Without huge pages and without devices on the PCI bus, in 256 MiB of ordinary memory.
    fn default() -> Self {
        let arguments = "--no-huge --no-shconf --no-telemetry --no-pci -m 256";
        Self {
            arguments: arguments.split(' ').map(str::to_owned).collect(),
            queues: 1,
            descriptors: 2048,
        }
    }
}

/// The name of a device, as it stands before its arguments.
///
/// # Errors
///
/// When it is none.
pub fn device_name(device: &str) -> Result<&str, Error> {
    let name = device.split(',').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-:.".contains(c);
    // DPDK takes 63 bytes.
    if name.is_empty() || name.len() > 63 || !name.chars().all(fits) || device.contains('\0') {
        return Err(Error::Name(device.to_owned()));
    }
    Ok(name)
}

/// What a port is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// Its address.
    pub mac: [u8; 6],
    /// Longest packet, bytes without the Ethernet header.
    pub mtu: u16,
    /// Mbit/s; 0 when not known.
    pub speed: u32,
    /// Index of the kernel's interface behind it; 0 when there is none.
    pub ifindex: u32,
    /// Whether it has a link.
    pub up: bool,
    /// Whether the device was removed, as its driver says.
    pub removed: bool,
    /// Number of receive queues.
    pub queues: u16,
}

/// Counters of a port since it was added to DPDK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Packets that were received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the device dropped because its queues were full.
    pub missed: u64,
    /// Packets that came with an error.
    pub errors: u64,
    /// Packets for which there was no buffer.
    pub no_buffer: u64,
}

/// A port that receives.
pub struct Port {
    name: String,
    /// None only while it is dropped.
    opened: Option<Opened>,
}

impl Port {
    /// Adds a device to DPDK, if it has none of that name, and receives by it.
    ///
    /// # Errors
    ///
    /// When DPDK is not built in or does not start, or there is no such device.
    pub fn open(settings: &Settings, device: &str) -> Result<(Arc<Self>, Vec<Queue>), Error> {
        let name = device_name(device)?;
        eal::start(&settings.arguments)?;
        let text = |text: &str| CString::new(text).map_err(|_| Error::Name(device.to_owned()));
        let (c_name, c_device) = (text(name)?, text(device)?);
        let refused = |reason| Error::Device {
            device: name.to_owned(),
            reason,
        };
        let mut open = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains(name) {
            return Err(Error::Busy(name.to_owned()));
        }
        let found = sys::find(&c_name);
        let port = match found {
            Some(port) => port,
            None => {
                complaining(|| sys::probe(&c_device)).map_err(refused)?;
                let none = || refused("it has no port".to_owned());
                sys::find(&c_name).ok_or_else(none)?
            }
        };
        let make = || Opened::open(port, settings.queues, settings.descriptors, found.is_none());
        let opened = complaining(make).map_err(refused)?;
        open.insert(name.to_owned());
        let queues = opened.queues;
        let port = Arc::new(Self {
            name: name.to_owned(),
            opened: Some(opened),
        });
        let queue = |queue| Queue {
            buffers: Buffers::default(),
            port: Arc::clone(&port),
            queue,
        };
        let queues = (0..queues).map(queue).collect();
        Ok((port, queues))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is now; none when DPDK does not know it any more.
    pub fn info(&self) -> Option<PortInfo> {
        self.opened.as_ref()?.info().ok()
    }

    /// Its counters; none when DPDK does not know it any more, or it has none.
    pub fn stats(&self) -> Option<PortStats> {
        self.opened.as_ref()?.stats().ok()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut open = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        self.opened = None;
        open.remove(&self.name);
    }
}

/// A queue of a port, for one thread.
pub struct Queue {
    /// Before the port: they go back to it.
    buffers: Buffers,
    port: Arc<Port>,
    queue: u16,
}

/// State of a polling thread; see [`Queue::register_thread`].
pub struct Polling {
    _registered: Option<Registered>,
}

impl Queue {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.queue
    }

    /// Makes polling from this thread faster while the result lives.
    pub fn register_thread(&self) -> Polling {
        Polling {
            _registered: Registered::new(),
        }
    }

    /// The packets that are there, up to 32, without waiting.
    pub fn receive(&mut self) -> Burst<'_> {
        let count = match &self.port.opened {
            Some(opened) => self.buffers.receive(opened, self.queue),
            None => 0,
        };
        Burst {
            buffers: &mut self.buffers,
            count,
        }
    }
}

/// Packets that came together. They are given back when this is dropped.
pub struct Burst<'a> {
    buffers: &'a mut Buffers,
    count: usize,
}

/// A packet, from its Ethernet header on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet<'a> {
    /// The captured bytes: all, if the packet is not longer than 10,240 bytes.
    pub data: &'a [u8],
    /// Bytes on the wire, without a removed tag and without the frame check sequence.
    pub length: u32,
    /// The VLAN tag's control information, if the port took the tag off.
    pub stripped_vlan: Option<u16>,
    /// Bytes of TCP payload in each of the packets that the port merged into this one, if it did.
    pub segment: Option<u16>,
}

impl Burst<'_> {
    /// The most that may be in one.
    pub const MOST: usize = 32;

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The packets; they can be iterated several times.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'_>> {
        (0..self.count).map(|number| self.buffers.packet(number))
    }
}

impl Drop for Burst<'_> {
    fn drop(&mut self) {
        self.buffers.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_before_arguments() {
        let name = |device| device_name(device).ok();
        assert_eq!(name("net_pcap0,rx_pcap=/tmp/a,b.pcap"), Some("net_pcap0"));
        assert_eq!(name("0000:03:00.0"), Some("0000:03:00.0"));
        for wrong in [
            "",
            ",iface=eth0",
            "net pcap",
            "net\0pcap",
            "net_pcap0,a\0",
            "a/b",
        ] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
        assert_eq!(name(&"n".repeat(64)), None);
    }

    #[test]
    #[cfg(not(feature = "dpdk"))]
    fn without_the_feature_it_is_said_how_to_have_it() {
        let error = Port::open(&Settings::default(), "net_null0").err().unwrap();
        assert!(error.to_string().contains("--features dpdk"), "{error}");
    }
}
