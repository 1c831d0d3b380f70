//! Writing sFlow datagrams.

use std::net::IpAddr;

use super::{
    ADDRESS_V4, ADDRESS_V6, AgentReport, COUNTERS_SAMPLE, Conversation, ConversationTcp,
    CountersHead, DataSource, ETHERNET_COUNTERS, ETHERNET_FRAME, EXPANDED_COUNTERS_SAMPLE,
    EXPANDED_FLOW_SAMPLE, EXTENDED_ROUTER, EXTENDED_SWITCH, EthernetCounters, EthernetFrame,
    ExtendedRouter, ExtendedSwitch, FLOW_SAMPLE, FlowHead, Header, Hello, INTERFACE_COUNTERS, IPV4,
    IPV6, InterfaceCounters, IpPacket, Name, Names, Port, RAW_HEADER, RawHeader, SOCKET_IPV4,
    SOCKET_IPV6, Socket, SocketTcp, TCP_INFO, TIMESTAMP, TcpInfo, VERSION, own,
};

/// The greatest numbers that fit into compact samples.
const COMPACT_SOURCE: u32 = 0x00ff_ffff;
const COMPACT_PORT: u32 = 0x3fff_ffff;

fn put(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Overwrites a placeholder.
fn patch(out: &mut [u8], at: usize, value: u32) {
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

fn pad(out: &mut Vec<u8>, from: usize) {
    let padding = (out.len() - from).wrapping_neg() % 4;
    out.extend_from_slice(&[0; 4][..padding]);
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            put(out, ADDRESS_V4);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            put(out, ADDRESS_V6);
            out.extend_from_slice(&v6.octets());
        }
    }
}

/// Two addresses without their type: as IPv6 when one of them is.
fn put_pair(out: &mut Vec<u8>, first: IpAddr, second: IpAddr) {
    let v6 = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    match (first, second) {
        (IpAddr::V4(first), IpAddr::V4(second)) => {
            out.extend_from_slice(&first.octets());
            out.extend_from_slice(&second.octets());
        }
        (first, second) => {
            out.extend_from_slice(&v6(first).octets());
            out.extend_from_slice(&v6(second).octets());
        }
    }
}

/// Writes one structure with its tag and length.
fn framed<T>(out: &mut Vec<u8>, tag: u32, body: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    put(out, tag);
    let length = out.len();
    put(out, 0);
    let written = body(out);
    pad(out, length);
    let bytes = out.len() - length - 4;
    patch(out, length, u32::try_from(bytes).unwrap_or(u32::MAX));
    written
}

/// Writes a datagram into a buffer of the caller's, which keeps its memory from datagram to datagram.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count_at: usize,
    count: u32,
}

impl<'a> Writer<'a> {
    /// Begins a datagram at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, header: &Header) -> Self {
        let start = out.len();
        put(out, VERSION);
        put_address(out, header.agent);
        put(out, header.sub_agent);
        put(out, header.sequence);
        put(out, header.uptime_ms);
        let count_at = out.len();
        put(out, 0);
        Self {
            out,
            start,
            count_at,
            count: 0,
        }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether there is no sample yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn counted(&mut self) {
        self.count += 1;
        patch(self.out, self.count_at, self.count);
    }

    /// Adds a flow sample: compact when its numbers fit, else expanded.
    pub fn flow_sample(&mut self, head: &FlowHead, records: impl FnOnce(&mut RecordWriter<'_>)) {
        let compact = fits(head.source)
            && [head.input, head.output]
                .iter()
                .all(|port| port.format < 4 && port.value <= COMPACT_PORT);
        let tag = match compact {
            true => FLOW_SAMPLE,
            false => EXPANDED_FLOW_SAMPLE,
        };
        framed(self.out, tag, |out| {
            put(out, head.sequence);
            put_source(out, head.source, compact);
            put(out, head.rate);
            put(out, head.pool);
            put(out, head.drops);
            put_port(out, head.input, compact);
            put_port(out, head.output, compact);
            let mut writer = RecordWriter(Counted::new(out));
            records(&mut writer);
        });
        self.counted();
    }

    /// Adds a counters sample: compact when its numbers fit, else expanded.
    pub fn counters_sample(
        &mut self,
        head: &CountersHead,
        records: impl FnOnce(&mut CountersWriter<'_>),
    ) {
        let compact = fits(head.source);
        let tag = match compact {
            true => COUNTERS_SAMPLE,
            false => EXPANDED_COUNTERS_SAMPLE,
        };
        framed(self.out, tag, |out| {
            put(out, head.sequence);
            put_source(out, head.source, compact);
            let mut writer = CountersWriter(Counted::new(out));
            records(&mut writer);
        });
        self.counted();
    }
}

fn fits(source: DataSource) -> bool {
    source.class <= 0xff && source.index <= COMPACT_SOURCE
}

fn put_source(out: &mut Vec<u8>, source: DataSource, compact: bool) {
    if compact {
        put(out, source.class << 24 | source.index);
    } else {
        put(out, source.class);
        put(out, source.index);
    }
}

fn put_port(out: &mut Vec<u8>, port: Port, compact: bool) {
    if compact {
        put(out, port.format << 30 | port.value);
    } else {
        put(out, port.format);
        put(out, port.value);
    }
}

/// Records behind their number.
#[derive(Debug)]
struct Counted<'a> {
    out: &'a mut Vec<u8>,
    count_at: usize,
    count: u32,
}

impl<'a> Counted<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        let count_at = out.len();
        put(out, 0);
        Self {
            out,
            count_at,
            count: 0,
        }
    }

    fn add(&mut self, tag: u32, body: impl FnOnce(&mut Vec<u8>)) {
        framed(self.out, tag, body);
        self.count += 1;
        patch(self.out, self.count_at, self.count);
    }
}

