//! Every field of the flow record, once: JSON, CSV, their schema, keys of queries, columns of the lake, the page's types
//! and `docs/records.md` come from [`FIELDS`].

use crate::{
    EndReason, FlowKey, FlowLine, FlowRecord, Network, TcpUpdate,
    community::CommunityId,
    names::{self, Layers, Protocol, TcpFlags},
    record::ConversationOwner,
};
use serde::{Serialize, Serializer, ser::SerializeSeq};
use skua_apps::tls::ClientHello;
pub use skua_record::{Aggregation, FieldType};
use std::{borrow::Cow, fmt, io, sync::Arc};

/// The flow record.
pub struct Flows;

impl skua_record::Record for Flows {
    type Line<'a> = FlowLine<'a>;
    type Other<'a> = Own<'a>;
    type Getter = for<'a, 'b> fn(&'b FlowLine<'a>) -> Value<'a>;

    fn get<'a>(
        getter: Self::Getter,
        line: &Self::Line<'a>,
    ) -> skua_record::Value<'a, Self::Other<'a>> {
        getter(line)
    }
}

/// A field of the flow record.
pub type Field = skua_record::Field<Flows>;

type Value<'a> = skua_record::Value<'a, Own<'a>>;

/// Values that only flows have.
pub enum Own<'a> {
    /// VLAN identifiers.
    Vlans(&'a FlowRecord),
    /// MAC address.
    Mac([u8; 6]),
    /// 48-bit identifier.
    Id48(u64),
    /// Layers of the packets.
    Layers(&'a FlowRecord),
    /// Transport protocol.
    Protocol(&'a FlowKey),
    /// TCP flags.
    Flags(u8),
    /// Community ID.
    Community(CommunityId),
    /// Name by DNS.
    Name(Arc<str>),
    /// What is in a client's first message of TLS.
    Hello(Arc<ClientHello>, fn(&ClientHello) -> Cow<'_, str>),
}

impl Own<'_> {
    /// The MAC address in an address of 16 bytes.
    pub fn mac(address: &[u8; 16]) -> Self {
        let mut mac = [0; 6];
        mac.copy_from_slice(&address[10..]);
        Self::Mac(mac)
    }

    /// The value as a number; none when only a text has it.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Id48(id) => Some(*id),
            Self::Flags(flags) => Some((*flags).into()),
            _ => None,
        }
    }
}

impl fmt::Display for Own<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlans(record) => {
                for (place, id) in record.vlan_ids().enumerate() {
                    write!(f, "{}{id}", if place == 0 { "" } else { " " })?;
                }
                Ok(())
            }
            Self::Mac([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Id48(value) => write!(f, "{value:012x}"),
            Self::Layers(record) => Layers(record).fmt(f),
            Self::Protocol(key) => Protocol(key).fmt(f),
            Self::Flags(flags) => TcpFlags(*flags).fmt(f),
            Self::Community(id) => id.fmt(f),
            Self::Name(name) => f.write_str(name),
            Self::Hello(hello, part) => f.write_str(&part(hello)),
        }
    }
}

impl Serialize for Own<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Vlans(record) => {
                let mut list = serializer.serialize_seq(None)?;
                for id in record.vlan_ids() {
                    list.serialize_element(&id)?;
                }
                list.end()
            }
            shown => serializer.collect_str(shown),
        }
    }
}

use Aggregation::{Greatest, Known, Latest, Least, Sum, Union};
use FieldType::{Integer, Integer32, Integers, Number, String, Time};

const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

const NO_TCP: &str = "not TCP";
const NO_MAC: &str = "no Ethernet header, or not known";
const OF_ONE_CONNECTION: &str = "of one connection in detail; flags, counters and times are there";
const NO_TUNNEL: &str = "not inside a tunnel";
const NO_HANDSHAKE: &str = "handshake not seen";
const NO_SERVICE: &str = "not known; replay of a file";
const NO_OWNER: &str = "not known, or not on this host";
const ONE_POINT: &str = "a record is of one point";
const NO_NAME: &str = "DNS is not read (`app.enabled`), or no answer had the address";
const NO_HELLO: &str = "no TLS, not read (`app.enabled`), or joined late";
const NO_FILE: &str = "no file of `networks` says so";
const NO_RATE: &str = "what the last interval added has it";

