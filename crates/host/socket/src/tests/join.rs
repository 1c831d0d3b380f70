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
    flow_in(proto, one, other, (NOON + 1_000, NOON + S / 2))
}

/// A conversation with packets in a time.
fn flow_in(proto: u8, one: &str, other: &str, (first_ns, last_ns): (u64, u64)) -> FlowRecord {
    let update = FlowUpdate {
        key: key(proto, address(one), address(other)),
        first_ns,
        last_ns,
        ..FlowUpdate::default()
    };
    FlowRecord::new(&update, 1, 1, NOON, S)
}

/// Numbers of the owners of `one` and `other`, 0 for none.
fn joined(store: &SocketStore, proto: u8, netns: u32, one: &str, other: &str) -> [u32; 2] {
    joined_in(store, netns, flow(proto, one, other), one)
}

/// The same of a flow that has `one` on one side.
fn joined_in(store: &SocketStore, netns: u32, record: FlowRecord, one: &str) -> [u32; 2] {
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
    snapshot(&mut store, &[(client, 3), (server, 4)]);
    // Seen in either namespace, or in a third one that it passes.
    for netns in [1, 2, 3, 0] {
        let found = joined(&store, 6, netns, "10.0.0.9:40000", "10.0.0.2:80");
        assert_eq!(found, [3, 4], "{netns}");
    }
    assert_eq!(
        service(&store, "10.0.0.2:80", "10.0.0.9:40000"),
        Some((true, ServiceRule::Kernel))
    );
    // Other ports, another protocol: no socket's.
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
    snapshot(&mut store, &[(here, 3), (there, 4)]);
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
        snapshot(&mut store, &[]);
        let joined = joined(&store, 6, 1, ends.0, ends.1);
        assert_eq!(joined, [found, 0], "{seconds}");
    }
}

/// One after the other a socket of owner 3, of owner 4 and of owner 5 have the same endpoints, each for a
/// second of ten; the last is open.
fn used_again() -> SocketStore {
    let mut store = store(SocketStoreConfig::default());
    for (at, number) in [(0, 3), (10, 4), (20, 5)] {
        let mut socket = tcp(number, 1, ENDS.0, ENDS.1, Opener::Local);
        socket.start_ns = NOON + at * S;
        socket.now_ns = NOON + (at + 1) * S;
        match number {
            5 => store.observe(&socket, owner(5)),
            _ => store.ended(
                &ended(socket, End::Closed),
                owner(number as u32),
                &Names::new(),
            ),
        }
    }
    store
}

const ENDS: (&str, &str) = ("10.0.0.9:40000", "10.0.0.2:80");

#[test]
fn ports_that_are_used_again_belong_to_the_socket_that_was_there() {
    let store = used_again();
    let at = |first: u64, last: u64| {
        let times = (NOON + first * S / 10, NOON + last * S / 10);
        joined_in(&store, 1, flow_in(6, ENDS.0, ENDS.1, times), ENDS.0)
    };
    assert_eq!(at(1, 8), [3, 0]);
    assert_eq!(at(101, 108), [4, 0]);
    assert_eq!(at(201, 208), [5, 0]);
    assert_eq!(at(205, 230), [5, 0]);
    assert_eq!(at(220, 230), [0, 0], "no look has seen it since");
    // Packets that follow the end, of a conversation that began before it.
    assert_eq!(at(105, 150), [4, 0]);
    // In between there was no socket.
    assert_eq!(at(50, 60), [0, 0]);
    assert_eq!(store.counts().ambiguous, 0);
    // One record of all three uses has no single owner, which is counted.
    assert_eq!(at(1, 208), [0, 0]);
    assert_eq!(store.counts().ambiguous, 1);
}

