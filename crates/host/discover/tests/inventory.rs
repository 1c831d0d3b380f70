//! Containers, processes, guests, programs and rules, with the real thing. Needs root, iproute2, nft,
//! python3, QEMU.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_discover::{DiscoveryConfig, InventoryConfig, ListeningPort, ListeningProcess};
use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind},
};
use skua_testkit::{
    lab::{Net, root_tests},
    process::{Group, Process},
};
use skua_topology::{Graph, Node, Value};
use std::{
    net::{IpAddr, Ipv4Addr},
    os::fd::AsRawFd as _,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use support::{Lab, config, interface, layer2, namespace_node, nodes, text};

/// Settings in which nothing is looked for by the clock within a test, but for what `wanted` says.
fn lab(inventory: InventoryConfig) -> Lab {
    Lab::start(DiscoveryConfig {
        inventory,
        ..config()
    })
}

/// An id of 64 digits that nobody else has.
fn container_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:032x}{:032x}", std::process::id(), number)
}

fn find(graph: &Graph, key: &str, value: impl Into<Value>) -> Option<Arc<Node>> {
    let value = value.into();
    let has = |node: &Arc<Node>| node.lookup(key).is_some_and(|found| *found == value);
    nodes(graph).into_iter().find(has)
}

/// Names of the types of those that own a node.
fn owner(graph: &Graph, node: &Node) -> Option<Arc<str>> {
    let mut owner = None;
    let now = graph.now();
    let direction = skua_topology::Direction::In;
    let _ = graph.edges(
        &node.id,
        now,
        direction,
        Some("ownership"),
        &mut |edge, _| {
            assert!(owner.is_none(), "two owners");
            owner = Some(edge.parent.clone());
            std::ops::ControlFlow::Continue(())
        },
    );
    owner
}