/// All fields in the order in which they are written. Fields of one JSON object stand together.
pub const FIELDS: &[Field] = &{
    const ALL: usize = UP_TO_TCP.len() + TCP_COUNTERS.len() + AFTER_TCP.len();
    skua_record::joined::<_, ALL>(&[UP_TO_TCP, TCP_COUNTERS, AFTER_TCP])
};

macro_rules! tcp_counters {
    ($($field:ident, $name:literal, $skydive:literal, $what:literal;)*) => {
        const TCP_COUNTERS: &[Field] = &[$(
            Field::new(concat!("tcp.ab_", $name), Integer32, "segments", NO_TCP, concat!("segments of `a` ", $what),
                |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.counters.$field)[0].into())))
                .is(Sum).key(concat!("TCPMetric.AB", $skydive)).column(concat!("tcp_ab_", $name)),
            Field::new(concat!("tcp.ba_", $name), Integer32, "segments", NO_TCP, concat!("segments of `b` ", $what),
                |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.counters.$field)[1].into())))
                .is(Sum).key(concat!("TCPMetric.BA", $skydive)).column(concat!("tcp_ba_", $name)),
        )*];
    };
}
skua_record::for_each_tcp_counter!(tcp_counters);

/// Fields up to the flags of TCP.
#[rustfmt::skip]
const UP_TO_TCP: &[Field] = &[
    Field::new("interface", String, "", "", "name of the interface; of several interfaces the oldest in this host's own network namespace",
        |l| Value::Text(l.interface))
        .key("Interface").column("interface"),
    Field::new("points", Integer32, "points", "one point", "how many points (interfaces) have seen the conversation; counters are the most that one of them counted, in each direction",
        |l| Value::Integer(l.points.into()).unless(l.points < 2))
        .is(Greatest).no_key(ONE_POINT).no_column(ONE_POINT),
    Field::new("layers", String, "", "", "layers of the packets, outermost first, separated by `/`: `Ethernet/Dot1Q/IPv4/UDP`; begins with the network layer when there is no Ethernet header",
        |l| Value::Other(Own::Layers(l.record)))
        .key("LayersPath").no_column("`link`, `vlan`, `ethertype`, `ip_protocol` and `tunnel` have them"),
    Field::new("protocol", String, "", "", "transport protocol, or what a packet has instead: `tcp`, `icmpv6`, `arp`; a number where there is no name",
        |l| Value::Other(Own::Protocol(&l.record.key)))
        .own_key("Application").column("protocol"),
    Field::new("a.address", String, "", "", "address of the side that spoke first: IP, or MAC without IP; empty when the packets have neither",
        |l| address(&l.record.key, l.record.a().0))
        .own_key("Network.A").column("a_address"),
    Field::new("a.port", Integer32, "", "without IP", "its transport port, 0 for protocols without ports",
        |l| port(&l.record.key, l.record.a().1))
        .own_key("Transport.A").column("a_port"),
    Field::new("a.name", String, "", NO_NAME, "name by which its address was found: the one that `b`, or else anybody here, asked for last before the conversation began",
        |l| own(named(l, true), Own::Name))
        .is(Known).key("A.Name").column("a_name"),
    Field::new("a.process", String, "", NO_OWNER, "name of the process that has its socket",
        |l| Value::nonempty(owner(l, true).process))
        .is(Known).key("A.Process").column("a_process"),
    Field::new("a.pid", Integer32, "", NO_OWNER, "its process identifier",
        |l| Value::nonzero(owner(l, true).pid.into()))
        .is(Known).key("A.PID").column("a_pid"),
    Field::new("a.user", String, "", NO_OWNER, "its user, a number where there is no name",
        |l| owner(l, true).user_value())
        .is(Known).key("A.User").column("a_user"),
    Field::new("a.container", String, "", NO_OWNER, "its container: the name, else the identifier",
        |l| Value::nonempty(owner(l, true).container))
        .is(Known).key("A.Container").column("a_container"),
    Field::new("a.pod", String, "", NO_OWNER, "its Kubernetes pod", |l| Value::nonempty(owner(l, true).pod))
        .is(Known).key("A.Pod").column("a_pod"),
    Field::new("a.unit", String, "", NO_OWNER, "its systemd unit", |l| Value::nonempty(owner(l, true).unit))
        .is(Known).key("A.Unit").column("a_unit"),
    Field::new("a.country", String, "", NO_FILE, "country of its address, by ISO 3166-1: two letters", |l| Value::nonempty(known(l, true).country))
        .key("A.Country").column("a_country"),
    Field::new("a.asn", Integer32, "", NO_FILE, "number of the autonomous system with its address", |l| Value::or_absent(known(l, true).asn, |asn| Value::Integer(asn.into())))
        .key("A.ASN").column("a_asn"),
    Field::new("a.organization", String, "", NO_FILE, "who runs that system", |l| Value::nonempty(known(l, true).organization))
        .key("A.Organization").column("a_organization"),
    Field::new("a.network", String, "", NO_FILE, "name of the smallest range with its address, by the files of `networks.ranges`", |l| Value::nonempty(known(l, true).network))
        .key("A.Network").column("a_network"),
    Field::new("b.address", String, "", "", "address of the other side", |l| address(&l.record.key, l.record.b().0))
        .own_key("Network.B").column("b_address"),
    Field::new("b.port", Integer32, "", "without IP", "its transport port", |l| port(&l.record.key, l.record.b().1))
        .own_key("Transport.B").column("b_port"),
    Field::new("b.name", String, "", NO_NAME, "name by which its address was found: the one that `a`, or else anybody here, asked for last before the conversation began",
        |l| own(named(l, false), Own::Name))
        .is(Known).key("B.Name").column("b_name"),
    Field::new("b.process", String, "", NO_OWNER, "name of the process that has the socket of `b`",
        |l| Value::nonempty(owner(l, false).process))
        .is(Known).key("B.Process").column("b_process"),
    Field::new("b.pid", Integer32, "", NO_OWNER, "its process identifier",
        |l| Value::nonzero(owner(l, false).pid.into()))
        .is(Known).key("B.PID").column("b_pid"),
    Field::new("b.user", String, "", NO_OWNER, "its user, a number where there is no name",
        |l| owner(l, false).user_value())
        .is(Known).key("B.User").column("b_user"),
    Field::new("b.container", String, "", NO_OWNER, "its container: the name, else the identifier",
        |l| Value::nonempty(owner(l, false).container))
        .is(Known).key("B.Container").column("b_container"),
    Field::new("b.pod", String, "", NO_OWNER, "its Kubernetes pod", |l| Value::nonempty(owner(l, false).pod))
        .is(Known).key("B.Pod").column("b_pod"),
    Field::new("b.unit", String, "", NO_OWNER, "its systemd unit", |l| Value::nonempty(owner(l, false).unit))
        .is(Known).key("B.Unit").column("b_unit"),
    Field::new("b.country", String, "", NO_FILE, "country of its address, by ISO 3166-1: two letters", |l| Value::nonempty(known(l, false).country))
        .key("B.Country").column("b_country"),
    Field::new("b.asn", Integer32, "", NO_FILE, "number of the autonomous system with its address", |l| Value::or_absent(known(l, false).asn, |asn| Value::Integer(asn.into())))
        .key("B.ASN").column("b_asn"),
    Field::new("b.organization", String, "", NO_FILE, "who runs that system", |l| Value::nonempty(known(l, false).organization))
        .key("B.Organization").column("b_organization"),
    Field::new("b.network", String, "", NO_FILE, "name of the smallest range with its address, by the files of `networks.ranges`", |l| Value::nonempty(known(l, false).network))
        .key("B.Network").column("b_network"),
    Field::new("ab.packets", Integer, "packets", "", "packets on the wire from `a` to `b`",
        |l| Value::Integer(l.record.ab().packets))
        .is(Sum).key("Metric.ABPackets").column("ab_packets"),
    Field::new("ab.bytes", Integer, "bytes", "", "link-layer bytes on the wire from `a` to `b`; inside a tunnel from the inner header on",
        |l| Value::Integer(l.record.ab().bytes))
        .is(Sum).key("Metric.ABBytes").column("ab_bytes"),
    Field::new("ba.packets", Integer, "packets", "", "packets from `b` to `a`",
        |l| Value::Integer(l.record.ba().packets))
        .is(Sum).key("Metric.BAPackets").column("ba_packets"),
    Field::new("ba.bytes", Integer, "bytes", "", "bytes from `b` to `a`", |l| Value::Integer(l.record.ba().bytes))
        .is(Sum).key("Metric.BABytes").column("ba_bytes"),
    Field::new("start", Time, "RFC 3339, UTC", "", "time of the first packet", |l| Value::Time(l.record.first_ns))
        .is(Least).own_key("Start").column("start"),
    Field::new("last", Time, "RFC 3339, UTC", "", "time of the last packet", |l| Value::Time(l.record.last_ns))
        .is(Greatest).own_key("Last").own_column("time"),
    Field::new("community_id", String, "", "without IP", "Community ID version 1, seed 0",
        |l| own(l.record.community_id(), Own::Community))
        .key("CommunityID").no_column("follows from protocol, addresses and ports"),
    Field::new("id", String, "", "", "identifier of the conversation at this capture point for as long as the agent runs, 12 hexadecimal digits",
        |l| Value::Other(Own::Id48(l.record.id)))
        .key("UUID").number_column("id", Integer),
    Field::new("end", String, "", "still active", "why the record ended: `closed` (TCP), `idle`, `evicted` (left the table under pressure; the record goes on when the conversation does), `shutdown`",
        |l| Value::or_absent(l.record.end, |end| Value::Text(end_name(end))))
        .is(Latest).own_key("FinishType").column("end"),
    Field::new("duration", Integer, "ns", "", "time from the first packet to the last",
        |l| Value::Integer(l.record.last_ns.saturating_sub(l.record.first_ns)))
        .is(Greatest).key("Duration").no_column("`time` less `start`"),
    Field::new("ifindex", Integer32, "", "", "index of the interface",
        |l| Value::Integer(l.record.key.ifindex.into()))
        .key("IfIndex").no_column("another after a restart; `interface` stays"),
    Field::new("netns", Integer32, "", "the agent's own", "the agent's number of the network namespace",
        |l| Value::nonzero(l.record.key.netns.into()))
        .key("NetNS").no_column("another after a restart; `interface` stays"),
    Field::new("link.a", String, "", NO_MAC, "MAC address of `a`, as the first packet has it: behind a router that of the router",
        |l| own(l.record.macs()[0], Own::Mac))
        .is(Known).own_key("Link.A").column("link_a"),
    Field::new("link.b", String, "", NO_MAC, "MAC address of `b`, as the first packet has it: behind a router that of the router",
        |l| own(l.record.macs()[1], Own::Mac))
        .is(Known).own_key("Link.B").column("link_b"),
    Field::new("link.moved", Integer32, "changes", "none", "how often a side sent with other MAC addresses than it did before; not each packet is compared",
        |l| Value::nonzero(l.record.link.moved.into()))
        .is(Sum).key("Link.Moved").no_column("a change of the network, not of the conversation"),
    Field::new("mpls.a", Integer32, "", "no labels", "bottom MPLS label before the packets of `a`",
        |l| Value::or_absent(l.record.by_a(l.record.link.labels)[0], |label| Value::Integer(label.into())))
        .is(Known).key("MPLS.A").no_column("of a network's inside; the addresses stay"),
    Field::new("mpls.b", Integer32, "", "no labels", "bottom MPLS label before the packets of `b`",
        |l| Value::or_absent(l.record.by_a(l.record.link.labels)[1], |label| Value::Integer(label.into())))
        .is(Known).key("MPLS.B").no_column("of a network's inside; the addresses stay"),
    Field::new("ip.fragments", Integer, "packets", "none", "packets that are fragments, the first of each datagram included",
        |l| Value::nonzero(l.record.fragments))
        .is(Sum).key("IPMetric.Fragments").column("ip_fragments"),
    Field::new("rtt", Integer, "ns", "no such packets seen", "time until the answer: SYN to SYN+ACK or RST, the last request of ICMP echo to its reply",
        |l| match l.record.tcp.rtt_ns() { Some(ns) => Value::Integer(ns), None => Value::Absent })
        .is(Known).key("Metric.RTT").column("rtt"),
    Field::new("vlans", Integers, "", "without tags", "VLAN identifiers, outermost first",
        |l| match l.record.vlan_ids().next() {
            Some(_) => Value::Other(Own::Vlans(l.record)),
            None => Value::Absent,
        })
        .own_key("Link.ID").own_column("vlan"),
    Field::new("ethertype", Integer32, "", "with IP", "EtherType, 0 for an 802.3 length field or when unknown",
        |l| match l.record.key.network() {
            Network::None => Value::Integer(l.record.key.detail.into()),
            _ => Value::Absent,
        })
        .key("EtherType").column("ethertype"),
    Field::new("icmp.type", Integer32, "", "not ICMP, or cut off", "ICMP or ICMPv6 type, of the request for queries",
        |l| icmp(l, |[kind, _], _| Some(kind.into())))
        .own_key("ICMP.Type").column("icmp_type"),
    Field::new("icmp.code", Integer32, "", "not ICMP, or cut off", "code",
        |l| icmp(l, |[_, code], _| Some(code.into())))
        .key("ICMP.Code").column("icmp_code"),
    Field::new("icmp.id", Integer32, "", "types without identifier", "identifier of queries",
        |l| {
            icmp(l, |[kind, _], id| {
                let has_id = match l.record.key.network() {
                    Network::V4 => matches!(kind, 8 | 13 | 15 | 17),
                    _ => kind == 128,
                };
                has_id.then_some(id.into())
            })
        })
        .key("ICMP.ID").column("icmp_id"),
    Field::new("tcp.state", String, "", "no flags seen", "state by the flags seen: `syn-sent`, `syn-received`, `established`, `closing` (FIN from one side), `closed` (from both), `reset`",
        |l| Value::or_absent(l.record.tcp_state(), |state| Value::Text(state.name())))
        .is(Latest).key("TCPMetric.State").column("tcp_state"),
    Field::new("tcp.opened_by", String, "", "no SYN seen", "`a` or `b`: the side that sent the SYN",
        |l| {
            let opened = l.record.a_opened().filter(|_| is_tcp(l));
            Value::or_absent(opened, |a| Value::Text(if a { "a" } else { "b" }))
        })
        .is(Known).key("TCPMetric.OpenedBy").column("tcp_opened_by"),
    Field::new("tcp.handshake_rtt", Integer, "ns", NO_HANDSHAKE, "SYN to ACK: server and client side together",
        |l| match l.record.handshake_rtt_ns() { Some(ns) => Value::Integer(ns), None => Value::Absent })
        .is(Known).key("TCPMetric.HandshakeRTT").column("tcp_handshake_rtt"),
    Field::new("tcp.server_rtt", Integer, "ns", NO_HANDSHAKE, "SYN to SYN+ACK",
        |l| Value::nonzero(l.record.tcp.server_rtt_ns))
        .is(Known).key("TCPMetric.ServerRTT").column("tcp_server_rtt"),
    Field::new("tcp.client_rtt", Integer, "ns", NO_HANDSHAKE, "SYN+ACK to ACK",
        |l| Value::nonzero(l.record.tcp.client_rtt_ns))
        .is(Known).key("TCPMetric.ClientRTT").column("tcp_client_rtt"),
    Field::new("tcp.ab_flags", String, "", NO_TCP, "flags seen from `a` as letters of `FSRPAUEC`: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR; the bits of the TCP header (RFC 9293) from the lowest",
        |l| tcp(l, |r| Value::Other(Own::Flags(r.by_a(r.tcp.flags)[0]))))
        .is(Union).key("TCPMetric.ABFlags").number_column("tcp_ab_flags", Integer32),
    Field::new("tcp.ba_flags", String, "", NO_TCP, "flags seen from `b`",
        |l| tcp(l, |r| Value::Other(Own::Flags(r.by_a(r.tcp.flags)[1]))))
        .is(Union).key("TCPMetric.BAFlags").number_column("tcp_ba_flags", Integer32),
    Field::new("tcp.ab_ecn", String, "", "neither was seen", "`E` when `a` sent ECE, `C` when it sent CWR; in a SYN they only offer ECN (RFC 3168)",
        |l| ecn(l, 0))
        .is(Union).key("TCPMetric.ABECN").column("tcp_ab_ecn"),
    Field::new("tcp.ba_ecn", String, "", "neither was seen", "the same for `b`", |l| ecn(l, 1))
        .is(Union).key("TCPMetric.BAECN").column("tcp_ba_ecn"),
];

