//! Interfaces and their events in fresh network namespaces. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

use rustix::event::{PollFd, PollFlags, poll};
use skua_link::{
    Ethtool, Link, LinkEvent, LinkMonitor, LinkSocket, Namespace, create_veth, delete_link,
};
use skua_testkit::lab::{Net, root_tests};
use std::net::UdpSocket;

fn opened(net: &Net) -> Namespace {
    net.inside(Namespace::own).unwrap()
}

/// Reads events until `done` says so of all read up to now; each poll may take 10 s at most, so
/// that a missing event fails the test instead of hanging it.
fn events_until(monitor: &mut LinkMonitor, done: impl Fn(&[LinkEvent]) -> bool) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    while !done(&events) {
        let mut fds = [PollFd::new(monitor, PollFlags::IN)];
        let timeout = rustix::event::Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        assert_eq!(
            poll(&mut fds, Some(&timeout)).unwrap(),
            1,
            "only these came: {events:?}"
        );
        events.extend(monitor.read().unwrap());
    }
    events
}

fn new_link<'a>(events: &'a [LinkEvent], wanted: &str) -> Option<&'a Link> {
    events.iter().rev().find_map(|event| match event {
        LinkEvent::New(link) if link.name == wanted => Some(link),
        _ => None,
    })
}

fn by_name(links: &[Link], wanted: &str) -> Link {
    links
        .iter()
        .find(|link| link.name == wanted)
        .unwrap()
        .clone()
}

#[test]
fn a_list_describes_interfaces() {
    if !root_tests() {
        return;
    }
    let (a, b) = (Net::bare(), Net::bare());
    a.ip("link add va address 02:00:00:00:00:0a mtu 1400 type veth peer name vb");
    a.ip(&format!("link set vb netns {}", b.name));
    a.ip("link add br0 type bridge");
    a.ip("link set va master br0 up");
    a.ip("link add mv0 link br0 type macvlan");
    a.ip("link add vx0 type vxlan id 7 dstport 4789 dev va");

    let mut socket = LinkSocket::open_in(&opened(&a)).unwrap();
    let links = socket.list().unwrap();
    let mut names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["br0", "lo", "mv0", "va", "vx0"]);

    let lo = by_name(&links, "lo");
    assert_eq!(
        (lo.ifindex, lo.arphrd, lo.up, &lo.kind),
        (1, 772, false, &None)
    );
    assert!(lo.is_loopback() && lo.has_ethernet_header());

    let bridge = by_name(&links, "br0");
    assert_eq!(bridge.kind.as_deref(), Some("bridge"));
    let veth = by_name(&links, "va");
    assert_eq!(veth.kind.as_deref(), Some("veth"));
    assert_eq!(veth.mac, Some([2, 0, 0, 0, 0, 10]));
    assert_eq!(
        (veth.mtu, veth.arphrd, veth.master),
        (1400, 1, Some(bridge.ifindex))
    );
    // Up, but its other end is down: no carrier.
    assert!(veth.up && !veth.running);
    assert_eq!(by_name(&links, "vx0").kind.as_deref(), Some("vxlan"));
    let macvlan = by_name(&links, "mv0");
    assert_eq!(macvlan.kind.as_deref(), Some("macvlan"));
    assert_eq!(
        (macvlan.link, macvlan.link_netnsid),
        (Some(bridge.ifindex), None)
    );

    let peer = by_name(
        &LinkSocket::open_in(&opened(&b)).unwrap().list().unwrap(),
        "vb",
    );
    assert_eq!(veth.link, Some(peer.ifindex));
    assert!(veth.link_netnsid.is_some() && peer.link_netnsid.is_some());

    // The same by index, and an index that does not exist; then the socket still works.
    assert_eq!(socket.get(veth.ifindex).unwrap(), Some(veth));
    assert_eq!(socket.get(99_999).unwrap(), None);
    assert_eq!(socket.list().unwrap().len(), 5);
}

