//! Supported information elements, and how they fill a record.
//!
//! Numbers are those of the registry "IP Flow Information Export (IPFIX) Entities" of IANA, whose
//! first 127 are NetFlow 9's field types (RFC 3954 section 8).

use super::{Clock, Family, Flow, clock, v5::mapped};

/// Enterprise number of reverse information elements (RFC 5103 section 6.1).
pub(super) const REVERSE_PEN: u32 = 29_305;

/// What a field of a record means to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Element {
    /// Stepped over.
    Skip,
    /// Bytes of IP packets, of a direction.
    Bytes(Direction),
    Packets(Direction),
    /// Used when there are no differences (deltas).
    TotalBytes(Direction),
    TotalPackets(Direction),
    /// Bytes of link-layer frames: preferred.
    LinkBytes(Direction),
    Protocol,
    TcpFlags(Direction),
    SourcePort,
    DestinationPort,
    SourceV4,
    DestinationV4,
    SourceV6,
    DestinationV6,
    Input,
    Output,
    Direction,
    IcmpType,
    IcmpCode,
    IcmpTypeCode,
    OuterVlan,
    InnerVlan,
    SourceMac,
    DestinationMac,
    EtherType,
    FirstUptime,
    LastUptime,
    FirstSeconds,
    LastSeconds(Direction),
    FirstMilliseconds,
    LastMilliseconds(Direction),
    FirstNtp,
    LastNtp(Direction),
    FirstDelta,
    LastDelta,
    DurationMilliseconds,
    Boot,
    EndReason,
    BiflowDirection,
    /// Of sampling, in options and in records.
    SamplerId,
    SamplingInterval,
    SamplingSpace,
    SamplingSize,
    SamplingPopulation,
    InterfaceName,
    /// Bytes of a packet from its Ethernet header on, or from its IP header on, and how long it is.
    FrameSection,
    PacketSection,
    FrameLength,
    PacketLength,
}

/// Direction of a count: from source to destination, or the reverse.
pub(super) type Direction = bool;
const FORWARD: Direction = false;
const REVERSE: Direction = true;

impl Element {
    /// The element of a field; fields of an invalid length are skipped.
    pub(super) fn of(id: u16, enterprise: Option<u32>, length: u16) -> Self {
        let element = match enterprise {
            None => Self::standard(id),
            Some(REVERSE_PEN) => Self::reverse(id),
            Some(_) => Self::Skip,
        };
        match (element, length) {
            (Self::Skip | Self::InterfaceName | Self::FrameSection | Self::PacketSection, _) => {
                element
            }
            (Self::SourceV4 | Self::DestinationV4, 4)
            | (Self::SourceV6 | Self::DestinationV6, 16)
            | (Self::SourceMac | Self::DestinationMac, 6) => element,
            (
                Self::SourceV4
                | Self::DestinationV4
                | Self::SourceV6
                | Self::DestinationV6
                | Self::SourceMac
                | Self::DestinationMac,
                _,
            ) => Self::Skip,
            (_, 1..=8) => element,
            _ => Self::Skip,
        }
    }

    fn standard(id: u16) -> Self {
        match id {
            1 => Self::Bytes(FORWARD),
            2 => Self::Packets(FORWARD),
            4 => Self::Protocol,
            6 => Self::TcpFlags(FORWARD),
            7 | 180 | 182 => Self::SourcePort,
            11 | 181 | 183 => Self::DestinationPort,
            8 => Self::SourceV4,
            12 => Self::DestinationV4,
            27 => Self::SourceV6,
            28 => Self::DestinationV6,
            10 => Self::Input,
            14 => Self::Output,
            61 => Self::Direction,
            176 | 178 => Self::IcmpType,
            177 | 179 => Self::IcmpCode,
            32 | 139 => Self::IcmpTypeCode,
            58 | 243 => Self::OuterVlan,
            245 => Self::InnerVlan,
            56 => Self::SourceMac,
            80 => Self::DestinationMac,
            256 => Self::EtherType,
            22 => Self::FirstUptime,
            21 => Self::LastUptime,
            150 => Self::FirstSeconds,
            151 => Self::LastSeconds(FORWARD),
            152 => Self::FirstMilliseconds,
            153 => Self::LastMilliseconds(FORWARD),
            154 | 156 => Self::FirstNtp,
            155 | 157 => Self::LastNtp(FORWARD),
            158 => Self::FirstDelta,
            159 => Self::LastDelta,
            161 => Self::DurationMilliseconds,
            160 => Self::Boot,
            136 => Self::EndReason,
            239 => Self::BiflowDirection,
            // Firewalls count both directions of a connection.
            231 => Self::Bytes(FORWARD),
            232 => Self::Bytes(REVERSE),
            298 => Self::Packets(FORWARD),
            299 => Self::Packets(REVERSE),
            85 => Self::TotalBytes(FORWARD),
            86 => Self::TotalPackets(FORWARD),
            352 => Self::LinkBytes(FORWARD),
            48 | 302 => Self::SamplerId,
            34 | 50 | 305 => Self::SamplingInterval,
            306 => Self::SamplingSpace,
            309 => Self::SamplingSize,
            310 => Self::SamplingPopulation,
            82 => Self::InterfaceName,
            104 | 315 => Self::FrameSection,
            313 => Self::PacketSection,
            312 => Self::FrameLength,
            224 => Self::PacketLength,
            _ => Self::Skip,
        }
    }

