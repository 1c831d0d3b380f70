//! What it costs to find the sockets of conversations: ns per conversation, for half a million
//! connections of which both, one or none of the ends are on this host.

#![allow(missing_docs)]

use std::{
    hint::black_box,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    time::Instant,
};

use skua_flow::{FlowKey, FlowRecord, FlowUpdate};
use skua_socket::{
    Opener, OwnerId, Protocol, SocketState, SocketStore, SocketStoreConfig, SocketUpdate, Task,
    TaskRule,
};

const CONNECTIONS: u32 = 500_000;
const NOON: u64 = 1_795_255_200_000_000_000;

/// Endpoints of a connection: clients at many addresses, one server.
fn endpoints(number: u32) -> (SocketAddr, SocketAddr) {
    let client = Ipv4Addr::from(0x0a00_0000 + number / 20_000);
    let port = 32_768 + (number % 20_000) as u16;
    (
        SocketAddr::from((client, port)),
        SocketAddr::from((Ipv4Addr::new(10, 200, 0, 1), 443)),
    )
}

fn flow(number: u32) -> FlowRecord {
    let (client, server) = endpoints(number);
    let octets = |a: SocketAddr| match a.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(ip) => ip.octets(),
    };
    let update = FlowUpdate {
        key: FlowKey {
            lo: octets(client),
            hi: octets(server),
            lo_port: client.port().to_be_bytes(),
            hi_port: server.port().to_be_bytes(),
            proto: 6,
            kind: 1,
            ..FlowKey::default()
        },
        ..FlowUpdate::default()
    };
    FlowRecord::new(&update, 1, 1, NOON, 1)
}

fn socket(id: u32, local: SocketAddr, remote: SocketAddr, opener: Opener) -> SocketUpdate {
    SocketUpdate {
        id: id.into(),
        protocol: Protocol::Tcp,
        state: SocketState::Established,
        netns: 1,
        local,
        remote: Some(remote),
        opener,
        task: Task::default(),
        task_rule: TaskRule::Connect,
        start_ns: NOON,
        established_ns: NOON,
        now_ns: NOON,
        end: None,
        tcp: None,
        backlog: None,
    }
}

fn main() {
    let flows: Vec<FlowRecord> = (0..CONNECTIONS)
        // In the order of a hash table, as a drain has them.
        .map(|n| flow((u64::from(n) * 2_654_435_761 % u64::from(CONNECTIONS)) as u32))
        .collect();
    let owner = NonZeroU32::new(1).map(OwnerId::numbered);
    for ends in [0, 1, 2] {
        let mut store = SocketStore::new(SocketStoreConfig {
            max_sockets: 2 * CONNECTIONS as usize,
            ..SocketStoreConfig::default()
        });
        store.begin_drain(NOON);
        store.begin_poll();
        let started = Instant::now();
        for n in 0..CONNECTIONS {
            let (client, server) = endpoints(n);
            if ends > 0 {
                store.observe(&socket(2 * n, client, server, Opener::Local), owner);
            }
            if ends > 1 {
                store.observe(&socket(2 * n + 1, server, client, Opener::Remote), owner);
            }
        }
        let look = started.elapsed();
        let started = Instant::now();
        let mut known = 0;
        for flow in &flows {
            let joined = black_box(store.join(black_box(flow), 1));
            known += joined.owners.iter().flatten().count();
        }
        let join = started.elapsed();
        assert_eq!(known, ends * flows.len());
        println!(
            "{ends} ends here: {:>4.0} ns per conversation; look {:>4.0} ns per socket",
            join.as_nanos() as f64 / f64::from(CONNECTIONS),
            look.as_nanos() as f64 / f64::from(CONNECTIONS) / (ends.max(1) as f64),
        );
    }
}
