//! A pcap expression on records: whether a packet of the conversation would match.
//!
//! For each direction a packet is made of what the record knows (addresses, ports, VLANs, ICMP type,
//! TCP flags seen), and libpcap's verdict on it taken. What a record does not know, like payload or
//! MAC addresses of IP conversations, is zero.

use anyhow::bail;
use skua_filter::{Filter, LinkType};
use skua_flow::{FlowKey, FlowRecord, Network};

/// Longest packet that is made: Ethernet, two VLAN tags, IPv6, TCP.
const LONGEST: usize = 14 + 8 + 40 + 20;

/// Loads the packet's length (`BPF_LD | BPF_LEN` of libpcap's `pcap/bpf.h`): `len`, `less`,
/// `greater`. To index register X it is not loaded by any expression.
const LOAD_LENGTH: u16 = 0x80;

/// A compiled expression.
pub struct RecordFilter {
    ethernet: Filter,
    /// Expressions about Ethernet match no conversation without it.
    ip: Option<Filter>,
}

struct Packet {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Packet {
    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(part);
            self.length = end;
        }
    }
}

impl RecordFilter {
    /// Compiles an expression.
    pub fn compile(expression: &str) -> anyhow::Result<Self> {
        let ethernet = Filter::compile(expression, LinkType::Ethernet)?;
        if ethernet
            .instructions()
            .iter()
            .any(|i| i.code == LOAD_LENGTH)
        {
            bail!(
                "filter '{expression}': conversations have no packet length, so `len`, `less` and \
                 `greater` only work while capturing: `skua run --filter`, or `skua flows` with \
                 --interface or --duration"
            );
        }
        Ok(Self {
            ethernet,
            ip: Filter::compile(expression, LinkType::RawIp).ok(),
        })
    }

    /// Whether a packet of the conversation would match.
    pub fn matches(&self, record: &FlowRecord) -> bool {
        self.matches_key(&record.key, record.tcp.flags)
    }

    /// Whether a packet with this key would match; with the TCP flags seen of `lo` and `hi`.
    pub fn matches_key(&self, key: &FlowKey, flags: [u8; 2]) -> bool {
        [true, false].into_iter().any(|from_lo| {
            let packet = make(key, flags, from_lo);
            let bytes = &packet.bytes[..packet.length];
            if key.ethernet() {
                self.ethernet.matches(bytes)
            } else {
                self.ip.as_ref().is_some_and(|filter| filter.matches(bytes))
            }
        })
    }
}

fn make(key: &FlowKey, flags: [u8; 2], from_lo: bool) -> Packet {
    let mut packet = Packet {
        bytes: [0; LONGEST],
        length: 0,
    };
    let (src, dst) = if from_lo {
        (&key.lo, &key.hi)
    } else {
        (&key.hi, &key.lo)
    };
    let (src_port, dst_port) = if from_lo {
        (key.lo_port, key.hi_port)
    } else {
        (key.hi_port, key.lo_port)
    };
    let ethertype: u16 = match key.network() {
        Network::V4 => 0x0800,
        Network::V6 => 0x86dd,
        Network::None => key.detail,
    };
    if key.ethernet() {
        let macs: [&[u8]; 2] = match key.network() {
            Network::None => [&dst[10..], &src[10..]],
            _ => [&[0; 6], &[0; 6]],
        };
        packet.push(macs[0]);
        packet.push(macs[1]);
        for vlan in key.vlan_ids() {
            packet.push(&0x8100u16.to_be_bytes());
            packet.push(&vlan.to_be_bytes());
        }
        packet.push(&ethertype.to_be_bytes());
    }
    let transport: usize = if key.proto == 6 { 20 } else { 8 };
    match key.network() {
        Network::None => return packet,
        Network::V4 => {
            packet.push(&[0x45, 0]);
            packet.push(&(20 + transport as u16).to_be_bytes());
            packet.push(&[0, 0, 0, 0, 64, key.proto, 0, 0]);
            packet.push(&src[12..]);
            packet.push(&dst[12..]);
        }
        Network::V6 => {
            packet.push(&[0x60, 0, 0, 0]);
            packet.push(&(transport as u16).to_be_bytes());
            packet.push(&[key.proto, 64]);
            packet.push(src);
            packet.push(dst);
        }
    }
    let begin = packet.length;
    if key.is_icmp() {
        packet.push(&src_port);
        packet.push(&[0, 0]);
        packet.push(&key.detail.to_be_bytes());
    } else {
        packet.push(&src_port);
        packet.push(&dst_port);
    }
    if key.proto == 6 {
        // Sequence, acknowledgement, header length, flags.
        packet.push(&[0; 8]);
        packet.push(&[0x50, flags[usize::from(!from_lo)]]);
    }
    packet.length = begin + transport;
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::{CapturePoint, FlowTable, TableConfig};
    use skua_packet::Frame;

    /// The records of a packet.
    fn record(frame: &[u8]) -> FlowRecord {
        let mut table = FlowTable::new(&TableConfig::default());
        table.packet(CapturePoint::default(), &Frame::ethernet(frame), 1);
        let mut records = Vec::new();
        let seed = table.seed();
        table.finish(|update| records.push(FlowRecord::new(update, seed, 1, 1, 1)));
        records[0]
    }

    fn matches(expression: &str, frame: &[u8]) -> bool {
        RecordFilter::compile(expression)
            .unwrap()
            .matches(&record(frame))
    }

    #[test]
    fn a_conversation_matches_as_its_packets_do() {
        let mut syn = vec![
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0, 0x45, 0, 0, 40,
        ];
        syn.extend([
            0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 1, 0xbb,
        ]);
        syn.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0]);
        assert!(matches("vlan 7 and tcp port 443", &syn));
        assert!(matches(
            "vlan and tcp dst port 443 and src host 10.0.0.1",
            &syn
        ));
        // Both directions belong to the conversation.
        assert!(matches("vlan and src host 10.0.0.2", &syn));
        assert!(matches("vlan and tcp[tcpflags] & tcp-syn != 0", &syn));
        assert!(!matches("vlan and udp", &syn));
        assert!(!matches("vlan 8", &syn));
    }

    #[test]
    fn lengths_of_packets_are_refused() {
        for expression in ["greater 100", "tcp and len <= 60", "less 64 or udp"] {
            let error = RecordFilter::compile(expression).err().unwrap().to_string();
            assert!(error.contains("no packet length"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(RecordFilter::compile("ip[2:2] > 100 and port 80").is_ok());
    }

    #[test]
    fn conversations_without_ip_match_by_their_addresses() {
        let mut arp = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 6];
        arp.extend([0; 28]);
        assert!(matches("arp", &arp));
        assert!(matches("ether host 02:00:00:00:00:02", &arp));
        assert!(!matches("ip", &arp));
    }
}