/// Fields behind those of TCP.
#[rustfmt::skip]
const AFTER_TCP: &[Field] = &[
    Field::new("tcp.ab_syn", Time, "RFC 3339, UTC", "none seen", "time of the first SYN of `a`",
        |l| time(l, |tcp| tcp.syn_ns, 0))
        .is(Known).key("TCPMetric.ABSynStart").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ba_syn", Time, "RFC 3339, UTC", "none seen", "time of the first SYN of `b`",
        |l| time(l, |tcp| tcp.syn_ns, 1))
        .is(Known).key("TCPMetric.BASynStart").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ab_fin", Time, "RFC 3339, UTC", "none seen", "time of the first FIN of `a`",
        |l| time(l, |tcp| tcp.fin_ns, 0))
        .is(Known).key("TCPMetric.ABFinStart").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ba_fin", Time, "RFC 3339, UTC", "none seen", "time of the first FIN of `b`",
        |l| time(l, |tcp| tcp.fin_ns, 1))
        .is(Known).key("TCPMetric.BAFinStart").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ab_rst", Time, "RFC 3339, UTC", "none seen", "time of the first RST, if `a` sent it",
        |l| time(l, |tcp| tcp.rst_ns, 0))
        .is(Known).key("TCPMetric.ABRstStart").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ba_rst", Time, "RFC 3339, UTC", "none seen", "time of the first RST, if `b` sent it",
        |l| time(l, |tcp| tcp.rst_ns, 1))
        .is(Known).key("TCPMetric.BARstStart").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ab_syn_ttl", Integer32, "", "no SYN seen", "TTL or hop limit of the first SYN of `a`",
        |l| tcp(l, |r| Value::nonzero(r.by_a(r.tcp.syn_ttl)[0].into())))
        .is(Known).key("TCPMetric.ABSynTTL").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ba_syn_ttl", Integer32, "", "no SYN seen", "TTL or hop limit of the first SYN of `b`",
        |l| tcp(l, |r| Value::nonzero(r.by_a(r.tcp.syn_ttl)[1].into())))
        .is(Known).key("TCPMetric.BASynTTL").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ab_skipped", Integer32, "gaps", "not TCP, or none", "gaps in the sequence numbers of `a`: segments that did not pass here, or that came late",
        |l| tcp(l, |r| Value::nonzero(r.by_a(r.tcp.skipped)[0].into())))
        .is(Sum).key("TCPMetric.ABSegmentSkipped").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ab_skipped_bytes", Integer, "bytes", "not TCP, or none", "bytes of payload that these gaps were long",
        |l| tcp(l, |r| Value::nonzero(r.by_a(r.tcp.skipped_bytes)[0])))
        .is(Sum).key("TCPMetric.ABSegmentSkippedBytes").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ba_skipped", Integer32, "gaps", "not TCP, or none", "gaps in the sequence numbers of `b`: segments that did not pass here, or that came late",
        |l| tcp(l, |r| Value::nonzero(r.by_a(r.tcp.skipped)[1].into())))
        .is(Sum).key("TCPMetric.BASegmentSkipped").no_column(OF_ONE_CONNECTION),
    Field::new("tcp.ba_skipped_bytes", Integer, "bytes", "not TCP, or none", "bytes of payload that these gaps were long",
        |l| tcp(l, |r| Value::nonzero(r.by_a(r.tcp.skipped_bytes)[1])))
        .is(Sum).key("TCPMetric.BASegmentSkippedBytes").no_column(OF_ONE_CONNECTION),
    Field::new("tunnel.type", String, "", NO_TUNNEL, "type of the tunnel that the flow is inside of: `vxlan`, `geneve`, `gre`, `ipip`, `mpls`, `erspan`",
        |l| Value::or_absent(l.record.key.tunnel(), |t| Value::Text(names::tunnel(t))))
        .key("Tunnel").column("tunnel"),
    Field::new("tunnel.id", Integer, "", NO_TUNNEL, "VNI, GRE key, session of ERSPAN, or bottom MPLS label of the first packet; 0 without",
        |l| Value::or_absent(l.record.key.tunnel(), |_| { Value::Integer(l.record.tunnel_id.into()) }))
        .key("Network.ID").column("tunnel_id"),
    Field::new("tunnel.parent", String, "", NO_TUNNEL, "`id` of the flow that carried the first packet of this one",
        |l| own((l.record.parent != 0).then_some(l.record.parent), Own::Id48))
        .key("ParentUUID").number_column("tunnel_parent", Integer),
    Field::new("service.side", String, "", NO_SERVICE, "which side offers the service: `a` or `b`",
        |l| match l.record.service {
            Some(service) => Value::Text(if service.lo == l.record.lo_first {
                "a"
            } else {
                "b"
            }),
            None => Value::Absent,
        })
        .is(Known).own_key("Service.Side").column("service_side"),
    Field::new("service.by", String, "", NO_SERVICE, "how that is known, best first: `kernel` (accept or connect was seen), `listening` (a socket listens there), `syn` (who sent the SYN), `ephemeral` (the other port is in the host's ephemeral range), `well-known` (its port is below 1024)",
        |l| match l.record.service { Some(service) => Value::Text(service.by.name()), None => Value::Absent })
        .is(Known).key("Service.Rule").column("service_by"),
    Field::new("service.port_name", String, "", "its side is not known, or its port has no name", "name of its port, in the file `networks.services`: `https`",
        |l| Value::nonempty(port_name(l)))
        .key("Service.PortName").no_column("`server_port` has the port"),
    Field::new("sampling", Integer32, "", "all packets counted", "one in this many packets was counted; counters are not scaled up, but for flows of sFlow, NetFlow and IPFIX, where they are estimates of all",
        |l| Value::nonzero(l.record.sampling.into()).unless(l.record.sampling == 1))
        .is(Greatest).own_key("Sampling").own_column("sampling"),
    Field::new("rate.bits_per_second", Number, "bit/s", "", "both directions over the last five seconds or a little more, nothing when it has ended",
        |l| Value::rounded(l.rate.bits_per_second))
        .is(Latest).no_key(NO_RATE).no_column(NO_RATE),
    Field::new("rate.packets_per_second", Number, "packets/s", "", "both directions over the last five seconds or a little more, nothing when it has ended",
        |l| Value::rounded(l.rate.packets_per_second))
        .is(Latest).no_key(NO_RATE).no_column(NO_RATE),
    Field::new("tls.sni", String, "", NO_HELLO, "name of the server that the client wants; with encrypted hellos that of who hides the real one", |l| hello(l, |h| h.server_name.as_str().into()))
        .is(Known).key("TLS.SNI").column("tls_sni"),
    Field::new("tls.alpn", String, "", NO_HELLO, "protocols that the client offers, separated by commas", |l| hello(l, |h| h.protocols.join(",").into()))
        .is(Known).key("TLS.ALPN").column("tls_alpn"),
    Field::new("tls.version", String, "", NO_HELLO, "the highest version that the client offers, like `TLS 1.3`", |l| hello(l, |h| h.version_name().into()))
        .is(Known).key("TLS.Version").column("tls_version"),
    Field::new("tls.ja4", String, "", NO_HELLO, "fingerprint of the client: JA4", |l| hello(l, |h| h.ja4.as_str().into()))
        .is(Known).key("TLS.JA4").column("tls_ja4"),
    Field::new("tls.ech", String, "", "no", "`offered`: the client's message has an encrypted one inside, or looks so", |l| hello(l, |h| if h.encrypted { "offered" } else { "" }.into()))
        .is(Known).key("TLS.ECH").column("tls_ech"),
];

