//! Open and ended sockets.

use proptest::prelude::*;

use super::*;

fn history(sockets: usize) -> SocketStoreConfig {
    SocketStoreConfig {
        history: sockets * size_of::<crate::SocketRecord>(),
        ..SocketStoreConfig::default()
    }
}

#[test]
fn a_socket_that_two_looks_miss_has_vanished() {
    let mut store = store(SocketStoreConfig::default());
    let socket = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    snapshot(&mut store, &[(socket, 3)]);
    snapshot(&mut store, &[]);
    assert_eq!(store.open().count(), 1, "its end may be told yet");
    snapshot(&mut store, &[]);
    assert_eq!(store.open().count(), 0);
    let record = store.closed().next().unwrap();
    assert_eq!(record.end, Some(End::Vanished));
    assert_eq!(record.tcp, socket.tcp, "the numbers of the last poll");
    let counts = store.counts();
    assert_eq!((counts.seen, counts.ended, counts.vanished), (1, 1, 1));
}

#[test]
fn in_aggregate_mode_what_is_gone_is_in_a_pair() {
    let mut store = store(SocketStoreConfig {
        aggregate: true,
        ..SocketStoreConfig::default()
    });
    let socket = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    snapshot(&mut store, &[(socket, 3)]);
    snapshot(&mut store, &[]);
    snapshot(&mut store, &[]);
    let counts = store.counts();
    assert_eq!((counts.vanished, store.closed().count()), (0, 0));
}

#[test]
fn what_is_known_better_stays() {
    let mut store = store(SocketStoreConfig::default());
    let mut socket = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    socket.task_rule = TaskRule::Connect;
    snapshot(&mut store, &[(socket, 3)]);
    // At the end the local port is cleared, only the closer is known, and the opener is not.
    let mut end = ended(socket, End::ResetRemote);
    end.task_rule = TaskRule::Close;
    end.local = address("0.0.0.0:0");
    end.opener = Opener::Unknown;
    end.start_ns = 0;
    store.ended(&end, owner(5), &Names::new());
    let record = store.closed().next().unwrap();
    assert_eq!(
        (record.owner, record.owner_by),
        (owner(3), TaskRule::Connect)
    );
    assert_eq!(record.local, socket.local);
    assert_eq!((record.opener, record.start_ns), (Opener::Local, NOON));
    assert_eq!(record.end, Some(End::ResetRemote));
    // A better rule wins: the worker accepted what the listener's maker was held for.
    let mut accepted = tcp(2, 1, "10.0.0.2:80", "10.0.0.9:40001", Opener::Remote);
    accepted.task_rule = TaskRule::Listener;
    snapshot(&mut store, &[(accepted, 6)]);
    accepted.task_rule = TaskRule::Accept;
    snapshot(&mut store, &[(accepted, 7)]);
    assert_eq!(store.open().next().unwrap().owner, owner(7));
}

#[test]
fn what_was_found_is_there_until_it_goes_and_nothing_else_ever_is() {
    let mut store = store(history(3));
    let connection = |id: u64| {
        let local = format!("10.0.0.9:{}", 40_000 + id);
        tcp(id, 1, &local, "10.0.0.2:80", Opener::Local)
    };
    let mut found = std::collections::HashMap::new();
    for id in 0..10 {
        let open = connection(100 + id);
        snapshot(&mut store, &[(open, 3)]);
        store.ended(&ended(connection(id), End::Closed), None, &Names::new());
        let all = store.places(true).into_iter();
        let all: Vec<_> = all.map(|p| (p, store.at(p).map_or(0, |r| r.id))).collect();
        assert_eq!(all.len(), store.open().count() + store.closed().count());
        for (place, id) in all {
            assert_eq!(store.at(place).unwrap().id, id);
            assert_eq!(*found.entry(place).or_insert(id), id);
        }
        for (place, id) in &found {
            assert!(store.at(*place).is_none_or(|record| record.id == *id));
        }
    }
    assert!(found.keys().any(|place| store.at(*place).is_none()));
}

