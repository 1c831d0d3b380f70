//! Taps on the running kernel, whichever that is: each path to a monitor, each kind of choice. What copies
//! look like in detail, `crates/app/skua/tests/live/tap` shows. Needs root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use skua_afpacket::PacketSender;
use skua_tap::{
    AddressSelection, Direction, Role, Space, Spec, Tap, TapChoice, TapSocket, Target, Tunnel,
    WantedSockets,
};
use skua_testkit::lab::{Net, kernel, root_tests, wait_until};

const PACKETS: u64 = 50;
const SENDER: &str = "10.8.0.1:7001";
const RECEIVER: &str = "10.8.0.2:7002";

/// Whether there is nothing to test, as on kernels before 5.12.
fn left_out() -> bool {
    if !root_tests() {
        return true;
    }
    let version = kernel();
    match skua_tap::check() {
        Ok(hook) => {
            let tcx = if version >= (6, 6) { "tcx" } else { "clsact" };
            assert_eq!(hook.name(), tcx, "on {version:?}");
            false
        }
        Err(error) => {
            assert!(version < (5, 12), "{version:?}: {error}");
            eprintln!("left out: {version:?} is before 5.12: {error}");
            true
        }
    }
}

/// A namespace: `gen` — `source`, `mon` — `end`.
struct Lab(Net);

impl Lab {
    fn new() -> Self {
        let net = Net::new();
        for (one, other) in [("gen", "source"), ("mon", "end")] {
            net.ip(&format!("link add {one} type veth peer name {other}"));
            for end in [one, other] {
                net.ip(&format!("link set {end} up"));
            }
        }
        net.ip("addr add 10.8.0.1/24 dev gen");
        // The remote end of tunnels.
        net.ip("addr add 10.9.0.1/24 dev mon");
        net.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev mon nud permanent");
        net.ip("neigh add 10.8.0.2 lladdr 02:00:00:00:00:08 dev gen nud permanent");
        Self(net)
    }

    fn space(&self) -> Space {
        Space::Named(self.0.name.clone())
    }

    fn sender(&self) -> UdpSocket {
        self.0.inside(|| UdpSocket::bind(SENDER).unwrap())
    }

    /// Packets that came to where the monitor's are counted.
    fn arrived(&self) -> u64 {
        self.0.counters("end").rx.packets
    }

    fn spec(&self, target: Option<Target>) -> Spec {
        Spec {
            sources: vec![("source".into(), self.space())],
            choice: TapChoice::default(),
            directions: vec![Direction::Ingress, Direction::Egress],
            targets: target.into_iter().collect(),
            whole: false,
        }
    }

    fn monitor(&self) -> Target {
        Target::Interface {
            name: "mon".into(),
            space: self.space(),
        }
    }
}

fn started(spec: Spec) -> Tap {
    let mut tap = Tap::new(spec).unwrap();
    tap.reconcile();
    let status = tap.status();
    let source = &status.sources[0];
    assert_eq!((&source.error, &status.missing), (&None, &Vec::new()));
    if let Some(monitor) = status.monitors.first() {
        assert_eq!(monitor.error, None);
    }
    tap
}

fn send(socket: &UdpSocket, count: u64) {
    for number in 0..count {
        let sent = socket.send_to(&[number as u8; 200], RECEIVER).unwrap();
        assert_eq!(sent, 200);
    }
}

/// Packets that matched and were copied; what matched was copied, or is in one of the causes.
fn counts(tap: &Tap) -> (u64, u64) {
    let status = tap.status();
    let mut sum = status.sources[0].received;
    sum += status.sources[0].sent;
    let dropped: u64 = sum.dropped.iter().map(|count| count.packets).sum();
    assert_eq!(sum.matched.packets, sum.copied.packets + dropped);
    (sum.matched.packets, sum.copied.packets)
}

/// Waits for packets at the monitor, and that no more come.
fn wait_arrived(lab: &Lab, expected: u64) {
    wait_until("packets", || lab.arrived() >= expected);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lab.arrived(), expected);
}

#[test]
fn copies_come_once_by_each_path() {
    if left_out() {
        return;
    }
    let lab = Lab::new();
    let sender = lab.sender();
    let tunnel = |tunnel: Tunnel| Target::Tunnel {
        tunnel,
        remote: "10.9.0.2".parse().unwrap(),
        port: tunnel.port(),
        id: 7,
        space: lab.space(),
    };
    let mut paths = vec![("its own path", lab.spec(Some(lab.monitor())))];
    for kind in Tunnel::ALL {
        paths.push((kind.name(), lab.spec(Some(tunnel(kind)))));
    }
    let mut tagged = lab.spec(Some(lab.monitor()));
    (tagged.choice.vlan, tagged.choice.cut) = (100, 64);
    paths.push(("tag and cut", tagged));
    let mut straight = lab.spec(Some(lab.monitor()));
    (straight.whole, straight.choice.vlan) = (true, 7);
    paths.push(("straight", straight));
    for (path, spec) in paths {
        let tap = started(spec);
        let before = lab.arrived();
        send(&sender, PACKETS);
        wait_arrived(&lab, before + PACKETS);
        assert_eq!(counts(&tap), (PACKETS, PACKETS), "{path}");
        let sent = tap.status().monitors[0].counters.sent;
        assert_eq!(sent.packets, PACKETS, "{path}");
    }
    let before = lab.arrived();
    send(&sender, PACKETS);
    wait_arrived(&lab, before);
}