    fn reverse(id: u16) -> Self {
        match id {
            1 => Self::Bytes(REVERSE),
            2 => Self::Packets(REVERSE),
            85 => Self::TotalBytes(REVERSE),
            86 => Self::TotalPackets(REVERSE),
            352 => Self::LinkBytes(REVERSE),
            6 => Self::TcpFlags(REVERSE),
            // Time of the last packet, in either direction.
            151 => Self::LastSeconds(REVERSE),
            153 => Self::LastMilliseconds(REVERSE),
            155 | 157 => Self::LastNtp(REVERSE),
            _ => Self::Skip,
        }
    }

    /// The meaning of a scope field of NetFlow 9 (RFC 3954 section 6.1).
    pub(super) fn of_v9_scope(kind: u16, length: u16) -> Self {
        match (kind, length) {
            (2, 1..=8) => Self::Input,
            _ => Self::Skip,
        }
    }
}

/// A number of up to eight bytes (RFC 7011 section 6.2 allows shorter ones than the element's type).
#[inline]
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn octets<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

/// A record that is being decoded, with fields that others depend on.
#[derive(Clone, Copy, Default)]
pub(super) struct Draft {
    pub(super) flow: Flow,
    first: Option<u64>,
    last: Option<u64>,
    first_uptime: Option<u32>,
    last_uptime: Option<u32>,
    duration_ms: Option<u64>,
    boot_ms: Option<u64>,
    link_bytes: Option<[u64; 2]>,
    total_bytes: Option<[u64; 2]>,
    total_packets: Option<[u64; 2]>,
    has_bytes: bool,
    has_packets: bool,
    pub(super) sampler: Option<u64>,
    pub(super) sampling: Sampling,
    /// Bytes of the Ethernet frame and of the IP packet of a packet section.
    pub(super) frame_length: u32,
    pub(super) packet_length: u32,
}

/// An exporter's sampling settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sampling {
    /// One of so many, or so many consecutive ones.
    pub(super) interval: u64,
    /// So many are then left out.
    pub(super) space: u64,
    pub(super) size: u64,
    pub(super) population: u64,
}

impl Sampling {
    /// One of so many, none if unknown.
    pub(super) fn rate(&self) -> Option<u32> {
        let rate = match *self {
            Self {
                size: size @ 1..,
                population: population @ 1..,
                ..
            } => population / size,
            Self {
                interval: interval @ 1..,
                space: space @ 1..,
                ..
            } => interval.saturating_add(space) / interval,
            Self { interval, .. } => interval,
        };
        (rate > 0).then(|| u32::try_from(rate).unwrap_or(u32::MAX))
    }

    /// Sets a field of sampling; false for other fields.
    #[inline]
    pub(super) fn set(&mut self, element: Element, value: u64) -> bool {
        match element {
            Element::SamplingInterval => self.interval = value,
            Element::SamplingSpace => self.space = value,
            Element::SamplingSize => self.size = value,
            Element::SamplingPopulation => self.population = value,
            _ => return false,
        }
        true
    }
}

fn add(pair: &mut Option<[u64; 2]>, way: Direction, value: u64) {
    pair.get_or_insert_default()[usize::from(way)] = value;
}

