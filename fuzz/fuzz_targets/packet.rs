//! Any packets through decoder and flow table: nothing panics, and no packet or byte is lost
//! without being counted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_flow::{CapturePoint, Cause, Counters, FlowRecord, FlowTable, FlowUpdate, TableConfig};
use skua_packet::{Frame, LinkType};
use skua_testkit::scenario::Scenario;

const SEED: u64 = 0x5eed;

/// Sums of flows outside of tunnels.
fn sum(sum: &mut Counters, update: &FlowUpdate) {
    assert!(update.first_ns <= update.last_ns);
    if update.key.tunnel().is_none() {
        *sum += update.lo_sent;
        *sum += update.hi_sent;
    }
    // Every flow can be shown.
    let record = FlowRecord::new(update, SEED, 1, update.last_ns, 1);
    serde_json::to_string(&record.line("eth0")).expect("a record is JSON");
}

fuzz_target!(|bytes: &[u8]| {
    let scenario = Scenario::new(bytes);
    let link = LinkType::from_pcap(u32::from(scenario.link_type.0)).expect("a known link type");
    let mut table = FlowTable::new(&TableConfig {
        max_entries: scenario.max_entries,
        tunnels: scenario.tunnels,
        seed: SEED,
        ..TableConfig::default()
    });
    let (mut flows, mut fed) = (Counters::default(), Counters::default());
    let mut now_ns = 1_000_000_000_000;
    for (i, packet) in scenario.packets().enumerate() {
        let frame = Frame {
            data: packet.data,
            wire_len: packet.wire_length,
            link,
            stripped_vlan: packet.stripped_vlan,
            segments: packet.segments,
        };
        table.packet(CapturePoint::default(), &frame, now_ns);
        fed += Counters {
            packets: 1,
            bytes: u64::from(packet.wire_length),
        };
        now_ns += 700_000_000;
        if i % 16 == 15 {
            table.drain(now_ns, |update| sum(&mut flows, update));
        }
        assert!(table.len() <= scenario.max_entries);
    }
    table.finish(|update| sum(&mut flows, update));
    assert!(table.is_empty());
    for (_, point) in table.points() {
        flows += point.lost();
        // Wire packets count, not super-packets; stripped tags count.
        fed += point[Cause::Segmented];
        fed.bytes += point[Cause::TagBytes].bytes;
    }
    assert_eq!(flows, fed);
});