#[test]
fn containers_come_and_go_with_their_processes() {
    if !root_tests() {
        return;
    }
    let ns = Net::bare();
    let lab = lab(InventoryConfig {
        containers: true,
        processes: true,
        ..InventoryConfig::default()
    });
    let id = container_id();
    // It is made when everything runs: only events tell of it.
    let group = Group::new(&format!("docker-{id}.scope"));
    let process = Process::python(&ns, "import time\nprint('on')\ntime.sleep(600)", &[]).ready();
    assert!(find(&lab.graph.read(), "Container.ID", &*id).is_none());
    group.add(&process);
    let node = lab.until("the container", |graph| {
        let node = find(graph, "Container.ID", &*id)?;
        let space = namespace_node(graph, &ns.name)?;
        (owner(graph, &node) == Some(space.id.clone())).then_some(node)
    });
    assert_eq!(text(&node.metadata, "Type"), "container");
    assert_eq!(text(&node.metadata, "Name"), &id[..12]);
    assert_eq!(text(&node.metadata, "Manager"), "docker");
    assert_eq!(&*node.origin, "container.lab");
    let about = |key: &str| node.lookup(key).map(|value| value.into_owned());
    assert_eq!(about("Container.Runtime"), Some("docker".into()));
    assert_eq!(
        about("Container.InitProcessPID"),
        Some(i64::from(process.id()).into())
    );

    // A process that listens in it is the container's.
    let listeners = lab.discovery.listeners().unwrap();
    let space = namespace_node(&lab.graph.read(), &ns.name).unwrap();
    let inode = space.metadata.get("NetNsInode").and_then(Value::as_int);
    let listening = ListeningProcess {
        ns_pid: 0,
        pid: process.id(),
        start_ns: 1,
        name: "shop".into(),
        executable: Some("/bin/shop".into()),
        uid: 0,
        user: Some("root".into()),
        unit: None,
        container: Some(id.clone()),
        netns: inode.unwrap() as u64,
        ports: [443, 80]
            .map(|port| ListeningPort {
                protocol: "TCP",
                address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                port,
            })
            .to_vec(),
    };
    listeners.set(vec![listening.clone()]);
    let shop = lab.until("the process", |graph| {
        let shop = find(graph, "Name", "shop")?;
        (owner(graph, &shop) == Some(node.id.clone())).then_some(shop)
    });
    let ports: Vec<Value> = match shop.metadata.get("Listens") {
        Some(Value::List(list)) => list
            .iter()
            .map(|port| port.as_map().unwrap().get("Port").unwrap().clone())
            .collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(ports, [Value::Int(80), Value::Int(443)]);
    listeners.set(Vec::new());
    lab.until("the end of the process", |graph| {
        find(graph, "Name", "shop").is_none().then_some(())
    });

    drop(process);
    lab.until("the end of the container", |graph| {
        find(graph, "Container.ID", &*id).is_none().then_some(())
    });
    lab.until_counted("no process", |counters| counters.processes == 0);
}

#[test]
fn a_container_in_the_hosts_network_is_the_hosts() {
    if !root_tests() {
        return;
    }
    let id = container_id();
    let group = Group::new(&format!("libpod-{id}.scope"));
    let process = Process::start(Command::new("sleep").arg("600"));
    group.add(&process);
    // It is there before discovery.
    let lab = lab(InventoryConfig {
        containers: true,
        ..InventoryConfig::default()
    });
    let node = lab.until("the container", |graph| {
        let node = find(graph, "Container.ID", &*id)?;
        (owner(graph, &node).as_deref() == Some(lab.discovery.host_node())).then_some(node)
    });
    assert_eq!(text(&node.metadata, "Manager"), "podman");
    lab.until_counted("a container", |counters| counters.containers >= 1);
}

#[test]
fn who_holds_a_tap_is_its_neighbour() {
    if !root_tests() {
        return;
    }
    let ns = Net::bare();
    let lab = lab(InventoryConfig {
        guests: true,
        ..InventoryConfig::default()
    });
    lab.until_followed(&ns.name);
    // Anybody may hold one.
    let holder = Process::python(
        &ns,
        "import fcntl, struct, time\n\
         f = open('/dev/net/tun', 'r+b', buffering=0)\n\
         fcntl.ioctl(f, 0x400454ca, struct.pack('16sH22x', b'ivpy', 0x1002))\n\
         print('on')\n\
         time.sleep(600)\n",
        &[],
    )
    .ready();
    let held = |pid: u32, name: &'static str| {
        let ns = &ns.name;
        move |graph: &Graph| {
            let node = find(graph, "PID", i64::from(pid))?;
            let tap = interface(graph, ns, name)?;
            let edge = (name.to_owned(), text(&node.metadata, "Name").to_owned());
            let edges = layer2(graph, &tap.id);
            let there = edges
                .iter()
                .any(|(parent, child, _)| (parent, child) == (&edge.0, &edge.1));
            there.then_some(node)
        }
    };
    let node = lab.until("who holds it", held(holder.id(), "ivpy"));
    assert_eq!(text(&node.metadata, "Type"), "process");
    drop(holder);
    lab.until("its end", |graph| {
        find(graph, "Name", "ivpy").is_none().then_some(())?;
        find(graph, "@ID", &*node.id).is_none().then_some(())
    });

    // A machine with a tap that was there before: it need not boot. The tap stays when it ends.
    ns.ip("tuntap add dev ivt0 mode tap");
    lab.until_there(&ns.name, "ivt0");
    let qemu = Process::start(ns.command("qemu-system-x86_64").args([
        "-name",
        "guest=shop,,one,debug-threads=on",
        "-M",
        "none",
        "-display",
        "none",
        "-S",
        "-netdev",
        "tap,id=net,ifname=ivt0,script=no,downscript=no",
    ]));
    let machine = lab.until("the machine", held(qemu.id(), "ivt0"));
    assert_eq!(text(&machine.metadata, "Name"), "shop,one");
    assert_eq!(text(&machine.metadata, "Type"), "vm");
    assert_eq!(
        owner(&lab.graph.read(), &machine).as_deref(),
        Some(lab.discovery.host_node())
    );
    drop(qemu);
    lab.until("the machine's end", |graph| {
        find(graph, "Name", "shop,one").is_none().then_some(())
    });
    lab.until_there(&ns.name, "ivt0");
}

