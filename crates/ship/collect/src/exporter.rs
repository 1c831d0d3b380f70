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
/// Bytes of a datagram at least: room for the head, the report, a sample with two names, and that of the other
/// direction.
pub const LEAST: usize = 1_152;
const _: () = assert!(LEAST >= 28 + 84 + SAMPLE + NAMES_RECORD + REVERSE);
/// Interfaces of other network namespaces have numbers from here on: their own are those of others, too.
const OTHERS: u32 = 1 << 24;
/// Bytes of an Ethernet header.
const ETHERNET: u64 = 14;

/// Who tells.
#[derive(Clone, Copy, Debug)]
pub struct ExporterConfig {
    /// The agent's address.
    pub agent: IpAddr,
    /// Tells several agents of one address apart.
    pub sub_agent: u32,
    /// Other in each run.
    pub instance: u64,
    /// When it began, ns since the Unix epoch.
    pub started_ns: u64,
    /// Bytes of a datagram at most, without headers of UDP and IP; at least [`LEAST`].
    pub datagram: usize,
    /// What the destination sent is told in a standard sample of its own, too, for collectors that do not know
    /// [`Conversation`].
    pub both_directions: bool,
}

/// What happened to a datagram that was offered to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It will be sent.
    Taken,
    /// There is no room for it.
    Refused,
}

/// What was told so far.
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
    /// Records that are not of IP, and not told of.
    pub not_ip: u64,
}

/// What an agent knows of conversations besides what it has counted.
pub trait Known {
    /// The name of an owner by the number in records.
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>>;

    /// What a socket of the conversation has measured; of `hi` when it is the destination's, else of `lo`.
    fn tcp(&self, record: &FlowRecord) -> Option<Tcp>;
}

/// What a socket has measured.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    /// Whose socket, and its round-trip time.
    pub socket: SocketTcp,
    /// All of it, in the standard structure: told with what the headers told of TCP.
    pub info: Option<TcpInfo>,
}

/// Knows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Known for Nothing {
    fn name(&self, _: NonZeroU32) -> Option<Name<'_>> {
        None
    }

    fn tcp(&self, _: &FlowRecord) -> Option<Tcp> {
        None
    }
}

/// What comes with the records of a drain.
#[derive(Clone, Copy)]
pub struct Drain<'a> {
    /// Names and sockets.
    pub known: &'a dyn Known,
    /// Whether another collector may have been told of a record the last time.
    pub moved: &'a dyn Fn(&FlowRecord) -> bool,
    /// Records that were lost before they came here, since the start.
    pub lost: u64,
    /// Now, ns since the Unix epoch.
    pub now_ns: u64,
}

impl Drain<'_> {
    /// Of nothing but records.
    pub fn at(now_ns: u64) -> Self {
        Self {
            known: &Nothing,
            moved: &|_| false,
            lost: 0,
            now_ns,
        }
    }
}

