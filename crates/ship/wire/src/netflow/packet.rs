//! Flows in the form of decoded packets, like all other input of the sums.

use skua_packet::{Frame, Icmp, Level, LinkType, Network, Options, Transport, VLAN_PRESENT};

use super::{Family, Flow, Section};

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// flowEndReason: end of flow detected (RFC 5102 section 5.11.3).
const END_SEEN: u8 = 3;

impl Flow {
    /// The flow as a packet from its source to its destination, and completed from the packet section. No packet if
    /// the section lacks even its first header.
    pub fn as_packet(&self, section: Option<Section<'_>>) -> (Option<Level>, Self) {
        // Fields of the record take precedence over the packet section.
        let section = section.filter(|_| self.family == Family::None && self.mac.is_none());
        match section {
            None => (Some(level(self)), *self),
            Some(section) => sampled(self, &section),
        }
    }

    /// Whether the source opened the conversation, if the record shows it.
    pub fn opened_by_source(&self) -> Option<bool> {
        let [source, destination] = self.tcp_flags;
        // The flags of a direction do not distinguish SYN from SYN+ACK, except where no answer
        // followed.
        let only_syn =
            self.protocol == TCP && source & (SYN | ACK) == SYN && destination & SYN == 0;
        self.source_opened.or(only_syn.then_some(true))
    }

    /// Whether the exporter reported the end of the conversation.
    pub fn has_ended(&self) -> bool {
        self.end_reason == END_SEEN
    }
}

/// A record in the form of a packet from its source to its destination.
fn level(flow: &Flow) -> Level {
    let network = match flow.family {
        Family::None => Network::None,
        Family::V4 => Network::V4,
        Family::V6 => Network::V6,
    };
    let [mac_src, mac_dst] = flow.mac.unwrap_or_default();
    let transport = match (flow.icmp, flow.protocol) {
        (Some(icmp), _) => Transport::Icmp(Icmp {
            kind: (icmp >> 8) as u8,
            code: icmp as u8,
            id: 0,
        }),
        (None, 6 | 17 | 33 | 132 | 136) => Transport::Ports {
            src: flow.source_port,
            dst: flow.destination_port,
        },
        _ => Transport::None,
    };
    Level {
        src: flow.source,
        dst: flow.destination,
        mac_src,
        mac_dst,
        vlan: flow.vlan.map(|vid| vid.map_or(0, |vid| VLAN_PRESENT | vid)),
        ethertype: if network == Network::None {
            flow.ethertype
        } else {
            0
        },
        network,
        proto: if network == Network::None {
            0
        } else {
            flow.protocol
        },
        ethernet: flow.mac.is_some() || flow.vlan[0].is_some(),
        transport,
        ..Level::default()
    }
}

/// A record with a packet section instead of fields, completed from the section; no packet if the section
/// lacks even its first header.
fn sampled(flow: &Flow, section: &Section<'_>) -> (Option<Level>, Flow) {
    let there = u32::try_from(section.bytes.len()).unwrap_or(u32::MAX);
    let frame = Frame {
        data: section.bytes,
        wire_len: section.length.max(there),
        link: match section.is_frame {
            true => LinkType::Ethernet,
            false => LinkType::RawIp,
        },
        stripped_vlan: None,
        segments: 1,
    };
    let mut flow = *flow;
    if flow.packets == [0; 2] {
        flow.packets[0] = 1;
    }
    if flow.bytes == [0; 2] {
        flow.bytes[0] = frame.wire_len.into();
    }
    let decoded = skua_packet::decode(&frame, Options::default());
    let level = decoded.ok().map(|decoded| decoded.outer);
    if let Some(Transport::Tcp(segment)) = level.map(|level| level.transport) {
        flow.protocol = TCP;
        flow.tcp_flags[0] = segment.flags;
    }
    (level, flow)
}
