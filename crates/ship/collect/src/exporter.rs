//! From flow records to datagrams.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
};

use crate::{
    HashMap,
    names::{Numbered, numbered},
};

use skua_flow::{Counters, EndReason, FlowRecord};
use skua_wire::sflow::{
    AgentReport, Conversation, ConversationTcp, CountersHead, DataSource, FlowHead, Header,
    IpPacket, NAMES, NAMES_RECORD, Name, Port, SocketTcp, TcpInfo, Writer,
    own::{flags, service},
};

/// Class of data sources that are logical entities (sFlow version 5).
const LOGICAL: u32 = 3;
/// The most points that number their samples on their own; those beyond share a number.
const MOST_POINTS: usize = 4_096;
/// Bytes of a sample at most, without definitions of names: tag, expanded head, IPv6 record, timestamp,
/// and ours.
const SAMPLE: usize = 8 + 44 + 64 + 16 + 88 + 44 + 12 + 16 + 56;
/// Bytes of the sample of the other direction: tag, expanded head, IPv6 record, mark.
const REVERSE: usize = 8 + 44 + 64 + 12;
/// Least size of a datagram: the header, the report, a sample with two names, and the sample of the other
/// direction.
pub const LEAST: usize = 1_152;
const _: () = assert!(LEAST >= 28 + 84 + SAMPLE + NAMES_RECORD + REVERSE);
/// Interfaces of other network namespaces have numbers from here on: their own are those of others, too.
const OTHERS: u32 = 1 << 24;
/// Bytes of an Ethernet header.
const ETHERNET: u64 = 14;

/// Settings of an exporter.
#[derive(Clone, Copy, Debug)]
pub struct ExporterConfig {
    /// The agent's address.
    pub agent: IpAddr,
    /// Distinguishes several agents of one address.
    pub sub_agent: u32,
    /// Other in each run.
    pub instance: u64,
    /// When it began, ns since the Unix epoch.
    pub started_ns: u64,
    /// Bytes of a datagram at most, without headers of UDP and IP; at least [`LEAST`].
    pub datagram: usize,
    /// Sends the destination's packets in a standard sample of their own, too, for collectors that do not know
    /// [`Conversation`].
    pub both_directions: bool,
}

/// What happened to a datagram that was offered to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It will be sent.
    Queued,
    /// The queue is full.
    Refused,
}

/// Sums exported so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exported {
    /// Datagrams.
    pub datagrams: u64,
    /// Records in them.
    pub records: u64,
    /// Packets that records added, also those beyond the limit.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records beyond the limit.
    pub refused: u64,
    /// Records that are not of IP, and not exported.
    pub not_ip: u64,
}

/// Names and socket measurements that an agent adds to records.
pub trait Enrichment {
    /// The name of an owner by the number in records.
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>>;

    /// What a socket of the conversation has measured; of `hi` when it is the destination's, else of `lo`.
    fn tcp(&self, record: &FlowRecord) -> Option<Tcp>;
}

/// What a socket has measured.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    /// The socket's side and its round-trip time.
    pub socket: SocketTcp,
    /// All measurements, in the standard structure; sent with the TCP record.
    pub info: Option<TcpInfo>,
}

/// Adds nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoEnrichment;

impl Enrichment for NoEnrichment {
    fn name(&self, _: NonZeroU32) -> Option<Name<'_>> {
        None
    }

    fn tcp(&self, _: &FlowRecord) -> Option<Tcp> {
        None
    }
}

/// Context of the records of a drain.
#[derive(Clone, Copy)]
pub struct Drain<'a> {
    /// Names and sockets.
    pub enrichment: &'a dyn Enrichment,
    /// Whether the record may last have been sent to another collector.
    pub moved: &'a dyn Fn(&FlowRecord) -> bool,
    /// Records lost before they reached the exporter, since the start.
    pub lost: u64,
    /// Now, ns since the Unix epoch.
    pub now_ns: u64,
}

impl Drain<'_> {
    /// A drain without names and sockets.
    pub fn at(now_ns: u64) -> Self {
        Self {
            enrichment: &NoEnrichment,
            moved: &|_| false,
            lost: 0,
            now_ns,
        }
    }
}

