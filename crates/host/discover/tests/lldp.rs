//! Neighbours by LLDP: of lldpd, and of frames made here. Needs root, iproute2 and lldpd.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_afpacket::PacketSender;
use skua_discover::{DiscoveryConfig, InventoryConfig};
use skua_testkit::{
    lab::{Net, root_tests},
    process::Process,
};
use skua_topology::{Graph, Node, Value};
use std::{process::Stdio, sync::Arc};
use support::{Lab, config, interface, layer2, nodes, text};

fn lab() -> Lab {
    Lab::start(DiscoveryConfig {
        inventory: InventoryConfig {
            lldp: true,
            ..InventoryConfig::default()
        },
        ..config()
    })
}

fn of_type(graph: &Graph, kind: &str) -> Vec<Arc<Node>> {
    let all = nodes(graph).into_iter();
    all.filter(|node| text(&node.metadata, "Type") == kind)
        .collect()
}

/// The switch and the port of this name, once an interface is wired to it.
fn wired(lab: &Lab, net: &Net, near: &str, port: &str) -> (Arc<Node>, Arc<Node>) {
    lab.until(&format!("{near} at {port}"), |graph| {
        let node = interface(graph, &net.name, near)?;
        let mut ports = of_type(graph, "switchport").into_iter();
        let found = ports.find(|node| text(&node.metadata, "Name") == port)?;
        let edges = layer2(graph, &node.id);
        if !edges.iter().any(|(from, to, _)| from == port && to == near) {
            return None;
        }
        let mut owner = None;
        let parents = skua_topology::Direction::In;
        let _ = graph
            .neighbours(&found.id, graph.now(), parents, &mut |node, _| {
                owner = Some(node.clone());
                std::ops::ControlFlow::Continue(())
            })
            .ok()?;
        Some((owner?, found))
    })
}

fn gone(lab: &Lab) {
    lab.until("no switch and no port", |graph| {
        let left = of_type(graph, "switch").len() + of_type(graph, "switchport").len();
        (left == 0).then_some(())
    });
}

fn part(kind: u8, value: &[u8]) -> Vec<u8> {
    let head = u16::from(kind) << 9 | value.len() as u16;
    [&head.to_be_bytes(), value].concat()
}

/// A frame of the port `port` of a switch.
fn frame(switch: &str, port: &str, ttl: u16) -> Vec<u8> {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 7, 0x88, 0xcc];
    frame.extend(part(1, &[4, 2, 0, 0, 0, 0, 7]));
    frame.extend(part(2, &[&[5], port.as_bytes()].concat()));
    frame.extend(part(3, &ttl.to_be_bytes()));
    frame.extend(part(5, switch.as_bytes()));
    frame.extend(part(127, &[0x00, 0x80, 0xc2, 1, 0, 42]));
    frame.extend(part(127, b"\x00\x80\xc2\x03\x00\x2a\x04blue"));
    frame.extend(part(127, &[0x00, 0x12, 0x0f, 4, 5, 238]));
    frame.extend(part(0, &[]));
    frame
}

fn has(node: &Node, key: &str, value: impl Into<Value>) {
    let found = node.lookup(key).map(|found| found.into_owned());
    assert_eq!(found, Some(value.into()), "{key}");
}

