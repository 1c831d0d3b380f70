//! Mirrors and exporters of a real Open vSwitch.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::Value as Json;
use skua_ovsdb::{
    Export, Ipfix, Mirror, MirrorSpec, MirrorState, Netflow, OvsControl, Selected, Sflow,
};
use skua_testkit::{
    lab::{Net, wait_until},
    process::{Process, Tcpdump},
    wire::Sum,
};
use std::{collections::BTreeMap, net::UdpSocket, thread, time::Duration};
use support::{Ovs, command, ids, map, opened};

fn control(ovs: &Ovs) -> OvsControl {
    OvsControl::connect(ovs.client(), Some(opened(&ovs.ns))).unwrap()
}

fn all(bridge: &str) -> MirrorSpec {
    MirrorSpec {
        bridge: bridge.to_owned(),
        selected: Selected::All,
    }
}

type Tables = BTreeMap<&'static str, BTreeMap<String, BTreeMap<String, Json>>>;

/// All that was configured, without what Open vSwitch itself writes.
fn configuration(ovs: &Ovs) -> Tables {
    let tables = [
        (
            "Bridge",
            &["name", "ports", "mirrors", "sflow", "netflow", "ipfix"][..],
        ),
        ("Port", &["name", "interfaces", "external_ids"]),
        ("Interface", &["name", "type", "external_ids"]),
        ("Mirror", &["name"]),
        ("sFlow", &["targets"]),
        ("NetFlow", &["targets"]),
        ("IPFIX", &["targets"]),
    ];
    let list = |(table, columns): (_, &[&str])| (table, ovs.list(table, columns));
    tables.into_iter().map(list).collect()
}

fn links(ns: &Net) -> Vec<String> {
    let links: Json = serde_json::from_str(&ns.ip("-j link")).unwrap();
    let links = links.as_array().unwrap().iter();
    links
        .map(|link| link["ifname"].as_str().unwrap().to_owned())
        .collect()
}

/// Two namespaces on a bridge, at its ports `pa` and `pb`, with addresses 192.0.2.1 and 192.0.2.2.
struct Lab {
    ovs: Ovs,
    sender: UdpSocket,
    receiver: UdpSocket,
    _ends: [Net; 2],
}

impl Lab {
    fn new() -> Self {
        let (ovs, ends) = (Ovs::new(), [Net::new(), Net::new()]);
        ovs.add_bridge("br0");
        for (ns, port, number) in [(&ends[0], "pa", 1), (&ends[1], "pb", 2)] {
            let mac = |number| format!("02:00:00:00:00:0{number}");
            let address = |number| format!("192.0.2.{number}");
            let end = format!("eth0 address {}", mac(number));
            ovs.ns.pair(port, ns, &end);
            ns.ip(&format!("addr add {}/24 dev eth0", address(number)));
            let (other, at) = (address(3 - number), mac(3 - number));
            ns.ip(&format!("neigh add {other} lladdr {at} dev eth0"));
            // The userspace datapath does not finish checksums of packets that it forwards.
            ns.ethtool("eth0", "tx off");
            ovs.vsctl(&["add-port", "br0", port]);
        }
        // One pair for all, so that all packets are of one flow.
        let open = |ns: &Net, address| ns.inside(|| UdpSocket::bind(address)).unwrap();
        let sender = open(&ends[0], "192.0.2.1:7778");
        let receiver = open(&ends[1], "192.0.2.2:7777");
        let patience = Some(Duration::from_secs(10));
        receiver.set_read_timeout(patience).unwrap();
        Self {
            ovs,
            sender,
            receiver,
            _ends: ends,
        }
    }

    /// `count` numbered datagrams from the first to the second, all of which arrive.
    fn send(&self, count: u32) {
        let mut buffer = [0; 64];
        for number in 0..count {
            self.sender
                .send_to(&number.to_be_bytes(), "192.0.2.2:7777")
                .unwrap();
            let length = self.receiver.recv(&mut buffer).expect("a datagram is lost");
            assert_eq!(buffer[..length], number.to_be_bytes());
        }
    }

