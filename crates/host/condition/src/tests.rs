use skua_flow::{ConversationOwner, Counters, FlowKey, FlowLine, FlowRecord, FlowUpdate, Rate};

use super::*;

/// curl on 10.0.0.1:40000 calls nginx on 10.0.0.2:443.
fn record() -> FlowRecord {
    let mut key = FlowKey {
        proto: 6,
        kind: 1,
        lo_port: 40_000u16.to_be_bytes(),
        hi_port: 443u16.to_be_bytes(),
        ..FlowKey::default()
    };
    key.lo[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    key.hi[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    let mut update = FlowUpdate {
        key,
        lo_first: true,
        lo_sent: Counters {
            packets: 10,
            bytes: 1_000,
        },
        hi_sent: Counters {
            packets: 20,
            bytes: 1_000_000,
        },
        first_ns: 1_000_000_000,
        last_ns: 3_000_000_000,
        ..FlowUpdate::default()
    };
    update.tcp.flags = [0x12, 0x12];
    update.tcp.counters.retransmitted = [0, 3];
    let mut record = FlowRecord::new(&update, 1, 1, 1, 1);
    record.service = Some(skua_flow::Service {
        lo: false,
        by: skua_flow::ServiceRule::Kernel,
    });
    record
}

fn holds(text: &str) -> bool {
    let record = record();
    let owner = |process, pid, user| ConversationOwner {
        process,
        pid,
        user,
        ..ConversationOwner::default()
    };
    let line = FlowLine {
        rate: Rate {
            bits_per_second: 2e6,
            packets_per_second: 200.0,
        },
        owners: [
            owner("curl", 7, "ann"),
            ConversationOwner {
                container: "Web",
                ..owner("nginx", 80, "root")
            },
        ],
        ..record.line("blue/eth0")
    };
    let subject = Subject {
        line: &line,
        service: "Web",
    };
    let conditions = Conditions::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    conditions.hold_at(&subject) && conditions.hold(&subject)
}

fn error(text: &str) -> String {
    Conditions::parse(text).unwrap_err().to_string()
}

#[test]
fn what_files_say_of_addresses_is_asked() {
    assert!(!holds("country:DE"));
    let parse =
        |text: &str| std::sync::Arc::new(skua_networks::Ranges::parse(text.as_bytes()).unwrap());
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../networks/tests/files/maxmind-asn.mmdb"
    );
    let database = skua_networks::Database::new(std::fs::read(file).unwrap()).unwrap();
    let ranges = vec![parse("10.0.0.0/30,two of us")];
    skua_networks::install(skua_networks::Networks {
        databases: vec![database.into()],
        ranges,
        ..Default::default()
    });
    for text in [
        "network:\"two of us\"",
        "network:two*",
        "server.network:*us",
        "asn:\"\" -asn:64500",
        "country: organization:",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in ["network:us", "asn:1-9", "country:*e", "organization:*x*"] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn each_key_is_asked_of_the_conversation() {
    for text in [
        "",
        "process:curl port:443",
        "process:curl,wget",
        "process:c*l -process:sshd",
        "client.process:curl server.process:nginx",
        "a.process = curl and b_port=443",
        "port:400-500",
        "port>=443 port!=80",
        "address:10.0.0.0/24",
        "address:10.0.0.2 -address:192.0.2.0/24",
        "service:Web container:*",
        "client.container:",
        "protocol:tcp,udp",
        "state:established",
        "rate>1Mbit rate<=2Mbit/s rate > 1.5M",
        "bytes>1MB bytes<1MiB",
        "packets:30 packets=30",
        "retransmits>2",
        "age:2s age>1s age<1m",
        "rtt:\"\"",
        "interface:*/eth0 namespace:blue",
        "vlan:",
        "user:root pid:7",
        "\"NGIN\"",
        "ngin -\"postgres\"",
        "10.0.0.",
        "tcp.ba_retransmitted:3",
        "duration>1500ms",
        "service_side:b",
        "end:",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in [
        "process:cur",
        "-process:curl",
        "process!=nginx",
        "process:curl -port:443",
        "client.port:443",
        "port:80,8080",
        "address:10.0.1.0/24",
        "rate>2Mbit",
        "rtt>1ms",
        "rtt<1ms",
        "state:closed",
        "namespace:red",
        "vlan:7",
        "\"apache\"",
        "-tcp",
        "container:web",
    ] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn sums_by_what_a_side_has_are_of_the_side_that_is_asked_for() {
    let record = record();
    let owner = |process| ConversationOwner {
        process,
        ..ConversationOwner::default()
    };
    let line = FlowLine {
        owners: [owner("curl"), owner("nginx")],
        ..record.line("eth0")
    };
    let subject = Subject {
        line: &line,
        service: "",
    };
    let conditions = Conditions::parse("process:curl port:443").unwrap();
    assert!(conditions.hold_for(&subject, true, SideField::Process));
    assert!(!conditions.hold_for(&subject, false, SideField::Process));
    assert!(conditions.hold_for(&subject, false, SideField::Container));
}

#[test]
fn errors_say_what_is_wrong_where_and_what_to_write() {
    for (text, expected) in [
        (
            "port:443 proces:curl",
            "`proces` at character 10: there is no such key; did you mean `process`?",
        ),
        ("colour:red", "keys are process, port, address"),
        ("port:http", "`http` at character 6: write a whole number"),
        ("rate>fast", "write a rate like 500kbit, 1Mbit"),
        ("rtt>10", "write a time like"),
        ("process>curl", "can only be compared with"),
        ("address:10.0.0.0/99", "write it like 10.0.0.0/8"),
        ("\"open", "the quote does not end"),
        ("process:a or process:b", "port:80,443"),
        ("not process:a", "write - before the condition"),
        ("(process:a)", "there are no brackets"),
        ("port:90-80", "ends before it begins"),
        ("port>1,2", "take one value"),
        ("-", "nothing stands behind it"),
        ("process:\"a\"b", "a blank must follow"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let many = |n: usize, s: &str| vec![s; n].join(" ");
    assert!(error(&many(33, "port:1")).contains("more than 32 conditions"));
    assert!(error(&"x".repeat(3_000)).contains("longer than 2048 bytes"));
    assert!(error(&format!("port:{}", vec!["1"; 65].join(","))).contains("more than 64 values"));
}

#[test]
fn what_is_no_condition_is_left_to_pcap() {
    for (text, expected) in [
        ("", Looks::Empty),
        ("process:curl", Looks::Conditions),
        ("-process:curl tcp", Looks::Conditions),
        ("rate > 1Mbit", Looks::Conditions),
        ("\"a b\"", Looks::Conditions),
        ("tcp port 443", Looks::Expression),
        ("ether host 02:00:00:00:00:01", Looks::Expression),
        ("host fe80::1", Looks::Unclear),
        ("tcp[13] & 2 != 0", Looks::Expression),
        ("!(udp)", Looks::Expression),
        ("proces:curl", Looks::Unclear),
        ("curl", Looks::Word),
        ("10.0.0.1", Looks::Word),
        ("len > 100", Looks::Expression),
    ] {
        assert_eq!(looks(text), expected, "{text}");
    }
}

#[test]
fn words_are_completed_at_the_end() {
    let of =
        |text: &str| -> Vec<String> { completions(text).into_iter().map(|one| one.text).collect() };
    assert_eq!(of("pro"), ["process:", "protocol:"]);
    assert_eq!(of("process:curl -por"), ["-port:"]);
    assert_eq!(of("state:est"), ["state:established"]);
    assert_eq!(of("state:closed,res"), ["state:closed,reset"]);
    assert_eq!(of("client.por"), ["client.port:"]);
    assert_eq!(of("rat"), ["rate>"]);
    assert_eq!(of("ho"), ["host "]);
    assert!(of("").len() >= key::KEYS.len());
    assert!(of("\"tex").is_empty());
    assert_eq!(
        completed("process:curl -por", "-port:"),
        "process:curl -port:"
    );
    for known in &key::KEYS {
        assert!(
            Conditions::parse(known.example).is_ok(),
            "{}",
            known.example
        );
    }
}