#[test]
fn a_process_that_connects_after_the_handshake_has_not_opened_the_conversation() {
    let mut store = store(SocketStoreConfig::default());
    let mut socket = tcp(4, 1, ENDS.0, ENDS.1, Opener::Local);
    socket.task_rule = TaskRule::Connect;
    (socket.start_ns, socket.now_ns) = (NOON + S, NOON + 2 * S);
    store.observe(&socket, owner(4));
    // An acknowledgement came when the ports were used again already. Of who had them before nothing is known.
    let late = |syn_ns: u64| {
        let mut flow = flow_in(6, ENDS.0, ENDS.1, (syn_ns, NOON + S + S / 100));
        let lo_opens = flow.key.lo_port == address(ENDS.0).port().to_be_bytes();
        flow.tcp.lo_opened = Some(lo_opens);
        flow.tcp.syn_ns[usize::from(!lo_opens)] = syn_ns;
        (flow.tcp.server_rtt_ns, flow.tcp.client_rtt_ns) = (1_000, 1_000);
        flow
    };
    let names = |store: &SocketStore, flow| joined_in(store, 1, flow, ENDS.0);
    assert_eq!(names(&store, late(NOON + S - S / 50)), [0, 0]);
    assert_eq!(names(&store, late(NOON + S)), [4, 0]);
    // A poll may have seen the socket later than it began.
    let mut store = self::store(SocketStoreConfig::default());
    socket.task_rule = TaskRule::File;
    store.observe(&socket, owner(4));
    assert_eq!(names(&store, late(NOON + S - S / 50)), [4, 0]);
}

#[test]
fn a_thousand_uses_of_a_port_in_a_second_are_told_apart() {
    let mut store = store(SocketStoreConfig::default());
    const MS: u64 = 1_000_000;
    let uses = 0..1_000u64;
    for id in uses.clone() {
        let mut socket = tcp(id + 1, 1, ENDS.0, ENDS.1, Opener::Local);
        socket.start_ns = NOON + id * MS;
        socket.now_ns = socket.start_ns + MS / 2;
        store.ended(
            &ended(socket, End::Closed),
            owner(id as u32 + 1),
            &Names::new(),
        );
    }
    for id in uses {
        // The coarse clock shows the last packet at a tick before the first.
        let first = NOON + id * MS + 5_000;
        let record = flow_in(6, ENDS.0, ENDS.1, (first, first));
        assert_eq!(joined_in(&store, 1, record, ENDS.0), [id as u32 + 1, 0]);
    }
}

