//! From packets to what was said in them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use skua_packet::{Frame, Level, Network, Options, Transport, decode};

use crate::{
    connections::{Connections, Segment, Spoken},
    dns::{self, Exchanges, Lookup, Message, Place, Sent},
    tls::ClientHello,
};

/// Bounds, and what is looked into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Of questions of DNS.
    pub dns: dns::Limits,
    /// TCP connections that are remembered; the oldest goes first.
    pub connections: usize,
    /// Look into tunnels, too.
    pub tunnels: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dns: dns::Limits::default(),
            connections: 16_384,
            tunnels: false,
        }
    }
}

/// Something that was said.
#[derive(Debug)]
pub enum Event<'a> {
    /// A message of DNS, at each capture point that it passes.
    DnsMessage(&'a Sent<'a>),
    /// A question and its answer, once.
    Lookup(Lookup),
    /// What a client said first in TLS, at each capture point that it passes.
    Hello(HelloSent),
}

/// A ClientHello on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelloSent {
    /// What it says.
    pub hello: ClientHello,
    /// When it was whole, ns since the Unix epoch.
    pub time_ns: u64,
    /// Who sent it.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
}

/// What was seen and left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Packets looked at.
    pub packets: u64,
    /// Messages of DNS.
    pub dns_messages: u64,
    /// Clients' first messages of TLS.
    pub hellos: u64,
    /// Datagrams and messages on ports of DNS that are none.
    pub dns_malformed: u64,
    /// Questions that were forgotten before their time because there were too many.
    pub dns_evicted: u64,
    /// Answers to another question than the identifier belongs to.
    pub dns_mismatched: u64,
    /// Connections that were forgotten because there were too many.
    pub connections_evicted: u64,
    /// Segments with other bytes than those that came first for the same place.
    pub conflicts: u64,
    /// Connections whose bytes could not be put in order: too much was missing.
    pub gaps: u64,
}

/// Watches packets for what is said in them.
#[derive(Debug)]
pub struct Watcher {
    config: Config,
    connections: Connections,
    exchanges: Exchanges,
    stats: Stats,
}

impl Watcher {
    /// Has seen nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            connections: Connections::new(config.connections),
            exchanges: Exchanges::new(config.dns),
            stats: Stats::default(),
        }
    }

    /// What was seen and left out.
    pub fn stats(&self) -> Stats {
        Stats {
            dns_evicted: self.exchanges.evicted,
            dns_mismatched: self.exchanges.mismatched,
            connections_evicted: self.connections.evicted,
            conflicts: self.connections.conflicts,
            gaps: self.connections.gaps,
            ..self.stats
        }
    }

    /// Looks at a packet.
    pub fn packet(
        &mut self,
        frame: &Frame<'_>,
        place: Place,
        time_ns: u64,
        out: &mut dyn FnMut(Event<'_>),
    ) {
        self.stats.packets += 1;
        let options = Options {
            tunnels: self.config.tunnels,
        };
        let Ok(decoded) = decode(frame, options) else {
            return;
        };
        let level = decoded.innermost();
        if level.network == Network::None {
            return;
        }
        let (src, dst) = (address(level.src), address(level.dst));
        match level.transport {
            Transport::Ports { src: from, dst: to } if level.proto == 17 => {
                let datagram = Datagram {
                    from: SocketAddr::new(src, from),
                    to: SocketAddr::new(dst, to),
                    place,
                    time_ns,
                };
                if let Some((payload, bytes)) = udp_payload(frame, level) {
                    self.datagram(&datagram, payload, bytes, out);
                }
            }
            Transport::Tcp(segment) => {
                let start = level.payload as usize;
                let rest = frame.data.get(start..).unwrap_or_default();
                let payload = &rest[..rest.len().min(segment.payload_len as usize)];
                let Self {
                    connections,
                    exchanges,
                    stats,
                    ..
                } = self;
                let segment = Segment {
                    from: SocketAddr::new(src, segment.src_port),
                    to: SocketAddr::new(dst, segment.dst_port),
                    point: (place.netns, place.ifindex),
                    seq: segment.seq,
                    flags: segment.flags,
                    payload,
                    missing: segment.payload_len - payload.len() as u32,
                };
                connections.segment(&segment, &mut |spoken| {
                    let bytes = match spoken {
                        Spoken::Dns(bytes) => bytes,
                        Spoken::Hello(hello) => {
                            stats.hellos += 1;
                            return out(Event::Hello(HelloSent {
                                hello,
                                time_ns,
                                from: segment.from,
                                to: segment.to,
                            }));
                        }
                    };
                    let Some(message) = Message::read(bytes) else {
                        stats.dns_malformed += 1;
                        return;
                    };
                    let sent = Sent {
                        message: &message,
                        bytes: bytes.len() as u32,
                        time_ns,
                        place,
                        tcp: true,
                        from: segment.from,
                        to: segment.to,
                    };
                    take(exchanges, stats, &sent, out);
                });
            }
            _ => {}
        }
    }

    fn datagram(
        &mut self,
        datagram: &Datagram,
        payload: &[u8],
        bytes: u32,
        out: &mut dyn FnMut(Event<'_>),
    ) {
        let ports = [datagram.from.port(), datagram.to.port()];
        let message = Message::read(payload).filter(|m| dns::is_message(m, ports));
        let Some(message) = message else {
            let expected = ports.into_iter().any(dns::is_port);
            self.stats.dns_malformed += u64::from(expected);
            return;
        };
        let sent = Sent {
            message: &message,
            bytes,
            time_ns: datagram.time_ns,
            place: datagram.place,
            tcp: false,
            from: datagram.from,
            to: datagram.to,
        };
        take(&mut self.exchanges, &mut self.stats, &sent, out);
    }

    /// Hands out what ends because nothing came in time; to be called now and then.
    pub fn expire(&mut self, now_ns: u64, out: &mut dyn FnMut(Event<'_>)) {
        self.exchanges
            .expire(now_ns, &mut |lookup| out(Event::Lookup(lookup)));
    }

    /// Hands out all that still waits.
    pub fn finish(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        self.exchanges
            .finish(&mut |lookup| out(Event::Lookup(lookup)));
    }
}

/// Where a datagram comes from and goes to.
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    place: Place,
    time_ns: u64,
}

fn take(
    exchanges: &mut Exchanges,
    stats: &mut Stats,
    sent: &Sent<'_>,
    out: &mut dyn FnMut(Event<'_>),
) {
    stats.dns_messages += 1;
    out(Event::DnsMessage(sent));
    exchanges.expire(sent.time_ns, &mut |lookup| out(Event::Lookup(lookup)));
    exchanges.take(sent, &mut |lookup| out(Event::Lookup(lookup)));
}

/// The payload of a UDP datagram as far as it was captured, and its length on the wire. What follows the datagram in its
/// frame (padding) is no part of it.
fn udp_payload<'a>(frame: &Frame<'a>, level: &Level) -> Option<(&'a [u8], u32)> {
    let start = level.payload as usize;
    let rest = frame.data.get(start..)?;
    let length = frame.data.get(start.checked_sub(4)?..start - 2)?;
    let length = u32::from(u16::from_be_bytes([length[0], length[1]]));
    // 0: a jumbogram (RFC 2675); less than the header: wrong.
    let length = match length {
        0 => frame.wire_len.saturating_sub(level.payload),
        length => length.checked_sub(8)?,
    };
    Some((&rest[..rest.len().min(length as usize)], length))
}

fn address(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}
