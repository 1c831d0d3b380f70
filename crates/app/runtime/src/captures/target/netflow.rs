//! Flows as NetFlow version 5. Each drain sends what it has of a flow, one record for each direction;
//! so nothing has to be kept, and what a collector adds up is exact.

use skua_flow::{Counters, FlowUpdate, Network};
use skua_process::host::unix_ns;
use skua_wire::netflow::v5::{HEADER_LEN, Header, RECORD_LEN, Record};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Arc, atomic::Ordering},
};

use skua_state::captures::Sent;

/// Records of a datagram: that is then at most 1,464 bytes long.
const MOST_RECORDS: usize = 30;
/// Sampling mode "one in so many", in the header's upper bits.
const ONE_IN_N: u16 = 1 << 14;
const MS: u64 = 1_000_000;

/// Makes records and numbers them.
struct Encoder {
    /// When the exporter began: uptimes count from here, ns since the Unix epoch.
    began_ns: u64,
    /// The drain before, likewise: what came since is sent.
    told_ns: u64,
    /// Records that were sent.
    sequence: u32,
    sampling: u16,
    records: Vec<Record>,
    /// Records of the datagram that was sent last.
    written: u64,
}

impl Encoder {
    fn new(now_ns: u64, sampling_rate: u32) -> Self {
        let rate = u16::try_from(sampling_rate).unwrap_or(u16::MAX);
        Self {
            began_ns: now_ns,
            told_ns: now_ns,
            sequence: 0,
            sampling: if rate > 1 {
                ONE_IN_N | rate & (ONE_IN_N - 1)
            } else {
                0
            },
            records: Vec::with_capacity(MOST_RECORDS),
            written: 0,
        }
    }

    /// ms since it began, modulo 2³².
    fn uptime(&self, time_ns: u64) -> u32 {
        (time_ns.saturating_sub(self.began_ns) / MS) as u32
    }

    /// What both directions of a flow have in common; none when there is no place for it.
    fn record(&self, update: &FlowUpdate) -> Option<Record> {
        let key = &update.key;
        // What is inside a tunnel counts with the tunnel's packets.
        if key.network() != Network::V4 || key.tunnel().is_some() {
            return None;
        }
        let last_ns = update.last_ns;
        Some(Record {
            input: u16::try_from(key.ifindex).unwrap_or(0),
            first: self.uptime(update.first_ns.max(self.told_ns).min(last_ns)),
            last: self.uptime(last_ns),
            protocol: key.proto,
            ..Record::default()
        })
    }

    /// One direction as records, each handed to `full` when the datagram is; several when the numbers
    /// are too great for one.
    fn push(&mut self, record: Record, mut sent: Counters, full: &mut dyn FnMut(&mut Self)) {
        const MOST: u64 = u32::MAX as u64;
        while sent.packets > 0 {
            let pieces = sent
                .packets
                .div_ceil(MOST)
                .max(sent.bytes.div_ceil(MOST))
                .max(1);
            let (packets, octets) = (sent.packets.div_ceil(pieces), sent.bytes / pieces);
            self.records.push(Record {
                packets: packets as u32,
                octets: octets.min(MOST) as u32,
                ..record
            });
            sent.packets -= packets;
            sent.bytes -= octets.min(MOST);
            if self.records.len() == MOST_RECORDS {
                full(self);
            }
        }
    }

    /// Adds the records of a flow; false when the protocol has no place for it.
    fn add_flow(&mut self, update: &FlowUpdate, full: &mut dyn FnMut(&mut Self)) -> bool {
        let Some(common) = self.record(update) else {
            return false;
        };
        let key = &update.key;
        let address = |of: &[u8; 16]| [of[12], of[13], of[14], of[15]];
        let port = |of: [u8; 2]| u16::from_be_bytes(of);
        let lo = (address(&key.lo), port(key.lo_port));
        let hi = (address(&key.hi), port(key.hi_port));
        let header = u64::from(key.ethernet()) * 14 + 4 * key.vlan_ids().count() as u64;
        let [lo_flags, hi_flags] = update.tcp.flags;
        for (from, to, sent, tcp_flags) in [
            (lo, hi, update.lo_sent, lo_flags),
            (hi, lo, update.hi_sent, hi_flags),
        ] {
            let record = Record {
                source: from.0,
                destination: to.0,
                // ICMP has its type and code in place of the destination's port only.
                source_port: if key.is_icmp() { 0 } else { from.1 },
                destination_port: to.1,
                tcp_flags,
                ..common
            };
            let headers = sent.packets.saturating_mul(header);
            let octets = Counters::new(sent.packets, sent.bytes.saturating_sub(headers));
            self.push(record, octets, full);
        }
        true
    }

