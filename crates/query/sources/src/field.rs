//! The fields of flows in queries, under Skydive's names where it has them: those that have a key in their definition
//! ([`FIELDS`]), and those that are only here.

use crate::flow::FlowView;
use hashbrown::HashMap;
use skua_flow::{
    ConversationOwner, EndReason, FlowLine, Network, TcpState,
    fields::{FIELDS, Field},
};
use skua_query::Leaf;
use skua_record::Value;
use std::{
    fmt::{self, Write as _},
    sync::LazyLock,
};

/// Visits a value; true ends the visit.
pub(crate) type Visit<'v> = dyn FnMut(Leaf<'_>) -> bool + 'v;

/// How the values of a field are shown, none when it is not known.
pub(crate) enum Getter {
    /// As [`FIELDS`] define it.
    Defined(&'static Field),
    /// In Skydive's form, or only in queries; returns whether a visitor has ended it.
    Own(fn(&FlowView<'_>, &mut Visit<'_>) -> bool),
}

impl Getter {
    /// Shows the values; returns whether a visitor has ended it.
    pub(crate) fn show(&self, flow: &FlowView<'_>, visit: &mut Visit<'_>) -> bool {
        match self {
            Self::Defined(field) => defined(flow, field, visit),
            Self::Own(show) => show(flow, visit),
        }
    }
}

/// Keys that are only in queries; [`own`] has their values.
const ONLY_HERE: &[&str] = &[
    "TrackingID",
    "L3TrackingID",
    "NodeTID",
    "CaptureID",
    "Host",
    "Link.Protocol",
    "Network.Protocol",
    "Transport.Protocol",
    "Metric.Start",
    "Metric.Last",
    "LastUpdateMetric.ABPackets",
    "LastUpdateMetric.ABBytes",
    "LastUpdateMetric.BAPackets",
    "LastUpdateMetric.BABytes",
    "LastUpdateMetric.Start",
    "LastUpdateMetric.Last",
    "RawPacketsCaptured",
    "StartNs",
];

/// All keys. Those of one map stand together.
pub static KEYS: LazyLock<Vec<&'static str>> = LazyLock::new(|| keys(FIELDS));

fn keys(fields: &[Field]) -> Vec<&'static str> {
    let defined = fields.iter().filter_map(|field| field.key.get());
    let mut keys: Vec<_> = defined.chain(ONLY_HERE.iter().copied()).collect();
    let map = |key: &'static str| key.split('.').next().unwrap_or(key);
    let maps: Vec<_> = keys.iter().copied().map(map).collect();
    keys.sort_by_key(|key| maps.iter().position(|known| *known == map(key)));
    keys
}

/// What is defined under a key.
static DEFINED: LazyLock<HashMap<&'static str, &'static Field>> = LazyLock::new(|| {
    let defined = FIELDS.iter();
    defined
        .filter_map(|field| Some((field.key.of_value()?, field)))
        .collect()
});

/// Shows a value as it is defined.
fn defined(f: &FlowView<'_>, field: &Field, visit: &mut Visit<'_>) -> bool {
    let line = FlowLine {
        owners: f.parties,
        ..f.record.line(&f.place.interface)
    };
    match (field.value)(&line) {
        Value::Absent => false,
        Value::Integer(number) => int(visit, number),
        Value::Number(number) => visit(Leaf::Float(number)),
        Value::Text(shown) => text(visit, shown),
        Value::Ip(ip) => visit(Leaf::Ip(ip)),
        Value::Time(ns) => ms(visit, ns),
        shown => written(visit, format_args!("{shown}")),
    }
}

