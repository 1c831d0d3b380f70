//! Captures: packets with times and interfaces, and the two file formats.
//!
//! pcap is draft-ietf-opsawg-pcap, pcapng draft-ietf-opsawg-pcapng.

/// Time of the first packet of every capture: 2026-11-21T10:00:00Z in ns.
pub const EPOCH_NS: u64 = 1_795_255_200_000_000_000;

/// Link types that the corpus uses, as the pcap registry numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// IPv4 or IPv6 without link header.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture.
    pub const LINUX_SLL: Self = Self(113);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);
    /// IEEE 802.11.
    pub const IEEE_802_11: Self = Self(105);
    /// IEEE 802.11 behind a radiotap header.
    pub const RADIOTAP: Self = Self(127);
    /// Linux NFLOG.
    pub const NFLOG: Self = Self(239);
    /// IPv4 without link header.
    pub const IPV4: Self = Self(228);
    /// IPv6 without link header.
    pub const IPV6: Self = Self(229);
}

/// Byte order of a file or section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}

/// File format of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// pcap with times in ns.
    PcapNanoseconds(ByteOrder),
    /// pcap with times in µs.
    PcapMicroseconds(ByteOrder),
    /// pcap with the longer record headers of Kuznetzov's libpcap (magic number 0xa1b2cd34).
    PcapModified(ByteOrder),
    /// pcapng.
    PcapNg,
}

/// An interface of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name, written in pcapng only.
    pub name: Option<String>,
    /// Link type.
    pub link_type: LinkType,
    /// Snap length, 0 for none.
    pub snap_length: u32,
    /// `if_tsresol`: a power of ten, or of two with the highest bit; `None` leaves the option out
    /// (µs).
    pub resolution: Option<u8>,
    /// `if_tsoffset` in seconds.
    pub offset_seconds: Option<i64>,
    /// Bytes of frame check sequence at the end of each packet.
    pub fcs_bytes: u8,
}

impl Interface {
    /// Interface with times in ns.
    pub fn new(name: Option<&str>, link_type: LinkType) -> Self {
        Self {
            name: name.map(str::to_owned),
            link_type,
            snap_length: 0,
            resolution: Some(9),
            offset_seconds: None,
            fcs_bytes: 0,
        }
    }

    /// The time in ticks of this interface's clock.
    fn ticks(&self, ns: u64) -> u64 {
        let offset = self.offset_seconds.unwrap_or(0);
        let ns = i128::from(ns) - i128::from(offset) * 1_000_000_000;
        let ns = u128::try_from(ns).unwrap_or(0);
        let ticks = match self.resolution.unwrap_or(6) {
            // Rounded up, so that ticks to ns (rounded down) and back are the same ticks.
            r if r & 0x80 != 0 => (ns << (r & 0x7f)).div_ceil(1_000_000_000),
            r if r <= 9 => ns / 10u128.pow(9 - u32::from(r)),
            r => ns * 10u128.pow(u32::from(r) - 9),
        };
        ticks as u64
    }

    /// The time in ns that the ticks stand for, as exactly as ns can say it (rounded down).
    fn rounded_ns(&self, ns: u64) -> u64 {
        let ticks = u128::from(self.ticks(ns));
        let ns = match self.resolution.unwrap_or(6) {
            r if r & 0x80 != 0 => (ticks * 1_000_000_000) >> (r & 0x7f),
            r if r <= 9 => ticks * 10u128.pow(9 - u32::from(r)),
            r => ticks / 10u128.pow(u32::from(r) - 9),
        };
        let ns = ns as i128 + i128::from(self.offset_seconds.unwrap_or(0)) * 1_000_000_000;
        u64::try_from(ns).unwrap_or(0)
    }
}

/// pcapng block that holds a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Block {
    /// Enhanced packet block.
    #[default]
    Enhanced,
    /// Simple packet block: first interface, no time.
    Simple,
    /// The obsolete packet block.
    Obsolete,
}

/// A captured packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time in ns since the Unix epoch, 0 in a simple packet block.
    pub timestamp_ns: u64,
    /// Index in [`Capture::interfaces`].
    pub interface: usize,
    /// Bytes captured.
    pub data: Vec<u8>,
    /// Length on the wire.
    pub wire_length: u32,
    /// Block in pcapng.
    pub block: Block,
}

