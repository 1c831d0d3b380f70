//! Capture truth: one recorded traffic, sent once, seen by every type of capture at the same time.
//!
//! ```text
//!  host 1 ── p1 ─ br0 ─ m0 ── m1 ─ br1 ─ p2 ── host 2
//! ```
//!
//! On `p1`: ebpf, afpacket, pcap, pcapsocket (tcpdump), and, when it is built in, dpdk. `br0` mirrors and exports for us (ovsmirror,
//! ovssflow, ovsnetflow); `br1` exports as somebody else set it up (sflow, netflow).

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use skua_testkit::{
    Capture, Packet, Record,
    access::{BEARER, TOKEN, tokens},
    capture::Block,
    lab::root_tests,
    layer,
    process::Process,
};

use crate::switch::Switch;

/// Nothing takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between frames, so that those of both sides keep their order on the way.
const GAP: Duration = Duration::from_millis(3);

/// What one side of a conversation sent: packets and bytes.
pub type Talk = BTreeMap<String, (u64, u64)>;

/// A frame and the host (1 or 2) that sends it.
pub type Sent = (usize, Vec<u8>);

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 17;

/// Two sides that take turns.
struct Recording(Vec<Sent>);

impl Recording {
    /// One packet: from the first host (1) or the second (2).
    fn add(&mut self, host: u8, make: impl Fn(Packet, bool) -> Packet) {
        let packet = Packet::new().ethernet(host, 3 - host);
        self.0.push((host.into(), make(packet, host == 1).build()));
    }
}

fn v4(packet: Packet, forth: bool) -> Packet {
    match forth {
        true => packet.ipv4("10.99.0.1", "10.99.0.2"),
        false => packet.ipv4("10.99.0.2", "10.99.0.1"),
    }
}

fn v6(packet: Packet, forth: bool) -> Packet {
    match forth {
        true => packet.ipv6("fd99::1", "fd99::2"),
        false => packet.ipv6("fd99::2", "fd99::1"),
    }
}

fn ports(forth: bool, client: u16, server: u16) -> (u16, u16) {
    if forth {
        (client, server)
    } else {
        (server, client)
    }
}

/// TCP, UDP and ICMP over IPv4 and IPv6, with a VLAN, fragmented.
pub fn recording() -> Vec<Sent> {
    let mut all = Recording(Vec::new());
    for net in [v4, v6] {
        let tcp = |flags: u8, bytes: usize| {
            move |packet, forth| {
                let (from, to) = ports(forth, 41_000, 80);
                net(packet, forth).tcp(from, to, flags).zeros(bytes)
            }
        };
        all.add(1, tcp(SYN, 0));
        all.add(2, tcp(SYN | ACK, 0));
        all.add(1, tcp(ACK, 0));
        for _ in 0..5 {
            all.add(1, tcp(ACK, 500));
            all.add(2, tcp(ACK, 1_000));
        }
        all.add(1, tcp(FIN, 0));
        all.add(2, tcp(FIN, 0));
        for number in 0..30 {
            all.add(if number % 3 == 2 { 2 } else { 1 }, |packet, forth| {
                let (from, to) = ports(forth, 42_000, 5_353);
                net(packet, forth).udp(from, to).zeros(100)
            });
        }
    }
    for sequence in 0..5 {
        all.add(1, |p, forth| v4(p, forth).icmp(8, 0, 7, sequence).zeros(56));
        all.add(2, |p, forth| v4(p, forth).icmp(0, 0, 7, sequence).zeros(56));
        all.add(1, |p, forth| {
            v6(p, forth).icmpv6(128, 0, 9, sequence).zeros(56)
        });
        all.add(2, |p, forth| {
            v6(p, forth).icmpv6(129, 0, 9, sequence).zeros(56)
        });
    }
    for number in 0..10 {
        all.add(if number % 5 == 4 { 2 } else { 1 }, |packet, forth| {
            let (from, to) = ports(forth, 43_000, 9_000);
            v4(packet.vlan(100), forth).udp(from, to).zeros(200)
        });
    }
    for id in 0..3 {
        // A datagram of 8 + 992 + 500 bytes in two packets.
        let header = |offset, more| {
            layer::Ipv4::between("10.99.0.1", "10.99.0.2").fragment(100 + id, 17, offset, more)
        };
        let udp = layer::Udp {
            length: Some(1_500),
            ..layer::Udp::ports(44_000, 9_001)
        };
        all.add(1, |packet, _| {
            packet.layer(header(0, true)).layer(udp.clone()).zeros(992)
        });
        all.add(1, |packet, _| packet.layer(header(125, false)).zeros(500));
    }
    all.0
}

