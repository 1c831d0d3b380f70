//! Interfaces and namespaces that come, change, move and go. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_discover::DiscoveryConfig;
use skua_testkit::{
    lab::{Net, root_tests, run},
    process::Process,
};
use skua_topology::{Patch, Value};
use std::{net::UdpSocket, os::unix::fs::MetadataExt as _, process::Command, time::Duration};
use support::{Lab, config, interface, interfaces, layer2, namespace_node, nodes, text};

#[test]
fn the_host_owns_its_interfaces_and_namespaces() {
    if !root_tests() {
        return;
    }
    let ns = Net::bare();
    let lab = Lab::start(config());
    let graph = lab.graph.read();
    let host = nodes(&graph)
        .into_iter()
        .find(|node| &*node.id == lab.discovery.host_node())
        .unwrap();
    assert_eq!(text(&host.metadata, "Type"), "host");
    assert_eq!(text(&host.metadata, "Name"), "lab");
    assert_eq!(&*host.origin, "netlink.lab");
    for key in [
        "KernelVersion",
        "OS",
        "Architecture",
        "CPUCount",
        "BootTime",
        "InstanceID",
    ] {
        assert!(host.metadata.get(key).is_some(), "{key}");
    }
    let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino() as i64;
    assert_eq!(host.metadata.get("NetNsInode"), Some(&own.into()));

    let node = namespace_node(&graph, &ns.name).unwrap();
    assert_eq!(text(&node.metadata, "Path"), ns.path());
    let inode = ns.inode() as i64;
    assert_eq!(node.metadata.get("NetNsInode"), Some(&inode.into()));
    let lo = interface(&graph, &ns.name, "lo").unwrap();
    assert_eq!(lo.metadata.get("NetNsInode"), Some(&inode.into()));
    assert_eq!(text(&lo.metadata, "EncapType"), "loopback");
}

#[test]
fn without_all_namespaces_only_the_own_one_is_followed() {
    if !root_tests() {
        return;
    }
    let ns = Net::bare();
    let all_netns = false;
    let lab = Lab::start(DiscoveryConfig {
        all_netns,
        ..config()
    });
    assert!(namespace_node(&lab.graph.read(), &ns.name).is_none());
    lab.until_counted("one namespace", |counters| counters.namespaces == 1);
}

#[test]
fn a_pair_across_namespaces_is_one_edge() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let (a, b) = (Net::bare(), Net::bare());
    lab.until_followed(&a.name);
    lab.until_followed(&b.name);
    a.ip(&format!(
        "link add va type veth peer name vb netns {}",
        b.name
    ));
    let edge = |lower: &str, upper: &str| vec![(upper.into(), lower.into(), "veth".to_owned())];
    let both = |namespace: &str, name: &str| {
        lab.until("an edge between both ends", |graph| {
            let node = interface(graph, namespace, name)?;
            let found = layer2(graph, &node.id);
            let either = found == edge("va", "vb") || found == edge("vb", "va");
            either.then_some(node)
        })
    };
    both(&a.name, "va");
    let vb = both(&b.name, "vb");
    lab.until_true(&[&a.name, &b.name]);
    let index = |node: &skua_topology::Node| node.metadata.get("IfIndex").cloned();
    let va = lab.until_has(&a.name, "va", "PeerIfIndex", index(&vb).unwrap());
    lab.until_has(&b.name, "vb", "PeerIfIndex", index(&va).unwrap());
    lab.until_has(&a.name, "va", "LinkNetNsName", b.name.as_str().into());

    // Moved into the other one: a new life there, and the other end knows.
    b.ip("link set vb name moving");
    b.ip(&format!("link set moving netns {}", a.name));
    lab.until_gone(&b.name, "moving");
    let moved = lab.until_there(&a.name, "moving");
    assert_ne!(moved.id, vb.id);
    lab.until("the edge", |graph| {
        let va = interface(graph, &a.name, "va")?;
        let found = layer2(graph, &va.id);
        let either = found == edge("va", "moving") || found == edge("moving", "va");
        either.then_some(())
    });
    let va = lab.until_has(&a.name, "va", "PeerIfIndex", index(&moved).unwrap());
    assert_eq!(va.metadata.get("LinkNetNsID"), None);
    lab.until_true(&[&a.name, &b.name]);
}

