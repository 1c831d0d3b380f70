//! The address set, changed while traffic flows.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};
use skua_testkit::access::BEARER;
use skua_testkit::{Ipv4, Packet};

use crate::lab::{
    Flow, Net, SendMode, Sender, Sent, Skua, Sum, Wire, root_tests,
    skua::{self, sum_of},
    tcp,
};

/// A file that is removed when dropped.
struct Lines(PathBuf);

impl Lines {
    fn new(name: &str, lines: impl IntoIterator<Item = String>) -> Self {
        let path = std::env::temp_dir().join(format!("lv-{}-{name}", std::process::id()));
        let text: Vec<String> = lines.into_iter().collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        Self(path)
    }

    fn argument(&self) -> String {
        format!("@{}", self.0.display())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// `skua addresses ARGS` of a running `skua run`; the answer as JSON.
fn addresses(net: &Net, skua: &Skua, args: &str) -> Value {
    let line = format!("addresses {args} --output json --analyzer {}", skua.address);
    let output = skua::output(net, &line);
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success(), "{line}: {err}");
    serde_json::from_str(&out).unwrap()
}

/// One line on standard error and status 1.
fn refusal(net: &Net, args: &str) -> String {
    let output = skua::output(net, args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args}: {text}");
    assert_eq!(text.lines().count(), 1, "{args}: {text}");
    text
}

/// Two sets that have nothing in common, with thousands of prefixes each, and that agree about two
/// conversations: one is counted, the other is not. While one replaces the other again and again,
/// there must be no packet that is judged otherwise, however it is captured.
#[test]
fn replacing_a_set_never_has_a_moment_with_another_policy() {
    if !root_tests() {
        return;
    }
    // 10.0.0.7 and 10.0.1.7.
    let (left_out, counted) = (Flow::numbered(7), Flow::numbered(0x107));
    let others =
        |first: u8| (0..5_000u16).map(move |n| format!("{first}.{}.{}.0/24", n >> 8, n & 255));
    let excluding = Lines::new("exclude", others(20).chain(["10.0.0.0/24".to_owned()]));
    let including = Lines::new("include", others(30).chain(["10.0.1.0/24".to_owned()]));
    let first = format!("replace --exclude {}", excluding.argument());
    let second = format!("replace --include {}", including.argument());
    for capture in ["", "--type afpacket"] {
        let wire = Wire::new();
        let (near, far) = (&wire.near, &wire.far);
        let skua = Skua::run(
            near,
            &format!(
                "--interface x0 --max-entries 1000 --scan-interval 100ms --exclude-net {} {capture}",
                excluding.argument()
            ),
        );
        let over = AtomicBool::new(false);
        let (there, back) = std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                let sender = Sender::open(far, "g0", SendMode::Bypass);
                let mut sent = [Sent::default(); 2];
                while !over.load(Ordering::Relaxed) {
                    sent[0] += sender.repeat(64, &left_out.frame(90));
                    sent[1] += sender.repeat(64, &counted.frame(70));
                    std::thread::yield_now();
                }
                sent
            });
            let back = scope.spawn(|| {
                let sender = Sender::open(near, "x0", SendMode::Queue);
                let mut sent = [Sent::default(); 2];
                while !over.load(Ordering::Relaxed) {
                    sent[0] += sender.repeat(64, &left_out.reversed().frame(90));
                    sent[1] += sender.repeat(64, &counted.reversed().frame(70));
                    std::thread::yield_now();
                }
                sent
            });
            for _ in 0..4 {
                let done = addresses(near, &skua, &second);
                assert_eq!(
                    done,
                    json!({"include": 5001, "exclude": 0, "added": 5001, "changed": 0, "removed": 5001})
                );
                let done = addresses(near, &skua, &first);
                assert_eq!(
                    (&done["include"], &done["exclude"]),
                    (&json!(0), &json!(5001))
                );
            }
            over.store(true, Ordering::Relaxed);
            (there.join().unwrap(), back.join().unwrap())
        });
        let flows = skua.flows();
        let report = skua.stop();
        let sum = |i: usize| there[i].sum + back[i].sum + back[i].dropped;
        assert!(sum(0).packets > 10_000, "{:?}", sum(0));
        let (left_out, counted) = (report.left_out("address_set"), report.in_flows());
        let lost = report.all_lost();
        // A ring loses packets on a busy machine. It knows how many, not which.
        assert!(
            lost == Sum::ZERO || capture.contains("afpacket"),
            "{capture}: {}",
            report.0
        );
        assert!(
            left_out.packets <= sum(0).packets,
            "{capture}: {}",
            report.0
        );
        assert!(counted.packets <= sum(1).packets, "{capture}: {}", report.0);
        assert_eq!(
            left_out.packets + counted.packets + lost.packets,
            sum(0).packets + sum(1).packets,
            "{capture}: {}",
            report.0
        );
        if lost == Sum::ZERO {
            assert_eq!(left_out, sum(0), "{capture}: {}", report.0);
            assert_eq!(counted, sum(1), "{capture}: {}", report.0);
        }
        assert_eq!(flows.len(), 1);
        assert_eq!(sum_of(&flows), counted);
    }
}

