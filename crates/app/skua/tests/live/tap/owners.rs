//! Packets chosen by whose sockets they come from or go to; files, which say whose.

use std::io::{Read as _, Write as _};

use serde_json::Value;
use skua_testkit::process::{Group, Process};

use super::{Lab, Listener, Tap, ToFile, ask, refused};
use crate::{
    lab::{Flow, Net, packet::tun, root_tests, wait_for},
    sockets::python,
};

/// A server of this name that answers each connection with `hello` and then ends it.
fn server(net: &Net, name: &str, port: u16) -> Process {
    let script = format!(
        "{}\
         s = socket.create_server(('', {port}))\n\
         print('on')\n\
         while True:\n\
         \x20   c, _ = s.accept()\n\
         \x20   c.sendall(b'hello')\n\
         \x20   c.close()\n",
        named(name)
    );
    python(net, &script)
}

/// A process of this name that calls once for each line that it gets; with the first it opens an idle socket,
/// at `idle`.
fn caller(net: &Net, name: &str, idle: u16, port: u16) -> Process {
    let script = format!(
        "{}\
         print('on')\n\
         sys.stdin.readline()\n\
         idle = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         idle.bind(('127.0.0.1', {idle}))\n\
         for line in sys.stdin:\n\
         \x20   s = socket.create_connection(('10.9.0.2', {port}))\n\
         \x20   while s.recv(100): pass\n\
         \x20   s.close()\n",
        named(name)
    );
    python(net, &script)
}

fn named(name: &str) -> String {
    format!(
        "import ctypes, socket, sys\n\
         ctypes.CDLL(None).prctl(15, b'{name}')\n"
    )
}

/// Calls a server so many times, by this process.
fn call(net: &Net, port: u16, times: u32) {
    for _ in 0..times {
        let mut stream = net
            .inside(|| std::net::TcpStream::connect(("10.9.0.2", port)))
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }
}

/// Of a TCP segment in IPv4: ports, flags.
fn segment(frame: &[u8]) -> (u16, u16, u8) {
    let short = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (short(34), short(36), frame[47])
}

const FIN: u8 = 1;
const SYN: u8 = 2;

/// What passed `pa` both ways, as its two neighbours got it.
struct Originals([Listener; 2]);

impl Originals {
    fn of(lab: &Lab, port: u16) -> Self {
        let filter = format!("tcp port {port}");
        Self([
            Listener::open(&lab.b, "vb", &filter),
            Listener::open(&lab.a, "va", &filter),
        ])
    }

    /// How many there were until now, all connections being over.
    fn count(&mut self) -> usize {
        self.0
            .iter_mut()
            .map(|listener| listener.frames(1).len())
            .sum()
    }
}

fn held(tap: &Tap<'_>, least: u64) -> Value {
    tap.wait("sockets in the kernel's set", |tap| {
        tap["Sockets"]["Held"].as_u64() >= Some(least)
    })
}

#[test]
fn packets_of_a_process_are_copied_and_of_no_other() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new().with_addresses();
    let skua = lab.skua();
    // Bound to all addresses of a namespace that nobody watches.
    let _shop = server(&lab.b, "tap-shop", 7950);
    let _other = server(&lab.b, "tap-other", 7951);
    let mut copies = Listener::open(&lab.monitor, "vm", "tcp");
    let tap = Tap::create(
        &lab.switch,
        &skua,
        "--from pa --to mon0 --process tap-shop --name shop",
    );
    // Its loopback is not that of a source.
    let state = held(&tap, 1);
    assert_eq!(state["Sockets"]["LeftOut"], 0, "{state}");
    let mut originals = Originals::of(&lab, 7950);
    for _ in 0..10 {
        call(&lab.a, 7950, 1);
        call(&lab.a, 7951, 1);
    }
    let count = originals.count();
    let found = copies.frames(count);
    let ports = |frame: &Vec<u8>| {
        let (from, to, _) = segment(frame);
        from == 7950 || to == 7950
    };
    assert!(found.iter().all(ports), "somebody else's packets");
    assert_eq!(found.len(), count);
    assert_eq!(found.iter().filter(|f| segment(f).2 == SYN).count(), 10);

    // A process of that name that calls: known from its first SYN on where the kernel can.
    let mut strangers = caller(&lab.a, "tap-none", 7952, 7951);
    let mut calls = caller(&lab.a, "tap-shop", 7953, 7951);
    let mut originals = Originals::of(&lab, 7951);
    for caller in [&mut strangers, &mut calls] {
        caller.write_line("");
        caller.write_line("");
    }
    let over = |frames: &[Vec<u8>]| frames.iter().filter(|f| segment(f).2 & FIN != 0).count();
    let mut all = Vec::new();
    wait_for("both connections", || {
        originals.0.iter_mut().for_each(|l| l.read(&mut all));
        (over(&all) == 4).then_some(())
    });
    assert_eq!(state["Sockets"]["Prompt"], true, "{state}");
    let mut found = Vec::new();
    wait_for("its end", || {
        copies.read(&mut found);
        (over(&found) == 2).then_some(())
    });
    let (from, _, flags) = segment(&found[0]);
    assert_eq!(flags, SYN, "the first packet is missing");
    let same = |frame: &Vec<u8>| {
        let (source, destination, _) = segment(frame);
        source == from || destination == from
    };
    assert!(found.iter().all(same), "a stranger's packets");

    // Another choice, at once and only that.
    tap.update(&["--process", "tap-other"]);
    held(&tap, 1);
    call(&lab.a, 7950, 2);
    call(&lab.a, 7951, 2);
    let mut found = Vec::new();
    wait_for("the other's", || {
        copies.read(&mut found);
        (over(&found) >= 4).then_some(())
    });
    assert!(!found.iter().any(ports), "what is not wanted any more");
    assert!(
        refused(
            &lab.switch,
            &skua,
            &[
                "tap",
                "create",
                "--from",
                "pa",
                "--to",
                "mon0",
                "--process",
                " "
            ],
        )
        .contains("is no name")
    );
    tap.delete();
    skua.stop();
}

