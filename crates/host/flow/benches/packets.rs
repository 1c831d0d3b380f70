//! ns per packet of decoding and of the flow table, ns per update of draining and of the store:
//! `cargo bench -p skua-flow`
//! (`-- decode` for those with that in their name). Prints the
//! least CPU time of several runs; compare within one output only.

use skua_flow::{
    CapturePoint, Captured, FlowStore, FlowTable, HashKey, Query, SortBy, StoreLimits, TableConfig,
};
use skua_packet::{Decoded, Frame, Options, decode_into};
use std::hint::black_box;

const PACKETS: usize = 1_000_000;

fn main() {
    let frame = tcp_frame();
    print("decode Ethernet/IPv4/TCP", || decode(&frame, false));
    let vxlan = vxlan_frame(&frame);
    print("decode …/UDP, tunnels off", || decode(&vxlan, false));
    print("decode VXLAN and inner TCP", || decode(&vxlan, true));
    for flows in [1, 100, 10_000, 100_000, 500_000] {
        print(&format!("table hit, {flows} flows"), || table_hit(flows, 1));
        print(&format!("table batches, {flows} flows"), || {
            table_hit(flows, 64)
        });
    }
    print("table miss, 500,000 new flows", || table_miss(500_000));
    if chosen("drain store query JSON") {
        store(500_000);
    }
}

/// Whether a measurement is among those that the command line names (all by default).
fn chosen(what: &str) -> bool {
    let mut names = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .peekable();
    names.peek().is_none() || names.any(|name| what.contains(&name))
}

/// Prints the best of seven runs.
fn print(what: &str, run: impl Fn() -> f64) {
    if !chosen(what) {
        return;
    }
    let mut runs: Vec<f64> = (0..7).map(|_| run()).collect();
    runs.sort_by(f64::total_cmp);
    println!("{what:32} {:7.1} ns", runs[0]);
}

/// CPU time of this thread in ns: others use this machine, too.
struct Clock(u64);

impl Clock {
    fn start() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let ns = text.split_whitespace().next().map(str::parse);
        Self(ns.and_then(Result::ok).unwrap_or_default())
    }
}

fn per_item(start: Clock, items: usize) -> f64 {
    (Clock::start().0 - start.0) as f64 / items as f64
}

fn decode(frame: &[u8], tunnels: bool) -> f64 {
    let start = Clock::start();
    for _ in 0..PACKETS {
        let frame = Frame::ethernet(black_box(frame));
        let mut decoded = Decoded::default();
        let _ = black_box(decode_into(&frame, Options { tunnels }, &mut decoded));
        black_box(&decoded);
    }
    per_item(start, PACKETS)
}

/// Frame of the flow with this number: address and ports differ.
fn address(frame: &mut [u8], flow: usize) {
    let flow = flow as u32;
    frame[26..30].copy_from_slice(&(0x0a00_0000 | flow >> 4).to_be_bytes());
    frame[34..36].copy_from_slice(&(1024 + (flow & 0xf) as u16).to_be_bytes());
}

fn table(flows: usize) -> FlowTable {
    FlowTable::new(&TableConfig {
        max_entries: flows,
        ..TableConfig::default()
    })
}

fn captured(data: &[u8], now_ns: u64) -> Captured<'_> {
    Captured {
        point: CapturePoint::default(),
        frame: Frame::ethernet(data),
        now_ns,
    }
}

fn count(table: &mut FlowTable, data: &[u8], now_ns: u64) {
    let packet = captured(data, now_ns);
    black_box(table.packet(packet.point, &packet.frame, packet.now_ns));
}

/// Packets of flows in an order without pattern, this many at once.
fn table_hit(flows: usize, batch: usize) -> f64 {
    let mut table = table(flows);
    let mut frame = tcp_frame();
    for flow in 0..flows {
        address(&mut frame, flow);
        count(&mut table, &frame, 1);
    }
    let mut frames = vec![frame; batch];
    let mut random = 1u64;
    let start = Clock::start();
    for round in 0..PACKETS / batch {
        for frame in &mut frames {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            address(frame, (random >> 33) as usize % flows);
        }
        if let [frame] = &frames[..] {
            count(&mut table, frame, round as u64);
        } else {
            let packets: Vec<_> = frames.iter().map(|f| captured(f, round as u64)).collect();
            table.packets(black_box(&packets));
        }
    }
    per_item(start, PACKETS)
}

fn table_miss(flows: usize) -> f64 {
    let mut table = table(flows);
    let mut frame = tcp_frame();
    let start = Clock::start();
    for flow in 0..flows {
        address(&mut frame, flow);
        count(&mut table, &frame, 1);
    }
    per_item(start, flows)
}

/// Draining and storing: all new, all changed, none changed, and a query for the top 100.
fn store(flows: usize) {
    let mut table = table(flows);
    let mut store = FlowStore::new(StoreLimits::default(), table.seed(), 1);
    let mut frame = tcp_frame();
    for (round, what) in ["new", "known"].into_iter().enumerate() {
        for flow in 0..flows {
            // Another order in the second round, as a kernel table has another one than ours.
            address(&mut frame, flow * 7919 % flows);
            count(&mut table, &frame, round as u64 + 1);
        }
        let mut updates = Vec::with_capacity(flows);
        let start = Clock::start();
        table.drain(round as u64 + 2, |update| updates.push(*update));
        println!(
            "{:32} {:7.1} ns",
            format!("drain, {what}"),
            per_item(start, flows)
        );
        if round == 1 {
            // Slots of a hash table come in no order.
            updates.sort_by_key(|update| update.key.hash64(&HashKey::new(7)));
        }
        store.begin_drain(round as u64 + 2);
        let start = Clock::start();
        for update in &updates {
            black_box(store.apply(update));
        }
        println!(
            "{:32} {:7.1} ns",
            format!("store, {what}"),
            per_item(start, flows)
        );
    }
    let start = Clock::start();
    table.drain(3, |_| unreachable!());
    println!(
        "{:32} {:7.1} ns",
        "drain, unchanged",
        per_item(start, flows)
    );
    let start = Clock::start();
    let query = Query {
        sort: SortBy::Bytes,
        limit: 100,
        ..Query::all()
    }
    .with_filter(|record| record.key.proto == 6);
    let top = store.query(&query);
    println!(
        "{:32} {:7.1} ns a record",
        "query, top 100",
        per_item(start, flows)
    );
    let mut json = Vec::new();
    let start = Clock::start();
    for _ in 0..1000 {
        json.clear();
        for record in &top {
            if serde_json::to_writer(&mut json, &store.line(record, "eth0")).is_err() {
                return;
            }
        }
    }
    println!(
        "{:32} {:7.1} ns a record",
        "JSON",
        per_item(start, 1000 * top.len())
    );
    println!(
        "{:32} {:7} bytes",
        "size of a record",
        size_of::<skua_flow::FlowRecord>()
    );
}

fn tcp_frame() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00]);
    frame.extend([
        0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 200, 0, 2,
    ]);
    frame.extend([
        4, 0, 1, 187, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    frame.resize(64, 0);
    frame
}

fn vxlan_frame(inner: &[u8]) -> Vec<u8> {
    let mut frame = vec![4; 12];
    frame.extend([0x08, 0x00]);
    frame.extend([
        0x45, 0, 0, 100, 0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ]);
    frame.extend([200, 0, 0x12, 0xb5, 0, 80, 0, 0]);
    frame.extend([0x08, 0, 0, 0, 0, 0, 5, 0]);
    frame.extend(inner);
    frame
}