/// The recording as a capture file of now.
pub fn file(frames: &[Sent]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut capture = Capture::new("truth");
    for (number, (_, frame)) in frames.iter().enumerate() {
        capture.records.push(Record {
            timestamp_ns: now.as_nanos() as u64 + number as u64 * GAP.as_nanos() as u64,
            interface: 0,
            data: frame.clone(),
            wire_length: frame.len() as u32,
            block: Block::Enhanced,
        });
    }
    capture.bytes()
}

/// A `skua run` beside the switch.
pub struct Skua<'a> {
    switch: &'a Switch,
    process: Process,
    address: String,
}

impl<'a> Skua<'a> {
    /// With everything that is needed for captures of all types.
    pub fn run(switch: &'a Switch) -> Self {
        let recorded = switch.path("recorded.pcap");
        fs::write(&recorded, file(&recording())).unwrap();
        // Names of ports that nobody has when DPDK is not built in would be an error.
        let ports = match cfg!(feature = "dpdk") {
            true => format!(
                "net_af_packet0,iface=p1,net_pcap0,rx_pcap={recorded},net_pcap1,rx_iface=p1"
            ),
            false => String::new(),
        };
        let mut command = command(switch, skua_testkit::program!());
        command
            .args(["run", "--listen", "127.0.0.1:0", "--interface", "lo"])
            .env("SKUA_CONFIG", "/dev/null")
            .env("SKUA_HISTORY_DIRECTORY", "")
            .env("SKUA_API_TOKENS", tokens())
            .env("SKUA_API_SOCKET", "")
            .env("SKUA_DPDK_PORTS", ports)
            .env(
                "SKUA_OVS_TARGET",
                format!("unix:{}", switch.path("db.sock")),
            );
        let mut process = Process::start(&mut command);
        let line = process.line();
        let (_, rest) = line
            .split_once("http://")
            .unwrap_or_else(|| panic!("{line}"));
        let address = rest.split('/').next().unwrap().to_owned();
        Self {
            switch,
            process,
            address,
        }
    }

    /// Standard output of a command, which must succeed.
    pub fn ask(&self, arguments: &[&str]) -> Vec<u8> {
        let (group, rest) = arguments.split_at(if arguments[0] == "capture" { 2 } else { 1 });
        let output = command(self.switch, skua_testkit::program!())
            .args(group)
            .env("SKUA_TOKEN", TOKEN)
            .args(["--analyzer", &self.address])
            .args(rest)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {err}");
        output.stdout
    }

    pub fn create(&self, kind: &str, query: &str) -> String {
        let made = self.ask(&[
            "capture",
            "create",
            "--type",
            kind,
            "--gremlin",
            query,
            "--pollinginterval",
            "1",
        ]);
        let made: Value = serde_json::from_slice(&made).unwrap();
        made["UUID"].as_str().unwrap().to_owned()
    }

    pub fn get(&self, id: &str) -> Value {
        serde_json::from_slice(&self.ask(&["capture", "get", id])).unwrap()
    }

    /// The node of a capture once it is active.
    pub fn active(&self, id: &str) -> Value {
        wait(&format!("capture {id}"), || {
            let capture = self.get(id);
            let node = &capture["Nodes"][0];
            (node["State"] == "active")
                .then(|| node.clone())
                .ok_or(capture)
        })
    }

    pub fn query(&self, query: &str) -> Value {
        let answer = self.ask(&["query", query, "--format", "json"]);
        serde_json::from_slice(&answer).unwrap()
    }

    /// What a capture saw of the recording.
    pub fn talk(&self, id: &str, knows: Knows) -> Talk {
        let flows = self.query(&format!("G.Flows().Has('CaptureID', '{id}')"));
        let mut talk = Talk::new();
        for flow in flows.as_array().unwrap() {
            for (from, to, way) in [("A", "B", "AB"), ("B", "A", "BA")] {
                let packets = flow["Metric"][format!("{way}Packets")].as_u64().unwrap();
                let bytes = flow["Metric"][format!("{way}Bytes")].as_u64().unwrap();
                if let Some(name) = knows.name(flow, from, to)
                    && packets > 0
                {
                    let sum = talk.entry(name).or_default();
                    sum.0 += packets;
                    sum.1 += bytes;
                }
            }
        }
        talk
    }

