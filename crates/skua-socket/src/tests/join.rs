//! Which sockets a conversation belongs to.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use skua_flow::{FlowKey, FlowRecord, FlowUpdate, Ownership, Service, ServiceRule};

use super::*;

/// Key of a conversation between two endpoints, of which the lower is `lo`.
fn key(proto: u8, one: SocketAddr, other: SocketAddr) -> FlowKey {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let (lo, hi) = if (octets(one.ip()), one.port()) <= (octets(other.ip()), other.port()) {
        (one, other)
    } else {
        (other, one)
    };
    FlowKey {
        lo: octets(lo.ip()),
        hi: octets(hi.ip()),
        lo_port: lo.port().to_be_bytes(),
        hi_port: hi.port().to_be_bytes(),
        proto,
        kind: if lo.is_ipv4() { 1 } else { 2 },
        ..FlowKey::default()
    }
}

fn flow(proto: u8, one: &str, other: &str) -> FlowRecord {
    let update = FlowUpdate {
        key: key(proto, address(one), address(other)),
        ..FlowUpdate::default()
    };
    FlowRecord::new(&update, 1, 1, NOON, S)
}

/// Numbers of the owners of `one` and `other`, 0 for none.
fn joined(store: &SocketStore, proto: u8, netns: u32, one: &str, other: &str) -> [u32; 2] {
    let record = flow(proto, one, other);
    let owners = store.join(&record, netns).owners;
    let numbers = owners.map(|owner| owner.map_or(0, |owner| owner.get()));
    if record.key.ip(&record.key.lo) == Some(address(one).ip())
        && record.key.lo_port == address(one).port().to_be_bytes()
    {
        numbers
    } else {
        [numbers[1], numbers[0]]
    }
}

fn service(store: &SocketStore, one: &str, other: &str) -> Option<(bool, ServiceRule)> {
    let record = flow(6, one, other);
    let Service { lo, by } = store.join(&record, 1).service?;
    let one_is_lo = record.key.lo_port == address(one).port().to_be_bytes();
    Some((lo == one_is_lo, by))
}

#[test]
fn both_sides_of_a_conversation_on_this_host_are_known() {
    let mut store = store(SocketStoreConfig::default());
    let client = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    let server = tcp(2, 2, "10.0.0.2:80", "10.0.0.9:40000", Opener::Remote);
    look(&mut store, &[(client, 3), (server, 4)]);
    // Seen in either namespace, or in a third one that it passes.
    for netns in [1, 2, 3, 0] {
        let found = joined(&store, 6, netns, "10.0.0.9:40000", "10.0.0.2:80");
        assert_eq!(found, [3, 4], "{netns}");
    }
    assert_eq!(
        service(&store, "10.0.0.2:80", "10.0.0.9:40000"),
        Some((true, ServiceRule::Kernel))
    );
    // Other ports, another protocol: nobody's.
    assert_eq!(
        joined(&store, 6, 1, "10.0.0.9:40001", "10.0.0.2:80"),
        [0, 0]
    );
    assert_eq!(
        joined(&store, 17, 1, "10.0.0.9:40000", "10.0.0.2:80"),
        [0, 0]
    );
}

#[test]
fn the_namespace_itself_goes_first_and_elsewhere_only_one_may_be() {
    let mut store = store(SocketStoreConfig::default());
    let ends = ("127.0.0.1:40000", "127.0.0.1:80");
    let here = tcp(1, 1, ends.0, ends.1, Opener::Local);
    let there = tcp(2, 2, ends.0, ends.1, Opener::Local);
    look(&mut store, &[(here, 3), (there, 4)]);
    assert_eq!(joined(&store, 6, 1, ends.0, ends.1), [3, 0]);
    assert_eq!(joined(&store, 6, 2, ends.0, ends.1), [4, 0]);
    assert_eq!(joined(&store, 6, 3, ends.0, ends.1), [0, 0], "either");
}

#[test]
fn what_has_ended_stays_joinable_for_a_while() {
    let mut store = store(SocketStoreConfig::default());
    let ends = ("10.0.0.9:40000", "10.0.0.2:80");
    let client = tcp(1, 1, ends.0, ends.1, Opener::Local);
    store.ended(&ended(client, End::Closed), owner(3), &Names::new());
    for (seconds, found) in [(1, 3), (20, 3), (40, 3), (60, 3), (80, 3), (100, 0)] {
        store.begin_drain(NOON + seconds * S);
        look(&mut store, &[]);
        let joined = joined(&store, 6, 1, ends.0, ends.1);
        assert_eq!(joined, [found, 0], "{seconds}");
    }
}

#[test]
fn ports_that_are_used_again_belong_to_the_later_one() {
    let mut store = store(SocketStoreConfig::default());
    let ends = ("10.0.0.9:40000", "10.0.0.2:80");
    let first = tcp(1, 1, ends.0, ends.1, Opener::Local);
    let second = tcp(2, 1, ends.0, ends.1, Opener::Local);
    look(&mut store, &[(first, 3)]);
    look(&mut store, &[(first, 3), (second, 4)]);
    // The end of the first is told late.
    store.ended(&ended(first, End::Closed), owner(3), &Names::new());
    assert_eq!(joined(&store, 6, 1, ends.0, ends.1), [4, 0]);
}