/// Writes the records of a flow sample.
#[derive(Debug)]
pub struct RecordWriter<'a>(Counted<'a>);

impl RecordWriter<'_> {
    /// The packet's first bytes.
    pub fn raw_header(&mut self, raw: &RawHeader<'_>) {
        self.0.add(RAW_HEADER, |out| {
            put(out, raw.protocol);
            put(out, raw.frame_length);
            put(out, raw.stripped);
            put(out, u32::try_from(raw.header.len()).unwrap_or(u32::MAX));
            out.extend_from_slice(raw.header);
        });
    }

    /// The Ethernet header.
    pub fn ethernet(&mut self, frame: &EthernetFrame) {
        self.0.add(ETHERNET_FRAME, |out| {
            put(out, frame.length);
            for mac in [frame.source, frame.destination] {
                out.extend_from_slice(&mac);
                out.extend_from_slice(&[0; 2]);
            }
            put(out, frame.kind);
        });
    }

    /// The IP header; as IPv6 when one of the addresses is.
    pub fn ip(&mut self, ip: &IpPacket) {
        let tag = match (ip.source, ip.destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => IPV4,
            _ => IPV6,
        };
        self.0.add(tag, |out| {
            put(out, ip.length);
            put(out, ip.protocol);
            put_pair(out, ip.source, ip.destination);
            for value in [ip.source_port, ip.destination_port, ip.tcp_flags, ip.tos] {
                put(out, value);
            }
        });
    }

    /// A switch's data.
    pub fn switch(&mut self, switch: &ExtendedSwitch) {
        self.0.add(EXTENDED_SWITCH, |out| switch.encode(out));
    }

    /// A router's data.
    pub fn router(&mut self, router: &ExtendedRouter) {
        self.0.add(EXTENDED_ROUTER, |out| {
            put_address(out, router.next_hop);
            put(out, router.source_mask);
            put(out, router.destination_mask);
        });
    }

    /// When it was observed, ns since the Unix epoch.
    pub fn timestamp(&mut self, ns: u64) {
        self.0
            .add(TIMESTAMP, |out| out.extend_from_slice(&ns.to_be_bytes()));
    }

    /// The socket; as IPv6 when one of the addresses is.
    pub fn socket(&mut self, socket: &Socket) {
        let tag = match (socket.local, socket.remote) {
            (IpAddr::V4(_), IpAddr::V4(_)) => SOCKET_IPV4,
            _ => SOCKET_IPV6,
        };
        self.0.add(tag, |out| {
            put(out, socket.protocol);
            put_pair(out, socket.local, socket.remote);
            put(out, socket.local_port);
            put(out, socket.remote_port);
        });
    }

    /// TCP's state of the connection.
    pub fn tcp_info(&mut self, info: &TcpInfo) {
        self.0.add(TCP_INFO, |out| info.encode(out));
    }

    /// Of Skua: the conversation.
    pub fn conversation(&mut self, conversation: &Conversation) {
        self.0.add(own::FLOW, |out| conversation.encode(out));
    }

    /// Of Skua: the conversation's TCP headers.
    pub fn conversation_tcp(&mut self, tcp: &ConversationTcp) {
        self.0.add(own::FLOW_TCP, |out| tcp.encode(out));
    }

    /// Of Skua: the packets of this sample are in the conversation of the sample before, too.
    pub fn reverse(&mut self) {
        self.0.add(own::FLOW_REVERSE, |out| {
            out.extend_from_slice(&[own::OWN_VERSION, 0, 0, 0]);
        });
    }

    /// Of Skua: owners of both sides, and definitions of names not yet used in this datagram. Parts of
    /// names that are too long are cut.
    pub fn names(&mut self, sides: [u8; 2], defined: &[(u8, Name<'_>)]) {
        self.0
            .add(own::FLOW_NAMES, |out| Names::encode(out, sides, defined));
    }

    /// Of Skua: measurements of one side's socket.
    pub fn socket_tcp(&mut self, tcp: &SocketTcp) {
        self.0.add(own::FLOW_SOCKET, |out| tcp.encode(out));
    }

    /// Any other record, as bytes.
    pub fn other(&mut self, tag: u32, body: &[u8]) {
        self.0.add(tag, |out| out.extend_from_slice(body));
    }
}

/// Writes the records of a counters sample.
#[derive(Debug)]
pub struct CountersWriter<'a>(Counted<'a>);

impl CountersWriter<'_> {
    /// Counters of an interface.
    pub fn interface(&mut self, counters: &InterfaceCounters) {
        self.0.add(INTERFACE_COUNTERS, |out| counters.encode(out));
    }

    /// Counters of an Ethernet interface.
    pub fn ethernet(&mut self, counters: &EthernetCounters) {
        self.0.add(ETHERNET_COUNTERS, |out| counters.encode(out));
    }

    /// Of Skua: the agent's exported sums.
    pub fn agent(&mut self, report: &AgentReport) {
        self.0.add(own::AGENT, |out| report.encode(out));
    }

    /// Of Skua: whether a collector is reachable.
    pub fn hello(&mut self, hello: &Hello) {
        self.0.add(own::HELLO, |out| hello.encode(out));
    }

    /// Any other record, as bytes.
    pub fn other(&mut self, tag: u32, body: &[u8]) {
        self.0.add(tag, |out| out.extend_from_slice(body));
    }
}