/// What the command says is in force when it returns, for each way to capture.
#[test]
fn changes_are_in_force_when_the_command_returns() {
    if !root_tests() {
        return;
    }
    let ways = [
        "",
        "--hook clsact",
        "--hook socket",
        "--type xdp",
        "--type afpacket",
        "--type pcap",
    ];
    for capture in ways {
        let wire = Wire::new();
        let near = &wire.near;
        let skua = Skua::run(
            near,
            &format!("--interface x0 --max-entries 1000 {capture}"),
        );
        let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
        let frame = |n: u64| Flow::numbered(n as u32 % 4).frame(100);
        // The first address of four, and the one that all send to.
        let mut expected = Sum::ZERO;
        let mut sent = Sum::ZERO;
        let steps = [
            ("add --exclude 10.0.0.0", 25),
            ("add --include 10.0.0.0/30 --exclude 10.0.0.1", 50),
            ("remove 10.0.0.0/30", 50),
            ("add --include 10.0.0.3", 75),
            ("add --exclude 172.16.0.0/12", 100),
            ("replace --include 172.16.0.1 --exclude 10.0.0.2/31", 50),
            ("replace --exclude ::/0 fd00::1", 0),
            ("clear", 0),
        ];
        for (step, left_out) in steps {
            addresses(near, &skua, step);
            sent += sender.send(100, frame).sum;
            expected += Sum::new(left_out, left_out * 100);
            // Packet rings are read some time later, by the set that is in force then.
            let report = skua.fresh_summary();
            assert_eq!(report.seen(), sent, "{capture}, {step}: {}", report.0);
            assert_eq!(
                report.left_out("address_set"),
                expected,
                "{capture}, {step}: {}",
                report.0
            );
        }
        let report = skua.stop();
        assert_eq!(
            report.in_flows() + expected,
            sent,
            "{capture}: {}",
            report.0
        );
    }
}

/// Both ways, all fragments and bundles of segments of a conversation, or none.
#[test]
fn no_conversation_is_half_counted() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let (near, far) = (&wire.near, &wire.far);
    let skua = Skua::run(
        near,
        "--interface x0 --max-entries 1000 --exclude-net 10.7.0.1 --exclude-net 10.0.0.0/24",
    );
    let before = near.counters("x0");
    // TCP with its handshake, bundles both ways.
    tcp::bulk(far, near, "10.7.0.2:5001", 4 << 20);
    tcp::bulk(near, far, "10.7.0.1:5002", 4 << 20);
    let sender = Sender::open(far, "g0", SendMode::Bypass);
    let fragment = |from: &str, place: u16, more: bool| {
        let ip = Ipv4::between(from, "172.16.0.1").fragment(7, 17, place, more);
        let packet = Packet::new().ethernet(1, 0x99).layer(ip);
        match place {
            0 => packet.udp(5000, 6000).zeros(72).build(),
            _ => packet.zeros(80).build(),
        }
    };
    let mut arp = Packet::new().ethernet(1, 0x99).zeros(46).build();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let six = Packet::new().ethernet(1, 0x99).ipv6("fd00::1", "fd00::2");
    let six = six.udp(1, 2).zeros(10).build();
    let mut counted = Sum::ZERO;
    for (from, wanted) in [("10.0.0.9", false), ("10.0.1.9", true)] {
        for (place, more) in [(0, true), (10, true), (20, false)] {
            let sent = sender.repeat(3, &fragment(from, place, more)).sum;
            counted += if wanted { sent } else { Sum::ZERO };
        }
    }
    counted += sender.repeat(5, &arp).sum + sender.repeat(5, &six).sum;
    let flows = skua.flows();
    assert_eq!(flows.len(), 3, "{flows:#?}");
    assert_eq!(sum_of(&flows), counted);
    let udp = flows.iter().find(|f| f["a"]["address"] == "10.0.1.9");
    assert_eq!(Sum::of(&udp.unwrap()["ab"]).packets, 9);

    // With an include, what has no IP is not counted either.
    addresses(near, &skua, "add --include fd00::/64");
    sender.repeat(7, &arp);
    counted += sender.repeat(7, &six).sum;
    sender.repeat(7, &Flow::numbered(0x200).frame(80));
    let report = skua.stop();
    let settled = near.settled_counters("x0") - before;
    assert_eq!(
        report.seen(),
        settled.rx + settled.tx + report.note("segmented"),
        "{}",
        report.0
    );
    assert_eq!(report.in_flows(), counted);
    assert_eq!(report.seen(), counted + report.left_out("address_set"));
    assert_eq!(report.0["addresses"], json!({"include": 1, "exclude": 2}));
}