/// Short text on the stack: conditions compare fields of each flow.
struct Text {
    bytes: [u8; 64],
    length: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Shows what is written.
fn written(visit: &mut Visit<'_>, what: fmt::Arguments<'_>) -> bool {
    let mut text = Text {
        bytes: [0; 64],
        length: 0,
    };
    // No field is longer than that.
    if text.write_fmt(what).is_err() {
        return visit(Leaf::Str(&what.to_string()));
    }
    str::from_utf8(&text.bytes[..text.length]).is_ok_and(|text| visit(Leaf::Str(text)))
}

fn int(visit: &mut Visit<'_>, number: u64) -> bool {
    visit(Leaf::Int(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn ms(visit: &mut Visit<'_>, ns: u64) -> bool {
    int(visit, ns / 1_000_000)
}

/// Shows text that is there.
fn text(visit: &mut Visit<'_>, text: &str) -> bool {
    !text.is_empty() && visit(Leaf::Str(text))
}

/// Shows a number that is not 0.
fn counted(visit: &mut Visit<'_>, number: u64) -> bool {
    number != 0 && int(visit, number)
}

/// A side of a flow.
#[derive(Clone, Copy)]
enum Side {
    A,
    B,
}
use Side::{A, B};

impl Side {
    fn of<T: Copy>(self, [a, b]: [T; 2]) -> T {
        match self {
            A => a,
            B => b,
        }
    }
}

fn address(f: &FlowView<'_>, visit: &mut Visit<'_>, side: Side) -> bool {
    let (address, _) = side.of([f.record.a(), f.record.b()]);
    f.record
        .key
        .ip(address)
        .is_some_and(|ip| visit(Leaf::Ip(ip)))
}

fn mac(f: &FlowView<'_>, visit: &mut Visit<'_>, side: Side) -> bool {
    side.of(f.record.macs())
        .is_some_and(|mac| visit(Leaf::Mac(mac)))
}

fn port(f: &FlowView<'_>, visit: &mut Visit<'_>, side: Side) -> bool {
    let (_, port) = side.of([f.record.a(), f.record.b()]);
    f.record.key.has_ports() && int(visit, port.into())
}

fn party<'a>(f: &FlowView<'a>, side: Side) -> ConversationOwner<'a> {
    side.of(f.by_a(f.parties))
}

/// Shows a value of both sides: a condition without a side holds for either.
fn either(
    f: &FlowView<'_>,
    visit: &mut Visit<'_>,
    show: fn(&ConversationOwner<'_>, &mut Visit<'_>) -> bool,
) -> bool {
    [A, B].into_iter().any(|side| show(&party(f, side), visit))
}

/// The same of what files say of both addresses.
fn of_address(
    f: &FlowView<'_>,
    visit: &mut Visit<'_>,
    show: fn(&skua_networks::Known, &mut Visit<'_>) -> bool,
) -> bool {
    let addresses = [f.record.a(), f.record.b()];
    let mut known = addresses
        .into_iter()
        .filter_map(|(address, _)| f.record.key.ip(address))
        .map(skua_networks::of);
    known.any(|known| show(&known, visit))
}

fn user(party: &ConversationOwner<'_>, visit: &mut Visit<'_>) -> bool {
    match (party.user, party.uid) {
        ("", Some(uid)) => written(visit, format_args!("{uid}")),
        (name, _) => text(visit, name),
    }
}

fn transport(f: &FlowView<'_>) -> Option<&'static str> {
    Some(match f.record.key.proto {
        6 => "TCP",
        17 => "UDP",
        33 => "DCCP",
        132 => "SCTP",
        136 => "UDPLITE",
        _ => return None,
    })
    .filter(|_| f.record.key.has_ports())
}

/// Type of ICMP messages, request and reply as one.
fn icmp_type(f: &FlowView<'_>, visit: &mut Visit<'_>) -> bool {
    let number = f.record.key.lo_port[0];
    let name = match (f.record.key.network(), number) {
        (Network::V4, 0 | 8) | (Network::V6, 128 | 129) => "ECHO",
        (Network::V4, 3) | (Network::V6, 1) => "DESTINATION_UNREACHABLE",
        (Network::V4, 4) => "SOURCE_QUENCH",
        (Network::V4, 5) | (Network::V6, 137) => "REDIRECT",
        (Network::V4, 9 | 10) | (Network::V6, 133 | 134) => "ROUTER",
        (Network::V4, 11) | (Network::V6, 3) => "TIME_EXCEEDED",
        (Network::V4, 12) | (Network::V6, 4) => "PARAMETER_PROBLEM",
        (Network::V4, 13 | 14) => "TIMESTAMP",
        (Network::V4, 15 | 16) => "INFO",
        (Network::V4, 17 | 18) => "ADDRESS_MASK",
        (Network::V6, 2) => "PACKET_TOO_BIG",
        (Network::V6, 135 | 136) => "NEIGHBOR",
        _ => "UNKNOWN",
    };
    visit(Leaf::Str(name))
}

/// How a flow ended, as Skydive numbers it: not, timeout, FIN, RST. By what TCP says, as soon as it does: a capture or a file
/// may end before the flow leaves the table.
fn finish(f: &FlowView<'_>) -> u64 {
    match (f.record.tcp_state(), f.record.end) {
        (Some(TcpState::Reset), _) => 3,
        (Some(TcpState::Closed), _) | (_, Some(EndReason::Closed)) => 2,
        (_, Some(EndReason::Idle)) => 1,
        (_, None | Some(EndReason::Evicted | EndReason::Shutdown)) => 0,
    }
}

/// What UDP carries, or the name of the innermost layer.
fn application(f: &FlowView<'_>, visit: &mut Visit<'_>) -> bool {
    let named = match f.record.carries.tunnel() {
        None if f.record.is_dns() => Some("DNS"),
        None => skua_flow::application(&f.record.key),
        // Of type I nothing of ERSPAN is in the packet: it is GRE, as Skydive has it.
        Some(skua_flow::Tunnel::Erspan) => Some("GRE"),
        Some(_) => None,
    };
    if let Some(name) = named {
        return visit(Leaf::Str(name));
    }
    written_layers(f, &mut |leaf| match leaf {
        Leaf::Str(path) => path
            .rsplit('/')
            .next()
            .is_some_and(|last| visit(Leaf::Str(last))),
        _ => false,
    })
}

fn written_layers(f: &FlowView<'_>, visit: &mut Visit<'_>) -> bool {
    written(visit, format_args!("{}", skua_flow::Layers(f.record)))
}

/// How a field is shown, none when there is no such field.
pub(crate) fn getter(key: &str) -> Option<Getter> {
    let defined = DEFINED.get(key).map(|field| Getter::Defined(field));
    defined.or_else(|| own(key).map(Getter::Own))
}

/// Fields whose values have another form here, and those that are only here.
fn own(key: &str) -> Option<fn(&FlowView<'_>, &mut Visit<'_>) -> bool> {
    Some(match key {
        "TrackingID" => |f, v| written(v, format_args!("{:016x}", f.record.key.tracking_id())),
        "L3TrackingID" => |f, v| {
            let id = f.record.key.l3_tracking_id();
            id.is_some_and(|id| written(v, format_args!("{id:016x}")))
        },
        "NodeTID" => |f, v| text(v, &f.place.node),
        "CaptureID" => |f, v| text(v, &f.place.capture),
        "Host" => |f, v| text(v, &f.place.host),
        "Application" => |f, v| application(f, v),
        "Link.Protocol" => |f, v| f.record.key.ethernet() && v(Leaf::Str("ETHERNET")),
        "Link.A" => |f, v| mac(f, v, A),
        "Link.B" => |f, v| mac(f, v, B),
        "Link.ID" => |f, v| {
            // The outermost in the lowest bits.
            let mut shift = 0;
            let id = f.record.vlan_ids().fold(0, |id, vlan| {
                let place = u64::from(vlan) << shift;
                shift += 12;
                id | place
            });
            shift > 0 && int(v, id)
        },
        "Network.Protocol" => |f, v| match f.record.key.network() {
            Network::None => false,
            Network::V4 => v(Leaf::Str("IPV4")),
            Network::V6 => v(Leaf::Str("IPV6")),
        },
        "Network.A" => |f, v| address(f, v, A),
        "Network.B" => |f, v| address(f, v, B),
        "Transport.Protocol" => |f, v| transport(f).is_some_and(|name| v(Leaf::Str(name))),
        "Transport.A" => |f, v| port(f, v, A),
        "Transport.B" => |f, v| port(f, v, B),
        "ICMP.Type" => |f, v| f.record.key.is_icmp() && icmp_type(f, v),
        "Metric.Start" | "Start" => |f, v| ms(v, f.record.first_ns),
        "StartNs" => |f, v| int(v, f.record.first_ns),
        "Metric.Last" | "Last" => |f, v| ms(v, f.record.last_ns),
        "LastUpdateMetric.ABPackets" => |f, v| int(v, A.of(f.last()).packets),
        "LastUpdateMetric.ABBytes" => |f, v| int(v, A.of(f.last()).bytes),
        "LastUpdateMetric.BAPackets" => |f, v| int(v, B.of(f.last()).packets),
        "LastUpdateMetric.BABytes" => |f, v| int(v, B.of(f.last()).bytes),
        "LastUpdateMetric.Start" => |f, v| {
            let record = f.record;
            ms(v, record.updated_ns.saturating_sub(record.interval.ns))
        },
        "LastUpdateMetric.Last" => |f, v| ms(v, f.record.updated_ns),
        "Process" => |f, v| either(f, v, |p, v| text(v, p.process)),
        "PID" => |f, v| either(f, v, |p, v| counted(v, p.pid.into())),
        "User" => |f, v| either(f, v, user),
        "Container" => |f, v| either(f, v, |p, v| text(v, p.container)),
        "Pod" => |f, v| either(f, v, |p, v| text(v, p.pod)),
        "Unit" => |f, v| either(f, v, |p, v| text(v, p.unit)),
        "Country" => |f, v| of_address(f, v, |known, v| text(v, known.country)),
        "ASN" => |f, v| {
            of_address(f, v, |known, v| {
                known.asn.is_some_and(|asn| int(v, asn.into()))
            })
        },
        "DNS.Name" => |f, v| {
            // The name of the side that was looked for: mostly that of the server.
            let name = f.record.name_of(false).or_else(|| f.record.name_of(true));
            name.is_some_and(|name| text(v, &name))
        },
        "Organization" => |f, v| of_address(f, v, |known, v| text(v, known.organization)),
        "Service.Side" => |f, v| {
            f.record.service.is_some_and(|service| {
                let a = service.lo == f.record.lo_first;
                v(Leaf::Str(if a { "A" } else { "B" }))
            })
        },
        "RawPacketsCaptured" => |f, v| int(v, f.raw_packets as u64),
        // Only for steps that compare places.
        "PlaceSinceNs" => |f, v| counted(v, f.place.since_ns),
        "FinishType" => |f, v| int(v, finish(f)),
        "Sampling" => |f, v| int(v, f.record.sampling.into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::{Counters, FlowKey, FlowRecord, FlowUpdate, TcpUpdate, fields::FieldType};
    use skua_query::{FLOW_KEYS, FlowRecord as _, Record as _, SharedTexts};
    use skua_state::FlowPlace;
    use skua_topology::Value;
    use std::sync::Arc;

    fn update(key: FlowKey) -> FlowUpdate {
        FlowUpdate {
            key,
            lo_sent: Counters {
                packets: 3,
                bytes: 300,
            },
            hi_sent: Counters {
                packets: 2,
                bytes: 200,
            },
            first_ns: 1_000_000_000_000,
            last_ns: 1_002_000_000_000,
            // The higher address spoke first.
            lo_first: false,
            tcp: TcpUpdate {
                server_rtt_ns: 2_000_000,
                client_rtt_ns: 1_000_000,
                lo_opened: Some(false),
                syn_ns: [1_000_002_000_000, 1_000_000_000_000],
                ..TcpUpdate::default()
            },
            ..FlowUpdate::default()
        }
    }

    fn tcp() -> FlowKey {
        let mapped = |last: u8| {
            let mut address = [0; 16];
            address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
            address
        };
        FlowKey {
            lo: mapped(1),
            hi: mapped(2),
            lo_port: 443u16.to_be_bytes(),
            hi_port: 50_000u16.to_be_bytes(),
            ifindex: 3,
            proto: 6,
            // IPv4 behind an Ethernet header.
            kind: 1 | skua_flow::key::KIND_ETHERNET,
            ..FlowKey::default()
        }
    }

    fn with<T>(update: &FlowUpdate, read: impl FnOnce(&FlowView<'_>) -> T) -> T {
        let record = FlowRecord::new(update, 1, 1, 1_003_000_000_000, 10_000_000_000);
        let place = Arc::new(FlowPlace {
            host: "here".into(),
            interface: "eth0".into(),
            node: "tid-3".into(),
            ..FlowPlace::default()
        });
        read(&FlowView {
            record: &record,
            place: &place,
            parties: Default::default(),
            raw_packets: 0,
        })
    }

    #[test]
    fn every_field_has_a_key_or_a_reason_and_every_key_its_value() {
        for key in KEYS.iter() {
            let defined = FIELDS.iter().any(|f| f.key.of_value() == Some(key));
            assert!(own(key).is_some() != defined, "{key}");
        }
        for field in FIELDS {
            assert!(field.key != skua_record::Name::Undefined, "{}", field.path);
        }
        for key in FLOW_KEYS {
            let known = KEYS
                .iter()
                .any(|k| k == key || k.starts_with(&format!("{key}.")));
            assert!(known, "{key}");
        }
    }

    #[test]
    fn a_new_field_has_its_key_and_value() {
        const NEW: Field = Field::new("tcp.new", FieldType::Time, "", "", "new", |line| {
            skua_record::Value::Time(line.record.first_ns)
        })
        .key("TCPMetric.New");
        let keys = keys(&[&[NEW], FIELDS].concat());
        assert!(keys.contains(&"TCPMetric.New") && keys.contains(&"TrackingID"));
        let is_tcp = |key: &&str| key.starts_with("TCPMetric.");
        assert!(
            keys.split(is_tcp)
                .filter(|others| !others.is_empty())
                .count()
                <= 2
        );
        with(&update(tcp()), |flow| {
            let mut found = None;
            defined(flow, &NEW, &mut |leaf| {
                found = Some(leaf.to_value());
                true
            });
            assert_eq!(found, Some(1_000_000.into()));
        });
    }

    #[test]
    fn a_is_who_spoke_first() {
        with(&update(tcp()), |flow| {
            let get = |key: &str| flow.get(key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(get("Network.A"), "10.0.0.2".into());
            assert_eq!(get("Transport.A"), 50_000.into());
            assert_eq!(get("Transport.B"), 443.into());
            assert_eq!(get("Metric.ABBytes"), 200.into());
            assert_eq!(get("Metric.BABytes"), 300.into());
            assert_eq!(get("LastUpdateMetric.ABBytes"), 200.into());
            assert_eq!(get("LastUpdateMetric.Start"), 993_000.into());
            assert_eq!(get("LastUpdateMetric.Last"), 1_003_000.into());
            assert_eq!(get("Metric.RTT"), 2_000_000.into());
            assert_eq!(get("TCPMetric.HandshakeRTT"), 3_000_000.into());
            assert_eq!(get("TCPMetric.ABSynStart"), 1_000_000.into());
            assert_eq!(get("TCPMetric.BASynStart"), 1_000_002.into());
            assert_eq!(get("LayersPath"), "Ethernet/IPv4/TCP".into());
            assert_eq!(get("Application"), "TCP".into());
            assert_eq!(get("FinishType"), 0.into());
            assert_eq!(get("NodeTID"), "tid-3".into());
            assert_eq!(flow.get("ParentUUID"), None);
            assert_eq!(flow.get("ICMP"), None);
            assert!(flow.has("TCPMetric") && !flow.has("CaptureID"));
        });
    }

    #[test]
    fn what_udp_carries_is_named_by_its_port() {
        let mut update = update(tcp());
        for (proto, port, name) in [
            (17, 53, "DNS"),
            (17, 6343, "SFlow"),
            (17, 54, "UDP"),
            (6, 53, "TCP"),
        ] {
            update.key.proto = proto;
            update.key.hi_port = u16::to_be_bytes(port);
            with(&update, |flow| {
                assert_eq!(flow.get("Application"), Some(name.into()), "{port}");
            });
        }
    }

    #[test]
    fn flows_of_ip_have_the_addresses_and_all_tags_of_their_link() {
        let mut update = update(tcp());
        update.link.macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        update.key.vlan = [skua_flow::VLAN_PRESENT | 5, skua_flow::VLAN_PRESENT | 6];
        update.link.inner_tags = [skua_flow::VLAN_PRESENT | 7, 0];
        with(&update, |flow| {
            let get = |key: &str| flow.get(key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(get("Link.A"), "02:00:00:00:00:02".into());
            assert_eq!(get("Link.B"), "02:00:00:00:00:01".into());
            assert_eq!(get("Link.ID"), (7 << 24 | 6 << 12 | 5).into());
            assert_eq!(get("Link.Protocol"), "ETHERNET".into());
        });
    }

    #[test]
    fn the_whole_is_made_of_its_parts_and_stays_when_kept() {
        with(&update(tcp()), |flow| {
            let whole = flow.to_value();
            flow.keys(&mut |key| assert_eq!(whole.get(key), flow.get(key), "{key}"));
            let map = whole.as_map().unwrap();
            let names: Vec<&str> = map.iter().map(|(name, _)| &**name).collect();
            assert!(names.is_sorted());
            assert!(matches!(map.get("Metric"), Some(Value::Map(m)) if m.len() == 7));
            assert_eq!(flow.keep(&mut SharedTexts::default()).to_value(), whole);
        });
    }

    #[test]
    fn a_conversation_has_one_tracking_id_wherever_it_is_captured() {
        let plain = tcp();
        let elsewhere = FlowKey {
            ifindex: 9,
            netns: 4,
            vlan: [0x1064, 0],
            // Inside VXLAN.
            kind: plain.kind | 1 << skua_flow::key::KIND_TUNNEL_SHIFT,
            tunnel_hash: [1, 2, 3, 4, 5, 6],
            ..plain
        };
        let get = |key, field| with(&update(key), |flow| flow.get(field).unwrap());
        assert_eq!(get(plain, "TrackingID"), get(elsewhere, "TrackingID"));
        let other = FlowKey {
            lo_port: [0, 80],
            ..plain
        };
        for id in ["TrackingID", "L3TrackingID"] {
            assert_eq!(get(plain, id), get(elsewhere, id), "{id}");
            assert_ne!(get(plain, id), get(other, id), "{id}");
        }
        let echo = |id| FlowKey {
            lo_port: [8, 0],
            hi_port: [8, 0],
            proto: 1,
            detail: id,
            ..plain
        };
        assert_ne!(get(echo(1), "L3TrackingID"), get(echo(2), "L3TrackingID"));
        let arp = FlowKey {
            kind: skua_flow::KIND_ETHERNET,
            proto: 0,
            detail: 0x806,
            ..plain
        };
        with(&update(arp), |flow| {
            assert!(!flow.has("L3TrackingID") && flow.has("TrackingID"))
        });
    }

    /// Fields of Skydive's flows (`flow.proto`), and whether queries have them here.
    const OF_SKYDIVE: &[(&str, bool)] = &[
        ("UUID", true),
        ("LayersPath", true),
        ("Application", true),
        ("Link.Protocol", true),
        ("Link.A", true),
        ("Link.B", true),
        ("Link.ID", true),
        ("Network.Protocol", true),
        ("Network.A", true),
        ("Network.B", true),
        ("Network.ID", true),
        ("Transport.Protocol", true),
        ("Transport.A", true),
        ("Transport.B", true),
        ("Transport.ID", false),
        ("ICMP.Type", true),
        ("ICMP.Code", true),
        ("ICMP.ID", true),
        ("DHCPv4", false),
        ("DNS", false),
        ("VRRPv2", false),
        ("LastUpdateMetric.ABPackets", true),
        ("LastUpdateMetric.ABBytes", true),
        ("LastUpdateMetric.BAPackets", true),
        ("LastUpdateMetric.BABytes", true),
        ("LastUpdateMetric.Start", true),
        ("LastUpdateMetric.Last", true),
        ("LastUpdateMetric.RTT", false),
        ("Metric.ABPackets", true),
        ("Metric.ABBytes", true),
        ("Metric.BAPackets", true),
        ("Metric.BABytes", true),
        ("Metric.Start", true),
        ("Metric.Last", true),
        ("Metric.RTT", true),
        ("TCPMetric.ABSynStart", true),
        ("TCPMetric.BASynStart", true),
        ("TCPMetric.ABSynTTL", true),
        ("TCPMetric.ABFinStart", true),
        ("TCPMetric.ABRstStart", true),
        ("TCPMetric.ABSegmentOutOfOrder", true),
        ("TCPMetric.BASegmentOutOfOrder", true),
        ("TCPMetric.ABSegmentSkipped", true),
        ("TCPMetric.ABSegmentSkippedBytes", true),
        ("TCPMetric.ABPackets", false),
        ("TCPMetric.ABBytes", false),
        ("TCPMetric.ABSawStart", false),
        ("TCPMetric.ABSawEnd", false),
        ("IPMetric.Fragments", true),
        ("IPMetric.FragmentErrors", false),
        ("Start", true),
        ("Last", true),
        ("TrackingID", true),
        ("L3TrackingID", true),
        ("ParentUUID", true),
        ("NodeTID", true),
        ("CaptureID", true),
        ("LastRawPackets", false),
        ("RawPacketsCaptured", true),
        ("FinishType", true),
    ];

    #[test]
    fn the_page_says_of_each_field_of_skydive_whether_it_is_here() {
        let page = include_str!("../../../../docs/gremlin.md");
        let (_, table) = page.split_once("### Fields of flows").unwrap();
        let table = table.split("\n## ").next().unwrap();
        for (field, here) in OF_SKYDIVE {
            assert_eq!(getter(field).is_some(), *here, "{field}");
            let row = table.lines().find(|line| {
                let first = line.split('|').nth(1).unwrap_or_default();
                first.split('`').any(|name| name == *field)
            });
            let row = row.unwrap_or_else(|| panic!("{field} is not in the table"));
            assert_eq!(
                row.split('|').nth(2).map(str::trim) != Some("absent"),
                *here,
                "{row}"
            );
        }
    }
}