#[test]
fn packets_of_a_container_are_copied_and_named() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new().with_addresses();
    let skua = lab.skua();
    let id = format!("7a9{}", &"0123456789abcdef".repeat(4)[3..]);
    let group = Group::new(&format!("docker-{id}.scope"));
    let _server = server(&lab.b, "tap-back", 7961);
    let mut inside = caller(&lab.a, "tap-in", 7962, 7961);
    let mut outside = caller(&lab.a, "tap-out", 7963, 7961);
    group.add(&inside);
    inside.write_line("");
    outside.write_line("");
    let file = ToFile::create(
        &lab.switch,
        &skua,
        "inside",
        &["--from", "pa", "--container", &id[..12]],
    );
    let mut originals = Originals::of(&lab, 7961);
    let mut frames = Vec::new();
    let has = |text: &[u8], part: &str| text.windows(part.len()).any(|w| w == part.as_bytes());
    let by = format!("tap-in ({}) in container {id}", inside.id());
    wait_for("packets of the container by name, and of others", || {
        inside.write_line("");
        outside.write_line("");
        originals.0.iter_mut().for_each(|l| l.read(&mut frames));
        // Who has a socket is known only a moment after it.
        let named = has(&file.so_far(), &by);
        (named && frames.len() > 20).then_some(())
    });
    let text = file.read();
    assert!(!has(&text, "tap-out"), "somebody outside is among them");
    drop((inside, outside));
    drop(group);
    skua.stop();
}

#[test]
fn a_file_takes_packets_without_ethernet_header_and_a_monitor_does_not() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let mut device = tun(&lab.switch, "tun9");
    let skua = lab.skua();
    let file = ToFile::create(
        &lab.switch,
        &skua,
        "bare",
        &["--from", "tun9", "--match", "udp", "--direction", "in"],
    );
    let packets: Vec<_> = (0..20).map(|n| Flow::numbered(n).packet(100)).collect();
    for packet in &packets {
        device.write_all(packet).unwrap();
        // Leaves out what is none of the expression's.
        let other = Flow::numbered(1).with_protocol(6).packet(100);
        device.write_all(&other).unwrap();
    }
    file.tap
        .wait("its packets", |tap| tap["Copied"]["Packets"] == 20);
    let path = std::env::temp_dir().join(format!("skua-bare-{}.pcapng", std::process::id()));
    std::fs::write(&path, file.read()).unwrap();
    let mut found = pcap::Capture::from_file(&path).unwrap();
    // LINKTYPE_RAW; libpcap's name for it on Linux is another number.
    assert_eq!(found.get_datalink(), pcap::Linktype(12));
    for packet in &packets {
        assert_eq!(found.next_packet().unwrap().data, packet);
    }
    assert!(found.next_packet().is_err());
    std::fs::remove_file(&path).unwrap();
    let words = ["tap", "create", "--from", "tun9", "--to", "mon0"];
    let made = ask(&lab.switch, &skua, &words);
    assert_eq!(made["State"], "error");
    let error = made["Error"].as_str().unwrap();
    assert!(error.contains("only a file or a pipe"), "{error}");
}
