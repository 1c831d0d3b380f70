//! A bridge between two hosts, its monitor, and who listens at each end.

use std::{
    process::{Child, Output, Stdio},
    time::{Duration, Instant},
};

use pcap::{Active, Capture, Direction};
use serde_json::Value;

use crate::lab::{Net, SendMode, Sender, Skua, skua, wait_for};

/// How long nothing more may come before nothing more is believed to come.
const QUIET: Duration = Duration::from_millis(150);

/// `va` in `a` — `pa`, `br0`, `pb` in `switch` — `vb` in `b`; `mon0` in `switch` — `vm` in `monitor`.
pub struct Lab {
    pub a: Net,
    pub switch: Net,
    pub b: Net,
    pub monitor: Net,
}

impl Lab {
    pub fn new() -> Self {
        let lab = Self {
            a: Net::new(),
            switch: Net::new(),
            b: Net::new(),
            monitor: Net::new(),
        };
        lab.switch
            .ip("link add br0 mtu 9000 type bridge mcast_snooping 0");
        lab.switch.ip("link set br0 up");
        for (host, port, end, number) in [(&lab.a, "pa", "va", 1), (&lab.b, "pb", "vb", 2)] {
            pair(&lab.switch, port, host, end, number);
            lab.switch.ip(&format!("link set {port} master br0"));
        }
        pair(&lab.switch, "mon0", &lab.monitor, "vm", 3);
        lab
    }

    /// Addresses for sockets, 10.9.0.1 and 10.9.0.2, known to each other.
    pub fn with_addresses(self) -> Self {
        for (host, own, end, other, mac) in [
            (&self.a, "10.9.0.1", "va", "10.9.0.2", 2),
            (&self.b, "10.9.0.2", "vb", "10.9.0.1", 1),
        ] {
            host.ip(&format!("addr add {own}/24 dev {end}"));
            host.ip(&format!(
                "neigh add {other} lladdr 02:00:00:00:00:0{mac} dev {end} nud permanent"
            ));
        }
        self
    }

    pub fn skua(&self) -> Skua {
        Skua::run(&self.switch, "--max-entries 1000 --scan-interval 1s")
    }

    /// Sends from `a` as its own traffic.
    pub fn sender(&self) -> Sender {
        Sender::open(&self.a, "va", SendMode::Queue)
    }
}

/// A veth pair; the end in `host` has the MAC address of station `number`.
pub fn pair(switch: &Net, port: &str, host: &Net, end: &str, number: u8) {
    switch.ip(&format!(
        "link add {port} address 02:00:00:00:01:0{number} mtu 9000 type veth peer name {end} \
         address 02:00:00:00:00:0{number} mtu 9000 netns {}",
        host.name
    ));
    switch.ip(&format!("link set {port} up"));
    host.ip(&format!("link set {end} up"));
}

/// Runs `skua ARGS…`, whose words are given one by one.
pub fn run(net: &Net, skua: &Skua, args: &[&str]) -> Output {
    skua::command(net)
        .args(args)
        .args(["--analyzer", &skua.address])
        .output()
        .unwrap()
}

/// Runs a command that succeeds, and reads its JSON.
pub fn ask(net: &Net, skua: &Skua, args: &[&str]) -> Value {
    let output = run(net, skua, args);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {err}");
    match output.stdout.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&output.stdout).unwrap(),
    }
}

