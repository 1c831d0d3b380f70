//! Packets of a tap as they come, as pcapng.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::{Body, Bytes};
use skua_control::tap::{TapManager, TapWatch};
use skua_file::{Direction, Outgoing, PcapNgWriter};
use skua_flow::FlowKey;
use skua_packet::{Frame, LinkType, Network, Options, Transport};
use skua_socket::Span;
use skua_state::{Shared, State};
use skua_tap::{LinkKind, TappedPacket};
use tokio::sync::mpsc;

use crate::captures::live::{LOOK, PIECES, Pieces, Ready, WatcherSlot};

/// LINKTYPE_ETHERNET, LINKTYPE_RAW.
const ETHERNET: u16 = 1;
const RAW: u16 = 101;
/// Where a VLAN tag stands in a frame.
const TAG_AT: usize = 12;

/// A tap that ends with its watcher.
pub struct Passing {
    /// Who holds it.
    pub taps: Arc<TapManager>,
    /// Who made it.
    pub who: String,
}

/// The packets of a tap from now on; none when too many watch already.
pub fn stream(
    watch: TapWatch,
    shared: Shared,
    passing: Option<Passing>,
) -> io::Result<Option<Body>> {
    let Some(seat) = WatcherSlot::acquire() else {
        return Ok(None);
    };
    let (send, receive) = mpsc::channel(PIECES);
    std::thread::Builder::new()
        .name("tapped".into())
        .spawn(move || {
            let _seat = seat;
            let id = watch.id();
            if let Err(error) = follow(watch, &shared, &send) {
                tracing::warn!(%error, "packets of a tap cannot be written");
            }
            if let Some(passing) = passing {
                // It may have been ended already.
                let _ = passing.taps.delete(&id.to_string(), &passing.who);
            }
        })?;
    Ok(Some(Body::new(Pieces(receive))))
}

/// A source as it was described in the file.
#[derive(Clone, Copy)]
struct Known {
    interface: u32,
    netns: u32,
    link: LinkKind,
}

/// Writes packets until the watcher goes or the tap ends.
fn follow(mut watch: TapWatch, shared: &Shared, send: &mpsc::Sender<Bytes>) -> io::Result<()> {
    let ready = Ready::default();
    let application = concat!("skua ", env!("CARGO_PKG_VERSION"));
    let mut writer = PcapNgWriter::new(ready.clone(), application)?;
    let mut known: HashMap<u32, Known> = HashMap::new();
    let mut whole = Vec::new();
    let mut comment = String::new();
    let mut polls = Polls::default();
    loop {
        let bytes = ready.0.take();
        if !bytes.is_empty() && send.blocking_send(bytes.into()).is_err() {
            return Ok(());
        }
        let mut failed = Ok(());
        // Names of new sources are asked for before packets are taken, not under the reader.
        let mut batch: Vec<(u32, Held)> = Vec::new();
        let goes_on = watch.read(LOOK, &mut |packet| {
            batch.push((packet.source, Held::of(packet, &mut whole)));
        });
        for (number, held) in batch {
            let place = match known.get(&number) {
                Some(place) => *place,
                None => {
                    let source = watch.source(number);
                    let (netns, name, link) =
                        source.unwrap_or((0, String::new(), LinkKind::Ethernet));
                    let kind = match link {
                        LinkKind::Ethernet => ETHERNET,
                        LinkKind::Ip => RAW,
                    };
                    let place = Known {
                        interface: writer.interface(&name, kind, 0)?,
                        netns: u32::try_from(netns).unwrap_or_default(),
                        link,
                    };
                    known.insert(number, place);
                    place
                }
            };
            comment.clear();
            polls.name(shared, (&held.data, held.time_ns), place, &mut comment);
            let written = writer.packet(&Outgoing {
                interface: place.interface,
                timestamp_ns: held.time_ns,
                data: &held.data,
                wire_len: held.length,
                direction: Some(held.direction),
                comment: &comment,
            });
            failed = failed.and(written);
        }
        failed?;
        if !goes_on {
            let rest = ready.0.take();
            // The watcher has gone, or the tap has ended.
            let _ = send.blocking_send(rest.into());
            return Ok(());
        }
        if send.is_closed() {
            return Ok(());
        }
    }
}

