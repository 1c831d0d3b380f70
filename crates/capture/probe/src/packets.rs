//! Packets of a probe in addition to its flows: the first ones of each flow, kept, and all of them, live.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};
use skua_flow::{
    Captured, Cause, FlowKey, FlowTable, ObservedPacket, Outcome, PacketBuffer, RawPacket,
    RawPacketLimits, RawPacketStats, RawPackets,
};
use skua_kernel::flow::{LinkKind, PacketConfig, SentPacket};
use skua_packet::LinkType;

use crate::ProbeError;

/// Which packets of a probe can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketsConfig {
    /// The first packets of each flow that are kept (`--rawpacket-limit`); 0: none, only live ones.
    pub first: u8,
    /// Heads of conversations per second and CPU at most, for [`Packets::read_heads`]; 0: none.
    pub heads: u32,
    /// How many segments of each side of a connection are heads, see [`PacketConfig::head_segments`].
    pub head_segments: u8,
    /// Bytes of a packet from its link header on (`--header-size`), from 1 to 65,536.
    pub bytes: u32,
    /// Memory for packets that are kept, bytes. When it is full, the oldest flows' packets are dropped.
    pub memory: usize,
    /// Memory of the ring through which the kernel's programs send packets, bytes.
    pub ring_bytes: u32,
}

impl Default for PacketsConfig {
    fn default() -> Self {
        let kernel = PacketConfig::default();
        Self {
            first: kernel.first,
            heads: kernel.heads,
            head_segments: kernel.head_segments,
            bytes: kernel.bytes,
            memory: 16 << 20,
            ring_bytes: kernel.ring_bytes,
        }
    }
}

impl PacketsConfig {
    pub(crate) fn in_kernel(&self) -> PacketConfig {
        PacketConfig {
            first: self.first,
            heads: self.heads,
            head_segments: self.head_segments,
            bytes: self.bytes,
            ring_bytes: self.ring_bytes,
        }
    }
}