/// A section of a pcapng file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Byte order of its blocks.
    pub order: ByteOrder,
    /// Index of its first record.
    pub first_record: usize,
    /// Index of its first interface; the section has those up to the next section's first.
    pub first_interface: usize,
}

/// A block written before a record that readers must step over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extra {
    /// Index of the record that follows.
    pub before: usize,
    /// Block type.
    pub kind: u32,
    /// Body without the two lengths; a multiple of four bytes.
    pub body: Vec<u8>,
}

/// A named list of captured packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// Name, a file stem.
    pub name: &'static str,
    /// File format that suits it.
    pub format: Format,
    /// Interfaces of all sections.
    pub interfaces: Vec<Interface>,
    /// Sections of the pcapng file; one when there is nothing special.
    pub sections: Vec<Section>,
    /// Packets in order of the file.
    pub records: Vec<Record>,
    /// Blocks between them.
    pub extras: Vec<Extra>,
    /// Whether enhanced packet blocks carry options (flags and a comment).
    pub options: bool,
}

impl Capture {
    /// An empty Ethernet capture in little-endian ns pcap.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            format: Format::PcapNanoseconds(ByteOrder::Little),
            interfaces: vec![Interface::new(None, LinkType::ETHERNET)],
            sections: vec![Section {
                order: ByteOrder::Little,
                first_record: 0,
                first_interface: 0,
            }],
            records: Vec::new(),
            extras: Vec::new(),
            options: false,
        }
    }

    /// File name: the capture's name with `.pcap` or `.pcapng`.
    pub fn file_name(&self) -> String {
        match self.format {
            Format::PcapNg => format!("{}.pcapng", self.name),
            _ => format!("{}.pcap", self.name),
        }
    }

    /// Rounds every time to the file format's resolution, so that a reader gives back exactly these
    /// records.
    pub fn settle_times(&mut self) {
        for record in &mut self.records {
            record.timestamp_ns = match (self.format, record.block) {
                (Format::PcapNanoseconds(_), _) => record.timestamp_ns,
                (Format::PcapMicroseconds(_) | Format::PcapModified(_), _) => {
                    record.timestamp_ns / 1000 * 1000
                }
                (Format::PcapNg, Block::Simple) => 0,
                (Format::PcapNg, _) => {
                    self.interfaces[record.interface].rounded_ns(record.timestamp_ns)
                }
            };
        }
    }

    /// The capture as a file in its own format.
    pub fn bytes(&self) -> Vec<u8> {
        match self.format {
            Format::PcapNanoseconds(order) => self.pcap(order, 0xa1b2_3c4d),
            Format::PcapMicroseconds(order) => self.pcap(order, 0xa1b2_c3d4),
            Format::PcapModified(order) => self.pcap(order, 0xa1b2_cd34),
            Format::PcapNg => self.pcapng(),
        }
    }

    fn pcap(&self, order: ByteOrder, magic: u32) -> Vec<u8> {
        let interface = &self.interfaces[0];
        let snap_length = match interface.snap_length {
            0 => 262_144,
            n => n,
        };
        let fcs = match interface.fcs_bytes {
            0 => 0,
            n => 1 << 26 | u32::from(n / 2) << 28,
        };
        let mut out = Vec::new();
        out.extend_from_slice(&order.u32(magic));
        out.extend_from_slice(&order.u16(2));
        out.extend_from_slice(&order.u16(4));
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&order.u32(snap_length));
        out.extend_from_slice(&order.u32(u32::from(interface.link_type.0) | fcs));
        let ns_per_tick = if magic == 0xa1b2_3c4d { 1 } else { 1000 };
        for record in &self.records {
            let (seconds, ns) = (
                record.timestamp_ns / 1_000_000_000,
                record.timestamp_ns % 1_000_000_000,
            );
            for word in [
                seconds as u32,
                (ns / ns_per_tick) as u32,
                record.data.len() as u32,
                record.wire_length,
            ] {
                out.extend_from_slice(&order.u32(word));
            }
            if magic == 0xa1b2_cd34 {
                // Interface index, protocol, packet type, padding.
                out.extend_from_slice(&[0; 8]);
            }
            out.extend_from_slice(&record.data);
        }
        out
    }

    fn pcapng(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, section) in self.sections.iter().enumerate() {
            let next = self.sections.get(i + 1);
            let last_interface = next.map_or(self.interfaces.len(), |s| s.first_interface);
            let last_record = next.map_or(self.records.len(), |s| s.first_record);
            let order = section.order;
            let mut body = order.u32(0x1a2b_3c4d).to_vec();
            body.extend_from_slice(&order.u16(1));
            body.extend_from_slice(&order.u16(0));
            body.extend_from_slice(&order.u64(u64::MAX));
            option(&mut body, order, 4, b"skua-testkit");
            end_of_options(&mut body);
            block(&mut out, order, 0x0a0d_0d0a, &body);
            for interface in &self.interfaces[section.first_interface..last_interface] {
                block(&mut out, order, 1, &interface_body(interface, order));
            }
            for index in section.first_record..last_record {
                for extra in self.extras.iter().filter(|extra| extra.before == index) {
                    block(&mut out, order, extra.kind, &extra.body);
                }
                self.packet_block(&mut out, section, &self.records[index]);
            }
        }
        let order = self.sections.last().map_or(ByteOrder::Little, |s| s.order);
        for extra in &self.extras {
            if extra.before >= self.records.len() {
                block(&mut out, order, extra.kind, &extra.body);
            }
        }
        out
    }

    fn packet_block(&self, out: &mut Vec<u8>, section: &Section, record: &Record) {
        let order = section.order;
        let number = (record.interface - section.first_interface) as u32;
        let ticks = self.interfaces[record.interface].ticks(record.timestamp_ns);
        let mut body = Vec::new();
        let kind = match record.block {
            Block::Enhanced => {
                body.extend_from_slice(&order.u32(number));
                6
            }
            Block::Obsolete => {
                body.extend_from_slice(&order.u16(number as u16));
                body.extend_from_slice(&order.u16(0xffff));
                2
            }
            Block::Simple => 3,
        };
        if record.block != Block::Simple {
            body.extend_from_slice(&order.u32((ticks >> 32) as u32));
            body.extend_from_slice(&order.u32(ticks as u32));
            body.extend_from_slice(&order.u32(record.data.len() as u32));
        }
        body.extend_from_slice(&order.u32(record.wire_length));
        body.extend_from_slice(&record.data);
        pad(&mut body);
        if self.options && record.block == Block::Enhanced {
            option(&mut body, order, 2, &order.u32(1));
            option(&mut body, order, 1, b"a comment");
            end_of_options(&mut body);
        }
        block(out, order, kind, &body);
    }
}

