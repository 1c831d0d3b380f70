//! A call graph of a thousand services on a hundred hosts, exported by the agents of all hosts, is found again:
//! each edge with its connections, packets and bytes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
};

use skua_collect::{
    Collector, CollectorConfig, Drain, Enrichment, Exporter, ExporterConfig, Offered, Tcp,
    graph::{self, Graph, GraphLine},
};
use skua_flow::{
    Counters, EndReason, FlowKey, FlowRecord, FlowStore, FlowUpdate, Ownership, Service,
    ServiceRule, StoreLimits,
};
use skua_wire::sflow::{Name, ServiceName};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000 * SECOND;
const HOSTS: usize = 100;
const SERVICES: usize = 1_000;
const CALLS: usize = 5_000;
const ROUNDS: u64 = 8;

/// A stream of numbers that is the same each time (xorshift).
struct Chosen(u64);

impl Chosen {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }
}

fn host(service: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, (service % HOSTS) as u8 + 1)
}

/// The names of services on a host, by owner.
struct Names(Vec<String>);

impl Enrichment for Names {
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>> {
        Some(Name {
            by: ServiceName::Container,
            process: "server",
            container: &self.0[owner.get() as usize - 1],
            ..Name::default()
        })
    }

    fn tcp(&self, _: &FlowRecord) -> Option<Tcp> {
        None
    }
}

struct Agent {
    address: IpAddr,
    store: FlowStore,
    exporter: Exporter,
    updates: Vec<(FlowUpdate, Ownership)>,
}

impl Agent {
    fn new(number: usize) -> Self {
        let address = host(number).into();
        let mut store = FlowStore::new(StoreLimits::default(), 1, 1);
        store.note_touched();
        Self {
            address,
            store,
            exporter: Exporter::new(ExporterConfig {
                agent: address,
                sub_agent: 0,
                instance: number as u64 + 1,
                started_ns: START,
                datagram: 1_400,
                both_directions: true,
            }),
            updates: Vec::new(),
        }
    }

    fn export(&mut self, names: &Names, now: u64, collector: &mut Collector) {
        self.store.begin_drain(now);
        for (update, ownership) in self.updates.drain(..) {
            self.store.apply_owned(&update, |_| ownership);
        }
        self.store.end_drain();
        let drain = Drain {
            enrichment: names,
            ..Drain::at(now)
        };
        let address = self.address;
        self.exporter.export(self.store.touched(), &drain, |bytes| {
            collector.datagram(address, bytes, now);
            Offered::Queued
        });
    }
}

struct Call {
    client: usize,
    server: usize,
    port: u16,
    /// In which rounds it lives.
    rounds: std::ops::RangeInclusive<u64>,
}

/// What one side's host knows of a call in a round, and what was sent.
fn update(call: &Call, round: u64, client_side: bool) -> (FlowUpdate, Ownership, [u64; 4]) {
    let (client, server) = (host(call.client), host(call.server));
    let (client, server) = (
        client.to_ipv6_mapped().octets(),
        server.to_ipv6_mapped().octets(),
    );
    let service_port = 1_000 + (call.server / HOSTS) as u16;
    let lo = (client, call.port) <= (server, service_port);
    let ends = [(client, call.port), (server, service_port)];
    let [low, high] = if lo { ends } else { [ends[1], ends[0]] };
    let packets = call.port as u64 % 7 + round + 1;
    let sent = [packets, packets * 90, packets + 1, packets * 700];
    let [to, from] = [
        Counters::new(sent[0], sent[1]),
        Counters::new(sent[2], sent[3]),
    ];
    let at = |round: u64| START + round * 3 * SECOND;
    let owner = |service: usize| NonZeroU32::new(service as u32 + 1);
    let owners = match client_side {
        true => [owner(call.client), None],
        false => [None, owner(call.server)],
    };
    let update = FlowUpdate {
        key: FlowKey {
            lo: low.0,
            hi: high.0,
            lo_port: low.1.to_be_bytes(),
            hi_port: high.1.to_be_bytes(),
            ifindex: 2,
            proto: 6,
            kind: 1 | 4,
            ..FlowKey::default()
        },
        lo_sent: if lo { to } else { from },
        hi_sent: if lo { from } else { to },
        lo_first: lo,
        first_ns: at(*call.rounds.start()),
        last_ns: at(round),
        end: (round == *call.rounds.end()).then_some(EndReason::Closed),
        ..FlowUpdate::default()
    };
    let ownership = Ownership {
        owners: if lo { owners } else { [owners[1], owners[0]] },
        service: Some(Service {
            lo: !lo,
            by: ServiceRule::Kernel,
        }),
    };
    (update, ownership, sent)
}