#[test]
fn history_and_open_sockets_are_bounded() {
    let mut store = store(SocketStoreConfig {
        max_sockets: 2,
        ..history(3)
    });
    for id in 0..10 {
        let local = format!("10.0.0.9:{}", 40_000 + id);
        let socket = tcp(id, 1, &local, "10.0.0.2:80", Opener::Local);
        store.ended(&ended(socket, End::Closed), None, &Names::new());
    }
    let kept: Vec<u64> = store.closed().map(|r| r.id).collect();
    assert_eq!(kept, [7, 8, 9]);
    assert_eq!(store.counts().evicted, 7);
    let sockets: Vec<_> = (20..25)
        .map(|id| {
            let local = format!("10.0.0.9:{}", 40_000 + id);
            (tcp(id, 1, &local, "10.0.0.2:80", Opener::Local), 1)
        })
        .collect();
    snapshot(&mut store, &sockets);
    assert_eq!((store.open().count(), store.counts().not_kept), (2, 3));
    assert!(store.counts().not_joined > 0, "the index is bounded, too");
}

#[test]
fn without_history_nothing_that_ended_is_kept() {
    let mut store = store(history(0));
    let socket = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    store.ended(&ended(socket, End::Closed), None, &Names::new());
    assert_eq!(store.closed().count(), 0);
    assert_eq!(store.counts().ended, 1);
}

#[test]
fn only_what_changed_counts_as_changed() {
    let mut store = store(SocketStoreConfig::default());
    let mut socket = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    snapshot(&mut store, &[(socket, 3)]);
    store.begin_drain(NOON + 2 * S);
    socket.now_ns = NOON + 2 * S;
    snapshot(&mut store, &[(socket, 3)]);
    let record = store.open().next().unwrap();
    assert_eq!((record.updated_ns, record.now_ns), (NOON + S, NOON + 2 * S));
    store.begin_drain(NOON + 3 * S);
    socket.tcp.as_mut().unwrap().bytes_sent += 1;
    snapshot(&mut store, &[(socket, 3)]);
    assert_eq!(store.open().next().unwrap().updated_ns, NOON + 3 * S);
}

/// What happens to a socket at a drain: (id, 0 seen, 1 ended, 2 nothing).
fn happenings() -> impl Strategy<Value = Vec<Vec<(u64, u8)>>> {
    prop::collection::vec(prop::collection::vec((0..8u64, 0..3u8), 0..12), 0..12)
}

proptest! {
    /// Every socket that was met is open, or ended exactly once; dependencies hold each once.
    #[test]
    fn no_socket_is_lost_or_counted_twice(drains in happenings()) {
        let names = Names::new();
        let mut store = store(SocketStoreConfig::default());
        // Ids are never used again: those that ended come back as new ones.
        let mut lives = [0u64; 8];
        for (drain, happenings) in drains.iter().enumerate() {
            store.begin_drain(NOON + (drain as u64 + 2) * S);
            let make = |lives: &[u64; 8], id: u64| {
                let unique = id + 8 * lives[id as usize];
                let local = format!("10.0.0.9:{}", 10_000 + unique);
                tcp(unique, 1, &local, "10.0.0.2:80", Opener::Local)
            };
            for (id, what) in happenings {
                if *what == 1 {
                    store.ended(&ended(make(&lives, *id), End::Closed), owner(1), &names);
                    lives[*id as usize] += 1;
                }
            }
            store.begin_poll();
            for (id, what) in happenings {
                if *what == 0 {
                    store.observe(&make(&lives, *id), owner(1));
                }
            }
            store.end_poll(&names);
            // What vanished is not seen again: a new life.
            let vanished: Vec<u64> = store
                .closed()
                .filter(|r| r.end == Some(End::Vanished))
                .map(|r| r.id)
                .collect();
            for id in vanished {
                if lives[(id % 8) as usize] == id / 8 {
                    lives[(id % 8) as usize] += 1;
                }
            }
        }
        let counts = store.counts();
        let open = store.open().count() as u64;
        prop_assert_eq!(counts.seen, counts.ended + open);
        prop_assert_eq!(counts.ended, store.closed().count() as u64);
        let sums: Vec<_> = store.dependencies(&names).into_values().collect();
        let connections: u64 = sums.iter().map(|s| s.connections).sum();
        prop_assert_eq!(connections, counts.seen);
        prop_assert_eq!(sums.iter().map(|s| s.open).sum::<u64>(), open);
        prop_assert_eq!(sums.iter().map(|s| s.to_server).sum::<u64>(), 100 * counts.seen);
    }
}