    /// Sends until these interfaces get something: the switch says that it has a mirror a moment before
    /// its datapath does. Returns when they have got all that was sent: how many packets.
    fn warm_up(&self, interfaces: &[&str]) -> u64 {
        let mut sent = 1;
        wait_until("mirrored packets", || {
            self.send(1);
            sent += 1;
            interfaces
                .iter()
                .all(|name| self.received(name).packets > 0)
        });
        // A copy may come long after its packet, but not after that of a later one: this one is known by its length.
        let before: Vec<_> = interfaces.iter().map(|i| self.received(i).bytes).collect();
        let mut buffer = [0; 1400];
        self.sender.send_to(&buffer, "192.0.2.2:7777").unwrap();
        assert_eq!(self.receiver.recv(&mut buffer).unwrap(), buffer.len());
        wait_until("the last packet of the warm-up", || {
            let mut all = interfaces.iter().zip(&before);
            all.all(|(name, before)| self.received(name).bytes > before + buffer.len() as u64)
        });
        sent
    }

    /// What an interface of the switch has received, as the kernel counts it.
    fn received(&self, interface: &str) -> Sum {
        self.ovs.ns.counters(interface).rx
    }
}

/// Payloads of the UDP datagrams that were captured.
fn payloads(capture: &Tcpdump) -> Vec<u32> {
    let bytes = std::fs::read(capture.file()).unwrap();
    let mut rest = bytes.get(24..).unwrap_or(&[]);
    let mut found = Vec::new();
    while rest.len() >= 16 {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let Some(packet) = rest.get(16..16 + length) else {
            break;
        };
        // Ethernet, IPv4 without options, UDP.
        found.push(u32::from_be_bytes(packet[42..46].try_into().unwrap()));
        rest = &rest[16 + length..];
    }
    found
}

#[test]
fn a_mirror_shows_each_packet_once_and_leaves_no_trace() {
    let lab = Lab::new();
    let before = (configuration(&lab.ovs), links(&lab.ovs.ns));
    let control = control(&lab.ovs);
    let mirror = control.mirror(&all("br0")).unwrap();
    assert_eq!(mirror.state(), MirrorState::Active);
    let sent = lab.warm_up(&[mirror.output()]);
    let warm = lab.received(mirror.output()).packets;
    let capture = Tcpdump::start(&lab.ovs.ns, mirror.output(), &["udp"]);
    lab.send(1_000);
    wait_until("all are captured", || payloads(&capture).len() >= 1_000);
    assert_eq!(payloads(&capture), (0..1_000).collect::<Vec<_>>());

    // The kernel says the same, and Open vSwitch, which also counts what it mirrored before its port was there.
    wait_until("the mirror's own count", || {
        mirror
            .statistics()
            .is_some_and(|statistics| statistics.packets >= warm + 1_000)
    });
    let statistics = mirror.statistics().unwrap();
    assert_eq!(lab.received(mirror.output()).packets, warm + 1_000);
    assert!(
        statistics.packets <= sent + 1_000,
        "{statistics:?} of {sent} and 1,000"
    );
    let early = statistics.packets - (warm + 1_000);
    let bytes = lab.received(mirror.output()).bytes;
    assert_eq!(statistics.bytes, bytes + early * (14 + 20 + 8 + 4));

    drop(capture);
    mirror.remove().unwrap();
    assert_eq!((configuration(&lab.ovs), links(&lab.ovs.ns)), before);
    // What went through is still let through.
    lab.send(10);
}