/// Encodes flow records as the datagrams of one stream. It stores no record.
#[derive(Debug)]
pub struct Exporter {
    config: ExporterConfig,
    sequence: u32,
    points: HashMap<(u16, u32), Point>,
    exported: Exported,
    buffer: Vec<u8>,
    /// Owners whose names are in the current datagram.
    owners: Numbered<NonZeroU32>,
}

/// A point's samples.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// Its number among those that are no interfaces of the agent's own namespace.
    number: u32,
    sequence: u32,
    pool: u32,
    drops: u32,
}

impl Exporter {
    /// Begins a stream.
    pub fn new(config: ExporterConfig) -> Self {
        let config = ExporterConfig {
            datagram: config.datagram.max(LEAST),
            ..config
        };
        Self {
            config,
            sequence: 0,
            points: HashMap::default(),
            exported: Exported::default(),
            buffer: Vec::with_capacity(config.datagram),
            owners: Vec::new(),
        }
    }

    /// What the agent calls itself.
    pub fn agent(&self) -> IpAddr {
        self.config.agent
    }

    /// Sums exported so far.
    pub fn exported(&self) -> Exported {
        self.exported
    }

    /// Exports records that a drain has changed, in at least one datagram: without records it carries
    /// the sums so far, so that the collector notices a loss. Each datagram is passed to `offer`.
    pub fn export<'a>(
        &mut self,
        records: impl Iterator<Item = &'a FlowRecord>,
        drain: &Drain<'_>,
        mut offer: impl FnMut(&[u8]) -> Offered,
    ) {
        let now_ns = drain.now_ns;
        let mut not_ip = 0;
        let mut records = records
            .filter(|record| {
                let is_ip = addresses(record).is_some();
                not_ip += u64::from(!is_ip);
                is_ip
            })
            .peekable();
        let uptime_ms = now_ns.saturating_sub(self.config.started_ns) / 1_000_000;
        loop {
            self.buffer.clear();
            self.owners.clear();
            let header = Header {
                agent: self.config.agent,
                sub_agent: self.config.sub_agent,
                sequence: self.sequence.wrapping_add(1),
                // Wraps after 49.7 days, as in the standard.
                uptime_ms: uptime_ms as u32,
            };
            let mut writer = Writer::new(&mut self.buffer, &header);
            let report = AgentReport {
                flags: 0,
                now_ns,
                instance: self.config.instance,
                records: self.exported.records,
                packets: self.exported.packets,
                bytes: self.exported.bytes,
                lost: drain.lost + self.exported.refused,
                kept_ms: 0,
            };
            let head = CountersHead {
                sequence: header.sequence,
                source: DataSource {
                    class: LOGICAL,
                    index: 0,
                },
            };
            writer.counters_sample(&head, |out| out.agent(&report));
            let (mut count, mut added) = (0, Counters::default());
            while self.owners.len() + 2 <= NAMES.into()
                && let Some(record) = records.peek()
                && let names = record
                    .owners
                    .map(|owner| Some((owner?, drain.enrichment.name(owner?)?.bounded())))
                && writer.len() + SAMPLE + REVERSE + definitions(&self.owners, &names)
                    <= self.config.datagram
                && let Some(record) = records.next()
            {
                let point = point(&mut self.points, record);
                let context = Context {
                    record,
                    names,
                    tcp: drain.enrichment.tcp(record),
                    moved: (drain.moved)(record),
                    both_directions: self.config.both_directions,
                };
                write(&mut writer, &context, point, &mut self.owners);
                added += record.interval.lo_sent + record.interval.hi_sent;
                count += 1;
            }
            // The collector sees a refused datagram as lost in the network.
            self.exported.packets += added.packets;
            self.exported.bytes += added.bytes;
            match offer(&self.buffer) {
                Offered::Queued => {
                    self.sequence = header.sequence;
                    self.exported.datagrams += 1;
                    self.exported.records += count;
                }
                Offered::Refused => self.exported.refused += count,
            }
            if records.peek().is_none() {
                break;
            }
        }
        drop(records);
        self.exported.not_ip += not_ip;
    }
}

/// Addresses of `lo` and `hi`.
fn addresses(record: &FlowRecord) -> Option<[IpAddr; 2]> {
    let key = &record.key;
    Some([key.ip(&key.lo)?, key.ip(&key.hi)?])
}

