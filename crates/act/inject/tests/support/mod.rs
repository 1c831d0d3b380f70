//! Three network namespaces in a row: a host, a router, a host.

use skua_inject::{
    Addresses, Frames, Injection, Job, Kind, Mac, Mode, Payload, Point, Template, flags,
};
use skua_testkit::{lab::Net, process::Tcpdump};
use std::{net::IpAddr, process::Command, time::Duration};

/// An interface to send from or to watch.
pub fn point(net: &Net, interface: &str) -> Point {
    let link = net.link(interface);
    Point {
        netns_inode: net.inode(),
        ifindex: link["ifindex"].as_u64().unwrap() as u32,
        name: interface.into(),
        ethernet: link["link_type"] == "ether" || link["link_type"] == "loopback",
        loopback: link["link_type"] == "loopback",
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
            a: Net::with_ipv6(),
            router: Net::with_ipv6(),
            b: Net::with_ipv6(),
        };
        for net in [&lab.a, &lab.router, &lab.b] {
            net.sysctl("ipv6/conf/default/accept_dad", "0");
        }
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
            host.pair(
                &format!("{own} address {mac}"),
                &lab.router,
                &format!("{peer} address {peer_mac}"),
            );
            for (side, link, last) in [(host, own, 2), (&lab.router, peer, 1)] {
                side.ip(&format!("addr add 10.81.{net}.{last}/24 dev {link}"));
                side.ip(&format!("addr add fd81:{net}::{last}/64 dev {link} nodad"));
                // Before that, IPv6 answers nobody.
                side.wait_up(link);
            }
            host.ip(&format!("route add default via 10.81.{net}.1"));
            host.ip(&format!("-6 route add default via fd81:{net}::1"));
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
            source: point(&self.a, "a0"),
            destination: Some(point(&self.b, "b0")),
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

/// Captures what passes an interface, and nothing that is for others.
pub fn capture(net: &Net, interface: &str) -> Tcpdump {
    Tcpdump::start(net, interface, &["--immediate-mode", "-p"])
}

/// Packets as tshark sees them: bytes, and whether checksums are right.
pub struct Dumped(pub Vec<(Vec<u8>, bool)>);

const CHECKSUMS: [&str; 5] = ["ip", "tcp", "udp", "icmp", "icmpv6"];

impl Dumped {
    /// Ends a capture; the packets that a display filter matches.
    pub fn read(mut capture: Tcpdump, filter: &str) -> Self {
        capture.stop();
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(capture.file());
        command.args(["-Y", filter]);
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