#[test]
fn a_mirror_of_ports_shows_only_theirs() {
    let lab = Lab::new();
    let control = control(&lab.ovs);
    let ports = |src: &[&str], dst: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        control.mirror(&MirrorSpec {
            bridge: "br0".to_owned(),
            selected: Selected::Ports {
                src: names(src),
                dst: names(dst),
            },
        })
    };
    let from_a = ports(&["pa"], &[]).unwrap();
    let from_b = ports(&["pb"], &[]).unwrap();
    let to_b = ports(&[], &["pb"]).unwrap();
    let either = ports(&["pa", "pb"], &["pa", "pb"]).unwrap();
    lab.warm_up(&[from_a.output(), to_b.output(), either.output()]);
    let warm =
        [&from_a, &from_b, &to_b, &either].map(|mirror| lab.received(mirror.output()).packets);
    assert_eq!(warm[1], 0);
    lab.send(100);
    for ((mirror, more), warm) in [(&from_a, 100), (&from_b, 0), (&to_b, 100), (&either, 100)]
        .into_iter()
        .zip(warm)
    {
        let count = warm + more;
        wait_until("the packets", || {
            lab.received(mirror.output()).packets >= count
        });
        assert_eq!(lab.received(mirror.output()).packets, count);
    }
    // Its selection may go.
    assert_eq!(from_b.state(), MirrorState::Active);
    lab.ovs.vsctl(&["del-port", "pb"]);
    wait_until("it is noticed", || {
        from_b.state() == MirrorState::SelectionGone
    });
    assert_eq!(either.state(), MirrorState::Active);

    // From the graph to what is mirrored.
    let ids = |table, name: &str| {
        let mut rows = lab.ovs.list(table, &["name"]).into_iter();
        let (id, _) = rows.find(|(_, row)| row["name"] == name).unwrap();
        id.parse().unwrap()
    };
    assert_eq!(control.spec_of(ids("Bridge", "br0")).unwrap(), all("br0"));
    let of_a = MirrorSpec {
        bridge: "br0".to_owned(),
        selected: Selected::port("pa"),
    };
    assert_eq!(control.spec_of(ids("Port", "pa")).unwrap(), of_a);
    assert_eq!(control.spec_of(ids("Interface", "pa")).unwrap(), of_a);
    assert!(control.spec_of(uuid::Uuid::nil()).is_err());

    let error = |result: Result<Mirror, _>| result.err().map(|e: skua_ovsdb::Error| e.to_string());
    let not_found = "Open vSwitch has no port \"pz\"".to_owned();
    assert_eq!(error(ports(&["pa", "pz"], &[])), Some(not_found));
    let not_found = "Open vSwitch has no bridge \"br9\"".to_owned();
    assert_eq!(error(control.mirror(&all("br9"))), Some(not_found));
    assert!(error(ports(&[], &[])).is_some());
    let ours = error(ports(&[to_b.output()], &[])).unwrap();
    assert!(ours.contains("cannot be mirrored"), "{ours}");
}

#[test]
fn a_mirror_may_come_while_packets_flow() {
    let lab = Lab::new();
    let control = control(&lab.ovs);
    lab.send(100);
    let mirror = control.mirror(&all("br0")).unwrap();
    // A flow that is known already goes its old way for a moment.
    lab.warm_up(&[mirror.output()]);
    let before = lab.received(mirror.output()).packets;
    lab.send(500);
    wait_until("all further ones", || {
        lab.received(mirror.output()).packets >= before + 500
    });
    assert_eq!(lab.received(mirror.output()).packets, before + 500);
}

#[test]
fn somebody_elses_removal_is_noticed() {
    let mut ovs = Ovs::new();
    ovs.add_bridge("br0");
    ovs.add_bridge("br1");
    let control = control(&ovs);
    let (one, two) = (
        control.mirror(&all("br0")).unwrap(),
        control.mirror(&all("br1")).unwrap(),
    );
    ovs.vsctl(&["clear", "bridge", "br0", "mirrors"]);
    wait_until("it is noticed", || one.state() == MirrorState::Removed);
    assert_eq!(two.state(), MirrorState::Active);
    // The rest of it goes with it.
    drop(one);
    assert_eq!(ovs.list("Interface", &["name"]).len(), 3);
    ovs.vsctl(&["del-br", "br1"]);
    wait_until("it is noticed", || two.state() == MirrorState::Removed);
    drop(two);

    // The database goes and comes back, the mirror with it.
    let three = control.mirror(&all("br0")).unwrap();
    ovs.kill_server();
    wait_until("it is noticed", || three.state() == MirrorState::Unknown);
    assert!(control.mirror(&all("br0")).is_err());
    ovs.start_server();
    wait_until("it is there", || three.state() == MirrorState::Active);
    let name = three.output().to_owned();
    assert!(links(&ovs.ns).contains(&name));

    // What ends without a connection is removed with the next one.
    ovs.kill_server();
    wait_until("it is noticed", || three.state() == MirrorState::Unknown);
    drop(three);
    ovs.start_server();
    control
        .client()
        .wait_connected(Duration::from_secs(10))
        .unwrap();
    control.clean_up().unwrap();
    assert!(ovs.list("Mirror", &["name"]).is_empty());
    assert!(!links(&ovs.ns).contains(&name));
}

