//! Services and their clients.

use super::*;
use crate::{
    PairUpdate, Renames, RttSum,
    call::{Calls, CallsBy, calls},
};

/// What the kernel sums up of seven connections from 10.0.0.9 to 10.0.0.2:80, at both ends.
pub fn pairs() -> [(PairUpdate, u32); 2] {
    let mut rtt = RttSum::default();
    (0..6).for_each(|_| rtt.sample(300));
    let client = PairUpdate {
        protocol: Protocol::Tcp,
        netns: 1,
        local: "10.0.0.9".parse().unwrap(),
        remote: "10.0.0.2".parse().unwrap(),
        service_port: 80,
        opener: Opener::Local,
        task: Task::default(),
        task_rule: TaskRule::Connect,
        connections: 7,
        failed: 1,
        reset: 2,
        duration_ns: S,
        tcp: TcpMetrics {
            bytes_sent: 700,
            bytes_received: 7000,
            segments_sent: 70,
            retransmits: 7,
            ..TcpMetrics::default()
        },
        rtt,
        first_ns: NOON,
        last_ns: NOON + S,
    };
    let server = PairUpdate {
        local: client.remote,
        remote: client.local,
        opener: Opener::Remote,
        connections: 6,
        failed: 0,
        ..client
    };
    [(client, 3), (server, 4)]
}

fn all(store: &mut SocketStore, by: CallsBy) -> Vec<Calls> {
    calls(store, &Names::new(), by)
}

