//! Packets as they come, as pcapng.

use std::{
    cell::RefCell,
    collections::HashMap,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame};
use skua_control::capture::CaptureManager;
use skua_file::{Direction, Outgoing, PcapNgWriter};
use skua_flow::RawPacket;
use skua_probe::{PacketStream, Streamed};
use skua_state::captures::{CaptureSet, CaptureSets};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Who watches at a time; each has a thread.
const WATCHERS: usize = 16;

/// Packets that wait for a slow watcher, bytes; beyond they are dropped and counted.
const WAITING: usize = 16 << 20;

/// Pieces of the answer that are ready to be sent.
pub(crate) const PIECES: usize = 16;

/// Time until a thread notices that a capture has ended or its watcher has gone.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// The answer of a request that goes on as long as packets come.
pub(crate) struct Pieces(pub(crate) mpsc::Receiver<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// One who watches; says when it ends.
pub(crate) struct WatcherSlot;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl WatcherSlot {
    pub(crate) fn acquire() -> Option<Self> {
        let more = |taken: usize| (taken < WATCHERS).then_some(taken + 1);
        let took = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        took.ok().map(|_| Self)
    }
}

impl Drop for WatcherSlot {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A capture that ends with its watcher.
pub struct Passing {
    /// Who holds it.
    pub captures: Arc<CaptureManager>,
    /// Which.
    pub id: Uuid,
}

impl Drop for Passing {
    fn drop(&mut self) {
        // It may have been ended already.
        let _ = self.captures.delete(&self.id.to_string());
    }
}

/// The packets of a capture from now on; none when too many watch already.
pub fn stream(
    sets: CaptureSets,
    id: Uuid,
    passing: Option<Passing>,
) -> std::io::Result<Option<Body>> {
    let Some(seat) = WatcherSlot::acquire() else {
        return Ok(None);
    };
    let (send, receive) = mpsc::channel(PIECES);
    std::thread::Builder::new()
        .name("packets".into())
        .spawn(move || {
            let _seat = seat;
            follow(&sets, id, &send);
            drop(passing);
        })?;
    Ok(Some(Body::new(Pieces(receive))))
}

/// Bytes that are written and not sent yet.
#[derive(Clone, Default)]
pub(crate) struct Ready(pub(crate) Rc<RefCell<Vec<u8>>>);

impl std::io::Write for Ready {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A capture file that is being made.
struct Writing<'a> {
    writer: PcapNgWriter<Ready>,
    ready: Ready,
    /// Numbers of interfaces by namespace, index and link type.
    interfaces: HashMap<(u16, u32, u32), u32>,
    set: &'a CaptureSet,
}

impl<'a> Writing<'a> {
    fn begin(set: &'a CaptureSet) -> std::io::Result<Self> {
        let application = concat!("skua ", env!("CARGO_PKG_VERSION"));
        let ready = Ready::default();
        Ok(Self {
            writer: PcapNgWriter::new(ready.clone(), application)?,
            ready,
            interfaces: HashMap::new(),
            set,
        })
    }

    fn packet(&mut self, packet: &RawPacket<'_>) -> std::io::Result<()> {
        let key = (packet.netns, packet.ifindex, packet.link_type);
        let interface = match self.interfaces.get(&key) {
            Some(number) => *number,
            None => {
                let state = self.set.shared.read();
                let name = state.interface_named(packet.netns, packet.ifindex);
                let link_type = u16::try_from(packet.link_type).unwrap_or_default();
                let number = self.writer.interface(&name, link_type, 0)?;
                drop(state);
                self.interfaces.insert(key, number);
                number
            }
        };
        self.writer.packet(&Outgoing {
            interface,
            timestamp_ns: packet.time_ns,
            data: packet.data,
            wire_len: packet.length,
            direction: Some(match packet.direction {
                skua_flow::Direction::Ingress => Direction::Inbound,
                skua_flow::Direction::Egress => Direction::Outbound,
            }),
            comment: "",
        })
    }
}

/// Waits until the capture runs: that is when its query finds a node.
fn watch(
    sets: &CaptureSets,
    id: Uuid,
    send: &mpsc::Sender<Bytes>,
) -> Option<(CaptureSet, PacketStream)> {
    while !send.is_closed() {
        if let Some(set) = sets.get(id) {
            let stream = set.packets.as_ref()?.watch(WAITING);
            return Some((set, stream));
        }
        std::thread::sleep(LOOK);
    }
    None
}

fn follow(sets: &CaptureSets, id: Uuid, send: &mpsc::Sender<Bytes>) {
    let Some((set, mut stream)) = watch(sets, id, send) else {
        return;
    };
    let written = (|| -> std::io::Result<()> {
        let mut file = Writing::begin(&set)?;
        loop {
            let ready = file.ready.0.take();
            if !ready.is_empty() && send.blocking_send(ready.into()).is_err() {
                return Ok(());
            }
            match stream.read(LOOK) {
                Streamed::Packets => stream
                    .packets()
                    .try_for_each(|packet| file.packet(&packet))?,
                Streamed::Nothing if send.is_closed() => return Ok(()),
                Streamed::Nothing => {}
                Streamed::Ended => return Ok(()),
            }
        }
    })();
    if let Err(error) = written {
        tracing::warn!(%error, "packets cannot be written");
    }
    if stream.dropped() > 0 {
        let dropped = stream.dropped();
        tracing::warn!(capture = %id, dropped, "packets were dropped: whoever watched was too slow");
    }
}