/// What the kernel says of a descriptor.
fn said<'a>(key: &str, info: &'a str) -> &'a str {
    let line = info.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap().trim_start_matches([':', '\t'])
}

#[test]
fn programs_are_those_that_were_attached() {
    if !root_tests() {
        return;
    }
    let ns = Net::bare();
    ns.ip("link add iv0 type veth peer name iv1");
    let mut attached = Vec::new();
    let mut wanted = Vec::new();
    for (hook, name, interface) in [
        (HookKind::Tcx, "tcx/ingress", "iv0"),
        (HookKind::Clsact, "clsact/ingress", "iv1"),
    ] {
        let config = FlowTableConfig {
            max_entries: 64,
            max_points: 1,
            ..FlowTableConfig::default()
        };
        let mut table = FlowTable::new(hook, config).unwrap();
        let index = ns.ifindex(interface);
        let program = table.program(0, Direction::Ingress, LinkKind::Ethernet);
        let program = program.unwrap().unwrap();
        let info = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        let attachment =
            ns.inside(|| Attachment::new(program, index, Direction::Ingress, hook).unwrap());
        attached.push((table, attachment));
        wanted.push((name, interface, info));
    }
    let lab = Lab::start(DiscoveryConfig {
        // Nobody reports their end.
        metric_interval: std::time::Duration::from_millis(300),
        inventory: InventoryConfig {
            programs: true,
            ..InventoryConfig::default()
        },
        ..config()
    });
    for (name, on, info) in wanted {
        let program = lab.until(name, |graph| {
            let node = interface(graph, &ns.name, on)?;
            match node.metadata.get("BPF") {
                Some(Value::List(list)) => list.first()?.as_map().cloned(),
                _ => None,
            }
        });
        assert_eq!(text(&program, "Attach"), name);
        assert_eq!(text(&program, "Type"), "sched_cls");
        let id = program.get("ID").and_then(Value::as_int).unwrap();
        assert_eq!(said("prog_id", &info), id.to_string());
        assert_eq!(said("prog_tag", &info), text(&program, "Tag"));
        assert_eq!(text(&program, "Name"), "flow_ingress_et");
    }
    drop(attached);
    for on in ["iv0", "iv1"] {
        lab.until("the end of programs", |graph| {
            let node = interface(graph, &ns.name, on)?;
            node.metadata.get("BPF").is_none().then_some(())
        });
    }
}

#[test]
fn rules_are_those_that_nft_shows() {
    if !root_tests() {
        return;
    }
    let ns = Net::bare();
    ns.exec("nft add table inet iv_before");
    let lab = lab(InventoryConfig {
        nftables: true,
        ..InventoryConfig::default()
    });
    let same = || {
        lab.until("the rules", |graph| {
            let node = namespace_node(graph, &ns.name)?;
            let said = ns.exec("nft --stateless list ruleset");
            (text(&node.metadata, "Nftables") == said).then_some(said)
        })
    };
    assert!(same().contains("iv_before"));
    // Changes are events: the interval is longer than the test's patience is for most.
    ns.exec("nft add chain inet iv_before in { type filter hook input priority 0 ; }");
    ns.exec("nft add rule inet iv_before in tcp dport 22 counter drop");
    assert!(same().contains("dport 22"));
    ns.exec("nft flush ruleset");
    assert_eq!(same(), "");
    let node = namespace_node(&lab.graph.read(), &ns.name).unwrap();
    assert!(node.metadata.get("Nftables").is_none());

    // One that comes later is followed, too, and lets go of.
    let late = Net::bare();
    late.exec("nft add table ip iv_late");
    lab.until("the rules of a later one", |graph| {
        let node = namespace_node(graph, &late.name)?;
        text(&node.metadata, "Nftables")
            .contains("iv_late")
            .then_some(())
    });
    let name = late.name.clone();
    drop(late);
    lab.until("its end", |graph| {
        namespace_node(graph, &name).is_none().then_some(())
    });
    assert!(!Path::new("/run/netns").join(&name).exists());
}