    /// Writes what there is as a datagram of this time; how many records are in it.
    fn write(&mut self, now_ns: u64, out: &mut Vec<u8>) -> usize {
        out.clear();
        let header = Header {
            count: self.records.len() as u16,
            uptime_ms: self.uptime(now_ns),
            unix_secs: (now_ns / 1_000_000_000) as u32,
            unix_nsecs: (now_ns % 1_000_000_000) as u32,
            sequence: self.sequence,
            sampling: self.sampling,
            ..Header::default()
        };
        header.encode(out);
        for record in &self.records {
            record.encode(out);
        }
        self.sequence = self.sequence.wrapping_add(self.records.len() as u32);
        let count = self.records.len();
        self.records.clear();
        count
    }
}

/// Sends a capture's flows to a collector.
pub struct Exporter {
    socket: UdpSocket,
    encoder: Encoder,
    buffer: Vec<u8>,
    sent: Arc<Sent>,
}

impl Exporter {
    pub(crate) fn start(to: SocketAddr, sampling_rate: u32) -> io::Result<Self> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        // A drain does not wait for the network.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            encoder: Encoder::new(unix_ns(), sampling_rate),
            buffer: Vec::with_capacity(HEADER_LEN + MOST_RECORDS * RECORD_LEN),
            sent: Arc::new(Sent::new("not_ipv4")),
        })
    }

    pub(crate) fn sent(&self) -> Arc<Sent> {
        self.sent.clone()
    }

    pub(crate) fn send_flow(&mut self, update: &FlowUpdate) {
        let (socket, buffer, sent) = (&self.socket, &mut self.buffer, &self.sent);
        let fits = self
            .encoder
            .add_flow(update, &mut |encoder| send(encoder, socket, buffer, sent));
        if !fits {
            self.sent.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn end_drain(&mut self) {
        if !self.encoder.records.is_empty() {
            send(
                &mut self.encoder,
                &self.socket,
                &mut self.buffer,
                &self.sent,
            );
        }
        self.encoder.told_ns = unix_ns();
    }
}

fn send(encoder: &mut Encoder, socket: &UdpSocket, buffer: &mut Vec<u8>, sent: &Sent) {
    let before = encoder.written;
    let records = encoder.write(unix_ns(), buffer) as u64;
    let mut result = socket.send(buffer);
    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
        // That is what happened to the datagram before; this one was not sent yet.
        sent.failed.fetch_add(before, Ordering::Relaxed);
        result = socket.send(buffer);
    }
    match result {
        Ok(_) => {
            encoder.written = records;
            sent.datagrams.fetch_add(1, Ordering::Relaxed);
            sent.records.fetch_add(records, Ordering::Relaxed);
        }
        Err(error) => {
            tracing::debug!(%error, "NetFlow cannot be sent");
            encoder.written = 0;
            sent.failed.fetch_add(records, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::{FlowKey, TcpUpdate, key::KIND_ETHERNET};

    const BEGAN: u64 = 1_700_000_000_000_000_000;

    fn mapped(last: u8) -> [u8; 16] {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last]
    }

    fn update() -> FlowUpdate {
        FlowUpdate {
            key: FlowKey {
                lo: mapped(1),
                hi: mapped(2),
                lo_port: 41_000_u16.to_be_bytes(),
                hi_port: 80_u16.to_be_bytes(),
                ifindex: 3,
                vlan: [0x1064, 0],
                proto: 6,
                kind: KIND_ETHERNET | 1,
                ..FlowKey::default()
            },
            lo_sent: Counters::new(2, 2 * 78),
            hi_sent: Counters::new(1, 1_018),
            first_ns: BEGAN + 1_000 * MS,
            last_ns: BEGAN + 2_500 * MS,
            tcp: TcpUpdate {
                flags: [0x1b, 0x12],
                ..TcpUpdate::default()
            },
            ..FlowUpdate::default()
        }
    }

    fn never(_: &mut Encoder) {
        panic!("the datagram is not full");
    }

    #[test]
    fn both_directions_byte_for_byte() {
        let mut encoder = Encoder::new(BEGAN, 1);
        assert!(encoder.add_flow(&update(), &mut never));
        let mut out = Vec::new();
        assert_eq!(encoder.write(BEGAN + 3_000 * MS + 7, &mut out), 2);
        #[rustfmt::skip]
        let golden = [
            0, 5, 0, 2, 0, 0, 0x0b, 0xb8, 0x65, 0x53, 0xf1, 0x03, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0,
            192, 0, 2, 1, 192, 0, 2, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 2, 0, 0, 0, 120,
            0, 0, 3, 0xe8, 0, 0, 9, 0xc4, 0xa0, 0x28, 0, 80, 0, 0x1b, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            192, 0, 2, 2, 192, 0, 2, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0, 3, 0xe8,
            0, 0, 3, 0xe8, 0, 0, 9, 0xc4, 0, 80, 0xa0, 0x28, 0, 0x12, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(out, golden);
        // The next is numbered on, has what came after this, and one direction only.
        encoder.told_ns = BEGAN + 3_000 * MS;
        let more = FlowUpdate {
            lo_sent: Counters::default(),
            last_ns: BEGAN + 3_600 * MS,
            ..update()
        };
        assert!(encoder.add_flow(&more, &mut never));
        assert_eq!(encoder.records[0].first, 3_000);
        assert_eq!(encoder.write(BEGAN + 4_000 * MS, &mut out), 1);
        assert_eq!(out[16..20], [0, 0, 0, 2]);
    }

    #[test]
    fn great_numbers_are_several_records_and_full_datagrams_go() {
        let mut encoder = Encoder::new(BEGAN, 100);
        let great = FlowUpdate {
            lo_sent: Counters::new(3 << 32, u64::from(u32::MAX) * 40),
            hi_sent: Counters::default(),
            ..update()
        };
        let mut records = Vec::new();
        let mut datagrams = 0;
        encoder.add_flow(&great, &mut |encoder| {
            assert_eq!(encoder.records.len(), MOST_RECORDS);
            records.append(&mut encoder.records);
            datagrams += 1;
        });
        records.append(&mut encoder.records);
        let sum = |of: fn(&Record) -> u32| records.iter().map(|r| u64::from(of(r))).sum::<u64>();
        // 18 bytes of each frame are no IP.
        let octets = (u64::from(u32::MAX) * 40).saturating_sub(18 * (3 << 32));
        assert_eq!((sum(|r| r.packets), sum(|r| r.octets)), (3 << 32, octets));
        assert_eq!((datagrams, encoder.sampling), (0, 0x4000 | 100));
        for _ in 0..40 {
            encoder.add_flow(&update(), &mut |encoder| {
                datagrams += 1;
                encoder.records.clear();
            });
        }
        assert!(datagrams >= 2);
    }

    #[test]
    fn what_is_not_ipv4_has_no_place() {
        let mut encoder = Encoder::new(BEGAN, 1);
        let of = |kind: u8| {
            let mut update = update();
            update.key.kind = kind;
            update
        };
        assert!(!encoder.add_flow(&of(KIND_ETHERNET | 2), &mut never));
        assert!(!encoder.add_flow(&of(KIND_ETHERNET), &mut never));
        // Inside a tunnel.
        assert!(!encoder.add_flow(&of(1 << 3 | 1), &mut never));
        let mut echo = of(1);
        echo.key.proto = 1;
        echo.key.lo_port = [8, 0];
        echo.key.hi_port = [8, 0];
        assert!(encoder.add_flow(&echo, &mut never));
        let ports = (
            encoder.records[0].source_port,
            encoder.records[0].destination_port,
        );
        assert_eq!(ports, (0, 0x0800));
        // No Ethernet header, one tag.
        assert_eq!(encoder.records[0].octets, 2 * 74);
    }
}
