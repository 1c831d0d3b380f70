//! The graph beside a real OVN: northd, a chassis on the userspace datapath, and packets that ACLs decide about.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use skua_discover::{Discovery, DiscoveryConfig};
use skua_ovsdb::{OvnConfig, OvnTopology, OvsConfig, OvsTopology, RulesConfig, Target};
use skua_testkit::{
    lab::{Net, run, wait_until},
    process::Process,
};
use skua_topology::{Config, Direction, Graph, Lookup, Node, SharedGraph};
use std::{
    collections::BTreeSet, net::UdpSocket, ops::ControlFlow, process::Command, sync::Arc,
    time::Duration,
};
use support::{Ovs, command};

const HOST: &str = "h";

/// Databases, northd and a chassis.
struct Ovn {
    _processes: Vec<Process>,
    ovs: Ovs,
}

impl Ovn {
    fn new() -> Self {
        let ovs = Ovs::new();
        for name in ["nb", "sb"] {
            let schema = format!("/usr/share/ovn/ovn-{name}.ovsschema");
            run(Command::new("ovsdb-tool").args([
                "create",
                &ovs.file(&format!("{name}.db")),
                &schema,
            ]));
        }
        let (socket, remote) = (
            ovs.path("ovn.sock"),
            format!("--remote=punix:{}", ovs.file("ovn.sock")),
        );
        let (nb, sb) = (ovs.file("nb.db"), ovs.file("sb.db"));
        let control = |name: &str| format!("--unixctl={}", ovs.file(name));
        let mut processes = vec![ovs.start(
            "ovsdb-server",
            &[&nb, &sb, &remote, &control("ovn.ctl")],
            "ovn-server.log",
        )];
        wait_until("OVN's database", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        let at = format!("unix:{}", socket.display());
        let (north, south) = (format!("--ovnnb-db={at}"), format!("--ovnsb-db={at}"));
        processes.push(ovs.start(
            "ovn-northd",
            &[&north, &south, &control("northd.ctl")],
            "northd.log",
        ));
        ovs.vsctl_no_wait(&[
            "set",
            "open_vswitch",
            ".",
            "external_ids:system-id=chassis-1",
            "external_ids:hostname=one",
            &format!("external_ids:ovn-remote={at}"),
            "external_ids:ovn-encap-type=geneve",
            "external_ids:ovn-encap-ip=127.0.0.1",
            "external_ids:ovn-bridge-datapath-type=netdev",
        ]);
        let database = ovs.target().to_string();
        processes.push(ovs.start("ovn-controller", &[&database], "controller.log"));
        wait_until("the integration bridge", || {
            ovs.vsctl_no_wait(&["list-br"]).contains("br-int")
        });
        Self {
            _processes: processes,
            ovs,
        }
    }

    fn target(&self) -> Target {
        Target::Unix(self.ovs.path("ovn.sock"))
    }

    /// Returns when the chassis has done it.
    fn nbctl(&self, line: &[&str]) -> String {
        let mut nbctl = command(&self.ovs.ns, "ovn-nbctl");
        nbctl.arg(format!("--db={}", self.target()));
        run(nbctl.args(["--timeout=30", "--wait=hv"]).args(line))
    }

    /// What a table has in a column.
    fn column(&self, table: &str, column: &str) -> BTreeSet<String> {
        let columns = format!("--columns={column}");
        let text = self.nbctl(&["--bare", &columns, "list", table]);
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }
}

fn text(node: &Node, key: &str) -> String {
    let found = node.lookup(key);
    found
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn int(node: &Node, key: &str) -> Option<i64> {
    node.lookup(key)?.as_int()
}

fn of_type(graph: &SharedGraph, kind: &str) -> Vec<Arc<Node>> {
    let (graph, mut found) = (graph.read(), Vec::new());
    let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
        if text(node, "Type") == kind {
            found.push(node.clone());
        }
        ControlFlow::Continue(())
    });
    found
}

/// The nodes that a node's edges of a relation lead to.
fn out(graph: &SharedGraph, node: &Node, relation: &str) -> Vec<Arc<Node>> {
    let (graph, mut ends) = (graph.read(), Vec::new());
    let way = Direction::Out;
    let _ = graph.edges(
        &node.id,
        graph.now(),
        way,
        Some(relation),
        &mut |edge, _| {
            ends.push(edge.child.clone());
            ControlFlow::Continue(())
        },
    );
    ends.iter()
        .filter_map(|id| graph.current_node(id))
        .collect()
}