#[test]
fn a_thousand_services_are_found_again() {
    let mut chosen = Chosen(0x5eed);
    let names = Names((0..SERVICES).map(|n| format!("service-{n}")).collect());
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let (client, begin) = (chosen.below(SERVICES), chosen.below(ROUNDS as usize) as u64);
            let server = chosen.below(SERVICES);
            let server = if host(server) == host(client) {
                server + 1
            } else {
                server
            } % SERVICES;
            Call {
                client,
                server,
                port: 20_000 + number as u16,
                rounds: begin..=(begin + chosen.below(4) as u64).min(ROUNDS - 1),
            }
        })
        .collect();
    let mut agents: Vec<_> = (0..HOSTS).map(Agent::new).collect();
    let (mut collector, mut found) = (
        Collector::new(&CollectorConfig::default()),
        Graph::new(100_000, START),
    );
    let mut expected: BTreeMap<(String, String, u16), [u64; 5]> = BTreeMap::new();
    for round in 0..ROUNDS {
        for call in calls.iter().filter(|call| call.rounds.contains(&round)) {
            let mut edge = [0; 5];
            for (service, client_side) in [(call.client, true), (call.server, false)] {
                let (update, ownership, sent) = update(call, round, client_side);
                edge[..4].copy_from_slice(&sent);
                agents[service % HOSTS].updates.push((update, ownership));
            }
            edge[4] = u64::from(round == *call.rounds.start());
            let key = (
                names.0[call.client].clone(),
                names.0[call.server].clone(),
                1_000 + (call.server / HOSTS) as u16,
            );
            let sums = expected.entry(key).or_default();
            sums.iter_mut()
                .zip(edge)
                .for_each(|(sum, more)| *sum += more);
        }
        // Hosts drain in another order each time, within two seconds.
        let from = chosen.below(HOSTS);
        for turn in 0..HOSTS {
            let now = START + round * 3 * SECOND + turn as u64 * SECOND / 50;
            agents[(from + turn * 37) % HOSTS].export(&names, now, &mut collector);
            collector.close(now, &mut |line| found.add(&line.into()));
        }
    }
    let mut lines = Vec::new();
    collector.finish(START + 100 * SECOND, &mut |line| {
        lines.push(serde_json::to_string(line).unwrap());
        found.add(&line.into());
    });
    let edges = found.edges(&Graph::new(0, 0), START + 100 * SECOND);
    let traffic: BTreeMap<_, _> = edges
        .iter()
        .filter(|edge| edge.bytes() > 0)
        .map(|edge| {
            let key = (
                edge.key.client.to_string(),
                edge.key.server.to_string(),
                edge.key.port,
            );
            let [client, server] = edge.sums.sent;
            let sums = [
                client.packets,
                client.bytes,
                server.packets,
                server.bytes,
                edge.sums.connections,
            ];
            (key, sums)
        })
        .collect();
    assert!(expected.len() > 4_500);
    assert_eq!(traffic.len(), expected.len());
    assert_eq!(edges.len(), traffic.len(), "edges of nothing");
    for (edge, sums) in &expected {
        assert_eq!(traffic.get(edge), Some(sums), "{edge:?}");
    }
    let services: BTreeSet<_> = traffic.keys().flat_map(|(a, b, _)| [a, b]).collect();
    assert_eq!(services.len(), SERVICES);
    // Lines as JSON bring the same.
    let direct: Vec<GraphLine<'_>> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(graph::edges(direct).len() <= edges.len());
}
