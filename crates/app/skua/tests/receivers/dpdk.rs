//! Captures of DPDK's ports, on a veth by the driver net_af_packet: exact, several at a time, started
//! again, and on a device that goes and comes back.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use skua_testkit::lab::root_tests;

use crate::{
    switch::Switch,
    truth::{Sent, Skua, recording, send, wait},
};

const PORT: &str = "G.V().Has('Type', 'dpdkport', 'Name', 'net_af_packet0')";

/// Packets and bytes of a capture, without what kernels say by themselves.
fn sum(skua: &Skua<'_>, id: &str) -> (u64, u64) {
    let flows = skua.query(&format!("G.Flows().Has('CaptureID', '{id}')"));
    let mut sum = (0, 0);
    let ours = |flow: &&Value| {
        let from = flow["Network"]["A"].as_str().unwrap_or_default();
        from.starts_with("10.99.") || from.starts_with("fd99:")
    };
    for flow in flows.as_array().unwrap().iter().filter(ours) {
        for way in ["AB", "BA"] {
            sum.0 += flow["Metric"][format!("{way}Packets")].as_u64().unwrap();
            sum.1 += flow["Metric"][format!("{way}Bytes")].as_u64().unwrap();
        }
    }
    sum
}

/// Waits until a capture has seen this much, and for more that should not come.
fn sees(skua: &Skua<'_>, id: &str, wanted: (u64, u64)) {
    wait("packets", || match sum(skua, id) {
        seen if seen == wanted => Ok(()),
        seen => Err(json!({"seen": seen, "wanted": wanted})),
    });
    thread::sleep(Duration::from_millis(300));
    assert_eq!(sum(skua, id), wanted);
}

fn size(frames: &[Sent]) -> (u64, u64) {
    let bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
    (frames.len() as u64, bytes as u64)
}

/// The status of captures on the port, as `skua status` has it.
fn state(skua: &Skua<'_>, id: &str, state: &str) -> Value {
    wait(state, || {
        let capture = skua.get(id);
        let node = &capture["Nodes"][0];
        match node["State"] == state {
            true => Ok(node.clone()),
            false => Err(capture),
        }
    })
}

#[test]
fn captures_of_a_port_are_exact_and_come_and_go() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("dpdk");
    let skua = Skua::run(&switch);
    // Nodes that are no ports do not fit.
    let unfit = skua.create("dpdk", "G.V().Has('Name', 'p1', 'Type', 'veth')");
    wait("an unfit node", || {
        let capture = skua.get(&unfit);
        let fits = capture["Unfit"].as_str().unwrap_or_default().to_owned();
        fits.contains("dpdkport").then_some(()).ok_or(capture)
    });
    let all = skua.create("dpdk", PORT);
    skua.active(&all);
    let made = skua.ask(&[
        "capture",
        "create",
        "--type",
        "dpdk",
        "--gremlin",
        PORT,
        "--pollinginterval",
        "1",
        "--bpf",
        "udp port 42000",
        "--rawpacket-limit",
        "3",
    ]);
    let made: Value = serde_json::from_slice(&made).unwrap();
    let part = made["UUID"].as_str().unwrap();
    skua.active(part);
    let node = &skua.query(PORT)[0]["Metadata"];
    assert_eq!(
        (&node["Driver"], &node["State"]),
        (&json!("net_af_packet"), &json!("UP"))
    );

    // The driver has the kernel put fragments together: 3 datagrams would come whole.
    let whole =
        |(_, frame): &Sent| frame[12..14] != [8, 0] || frame[20] & 0x3f == 0 && frame[21] == 0;
    let frames: Vec<Sent> = recording().into_iter().filter(whole).collect();
    assert_eq!(recording().len() - frames.len(), 6);
    let port = 42_000_u16.to_be_bytes();
    let udp = |(_, frame): &&Sent| {
        let header = match frame[12..14] {
            [0x08, 0] if frame[23] == 17 => 34,
            [0x86, 0xdd] if frame[20] == 17 => 54,
            _ => return false,
        };
        frame[header..header + 2] == port || frame[header + 2..header + 4] == port
    };
    let chosen: Vec<Sent> = frames.iter().filter(udp).cloned().collect();
    assert_eq!(chosen.len(), 60);
    send(&switch, &frames);
    sees(&skua, &all, size(&frames));
    sees(&skua, part, size(&chosen));
    let flows = skua.query(&format!("G.Flows().Has('CaptureID', '{part}')"));
    assert_eq!(flows.as_array().unwrap().len(), 2);
    let kept = skua.query(&format!(
        "G.Flows().Has('CaptureID', '{part}').RawPackets()"
    ));
    let of_flows = |answer: &Value| -> usize {
        let flows = answer.as_array().unwrap().iter();
        let each = flows.flat_map(|flow| flow.as_object().unwrap().values());
        each.map(|packets| packets.as_array().unwrap().len()).sum()
    };
    assert_eq!(of_flows(&kept), 6, "{kept:#}");

    // One goes, the other stays; then another comes, and later the first of a new life.
    skua.ask(&["capture", "delete", part]);
    send(&switch, &frames[..10]);
    let (packets, bytes) = (size(&frames), size(&frames[..10]));
    sees(&skua, &all, (packets.0 + bytes.0, packets.1 + bytes.1));
    skua.ask(&["capture", "delete", &all]);
    send(&switch, &frames[..10]);
    let again = skua.create("dpdk", PORT);
    skua.active(&again);
    send(&switch, &frames);
    sees(&skua, &again, size(&frames));

    // The interface behind the port goes: that is said, and what was seen stays. It comes back.
    switch.net.ip("link del p1");
    let error = state(&skua, &again, "error")["Error"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(error.contains("net_af_packet0"), "{error}");
    assert_eq!(sum(&skua, &again), size(&frames));
    switch.net.ip("link add p1 type veth peer name q1");
    switch.net.ip("link set p1 up");
    switch.net.ip("link set q1 up");
    state(&skua, &again, "active");
    let sent = &frames[..20];
    let inject = || {
        let mut device = pcap::Capture::from_device("q1").unwrap().open().unwrap();
        sent.iter()
            .for_each(|(_, frame)| device.sendpacket(&frame[..]).unwrap());
    };
    switch.net.inside(inject);
    let (before, more) = (size(&frames), size(sent));
    sees(&skua, &again, (before.0 + more.0, before.1 + more.1));
}