#[test]
fn the_selection_changes_without_a_gap() {
    if left_out() {
        return;
    }
    let lab = Lab::new();
    let sender = lab.sender();
    let mut tap = started(lab.spec(Some(lab.monitor())));
    let mut expected = 0;
    let choices: [(&str, u64, TapChoice); 5] = [
        ("all", PACKETS, TapChoice::default()),
        ("an expression", PACKETS, filter("udp dst port 7002")),
        ("another", 0, filter("tcp")),
        ("addresses", PACKETS, addresses("10.8.0.0/30")),
        ("others", 0, addresses("10.8.0.2/32")),
    ];
    for (what, copied, choice) in choices {
        let mut spec = lab.spec(Some(lab.monitor()));
        spec.choice = choice;
        tap.update(spec, None).unwrap();
        send(&sender, PACKETS);
        expected += copied;
        assert_eq!(counts(&tap), (expected, expected), "{what}");
    }
}

fn filter(expression: &str) -> TapChoice {
    TapChoice {
        filter: expression.into(),
        ..TapChoice::default()
    }
}

/// As source only.
fn addresses(prefix: &str) -> TapChoice {
    let mut addresses = AddressSelection::default();
    addresses.add_prefix(prefix.parse().unwrap(), Role::SOURCE);
    TapChoice {
        addresses,
        ..TapChoice::default()
    }
}

#[test]
fn sockets_are_chosen_and_linger() {
    if left_out() {
        return;
    }
    let lab = Lab::new();
    let sender = lab.sender();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let mut spec = lab.spec(Some(lab.monitor()));
    spec.choice.sockets = true;
    let mut tap = started(spec.clone());
    let conversation = TapSocket {
        protocol: 17,
        local: address(SENDER),
        remote: Some(address(RECEIVER)),
    };
    let waits = TapSocket {
        local: address(RECEIVER),
        remote: None,
        ..conversation
    };
    let tcp = TapSocket {
        protocol: 6,
        ..conversation
    };
    let wanted = |sockets: &[TapSocket], looked_ns| WantedSockets {
        sockets: sockets.iter().map(|socket| (0, *socket)).collect(),
        looked_ns,
        ..WantedSockets::default()
    };
    const SECOND: u64 = 1_000_000_000;
    let mut expected = 0;
    // Lists of sockets, as if so many seconds after each other.
    for (second, sockets, copied) in [
        (1, &[][..], 0),
        (2, &[tcp], 0),
        (3, &[conversation, tcp], PACKETS),
        // Its last packets come when it is gone.
        (4, &[], PACKETS),
        (7, &[], 0),
        (8, &[waits], PACKETS),
    ] {
        tap.set_sockets(&wanted(sockets, second * SECOND)).unwrap();
        send(&sender, PACKETS);
        expected += copied;
        assert_eq!(counts(&tap), (expected, expected), "second {second}");
    }
    // Another choice has none of what lingers.
    tap.update(spec, Some(&wanted(&[tcp], 9 * SECOND))).unwrap();
    send(&sender, PACKETS);
    assert_eq!(counts(&tap), (expected, expected));
    assert_eq!(tap.status().sockets.unwrap().held, 1);
}

#[test]
fn ports_are_found_behind_as_many_extension_headers_as_flows_have_them() {
    if left_out() {
        return;
    }
    let lab = Lab::new();
    let mut spec = lab.spec(Some(lab.monitor()));
    spec.choice.sockets = true;
    let mut tap = started(spec);
    let waits = TapSocket {
        protocol: 17,
        local: "[fd00::2]:7".parse().unwrap(),
        remote: None,
    };
    let wanted = WantedSockets {
        sockets: [(0, waits)].into_iter().collect(),
        looked_ns: 1,
        ..WantedSockets::default()
    };
    tap.set_sockets(&wanted).unwrap();
    let index = lab.0.ifindex("gen");
    let sender = lab.0.inside(|| PacketSender::open(index, "gen").unwrap());
    // Seven, eight, nine, a hundred, and nine of all kinds.
    let packets = skua_testkit::named("ipv6_extensions_many").unwrap().records;
    let expected = [1, 2, 2, 2, 2];
    assert_eq!(packets.len(), expected.len());
    for (packet, copied) in packets.iter().zip(expected) {
        sender.send(&packet.data).unwrap();
        assert_eq!(counts(&tap), (copied, copied));
    }
    // Each header alone; of fragments only that has ports which is a whole packet. One packet is too long for the link.
    for (name, copied) in [("ipv6_extensions", 8), ("ipv6_fragments", 1)] {
        let before = counts(&tap).0;
        let mut packets = skua_testkit::named(name).unwrap().records;
        packets.retain(|packet| packet.data.len() <= 1_514);
        for packet in packets {
            sender.send(&packet.data).unwrap();
        }
        assert_eq!(counts(&tap).0 - before, copied, "{name}");
    }
}

#[test]
fn packets_come_to_user_space() {
    if left_out() {
        return;
    }
    let lab = Lab::new();
    let sender = lab.sender();
    let tap = started(lab.spec(None));
    let mut reader = tap.reader().unwrap().unwrap();
    send(&sender, PACKETS);
    let mut lengths = Vec::new();
    let end = Instant::now() + Duration::from_secs(60);
    while lengths.len() < PACKETS as usize && Instant::now() < end {
        reader.wait(Duration::from_millis(100));
        reader
            .drain(&mut |packet| lengths.push(packet.data.len()))
            .unwrap();
    }
    assert_eq!(lengths, [14 + 20 + 8 + 200; PACKETS as usize]);
    assert_eq!(counts(&tap), (PACKETS, PACKETS));
}
