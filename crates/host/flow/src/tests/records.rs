//! Records, their JSON and CSV, and the store.

use super::{packets::*, *};
use crate::{
    ConversationOwner, EndReason, FlowRecord, FlowStore, FlowUpdate, HashKey, Merged, Ownership,
    Query, Service, ServiceRule, SortBy, StoreLimits,
    fields::{self, FIELDS, FieldType},
};
use serde_json::{Value, json};
use skua_apps::tls::ClientHello;
use std::net::SocketAddr;
use std::path::Path;

const SEED: u64 = 0x5eed;

fn store(records: usize) -> FlowStore {
    let limits = StoreLimits {
        records,
        ..StoreLimits::default()
    };
    FlowStore::new(limits, SEED, 1)
}

/// Records of some frames, drained one second after noon.
fn records(frames: &[Vec<u8>]) -> FlowStore {
    let mut table = table();
    feed(&mut table, frames);
    let mut store = store(100);
    store.begin_drain(NOON + S);
    table.drain(NOON + S, |update| {
        store.apply(update);
    });
    store
}

/// JSON of the only record outside of tunnels.
fn json_of(frames: &[Vec<u8>]) -> Value {
    let store = records(frames);
    let found: Vec<_> = store.iter().collect();
    assert_eq!(found.len(), 1);
    serde_json::to_value(store.line(&found[0].into(), "eth0")).unwrap()
}

#[test]
fn json_has_the_promised_shape() {
    let query = ethernet(
        0x8100,
        &tag(7, 0x0800, &ipv4(9, 2, 17, &udp(1234, 53, b"query"))),
    );
    let answer = ethernet(
        0x8100,
        &tag(7, 0x0800, &ipv4(2, 9, 17, &udp(53, 1234, b"answer"))),
    );
    let store = records(&[query, answer]);
    let record = store.iter().next().unwrap();
    let id = format!("{:012x}", record.id);
    assert_eq!(record.id, record.key.id48(&HashKey::new(SEED)));
    let line = serde_json::to_string(&store.line(&record.into(), "eth0")).unwrap();
    let expected = format!(
        concat!(
            r#"{{"interface":"eth0","layers":"Ethernet/Dot1Q/IPv4/UDP","protocol":"udp","#,
            r#""a":{{"address":"10.0.0.9","port":1234}},"b":{{"address":"10.0.0.2","port":53}},"#,
            r#""ab":{{"packets":1,"bytes":51}},"ba":{{"packets":1,"bytes":52}},"#,
            r#""start":"2026-11-21T10:00:00.000000000Z","last":"2026-11-21T10:00:00.001000000Z","#,
            r#""community_id":"{}","id":"{}","duration":1000000,"ifindex":2,"#,
            r#""link":{{"a":"02:00:00:00:00:01","b":"02:00:00:00:00:02"}},"vlans":[7],"#,
            r#""rate":{{"bits_per_second":824.0,"packets_per_second":2.0}}}}"#,
        ),
        record.community_id().unwrap(),
        id
    );
    assert_eq!(line, expected);
}