#[test]
fn names_change_and_nodes_stay() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    ns.ip("link add one index 100 type bridge");
    let one = lab.until_there(&ns.name, "one");
    // What others have added stays.
    let patch = [Patch::Set("Captures".into(), "theirs".into())];
    lab.graph.write().patch_node(&one.id, &patch, 0).unwrap();
    ns.ip("link set one name two");
    let two = lab.until_there(&ns.name, "two");
    assert_eq!(two.id, one.id);
    assert_eq!(text(&two.metadata, "Captures"), "theirs");
    assert_ne!(text(&two.metadata, "TID"), text(&one.metadata, "TID"));
    // Made again with the same name and number: another life, the same TID.
    ns.ip("link set two name one");
    let one = lab.until_there(&ns.name, "one");
    ns.ip("link del one");
    ns.ip("link add one index 100 type bridge");
    let again = lab.until("another life", |graph| {
        interface(graph, &ns.name, "one").filter(|node| node.id != one.id)
    });
    assert_eq!(text(&again.metadata, "TID"), text(&one.metadata, "TID"));
    assert_eq!(again.metadata.get("IfIndex"), one.metadata.get("IfIndex"));
    assert_eq!(again.metadata.get("Captures"), None);

    // A restart finds the same nodes, and takes away what has gone meanwhile.
    ns.ip("link add three type bridge");
    let three = lab.until_there(&ns.name, "three");
    let graph = lab.graph.clone();
    lab.discovery.stop();
    ns.ip("link del three");
    let lab = Lab::on(graph, config());
    let found = interface(&lab.graph.read(), &ns.name, "one").unwrap();
    assert_eq!(found.id, again.id);
    let ids: Vec<_> = nodes(&lab.graph.read())
        .iter()
        .map(|n| n.id.clone())
        .collect();
    assert!(!ids.contains(&three.id));
    lab.until_true(&[&ns.name]);
}

#[test]
fn a_namespace_that_is_in_use_stays_without_its_name() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let (a, b) = (Net::bare(), Net::bare());
    lab.until_followed(&a.name);
    let node = lab.until_followed(&b.name);
    a.ip(&format!(
        "link add va type veth peer name vb netns {}",
        b.name
    ));
    lab.until_there(&b.name, "vb");
    let mut process = Process::start(&mut b.command("cat"));
    process.write_line("inside");
    process.wait_for_line("inside");
    run(Command::new("ip").args(["netns", "del", &b.name]));
    let name = format!("pid:{}", process.id());
    let still = lab.until("the name of the process", |graph| {
        namespace_node(graph, &name)
    });
    assert_eq!(still.id, node.id);
    assert_eq!(interfaces(&lab.graph.read(), &name).len(), 2);
    // With its last process it goes, at once, and with it the other end of the pair.
    drop(process);
    lab.until("its end", |graph| {
        let gone = !nodes(graph).iter().any(|other| other.id == node.id);
        (gone && interface(graph, &a.name, "va").is_none()).then_some(())
    });
    assert_eq!(lab.discovery.counters().namespaces_refused, 0);
}

#[test]
fn ports_and_the_forwarding_table() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    ns.ip("link add br0 type bridge");
    ns.ip("link add pa type veth peer name pb");
    ns.ip("link set pa master br0");
    let port = lab.until("a port", |graph| {
        let port = interface(graph, &ns.name, "pa")?;
        let edge = ("br0".into(), "pa".into(), String::new());
        layer2(graph, &port.id).contains(&edge).then_some(port)
    });
    bridge(&ns, "fdb add 02:00:00:00:00:77 dev pa master static");
    lab.until("an entry of the forwarding table", |graph| {
        let node = interface(graph, &ns.name, "pa")?;
        let macs = node.lookup("FDB.MAC")?.into_owned();
        let macs = serde_json::to_string(&macs).unwrap();
        macs.contains("02:00:00:00:00:77").then_some(())
    });
    lab.until_true(&[&ns.name]);
    ns.ip("link set pa nomaster");
    lab.until("no port any more", |graph| {
        let edges = layer2(graph, &port.id);
        edges
            .iter()
            .all(|(parent, ..)| parent != "br0")
            .then_some(())
    });
    lab.until_true(&[&ns.name]);
}

fn bridge(ns: &Net, args: &str) {
    run(Command::new("bridge")
        .args(["-n", &ns.name])
        .args(args.split_whitespace()));
}

