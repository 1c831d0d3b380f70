//! Observes an injection's packets at an interface.

use crate::{
    InjectError, Point,
    track::{self, Track},
};
use skua_afpacket::{AfPacketCapture, BpfInstruction, Direction, Options, PacketSource as _};
use skua_filter::Filter;
use skua_packet::{LinkType, Network, Transport};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// Longest time that a packet waits in the ring before it is read, in ms.
const BLOCK_TIMEOUT_MS: u32 = 10;
/// Sizes of the ring: for the packets of one conversation.
const BLOCK_BYTES: usize = 64 << 10;
const RING_BYTES: usize = 16 * BLOCK_BYTES;
/// Enough for the headers of a packet inside an ICMP error, with some options.
const SNAPLEN: u32 = 512;
/// Different ICMP errors that are remembered.
const MAX_ERRORS: usize = 16;
/// Length of the header of ICMP and ICMPv6 errors.
const ICMP_HEADER: usize = 8;

/// An ICMP or ICMPv6 error that came back for packets of the injection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The sender.
    pub from: IpAddr,
    /// Its type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// Number of such errors.
    pub count: u64,
}

impl IcmpError {
    /// The error's name, as in RFC 792 and RFC 4443.
    pub fn meaning(&self) -> &'static str {
        match (self.from.is_ipv6(), self.kind, self.code) {
            (false, 3, 0) => "network unreachable",
            (false, 3, 1) | (true, 1, 3) => "host unreachable",
            (false, 3, 3) | (true, 1, 4) => "port unreachable",
            (false, 3, 4) | (true, 2, _) => "packet too big",
            (false, 3, 9 | 10 | 13) | (true, 1, 1) => "administratively prohibited",
            (true, 1, 0) => "no route",
            (true, 1, 6) => "route rejected",
            (false, 3, _) | (true, 1, _) => "destination unreachable",
            (false, 11, _) | (true, 3, _) => "time exceeded",
            (false, 12, _) | (true, 4, _) => "parameter problem",
            _ => "error",
        }
    }
}

/// Packets observed.
#[derive(Clone, Default, Debug)]
pub(crate) struct Observed {
    /// Packets of the injection.
    pub sent: u64,
    /// Packets of the same conversations in the other direction.
    pub returned: u64,
    /// TCP resets among them.
    pub resets: u64,
    /// ICMP errors about packets of the injection.
    pub errors: Vec<IcmpError>,
}

/// Which packets count at an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Directions {
    /// Received packets.
    Received,
    /// All.
    Both,
}

/// Captures at an interface.
pub(crate) struct Witness {
    capture: AfPacketCapture,
    link: LinkType,
    directions: Directions,
}

impl Witness {
    /// Starts to capture, in the calling thread's network namespace, the packets that match a pcap
    /// expression; empty matches all.
    pub fn open(
        point: &Point,
        directions: Directions,
        expression: &str,
    ) -> Result<Self, InjectError> {
        let options = Options {
            loopback: point.loopback,
            ring_bytes: RING_BYTES,
            block_bytes: BLOCK_BYTES,
            block_timeout_ms: BLOCK_TIMEOUT_MS,
            snaplen: SNAPLEN,
            filter: compiled(expression, point.ethernet)?,
            ..Options::new(point.ifindex, point.name.as_str())
        };
        Ok(Self {
            capture: AfPacketCapture::open(&options)?,
            link: track::link_type(point.ethernet),
            directions,
        })
    }

    /// Visits the packets that wait in the ring.
    pub fn packets(
        &mut self,
        wait: Duration,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<(), InjectError> {
        let directions = self.directions;
        self.capture.dispatch(wait, &mut |packet| {
            if directions == Directions::Both || packet.direction != Direction::Outgoing {
                visit(packet.data);
            }
        })?;
        Ok(())
    }

    /// Counts new packets of the conversations in `wanted`.
    pub fn read_new(
        &mut self,
        wanted: &BTreeSet<Track>,
        observed: &mut Observed,
    ) -> Result<(), InjectError> {
        let link = self.link;
        self.packets(Duration::ZERO, &mut |data| {
            observe(data, link, wanted, observed)
        })
    }
}

impl AsFd for Witness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.capture.as_fd()
    }
}

fn compiled(expression: &str, ethernet: bool) -> Result<Vec<BpfInstruction>, InjectError> {
    if expression.is_empty() {
        return Ok(Vec::new());
    }
    let link = match ethernet {
        true => skua_filter::LinkType::Ethernet,
        false => skua_filter::LinkType::RawIp,
    };
    let filter = Filter::compile(expression, link)
        .map_err(|error| InjectError::Packet(error.to_string()))?;
    let instructions = filter.instructions().iter();
    Ok(instructions
        .map(|i| BpfInstruction::from((i.code, i.jt, i.jf, i.k)))
        .collect())
}

fn observe(data: &[u8], link: LinkType, wanted: &BTreeSet<Track>, observed: &mut Observed) {
    let Some(level) = track::level(data, link) else {
        return;
    };
    let track = Track::of(&level);
    if wanted.contains(&track) {
        observed.sent += 1;
        return;
    }
    let other = Track {
        forward: !track.forward,
        ..track
    };
    if wanted.contains(&other) {
        observed.returned += 1;
        if let Transport::Tcp(segment) = level.transport {
            observed.resets += u64::from(segment.flags & crate::flags::RST != 0);
        }
        return;
    }
    let Transport::Icmp(icmp) = level.transport else {
        return;
    };
    let is_error = match level.network {
        Network::V4 => matches!(icmp.kind, 3 | 4 | 5 | 11 | 12),
        Network::V6 => icmp.kind < 128,
        Network::None => false,
    };
    let inside = data.get(level.payload as usize + ICMP_HEADER..);
    let Some(inside) = inside.filter(|_| is_error) else {
        return;
    };
    let about = track::level(inside, LinkType::RawIp).map(|level| Track::of(&level));
    if about.is_some_and(|track| wanted.contains(&track)) {
        let from = match level.network {
            Network::V4 => {
                let [.., a, b, c, d] = level.src;
                Ipv4Addr::new(a, b, c, d).into()
            }
            _ => Ipv6Addr::from(level.src).into(),
        };
        observed.error(from, icmp.kind, icmp.code);
    }
}

impl Observed {
    /// Packets that came back, with errors.
    pub fn replies(&self) -> u64 {
        self.returned + self.errors.iter().map(|error| error.count).sum::<u64>()
    }

    fn error(&mut self, from: IpAddr, kind: u8, code: u8) {
        let same =
            |error: &&mut IcmpError| (error.from, error.kind, error.code) == (from, kind, code);
        if let Some(error) = self.errors.iter_mut().find(same) {
            error.count += 1;
        } else if self.errors.len() < MAX_ERRORS {
            self.errors.push(IcmpError {
                from,
                kind,
                code,
                count: 1,
            });
        }
    }
}