#[test]
fn json_of_tcp_icmp_arp_and_tunnels() {
    let tcp = json_of(&[
        server(SYN | ACK, 1, b""),
        client(ACK, 2, b""),
        server(FIN | ACK, 2, b""),
    ]);
    assert_eq!(tcp["a"]["address"], "10.0.0.2", "who spoke first");
    assert_eq!(
        tcp["tcp"],
        json!({
            "state": "closing", "opened_by": "b", "client_rtt": MS,
            "ab_flags": "FSA", "ba_flags": "A",
            "ab_retransmitted": 0, "ba_retransmitted": 0,
            "ab_out_of_order": 0, "ba_out_of_order": 0,
            "ab_zero_window": 0, "ba_zero_window": 0,
            "ab_syn": "2026-11-21T10:00:00.000000000Z", "ab_fin": "2026-11-21T10:00:00.002000000Z",
            "ab_syn_ttl": 64,
        })
    );

    let ecn = json_of(&[
        client(SYN | ECE | CWR, 1, b""),
        server(SYN | ACK | ECE, 1, b""),
        client(ACK | CWR, 2, b"asks"),
        server(ACK, 2, b""),
    ]);
    assert_eq!(
        (&ecn["tcp"]["ab_ecn"], &ecn["tcp"]["ba_ecn"]),
        (&json!("EC"), &json!("E"))
    );

    let icmp4 = json_of(&[ethernet(0x0800, &ipv4(1, 2, 1, &icmp(8, 0, 77)))]);
    assert_eq!(icmp4["icmp"], json!({"type": 8, "code": 0, "id": 77}));
    assert_eq!(
        (&icmp4["a"]["port"], &icmp4["protocol"]),
        (&json!(0), &json!("icmp"))
    );
    assert!(icmp4.get("tcp").is_none());
    let icmp6 = json_of(&[ethernet(0x86dd, &ipv6(1, 2, 58, &icmp(1, 4, 77)))]);
    assert_eq!(icmp6["icmp"], json!({"type": 1, "code": 4}));
    assert_eq!(icmp6["a"]["address"], "2001:db8::1");
    let cut = json_of(&[ethernet(0x0800, &ipv4(1, 2, 1, &[8]))]);
    assert!(cut.get("icmp").is_none());

    let arp = json_of(&[ethernet(0x0806, &[0; 46])]);
    assert_eq!(arp["a"], json!({"address": "02:00:00:00:00:01"}));
    assert_eq!(
        (&arp["ethertype"], &arp["protocol"]),
        (&json!(0x0806), &json!("arp"))
    );
    assert!(arp.get("community_id").is_none());

    let store = records(&[vxlan(5, &there(b""))]);
    let child = store.iter().find(|r| r.key.tunnel().is_some()).unwrap();
    let parent = store.iter().find(|r| r.key.tunnel().is_none()).unwrap();
    let json = serde_json::to_value(child.line("eth0")).unwrap();
    let id = format!("{:012x}", parent.id);
    assert_eq!(
        json["tunnel"],
        json!({"type": "vxlan", "id": 5, "parent": id})
    );
}

#[test]
fn layers_and_protocols() {
    let ip = |proto| ethernet(0x0800, &ipv4(1, 2, proto, &[0; 20]));
    for (frame, layers, protocol) in [
        (there(b""), "Ethernet/IPv4/UDP", "udp"),
        (ip(253), "Ethernet/IPv4/IPProto-253", "253"),
        (ip(47), "Ethernet/IPv4/GRE", "gre"),
        (ip(132), "Ethernet/IPv4/SCTP", "sctp"),
        (
            ethernet(
                0x88a8,
                &tag(
                    1,
                    0x8100,
                    &tag(2, 0x86dd, &ipv6(1, 2, 6, &tcp(1, 2, 0, 0, b""))),
                ),
            ),
            "Ethernet/Dot1Q/Dot1Q/IPv6/TCP",
            "tcp",
        ),
        (
            ethernet(0x86dd, &ipv6(1, 2, 58, &icmp(135, 0, 0))),
            "Ethernet/IPv6/ICMPv6/ICMPv6NeighborSolicitation",
            "icmpv6",
        ),
        (
            ethernet(0x0800, &ipv4(1, 2, 1, &icmp(8, 0, 0))),
            "Ethernet/IPv4/ICMPv4",
            "icmp",
        ),
        (ethernet(0x0806, &[]), "Ethernet/ARP", "arp"),
        (ethernet(0x88cc, &[]), "Ethernet/LLDP", "lldp"),
        (ethernet(0x0026, &[]), "Ethernet/LLC", "llc"),
        (ethernet(0x88b5, &[]), "Ethernet/0x88b5", "0x88b5"),
        (ethernet(0x0800, &[]), "Ethernet/IPv4", "ipv4"),
    ] {
        let json = json_of(&[frame]);
        assert_eq!(
            (&json["layers"], &json["protocol"]),
            (&json!(layers), &json!(protocol))
        );
    }
    let mut table = table();
    table.packet(ETH0, &raw(&ipv4(1, 2, 6, &tcp(1, 2, ACK, 0, b""))), NOON);
    table.packet(ETH0, &raw(&[0]), NOON);
    let mut layers: Vec<_> = finish(&mut table)
        .iter()
        .map(|update| FlowRecord::new(update, 1, 1, NOON, 1))
        .map(|record| crate::names::Layers(&record).to_string())
        .collect();
    layers.sort();
    assert_eq!(layers, ["IPv4/TCP", "Unknown"]);
}

