//! What a record costs a collector: `cargo run --release -p skua-collect --example collect_speed`,
//! or `make bench-collector`. Datagrams come from memory, so receiving is not part of it. Times are of this
//! thread's CPU, as the kernel counts it; the best of five rounds.

use std::hint::black_box;

use skua_collect::{Collector, CollectorConfig, Drain, Exporter, ExporterConfig, Offered};
use skua_flow::{Counters, FlowKey, FlowStore, FlowUpdate, StoreLimits};
use skua_wire::sflow::{
    self, DataSource, FlowHead, Header, RawHeader, Record, Sample, Writer, header_protocol,
};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000 * SECOND;
/// Drains of the agent.
const DRAINS: u64 = 5;
const ROUNDS: usize = 5;

/// CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs()
}

/// Resident memory, bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1);
    pages
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4_096
}

fn key(number: u32, ports: u32) -> FlowKey {
    let client = (number / ports).to_be_bytes();
    let address = |last: [u8; 4]| std::net::Ipv4Addr::from(last).to_ipv6_mapped().octets();
    FlowKey {
        lo: address([10, client[1], client[2], client[3]]),
        hi: address([192, 0, 2, 1]),
        lo_port: ((32_768 + number % ports) as u16).to_be_bytes(),
        hi_port: 443u16.to_be_bytes(),
        ifindex: 2,
        proto: 6,
        kind: 1 | 4,
        ..FlowKey::default()
    }
}

/// Datagrams of all drains, each with its time.
fn datagrams(conversations: u32, ports: u32) -> (Vec<(u64, Vec<u8>)>, u64) {
    let mut store = FlowStore::new(
        StoreLimits {
            records: conversations as usize,
            bytes: usize::MAX,
        },
        1,
        1,
    );
    store.note_touched();
    let mut exporter = Exporter::new(ExporterConfig {
        agent: [10, 0, 0, 1].into(),
        sub_agent: 0,
        instance: 1,
        started_ns: START,
        datagram: 1_400,
        both_directions: false,
    });
    let mut all = Vec::new();
    for drain in 1..=DRAINS {
        let now = START + drain * 2 * SECOND;
        store.begin_drain(now);
        for number in 0..conversations {
            store.apply(&FlowUpdate {
                key: key(number, ports),
                lo_sent: Counters::new(10, 1_000),
                hi_sent: Counters::new(10, 10_000),
                lo_first: true,
                first_ns: START,
                last_ns: now,
                ..FlowUpdate::default()
            });
        }
        store.end_drain();
        exporter.export(store.touched(), &Drain::at(now), |bytes| {
            all.push((now, bytes.to_vec()));
            Offered::Queued
        });
    }
    (all, u64::from(conversations) * DRAINS)
}

/// Sampled packets of others, six in a datagram: TCP between so many pairs of addresses and port, by chance.
fn sampled(keys: u32) -> (Vec<Vec<u8>>, u64) {
    const DATAGRAMS: u32 = 100_000;
    const SAMPLES: u32 = 6;
    let mut chosen = 1u32;
    let mut packet = [0; 128];
    packet[12..38].copy_from_slice(&[
        8, 0, 0x45, 0, 5, 120, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 0, 10, 16, 0, 1, 0, 0, 1, 187,
    ]);
    packet[46] = 0x50;
    let all = (1..=DATAGRAMS).map(|sequence| {
        let header = Header {
            agent: [127, 0, 0, 1].into(),
            sub_agent: 0,
            sequence,
            uptime_ms: sequence,
        };
        let mut datagram = Vec::new();
        let mut writer = Writer::new(&mut datagram, &header);
        for _ in 0..SAMPLES {
            // Xorshift (Marsaglia, 2003).
            chosen ^= chosen << 13;
            chosen ^= chosen >> 17;
            chosen ^= chosen << 5;
            let key = chosen % keys;
            packet[27..30].copy_from_slice(&key.to_be_bytes()[1..]);
            packet[34..36].copy_from_slice(&(1_024 + key as u16 % 50_000).to_be_bytes());
            let head = FlowHead {
                source: DataSource { class: 0, index: 3 },
                rate: 1_000,
                ..FlowHead::default()
            };
            writer.flow_sample(&head, |records| {
                records.raw_header(&RawHeader {
                    protocol: header_protocol::ETHERNET,
                    frame_length: 1_418,
                    stripped: 4,
                    header: &packet,
                });
            });
        }
        datagram
    });
    (all.collect(), u64::from(DATAGRAMS * SAMPLES))
}

fn best(mut round: impl FnMut()) -> u64 {
    let rounds = (0..ROUNDS).map(|_| {
        let before = cpu_ns();
        round();
        cpu_ns() - before
    });
    rounds.min().unwrap_or(0).max(1)
}

fn decode(bytes: &[u8]) -> u64 {
    let Ok(datagram) = sflow::decode(black_box(bytes)) else {
        return 0;
    };
    let mut packets = 0;
    for sample in datagram.samples().flatten() {
        if let Sample::Flow(sample) = sample {
            for record in sample.records().flatten() {
                // All of it is read, whatever is done with it.
                if let Record::Conversation(conversation) = black_box(record) {
                    packets += conversation.packets[0];
                }
            }
        }
    }
    packets
}

fn main() {
    println!("conversations  keys       decode/s    decode+aggregate/s  bytes/conversation");
    for (conversations, ports) in [(2_000, 1), (300_000, 1), (300_000, 100)] {
        let (all, records) = datagrams(conversations, ports);
        let decoded = best(|| {
            let packets: u64 = all.iter().map(|(_, bytes)| decode(bytes)).sum();
            assert!(black_box(packets) > 0);
        });
        let before = resident();
        let mut memory = 0;
        let collected = best(|| {
            let mut collector = Collector::new(&CollectorConfig::default());
            for (now, bytes) in &all {
                collector.datagram(std::net::IpAddr::from([10, 0, 0, 1]), bytes, *now);
            }
            assert_eq!(collector.summary().records, records);
            memory = memory.max(resident().saturating_sub(before));
        });
        let rate = |ns: u64| records as f64 * 1e9 / ns as f64;
        println!(
            "{conversations:>13}  {:>9}  {:>10.0}  {:>18.0}  {:>18}",
            conversations / ports,
            rate(decoded),
            rate(collected),
            memory / u64::from(conversations),
        );
    }
    println!("\nsampled packets, keys    decode+aggregate/s  bytes/key");
    for keys in [2_000, 300_000] {
        let (all, records) = sampled(keys);
        let (before, mut memory, mut found) = (resident(), 0, 0);
        let collected = best(|| {
            let mut collector = Collector::new(&CollectorConfig::default());
            for bytes in &all {
                collector.datagram(std::net::IpAddr::from([127, 0, 0, 1]), bytes, START);
            }
            let summary = collector.summary();
            assert_eq!(summary.samples, records);
            found = summary.keys as u64;
            memory = memory.max(resident().saturating_sub(before));
        });
        let rate = records as f64 * 1e9 / collected as f64;
        println!("{found:>21}  {rate:>20.0}  {:>9}", memory / found.max(1));
    }
}