    /// `/api/status`.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.fetch("/api/status")).unwrap()
    }

    /// What is at a path.
    pub fn fetch(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        let get = || {
            let mut answer = ureq::get(url)
                .header("Authorization", BEARER)
                .call()
                .unwrap();
            answer.body_mut().read_to_string().unwrap()
        };
        self.switch.net.inside(get)
    }

    pub fn upload(&self, file: &[u8]) -> Value {
        let url = format!("http://{}/api/pcap", self.address);
        let post = || {
            let request = ureq::post(url)
                .content_type("application/vnd.tcpdump.pcap")
                .header("Authorization", BEARER);
            let mut answer = request.send(file).unwrap();
            answer.body_mut().read_to_string().unwrap()
        };
        serde_json::from_str(&self.switch.net.inside(post)).unwrap()
    }
}

impl Drop for Skua<'_> {
    fn drop(&mut self) {
        // It removes what it made.
        self.process.end(Signal::INT);
    }
}

/// A program in the switch's namespace, with its own process.
pub fn command(switch: &Switch, program: &str) -> Command {
    let mut command = switch.net.command(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SKUA_") {
            command.env_remove(name);
        }
    }
    command
}

/// Waits for a value; what is there instead is shown when it does not come.
pub fn wait<T>(what: &str, mut poll: impl FnMut() -> Result<T, Value>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match poll() {
            Ok(value) => return value,
            Err(found) if Instant::now() > end => panic!("never: {what}: {found:#}"),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// What a type of capture can know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Knows {
    /// All of it.
    All,
    /// What NetFlow 5 has: IPv4 without VLAN, later fragments without ports, no identifier of ICMP.
    Netflow5,
}

impl Knows {
    /// Name of what a side sent; none when the type cannot know it at all.
    fn name(self, flow: &Value, from: &str, to: &str) -> Option<String> {
        let text = |part: &str, key: &str| match &flow[part][key] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let addresses = format!("{} > {}", text("Network", from), text("Network", to));
        let kind = flow["Application"].as_str().unwrap_or_default();
        let between = format!("{} > {}", text("Transport", from), text("Transport", to));
        match self {
            Self::All => Some(format!(
                "{} vlan {} {addresses} {between} icmp {} {}",
                flow["LayersPath"].as_str().unwrap(),
                text("Link", "ID"),
                text("ICMP", "Code"),
                text("ICMP", "ID"),
            )),
            Self::Netflow5 if !addresses.contains('.') => None,
            Self::Netflow5
                if between.contains("44000") || between == "0 > 0" || between == "- > -" =>
            {
                Some(format!("{kind} {addresses}"))
            }
            Self::Netflow5 => Some(format!("{kind} {addresses} {between}")),
        }
    }
}

/// `tcpdump -w -` into a port.
struct Dump {
    tcpdump: Process,
    netcat: Process,
}

impl Dump {
    fn start(switch: &Switch, port: &Value) -> Self {
        let mut tcpdump = command(switch, "tcpdump");
        tcpdump.args(["-i", "p1", "--nano", "-U", "-w", "-"]);
        let mut tcpdump = Process::with_messages(tcpdump.stdout(Stdio::piped()));
        let mut netcat = command(switch, "nc");
        netcat.args(["-N", "127.0.0.1", &port.to_string()]);
        let netcat = Process::with_messages(netcat.stdin(tcpdump.output()));
        tcpdump.wait_for_line("listening on");
        Self { tcpdump, netcat }
    }

    fn stop(self) {
        self.tcpdump.signal(Signal::INT);
        self.tcpdump.wait();
        self.netcat.wait();
    }
}

/// Puts a second bridge between the first and host 2.
fn lengthen(switch: &Switch) {
    switch.net.ip("link add m0 type veth peer name m1");
    switch.net.ip("link set m0 up");
    switch.net.ip("link set m1 up");
    switch.vsctl(
        "del-port br0 p2 -- add-port br0 m0 -- add-br br1 \
         -- set bridge br1 datapath_type=netdev -- add-port br1 m1 -- add-port br1 p2",
    );
}

/// Sends frames from the host that each is of.
pub fn send(switch: &Switch, frames: &[Sent]) {
    let open = |host: usize| {
        switch.hosts[host].inside(|| {
            let capture = pcap::Capture::from_device("port").unwrap();
            capture.open().unwrap()
        })
    };
    let mut hosts = [open(0), open(1)];
    for (host, frame) in frames {
        hosts[host - 1].sendpacket(&frame[..]).unwrap();
        thread::sleep(GAP);
    }
}

#[test]
fn all_types_of_capture_see_the_same() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("truth");
    lengthen(&switch);
    // Both bridges learn where the hosts are.
    let hello: Vec<Sent> = [1, 2, 1]
        .map(|host| {
            (
                host.into(),
                Packet::new()
                    .ethernet(host, 3 - host)
                    .payload(&[0; 46])
                    .build(),
            )
        })
        .into();
    send(&switch, &hello);
    let skua = Skua::run(&switch);
    let bridge = |name: &str| format!("G.V().Has('Type', 'ovsbridge', 'Name', '{name}')");
    wait("bridges in the graph", || {
        let found = skua.query("G.V().Has('Type', 'ovsbridge')");
        if found.as_array().is_some_and(|all| all.len() == 2) {
            Ok(())
        } else {
            Err(found)
        }
    });
    let on_link = "G.V().Has('Name', 'p1', 'Type', 'veth')";
    let mut wanted = vec![
        ("ebpf", on_link.to_owned()),
        ("afpacket", on_link.to_owned()),
        ("pcap", on_link.to_owned()),
        ("pcapsocket", on_link.to_owned()),
        (
            "ovsmirror",
            "G.V().Has('Type', 'ovsport', 'Name', 'p1')".to_owned(),
        ),
        ("ovssflow", bridge("br0")),
        ("ovsnetflow", bridge("br0")),
        ("sflow", bridge("br1")),
        ("netflow", bridge("br1")),
    ];
    if cfg!(feature = "dpdk") {
        let port = |name: &str| format!("G.V().Has('Type', 'dpdkport', 'Name', '{name}')");
        // The same from a file, and live. (The driver net_af_packet has fragments put together.)
        wanted.push(("dpdk", port("net_pcap0")));
        wanted.push(("dpdk", port("net_pcap1")));
    } else {
        eprintln!("dpdk is not built in: the other nine types are compared");
    }
    let start = |(kind, query): (&'static str, String)| (kind, skua.create(kind, &query));
    let captures: Vec<_> = wanted.into_iter().map(start).collect();
    let started = captures.iter().map(|(kind, id)| (*kind, skua.active(id)));
    let nodes: Vec<_> = started.collect();
    let node = |kind: &str| &nodes.iter().find(|(k, _)| *k == kind).unwrap().1;
    for kind in ["pcapsocket", "sflow", "netflow", "ovssflow", "ovsnetflow"] {
        assert_ne!(node(kind)["Port"], Value::Null, "{kind}");
        assert_eq!(node(kind)["Listen"], "127.0.0.1", "{kind}");
    }
    switch.vsctl(&format!(
        "-- --id=@s create sFlow agent=lo target=\"127.0.0.1:{}\" header=256 sampling=1 polling=1 \
         -- --id=@n create NetFlow targets=\"127.0.0.1:{}\" active_timeout=1 \
         -- set bridge br1 sflow=@s netflow=@n",
        node("sflow")["Port"],
        node("netflow")["Port"]
    ));
    let dump = Dump::start(&switch, &node("pcapsocket")["Port"]);

    let frames = recording();
    let uploaded = skua.upload(&file(&frames));
    assert_eq!(uploaded["Packets"], frames.len());
    let uploaded = uploaded["UUID"].as_str().unwrap();
    let truth = |knows| skua.talk(uploaded, knows);
    // The truth itself is known: all packets, all bytes.
    let all = truth(Knows::All);
    let sum = |talk: &Talk| {
        let (packets, bytes): (Vec<u64>, Vec<u64>) = talk.values().copied().unzip();
        (packets.iter().sum::<u64>(), bytes.iter().sum::<u64>())
    };
    let bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
    assert_eq!(sum(&all), (frames.len() as u64, bytes as u64), "{all:#?}");

    send(&switch, &frames);
    let mut wrong = Vec::new();
    for (kind, id) in &captures {
        let knows = match *kind {
            "netflow" | "ovsnetflow" => Knows::Netflow5,
            _ => Knows::All,
        };
        let truth = truth(knows);
        let mut seen = Talk::new();
        let end = Instant::now() + PATIENCE / 3;
        while Instant::now() < end {
            seen = skua.talk(id, knows);
            if seen == truth {
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        for (name, sent) in truth
            .iter()
            .filter(|(name, sent)| seen.get(*name) != Some(sent))
        {
            wrong.push(format!(
                "{kind}: {name}: sent {sent:?}, seen {:?}",
                seen.get(name)
            ));
        }
        for name in seen.keys().filter(|name| !truth.contains_key(*name)) {
            wrong.push(format!("{kind}: {name}: never sent, seen {:?}", seen[name]));
        }
    }
    // Not sooner: what has not come through tcpdump yet would be lost.
    dump.stop();
    assert_eq!(wrong, Vec::<String>::new(), "{}", json!(wrong));
    // Each flow is of the node that the query found.
    for ((kind, id), (_, node)) in captures.iter().zip(&nodes) {
        let nodes = skua.query(&format!(
            "G.Flows().Has('CaptureID', '{id}').Values('NodeTID').Dedup()"
        ));
        assert_eq!(nodes, json!([node["TID"]]), "{kind}");
    }
    // What was made in the switch goes with its captures, and what others made stays.
    assert_eq!(made_of(&switch), [1, 2, 2]);
    for (_, id) in &captures {
        skua.ask(&["capture", "delete", id]);
    }
    assert_eq!(made_of(&switch), [0, 1, 1]);
}

/// Mirrors and exporters of both bridges.
fn made_of(switch: &Switch) -> [usize; 3] {
    ["Mirror", "sFlow", "NetFlow"].map(|table| {
        let rows = switch.vsctl(&format!("--bare --columns=_uuid list {table}"));
        rows.split_whitespace().count()
    })
}

#[test]
fn what_is_left_of_a_killed_process_goes_and_what_does_not_fit_is_said() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("leftovers");
    switch.vsctl("-- --id=@n create NetFlow targets=\"127.0.0.1:9\" -- set bridge br0 netflow=@n");
    let mut skua = Skua::run(&switch);
    let bridge = "G.V().Has('Type', 'ovsbridge')";
    let mirror = skua.create("ovsmirror", bridge);
    let netflow = skua.create("ovsnetflow", bridge);
    skua.active(&mirror);
    skua.active(&netflow);
    let targets = || switch.vsctl("--bare --columns=targets list NetFlow");
    assert_ne!(targets().trim(), "127.0.0.1:9");
    // kill -9: nobody tidies up but who comes next.
    skua.process.end(Signal::KILL);
    drop(skua);
    assert_eq!(made_of(&switch), [1, 0, 1]);
    let skua = Skua::run(&switch);
    wait("leftovers to go", || match made_of(&switch) {
        [0, 0, 1] if targets().trim() == "127.0.0.1:9" => Ok(()),
        other => Err(json!(other)),
    });
    // A node that does not fit, and one that does.
    let id = skua.create("ovssflow", "G.V().Has('Name', Within('br0', 'p1'))");
    skua.active(&id);
    let capture = skua.get(&id);
    assert_eq!(capture["Count"], 1, "{capture:#}");
    assert!(
        capture["Unfit"].as_str().unwrap().contains("ovsbridge"),
        "{capture:#}"
    );
    // A port that is taken is said, and the capture goes on trying.
    let taken = skua.create("sflow", bridge);
    let port = skua.active(&taken)["Port"].to_string();
    let refused = command(&switch, skua_testkit::program!())
        .args(["capture", "create", "--analyzer", &skua.address])
        .env("SKUA_TOKEN", TOKEN)
        .args(["--type", "netflow", "--gremlin", bridge, "--port", &port])
        .output()
        .unwrap();
    assert!(refused.status.success(), "{refused:?}");
    let made: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let id = made["UUID"].as_str().unwrap();
    let error = wait("refusal", || {
        let capture = skua.get(id);
        let error = capture["Nodes"][0]["Error"].as_str().map(str::to_owned);
        error.ok_or(capture)
    });
    assert!(error.contains(&port), "{error}");
    skua.ask(&["capture", "delete", &taken]);
    assert_eq!(skua.active(id)["Port"].to_string(), port);
}
