//! Taps on the running kernel, whichever that is: each way to a monitor, each way to choose. What copies
//! look like in detail, `crates/app/skua/tests/live/tap` shows. Needs root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket},
    os::unix::fs::MetadataExt as _,
    process::Command,
    time::{Duration, Instant},
};

use skua_afpacket::PacketSender;
use skua_link::{LinkSocket, Namespace, Namespaces};
use skua_tap::{
    AddressSelection, Direction, Role, Space, Spec, Tap, TapChoice, TapSocket, Target, Tunnel,
    WantedSockets,
};

const PACKETS: u64 = 50;
const SENDER: &str = "10.8.0.1:7001";
const RECEIVER: &str = "10.8.0.2:7002";

/// The reason to skip the tests, if there is one; kernels before 5.12 print it.
fn left_out() -> bool {
    if std::env::var_os("SKUA_NO_ROOT_TESTS").is_some_and(|value| value == "1") {
        return true;
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    match skua_tap::check() {
        Ok(hook) => {
            let tcx = if version >= (6, 6) { "tcx" } else { "clsact" };
            assert_eq!(hook.name(), tcx, "on {}", release.trim());
            false
        }
        Err(error) => {
            assert!(version < (5, 12), "{}: {error}", release.trim());
            eprintln!("left out: {} is before 5.12: {error}", release.trim());
            true
        }
    }
}

/// A namespace: `gen` — `source`, `mon` — `end`. Gone at the end.
struct Room {
    name: String,
    spaces: Namespaces,
}

impl Room {
    fn new(test: &str) -> Self {
        let name = format!("tp-{test}-{}", std::process::id());
        assert!(ip(&format!("netns add {name}")));
        let mut spaces = Namespaces::selected().unwrap();
        let inode = std::fs::metadata(format!("/run/netns/{name}"))
            .unwrap()
            .ino();
        spaces.select(BTreeSet::from([inode])).unwrap();
        let room = Self { name, spaces };
        // Nothing but what is sent here.
        let quiet = || {
            for of in ["all", "default"] {
                let path = format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6");
                std::fs::write(path, "1").unwrap();
            }
        };
        room.space().enter(quiet).unwrap();
        for (one, other) in [("gen", "source"), ("mon", "end")] {
            room.ip(&format!("link add {one} type veth peer name {other}"));
            for end in [one, other] {
                room.ip(&format!("link set {end} up"));
            }
        }
        room.ip("addr add 10.8.0.1/24 dev gen");
        // The remote end of tunnels.
        room.ip("addr add 10.9.0.1/24 dev mon");
        room.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev mon nud permanent");
        room.ip("neigh add 10.8.0.2 lladdr 02:00:00:00:00:08 dev gen nud permanent");
        room
    }

    fn ip(&self, arguments: &str) {
        assert!(ip(&format!("-n {} {arguments}", self.name)), "{arguments}");
    }

    fn space(&self) -> &Namespace {
        self.spaces.list().last().unwrap()
    }

    fn sender(&self) -> UdpSocket {
        let open = || UdpSocket::bind(SENDER).unwrap();
        self.space().enter(open).unwrap()
    }

    /// Packets that came to where the monitor's are counted.
    fn arrived(&self) -> u64 {
        let links = LinkSocket::open_in(self.space()).unwrap().list().unwrap();
        let end = links.into_iter().find(|link| link.name == "end").unwrap();
        end.stats.rx_packets
    }

    fn spec(&self, target: Option<Target>) -> Spec {
        Spec {
            sources: vec![("source".into(), Space::Named(self.name.clone()))],
            choice: TapChoice::default(),
            directions: vec![Direction::Ingress, Direction::Egress],
            targets: target.into_iter().collect(),
            whole: false,
        }
    }

    fn monitor(&self) -> Target {
        Target::Interface {
            name: "mon".into(),
            space: Space::Named(self.name.clone()),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.name));
    }
}