/// Sets are the same in all namespaces.
#[test]
fn all_namespaces_have_the_same_set() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run_among(&wire.near, &[&wire.far], "--max-entries 1000");
    skua.wait_attached("x0");
    skua.wait_attached("g0");
    addresses(&wire.near, &skua, "add --exclude 10.0.0.1");
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    let out = sender.repeat(10, &Flow::numbered(1).frame(100)).sum;
    let counted = sender.repeat(20, &Flow::numbered(2).frame(100)).sum;
    let report = skua.fresh_summary();
    assert_eq!(report.left_out("address_set"), out + out, "{}", report.0);
    for interface in ["x0", "g0"] {
        let in_flows = Sum::of(&report.interface(interface)["in_flows"]);
        assert_eq!(in_flows, counted, "{interface}");
    }
    skua.stop();
}

#[test]
fn thousands_of_prefixes_go_in_and_out_in_one_go() {
    if !root_tests() {
        return;
    }
    let prefix = |n: u32| match n % 3 {
        0 => format!("10.{}.{}.0/24", n >> 8, n & 255),
        1 => format!("100.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255),
        _ => format!("2001:db8:{n:x}::/48"),
    };
    let file = Lines::new("many", (0..10_000).map(prefix));
    let wire = Wire::new();
    let near = &wire.near;
    let skua = Skua::run(near, "--interface x0 --max-entries 1000");
    let many = file.argument();
    let done = addresses(near, &skua, &format!("add --exclude {many} --include ::/0"));
    assert_eq!(
        (&done["added"], &done["exclude"]),
        (&json!(10_001), &json!(10_000))
    );
    let list = addresses(near, &skua, "list");
    assert_eq!(list["include"], json!(["::/0"]));
    assert_eq!(list["exclude"].as_array().unwrap().len(), 10_000);

    let metrics = skua.get("/metrics");
    assert!(
        metrics.contains("\nskua_address_prefixes{mark=\"exclude\"} 10000\n"),
        "{metrics}"
    );
    let doctor = skua::output(near, &format!("doctor --analyzer {}", skua.address));
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(
        doctor.contains("address set: 1 to include, 10000 to exclude"),
        "{doctor}"
    );

    // What `list` says, `PUT` takes.
    let (status, answer) = request(near, &skua.address, "PUT", &[], &list.to_string());
    assert_eq!(status, 200, "{answer}");
    let same: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&same["added"], &same["removed"]), (&json!(0), &json!(0)));

    let done = addresses(near, &skua, &format!("remove {many}"));
    assert_eq!(
        (&done["removed"], &done["exclude"]),
        (&json!(10_000), &json!(0))
    );
    let table = format!("addresses list --analyzer {}", skua.address);
    assert_eq!(skua::output(near, &table).stdout, b"include ::/0\n");
    skua.stop();
}