fn point<'a>(points: &'a mut HashMap<(u16, u32), Point>, record: &FlowRecord) -> &'a mut Point {
    let mut key = (record.key.netns, record.key.ifindex);
    if points.len() >= MOST_POINTS && !points.contains_key(&key) {
        key = (u16::MAX, u32::MAX);
    }
    let number = points.len() as u32 + 1;
    points.entry(key).or_insert(Point {
        number,
        ..Point::default()
    })
}

/// A record with its names and socket.
struct Context<'a> {
    record: &'a FlowRecord,
    /// Of `lo` and `hi`.
    names: [Option<(NonZeroU32, Name<'a>)>; 2],
    tcp: Option<Tcp>,
    moved: bool,
    both_directions: bool,
}

/// Bytes of the definitions that names need.
fn definitions(
    owners: &Numbered<NonZeroU32>,
    names: &[Option<(NonZeroU32, Name<'_>)>; 2],
) -> usize {
    let new = names.iter().flatten().filter(|(o, _)| !owners.contains(o));
    new.map(|(_, name)| name.len()).sum()
}

/// Writes a record as a sample. For standard collectors it is a packet of mean size that represents all
/// packets of its sender since the last sample; none, if the record only reports the end.
fn write(
    writer: &mut Writer<'_>,
    context: &Context<'_>,
    point: &mut Point,
    owners: &mut Numbered<NonZeroU32>,
) {
    let record = context.record;
    let interval = &record.interval;
    // The side that spoke first; if it sent nothing in this interval, the other.
    let a_sent = match record.lo_first {
        true => interval.lo_sent,
        false => interval.hi_sent,
    };
    let source_lo = record.lo_first ^ (a_sent.packets == 0 && !all(interval).is_zero());
    let side = |[lo, hi]: [u64; 2]| if source_lo { [lo, hi] } else { [hi, lo] };
    let [[lo, hi], [new_lo, new_hi]] = [
        [record.lo_sent, record.hi_sent],
        [interval.lo_sent, interval.hi_sent],
    ];
    let [new_packets, new_bytes] = [
        side([new_lo.packets, new_hi.packets]),
        side([new_lo.bytes, new_hi.bytes]),
    ];
    let sampling = record.sampling.max(1);
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let head = point.head(
        record,
        source_lo,
        narrow(new_packets[0]).saturating_mul(sampling),
    );
    let ports = match record.key.has_ports() {
        true => {
            side([record.key.lo_port, record.key.hi_port].map(|p| u16::from_be_bytes(p).into()))
        }
        false => [0; 2],
    };
    let unknown = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let [lo_address, hi_address] = addresses(record).unwrap_or([unknown; 2]);
    let (source, destination) = match source_lo {
        true => (lo_address, hi_address),
        false => (hi_address, lo_address),
    };
    let [source_flags, destination_flags] = side(record.tcp.flags.map(u64::from));
    let link = if record.key.ethernet() { ETHERNET } else { 0 };
    // Without the link-layer header, like the IP record.
    let mean = |side: usize| {
        let mean = new_bytes[side].checked_div(new_packets[side]);
        narrow(mean.unwrap_or(0).saturating_sub(link))
    };
    let ip = IpPacket {
        length: mean(0),
        protocol: record.key.proto.into(),
        source,
        destination,
        source_port: narrow(ports[0]),
        destination_port: narrow(ports[1]),
        tcp_flags: narrow(source_flags),
        tos: 0,
    };
    let first = all(interval) == record.total();
    let opened = match record.tcp.lo_opened {
        None => 0,
        Some(lo) if lo == source_lo => flags::SOURCE_OPENED,
        Some(_) => flags::DESTINATION_OPENED,
    };
    let conversation = Conversation {
        service: record.service.map_or(0, |found| {
            let side = match found.lo == source_lo {
                true => service::SOURCE,
                false => service::DESTINATION,
            };
            side | (found.by as u8 + 1)
        }),
        end: match record.end {
            None => 0,
            Some(EndReason::Closed) => 1,
            Some(EndReason::Idle) => 2,
            Some(EndReason::Evicted) => 3,
            Some(EndReason::Shutdown) => 4,
        },
        flags: opened
            | if first { flags::FIRST } else { 0 }
            | if context.moved { flags::MOVED } else { 0 },
        sampling,
        id: record.id,
        tracking_id: record.key.tracking_id(),
        first_ns: record.first_ns,
        packets: side([lo.packets, hi.packets]),
        bytes: side([lo.bytes, hi.bytes]),
        new_packets: new_packets.map(narrow),
        new_bytes: new_bytes.map(narrow),
    };
    let pair = |values: [u32; 2]| side(values.map(u64::from)).map(narrow);
    let tcp = ConversationTcp {
        flags: [source_flags as u8, destination_flags as u8],
        counters: record.tcp.counters.map(pair),
        server_rtt_ns: narrow(record.tcp.server_rtt_ns),
        client_rtt_ns: narrow(record.tcp.client_rtt_ns),
    };
    // Without changes the TCP record is left out.
    let sends_tcp =
        record.key.proto == 6 && (first || conversation.end != 0 || !tcp.counters.is_zero());
    let [lo_name, hi_name] = context.names;
    let names = if source_lo {
        [lo_name, hi_name]
    } else {
        [hi_name, lo_name]
    };
    let mut defined = [(0, Name::default()); 2];
    let mut new = 0;
    let numbers = names.map(|name| {
        let Some((owner, name)) = name else { return 0 };
        let (number, first) = numbered(owners, owner);
        if let Some(index) = defined.get_mut(new).filter(|_| first) {
            *index = (number, name);
            new += 1;
        }
        number
    });
    writer.flow_sample(&head, |out| {
        out.ip(&ip);
        if numbers != [0; 2] {
            out.names(numbers, defined.get(..new).unwrap_or_default());
        }
        out.conversation(&conversation);
        if sends_tcp {
            out.conversation_tcp(&tcp);
        }
        if let Some(Tcp { socket, info }) = &context.tcp {
            // The socket is that of `lo` or `hi`, as records have them.
            out.socket_tcp(&SocketTcp {
                destination: socket.destination == source_lo,
                ..*socket
            });
            // Next to last, and with direction 0: tshark does not skip standard records that it does not know, and
            // parses this one's first two numbers as the head of another record.
            if let Some(info) = info.as_ref().filter(|_| sends_tcp) {
                out.tcp_info(&TcpInfo {
                    direction: 0,
                    ..*info
                });
            }
        }
        // Last, for the same reason.
        out.timestamp(record.last_ns);
    });
    if !context.both_directions || new_packets[1] == 0 {
        return;
    }
    let rate = narrow(new_packets[1]).saturating_mul(sampling);
    let head = point.head(record, !source_lo, rate);
    let ip = IpPacket {
        length: mean(1),
        source: ip.destination,
        destination: ip.source,
        source_port: ip.destination_port,
        destination_port: ip.source_port,
        tcp_flags: narrow(destination_flags),
        ..ip
    };
    writer.flow_sample(&head, |out| {
        out.ip(&ip);
        out.reverse();
    });
}

impl Point {
    /// The head of a sample that represents `rate` packets of `lo`, or of `hi`.
    fn head(&mut self, record: &FlowRecord, lo: bool, rate: u32) -> FlowHead {
        self.sequence = self.sequence.wrapping_add(1);
        self.pool = self.pool.wrapping_add(rate);
        let (source, interface) = match record.key.netns {
            0 => (
                DataSource {
                    class: 0,
                    index: record.key.ifindex,
                },
                record.key.ifindex,
            ),
            _ => (
                DataSource {
                    class: LOGICAL,
                    index: self.number,
                },
                OTHERS + self.number,
            ),
        };
        let (came_in, went_out) = record.directions.of(lo);
        let port = |known: bool| match known {
            true => Port::interface(interface),
            // The other side is another interface, or this host.
            false => Port::default(),
        };
        FlowHead {
            sequence: self.sequence,
            source,
            rate,
            pool: self.pool,
            drops: self.drops,
            // The interface that counted the flow is always known.
            input: port(came_in || !went_out),
            output: port(went_out),
        }
    }
}

fn all(interval: &skua_flow::Interval) -> Counters {
    interval.lo_sent + interval.hi_sent
}