#[test]
fn events_follow_an_interface_through_its_life() {
    if !root_tests() {
        return;
    }
    let (a, b) = (Net::bare(), Net::bare());
    let mut in_a = LinkMonitor::open_in(&opened(&a)).unwrap();
    let mut in_b = LinkMonitor::open_in(&opened(&b)).unwrap();
    assert_eq!(in_a.read().unwrap(), []);

    a.ip("link add va type veth peer name vb");
    let events = events_until(&mut in_a, |e| {
        new_link(e, "va").is_some() && new_link(e, "vb").is_some()
    });
    let va = new_link(&events, "va").unwrap().clone();
    assert!(!va.up);
    assert_eq!(va.kind.as_deref(), Some("veth"));

    a.ip("link set va up");
    events_until(&mut in_a, |e| {
        new_link(e, "va").is_some_and(|link| link.up && !link.running)
    });
    a.ip("link set vb up");
    events_until(&mut in_a, |e| {
        new_link(e, "va").is_some_and(|link| link.up && link.running)
    });
    a.ip("link set va down");
    events_until(&mut in_a, |e| {
        new_link(e, "va").is_some_and(|link| !link.up)
    });

    a.ip("link set va name renamed");
    let events = events_until(&mut in_a, |e| new_link(e, "renamed").is_some());
    assert_eq!(new_link(&events, "renamed").unwrap().ifindex, va.ifindex);

    // Leaving a bridge is no deletion, although the bridge says RTM_DELLINK.
    a.ip("link add br0 type bridge");
    a.ip("link set renamed master br0");
    let events = events_until(&mut in_a, |e| {
        new_link(e, "renamed").is_some_and(|l| l.master.is_some())
    });
    let bridge = new_link(&events, "br0").unwrap().ifindex;
    a.ip("link set renamed nomaster");
    a.ip("link set br0 mtu 1300");
    let events = events_until(&mut in_a, |e| {
        new_link(e, "br0").is_some_and(|l| l.mtu == 1300)
    });
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, LinkEvent::Deleted { .. })),
        "{events:?}"
    );
    assert_eq!(new_link(&events, "renamed").unwrap().master, None);
    a.ip("link del br0");
    events_until(&mut in_a, |e| {
        e.contains(&LinkEvent::Deleted {
            ifindex: bridge,
            name: "br0".into(),
            moved: false,
        })
    });

    a.ip(&format!("link set renamed netns {}", b.name));
    let events = events_until(&mut in_a, |e| {
        e.iter()
            .any(|event| matches!(event, LinkEvent::Deleted { .. }))
    });
    assert!(events.contains(&LinkEvent::Deleted {
        ifindex: va.ifindex,
        name: "renamed".into(),
        moved: true
    }));
    let events = events_until(&mut in_b, |e| new_link(e, "renamed").is_some());
    let moved = new_link(&events, "renamed").unwrap();
    assert_eq!(moved.mac, va.mac);

    b.ip("link del renamed");
    events_until(&mut in_b, |e| {
        e.contains(&LinkEvent::Deleted {
            ifindex: moved.ifindex,
            name: "renamed".into(),
            moved: false,
        })
    });
    // Its other end dies with it.
    events_until(&mut in_a, |e| {
        e.iter()
            .any(|event| matches!(event, LinkEvent::Deleted { name, .. } if name == "vb"))
    });
    assert_eq!(
        LinkSocket::open_in(&opened(&a))
            .unwrap()
            .list()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn counters_are_exact() {
    if !root_tests() {
        return;
    }
    // Without IPv6 and ARP nothing but the test's own packets passes.
    let (a, b) = (Net::new(), Net::new());
    a.pair("va arp off", &b, "vb arp off");
    a.ip("addr add 10.77.0.1/24 dev va");
    a.ip("neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev va");
    let mut socket_a = LinkSocket::open_in(&opened(&a)).unwrap();
    let mut socket_b = LinkSocket::open_in(&opened(&b)).unwrap();
    let before_a = by_name(&socket_a.list().unwrap(), "va");
    let before_b = by_name(&socket_b.list().unwrap(), "vb");

    let packets = 1_000;
    let udp = a.inside(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    for _ in 0..packets {
        udp.send_to(&[0; 100], "10.77.0.2:9").unwrap();
    }

    let bytes = packets * (14 + 20 + 8 + 100);
    let after_a = socket_a.get(before_a.ifindex).unwrap().unwrap().stats;
    let after_b = socket_b.get(before_b.ifindex).unwrap().unwrap().stats;
    assert_eq!(after_a.tx_packets - before_a.stats.tx_packets, packets);
    assert_eq!(after_a.tx_bytes - before_a.stats.tx_bytes, bytes);
    assert_eq!(after_b.rx_packets - before_b.stats.rx_packets, packets);
    assert_eq!(after_b.rx_bytes - before_b.stats.rx_bytes, bytes);
    assert_eq!(after_a.rx_packets, before_a.stats.rx_packets);
}

#[test]
fn lost_events_are_reported() {
    if !root_tests() {
        return;
    }
    let a = Net::bare();
    a.ip("link add va type veth peer name vb");
    let mut monitor = LinkMonitor::open_in(&opened(&a)).unwrap();
    // Holds some of the notifications.
    rustix::net::sockopt::set_socket_recv_buffer_size(&monitor, 64 << 10).unwrap();
    let script: String = (0..200)
        .map(|i| format!("link set va mtu {}\n", 1300 + i))
        .collect();
    a.ip_batch(&script);

    let events = events_until(&mut monitor, |e| e.contains(&LinkEvent::Resync));
    assert!((2..200).contains(&events.len()), "{}", events.len());
    // What waited is older than what a caller lists now: it does not come afterwards.
    assert_eq!(events.last(), Some(&LinkEvent::Resync));
    assert_eq!(monitor.read().unwrap(), []);
    let links = LinkSocket::open_in(&opened(&a)).unwrap().list().unwrap();
    assert_eq!(by_name(&links, "va").mtu, 1499);
}

#[test]
fn many_interfaces_are_listed_whole() {
    if !root_tests() {
        return;
    }
    let a = Net::bare();
    let script: String = (0..300)
        .map(|i| format!("link add v{i} type veth peer name w{i}\n"))
        .collect();
    a.ip_batch(&script);
    let links = LinkSocket::open_in(&opened(&a)).unwrap().list().unwrap();
    assert_eq!(links.len(), 601);
    assert!(
        links
            .iter()
            .all(|link| !link.name.is_empty() && link.mtu > 0)
    );
}

#[test]
fn addresses_of_all_interfaces_are_listed() {
    if !root_tests() {
        return;
    }
    let a = Net::bare();
    a.ip("link set lo up");
    a.ip("link add va type veth peer name vb");
    a.ip("addr add 10.1.2.3/24 dev va");
    a.ip("addr add fd00::7/64 dev va nodad");
    // Of a point-to-point interface the own address counts, not the other end's.
    a.ip("addr add 10.9.9.1 peer 10.9.9.2 dev vb");
    a.ip("link set va up");
    let mut socket = LinkSocket::open_in(&opened(&a)).unwrap();
    let addresses = socket.addresses().unwrap();
    let has = |text: &str| addresses.contains(&text.parse().unwrap());
    for there in ["127.0.0.1", "10.1.2.3", "fd00::7", "10.9.9.1"] {
        assert!(has(there), "{there} in {addresses:?}");
    }
    assert!(!has("10.9.9.2"), "{addresses:?}");
    // The socket goes on listing interfaces.
    assert!(socket.list().unwrap().iter().any(|link| link.name == "va"));
}

#[test]
fn a_pair_is_made_quiet_and_goes_as_one() {
    if !root_tests() {
        return;
    }
    let net = Net::bare();
    let work = || {
        let own = Namespace::own().unwrap();
        let (near, far) = create_veth((&own, "near0"), (&own, "far0")).unwrap();
        let mut links = LinkSocket::open().unwrap();
        let link = links.get(near).unwrap().unwrap();
        assert_eq!(
            (&*link.name, link.mtu, link.link),
            ("near0", 65_535, Some(far))
        );
        assert!(create_veth((&own, "near0"), (&own, "other0")).is_err());
        let mut ethtool = Ethtool::open().unwrap().unwrap();
        let wanted = ["tx-tcp-segmentation", "tx-checksum-ip-generic"];
        ethtool.turn_off(near, &wanted).unwrap();
        let active = ethtool.active_features(near).unwrap();
        assert!(
            !wanted.iter().any(|name| active.contains(*name)),
            "{active:?}"
        );
        let others = ethtool.active_features(far).unwrap();
        assert!(
            wanted.iter().all(|name| others.contains(*name)),
            "{others:?}"
        );
        links.set_up(near).unwrap();
        links.set_up(far).unwrap();
        // Both are up, and without an address of IPv6.
        let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        assert!(!text.contains("near0"), "{text}");
        delete_link(&own, near).unwrap();
        assert!(links.get(far).unwrap().is_none());
    };
    net.inside(work);
}
