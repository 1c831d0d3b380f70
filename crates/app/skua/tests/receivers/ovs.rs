//! Open vSwitch tells of known traffic by sFlow, NetFlow and IPFIX.

use std::net::SocketAddr;

use serde_json::Value;
use skua_probe::receive::{NetflowProbe, ReceiveCause, ReceiverConfig, SflowProbe};
use skua_testkit::lab::root_tests;

use crate::{
    collected::{Collected, collect},
    switch::Switch,
};

/// Ethernet, IPv4 and UDP.
const HEADERS: u64 = 42;
/// (packets each way, payload bytes) of the conversations from ports 40,000 on.
const TALKS: [(usize, usize); 3] = [(100, 100), (57, 700), (1, 1_400)];

fn talk(switch: &Switch) {
    for (number, (packets, bytes)) in TALKS.into_iter().enumerate() {
        switch.talk(packets, bytes, 40_000 + number as u16);
    }
}

/// Packets of all talks, both ways.
fn packets() -> u64 {
    TALKS.iter().map(|(packets, _)| 2 * *packets as u64).sum()
}

/// Records of the talks at an interface; all that is told there of them.
fn at<'a>(collected: &'a Collected, name: &str) -> Vec<&'a Value> {
    let records = collected.records.iter();
    records
        .filter(|record| record["interface"] == name)
        .collect()
}

/// The records are exactly the talks, both directions in one; `who_first`: and it is told who spoke
/// first.
fn assert_talks(records: &[&Value], who_first: bool) {
    assert_eq!(records.len(), TALKS.len(), "{records:?}");
    for (number, (packets, bytes)) in TALKS.into_iter().enumerate() {
        let port = 40_000 + number as u64;
        let (client, server) = (("10.79.0.1", port), ("10.79.0.2", 9_000));
        let is = |side: &Value, (address, port): (&str, u64)| {
            side["address"] == address && side["port"] == port
        };
        let between =
            |record: &&&Value, one, other| is(&record["a"], one) && is(&record["b"], other);
        let mut records = records.iter();
        let record = records
            .find(|record| {
                between(record, client, server) || !who_first && between(record, server, client)
            })
            .unwrap_or_else(|| panic!("no record of {port}, or {port} did not speak first"));
        for side in ["ab", "ba"] {
            assert_eq!(record[side]["packets"], packets as u64, "{record}");
            assert_eq!(
                record[side]["bytes"],
                packets as u64 * (bytes as u64 + HEADERS)
            );
        }
    }
}

fn assert_no_loss(collected: &Collected) {
    let received = &collected.account.received;
    assert_eq!(received.causes().count(), 0, "{received:?}");
    assert_eq!(received.out_of_order + received.restarts, 0, "{received:?}");
}

fn config() -> ReceiverConfig {
    ReceiverConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)))
}

#[test]
fn sflow_of_all_packets_is_exact() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("ovs-sflow");
    let probe = switch.net.inside(|| SflowProbe::start(config()).unwrap());
    let counters = probe.counters();
    switch.vsctl(&format!(
        "-- --id=@s create sFlow agent=lo target=\"127.0.0.1:{}\" header=128 sampling=1 polling=1 \
         -- set bridge br0 sflow=@s",
        probe.address().port()
    ));
    talk(&switch);
    // Samples wait in the agent until a datagram is full or a second has passed.
    let ifindex = switch.ifindex(1) as u32;
    let port = || counters.latest().into_iter().find(|c| c.ifindex == ifindex);
    let collected = collect(probe, |_, counted| counted >= packets() && port().is_some());
    let name = format!("agent 127.0.0.1 ifIndex {ifindex}");
    assert_talks(&at(&collected, &name), true);
    assert_eq!(collected.records.len(), TALKS.len());
    assert_no_loss(&collected);
    assert_eq!(collected.account.received.records, packets());
    let port = port().unwrap();
    assert_eq!(port.interface.index, ifindex);
    assert_eq!(port.interface.status & 3, 3, "up");
    assert!(port.interface.in_octets > 0 && port.ethernet.is_some());
}

