//! Reads what is said in conversations from the heads that a probe sends, into the log.

use std::sync::{Arc, Mutex, PoisonError};

use skua_apps::{
    Config as WatcherConfig, Event, Log, Watcher,
    dns::{Limits, Lookup, Place},
    hellos, names, redacted,
};
use skua_config::app::App;
use skua_flow::{Direction, ObservedPacket};
use skua_packet::{Frame, LinkType};
use skua_probe::{Packets, PacketsConfig};
use skua_process::host::unix_ns;

/// Bytes of a packet that are read: whole datagrams of DNS with headers, as long as servers send them.
const PACKET_BYTES: u32 = 16 << 10;

/// Segments of each side of a connection that are read: a client's first message of TLS has two or three, with the SYN
/// before it.
const HEAD_SEGMENTS: u8 = 4;

/// What the probe is to send; none when nothing is read.
pub fn packets(app: &App) -> Option<PacketsConfig> {
    app.enabled.then(|| PacketsConfig {
        heads: app.rate,
        head_segments: HEAD_SEGMENTS,
        bytes: PACKET_BYTES,
        ring_bytes: u32::try_from(app.ring).unwrap_or(u32::MAX),
        ..PacketsConfig::default()
    })
}

/// Reads heads, on the thread of the probe or of its readers.
#[derive(Clone)]
pub struct Heads {
    watcher: Arc<Mutex<Watcher>>,
    log: Log,
    redact: bool,
}

impl Heads {
    /// Reads those of a probe.
    pub fn read(app: &App, tunnels: bool, packets: &Packets) -> Self {
        names::begin(app.names as usize);
        hellos::begin();
        let timeout_ns = u64::try_from(app.timeout.as_nanos()).unwrap_or(u64::MAX);
        let config = WatcherConfig {
            dns: Limits {
                timeout_ns,
                ..Limits::default()
            },
            tunnels,
            ..WatcherConfig::default()
        };
        let heads = Self {
            watcher: Arc::new(Mutex::new(Watcher::new(config))),
            log: Log::new(app.records as usize),
            redact: app.redact,
        };
        let reader = heads.clone();
        packets.read_heads(Box::new(move |packet| reader.packet(packet)));
        heads
    }

    /// Where the records are.
    pub fn log(&self) -> Log {
        self.log.clone()
    }

    fn with(&self, change: impl FnOnce(&mut Watcher, &mut dyn FnMut(Event<'_>))) {
        // A reader that panicked left at most one packet out.
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = unix_ns();
        change(&mut watcher, &mut |event| match event {
            Event::Lookup(lookup) => self.add(lookup, now_ns),
            Event::Hello(sent) => {
                let mut hello = sent.hello;
                if self.redact {
                    hello.server_name = redacted(&hello.server_name);
                }
                hellos::learn(sent.from, sent.to, sent.time_ns, hello);
            }
            Event::DnsMessage(_) => {}
        });
        self.log.set_stats(watcher.stats());
    }

    fn add(&self, lookup: Lookup, now_ns: u64) {
        match self.redact {
            true => self.log.add(lookup.redacted(), now_ns),
            false => self.log.add(lookup, now_ns),
        }
    }

    fn packet(&self, packet: &ObservedPacket<'_>) {
        let Some(link) = LinkType::from_pcap(packet.link_type) else {
            return;
        };
        let frame = Frame {
            data: packet.data,
            wire_len: packet.length,
            link,
            stripped_vlan: None,
            segments: 1,
        };
        let place = Place {
            netns: packet.netns,
            ifindex: packet.ifindex,
            egress: packet.direction == Direction::Egress,
        };
        self.with(|watcher, out| watcher.packet(&frame, place, packet.time_ns, out));
    }

    /// Hands out what gets no answer any more; to be called at each drain.
    pub fn expire(&self, now_ns: u64) {
        self.with(|watcher, out| watcher.expire(now_ns, out));
    }
}