/// A value that only flows have, and that may be missing.
fn own<'a, T>(value: Option<T>, some: impl FnOnce(T) -> Own<'a>) -> Value<'a> {
    Value::or_absent(value, |value| Value::Other(some(value)))
}

/// What files say of the address of `a`, or of `b`.
fn known(line: &FlowLine<'_>, a: bool) -> skua_networks::Known {
    let record = line.record;
    let (address, _) = if a { record.a() } else { record.b() };
    let address = record.key.ip(address);
    address.map(skua_networks::of).unwrap_or_default()
}

/// The name by which the address of `a`, or of `b`, was found.
fn named(line: &FlowLine<'_>, a: bool) -> Option<Arc<str>> {
    line.record.name_of(a)
}

/// A part of what the client said first in TLS; none where it is empty.
fn hello<'a>(line: &FlowLine<'a>, part: fn(&ClientHello) -> Cow<'_, str>) -> Value<'a> {
    let said = line.record.hello();
    let said = said.filter(|hello| !part(hello).is_empty());
    own(said, |hello| Own::Hello(hello, part))
}

/// The name of the service's port.
fn port_name(line: &FlowLine<'_>) -> &'static str {
    let key = &line.record.key;
    line.record.service.map_or("", |service| {
        let port = if service.lo { key.lo_port } else { key.hi_port };
        skua_networks::port(key.proto, u16::from_be_bytes(port))
    })
}

/// The owner of `a`, or of `b`.
fn owner<'a>(line: &FlowLine<'a>, a: bool) -> ConversationOwner<'a> {
    let [first, second] = line.record.by_a(line.owners);
    if a { first } else { second }
}