#[test]
fn sflow_of_one_in_eight_lies_within_the_bound() {
    if !root_tests() {
        return;
    }
    const RATE: u64 = 8;
    const PACKETS: usize = 5_000;
    const BYTES: usize = 300;
    let switch = Switch::new("ovs-sampled");
    let probe = switch.net.inside(|| SflowProbe::start(config()).unwrap());
    switch.vsctl(&format!(
        "-- --id=@s create sFlow agent=lo target=\"127.0.0.1:{}\" header=64 sampling={RATE} \
         polling=1 -- set bridge br0 sflow=@s",
        probe.address().port()
    ));
    switch.talk(PACKETS, BYTES, 40_000);
    // Number of samples of n packets: binomial, five standard deviations.
    let all = 2 * PACKETS as u64;
    let deviation = ((all * RATE - all) as f64).sqrt();
    let bound = (5.0 * deviation) as u64;
    let enough = all - bound;
    // Two seconds without a further datagram: the agent has sent everything.
    let (mut last, mut since) = (0, std::time::Instant::now());
    let quiet = std::cell::RefCell::new(move |records: u64| {
        if records != last {
            (last, since) = (records, std::time::Instant::now());
        }
        since.elapsed().as_secs() >= 2
    });
    let collected = collect(probe, |account, counted| {
        counted >= enough && quiet.borrow_mut()(account.received.records)
    });
    let [record] = &collected.records[..] else {
        panic!("{:?}", collected.records);
    };
    assert_eq!(record["sampling"], RATE);
    let sum =
        |what: &str| record["ab"][what].as_u64().unwrap() + record["ba"][what].as_u64().unwrap();
    assert_eq!(sum("packets"), collected.account.received.records * RATE);
    assert_eq!(sum("bytes"), sum("packets") * (BYTES as u64 + HEADERS));
    assert!(
        sum("packets").abs_diff(all) <= bound,
        "{} of {all} ± {bound}",
        sum("packets")
    );
    assert_no_loss(&collected);
}

#[test]
fn netflow_5_is_exact() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("ovs-netflow");
    let probe = switch.net.inside(|| NetflowProbe::start(config()).unwrap());
    switch.vsctl(&format!(
        "-- --id=@n create NetFlow targets=\"127.0.0.1:{}\" active_timeout=1 \
         -- set bridge br0 netflow=@n",
        probe.address().port()
    ));
    talk(&switch);
    let collected = collect(probe, |_, counted| counted >= packets());
    // It numbers ports by OpenFlow's numbers here.
    let records: Vec<&Value> = collected.records.iter().collect();
    // Its times are in ms, and what is told of both directions is often the same.
    assert_talks(&records, false);
    let received = &collected.account.received;
    assert_eq!(received.of(ReceiveCause::DecodeError), 0, "{received:?}");
}

#[test]
fn ipfix_is_exact_at_both_ports() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("ovs-ipfix");
    let probe = switch.net.inside(|| NetflowProbe::start(config()).unwrap());
    switch.vsctl(&format!(
        "-- --id=@i create IPFIX targets=\"127.0.0.1:{}\" sampling=1 cache_active_timeout=1 \
         obs_domain_id=123 -- set bridge br0 ipfix=@i",
        probe.address().port()
    ));
    talk(&switch);
    // Each packet is told of where it comes in and where it goes out.
    let collected = collect(probe, |_, counted| counted >= 2 * packets());
    for host in [1, 2] {
        let name = format!("exporter 127.0.0.1 ifIndex {}", switch.ifindex(host));
        assert_talks(&at(&collected, &name), false);
    }
    assert_eq!(collected.records.len(), 2 * TALKS.len());
    assert_no_loss(&collected);
}