#[test]
fn an_interface_is_wired_to_what_it_hears() {
    if !root_tests() {
        return;
    }
    let lab = lab();
    let (near, far) = (Net::bare(), Net::bare());
    near.veth("n0", &far, "s0");
    let other = Net::bare();
    near.veth("n1", &other, "s1");
    for name in ["n0", "n1"] {
        lab.until_has(&near.name, name, "State", "UP".into());
    }
    let sender = |net: &Net, name: &str| {
        let index = net.ifindex(name);
        net.inside(|| PacketSender::open(index, name).unwrap())
    };
    let (s0, s1) = (sender(&far, "s0"), sender(&other, "s1"));
    // Frames are repeated, as switches do: who listens must have joined first.
    let say = |sender: &PacketSender, frame: &[u8], near_name: &str, port: &str| {
        let again = || {
            sender.send(frame).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        let is_there = || {
            let graph = lab.graph.read();
            let node = interface(&graph, &near.name, near_name).unwrap();
            layer2(&graph, &node.id)
                .iter()
                .any(|(from, ..)| from == port)
        };
        (0..400).any(|_| {
            again();
            is_there()
        })
    };
    assert!(say(&s0, &frame("leaf1", "eth7", 600), "n0", "eth7"));
    assert!(say(&s1, &frame("leaf1", "eth8", 600), "n1", "eth8"));
    let (switch, port) = wired(&lab, &near, "n0", "eth7");
    has(&switch, "Name", "leaf1");
    has(&switch, "Probe", "lldp");
    has(&switch, "LLDP.ChassisID", "02:00:00:00:00:07");
    has(&switch, "LLDP.ChassisIDType", "MAC Address");
    has(&switch, "LLDP.SysName", "leaf1");
    has(&port, "LLDP.PortID", "eth7");
    has(&port, "LLDP.PortIDType", "Interface Name");
    has(&port, "LLDP.PVID", 42);
    has(&port, "MTU", 1_518);
    has(
        &port,
        "LLDP.VLANNames.Name",
        Value::List([Value::from("blue")].into()),
    );
    // Two ports of one switch, and nothing at the interfaces that sent.
    let (same, _) = wired(&lab, &near, "n1", "eth8");
    assert_eq!(same.id, switch.id);
    let graph = lab.graph.read();
    assert_eq!(of_type(&graph, "switch").len(), 1);
    let s0_edges = layer2(&graph, &interface(&graph, &far.name, "s0").unwrap().id);
    assert!(
        s0_edges.iter().all(|(_, _, kind)| kind == "veth"),
        "{s0_edges:?}"
    );
    drop(graph);

    // The neighbour leaves; what hears another one stays.
    s0.send(&frame("leaf1", "eth7", 0)).unwrap();
    lab.until("one port", |graph| {
        (of_type(graph, "switchport").len() == 1).then_some(())
    });
    wired(&lab, &near, "n1", "eth8");
    // A damaged frame changes nothing.
    let whole = frame("leaf1", "eth9", 600);
    s1.send(&whole[..40]).unwrap();
    // Silence: the lifetime ends.
    s1.send(&frame("leaf1", "eth8", 1)).unwrap();
    gone(&lab);
    // The interface goes.
    assert!(say(&s0, &frame("leaf2", "eth7", 600), "n0", "eth7"));
    near.ip("link del n0");
    gone(&lab);
}

#[test]
fn lldpd_is_a_neighbour() {
    if !root_tests() {
        return;
    }
    let lab = lab();
    let (near, far) = (Net::bare(), Net::bare());
    near.veth("n0", &far, "s0");
    lab.until_has(&near.name, "n0", "State", "UP".into());
    // It must be heard from its first frame on.
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let none = folder.path().join("none.conf");
    let mut command = far.command("/usr/sbin/lldpd");
    command
        .args([
            "-d",
            "-I",
            "s0",
            "-S",
            "a switch of the test",
            "-m",
            "192.0.2.9",
        ])
        .arg("-u")
        .arg(&socket)
        .arg("-O")
        .arg(&none)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let lldpd = Process::start(&mut command);
    let (switch, port) = wired(&lab, &near, "n0", "s0");
    has(&switch, "LLDP.Description", "a switch of the test");
    has(&switch, "LLDP.MgmtAddress", "192.0.2.9");
    has(&switch, "LLDP.ChassisIDType", "MAC Address");
    let mac = far.link("s0")["address"].as_str().unwrap().to_owned();
    has(&port, "LLDP.PortID", mac.as_str());
    has(&port, "LLDP.Description", "s0");
    drop(lldpd);
}
