//! One stream of packets.

use std::{
    cell::Cell,
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use skua_file::{CaptureFile, FileError, Packets};
use skua_flow::{
    AddressSet, Batch, CapturePoint, Captured, Cause, Drained, FlowTable, FlowUpdate, TableConfig,
};
use skua_kernel::flow::FlowTableConfig;
use skua_packet::Frame;

use super::{Shared, lock, source::Source};
use crate::{
    Selection,
    receive::{ReceiveCause, Received},
    userspace::{ageing, unix_ns},
};

/// Packets that are counted under one lock.
const BATCH: usize = 256;

/// What is counted of a stream.
pub(super) struct Stream {
    pub(super) flows: FlowTable,
    packets: u64,
    bytes: u64,
    /// The latest time of a packet, and when that came: captures have a clock of their own.
    clock_ns: u64,
    clock_at: Instant,
    /// When the last bytes came.
    pub(super) heard: Instant,
    /// Names of its interfaces, empty where they have none.
    pub(super) interfaces: Vec<Box<str>>,
    pub(super) ended: bool,
    /// What is older when the stream begins is moved to now.
    oldest: Option<Duration>,
    /// By how much packets are moved, ns; none before the first one.
    later_ns: Option<u64>,
    /// Number of entries at which to request a drain; none: it was requested.
    wake_at: Option<u64>,
    most: u32,
}

/// A stream of packets, and its sender.
pub(super) struct Connection {
    /// Stands in place of a namespace in flow keys.
    pub(super) number: u16,
    pub(super) peer: SocketAddr,
    stream: Mutex<Stream>,
}

impl Connection {
    pub(super) fn new(
        number: u16,
        peer: SocketAddr,
        shared: &Shared,
        addresses: &Arc<AddressSet>,
    ) -> Self {
        let most = shared.share();
        let mut flows = FlowTable::new(&TableConfig {
            max_entries: most as usize,
            idle_timeout: Some(shared.config.table.idle_timeout),
            tunnels: shared.config.table.tunnels,
            seed: shared.config.table.hash_seed,
        });
        flows.set_addresses(Arc::clone(addresses));
        let now = Instant::now();
        Self {
            number,
            peer,
            stream: Mutex::new(Stream {
                flows,
                packets: 0,
                bytes: 0,
                clock_ns: 0,
                clock_at: now,
                heard: now,
                interfaces: Vec::new(),
                ended: false,
                oldest: shared.config.oldest,
                later_ns: None,
                wake_at: Some(u64::from(most).div_ceil(2)),
                most,
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Stream> {
        lock(&self.stream)
    }

    /// Counts received bytes.
    pub(super) fn count_received(&self, bytes: usize) {
        let mut stream = self.lock();
        stream.bytes += bytes as u64;
        stream.heard = Instant::now();
    }

    /// Adds what it got.
    pub(super) fn add_to(&self, received: &mut Received) {
        self.add_stream(&self.lock(), received);
    }

    pub(super) fn add_stream(&self, stream: &Stream, received: &mut Received) {
        received.bytes += stream.bytes;
        received.records += stream.packets;
    }
}

impl Stream {
    /// Name of an interface; they count from 1, as those of a host do.
    pub(super) fn interface_name(&self, peer: SocketAddr, ifindex: u32) -> String {
        let place = (ifindex as usize).wrapping_sub(1);
        match self.interfaces.get(place) {
            Some(name) if !name.is_empty() => format!("{peer} {name}"),
            _ => format!("{peer} interface {}", ifindex.saturating_sub(1)),
        }
    }

    /// Yields what changed, at the end of the stream everything.
    pub(super) fn drain(
        &mut self,
        config: &FlowTableConfig,
        last: bool,
        sink: &mut dyn FnMut(&FlowUpdate),
    ) -> Drained {
        if last {
            return self.flows.finish(sink);
        }
        let since = u64::try_from(self.clock_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let share = FlowTableConfig {
            max_entries: self.most,
            ..config.clone()
        };
        let now_ns = self.clock_ns.saturating_add(since);
        let ageing = ageing(&share, self.flows.len(), now_ns);
        let drained = self.flows.drain_aged(&ageing, sink);
        let free = u64::from(self.most).saturating_sub(self.flows.len() as u64);
        self.wake_at = Some(self.flows.inserted() + (free / 2).max(1));
        drained
    }

    /// When a packet came, as it is counted.
    fn time_of(&mut self, timestamp_ns: u64) -> u64 {
        let oldest = self.oldest;
        let later = *self.later_ns.get_or_insert_with(|| {
            let age = unix_ns().saturating_sub(timestamp_ns);
            let old = oldest.is_some_and(|oldest| u128::from(age) > oldest.as_nanos());
            if old { age } else { 0 }
        });
        timestamp_ns.saturating_add(later)
    }

    /// Counts packets.
    fn count(&mut self, number: u16, selection: &mut Selection, packets: Packets<'_>) {
        let mut batch = Batch::default();
        for packet in packets {
            let now_ns = self.time_of(packet.timestamp_ns);
            let flows = &mut self.flows;
            self.packets += 1;
            if now_ns > self.clock_ns {
                self.clock_ns = now_ns;
                self.clock_at = self.heard;
            }
            let frame = Frame {
                data: packet.data,
                wire_len: packet.wire_len,
                link: packet.link_type,
                stripped_vlan: None,
                segments: 1,
            };
            let point = CapturePoint {
                netns: number,
                ifindex: packet.interface + 1,
                ..CapturePoint::default()
            };
            match selection.verdict(&frame, None) {
                Ok(None) => batch.push(
                    flows,
                    Captured {
                        point,
                        frame,
                        now_ns,
                    },
                ),
                Ok(Some(cause)) => flows.leave_out(point, &frame, cause),
                // No filter can be applied to such packets.
                Err(_) => flows.leave_out(point, &frame, Cause::NoDecode),
            }
        }
        batch.flush(&mut self.flows);
    }
}

/// Reads a connection to its end.
pub(super) fn run(shared: &Shared, connection: &Connection, socket: TcpStream, end: &OwnedFd) {
    let peer = connection.peer;
    let deadline = Rc::new(Cell::new(Some(
        Instant::now() + shared.config.header_timeout,
    )));
    let source = Source::new(socket, connection, end, Rc::clone(&deadline));
    let read = source
        .map_err(|source| FileError::Open {
            file: peer.to_string().into(),
            source,
        })
        .and_then(|source| CaptureFile::new(&peer.to_string(), source))
        .and_then(|file| {
            deadline.set(None);
            read(shared, connection, file)
        });
    let wrong = match read {
        Ok(None) => return,
        Ok(Some(cut_off)) => cut_off,
        Err(error) => {
            if deadline.get().is_some_and(|until| Instant::now() >= until) {
                tracing::info!(%peer, "no capture began in time: closed");
                lock(&shared.received).lose(ReceiveCause::ConnectionLimit, 1);
                return;
            }
            error.to_string()
        }
    };
    tracing::warn!(%peer, "{wrong}");
    let mut received = lock(&shared.received);
    received.lose(ReceiveCause::DecodeError, 1);
    received.last_error = Some(wrong);
}

/// Counts all packets; what was cut off at the end, if something was.
fn read(
    shared: &Shared,
    connection: &Connection,
    mut file: CaptureFile<Source<'_>>,
) -> Result<Option<String>, FileError> {
    let mut selection = shared.selection.clone();
    // Each stream has a sequence of random numbers of its own.
    selection.reseed(connection.number.into());
    let mut known = 0;
    while let Some(packets) = file.next_batch(BATCH)? {
        let mut stream = connection.lock();
        stream.count(connection.number, &mut selection, packets);
        let full = stream
            .wake_at
            .is_some_and(|at| stream.flows.inserted() >= at);
        if full {
            stream.wake_at = None;
            shared.wake();
        }
        let interfaces = file.interfaces();
        if interfaces.len() != known {
            known = interfaces.len();
            stream.interfaces = interfaces
                .iter()
                .map(|interface| interface.name.clone().unwrap_or_default())
                .collect();
        }
    }
    Ok(file.cut_off().map(ToString::to_string))
}