fn ip(arguments: &str) -> bool {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .unwrap();
    status.success()
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
fn wait_for(room: &Room, expected: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while room.arrived() < expected && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(room.arrived(), expected);
}

#[test]
fn copies_come_once_by_each_way() {
    if left_out() {
        return;
    }
    let room = Room::new("ways");
    let sender = room.sender();
    let tunnel = |tunnel: Tunnel| Target::Tunnel {
        tunnel,
        remote: "10.9.0.2".parse().unwrap(),
        port: tunnel.port(),
        id: 7,
        space: Space::Named(room.name.clone()),
    };
    let mut ways = vec![("its own way", room.spec(Some(room.monitor())))];
    for kind in Tunnel::ALL {
        ways.push((kind.name(), room.spec(Some(tunnel(kind)))));
    }
    let mut tagged = room.spec(Some(room.monitor()));
    (tagged.choice.vlan, tagged.choice.cut) = (100, 64);
    ways.push(("tag and cut", tagged));
    let mut straight = room.spec(Some(room.monitor()));
    (straight.whole, straight.choice.vlan) = (true, 7);
    ways.push(("straight", straight));
    for (way, spec) in ways {
        let tap = started(spec);
        let before = room.arrived();
        send(&sender, PACKETS);
        wait_for(&room, before + PACKETS);
        assert_eq!(counts(&tap), (PACKETS, PACKETS), "{way}");
        let sent = tap.status().monitors[0].counters.sent;
        assert_eq!(sent.packets, PACKETS, "{way}");
    }
    let before = room.arrived();
    send(&sender, PACKETS);
    wait_for(&room, before);
}

#[test]
fn the_selection_changes_without_a_gap() {
    if left_out() {
        return;
    }
    let room = Room::new("choice");
    let sender = room.sender();
    let mut tap = started(room.spec(Some(room.monitor())));
    let mut expected = 0;
    let choices: [(&str, u64, TapChoice); 5] = [
        ("all", PACKETS, TapChoice::default()),
        ("an expression", PACKETS, filter("udp dst port 7002")),
        ("another", 0, filter("tcp")),
        ("addresses", PACKETS, addresses("10.8.0.0/30")),
        ("others", 0, addresses("10.8.0.2/32")),
    ];
    for (what, copied, choice) in choices {
        let mut spec = room.spec(Some(room.monitor()));
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
    let room = Room::new("sockets");
    let sender = room.sender();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let mut spec = room.spec(Some(room.monitor()));
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
    let look = |sockets: &[TapSocket], looked_ns| WantedSockets {
        sockets: sockets.iter().map(|socket| (0, *socket)).collect(),
        looked_ns,
        ..WantedSockets::default()
    };
    const SECOND: u64 = 1_000_000_000;
    let mut expected = 0;
    // Looks, as if so many seconds after each other.
    for (second, sockets, copied) in [
        (1, &[][..], 0),
        (2, &[tcp], 0),
        (3, &[conversation, tcp], PACKETS),
        // Its last packets come when it is gone.
        (4, &[], PACKETS),
        (7, &[], 0),
        (8, &[waits], PACKETS),
    ] {
        tap.set_sockets(&look(sockets, second * SECOND)).unwrap();
        send(&sender, PACKETS);
        expected += copied;
        assert_eq!(counts(&tap), (expected, expected), "second {second}");
    }
    // Another choice has none of what lingers.
    tap.update(spec, Some(&look(&[tcp], 9 * SECOND))).unwrap();
    send(&sender, PACKETS);
    assert_eq!(counts(&tap), (expected, expected));
    assert_eq!(tap.status().sockets.unwrap().held, 1);
}

#[test]
fn ports_are_found_behind_as_many_extension_headers_as_flows_have_them() {
    if left_out() {
        return;
    }
    let room = Room::new("extensions");
    let mut spec = room.spec(Some(room.monitor()));
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
    let sender = room.space().enter(|| {
        let links = LinkSocket::open().unwrap().list().unwrap();
        let from = links.into_iter().find(|link| link.name == "gen").unwrap();
        PacketSender::open(from.ifindex, "gen").unwrap()
    });
    let sender = sender.unwrap();
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
    let room = Room::new("stream");
    let sender = room.sender();
    let tap = started(room.spec(None));
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