#[test]
fn vlans_of_ports() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    let args = [
        "-n",
        &ns.name,
        "link",
        "add",
        "br0",
        "type",
        "bridge",
        "vlan_filtering",
        "1",
    ];
    let made = Command::new("ip").args(args).output().unwrap();
    if String::from_utf8_lossy(&made.stderr).contains("not supported") {
        skua_testkit::untested(
            "bridge-vlan",
            "VLANs of bridges, which this kernel does not have",
        );
        return;
    }
    ns.ip("link add pa type veth peer name pb");
    ns.ip("link set pa master br0");
    let ids = |ids: &[i64]| ids.iter().map(|id| Value::Int(*id)).collect::<Value>();
    bridge(&ns, "vlan add vid 10-12 dev pa");
    lab.until_has(&ns.name, "pa", "Vlans", ids(&[1, 10, 11, 12]));
    bridge(&ns, "vlan add vid 20 dev pa pvid untagged");
    lab.until_has(&ns.name, "pa", "PVID", 20.into());
    bridge(&ns, "vlan add vid 30 dev br0 self");
    lab.until_has(&ns.name, "br0", "Vlans", ids(&[1, 30]));
    lab.until_true(&[&ns.name]);
    for vlan in ["1", "10-12", "20"] {
        bridge(&ns, &format!("vlan del vid {vlan} dev pa"));
    }
    lab.until_has(&ns.name, "pa", "Vlans", Value::Null);
    lab.until_true(&[&ns.name]);
}

#[test]
fn an_interface_above_another_hangs_on_it() {
    if !root_tests() {
        return;
    }
    // The owner of a tap is looked for when counters are read.
    let metric_interval = Duration::from_millis(200);
    let lab = Lab::start(DiscoveryConfig {
        metric_interval,
        ..config()
    });
    let (a, b) = (Net::bare(), Net::bare());
    lab.until_followed(&a.name);
    lab.until_followed(&b.name);
    a.ip("link add low type bridge");
    a.ip("link add mv link low type macvlan mode private");
    a.ip("link add vx type vxlan id 7 remote 192.0.2.9 local 192.0.2.1 dstport 4789 dev low");
    a.ip("tuntap add tap0 mode tap user 1");
    for (key, value) in [
        ("Type", "tuntap".into()),
        ("TunTap.Kind", "tap".into()),
        ("TunTap.Owner", 1.into()),
        ("TunTap.Persist", true.into()),
    ] {
        lab.until_has(&a.name, "tap0", key, value);
    }
    let hangs = |namespace: &str, name: &str, kind: &str| {
        lab.until(&format!("{name} on the lower one"), |graph| {
            let node = interface(graph, namespace, name)?;
            let edge = ("low".to_owned(), name.to_owned(), kind.to_owned());
            layer2(graph, &node.id).contains(&edge).then_some(())
        });
    };
    hangs(&a.name, "mv", "macvlan");
    hangs(&a.name, "vx", "vxlan");
    // Also across namespaces.
    a.ip(&format!("link set mv netns {}", b.name));
    hangs(&b.name, "mv", "macvlan");
    lab.until_true(&[&a.name, &b.name]);
}

#[test]
fn features_and_counters() {
    if !root_tests() {
        return;
    }
    let metric_interval = Duration::from_millis(200);
    let lab = Lab::start(DiscoveryConfig {
        metric_interval,
        ..config()
    });
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    ns.ip("link add va type veth peer name vb");
    for name in ["va", "vb"] {
        ns.ip(&format!("link set {name} up"));
    }
    if skua_link::Ethtool::open().unwrap().is_some() {
        let feature = "Features.tx-tcp-segmentation";
        lab.until_has(&ns.name, "va", feature, true.into());
        lab.until_has(&ns.name, "va", "Speed", 10_000.into());
        lab.until_has(&ns.name, "va", "Duplex", "full".into());
        ns.exec("ethtool -K va tso off");
        lab.until_has(&ns.name, "va", feature, false.into());
    } else {
        skua_testkit::untested(
            "ethtool-netlink",
            "changes by ethtool, which this kernel does not report",
        );
    }

    ns.ip("addr add 10.77.0.1/24 dev va");
    ns.ip("neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev va");
    let sent = 17;
    let socket = ns.inside(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    for _ in 0..sent {
        socket.send_to(b"\n", "10.77.0.2:9").unwrap();
    }
    lab.until("counters", |graph| {
        let node = interface(graph, &ns.name, "vb")?;
        let received = ns.counters("vb").rx;
        let seen = |key: &str| node.lookup(key).and_then(|value| value.as_int());
        let same = |key: &str, counted: u64| seen(key) == i64::try_from(counted).ok();
        assert!(received.packets >= sent);
        let all =
            same("Metric.RxPackets", received.packets) && same("Metric.RxBytes", received.bytes);
        let since = seen("LastUpdateMetric.Start")? < seen("LastUpdateMetric.Last")?;
        (all && since).then_some(())
    });
}

#[test]
fn what_is_over_the_limits_is_counted() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(DiscoveryConfig {
        max_routes: 5,
        max_neighbours: 3,
        max_addresses: 2,
        ..config()
    });
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    ns.ip("link add br0 type bridge");
    ns.ip("link set br0 up");
    for last in 1..=8 {
        ns.ip(&format!("route add 10.{last}.0.0/16 dev br0 table 7"));
        ns.ip(&format!(
            "neigh add 192.0.2.{last} lladdr 02:00:00:00:00:0{last} dev br0"
        ));
        ns.ip(&format!("addr add 198.51.100.{last}/32 dev br0"));
    }
    let count = |key: &str, at_least: i64| {
        lab.until(key, |graph| {
            let node = interface(graph, &ns.name, "br0")?;
            (node.lookup(key)?.as_int()? >= at_least).then_some(())
        });
    };
    // Besides, there are the kernel's own routes and its IPv6 address.
    count("RoutesOmitted", 3);
    count("NeighborsOmitted", 5);
    count("AddressesOmitted", 6);
    lab.until_counted("14 omitted", |counters| counters.omitted_entries >= 14);
    // When there is room again, the others come.
    for last in 1..=8 {
        ns.ip(&format!("neigh del 192.0.2.{last} dev br0"));
    }
    lab.until_has(&ns.name, "br0", "NeighborsOmitted", Value::Null);
    lab.until_has(&ns.name, "br0", "Neighbors", Value::Null);
}