fn only(store: &mut SocketStore, by: CallsBy) -> Calls {
    let found = all(store, by);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn a_connection_within_the_host_is_counted_once() {
    let names = Names::new();
    let client = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    let server = tcp(2, 2, "10.0.0.2:80", "10.0.0.9:40000", Opener::Remote);
    // Open, ended, and with the server's end reported before the client's socket was polled.
    for order in 0..3 {
        let mut store = store(SocketStoreConfig::default());
        match order {
            0 => snapshot(&mut store, &[(server, 4), (client, 3)]),
            1 => {
                store.ended(&ended(server, End::Closed), owner(4), &names);
                store.ended(&ended(client, End::Closed), owner(3), &names);
                snapshot(&mut store, &[]);
            }
            _ => {
                store.ended(&ended(server, End::Closed), owner(4), &names);
                snapshot(&mut store, &[(client, 3)]);
            }
        }
        let call = only(&mut store, CallsBy::Dependency);
        assert_eq!(call.client.unwrap().service, "service 3", "{order}");
        assert_eq!(call.server.unwrap().service, "service 4", "{order}");
        assert_eq!(call.port, Some(80));
        assert_eq!(call.sums.connections, 1, "{order}");
        assert_eq!((call.sums.to_server, call.sums.to_client), (100, 1000));
        // Each end sent ten segments, and one of them again.
        assert_eq!((call.sums.segments, call.sums.retransmits), (20, 2));
        assert_eq!(call.sums.rtt.count, 1);
    }
}

#[test]
fn callers_from_elsewhere_are_addresses_and_what_is_called_elsewhere_too() {
    let mut store = store(SocketStoreConfig::default());
    let server = tcp(1, 1, "10.0.0.2:80", "192.0.2.7:40000", Opener::Remote);
    let client = tcp(2, 1, "10.0.0.2:40000", "192.0.2.9:443", Opener::Local);
    snapshot(&mut store, &[(server, 4), (client, 4)]);
    let mut found = all(&mut store, CallsBy::Dependency);
    found.sort_by_key(|c| c.port);
    let (client, server) = (found[0].client.clone(), found[0].server.clone());
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!(client.service, "");
    assert_eq!(client.address, Some("192.0.2.7".parse().unwrap()));
    assert_eq!(server.service, "service 4");
    // From the server's side, what it received went to the server.
    assert_eq!(
        (found[0].sums.to_server, found[0].sums.to_client),
        (1000, 100)
    );
    let called = found[1].server.clone().unwrap();
    assert_eq!(called.service, "");
    assert_eq!(called.address, Some("192.0.2.9".parse().unwrap()));
    // Only what is on this host is a service.
    assert_eq!(only(&mut store, CallsBy::Server).port, Some(80));
}

#[test]
fn failures_are_told_apart() {
    let names = Names::new();
    let mut store = store(SocketStoreConfig::default());
    let attempt = |id: u64, end| {
        let mut socket = tcp(id, 1, "10.0.0.9:40000", "192.0.2.9:443", Opener::Local);
        socket.local.set_port(40_000 + id as u16);
        socket.state = SocketState::SynSent;
        socket.established_ns = 0;
        socket.tcp = None;
        ended(socket, end)
    };
    let established = |id: u64, end| {
        let mut socket = tcp(id, 1, "10.0.0.9:40000", "192.0.2.9:443", Opener::Local);
        socket.local.set_port(40_000 + id as u16);
        ended(socket, end)
    };
    for socket in [
        attempt(1, End::Refused),
        attempt(2, End::TimedOut),
        attempt(3, End::Error(113)),
        established(4, End::TimedOut),
        established(5, End::ResetRemote),
        established(6, End::ResetLocal),
        established(7, End::Closed),
    ] {
        store.ended(&socket, owner(3), &names);
    }
    snapshot(&mut store, &[]);
    let sums = only(&mut store, CallsBy::Client).sums;
    assert_eq!(sums.connections, 7);
    assert_eq!((sums.failed, sums.refused, sums.timed_out), (3, 1, 2));
    assert_eq!(sums.reset, 2);
}

#[test]
fn what_nobody_calls_yet_is_a_service() {
    let mut store = store(SocketStoreConfig::default());
    let web = listener(1, 1, Protocol::Tcp, "0.0.0.0:80");
    let dns = listener(2, 1, Protocol::Udp, "10.0.0.2:53");
    // A UDP socket at an ephemeral port waits for answers.
    let asks = listener(3, 1, Protocol::Udp, "0.0.0.0:40000");
    snapshot(&mut store, &[(web, 3), (dns, 4), (asks, 5)]);
    let mut found = all(&mut store, CallsBy::Server);
    found.sort_by_key(|c| c.port);
    let ports: Vec<_> = found.iter().map(|c| (c.protocol, c.port)).collect();
    assert_eq!(
        ports,
        [(Protocol::Udp, Some(53)), (Protocol::Tcp, Some(80))]
    );
    assert!(found.iter().all(|c| c.sums.connections == 0));
}

#[test]
fn the_kernels_sums_flow_into_the_same_tables() {
    let mut store = store(SocketStoreConfig {
        aggregate: true,
        ..SocketStoreConfig::default()
    });
    // In either order.
    for (pair, number) in pairs().into_iter().rev() {
        store.pair(&pair, owner(number), &Names::new());
    }
    snapshot(&mut store, &[]);
    let call = only(&mut store, CallsBy::Dependency);
    assert_eq!(call.client.unwrap().service, "service 3");
    assert_eq!(call.server.unwrap().service, "service 4");
    let sums = call.sums;
    assert_eq!((sums.connections, sums.failed, sums.reset), (7, 1, 2));
    assert_eq!((sums.to_server, sums.to_client), (700, 7000));
    assert_eq!((sums.segments, sums.retransmits), (140, 14));
    assert_eq!(sums.rtt.count, 6);
    assert_eq!(store.counts().in_pairs, 13);
}

#[test]
fn new_connections_per_second_are_those_since_the_last_drain() {
    let names = Names::new();
    let mut store = store(SocketStoreConfig::default());
    snapshot(&mut store, &[]);
    store.begin_drain(NOON + 5 * S);
    let open = tcp(1, 1, "10.0.0.9:40000", "192.0.2.9:443", Opener::Local);
    let short = tcp(2, 1, "10.0.0.9:40001", "192.0.2.9:443", Opener::Local);
    store.ended(&ended(short, End::Closed), owner(3), &names);
    snapshot(&mut store, &[(open, 3)]);
    let rate = |store: &mut SocketStore| only(store, CallsBy::Dependency).sums.rate;
    assert_eq!(rate(&mut store), 0.5);
    // That the open one ends is nothing new.
    store.begin_drain(NOON + 9 * S);
    store.ended(&ended(open, End::Closed), owner(3), &names);
    snapshot(&mut store, &[]);
    assert_eq!(rate(&mut store), 0.0);
}

#[test]
fn quantiles_of_a_histogram_are_within_a_factor_of_two() {
    let mut rtt = RttSum::default();
    assert_eq!(rtt.quantile(0.5), None);
    let mut values: Vec<u32> = (0..1000).map(|n| 50 + n * n % 7919).collect();
    values.iter().for_each(|us| rtt.sample(*us));
    values.sort_unstable();
    for share in [0.01, 0.5, 0.95, 0.99, 1.0] {
        let exact = f64::from(values[((share * 1000.0) as usize).min(999)]);
        let found = rtt.quantile(share).unwrap();
        assert!(
            found >= exact / 2.0 && found <= exact * 2.0,
            "{share}: {found}, exactly {exact}"
        );
    }
    assert_eq!((rtt.min_us, rtt.max_us), (values[0], values[999]));
    // The extremes: nothing below 1 µs, nothing beyond the last class.
    let mut edges = RttSum::default();
    edges.sample(0);
    edges.sample(u32::MAX);
    assert_eq!(edges.histogram[0], 1);
    assert_eq!(edges.histogram[23], 1);
    assert!(edges.quantile(1.0).unwrap() <= f64::from(u32::MAX));
}

/// Names of which one is learned late.
struct Learning {
    names: Names,
    renames: Renames,
}

impl ServiceNames for Learning {
    fn service(&self, owner: OwnerId) -> Option<&str> {
        self.names.service(owner)
    }

    fn renames(&self) -> Option<&Renames> {
        Some(&self.renames)
    }
}

impl Learning {
    /// The service of owner 3 has that name from now on.
    fn learn(&mut self, name: &str) {
        let former = std::mem::replace(&mut self.names.0[3], name.to_owned());
        self.renames.add(&former, name);
    }
}

#[test]
fn a_container_keeps_its_sums_when_it_gets_its_name() {
    let mut names = Learning {
        names: Names::new(),
        renames: Renames::default(),
    };
    let mut store = store(SocketStoreConfig::default());
    let call = |id: u64, store: &mut SocketStore, names: &Learning| {
        let local = format!("10.0.0.9:{}", 40_000 + id);
        let client = tcp(id, 1, &local, "192.0.2.1:80", Opener::Local);
        store.ended(&ended(client, End::Closed), owner(3), names);
    };
    call(1, &mut store, &names);
    store.begin_poll();
    store.end_poll(&names);
    names.learn("shop");
    // Also when nothing more comes of it.
    let found = calls(&mut store, &names, CallsBy::Dependency);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].client.as_ref().unwrap().service, "shop");

    // Created again it begins with its id again.
    names.names.0[3] = "0123456789ab".to_owned();
    call(2, &mut store, &names);
    store.begin_poll();
    store.end_poll(&names);
    names.learn("shop");
    call(3, &mut store, &names);
    store.begin_poll();
    store.end_poll(&names);
    for by in [CallsBy::Dependency, CallsBy::Client] {
        let found = calls(&mut store, &names, by);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].client.as_ref().unwrap().service, "shop");
        assert_eq!(found[0].sums.connections, 3);
    }
}