#[test]
fn community_ids_are_those_of_the_specification() {
    // The baseline of the specification, checked against another implementation.
    let id = |src: &str, dst: &str, proto, payload: &[u8]| {
        let (src, dst): (std::net::IpAddr, std::net::IpAddr) =
            (src.parse().unwrap(), dst.parse().unwrap());
        let frame = match (src, dst) {
            (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
                let mut ip = ipv4(0, 0, proto, payload);
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                ethernet(0x0800, &ip)
            }
            (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
                let mut ip = ipv6(0, 0, proto, payload);
                ip[8..24].copy_from_slice(&src.octets());
                ip[24..40].copy_from_slice(&dst.octets());
                ethernet(0x86dd, &ip)
            }
            _ => unreachable!(),
        };
        json_of(&[frame])["community_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let client_server = ("128.232.110.120", "66.35.250.204");
    let tcp_id = "1:LQU9qZlK+B5F3KDmev6m5PMibrg=";
    let (client, server) = client_server;
    assert_eq!(id(client, server, 6, &tcp(34855, 80, SYN, 0, b"")), tcp_id);
    assert_eq!(id(server, client, 6, &tcp(80, 34855, SYN, 0, b"")), tcp_id);
    assert_eq!(
        id("192.168.1.52", "8.8.8.8", 17, &udp(54585, 53, b"")),
        "1:d/FP5EW3wiY1vCndhwleRRKHowQ="
    );
    assert_eq!(
        id(
            "192.168.170.8",
            "192.168.170.56",
            132,
            &[0, 7, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0]
        ),
        "1:jQgCxbku+pNGw8WPbEc/TS/uTpQ="
    );
    let (a, b) = ("192.168.0.89", "192.168.0.1");
    let echo = "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=";
    assert_eq!(id(a, b, 1, &icmp(8, 0, 1)), echo);
    assert_eq!(id(b, a, 1, &icmp(0, 0, 1)), echo);
    assert_eq!(
        id(b, a, 1, &icmp(8, 0, 1)),
        "1:Xd3I0IiB3MnC0cDe3fbqH8+dDGI="
    );
    // One-way messages depend on the sender.
    assert_eq!(
        id(a, b, 1, &icmp(20, 0, 1)),
        "1:3o2RFccXzUgjl7zDpqmY7yJi8rI="
    );
    assert_eq!(
        id(b, a, 1, &icmp(20, 0, 1)),
        "1:xka8imJTHE0ZCHTDqMsnK5QKoh8="
    );
    let (a, b) = ("fe80::200:86ff:fe05:80da", "fe80::260:97ff:fe07:69ea");
    let neighbour = "1:dGHyGvjMfljg6Bppwm3bg0LO8TY=";
    assert_eq!(id(a, b, 58, &icmp(135, 0, 0)), neighbour);
    assert_eq!(id(b, a, 58, &icmp(136, 0, 0)), neighbour);
    assert_eq!(
        id(
            "2001:db8::1",
            "2001:db8::2",
            6,
            &tcp(1000, 2000, SYN, 0, b"")
        ),
        "1:qa/3Kko/gwSmxNQFnO26+47BvpI="
    );
    for kind in [0, 8] {
        let own = id("10.0.0.1", "10.0.0.1", 1, &icmp(kind, 0, 1));
        assert_eq!(own, "1:Q2R99S5FzFXN21OqJRTsA4EVBTo=");
    }
    // Protocols whose ports are not part of it.
    assert_eq!(
        id("10.1.24.4", "10.1.12.1", 46, &[0; 8]),
        "1:/nQI4Rh/TtY3mf0R2gJFBkVlgS4="
    );
    assert_eq!(
        id("10.0.0.2", "10.0.0.1", 50, &[0; 16]),
        "1:dX+1pd7Z9Y9hJE/IuQlfvK7bxuA="
    );
    assert_eq!(
        id("10.0.0.1", "10.0.0.2", 136, &udp(1, 2, b"")),
        "1:ZdbMY0WBLRrVCaZP2xDg5pf76hg="
    );
}

/// Files that say something of addresses for documentation, and of port 80 alone: no other test has these.
fn follow_files() {
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../networks/tests/files");
    let own = std::env::temp_dir().join(format!("skua-flow-networks-{}", std::process::id()));
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(
        own.join("ranges.csv"),
        "198.51.100.0/24,site \"north\"\n203.0.113.0/24,south\n",
    )
    .unwrap();
    std::fs::write(own.join("services"), "www 2000/tcp\n").unwrap();
    skua_networks::follow(&skua_networks::Files {
        databases: [
            "maxmind-country.mmdb",
            "maxmind-asn.mmdb",
            "ipinfo-lite.mmdb",
        ]
        .map(|name| networks.join(name))
        .into(),
        ranges: vec![own.join("ranges.csv")],
        services: Some(own.join("services")),
    });
    std::fs::remove_dir_all(&own).unwrap();
}

#[test]
fn records_say_whose_addresses_are() {
    follow_files();
    let store = records(&[client(SYN, 1, b"")]);
    let mut record = *store.iter().next().unwrap();
    for address in [&mut record.key.lo, &mut record.key.hi] {
        address[12..].copy_from_slice(&[198, 51, 100, 1]);
    }
    record.service = Some(Service {
        lo: true,
        by: ServiceRule::Kernel,
    });
    record.key.lo_port = 2_000u16.to_be_bytes();
    let json = serde_json::to_value(record.line("eth0")).unwrap();
    for side in ["a", "b"] {
        let side = &json[side];
        assert_eq!(side["country"], "DE");
        assert_eq!(side["asn"], 64_500);
        assert_eq!(side["organization"], "Example, \"North\"");
        assert_eq!(side["network"], "site \"north\"");
    }
    assert_eq!(json["service"]["port_name"], "www");
    let mut row = Vec::new();
    fields::write_csv_row(&mut row, &record.line("eth0")).unwrap();
    let row = String::from_utf8(row).unwrap();
    let quoted = r#",DE,64500,"Example, ""North""","site ""north""","#;
    assert_eq!(row.matches(quoted).count(), 2, "{row}");
}

/// Every field, in JSON as in CSV.
#[test]
fn csv_has_the_fields_of_json() {
    follow_files();
    skua_apps::names::begin(16);
    skua_apps::hellos::begin();
    let all = [
        vec![there(b""), back(b"x")],
        vec![
            client(SYN | ECE | CWR, 1, b""),
            server(SYN | ACK | ECE, 1, b""),
            client(ACK, 2, b""),
        ],
        vec![ethernet(0x8100, &tag(1, 0x88a8, &tag(2, 0x0806, &[])))],
        vec![ethernet(0x0800, &ipv4(1, 2, 1, &icmp(8, 0, 3)))],
        vec![vxlan(9, &there(b""))],
    ];
    let mut header = Vec::new();
    fields::write_csv_header(&mut header).unwrap();
    let header = String::from_utf8(header).unwrap();
    let names: Vec<_> = header.trim_end().split(',').collect();
    assert_eq!(names.len(), FIELDS.len());
    let mut seen = vec![false; FIELDS.len()];
    for frames in all {
        let store = records(&frames);
        for record in store.iter() {
            let mut record = *record;
            record.sampling = 10;
            record.key.netns = 3;
            record.link.moved = 1;
            record.link.labels = [Some(16), Some(17)];
            record.fragments = 2;
            if record.key.proto == 6 {
                record.tcp.rst_ns = [NOON, NOON];
                record.tcp.fin_ns = [NOON, NOON];
                record.tcp.skipped = [1, 2];
                record.tcp.skipped_bytes = [1_448, 9];
            }
            if record.key.network() == crate::Network::V4 && record.key.proto == 6 {
                // Names with commas are another test's.
                record.key.lo[12..].copy_from_slice(&[203, 0, 113, 200]);
                record.key.hi = [0; 16];
                record.key.hi[12..].copy_from_slice(&[203, 0, 113, 201]);
                record.key.lo_port = 2_000u16.to_be_bytes();
                let end = |(ip, port)| SocketAddr::new(record.key.ip(ip).unwrap(), port);
                let (a, b) = (end(record.a()), end(record.b()));
                for (client, server) in [(a, b), (b, a)] {
                    skua_apps::names::add(client.ip(), server.ip(), "api.example.com", NOON - 1);
                }
                let hello = ClientHello {
                    server_name: "api.example.com".into(),
                    protocols: vec!["h2".into()],
                    version: 0x0304,
                    encrypted: true,
                    ja4: "t13d1516h2_8daaf6152771_e5627efa2ab1".into(),
                };
                skua_apps::hellos::learn(a, b, record.first_ns, hello);
            }
            record.end = Some(EndReason::Evicted);
            record.service = Some(Service {
                lo: true,
                by: ServiceRule::Listening,
            });
            let mut merged = Merged::from(&record);
            merged.points = 2;
            let mut line = store.line(&merged, "eth0");
            line.owners = [ConversationOwner {
                process: "curl",
                pid: 7,
                user: "",
                uid: Some(33),
                container: "web",
                pod: "shop",
                unit: "docker.service",
            }; 2];
            let json = serde_json::to_value(line).unwrap();
            let mut row = Vec::new();
            fields::write_csv_row(&mut row, &line).unwrap();
            let row = String::from_utf8(row).unwrap();
            let cells: Vec<_> = row.trim_end_matches('\n').split(',').collect();
            assert_eq!(cells.len(), FIELDS.len());
            for (place, field) in FIELDS.iter().enumerate() {
                assert_eq!(names[place], field.path.replace('.', "_"));
                let value = field
                    .path
                    .split('.')
                    .try_fold(&json, |json, name| json.get(name));
                let text = match value {
                    None => String::new(),
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Array(list)) => {
                        assert_eq!(field.kind, FieldType::Integers);
                        let items: Vec<_> = list.iter().map(Value::to_string).collect();
                        items.join(" ")
                    }
                    Some(number) => {
                        let integer =
                            matches!(field.kind, FieldType::Integer | FieldType::Integer32);
                        assert!(number.is_u64() == integer, "{}", field.path);
                        let text = number.to_string();
                        text.strip_suffix(".0").unwrap_or(&text).to_owned()
                    }
                };
                assert_eq!(cells[place], text, "{}", field.path);
                assert!(
                    value.is_some() || !field.absent.is_empty(),
                    "{}",
                    field.path
                );
                seen[place] |= value.is_some();
            }
        }
    }
    for (field, seen) in FIELDS.iter().zip(seen) {
        assert!(seen, "no record has {}", field.path);
    }
}

#[test]
fn the_schema_describes_what_is_written() {
    fn check(schema: &Value, value: &Value) {
        for name in schema["required"].as_array().unwrap() {
            assert!(
                value.get(name.as_str().unwrap()).is_some(),
                "{name} in {value}"
            );
        }
        for (name, value) in value.as_object().unwrap() {
            let schema = &schema["properties"][name];
            let kind = match value {
                Value::Object(_) => {
                    check(schema, value);
                    "object"
                }
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(number) if number.is_u64() => "integer",
                _ => "number",
            };
            assert_eq!(schema["type"], kind, "{name}");
        }
    }
    let schema = fields::json_schema();
    check(&schema, &json_of(&[client(SYN, 1, b"")]));
    check(&schema, &json_of(&[ethernet(0x8100, &tag(1, 0x0806, &[]))]));
    let store = records(&[vxlan(9, &there(b""))]);
    for record in store.iter() {
        check(
            &schema,
            &serde_json::to_value(store.line(&record.into(), "eth0")).unwrap(),
        );
    }
}

#[test]
fn csv_quotes_names_that_need_it() {
    let store = records(&[there(b"")]);
    let merged = store.iter().next().unwrap().into();
    let line = store.line(&merged, "a,\"b");
    let mut row = Vec::new();
    fields::write_csv_row(&mut row, &line).unwrap();
    assert!(row.starts_with(b"\"a,\"\"b\",,Ethernet/IPv4/UDP,"));
}

#[test]
fn records_sum_up_updates() {
    let mut table = table();
    let mut store = store(10);
    let mut one = |store: &mut FlowStore, frame: Vec<u8>, at: u64| -> FlowRecord {
        table.packet(ETH0, &Frame::ethernet(&frame), at);
        store.begin_drain(at);
        let mut record = None;
        table.drain(at, |update| record = Some(*store.apply(update)));
        record.unwrap()
    };
    one(&mut store, server(SYN | ACK, 9, b""), NOON);
    one(&mut store, client(ACK, 1, b"abc"), NOON + S);
    let record = one(&mut store, client(ACK, 1, b"abc"), NOON + 3 * S);
    assert_eq!(
        (record.ab(), record.ba()),
        (counted(1, 54), counted(2, 114))
    );
    assert_eq!((record.first_ns, record.last_ns), (NOON, NOON + 3 * S));
    assert_eq!(record.by_a(record.tcp.counters.retransmitted), [0, 1]);
    assert_eq!(record.tcp.client_rtt_ns, S);
    // 57 bytes in two seconds.
    assert_eq!(
        (
            record.interval.rate().bits_per_second,
            record.interval.rate().packets_per_second
        ),
        (228.0, 0.5)
    );
    assert_eq!(store.get(&record.key), Some(&record));
    // All 168 bytes since the first packet, three seconds ago.
    assert_eq!(store.rate(&record).bits_per_second, 448.0);
    // Drains that do not touch it: in the end nothing flows.
    for second in 4..14 {
        store.begin_drain(NOON + second * S);
    }
    assert_eq!(store.rate(&record).bits_per_second, 0.0);
}

/// An update of the flow with this number.
fn update(flow: u8, bytes: u64, end: Option<EndReason>) -> FlowUpdate {
    let mut update = only(&[ethernet(0x0800, &ipv4(1, flow, 17, &udp(1, 2, b"")))]);
    update.lo_sent = counted(1, bytes);
    update.first_ns += u64::from(flow);
    update.last_ns += u64::from(flow);
    update.end = end;
    update
}

#[test]
fn the_store_is_bounded_and_counts_what_goes() {
    let mut store = store(3);
    store.begin_drain(NOON + S);
    let ended = Some(EndReason::Idle);
    store.apply(&update(2, 10, ended));
    store.apply(&update(3, 20, None));
    store.apply(&update(4, 30, ended));
    // The one that ended first goes first, then the other, and only then an active one.
    store.apply(&update(5, 40, None));
    let bytes = |store: &FlowStore| {
        let mut bytes: Vec<_> = store.iter().map(|r| r.total().bytes).collect();
        bytes.sort_unstable();
        bytes
    };
    assert_eq!(bytes(&store), [20, 30, 40]);
    store.apply(&update(6, 50, None));
    assert_eq!(bytes(&store), [20, 40, 50]);
    store.begin_drain(NOON + 2 * S);
    store.apply(&update(3, 1, None));
    store.apply(&update(6, 1, None));
    store.apply(&update(7, 60, None));
    assert_eq!(bytes(&store), [21, 51, 60], "the quiet one went");
    let summary = store.summary();
    assert_eq!(
        (
            summary.flows,
            summary.active,
            summary.ended,
            summary.evicted
        ),
        (6, 3, 0, 3)
    );
    assert_eq!(summary.evicted_counted, counted(3, 80));
    assert_eq!(summary.counted, counted(8, 212));
    // What went comes back as a new record.
    store.apply(&update(5, 5, None));
    assert_eq!(store.summary().flows, 7);
    assert_eq!(
        store.get(&update(5, 0, None).key).unwrap().total(),
        counted(1, 5)
    );
}

#[test]
fn memory_limits_records() {
    let limits = StoreLimits {
        records: usize::MAX,
        bytes: 1024,
    };
    let mut store = FlowStore::new(limits, SEED, 1);
    for flow in 2..20 {
        store.apply(&update(flow, 1, None));
    }
    let kept = store.iter().count();
    assert!((2..=3).contains(&kept), "{kept}");
    let size = size_of::<FlowRecord>();
    assert!(size <= 384, "{size}");
}

#[test]
fn a_conversation_that_goes_on_after_its_end_is_a_new_record() {
    let mut store = store(10);
    store.apply(&update(2, 10, Some(EndReason::Closed)));
    store.apply(&update(2, 20, None));
    store.apply(&update(2, 30, None));
    let summary = store.summary();
    assert_eq!((summary.flows, summary.active, summary.ended), (2, 1, 1));
    assert_eq!(
        store.get(&update(2, 0, None).key).unwrap().total().bytes,
        50
    );
}

#[test]
fn queries() {
    let mut store = store(100);
    store.begin_drain(NOON + S);
    for flow in 2..50 {
        // Bytes and times in opposite orders.
        store.apply(&update(flow, 1000 - u64::from(flow), None));
    }
    let found = |sort, limit, least: u64| -> Vec<u64> {
        let query = Query {
            sort,
            limit,
            ..Query::all()
        }
        .with_filter(|record| record.total().bytes >= least);
        let found = store.query(&query);
        found.iter().map(|m| m.record.total().bytes).collect()
    };
    assert_eq!(found(SortBy::Bytes, 3, 0), [998, 997, 996]);
    assert_eq!(found(SortBy::Rate, 2, 0), [998, 997]);
    assert_eq!(found(SortBy::Last, 3, 0), [951, 952, 953]);
    assert_eq!(found(SortBy::First, 2, 990), [990, 991]);
    assert_eq!(found(SortBy::Packets, 100, 996).len(), 3);
    assert_eq!(found(SortBy::Bytes, 0, 0), [0u64; 0]);
}

#[test]
fn owners_are_looked_for_with_the_first_updates_only() {
    let mut store = store(10);
    let one = std::num::NonZeroU32::new(7);
    let rule = |by| Some(Service { lo: true, by });
    let mut asked = 0;
    let mut apply = |store: &mut FlowStore, found: Ownership| {
        *store.apply_owned(&update(2, 10, None), |_| {
            asked += 1;
            found
        })
    };
    let half = Ownership {
        owners: [one, None],
        service: rule(ServiceRule::Listening),
    };
    assert_eq!(apply(&mut store, half).owners, [one, None]);
    // What is not found later stays, and a worse rule does not replace a better one.
    let worse = Ownership {
        owners: [None; 2],
        service: rule(ServiceRule::Syn),
    };
    let record = apply(&mut store, worse);
    assert_eq!(record.owners, [one, None]);
    assert_eq!(record.service, half.service);
    for _ in 0..5 {
        apply(&mut store, Ownership::default());
    }
    assert_eq!(asked, crate::store::JOINS);
    let mut store = self::store(10);
    let whole = Ownership {
        owners: [one; 2],
        service: None,
    };
    let mut asked = 0;
    for _ in 0..3 {
        store.apply_owned(&update(2, 10, None), |_| {
            asked += 1;
            whole
        });
    }
    assert_eq!(asked, 1, "both sides are known");
}

/// A socket that opens after the poll of sockets, just before flows are read, is found by the next drain,
/// though no packet follows.
#[test]
fn owners_that_come_late_are_found_without_another_packet() {
    let mut store = store(10);
    store.note_touched();
    let found = Ownership {
        owners: [std::num::NonZeroU32::new(7); 2],
        service: None,
    };
    let nobody = |_: &FlowRecord| Ownership::default();
    let mut late = update(2, 10, None);
    late.last_ns = NOON + S;
    let mut old = update(3, 10, None);
    old.last_ns = NOON;
    store.begin_drain(NOON + S);
    store.apply_owned(&late, nobody);
    store.apply_owned(&old, nobody);
    store.end_drain();

    store.begin_drain(NOON + 2 * S);
    store.retry_owners(|_| found);
    store.end_drain();
    let owned: Vec<_> = store.iter().filter(|r| r.owners == found.owners).collect();
    assert_eq!(owned.len(), 1, "the other existed when sockets were polled");
    assert_eq!(owned[0].key, late.key);
    let touched: Vec<_> = store.touched().map(|r| r.key).collect();
    assert_eq!(touched, [late.key], "followers of the store get it");
    assert_eq!(owned[0].last_ns, late.last_ns);

    store.begin_drain(NOON + 3 * S);
    store.retry_owners(|_| panic!("asked once"));
    assert_eq!(store.touched().count(), 0);
}

/// Two CPUs that see a conversation first at once make two entries of it.
#[test]
fn two_entries_of_a_conversation_are_one_record() {
    let mut store = store(10);
    store.begin_drain(NOON + S);
    let (mut busy, mut idle) = (update(2, 10, None), update(2, 20, None));
    busy.last_ns += 5 * S;
    store.apply(&busy);
    store.apply(&idle);
    idle.end = Some(EndReason::Idle);
    idle.lo_sent = counted(0, 0);
    store.apply(&idle);
    assert!(store.iter().all(|r| r.end.is_none()));
    // At the end of the capture both end, one after the other.
    for update in [&mut busy, &mut idle] {
        update.end = Some(EndReason::Shutdown);
        store.apply(update);
    }
    assert_eq!(store.summary().flows, 1);
    let record = store.iter().next().unwrap();
    assert_eq!(record.end, Some(EndReason::Shutdown));
    assert_eq!(record.total().bytes, 10 + 20 + 10);
}
