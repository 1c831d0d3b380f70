//! Store, joins, services and records.

mod join;
mod records;
mod services;
mod store;

use std::{net::SocketAddr, num::NonZeroU32};

use crate::{
    End, Opener, OwnerId, Protocol, ServiceNames, SocketState, SocketStore, SocketStoreConfig,
    SocketUpdate, Task, TaskRule, TcpMetrics,
};

const S: u64 = 1_000_000_000;
/// 2026-11-21T10:00:00Z
const NOON: u64 = 1_795_255_200 * S;

/// Owner with a number; its service has the name `service N`.
fn owner(number: u32) -> Option<OwnerId> {
    NonZeroU32::new(number).map(OwnerId::numbered)
}

struct Names(Vec<String>);

impl Names {
    fn new() -> Self {
        Self((0..10).map(|n| format!("service {n}")).collect())
    }
}

impl ServiceNames for Names {
    fn service(&self, owner: OwnerId) -> Option<&str> {
        self.0
            .get(owner.number().get() as usize)
            .map(String::as_str)
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// An established connection.
fn tcp(id: u64, netns: u32, local: &str, remote: &str, opener: Opener) -> SocketUpdate {
    SocketUpdate {
        id,
        protocol: Protocol::Tcp,
        state: SocketState::Established,
        netns,
        local: address(local),
        remote: Some(address(remote)),
        opener,
        task: Task::default(),
        task_rule: TaskRule::File,
        start_ns: NOON,
        established_ns: NOON + 1000,
        now_ns: NOON + S,
        end: None,
        tcp: Some(TcpMetrics {
            bytes_sent: 100,
            bytes_received: 1000,
            segments_sent: 10,
            segments_received: 20,
            retransmits: 1,
            srtt_us: 300,
            ..TcpMetrics::default()
        }),
        backlog: None,
    }
}

/// What listens.
fn listener(id: u64, netns: u32, protocol: Protocol, local: &str) -> SocketUpdate {
    SocketUpdate {
        protocol,
        state: match protocol {
            Protocol::Tcp => SocketState::Listen,
            Protocol::Udp => SocketState::UdpUnconnected,
        },
        remote: None,
        tcp: None,
        backlog: (protocol == Protocol::Tcp).then_some((0, 128)),
        established_ns: 0,
        ..tcp(id, netns, local, "0.0.0.0:0", Opener::Unknown)
    }
}

fn ended(mut update: SocketUpdate, end: End) -> SocketUpdate {
    update.end = Some(end);
    update
}

fn store(config: SocketStoreConfig) -> SocketStore {
    let mut store = SocketStore::new(config);
    store.begin_drain(NOON + S);
    store
}

/// A poll that sees these sockets, each with the owner of its number.
fn snapshot(store: &mut SocketStore, sockets: &[(SocketUpdate, u32)]) {
    store.begin_poll();
    for (update, number) in sockets {
        store.observe(update, owner(*number));
    }
    store.end_poll(&Names::new());
}