fn interface_body(interface: &Interface, order: ByteOrder) -> Vec<u8> {
    let mut body = order.u16(interface.link_type.0).to_vec();
    body.extend_from_slice(&[0; 2]);
    body.extend_from_slice(&order.u32(interface.snap_length));
    if let Some(name) = &interface.name {
        option(&mut body, order, 2, name.as_bytes());
    }
    if let Some(resolution) = interface.resolution {
        option(&mut body, order, 9, &[resolution]);
    }
    if interface.fcs_bytes > 0 {
        option(&mut body, order, 13, &[interface.fcs_bytes]);
    }
    if let Some(offset) = interface.offset_seconds {
        option(&mut body, order, 14, &order.u64(offset as u64));
    }
    end_of_options(&mut body);
    body
}

fn option(body: &mut Vec<u8>, order: ByteOrder, code: u16, value: &[u8]) {
    body.extend_from_slice(&order.u16(code));
    body.extend_from_slice(&order.u16(value.len() as u16));
    body.extend_from_slice(value);
    pad(body);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend_from_slice(&[0; 4]);
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Appends a pcapng block: type, length, body, length again.
pub fn block(out: &mut Vec<u8>, order: ByteOrder, kind: u32, body: &[u8]) {
    let length = order.u32(12 + body.len() as u32);
    out.extend_from_slice(&order.u32(kind));
    out.extend_from_slice(&length);
    out.extend_from_slice(body);
    out.extend_from_slice(&length);
}
