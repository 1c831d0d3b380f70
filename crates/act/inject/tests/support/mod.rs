//! Three network namespaces in a row: a host, a router, a host.

use skua_inject::{
    Addresses, Frames, Injection, Job, Kind, Mac, Mode, Payload, Point, Template, flags,
};
use std::{
    io::{BufRead as _, BufReader},
    net::IpAddr,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Runs a program to its end and gives back its output.
pub fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace that lives as long as this value.
pub struct Net(pub String);

impl Net {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ac-{}-{number}", std::process::id());
        run(&format!("ip netns add {name}"));
        let net = Self(name);
        net.exec("sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0");
        net.exec("ip link set lo up");
        net
    }

    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    pub fn inode(&self) -> u64 {
        std::fs::metadata(self.path()).unwrap().ino()
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path()));
        command.args(["--", program]);
        command
    }

    pub fn exec(&self, line: &str) -> String {
        run(&format!("nsenter --net={} -- {line}", self.path()))
    }

    pub fn point(&self, interface: &str) -> Point {
        let link = self.exec(&format!("ip -j link show dev {interface}"));
        let link: serde_json::Value = serde_json::from_str(&link).unwrap();
        Point {
            netns_inode: self.inode(),
            ifindex: link[0]["ifindex"].as_u64().unwrap() as u32,
            name: interface.into(),
            ethernet: link[0]["link_type"] == "ether" || link[0]["link_type"] == "loopback",
            loopback: link[0]["link_type"] == "loopback",
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

pub const A_MAC: Mac = [2, 0, 0, 0x81, 0, 1];
pub const ROUTER_MAC: Mac = [2, 0, 0, 0x81, 0, 2];

/// `a0` 10.81.1.2 — `ra` 10.81.1.1, `rb` 10.81.2.1 — `b0` 10.81.2.2; fd81:1:: and fd81:2:: likewise.
pub struct Lab {
    pub a: Net,
    pub router: Net,
    pub b: Net,
}

impl Lab {
    pub fn new() -> Self {
        let lab = Self {
            a: Net::new(),
            router: Net::new(),
            b: Net::new(),
        };
        lab.router
            .exec("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        let sides = [
            (
                &lab.a,
                "a0",
                "02:00:00:81:00:01",
                "ra",
                "02:00:00:81:00:02",
                1,
            ),
            (
                &lab.b,
                "b0",
                "02:00:00:81:00:03",
                "rb",
                "02:00:00:81:00:04",
                2,
            ),
        ];
        for (host, own, mac, peer, peer_mac, net) in sides {
            host.exec(&format!(
                "ip link add {own} address {mac} type veth peer name {peer} address {peer_mac} netns {}",
                lab.router.0
            ));
            for (side, link, last) in [(host, own, 2), (&lab.router, peer, 1)] {
                side.exec(&format!("ip addr add 10.81.{net}.{last}/24 dev {link}"));
                side.exec(&format!(
                    "ip addr add fd81:{net}::{last}/64 dev {link} nodad"
                ));
                side.exec(&format!("ip link set {link} up"));
            }
            host.exec(&format!("ip route add default via 10.81.{net}.1"));
            host.exec(&format!("ip -6 route add default via fd81:{net}::1"));
        }
        lab
    }

    pub fn addresses(&self, kind: Kind) -> Addresses {
        let (from, to): (&str, &str) = match kind.is_ipv6() {
            true => ("fd81:1::2", "fd81:2::2"),
            false => ("10.81.1.2", "10.81.2.2"),
        };
        Addresses {
            macs: Some((A_MAC, ROUTER_MAC)),
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
        }
    }

    pub fn template(&self, kind: Kind) -> Template {
        Template {
            kind,
            addresses: self.addresses(kind),
            source_port: 40_000,
            destination_port: 81,
            icmp_id: 77,
            sequence: 1,
            flags: flags::SYN,
            ttl: 64,
        }
    }

    /// Three packets from `a0`, watched for at `b0`.
    pub fn job(&self, kind: Kind) -> Job {
        Job {
            source: self.a.point("a0"),
            destination: Some(self.b.point("b0")),
            frames: made(self.template(kind), Mode::Unique),
            count: 3,
            interval: Duration::from_millis(5),
            rate: 1_000,
            // Neighbours may have to be asked for twice before an answer gets through.
            patience: Duration::from_secs(5),
        }
    }
}

pub fn made(template: Template, mode: Mode) -> Frames {
    Frames::Made {
        template,
        payload: Payload::Bytes(b"is anybody there?".to_vec()),
        growth: 0,
        mode,
        seed: 1,
    }
}

/// Carries out a job to its end.
pub fn carry_out(job: Job) -> skua_inject::Status {
    Injection::start(job).unwrap().wait(Duration::from_secs(60))
}

/// A tcpdump that writes what it sees on an interface into a file.
pub struct Dump {
    child: Child,
    file: tempfile::NamedTempFile,
}

impl Dump {
    pub fn start(net: &Net, interface: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut child = net
            .command("tcpdump")
            .args([
                "--immediate-mode",
                "-U",
                "-p",
                "-Z",
                "root",
                "-i",
                interface,
                "-w",
            ])
            .arg(file.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        while !line.contains("listening on") {
            line.clear();
            assert!(told.read_line(&mut line).unwrap() > 0, "tcpdump ended");
        }
        // Whoever writes to a pipe that nobody reads is killed.
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        Self { child, file }
    }

    /// Ends it, and gives the file when it has `packets` that a display filter matches.
    pub fn finish(mut self, filter: &str, packets: usize) -> Dumped {
        for _ in 0..200 {
            let dumped = Dumped::read(self.file.path(), filter);
            if dumped.0.len() >= packets {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.stop();
        Dumped::read(self.file.path(), filter)
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.child.wait();
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Packets as tshark sees them: bytes, and whether checksums are right.
pub struct Dumped(pub Vec<(Vec<u8>, bool)>);

const CHECKSUMS: [&str; 5] = ["ip", "tcp", "udp", "icmp", "icmpv6"];

impl Dumped {
    fn read(path: &Path, filter: &str) -> Self {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(path).args(["-Y", filter]);
        for protocol in ["ip", "tcp", "udp"] {
            command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
        command.args(["-T", "json", "-x"]);
        let output = command.output().unwrap();
        let Ok(list) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            return Self(Vec::new());
        };
        let packets = list.as_array().unwrap().iter().map(|packet| {
            let layers = &packet["_source"]["layers"];
            let hex = layers["frame_raw"][0].as_str().unwrap();
            let bytes = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            let statuses: Vec<_> = CHECKSUMS
                .iter()
                .filter_map(|protocol| {
                    let status = &layers[*protocol][format!("{protocol}.checksum.status")];
                    status.as_str()
                })
                .collect();
            // IPv6 itself has none, everything above it has.
            let right = !statuses.is_empty() && statuses.iter().all(|status| *status == "1");
            (bytes, right)
        });
        Self(packets.collect())
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
