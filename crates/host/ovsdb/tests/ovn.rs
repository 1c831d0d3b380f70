//! The graph beside a real OVN: northd, a chassis on the userspace datapath, and packets that ACLs decide about.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use skua_discover::{Discovery, DiscoveryConfig};
use skua_ovsdb::{
    ControlSocket, Conversation, Icmp, OvnConfig, OvnTopology, OvsConfig, OvsTopology, RulesConfig,
    Target,
};
use skua_testkit::{
    lab::{Net, run, wait_until},
    process::Process,
};
use skua_topology::{Config, Direction, Graph, Lookup, Node, SharedGraph, Value};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    ops::ControlFlow,
    process::Command,
    sync::Arc,
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

    /// Discovers interfaces and the switch, with its rules.
    fn watch(&self, graph: &SharedGraph) -> (Discovery, OvsTopology) {
        let ovs = &self.ovs;
        let settings = DiscoveryConfig {
            host: HOST.to_owned(),
            all_netns: true,
            ..DiscoveryConfig::default()
        };
        let discovery = ovs
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
        (
            discovery,
            OvsTopology::start(config, graph.clone()).unwrap(),
        )
    }

    fn config(&self) -> OvnConfig {
        OvnConfig {
            northbound: Some(self.target()),
            southbound: Some(self.target()),
            host: HOST.to_owned(),
            hits: true,
            nodes: true,
            interval: Duration::from_millis(300),
            control: Some(ControlSocket::File(self.ovs.path("switch.ctl"))),
        }
    }

    /// Gives a machine the logical port with this number, and the other of its pair as a neighbour.
    /// `kind` tells ports and MACs apart: other tests, which run at the same time, have namespaces of this host, too.
    fn attach(&self, kind: (char, u8), number: u8, machine: &Net) {
        let (letter, byte) = kind;
        let port = format!("{letter}{number}");
        let identity = format!("external_ids:iface-id={port}");
        let mac = format!("02:00:00:00:0{byte}:0{number}");
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
        let ovs = &self.ovs;
        ovs.vsctl(&[&["add-port", "br-int", &port][..], &set].concat());
        ovs.ns
            .ip(&format!("link set {port} netns {}", machine.name));
        machine.ip(&format!("link set {port} address {mac} up"));
        machine.ip(&format!("addr add 10.0.0.{number}/24 dev {port}"));
        // 1 and 2, 3 and 4.
        let other = ((number - 1) ^ 1) + 1;
        machine.ip(&format!(
            "neigh add 10.0.0.{other} lladdr 02:00:00:00:0{byte}:0{other} dev {port}"
        ));
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
    let machines = [Net::new(), Net::new()];
    let graph: SharedGraph = Graph::new(Config::default()).into();
    let _watched = ovn.watch(&graph);
    let config = ovn.config();
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
        ovn.attach(('p', 0), number, machine);
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

/// A conversation of two ports, which their numbers give addresses.
fn talk(protocol: u8, [from, to]: [u8; 2], ports: [u16; 2]) -> Conversation {
    Conversation {
        macs: [from, to].map(|number| Some([2, 0, 0, 0, 7, number])),
        addresses: [from, to].map(|number| Ipv4Addr::new(10, 0, 0, number).into()),
        protocol,
        ports,
        icmp: None,
    }
}

/// Asks again while the switch is asked about too many.
fn wait_for_turn<T>(
    ask: impl Fn() -> Result<T, skua_ovsdb::Error>,
) -> Result<T, skua_ovsdb::Error> {
    loop {
        match ask() {
            Err(error) if error.to_string().contains("flows a second") => {
                std::thread::sleep(Duration::from_millis(100));
            }
            other => return other,
        }
    }
}

/// An answer in short: way, verdict, name of the ACL, whether packets pass, source.
fn short(found: &[Value]) -> Vec<String> {
    let short = found.iter().map(|acl| {
        let acl = acl.as_map().unwrap();
        let part = |key: &str| match acl.get(key) {
            Some(Value::Bool(truth)) => truth.to_string(),
            Some(value) => value.as_str().unwrap().to_owned(),
            None => "-".to_owned(),
        };
        ["Way", "Verdict", "Name", "Passes", "Source"]
            .map(part)
            .join(" ")
    });
    short.collect()
}

fn key(found: &[Value], at: usize, key: &str) -> String {
    let acl = found[at].as_map().unwrap();
    let text = acl
        .get(key)
        .and_then(|value| value.as_str().map(str::to_owned));
    text.unwrap_or_default()
}

#[test]
fn a_flow_has_the_acls_that_decided_about_it() {
    let ovn = Ovn::new();
    let machines = [Net::new(), Net::new()];
    let graph: SharedGraph = Graph::new(Config::default()).into();
    let _watched = ovn.watch(&graph);
    let topology = OvnTopology::start(ovn.config(), graph.clone()).unwrap();
    let finder = topology.acls().unwrap();
    let ports = [
        "ls-add sw0",
        "lsp-add sw0 q1",
        "lsp-add sw0 q2",
        "pg-add pg0 q1 q2",
        // Without state: answers need a rule of their own.
        "ls-add sw1",
        "lsp-add sw1 q3",
        "lsp-add sw1 q4",
        "lr-add r0",
        "lrp-add r0 r0-sw0 02:00:00:00:01:00 10.0.0.254/24",
        "lrp-add r0 r0-sw1 02:00:00:00:01:01 10.0.1.254/24",
        "lsp-add sw0 sw0-r0",
        "lsp-set-type sw0-r0 router",
        "lsp-set-addresses sw0-r0 router",
        "lsp-set-options sw0-r0 router-port=r0-sw0",
        "lsp-add sw1 sw1-r0",
        "lsp-set-type sw1-r0 router",
        "lsp-set-addresses sw1-r0 router",
        "lsp-set-options sw1-r0 router-port=r0-sw1",
    ];
    let mut lines: Vec<Vec<&str>> = ports.map(|line| line.split(' ').collect()).into();
    let addresses = [
        ("q1", "02:00:00:00:07:01 10.0.0.1 fd00::1"),
        ("q2", "02:00:00:00:07:02 10.0.0.2"),
        ("q3", "02:00:00:00:07:03 10.0.1.3"),
        ("q4", "02:00:00:00:07:04 10.0.1.4"),
    ];
    lines.extend(addresses.map(|(port, text)| vec!["lsp-set-addresses", port, text]));
    for acl in [
        "one,,sw0,from-lport,100,udp.dst == 9,allow-related",
        "two,1234,sw0,from-lport,95,tcp.dst == 80,allow-related",
        "three,,sw0,from-lport,90,udp.dst == 10,drop",
        "four,,pg0,to-lport,80,outport == @pg0 && udp.dst == 9,allow-related",
        "ask,,sw1,from-lport,100,udp.dst == 7,allow",
        "quiet,,sw1,from-lport,100,inport == \"q4\" && udp.src == 7,drop",
    ] {
        let parts: Vec<&str> = acl.split(',').collect();
        let mut line = vec!["--log", "--severity=info"];
        let (name, label) = (
            format!("--name={}", parts[0]),
            format!("--label={}", parts[1]),
        );
        line.push(name.leak());
        if !parts[1].is_empty() {
            line.push(label.leak());
        }
        line.push("acl-add");
        line.extend(&parts[2..]);
        lines.push(line);
    }
    ovn.nbctl(&lines.join(&"--"));
    for (number, machine) in (1..).zip(&machines) {
        ovn.attach(('q', 7), number, machine);
    }
    let elsewhere = [Net::new(), Net::new()];
    for (number, machine) in (3..).zip(&elsewhere) {
        ovn.attach(('q', 7), number, machine);
    }
    ovn.nbctl(&["sync"]);
    let about = |conversation: &Conversation| {
        wait_for_turn(|| {
            finder
                .begin()
                .and_then(|mut asking| asking.about(conversation))
        })
    };
    let of_q1 = talk(17, [1, 2], [4000, 9]);
    wait_until("what the rules say", || {
        let found = about(&of_q1).unwrap_or_default();
        short(&found).len() == 3 && key(&found, 0, "Verdict") != "unknown"
    });

    // What is sent comes through, or not, as the answers say.
    let server = machines[1].inside(|| {
        ["9", "10", "11"].map(|port| {
            let socket = UdpSocket::bind(format!("10.0.0.2:{port}")).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            socket
        })
    });
    let listener = machines[1].inside(|| TcpListener::bind("10.0.0.2:80").unwrap());
    let client = machines[0].inside(|| UdpSocket::bind("10.0.0.1:4000").unwrap());
    for port in [10, 9, 11] {
        client.send_to(b"hello", ("10.0.0.2", port)).unwrap();
    }
    for socket in [&server[0], &server[2]] {
        socket.recv(&mut [0; 16]).expect("what no ACL drops");
    }
    server[1].set_nonblocking(true).unwrap();
    server[1].recv(&mut [0; 16]).expect_err("what an ACL drops");
    let connection = machines[0].inside(|| TcpStream::connect("10.0.0.2:80").unwrap());
    let (_accepted, _) = listener.accept().unwrap();
    let port = connection.local_addr().unwrap().port();

    let answers = [
        (
            "an ACL at each end",
            of_q1.clone(),
            &[
                "AB allow one true rules",
                "AB allow four true rules",
                "BA none - true rules",
            ][..],
        ),
        (
            "a label",
            talk(6, [1, 2], [port, 80]),
            &["AB allow two true conntrack", "BA none - true rules"],
        ),
        (
            "a drop",
            talk(17, [1, 2], [4000, 10]),
            &["AB drop three false rules"],
        ),
        (
            "no ACL",
            talk(17, [1, 2], [4000, 11]),
            &["AB none - true rules", "BA none - true rules"],
        ),
        (
            "the same port from the other side",
            talk(17, [2, 1], [4000, 9]),
            &[
                "AB allow one true rules",
                "AB allow four true rules",
                "BA none - true rules",
            ],
        ),
        (
            "a connection without a label",
            talk(6, [1, 2], [port.wrapping_add(1), 80]),
            &["AB allow two true rules", "BA none - true rules"],
        ),
        (
            "SCTP",
            talk(132, [1, 2], [4000, 9]),
            &["AB none - true rules", "BA none - true rules"],
        ),
    ];
    for (what, conversation, wanted) in answers {
        let found = about(&conversation).unwrap();
        assert_eq!(short(&found), wanted, "{what}: {found:?}");
    }
    let found = about(&of_q1).unwrap();
    let shown = |at: usize| {
        [
            "Match",
            "Direction",
            "Action",
            "Owner",
            "OwnerType",
            "From",
            "To",
        ]
        .map(|name| key(&found, at, name))
    };
    assert_eq!(
        shown(0),
        [
            "udp.dst == 9",
            "from-lport",
            "allow-related",
            "sw0",
            "LogicalSwitch",
            "10.0.0.1:4000",
            "10.0.0.2:9"
        ]
    );
    assert_eq!(shown(1)[3..5], ["pg0", "PortGroup"]);
    assert_eq!(shown(2)[5..], ["10.0.0.2:9", "10.0.0.1:4000"]);
    assert_eq!(
        ovn.nbctl(&["--bare", "--columns=_uuid", "find", "acl", "name=one"])
            .trim(),
        key(&found, 0, "ACL")
    );
    let node = graph.read().current_node(&key(&found, 0, "TID")).unwrap();
    assert_eq!(text(&node, "OVN.Name"), "one");

    // Without state an answer needs an ACL, too. Which router the packets go to, OVN says.
    let mut stateless = talk(17, [3, 4], [4000, 7]);
    stateless.addresses = [3, 4].map(|number| Ipv4Addr::new(10, 0, 1, number).into());
    wait_until("the other switch", || {
        short(&about(&stateless).unwrap_or_default())
            == ["AB allow ask true rules", "BA drop quiet false rules"]
    });
    let mut routed = talk(17, [1, 3], [4000, 9]);
    routed.addresses[1] = Ipv4Addr::new(10, 0, 1, 3).into();
    // As it is seen beyond the router.
    routed.macs = [Some([2, 0, 0, 0, 1, 1]), Some([2, 0, 0, 0, 7, 3])];
    let found = about(&routed).unwrap();
    assert_eq!(short(&found)[0], "AB allow one true rules", "{found:?}");

    // Other protocols and addresses.
    let mut six = of_q1.clone();
    six.addresses = ["fd00::1", "fd00::2"].map(|text| text.parse().unwrap());
    let found = about(&six).unwrap();
    assert_eq!(short(&found)[0], "AB allow one true rules", "{found:?}");
    let mut echo = talk(1, [1, 2], [0, 0]);
    echo.icmp = Some(Icmp {
        kind: 8,
        answer: 0,
        code: 0,
        id: Some(7),
    });
    assert_eq!(
        short(&about(&echo).unwrap()),
        ["AB none - true rules", "BA none - true rules"]
    );
    let nobody = about(&talk(17, [1, 9], [4000, 11])).unwrap();
    assert_eq!(short(&nobody), ["AB none - false rules"]);
    assert!(key(&nobody, 0, "Reason").contains("no ACL"), "{nobody:?}");
    let unknown = about(&talk(17, [8, 1], [4000, 11])).unwrap();
    assert_eq!(
        key(&unknown, 0, "Reason"),
        "10.0.0.8 is of no logical port of OVN"
    );

    // A label stays what it was when another ACL has come before.
    ovn.nbctl(&[
        "--name=newer",
        "acl-add",
        "sw0",
        "from-lport",
        "99",
        "tcp.dst == 80",
        "allow-related",
    ]);
    let labelled = talk(6, [1, 2], [port, 80]);
    wait_until("both ACLs", || {
        let found = short(&about(&labelled).unwrap_or_default());
        found
            == [
                "AB allow two - conntrack",
                "AB allow newer true rules",
                "BA none - true rules",
            ]
    });

    // A host of a fleet need not have the nodes of OVN.
    let other: SharedGraph = Graph::new(Config::default()).into();
    let _watched_too = ovn.watch(&other);
    let alone = OvnConfig {
        nodes: false,
        ..ovn.config()
    };
    let alone = OvnTopology::start(alone, other.clone()).unwrap();
    let of_alone = alone.acls().unwrap();
    wait_until("ACLs without nodes", || {
        let found = of_alone.begin().and_then(|mut asking| asking.about(&of_q1));
        short(&found.unwrap_or_default())
            .first()
            .is_some_and(|first| first == "AB allow one true rules")
    });
    assert!(of_type(&other, "ACL").is_empty() && of_type(&other, "Chassis").is_empty());

    // More than a few are refused, and a switch that has gone is said so.
    let mut asking = finder.begin().unwrap();
    let stranger = talk(17, [8, 9], [1, 1]);
    for _ in 0..16 {
        let _ = asking.about(&stranger);
    }
    let error = asking.about(&stranger).unwrap_err().to_string();
    assert!(error.contains("at most 16 flows"), "{error}");
    std::fs::remove_file(ovn.ovs.path("switch.ctl")).unwrap();
    wait_until("an error", || {
        let error = about(&of_q1)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        error.contains("switch.ctl: connecting")
    });
}