fn is_tcp(line: &FlowLine<'_>) -> bool {
    line.record.key.proto == 6
}

fn tcp<'a>(
    line: &FlowLine<'a>,
    value: impl FnOnce(&'a crate::FlowRecord) -> Value<'a>,
) -> Value<'a> {
    if is_tcp(line) {
        value(line.record)
    } else {
        Value::Absent
    }
}

/// A time of a side, none when it is 0.
fn time<'a>(line: &FlowLine<'a>, of: fn(&TcpUpdate) -> [u64; 2], side: usize) -> Value<'a> {
    let record = line.record;
    let at = record.by_a(of(&record.tcp))[side];
    tcp(line, |_| Value::Time(at)).unless(at == 0)
}

fn ecn<'a>(line: &FlowLine<'a>, side: usize) -> Value<'a> {
    let seen = line.record.by_a(line.record.tcp.flags)[side] & (ECE | CWR);
    tcp(line, |_| Value::Other(Own::Flags(seen))).unless(seen == 0)
}

fn icmp<'a>(line: &FlowLine<'a>, value: impl FnOnce([u8; 2], u16) -> Option<u64>) -> Value<'a> {
    let key = &line.record.key;
    // Type 0 is a reply and never in a key: 0 means a truncated header.
    if !key.is_icmp() || key.lo_port == [0; 2] {
        return Value::Absent;
    }
    Value::or_absent(value(key.lo_port, key.detail), Value::Integer)
}