#[test]
fn udp_without_connect_is_known_by_its_port_and_the_addresses_of_its_namespace() {
    let mut store = store(SocketStoreConfig::default());
    let server = listener(1, 1, Protocol::Udp, "0.0.0.0:53");
    let mut client = listener(2, 2, Protocol::Udp, "[::]:40000");
    client.opener = Opener::Local;
    client.remote = Some(address("10.0.0.2:53"));
    look(&mut store, &[(server, 3), (client, 4)]);
    let ends = ("10.0.0.9:40000", "10.0.0.2:53");
    assert_eq!(
        joined(&store, 17, 1, ends.0, ends.1),
        [0, 0],
        "whose address?"
    );
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    store.index_mut().set_addresses(1, [ip("10.0.0.2")]);
    assert_eq!(joined(&store, 17, 1, ends.0, ends.1), [0, 3]);
    store.index_mut().set_addresses(2, [ip("10.0.0.9")]);
    assert_eq!(joined(&store, 17, 1, ends.0, ends.1), [4, 3]);
    // A resolver of this host does not own what goes to another one's port 53.
    assert_eq!(joined(&store, 17, 2, ends.0, "8.8.8.8:53"), [4, 0]);
    assert_eq!(joined(&store, 17, 1, "127.0.0.1:53", "127.0.0.1:9"), [3, 0]);
}

#[test]
fn sums_of_the_kernel_name_owners_without_the_ephemeral_port() {
    let mut store = store(SocketStoreConfig {
        aggregate: true,
        ..SocketStoreConfig::default()
    });
    for (pair, number) in super::services::pairs() {
        store.pair(&pair, owner(number), &Names::new());
    }
    assert_eq!(
        joined(&store, 6, 1, "10.0.0.9:40000", "10.0.0.2:80"),
        [3, 4]
    );
    assert_eq!(
        joined(&store, 6, 1, "10.0.0.9:51111", "10.0.0.2:80"),
        [3, 4]
    );
    assert_eq!(
        joined(&store, 6, 1, "10.0.0.9:40000", "10.0.0.2:81"),
        [0, 0]
    );
}

#[test]
fn the_side_that_serves_is_found_by_the_best_rule() {
    let mut store = store(SocketStoreConfig::default());
    let waits = listener(1, 1, Protocol::Tcp, "10.0.0.2:50000");
    let old = tcp(2, 1, "10.0.0.2:7000", "10.0.0.9:40001", Opener::Unknown);
    look(&mut store, &[(waits, 3), (old, 4)]);
    let rule = |one, other| service(&store, one, other);
    assert_eq!(
        rule("10.0.0.2:50000", "10.0.0.9:40000"),
        Some((true, ServiceRule::Listening))
    );
    assert_eq!(
        rule("10.0.0.2:7000", "10.0.0.9:40001"),
        Some((true, ServiceRule::Ephemeral))
    );
    assert_eq!(
        rule("10.0.0.2:7000", "10.0.0.9:80"),
        Some((false, ServiceRule::WellKnown))
    );
    assert_eq!(rule("10.0.0.2:7000", "10.0.0.9:7001"), None);
    let mut flow = flow(6, "10.0.0.2:7000", "10.0.0.9:7001");
    flow.tcp.lo_opened = Some(true);
    let service = store.join(&flow, 1).service.unwrap();
    assert_eq!((service.lo, service.by), (false, ServiceRule::Syn));
}

#[test]
fn conversations_without_ports_are_nobodys() {
    let store = store(SocketStoreConfig::default());
    let icmp = flow(1, "10.0.0.1:0", "10.0.0.2:0");
    assert_eq!(store.join(&icmp, 1), Ownership::default());
}

/// A socket of a small world in which endpoints often meet.
fn any_socket() -> impl Strategy<Value = (SocketUpdate, u32)> {
    let endpoint = || (0..3u8, 0..3u16).prop_map(|(a, p)| format!("10.0.0.{a}:{}", 80 + p));
    (1..4u32, endpoint(), endpoint(), any::<bool>(), 1..9u32).prop_map(
        |(netns, local, remote, is_open, number)| {
            let mut socket = tcp(0, netns, &local, &remote, Opener::Unknown);
            if !is_open {
                socket.end = Some(End::Closed);
            }
            (socket, number)
        },
    )
}

proptest! {
    /// The index finds what a search through a list of all sockets finds.
    #[test]
    fn the_index_is_a_search_through_all(
        sockets in prop::collection::vec(any_socket(), 0..24),
        (netns, a, b) in (0..4u32, (0..3u8, 0..3u16), (0..3u8, 0..3u16)),
    ) {
        let mut store = store(SocketStoreConfig::default());
        let mut list: Vec<(SocketUpdate, u32)> = Vec::new();
        for (id, (mut socket, number)) in sockets.into_iter().enumerate() {
            socket.id = id as u64;
            if socket.end.is_some() {
                store.ended(&socket, owner(number), &Names::new());
            } else {
                store.seen(&socket, owner(number));
            }
            let same = |s: &SocketUpdate| (s.netns, s.local, s.remote) ==
                (socket.netns, socket.local, socket.remote);
            match list.iter_mut().find(|(s, _)| same(s)) {
                // An end does not take the place of another's open socket.
                Some((old, by)) if socket.end.is_none() || old.end.is_some() || *by == number => {
                    (*old, *by) = (socket, number);
                }
                Some(_) => {}
                None => list.push((socket, number)),
            }
        }
        let (one, other) = (
            format!("10.0.0.{}:{}", a.0, 80 + a.1),
            format!("10.0.0.{}:{}", b.0, 80 + b.1),
        );
        prop_assume!(one != other);
        let expected = |local: &str, remote: &str| -> u32 {
            let fits: Vec<_> = list
                .iter()
                .filter(|(s, _)| s.local == address(local) && s.remote == Some(address(remote)))
                .collect();
            if let Some((_, number)) = fits.iter().find(|(s, _)| s.netns == netns) {
                return *number;
            }
            match fits[..] {
                [(_, number)] => *number,
                _ => 0,
            }
        };
        prop_assert_eq!(
            joined(&store, 6, netns, &one, &other),
            [expected(&one, &other), expected(&other, &one)]
        );
    }
}