impl Draft {
    /// Sets a field.
    #[inline]
    pub(super) fn set(&mut self, element: Element, bytes: &[u8], clock: &Clock) {
        let flow = &mut self.flow;
        let value = || number(bytes);
        match element {
            Element::Skip
            | Element::InterfaceName
            | Element::FrameSection
            | Element::PacketSection => {}
            Element::FrameLength => self.frame_length = value() as u32,
            Element::PacketLength => self.packet_length = value() as u32,
            Element::Bytes(way) => {
                flow.bytes[usize::from(way)] = value();
                self.has_bytes = true;
            }
            Element::Packets(way) => {
                flow.packets[usize::from(way)] = value();
                self.has_packets = true;
            }
            Element::TotalBytes(way) => add(&mut self.total_bytes, way, value()),
            Element::TotalPackets(way) => add(&mut self.total_packets, way, value()),
            Element::LinkBytes(way) => add(&mut self.link_bytes, way, value()),
            Element::Protocol => flow.protocol = value() as u8,
            // Sixteen bits in IPFIX: the lower eight are the known flags.
            Element::TcpFlags(way) => flow.tcp_flags[usize::from(way)] = value() as u8,
            Element::SourcePort => flow.source_port = value() as u16,
            Element::DestinationPort => flow.destination_port = value() as u16,
            Element::SourceV4 => self.v4(bytes, false),
            Element::DestinationV4 => self.v4(bytes, true),
            Element::SourceV6 => self.v6(bytes, false),
            Element::DestinationV6 => self.v6(bytes, true),
            Element::Input => flow.input = value() as u32,
            Element::Output => flow.output = value() as u32,
            Element::Direction => flow.egress = value() == 1,
            Element::IcmpType => {
                flow.icmp = Some(flow.icmp.unwrap_or(0) & 0xff | (value() as u16 & 0xff) << 8);
            }
            Element::IcmpCode => {
                flow.icmp = Some(flow.icmp.unwrap_or(0) & 0xff00 | value() as u16 & 0xff);
            }
            Element::IcmpTypeCode => flow.icmp = Some(value() as u16),
            Element::OuterVlan => flow.vlan[0] = vlan(value()).or(flow.vlan[0]),
            Element::InnerVlan => flow.vlan[1] = vlan(value()).or(flow.vlan[1]),
            Element::SourceMac => flow.mac.get_or_insert_default()[0] = octets(bytes),
            Element::DestinationMac => flow.mac.get_or_insert_default()[1] = octets(bytes),
            Element::EtherType => flow.ethertype = value() as u16,
            Element::FirstUptime => self.first_uptime = Some(value() as u32),
            Element::LastUptime => self.last_uptime = Some(value() as u32),
            Element::FirstSeconds => self.first = Some(clock::seconds(value())),
            Element::FirstMilliseconds => self.first = Some(clock::milliseconds(value())),
            Element::FirstNtp => self.first = Some(clock::ntp(value())),
            Element::FirstDelta => self.first = Some(clock.before_export(value())),
            Element::LastSeconds(_) => self.last = self.last.max(Some(clock::seconds(value()))),
            Element::LastMilliseconds(_) => {
                self.last = self.last.max(Some(clock::milliseconds(value())));
            }
            Element::LastNtp(_) => self.last = self.last.max(Some(clock::ntp(value()))),
            Element::LastDelta => self.last = self.last.max(Some(clock.before_export(value()))),
            Element::DurationMilliseconds => self.duration_ms = Some(value()),
            Element::Boot => self.boot_ms = Some(value()),
            Element::EndReason => flow.end_reason = value() as u8,
            Element::BiflowDirection => {
                flow.source_opened = match value() {
                    1 => Some(true),
                    2 => Some(false),
                    _ => None,
                };
            }
            Element::SamplerId => self.sampler = Some(value()),
            Element::SamplingInterval
            | Element::SamplingSpace
            | Element::SamplingSize
            | Element::SamplingPopulation => {
                self.sampling.set(element, value());
            }
        }
    }

    /// Templates may have addresses of both families, those of the other being zero.
    fn v4(&mut self, bytes: &[u8], destination: bool) {
        let address = octets::<4>(bytes);
        if self.flow.family == Family::V6 && address == [0; 4] {
            return;
        }
        self.address(Family::V4, mapped(address), destination);
    }

    fn v6(&mut self, bytes: &[u8], destination: bool) {
        let address = octets::<16>(bytes);
        if self.flow.family == Family::V4 && address == [0; 16] {
            return;
        }
        self.address(Family::V6, address, destination);
    }

    fn address(&mut self, family: Family, address: [u8; 16], destination: bool) {
        self.flow.family = family;
        match destination {
            false => self.flow.source = address,
            true => self.flow.destination = address,
        }
    }

    /// The flow, when all fields are set. `boot_ms` is when the exporter started, ms since the Unix
    /// epoch, if its options had that.
    pub(super) fn finish(mut self, clock: &Clock, boot_ms: Option<u64>) -> Flow {
        let boot_ms = self.boot_ms.or(boot_ms);
        let at = |uptime: Option<u32>| uptime.map(|ms| clock.at_uptime(ms, boot_ms));
        let flow = &mut self.flow;
        let duration = self.duration_ms.map(clock::milliseconds);
        let last = self.last.or_else(|| at(self.last_uptime));
        let first = self.first.or_else(|| at(self.first_uptime));
        flow.last_ns = match (last, first, duration) {
            (Some(last), _, _) => last,
            (None, Some(first), Some(duration)) => first.saturating_add(duration),
            _ => clock.export_ns,
        };
        flow.first_ns = match (first, duration) {
            (Some(first), _) => first,
            (None, Some(duration)) => flow.last_ns.saturating_sub(duration),
            _ => flow.last_ns,
        };
        // Of a clock that was set between the two.
        flow.first_ns = flow.first_ns.min(flow.last_ns);
        if let Some(link) = self.link_bytes {
            flow.bytes = link;
            flow.link_bytes = true;
        } else if let (false, Some(total)) = (self.has_bytes, self.total_bytes) {
            flow.bytes = total;
        }
        if let (false, Some(total)) = (self.has_packets, self.total_packets) {
            flow.packets = total;
        }
        let icmp = matches!(
            (flow.family, flow.protocol),
            (Family::V4, 1) | (Family::V6, 58)
        );
        if icmp {
            // Exporters without a field for it put it into the destination port, as in version 5.
            flow.icmp = flow.icmp.or(Some(flow.destination_port));
        } else {
            flow.icmp = None;
        }
        self.flow
    }
}

/// A VLAN identifier; 0 is none.
fn vlan(value: u64) -> Option<u16> {
    let vid = value as u16 & 0x0fff;
    (vid != 0).then_some(vid)
}
