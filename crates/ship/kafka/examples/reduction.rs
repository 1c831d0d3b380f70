//! How many messages a collector publishes, beside one for each 5-tuple and window: `make bench-reduction`.
//! Agents' records go as datagrams through a real collector; nothing is sent anywhere.

use skua_collect::{Collector, CollectorConfig, Drain, Exporter, ExporterConfig, Offered};
use skua_flow::{Counters, FlowKey, FlowStore, FlowUpdate, StoreLimits};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000 * SECOND;

/// Traffic of ten seconds: each client has to do with so many services, by so many conversations with each.
struct Mix {
    name: &'static str,
    clients: u32,
    services: u32,
    conversations: u32,
}

const MIXES: [Mix; 6] = [
    Mix {
        name: "a connection for each request: 500 clients, 10 services, 1 a second",
        clients: 500,
        services: 10,
        conversations: 10,
    },
    Mix {
        name: "pools of 8 connections: 1,000 clients, 10 services",
        clients: 1_000,
        services: 10,
        conversations: 8,
    },
    Mix {
        name: "pools of 4 connections: 1,000 clients, 10 services",
        clients: 1_000,
        services: 10,
        conversations: 4,
    },
    Mix {
        name: "name server: 5,000 clients, 3 questions a second",
        clients: 5_000,
        services: 1,
        conversations: 30,
    },
    Mix {
        name: "public web site: 20,000 clients, 6 connections each",
        clients: 20_000,
        services: 1,
        conversations: 6,
    },
    Mix {
        name: "at worst, one connection each: 5,000 clients, 10 services",
        clients: 5_000,
        services: 10,
        conversations: 1,
    },
];

fn key(mix: &Mix, number: u32) -> FlowKey {
    let (pair, port) = (number / mix.conversations, number % mix.conversations);
    let (client, service) = (pair / mix.services, pair % mix.services);
    let address = |address: u32| std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets();
    FlowKey {
        lo: address(0x0a00_0000 + client),
        hi: address(0xc000_0201 + service),
        lo_port: ((32_768 + port) as u16).to_be_bytes(),
        hi_port: 443u16.to_be_bytes(),
        ifindex: 2,
        proto: 6,
        kind: 1 | 4,
        ..FlowKey::default()
    }
}

/// Lines and their bytes, uncompressed.
fn publish(mix: &Mix, conversations: u32) -> (u64, u64) {
    let limits = StoreLimits {
        records: conversations as usize,
        bytes: usize::MAX,
    };
    let mut store = FlowStore::new(limits, 1, 1);
    store.note_touched();
    let now = START + SECOND;
    store.begin_drain(now);
    for number in 0..conversations {
        store.apply(&FlowUpdate {
            key: key(mix, number),
            lo_sent: Counters::new(10, 1_000),
            hi_sent: Counters::new(10, 10_000),
            lo_first: true,
            first_ns: START,
            last_ns: now,
            ..FlowUpdate::default()
        });
    }
    store.end_drain();
    let mut collector = Collector::new(&CollectorConfig::default());
    let mut exporter = Exporter::new(ExporterConfig {
        agent: [10, 0, 0, 1].into(),
        sub_agent: 0,
        instance: 1,
        started_ns: START,
        datagram: 1_400,
        both_directions: false,
    });
    exporter.export(store.touched(), &Drain::at(now), |bytes| {
        collector.datagram(std::net::IpAddr::from([10, 0, 0, 1]), bytes, now);
        Offered::Queued
    });
    let (mut lines, mut bytes) = (0, 0);
    let mut message = Vec::new();
    collector.finish(now, &mut |line| {
        message.clear();
        skua_kafka::encode(line, &mut message);
        lines += 1;
        bytes += message.len() as u64;
    });
    assert_eq!(collector.summary().records, u64::from(conversations));
    (lines, bytes)
}

fn main() {
    println!("5-tuples   messages   fewer   bytes a message   mix");
    for mix in &MIXES {
        let conversations = mix.clients * mix.services * mix.conversations;
        let (lines, bytes) = publish(mix, conversations);
        println!(
            "{conversations:>8}   {lines:>8}   {:>4.0}%   {:>15.0}   {}",
            100.0 - 100.0 * lines as f64 / f64::from(conversations),
            bytes as f64 / lines as f64,
            mix.name
        );
    }
}