fn address<'a>(key: &FlowKey, address: &[u8; 16]) -> Value<'a> {
    match key.ip(address) {
        Some(ip) => Value::Ip(ip),
        None if key.ethernet() => Value::Other(Own::mac(address)),
        None => Value::Text(""),
    }
}

fn port<'a>(key: &FlowKey, port: u16) -> Value<'a> {
    match key.network() {
        Network::None => Value::Absent,
        _ => Value::Integer(port.into()),
    }
}

/// Name of an end reason in records.
pub fn end_name(end: EndReason) -> &'static str {
    match end {
        EndReason::Closed => "closed",
        EndReason::Idle => "idle",
        EndReason::Evicted => "evicted",
        EndReason::Shutdown => "shutdown",
    }
}

/// Writes the JSON object of a record.
pub(crate) fn serialize<S: Serializer>(
    line: &FlowLine<'_>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    skua_record::serialize(FIELDS, line, serializer)
}

/// Writes the CSV header: the paths with `_` for `.`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_header(out: &mut impl io::Write) -> io::Result<()> {
    skua_record::write_csv_header(FIELDS, out)
}

/// Writes a record as a CSV row (RFC 4180, but LF); fields that do not apply are empty.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_row(out: &mut impl io::Write, line: &FlowLine<'_>) -> io::Result<()> {
    skua_record::write_csv_row(FIELDS, out, line)
}

/// The chapter on flows of `docs/records.md`.
pub fn documentation() -> std::string::String {
    DOCUMENTATION.to_owned() + &skua_record::markdown(FIELDS)
}

const DOCUMENTATION: &str = "\
A record is a conversation at one capture point: the packets between two endpoints, both directions
together. [How packets are counted](accounting.md) is a page of its own.

What is said of the process behind `a` or `b` comes from its [socket](#socket-records).

";

/// JSON Schema (2020-12) of a record.
pub fn json_schema() -> serde_json::Value {
    skua_record::json_schema("Skua flow record", FIELDS)
}