/// A request by hand, with `Host` and JSON content type unless they are given.
fn request(
    net: &Net,
    address: &str,
    method: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut text = format!("{method} /api/addresses HTTP/1.1\r\nConnection: close\r\n");
    let defaults = [
        ("Host", address),
        ("Content-Type", "application/json"),
        ("Authorization", BEARER),
    ];
    let given = |name: &str| headers.iter().any(|(n, _)| *n == name);
    let defaults = defaults.iter().filter(|(name, _)| !given(name));
    for (name, value) in defaults.chain(headers) {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = net.inside(|| TcpStream::connect(address)).unwrap();
    // It may have answered and closed before it has read all of a long body.
    let _ = stream.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

#[test]
fn what_is_wrong_is_told_in_one_line_and_changes_nothing() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let near = &wire.near;
    let config = Lines::new(
        "small.yaml",
        ["flow: {addresses: {include: [10.0.0.0/8], max_entries: 3}}".to_owned()],
    );
    let path = config.0.display();
    let skua = Skua::run(near, &format!("--config {path} --interface x0"));
    let at = &skua.address;
    let json = r#"{"include":["192.0.2.0/24"]}"#;

    // Pages of other sites.
    for (method, header, expected) in [
        ("PUT", ("Host", "evil.example"), 403),
        ("GET", ("Host", "evil.example:8082"), 403),
        ("PUT", ("Origin", "http://evil.example"), 403),
        ("DELETE", ("Origin", "null"), 403),
        ("POST", ("Content-Type", "text/plain"), 415),
        (
            "POST",
            ("Content-Type", "application/x-www-form-urlencoded"),
            415,
        ),
        ("PATCH", ("Accept", "*/*"), 405),
    ] {
        let (status, _) = request(near, at, method, &[header], json);
        assert_eq!(status, expected, "{method} {header:?}");
    }
    // Wrong, too many, too long.
    let huge = format!(r#"{{"include":["{}"]}}"#, "1".repeat(1 << 20));
    for (method, body, expected, says) in [
        (
            "PUT",
            r#"{"include":["192.0.2.0/24","10.0.0.1/8"]}"#,
            400,
            "include[1]: 10.0.0.1/8 has host bits set; did you mean 10.0.0.0/8",
        ),
        (
            "POST",
            r#"{"exclude":["example.com"]}"#,
            400,
            "exclude[0]: example.com is no IP prefix",
        ),
        (
            "DELETE",
            r#"{"prefixes":["10/8"]}"#,
            400,
            "did you mean 10.0.0.0/8?",
        ),
        ("DELETE", "", 400, "the text ends too early"),
        ("PUT", r#"{"inclde":[]}"#, 400, "inclde"),
        (
            "PUT",
            r#"{"include":["::/0"],"exclude":["::/0"]}"#,
            400,
            "::/0 is to be included and excluded",
        ),
        (
            "POST",
            r#"{"exclude":["10.0.0.1","10.0.0.2","10.0.0.3"]}"#,
            400,
            "4 prefixes, but flow.addresses.max_entries is 3",
        ),
        ("PUT", huge.as_str(), 413, "too long for 3 prefixes"),
    ] {
        let (status, answer) = request(near, at, method, &[], body);
        assert_eq!(status, expected, "{method}: {answer}");
        assert!(answer.contains(says), "{method}: {answer}");
        assert_eq!(answer.lines().count(), 1, "{answer}");
    }
    let unchanged = json!({"include": ["10.0.0.0/8"], "exclude": []});
    assert_eq!(addresses(near, &skua, "list"), unchanged);
    let origin = format!("http://{at}");
    let own = [("Origin", origin.as_str())];
    assert_eq!(request(near, at, "PUT", &own, json).0, 200);

    // On the command line.
    let lines = Lines::new(
        "lines",
        ["10.0.0.0/8", "# x", "fd00::1/8"].map(str::to_owned),
    );
    let to = format!("--analyzer {at}");
    let text = refusal(
        near,
        &format!("addresses add {to} --exclude {}", lines.argument()),
    );
    assert!(
        text.contains("lines: line 3: fd00::1/8 has host bits set; did you mean fd00::/8"),
        "{text}"
    );
    let text = refusal(
        near,
        &format!("addresses add {to} --exclude 1.2.3.4 2.0.0.0/8 3.0.0.0/8"),
    );
    assert!(text.contains("max_entries is 3"), "{text}");
    let text = refusal(near, "addresses list --analyzer 127.0.0.1:1");
    assert!(text.contains("nothing answers at 127.0.0.1:1"), "{text}");
    let text = refusal(near, &format!("flows {to} --include-net 10.0.0.0/8"));
    assert!(text.contains("`skua addresses`"), "{text}");
    let text = refusal(near, "run --listen 127.0.0.1:0 --include-net 10.0.0.1/8");
    assert!(
        text.contains("--include-net: 10.0.0.1/8 has host bits set"),
        "{text}"
    );
    let wrong = Lines::new(
        "wrong.yaml",
        ["flow: {addresses: {exclude: [10/8]}}".to_owned()],
    );
    let text = refusal(near, &format!("config --config {}", wrong.0.display()));
    assert!(
        text.contains("flow.addresses.exclude[0]: 10/8 is no IP prefix; did you mean 10.0.0.0/8?"),
        "{text}"
    );
    skua.stop();
}

#[test]
fn files_are_replayed_with_the_same_rule() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let mut bytes = Vec::new();
    // Classic pcap, microseconds, Ethernet.
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend_from_slice(&u32::to_ne_bytes(word));
    }
    for n in 0..100 {
        let flow = Flow::numbered(n % 4);
        let frame = if n % 8 < 4 { flow } else { flow.reversed() }.frame(100);
        for word in [1_700_000_000, n, 100, 100] {
            bytes.extend_from_slice(&u32::to_ne_bytes(word));
        }
        bytes.extend_from_slice(&frame);
    }
    let file = Lines::new("file.pcap", []);
    std::fs::write(&file.0, bytes).unwrap();
    let line = format!(
        "replay {} --include-net 10.0.0.0/30 --exclude-net 10.0.0.1 -o json --summary json",
        file.0.display()
    );
    let output = skua::output(&net, &line);
    let flows = skua::parse_lines(&String::from_utf8(output.stdout).unwrap());
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(flows.len(), 3);
    assert_eq!(sum_of(&flows), Sum::new(75, 7_500));
    assert_eq!(
        Sum::of(&report["left_out"]["address_set"]),
        Sum::new(25, 2_500)
    );
    assert_eq!(report["addresses"], json!({"include": 1, "exclude": 1}));
}