#[test]
fn an_interface_that_open_vswitch_cannot_make_is_an_error_without_a_trace() {
    let ovs = Ovs::without_switch();
    ovs.vsctl_no_wait(&["add-br", "br0"]);
    let before = configuration(&ovs);
    let mut config = ovs.client();
    config.limits.patience = Duration::from_secs(2);
    let control = OvsControl::connect(config, Some(opened(&ovs.ns))).unwrap();
    let error = control.mirror(&all("br0")).err().unwrap().to_string();
    assert!(error.contains("ovs-vswitchd"), "{error}");
    assert_eq!(configuration(&ovs), before);
}

/// A process that makes a mirror and an exporter.
struct Other {
    process: Process,
    output: String,
}

impl Other {
    fn start(ovs: &Ovs, sflow: &str) -> Self {
        let example = std::env::current_exe().unwrap();
        let example = example
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("examples/ovs_mirror");
        assert!(
            example.exists(),
            "`cargo test -p skua-ovsdb` builds {example:?}, `--test control` alone does not"
        );
        let mut command = command(&ovs.ns, example.to_str().unwrap());
        command.args([&ovs.target().to_string(), "br0", sflow]);
        let mut process = Process::start(&mut command);
        let output = process.line();
        Self { process, output }
    }
}

#[test]
fn what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not() {
    let ovs = Ovs::new();
    ovs.add_bridge("br0");
    ovs.vsctl(&[
        "--",
        "--id=@s",
        "create",
        "sflow",
        "agent=lo",
        "targets=\"127.0.0.1:9\"",
        "sampling=77",
        "external_ids:of=somebody",
        "--",
        "set",
        "bridge",
        "br0",
        "sflow=@s",
    ]);
    let sflow = || {
        let rows = ovs.list(
            "sFlow",
            &["agent", "targets", "sampling", "polling", "external_ids"],
        );
        rows.into_values().collect::<Vec<_>>()
    };
    let mirrors = || {
        let rows = ovs.list("Mirror", &["name"]).into_values();
        let mut names: Vec<_> = rows
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let (before, sflow_before) = (configuration(&ovs), sflow());
    let others = [
        Other::start(&ovs, "127.0.0.1:10"),
        Other::start(&ovs, "127.0.0.1:11"),
    ];
    let [first, second] = others;
    let mut both = vec![first.output.clone(), second.output.clone()];
    both.sort();

    // Both live.
    drop(control(&ovs));
    assert_eq!(mirrors(), both);
    let theirs = sflow();
    assert_eq!(theirs[0]["targets"], "127.0.0.1:11");

    // One is gone, also with its interface.
    drop(first.process);
    let control = control(&ovs);
    assert_eq!(mirrors(), std::slice::from_ref(&second.output));
    assert!(!links(&ovs.ns).contains(&first.output));
    assert_eq!(sflow(), theirs);

    // So is the other; before it there was one that is gone, and before that somebody else's.
    drop(second.process);
    control.clean_up().unwrap();
    assert_eq!(sflow(), sflow_before);
    // The exporter that came back is a new row.
    let without_sflow = |mut tables: Tables| {
        let rows = tables.get_mut("Bridge").unwrap().values_mut();
        rows.for_each(|row| drop(row.remove("sflow")));
        tables.remove("sFlow");
        tables
    };
    assert_eq!(without_sflow(configuration(&ovs)), without_sflow(before));
    let bridge = ovs.list("Bridge", &["sflow"]).into_values().next().unwrap();
    assert!(
        ovs.list("sFlow", &["agent"])
            .contains_key(&ids(&bridge["sflow"])[0])
    );

    // One that ends as it should leaves nothing.
    Other::start(&ovs, "127.0.0.1:12").process.wait();
    assert_eq!(mirrors(), Vec::<String>::new());
    assert_eq!(sflow(), sflow_before);
}

#[test]
fn a_bridge_exports_its_flows_and_then_what_it_did_before() {
    let lab = Lab::new();
    let ovs = &lab.ovs;
    let control = control(ovs);
    let open = || {
        let socket = ovs.ns.inside(|| UdpSocket::bind("127.0.0.1:0")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    };
    let first_word = |socket: &UdpSocket| {
        let mut buffer = [0; 2048];
        let length = thread::scope(|scope| {
            let receiving = scope.spawn(|| socket.recv(&mut buffer).unwrap());
            while !receiving.is_finished() {
                lab.send(20);
            }
            receiving.join().unwrap()
        });
        assert!(length > 20);
        u16::from_be_bytes([buffer[0], buffer[1]])
    };
    let before = configuration(ovs);

    let (socket, address) = open();
    let sflow = control.export(
        "br0",
        &Export::Sflow(Sflow {
            targets: vec![address],
            agent: Some("lo".to_owned()),
            header: 64,
            sampling: 1,
            polling: 1,
        }),
    );
    let sflow = sflow.unwrap();
    // The version of sFlow has four bytes.
    assert_eq!(first_word(&socket), 0);

    let (socket, address) = open();
    let ipfix = control.export(
        "br0",
        &Export::Ipfix(Ipfix {
            targets: vec![address],
            sampling: 1,
            domain: 5,
            point: 6,
            active_timeout: None,
            max_flows: None,
        }),
    );
    let ipfix = ipfix.unwrap();
    assert_eq!(first_word(&socket), 10);

    let (socket, address) = open();
    let netflow = control.export(
        "br0",
        &Export::Netflow(Netflow {
            targets: vec![address],
            active_timeout: Some(1),
            engine_id: Some(7),
        }),
    );
    let netflow = netflow.unwrap();
    assert_eq!(first_word(&socket), 5);

    assert_eq!(sflow.is_active(), Some(true));
    sflow.restore().unwrap();
    ipfix.restore().unwrap();
    drop(netflow);
    assert_eq!(configuration(ovs), before);

    // Somebody's own settings come back, unless they are changed meanwhile.
    let targets = || {
        let rows = ovs
            .list("NetFlow", &["targets", "active_timeout", "external_ids"])
            .into_values();
        let row = rows.last()?;
        assert!(map(&row["external_ids"]).is_empty());
        Some((
            row["targets"].clone(),
            row["active_timeout"].as_i64().unwrap(),
        ))
    };
    let set = |port: u16| {
        let target = format!("targets=\"127.0.0.1:{port}\"");
        ovs.vsctl(&[
            "--",
            "--id=@n",
            "create",
            "netflow",
            &target,
            "active_timeout=33",
            "--",
            "set",
            "bridge",
            "br0",
            "netflow=@n",
        ]);
    };
    let ours = Export::Netflow(Netflow {
        targets: vec![address],
        active_timeout: None,
        engine_id: None,
    });
    set(9);
    let netflow = control.export("br0", &ours).unwrap();
    netflow.restore().unwrap();
    assert_eq!(targets(), Some(("127.0.0.1:9".into(), 33)));
    let netflow = control.export("br0", &ours).unwrap();
    set(10);
    wait_until("it is noticed", || netflow.is_active() == Some(false));
    netflow.restore().unwrap();
    assert_eq!(targets(), Some(("127.0.0.1:10".into(), 33)));
    assert!(control.export("br9", &ours).is_err());
}