#[test]
fn a_restarted_server_does_not_answer_for_the_one_before() {
    let mut store = store(SocketStoreConfig::default());
    store
        .index_mut()
        .set_addresses(1, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
    let mut before = listener(1, 1, Protocol::Udp, "0.0.0.0:53");
    before.now_ns = NOON + S;
    store.ended(&ended(before, End::Closed), owner(3), &Names::new());
    let mut now = listener(2, 1, Protocol::Udp, "0.0.0.0:53");
    now.start_ns = NOON + 2 * S;
    now.now_ns = NOON + 9 * S;
    store.observe(&now, owner(4));
    let at = |store: &SocketStore, second: u64| {
        let times = (NOON + second * S + S / 2, NOON + second * S + S / 2 + 1);
        joined_in(
            store,
            1,
            flow_in(17, "10.0.0.9:4000", "10.0.0.2:53", times),
            "10.0.0.9:4000",
        )
    };
    assert_eq!(at(&store, 0), [0, 3]);
    assert_eq!(at(&store, 2), [0, 4]);
    // Two that wait at the same time (SO_REUSEPORT) and have different owners: it may be either.
    let mut other = listener(5, 1, Protocol::Udp, "0.0.0.0:53");
    other.start_ns = NOON + 3 * S;
    other.now_ns = NOON + 9 * S;
    store.observe(&other, owner(6));
    assert_eq!(at(&store, 5), [0, 0]);
    assert_eq!(store.counts().ambiguous, 1);
    // What they share is named.
    store.share_ports(&mut |one, other| owner(10 * one.number().get() + other.number().get()));
    assert_eq!(at(&store, 5), [0, 346]);
    assert_eq!(store.counts().ambiguous, 2);
    // Who was alone at that time is known all the same.
    assert_eq!(at(&store, 0), [0, 3]);
}

#[test]
fn who_has_many_sockets_at_a_port_is_known_and_so_is_what_many_share() {
    let mut store = store(SocketStoreConfig::default());
    let netns = |owners: u32| 1 + owners;
    for owners in [1, 2] {
        for number in 0..200 {
            let id = u64::from(1000 * owners + number);
            let local = format!("10.0.0.2:{}", 53 * owners);
            let socket = listener(id, netns(owners), Protocol::Udp, &local);
            store.observe(&socket, owner(1 + number % owners));
        }
    }
    store.share_ports(&mut |one, other| if one == other { Some(one) } else { owner(9) });
    let asked = |owners: u32| {
        let local = format!("10.0.0.2:{}", 53 * owners);
        joined(&store, 17, netns(owners), "10.0.0.9:4000", &local)
    };
    assert_eq!(asked(1), [0, 1]);
    assert_eq!(store.counts().ambiguous, 0);
    assert_eq!(asked(2), [0, 9]);
    assert_eq!(store.counts().ambiguous, 1);
}

#[test]
fn udp_without_connect_is_known_by_its_port_and_the_addresses_of_its_namespace() {
    let mut store = store(SocketStoreConfig::default());
    let server = listener(1, 1, Protocol::Udp, "0.0.0.0:53");
    let mut client = listener(2, 2, Protocol::Udp, "[::]:40000");
    client.opener = Opener::Local;
    client.remote = Some(address("10.0.0.2:53"));
    snapshot(&mut store, &[(server, 3), (client, 4)]);
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
    snapshot(&mut store, &[(waits, 3), (old, 4)]);
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

/// A socket of a small world in which endpoints often meet, in seconds of a minute.
fn any_socket() -> impl Strategy<Value = (SocketUpdate, u32)> {
    let endpoint = || (0..3u8, 0..3u16).prop_map(|(a, p)| format!("10.0.0.{a}:{}", 80 + p));
    let life = (0..30u64, prop::option::of(0..10u64));
    (1..4u32, endpoint(), endpoint(), life, 1..4u32).prop_map(
        |(netns, local, remote, (start, length), number)| {
            let mut socket = tcp(0, netns, &local, &remote, Opener::Unknown);
            // Some began before the probe.
            socket.start_ns = if start == 0 { 0 } else { NOON + start * S };
            socket.now_ns = NOON + (start + length.unwrap_or(1)) * S;
            socket.end = length.map(|_| End::Closed);
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
        (first, length) in (0..40u64, 0..10u64),
    ) {
        let mut store = store(SocketStoreConfig::default());
        let mut list: Vec<(SocketUpdate, u32)> = Vec::new();
        for (id, (mut socket, number)) in sockets.into_iter().enumerate() {
            socket.id = id as u64;
            if socket.end.is_some() {
                store.ended(&socket, owner(number), &Names::new());
            } else {
                store.observe(&socket, owner(number));
            }
            list.push((socket, number));
        }
        let (one, other) = (
            format!("10.0.0.{}:{}", a.0, 80 + a.1),
            format!("10.0.0.{}:{}", b.0, 80 + b.1),
        );
        prop_assume!(one != other);
        let times = (NOON + first * S, NOON + (first + length) * S);
        let only = |all: &[&(SocketUpdate, u32)]| -> Option<u32> {
            let (first, others) = all.split_first()?;
            let alike = |s: &&(SocketUpdate, u32)| (s.0.netns, s.1) == (first.0.netns, first.1);
            Some(if others.iter().all(alike) { first.1 } else { 0 })
        };
        let expected = |local: &str, remote: &str| -> u32 {
            let fits: Vec<_> = list
                .iter()
                .filter(|(s, _)| s.local == address(local) && s.remote == Some(address(remote)))
                .filter(|(s, _)| s.start_ns <= times.1 && s.now_ns >= times.0)
                .collect();
            let here: Vec<_> = fits.iter().filter(|(s, _)| s.netns == netns).copied().collect();
            only(&here).or_else(|| only(&fits)).unwrap_or(0)
        };
        prop_assert_eq!(
            joined_in(&store, netns, flow_in(6, &one, &other, times), &one),
            [expected(&one, &other), expected(&other, &one)]
        );
    }
}