fn names(nodes: &[Arc<Node>]) -> BTreeSet<String> {
    nodes.iter().map(|node| text(node, "Name")).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn switches_routers_acls_and_what_acls_let_pass() {
    let ovn = Ovn::new();
    let ovs = &ovn.ovs;
    let machines = [Net::new(), Net::new()];
    let graph: SharedGraph = Graph::new(Config::default()).into();
    let settings = DiscoveryConfig {
        host: HOST.to_owned(),
        all_netns: true,
        ..DiscoveryConfig::default()
    };
    let _discovery = ovs
        .ns
        .inside(|| Discovery::start(settings, graph.clone()).unwrap());
    let mut config = OvsConfig::new(ovs.target(), HOST);
    config.client = ovs.client();
    config.netns = Some(ovs.ns.inode());
    config.rules = Some(RulesConfig {
        folder: ovs.dir.path().to_owned(),
        interval: Duration::from_millis(300),
        ..RulesConfig::default()
    });
    let _switch = OvsTopology::start(config, graph.clone()).unwrap();
    let config = OvnConfig {
        northbound: Some(ovn.target()),
        southbound: Some(ovn.target()),
        host: HOST.to_owned(),
        hits: true,
        interval: Duration::from_millis(300),
    };
    let topology = OvnTopology::start(config.clone(), graph.clone()).unwrap();

    let mut lines: Vec<Vec<&str>> = [
        "ls-add sw0",
        "lr-add r0",
        "lrp-add r0 r0-sw0 02:00:00:00:01:00 10.0.0.254/24",
        "lsp-add sw0 sw0-r0",
        "lsp-set-type sw0-r0 router",
        "lsp-set-addresses sw0-r0 router",
        "lsp-set-options sw0-r0 router-port=r0-sw0",
        "lr-route-add r0 192.0.2.0/24 10.0.0.1",
        "lr-nat-add r0 snat 198.51.100.1 10.0.0.0/24",
        "lb-add lb0 10.0.0.100:80 10.0.0.1:80",
        "ls-lb-add sw0 lb0",
        "lsp-add sw0 p1",
        "lsp-add sw0 p2",
        "pg-add pg0 p1 p2",
    ]
    .map(|line| line.split(' ').collect())
    .into();
    lines.push(vec![
        "lsp-set-addresses",
        "p1",
        "02:00:00:00:00:01 10.0.0.1",
    ]);
    lines.push(vec![
        "lsp-set-addresses",
        "p2",
        "02:00:00:00:00:02 10.0.0.2",
    ]);
    lines.push(vec![
        "--name=pass",
        "acl-add",
        "sw0",
        "from-lport",
        "100",
        "udp.dst == 9",
        "allow",
    ]);
    lines.push(vec![
        "--name=stop",
        "acl-add",
        "sw0",
        "from-lport",
        "90",
        "udp.dst == 10",
        "drop",
    ]);
    lines.push(vec![
        "acl-add",
        "pg0",
        "to-lport",
        "80",
        "outport == @pg0 && udp.dst == 9",
        "allow",
    ]);
    let all = lines.join(&"--");
    ovn.nbctl(&all);
    for (number, machine) in (1..).zip(&machines) {
        let port = format!("p{number}");
        let identity = format!("external_ids:iface-id={port}");
        let mac = format!("02:00:00:00:00:0{number}");
        let attached = format!("external_ids:attached-mac={mac}");
        let set = [
            "--",
            "set",
            "interface",
            &port,
            "type=internal",
            &identity,
            &attached,
        ];
        ovs.vsctl(&[&["add-port", "br-int", &port][..], &set].concat());
        ovs.ns
            .ip(&format!("link set {port} netns {}", machine.name));
        machine.ip(&format!("link set {port} address {mac} up"));
        machine.ip(&format!("addr add 10.0.0.{number}/24 dev {port}"));
        let other = 3 - number;
        machine.ip(&format!(
            "neigh add 10.0.0.{other} lladdr 02:00:00:00:00:0{other} dev {port}"
        ));
    }
    ovn.nbctl(&["sync"]);

    // Nodes are the rows.
    for (table, kind) in [
        ("Logical_Switch", "LogicalSwitch"),
        ("Logical_Switch_Port", "LogicalSwitchPort"),
        ("Logical_Router", "LogicalRouter"),
        ("Logical_Router_Port", "LogicalRouterPort"),
        ("Load_Balancer", "LoadBalancer"),
        ("Port_Group", "PortGroup"),
        ("ACL", "ACL"),
        ("NAT", "NAT"),
        ("Logical_Router_Static_Route", "LogicalRouterStaticRoute"),
    ] {
        let wanted = ovn.column(table, "_uuid");
        assert!(!wanted.is_empty(), "{table}");
        wait_until(table, || {
            let nodes = of_type(&graph, kind);
            nodes
                .iter()
                .map(|node| text(node, "UUID"))
                .collect::<BTreeSet<_>>()
                == wanted
        });
    }
    let one = |kind: &str, key: &str, value: &str| {
        let nodes = of_type(&graph, kind).into_iter();
        let mut nodes = nodes.filter(|node| text(node, key) == value);
        nodes
            .next()
            .unwrap_or_else(|| panic!("no {kind} with {key} {value}"))
    };
    let leads = |from: &Node, relation: &str, to: &[&str]| {
        let so = || set(to).is_subset(&names_or_acl(&out(&graph, from, relation)));
        wait_until(&format!("{} to {to:?}", text(from, "Name")), so);
    };
    let switch = one("LogicalSwitch", "Name", "sw0");
    leads(
        &switch,
        "ovn",
        &["sw0-r0", "p1", "p2", "lb0", "pass", "stop"],
    );
    leads(&one("LogicalRouter", "Name", "r0"), "ovn", &["r0-sw0"]);
    leads(
        &one("LogicalSwitchPort", "Name", "sw0-r0"),
        "layer2",
        &["r0-sw0"],
    );
    leads(&one("PortGroup", "Name", "pg0"), "ovn", &["p1", "p2"]);
    let acl = one("ACL", "OVN.Name", "pass");
    assert_eq!(text(&acl, "Manager"), "ovn");
    assert_eq!(text(&acl, "OVN.Match"), "udp.dst == 9");
    assert_eq!(int(&acl, "OVN.Priority"), Some(100));
    assert_eq!(
        (text(&acl, "OVN.Action"), text(&acl, "OVN.Direction")),
        ("allow".into(), "from-lport".into())
    );

    // A port is bound at the chassis, and is an interface in its namespace.
    let port = one("LogicalSwitchPort", "Name", "p1");
    wait_until("the binding's chassis", || {
        let bindings = out(&graph, &port, "ovn");
        let bindings = bindings
            .iter()
            .filter(|node| text(node, "Type") == "PortBinding");
        let chassis: Vec<_> = bindings
            .flat_map(|binding| out(&graph, binding, "ovn"))
            .collect();
        names(&chassis) == set(&["chassis-1"])
    });
    assert_eq!(
        text(&one("Chassis", "Name", "chassis-1"), "OVN.Hostname"),
        "one"
    );
    let inode = i64::try_from(machines[0].inode()).unwrap();
    wait_until("the port's interface", || {
        let interfaces = of_type(&graph, "internal");
        let mut own = interfaces
            .iter()
            .filter(|node| int(node, "NetNsInode") == Some(inode));
        own.any(|node| names(&out(&graph, node, "mapping")) == set(&["p1"]))
    });

    // What is sent is what ACLs count.
    let send = |port: u16, packets: usize| {
        machines[0].inside(|| {
            let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
            for _ in 0..packets {
                socket.send_to(b"hello", ("10.0.0.2", port)).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    };
    let server = machines[1].inside(|| UdpSocket::bind("10.0.0.2:9").unwrap());
    server
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    send(9, 5);
    send(10, 3);
    for _ in 0..5 {
        server.recv(&mut [0; 16]).expect("what the ACL lets pass");
    }
    for (name, packets) in [("pass", 5), ("stop", 3)] {
        wait_until(&format!("{name} to count {packets}"), || {
            int(&one("ACL", "OVN.Name", name), "Metric.RxPackets") == Some(packets)
        });
        let acl = one("ACL", "OVN.Name", name);
        // 42 bytes of headers.
        assert_eq!(int(&acl, "Metric.RxBytes"), Some(47 * packets), "{name}");
        let rules = out(&graph, &acl, "ovn");
        assert_eq!(int(&acl, "Rules"), Some(rules.len() as i64));
        assert!(rules.iter().all(|rule| text(rule, "Type") == "ofrule"));
        let counted: i64 = rules
            .iter()
            .filter_map(|rule| int(rule, "Metric.RxPackets"))
            .sum();
        assert_eq!(counted, packets);
    }

    // What goes is gone, and another run finds everything as it is.
    ovn.nbctl(&["acl-del", "sw0", "from-lport", "90", "udp.dst == 10"]);
    wait_until("one ACL less", || of_type(&graph, "ACL").len() == 2);
    drop(topology);
    ovn.nbctl(&["lsp-del", "sw0-r0", "--", "ls-add", "sw1"]);
    let before = one("LogicalSwitch", "Name", "sw0");
    let _topology = OvnTopology::start(config, graph.clone()).unwrap();
    wait_until("the new switch", || {
        names(&of_type(&graph, "LogicalSwitch")) == set(&["sw0", "sw1"])
            && names(&of_type(&graph, "LogicalSwitchPort")) == set(&["p1", "p2"])
    });
    let after = one("LogicalSwitch", "Name", "sw0");
    assert_eq!(
        (&before.id, before.created_at),
        (&after.id, after.created_at)
    );
    leads(&after, "ovn", &["p1", "p2", "pass"]);
}

/// Names, of ACLs those that they have in the database.
fn names_or_acl(nodes: &[Arc<Node>]) -> BTreeSet<String> {
    let named = nodes.iter().map(|node| match text(node, "Type").as_str() {
        "ACL" => text(node, "OVN.Name"),
        _ => text(node, "Name"),
    });
    named.collect()
}