#[test]
fn nodes_are_limited() {
    if !root_tests() {
        return;
    }
    let ns = Net::bare();
    let lab = Lab::start(DiscoveryConfig {
        max_nodes: 1,
        ..config()
    });
    assert_eq!(nodes(&lab.graph.read()).len(), 1);
    assert!(namespace_node(&lab.graph.read(), &ns.name).is_none());
    lab.until_counted("omitted nodes", |counters| counters.omitted_nodes > 0);
}

#[test]
fn routes_that_go_without_notice() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    ns.ip("link add br0 type bridge");
    ns.ip("link add other type bridge");
    for name in ["br0", "other"] {
        ns.ip(&format!("link set {name} up"));
    }
    ns.ip("addr add 10.0.0.1/24 dev br0");
    ns.ip("addr add 10.1.0.1/24 dev other");
    ns.ip("route add 10.50.0.0/16 via 10.0.0.9 metric 3");
    ns.ip("route add 10.51.0.0/16 nexthop via 10.0.0.9 nexthop via 10.1.0.9 weight 3");
    ns.ip("route add 10.52.0.0/16 dev other src 10.1.0.1");
    ns.ip("route add blackhole 10.53.0.0/16");
    ns.ip("route add default via 10.1.0.254");
    ns.ip("-6 route add 2001:db8::/32 dev br0");
    lab.until_true(&[&ns.name]);
    ns.ip("route replace 10.50.0.0/16 via 10.1.0.9 metric 3");
    lab.until_true(&[&ns.name]);
    ns.ip("nexthop add id 1 via 10.1.0.9 dev other");
    ns.ip("route add 10.54.0.0/16 nhid 1");
    lab.until_true(&[&ns.name]);
    ns.ip("nexthop replace id 1 via 10.0.0.9 dev br0");
    lab.until_true(&[&ns.name]);
    ns.ip("nexthop del id 1");
    lab.until_true(&[&ns.name]);
    // The kernel drops the routes of an interface that goes down, and notifies nobody.
    ns.ip("link set br0 down");
    lab.until_true(&[&ns.name]);
    ns.ip("addr del 10.1.0.1/24 dev other");
    lab.until_true(&[&ns.name]);
    ns.ip("link del other");
    lab.until_true(&[&ns.name]);
}

#[test]
fn neighbours_of_a_storm_are_written_together() {
    if !root_tests() {
        return;
    }
    let neighbour_interval = Duration::from_secs(3600);
    let lab = Lab::start(DiscoveryConfig {
        neighbour_interval,
        metric_interval: neighbour_interval,
        ..config()
    });
    let ns = Net::bare();
    lab.until("the namespace", |graph| interface(graph, &ns.name, "lo"));
    ns.ip("link add br0 type bridge");
    ns.ip("neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev br0");
    // The first one at once.
    let with_one = lab.until_has(
        &ns.name,
        "br0",
        "Neighbors.IP",
        Value::List([Value::from("192.0.2.1")].into()),
    );
    for last in 2..200 {
        ns.ip(&format!(
            "neigh add 192.0.2.{last} lladdr 02:00:00:00:00:01 dev br0"
        ));
    }
    // The next ones with whatever else changes.
    ns.ip("link set br0 mtu 1400");
    let then = lab.until_has(&ns.name, "br0", "MTU", 1400.into());
    let count = then.lookup("Neighbors.IP").unwrap();
    let Value::List(count) = &*count else {
        panic!("{count:?}");
    };
    assert_eq!(count.len(), 199);
    // Other changes of this node: none that we made.
    assert!(then.revision <= with_one.revision + 2, "{}", then.revision);
}