/// Puts flow records into the datagrams of one stream. It keeps nothing of a record.
#[derive(Debug)]
pub struct Exporter {
    config: ExporterConfig,
    sequence: u32,
    points: HashMap<(u16, u32), Point>,
    told: Exported,
    buffer: Vec<u8>,
    /// Owners whose names are in the datagram that is written.
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
            told: Exported::default(),
            buffer: Vec::with_capacity(config.datagram),
            owners: Vec::new(),
        }
    }

    /// What the agent calls itself.
    pub fn agent(&self) -> IpAddr {
        self.config.agent
    }

    /// What was told so far.
    pub fn exported(&self) -> Exported {
        self.told
    }

    /// Tells of records that a drain has changed, in at least one datagram: without records it says what
    /// was told before, so that a loss is known. Each datagram is handed to `offer`.
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
                let told = addresses(record).is_some();
                not_ip += u64::from(!told);
                told
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
                // Begins again after 49.7 days, as the standard says.
                uptime_ms: uptime_ms as u32,
            };
            let mut writer = Writer::new(&mut self.buffer, &header);
            let report = AgentReport {
                flags: 0,
                now_ns,
                instance: self.config.instance,
                records: self.told.records,
                packets: self.told.packets,
                bytes: self.told.bytes,
                lost: drain.lost + self.told.refused,
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
                    .map(|owner| Some((owner?, drain.known.name(owner?)?.bounded())))
                && writer.len() + SAMPLE + REVERSE + definitions(&self.owners, &names)
                    <= self.config.datagram
                && let Some(record) = records.next()
            {
                let point = point(&mut self.points, record);
                let telling = Telling {
                    record,
                    names,
                    tcp: drain.known.tcp(record),
                    moved: (drain.moved)(record),
                    both_directions: self.config.both_directions,
                };
                write(&mut writer, &telling, point, &mut self.owners);
                added += record.interval.lo_sent + record.interval.hi_sent;
                count += 1;
            }
            // What does not fit is missing to the collector as if it was lost on the way.
            self.told.packets += added.packets;
            self.told.bytes += added.bytes;
            match offer(&self.buffer) {
                Offered::Taken => {
                    self.sequence = header.sequence;
                    self.told.datagrams += 1;
                    self.told.records += count;
                }
                Offered::Refused => self.told.refused += count,
            }
            if records.peek().is_none() {
                break;
            }
        }
        drop(records);
        self.told.not_ip += not_ip;
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

/// A record with what is known of it.
struct Telling<'a> {
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

/// Writes a record as a sample. To others it is a packet of mean size that stands for all that its sender
/// sent since the sample before: for none, when the record says only that the conversation has ended.
fn write(
    writer: &mut Writer<'_>,
    telling: &Telling<'_>,
    point: &mut Point,
    owners: &mut Numbered<NonZeroU32>,
) {
    let record = telling.record;
    let interval = &record.interval;
    // Who speaks first; or who spoke at all.
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
    // Without the link header, as the IP record has it.
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
    let told = Conversation {
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
            | if telling.moved { flags::MOVED } else { 0 },
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
    // Most of the time nothing of it has changed.
    let tells_tcp = record.key.proto == 6 && (first || told.end != 0 || !tcp.counters.is_zero());
    let [lo_name, hi_name] = telling.names;
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
        if let Some(place) = defined.get_mut(new).filter(|_| first) {
            *place = (number, name);
            new += 1;
        }
        number
    });
    writer.flow_sample(&head, |out| {
        out.ip(&ip);
        if numbers != [0; 2] {
            out.names(numbers, defined.get(..new).unwrap_or_default());
        }
        out.conversation(&told);
        if tells_tcp {
            out.conversation_tcp(&tcp);
        }
        if let Some(Tcp { socket, info }) = &telling.tcp {
            // The socket is that of `lo` or `hi`, as records have them.
            out.socket_tcp(&SocketTcp {
                destination: socket.destination == source_lo,
                ..*socket
            });
            // Next to last, and with a direction of 0: tshark does not step over standard records that it does not
            // know, and takes this one's first two numbers for the beginning of another such.
            if let Some(info) = info.as_ref().filter(|_| tells_tcp) {
                out.tcp_info(&TcpInfo {
                    direction: 0,
                    ..*info
                });
            }
        }
        // Last, for the same reason.
        out.timestamp(record.last_ns);
    });
    if !telling.both_directions || new_packets[1] == 0 {
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
    /// The head of a sample that stands for `rate` packets of `lo`, or of `hi`.
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
            // Where it went to, or came from: another interface, or this host itself.
            false => Port::default(),
        };
        FlowHead {
            sequence: self.sequence,
            source,
            rate,
            pool: self.pool,
            drops: self.drops,
            // Where it was counted is known in any case.
            input: port(came_in || !went_out),
            output: port(went_out),
        }
    }
}

fn all(interval: &skua_flow::Interval) -> Counters {
    interval.lo_sent + interval.hi_sent
}