/// A packet out of the kernel's ring, as it was on the wire.
struct Held {
    time_ns: u64,
    length: u32,
    direction: Direction,
    data: Vec<u8>,
}

impl Held {
    fn of(packet: &TappedPacket<'_>, whole: &mut Vec<u8>) -> Self {
        whole.clear();
        match packet.tag {
            Some((protocol, control)) if packet.data.len() >= TAG_AT => {
                whole.extend(&packet.data[..TAG_AT]);
                whole.extend(protocol.to_be_bytes());
                whole.extend(control.to_be_bytes());
                whole.extend(&packet.data[TAG_AT..]);
            }
            _ => whole.extend(packet.data),
        }
        let added = whole.len() - packet.data.len();
        Self {
            time_ns: packet.time_ns,
            length: packet.length + added as u32,
            direction: match packet.direction {
                skua_tap::Direction::Ingress => Direction::Inbound,
                skua_tap::Direction::Egress => Direction::Outbound,
            },
            data: whole.clone(),
        }
    }
}

/// The least time between two polls of sockets for packets whose owner is not known, and how many times as
/// long as a poll takes it is at least.
const REST: Duration = Duration::from_millis(100);
const SHARE: u32 = 20;
/// A packet belongs to a socket that a poll has seen so long before it, when there is only one.
const SEEN: Duration = Duration::from_secs(30);

/// Polls sockets when packets come whose owner is not known: most are of sockets newer than the last poll.
#[derive(Default)]
struct Polls {
    next: Option<Instant>,
}

impl Polls {
    /// Says whose sockets sent and get a packet.
    fn name(
        &mut self,
        shared: &Shared,
        (data, time_ns): (&[u8], u64),
        place: Known,
        comment: &mut String,
    ) {
        let Some(key) = conversation(data, place.link) else {
            return;
        };
        let span = Span::before(time_ns, SEEN);
        owners(&shared.read(), &key, place.netns, span, comment);
        let began = Instant::now();
        if !comment.is_empty() || self.next.is_some_and(|next| began < next) {
            return;
        }
        owners(&shared.fresh(), &key, place.netns, span, comment);
        self.next = Some(Instant::now() + REST.max(began.elapsed() * SHARE));
    }
}

/// Says whose sockets sent and get a packet, as far as they are on this host: `from curl (4711),
/// to nginx (42) in container web`.
fn owners(state: &State, key: &FlowKey, netns: u32, span: Span, comment: &mut String) {
    let Some(sockets) = &state.sockets else {
        return;
    };
    let joined = sockets.store.index().join(key, netns, span, None);
    for (word, owner) in ["from", "to"].iter().zip(joined.owners) {
        let Some(owner) = owner.and_then(|id| sockets.owners.get(id)) else {
            continue;
        };
        let party = skua_socket::conversation_owner(owner);
        if !comment.is_empty() {
            *comment += ", ";
        }
        *comment += &format!("{word} {} ({})", party.process, party.pid);
        if !party.container.is_empty() {
            *comment += &format!(" in container {}", party.container);
        }
    }
}

/// The ends of a packet: `lo` is its source.
fn conversation(data: &[u8], link: LinkKind) -> Option<FlowKey> {
    let frame = Frame {
        link: match link {
            LinkKind::Ethernet => LinkType::Ethernet,
            LinkKind::Ip => LinkType::RawIp,
        },
        ..Frame::ethernet(data)
    };
    let decoded = skua_packet::decode(&frame, Options::default()).ok()?;
    let level = &decoded.outer;
    let (source, destination) = match level.transport {
        Transport::Ports { src, dst } => (src, dst),
        Transport::Tcp(segment) => (segment.src_port, segment.dst_port),
        Transport::None | Transport::Icmp(_) => return None,
    };
    Some(FlowKey {
        lo: level.src,
        hi: level.dst,
        lo_port: source.to_be_bytes(),
        hi_port: destination.to_be_bytes(),
        proto: level.proto,
        kind: match level.network {
            Network::None => return None,
            Network::V4 => 1,
            Network::V6 => 2,
        },
        ..FlowKey::default()
    })
}