/// Reads what is said in the heads of conversations.
pub type HeadReader = Box<dyn FnMut(&ObservedPacket<'_>) + Send>;

/// The packets of a probe: those kept of a flow, and live streams. Clones share one hub.
#[derive(Clone)]
pub struct Packets(Arc<Hub>);

struct Hub {
    config: PacketsConfig,
    kept: Mutex<RawPackets>,
    heads: Mutex<Option<HeadReader>>,
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Packets that streams dropped, also those that are over.
    dropped: AtomicU64,
    /// Number of streams, readable without the lock.
    watchers: AtomicUsize,
    /// Streams have all packets from the moment when they are opened.
    at_once: bool,
    /// Readable when streams come or go (an eventfd).
    wake: OwnedFd,
}

struct Stream {
    most_bytes: usize,
    state: Mutex<StreamState>,
    changed: Condvar,
}

#[derive(Default)]
struct StreamState {
    buffer: PacketBuffer,
    started: bool,
    ended: bool,
    dropped: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left at most one packet out.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Packets {
    /// For a source of packets in user space that counts by [`count`](Self::count).
    ///
    /// # Errors
    ///
    /// When the system gives no descriptor.
    pub fn new(config: PacketsConfig) -> Result<Self, ProbeError> {
        Self::make(config, true)
    }

    /// For programs, which must learn when the first stream opens and the last one closes.
    pub(crate) fn of_programs(config: PacketsConfig) -> Result<Self, ProbeError> {
        Self::make(config, false)
    }

    fn make(config: PacketsConfig, at_once: bool) -> Result<Self, ProbeError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| ProbeError::Wait(error.into()))?;
        let limits = RawPacketLimits {
            first: config.first,
            bytes: config.bytes as usize,
            memory: config.memory,
        };
        Ok(Self(Arc::new(Hub {
            config,
            kept: Mutex::new(RawPackets::new(limits)),
            heads: Mutex::default(),
            streams: Mutex::default(),
            dropped: AtomicU64::new(0),
            watchers: AtomicUsize::new(0),
            at_once,
            wake,
        })))
    }

    /// The configuration of the packets.
    pub fn config(&self) -> PacketsConfig {
        self.0.config
    }

    /// Has heads read by `reader`, on the thread that reads packets. Of a source in user space these are all packets.
    pub fn read_heads(&self, reader: HeadReader) {
        *lock(&self.0.heads) = Some(reader);
    }

    fn read_head(&self, packet: &ObservedPacket<'_>) {
        if let Some(reader) = &mut *lock(&self.0.heads) {
            reader(packet);
        }
    }

    /// Visits the packets that are kept of a flow, see [`RawPackets::of_flow`].
    pub fn of_flow(
        &self,
        key: &FlowKey,
        start_ns: u64,
        last_ns: u64,
        visit: impl FnMut(usize, &RawPacket<'_>),
    ) {
        lock(&self.0.kept).of_flow(key, start_ns, last_ns, visit);
    }

    /// How many packets are kept of a flow.
    pub fn count_of_flow(&self, key: &FlowKey, start_ns: u64, last_ns: u64) -> usize {
        lock(&self.0.kept).count(key, start_ns, last_ns)
    }

    /// What was kept and what had to go.
    pub fn stats(&self) -> RawPacketStats {
        lock(&self.0.kept).stats()
    }

    /// Opens a stream of all packets that are counted (including those without an entry in the full table,
    /// but not those that filter, sampling and address set leave out). Up to `most_bytes` wait to be read;
    /// further packets are dropped and counted.
    pub fn watch(&self, most_bytes: usize) -> PacketStream {
        let stream = Arc::new(Stream {
            most_bytes,
            state: Mutex::new(StreamState {
                started: self.0.at_once,
                ..StreamState::default()
            }),
            changed: Condvar::new(),
        });
        let mut streams = lock(&self.0.streams);
        streams.push(Arc::clone(&stream));
        self.0.watchers.store(streams.len(), Ordering::Release);
        drop(streams);
        self.call();
        PacketStream {
            packets: self.clone(),
            stream,
            read_packets: PacketBuffer::default(),
            dropped: 0,
        }
    }

    /// Number of streams.
    pub fn watchers(&self) -> usize {
        self.0.watchers.load(Ordering::Acquire)
    }

    /// Packets that all streams until now have dropped because they were not read in time.
    pub fn live_dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Whether packets need not be handed over one by one: none are kept, and no stream is open.
    pub fn is_idle(&self) -> bool {
        self.0.config.first == 0 && self.0.config.heads == 0 && self.watchers() == 0
    }

    /// Counts a packet in a table, keeps it when it is one of the first of its flow, and gives it to all
    /// streams. `tag` is the VLAN tag that is not in the bytes (EtherType, tag control information).
    pub fn count(&self, table: &mut FlowTable, packet: &Captured<'_>, tag: Option<(u16, u16)>) {
        let (outcome, first) = table.count_first(packet, self.0.config.first);
        let watched = self.watchers() > 0 && outcome != Outcome::Lost(Cause::AddressSet);
        let head = self.0.config.heads > 0 && outcome != Outcome::Lost(Cause::AddressSet);
        if first.is_none() && !watched && !head {
            return;
        }
        let observed = ObservedPacket {
            time_ns: packet.now_ns,
            netns: packet.point.netns,
            ifindex: packet.point.ifindex,
            direction: packet.point.direction,
            link_type: packet.frame.link.to_pcap(),
            length: packet.frame.wire_len,
            tag,
            data: packet.frame.data,
        };
        if let Some(first) = first {
            lock(&self.0.kept).keep(&first.key, &observed);
        }
        if watched {
            self.show(&observed);
        }
        if head {
            self.read_head(&observed);
        }
    }

    /// Records a packet that a program sent.
    pub(crate) fn record(&self, packet: &SentPacket<'_>) {
        let observed = ObservedPacket {
            time_ns: packet.time_ns,
            netns: packet.key.netns,
            ifindex: packet.key.ifindex,
            direction: match packet.direction {
                skua_kernel::Direction::Ingress => skua_flow::Direction::Ingress,
                skua_kernel::Direction::Egress => skua_flow::Direction::Egress,
            },
            link_type: match packet.link {
                LinkKind::Ethernet => LinkType::Ethernet,
                LinkKind::Ip => LinkType::RawIp,
            }
            .to_pcap(),
            length: packet.length,
            tag: packet.tag,
            data: packet.data,
        };
        if packet.index.is_some() {
            lock(&self.0.kept).keep(&packet.key, &observed);
        }
        if packet.live {
            self.show(&observed);
        }
        if packet.head {
            self.read_head(&observed);
        }
    }

    fn show(&self, packet: &ObservedPacket<'_>) {
        for stream in lock(&self.0.streams).iter() {
            if !stream.push(packet, self.0.config.bytes as usize) {
                self.0.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Clears the notice that streams came or went; returns whether there are any.
    pub(crate) fn clear_wake(&self) -> bool {
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
        self.watchers() > 0
    }

    /// From now on streams have all packets.
    pub(crate) fn started(&self) {
        for stream in lock(&self.0.streams).iter() {
            lock(&stream.state).started = true;
            stream.changed.notify_all();
        }
    }

    /// Ends all streams.
    pub(crate) fn end(&self) {
        for stream in lock(&self.0.streams).iter() {
            lock(&stream.state).ended = true;
            stream.changed.notify_all();
        }
    }

    fn call(&self) {
        // It cannot be full: it is read before it has been written to so often.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }
}

impl AsFd for Packets {
    /// Readable when streams came or went.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

impl Stream {
    /// False when it is dropped, as too many wait.
    fn push(&self, packet: &ObservedPacket<'_>, most: usize) -> bool {
        let mut state = lock(&self.state);
        if state.buffer.bytes() >= self.most_bytes {
            state.dropped += 1;
            return false;
        }
        let waiting = state.buffer.is_empty();
        state.buffer.push(packet, most);
        drop(state);
        if waiting {
            self.changed.notify_one();
        }
        true
    }
}

/// What a stream had to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streamed {
    /// There are packets.
    Packets,
    /// None came in time.
    Nothing,
    /// None will come any more.
    Ended,
}

/// All packets of a probe from a moment on. Dropping it ends it.
pub struct PacketStream {
    packets: Packets,
    stream: Arc<Stream>,
    read_packets: PacketBuffer,
    dropped: u64,
}

impl PacketStream {
    /// Waits until every packet from now on is in the stream; false when that does not come to be in
    /// time. The probe has to be waiting ([`crate::Probe::wait`]).
    pub fn started(&self, timeout: Duration) -> bool {
        let state = self.wait(timeout, |state| state.started || state.ended);
        state.started
    }

    /// Waits for packets and takes those that are there, to be seen by [`packets`](Self::packets).
    pub fn read(&mut self, timeout: Duration) -> Streamed {
        let mut spare = std::mem::take(&mut self.read_packets);
        spare.clear();
        let mut state = self.wait(timeout, |state| !state.buffer.is_empty() || state.ended);
        // The memory of what was read last serves what comes next.
        let read_packets = std::mem::replace(&mut state.buffer, spare);
        let (ended, dropped) = (state.ended, state.dropped);
        drop(state);
        self.read_packets = read_packets;
        self.dropped = dropped;
        match (self.read_packets.is_empty(), ended) {
            (false, _) => Streamed::Packets,
            (true, true) => Streamed::Ended,
            (true, false) => Streamed::Nothing,
        }
    }

    /// What the last [`read`](Self::read) took, in order.
    pub fn packets(&self) -> impl Iterator<Item = RawPacket<'_>> {
        self.read_packets.iter()
    }

    /// Packets that were dropped up to the last [`read`](Self::read) because they were not read in
    /// time. What the kernel's ring lost before that is in the account (`live_lost`).
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn wait(
        &self,
        timeout: Duration,
        there: impl Fn(&StreamState) -> bool,
    ) -> MutexGuard<'_, StreamState> {
        let until = Instant::now().checked_add(timeout);
        let mut state = lock(&self.stream.state);
        while !there(&state) {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => timeout,
            };
            if left.is_zero() {
                break;
            }
            (state, _) = self
                .stream
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl Drop for PacketStream {
    fn drop(&mut self) {
        let hub = &self.packets.0;
        let mut streams = lock(&hub.streams);
        streams.retain(|stream| !Arc::ptr_eq(stream, &self.stream));
        hub.watchers.store(streams.len(), Ordering::Release);
        drop(streams);
        self.packets.call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::{CapturePoint, TableConfig};
    use skua_packet::Frame;

    fn frame(number: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        // UDP between ports that the number gives.
        frame[17] = 46;
        frame[23] = 17;
        frame[35] = number;
        frame
    }

    fn count(packets: &Packets, table: &mut FlowTable, number: u8, now_ns: u64) {
        let bytes = frame(number);
        let packet = Captured {
            point: CapturePoint::default(),
            frame: Frame::ethernet(&bytes),
            now_ns,
        };
        packets.count(table, &packet, None);
    }

    #[test]
    fn the_first_of_each_flow_are_kept_and_all_are_seen_live() {
        let packets = Packets::new(PacketsConfig {
            first: 3,
            bytes: 50,
            ..PacketsConfig::default()
        })
        .unwrap();
        let mut table = FlowTable::new(&TableConfig::default());
        count(&packets, &mut table, 1, 1);
        let mut stream = packets.watch(1 << 20);
        assert!(stream.started(Duration::ZERO));
        for time in 2..6 {
            count(&packets, &mut table, 1, time);
            count(&packets, &mut table, 2, time);
        }
        assert_eq!(stream.read(Duration::ZERO), Streamed::Packets);
        let observed: Vec<_> = stream.packets().map(|p| (p.data[35], p.time_ns)).collect();
        let expected: Vec<_> = (2..6).flat_map(|time| [(1, time), (2, time)]).collect();
        assert_eq!(observed, expected);
        assert!(
            stream
                .packets()
                .all(|p| p.data.len() == 50 && p.length == 60)
        );
        assert_eq!(stream.read(Duration::ZERO), Streamed::Nothing);
        let mut kept = Vec::new();
        table.finish(|update| {
            packets.of_flow(&update.key, update.first_ns, update.last_ns, |index, p| {
                kept.push((p.data[35], index, p.time_ns));
            });
        });
        kept.sort_unstable();
        assert_eq!(
            kept,
            [
                (1, 1, 1),
                (1, 2, 2),
                (1, 3, 3),
                (2, 1, 2),
                (2, 2, 3),
                (2, 3, 4)
            ]
        );
        assert_eq!(packets.stats().kept, 6);
        drop(stream);
        assert_eq!(packets.watchers(), 0);
    }

    #[test]
    fn who_does_not_read_loses_what_is_counted() {
        let packets = Packets::new(PacketsConfig::default()).unwrap();
        let mut table = FlowTable::new(&TableConfig::default());
        let mut slow = packets.watch(200);
        let mut quick = packets.watch(1 << 20);
        for time in 0..100 {
            count(&packets, &mut table, 1, time);
        }
        packets.end();
        assert_eq!(slow.read(Duration::ZERO), Streamed::Packets);
        let got = slow.packets().count() as u64;
        assert!((1..10).contains(&got), "{got}");
        assert_eq!(slow.dropped(), 100 - got);
        assert_eq!(slow.read(Duration::ZERO), Streamed::Ended);
        assert_eq!(quick.read(Duration::ZERO), Streamed::Packets);
        assert_eq!((quick.packets().count(), quick.dropped()), (100, 0));
        assert_eq!(quick.read(Duration::MAX), Streamed::Ended);
    }
}