/// Runs a command that fails; what it says.
pub fn refused(net: &Net, skua: &Skua, args: &[&str]) -> String {
    let output = run(net, skua, args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A tap that was made.
pub struct Tap<'a> {
    pub net: &'a Net,
    pub skua: &'a Skua,
    pub id: String,
}

impl<'a> Tap<'a> {
    /// Makes one that works from the start.
    pub fn create(net: &'a Net, skua: &'a Skua, args: &str) -> Self {
        let words: Vec<&str> = ["tap", "create"]
            .into_iter()
            .chain(args.split_whitespace())
            .collect();
        Self::of(net, skua, &words)
    }

    pub fn of(net: &'a Net, skua: &'a Skua, words: &[&str]) -> Self {
        let mut made = ask(net, skua, words);
        let id = made["UUID"].as_str().unwrap().to_owned();
        let tap = Self { net, skua, id };
        // A neighbour may take its time on a busy machine; it is asked for again each second.
        let end = Instant::now() + Duration::from_secs(30);
        let waits = |tap: &Value| {
            tap["Error"]
                .as_str()
                .unwrap_or_default()
                .ends_with("does not answer")
        };
        while waits(&made) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            made = tap.show();
        }
        assert_eq!(made["State"], "active", "{made}");
        tap
    }

    pub fn show(&self) -> Value {
        ask(
            self.net,
            self.skua,
            &["tap", "show", &self.id, "-o", "json"],
        )
    }

    pub fn update(&self, args: &[&str]) -> Value {
        ask(
            self.net,
            self.skua,
            &[&["tap", "update", &self.id], args].concat(),
        )
    }

    pub fn delete(self) {
        ask(self.net, self.skua, &["tap", "delete", &self.id]);
    }

    /// Waits until it looks as it should.
    pub fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || Some(self.show()).filter(|tap| is_so(tap)))
    }

    /// Packets that matched, were copied, and were dropped by a cause; what matched is one of these.
    pub fn counts(&self, cause: &str) -> (u64, u64, u64) {
        let tap = self.show();
        let number = |amount: &Value| amount["Packets"].as_u64().unwrap_or(0);
        let counts = (
            number(&tap["Matched"]),
            number(&tap["Copied"]),
            number(&tap["Dropped"][cause]),
        );
        // Copies that come back are counted, though they are not wanted.
        let dropped = tap["Dropped"].as_object().unwrap().iter();
        let dropped: u64 = dropped
            .filter(|(cause, _)| *cause != "Copy")
            .map(|(_, n)| number(n))
            .sum();
        assert_eq!(counts.0, counts.1 + dropped, "{tap}");
        counts
    }
}

/// A tap whose packets a command writes to a file as long as it runs.
pub struct ToFile<'a> {
    pub tap: Tap<'a>,
    path: std::path::PathBuf,
    writing: Child,
}

impl<'a> ToFile<'a> {
    /// Waits until the tap works; its name is that of the file, too.
    pub fn create(net: &'a Net, skua: &'a Skua, name: &str, args: &[&str]) -> Self {
        let file = format!("skua-tap-{name}-{}.pcapng", std::process::id());
        let path = std::env::temp_dir().join(file);
        let writing = skua::command(net)
            .args(["tap", "create", "--name", name, "--to"])
            .arg(&path)
            .args(args)
            .args(["--analyzer", &skua.address])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let id = name.to_owned();
        let tap = Tap { net, skua, id };
        wait_for("the tap", || {
            let all = ask(net, skua, &["tap", "list", "-o", "json"]);
            (all["Name"] == name && all["State"] == "active").then_some(())
        });
        Self { tap, path, writing }
    }

    /// What has been written until now.
    pub fn so_far(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// Ends the tap; what was written.
    pub fn read(mut self) -> Vec<u8> {
        let Tap { net, skua, id } = self.tap;
        ask(net, skua, &["tap", "delete", &id]);
        assert!(self.writing.wait().unwrap().success());
        let bytes = std::fs::read(&self.path).unwrap();
        std::fs::remove_file(&self.path).unwrap();
        bytes
    }
}

/// What comes to an interface, whole and as it was on the wire.
pub struct Listener(Capture<Active>);

impl Listener {
    /// Listens for what is received and matches.
    pub fn open(net: &Net, interface: &str, filter: &str) -> Self {
        let capture = net.inside(|| {
            let capture = Capture::from_device(interface).unwrap();
            capture
                .timeout(10)
                .promisc(true)
                .snaplen(70_000)
                .buffer_size(64 << 20)
                .open()
                .unwrap()
        });
        let mut capture = capture.setnonblock().unwrap();
        capture.direction(Direction::In).unwrap();
        capture.filter(filter, true).unwrap();
        Self(capture)
    }

    /// Reads what is there.
    pub fn read(&mut self, frames: &mut Vec<Vec<u8>>) {
        while let Ok(packet) = self.0.next_packet() {
            assert_eq!(packet.header.caplen, packet.header.len);
            frames.push(packet.data.to_vec());
        }
    }

    /// All that comes: as many as expected, or more when nothing should have come after them.
    pub fn frames(&mut self, expected: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        wait_for(&format!("{expected} frames"), || {
            self.read(&mut frames);
            (frames.len() >= expected).then_some(())
        });
        std::thread::sleep(QUIET);
        self.read(&mut frames);
        assert_eq!(self.0.stats().unwrap().dropped, 0, "the listener lost some");
        frames
    }
}
