//! The history of flows beside a list of all that was ever appended.

use super::*;
use std::{collections::BTreeMap, net::IpAddr};

#[derive(Clone, Debug)]
enum Op {
    Drain(u64, Vec<Step>),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (1..20u64, prop::collection::vec(step(), 0..14))
            .prop_map(|(seconds, steps)| Op::Drain(seconds, steps)),
        1 => Just(Op::Restart),
    ]
}

/// A query.
#[derive(Clone, Debug)]
enum Query {
    All,
    Node(&'static str),
    Address(&'static str),
    Port(u16),
}

impl Query {
    fn has(&self, row: &Row) -> bool {
        let key = &row.record.key;
        match self {
            Self::All => true,
            Self::Node(tid) => row.texts[2] == *tid,
            Self::Address(ip) => {
                let ip: IpAddr = ip.parse().unwrap();
                key.ip(&key.lo) == Some(ip) || key.ip(&key.hi) == Some(ip)
            }
            Self::Port(port) => key.lo_port == port.to_be_bytes(),
        }
    }
}

/// What a flow must be shown as.
#[derive(Debug)]
struct Expected<'a> {
    row: &'a Row,
    counters: [Counters; 2],
    last_ns: u64,
    ahead: bool,
    cut: bool,
}

fn later(row: &Row, to: u64) -> bool {
    row.record.last_ns > to && row.record.updated_ns > to
}

/// `all` rows appended, the first `gone` of which were deleted.
fn expected<'a>(all: &'a [Row], gone: usize, from: u64, to: u64) -> Vec<Expected<'a>> {
    let mut flows: BTreeMap<(FlowKey, usize), Vec<(bool, &Row)>> = BTreeMap::new();
    for (at, row) in all.iter().enumerate() {
        let key = (row.record.key, row.instance);
        flows.entry(key).or_default().push((at >= gone, row));
    }
    let mut expected = Vec::new();
    for rows in flows.values() {
        let touched = rows
            .iter()
            .rfind(|(kept, row)| *kept && row.since_ns <= to && row.record.last_ns >= from);
        let Some((_, row)) = touched else {
            continue;
        };
        // Sum of all deltas from the start.
        let mut counters = [Counters::default(); 2];
        for (_, row) in rows {
            if !later(row, to) {
                counters[0] += row.added[0];
                counters[1] += row.added[1];
            }
        }
        let nothing = counters.iter().all(Counters::is_zero);
        let cut = later(row, to);
        expected.push(match (cut, nothing) {
            (true, true) => Expected {
                row,
                counters: [row.record.lo_sent, row.record.hi_sent],
                last_ns: row.record.last_ns,
                ahead: true,
                cut: false,
            },
            (true, false) => Expected {
                row,
                counters,
                last_ns: row.since_ns,
                ahead: false,
                cut: true,
            },
            (false, _) => Expected {
                row,
                // Later changes may have no packets.
                counters: [row.record.lo_sent, row.record.hi_sent],
                last_ns: row.record.last_ns,
                ahead: false,
                cut: false,
            },
        });
    }
    expected
}

fn check(store: &Store, all: &[Row], gone: usize, from: u64, to: u64, wanted: &Query) {
    let expected = expected(all, gone, from, to);
    let mut expected: Vec<_> = expected.iter().filter(|e| wanted.has(e.row)).collect();
    let port =
        |key: &FlowKey| matches!(wanted, Query::Port(port) if key.lo_port == port.to_be_bytes());
    let lookup = match wanted {
        Query::All => FlowLookup::All,
        Query::Node(tid) => FlowLookup::Node(tid),
        Query::Address(ip) => FlowLookup::Address(ip.parse().unwrap()),
        Query::Port(_) => FlowLookup::Key(&port),
    };
    store.flows().scan(from, to, lookup, &mut |flow| {
        let record = &flow.record;
        let at = expected.iter().position(|e| {
            e.row.record.key == record.key && e.row.record.first_ns == record.first_ns
        });
        let at = at.unwrap_or_else(|| panic!("not expected, or twice: {flow:?}"));
        let e = expected.remove(at);
        assert_eq!([record.lo_sent, record.hi_sent], e.counters);
        assert_eq!((record.last_ns, flow.ahead), (e.last_ns, e.ahead));
        if !e.cut {
            let stored = StoredFlow {
                ahead: e.ahead,
                ..e.row.stored()
            };
            assert_eq!(*flow, stored);
        }
        ControlFlow::Continue(())
    });
    assert!(expected.is_empty(), "not found: {expected:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn any_drains_restarts_and_limits_answer_like_a_list(
        ops in prop::collection::vec(op(), 1..40),
        small in any::<bool>(),
        questions in prop::collection::vec((0..400u64, 0..60u64, 0..6usize), 1..8),
    ) {
        let dir = memory_dir();
        let config = bounded(if small { 64 << 10 } else { 16 << 20 });
        let mut store = Some(open(dir.path(), config.clone()));
        let (mut traffic, mut all, mut gone) = (Traffic::new(), Vec::new(), 0);
        for op in ops {
            match op {
                Op::Drain(seconds, steps) => {
                    let rows = traffic.drain(seconds, &steps);
                    append(store.as_ref().unwrap(), &rows);
                    all.extend(rows);
                }
                Op::Restart => {
                    gone += store.as_ref().unwrap().stats().flows.expired;
                    drop(store.take());
                    store = Some(open(dir.path(), config.clone()));
                }
            }
        }
        let store = store.unwrap();
        let stats = store.stats().flows;
        gone += stats.expired;
        prop_assert_eq!(stats.lost.total(), 0);
        prop_assert_eq!(stats.damage, crate::Damage::default());
        for (from, length, wanted) in questions {
            let wanted = [
                Query::All,
                Query::Node("tid-1"),
                Query::Node("nowhere"),
                Query::Address("10.0.0.3"),
                Query::Address("2001::4"),
                Query::Port(40_003),
            ][wanted].clone();
            // Moments, spans, and the whole time.
            for (from, to) in [(from, from), (from, from + length), (0, 1_000_000)] {
                let (from, to) = (BEGIN + from * SECOND, BEGIN + to * SECOND);
                check(&store, &all, gone as usize, from, to, &wanted);
            }
        }
        for row in all.iter().rev().take(5) {
            let (from, to) = (row.record.first_ns, row.record.last_ns);
            let mut expected = all.iter().skip(gone as usize).filter(|other| {
                other.record.key == row.record.key
                    && other.instance == row.instance
                    && other.since_ns <= to
                    && other.record.last_ns >= from
            });
            store.flows().changes(&row.stored().identity(), from, to, &mut |change| {
                assert_eq!(Some(*change), expected.next().map(Row::stored));
                ControlFlow::Continue(())
            });
            prop_assert_eq!(expected.next(), None);
        }
    }
}

#[test]
fn slices_of_a_flow_add_up_to_its_counters() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    let mut traffic = Traffic::new();
    let mut last = None;
    for _ in 0..30 {
        let rows = traffic.drain(10, &[plain_step(1), plain_step(2)]);
        append(&store, &rows);
        last = rows.into_iter().next();
    }
    let last = last.unwrap();
    let mut sum = [Counters::default(); 2];
    let mut until = last.record.first_ns;
    store
        .flows()
        .changes(&last.stored().identity(), 0, u64::MAX, &mut |change| {
            sum[0] += change.added[0];
            sum[1] += change.added[1];
            assert_eq!(change.since_ns, until, "spans follow one another");
            until = change.record.last_ns;
            ControlFlow::Continue(())
        });
    assert_eq!(sum, [last.record.lo_sent, last.record.hi_sent]);
    assert_eq!(until, last.record.last_ns);
}

#[test]
fn a_quiet_flow_is_found_at_any_moment_between_its_packets() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    let mut traffic = Traffic::new();
    let first = traffic.drain(10, &[plain_step(1)]);
    append(&store, &first);
    for _ in 0..100 {
        append(&store, &traffic.drain(10, &[plain_step(2)]));
    }
    append(&store, &traffic.drain(10, &[plain_step(1)]));
    let moment = BEGIN + 500 * SECOND;
    let mut found = Vec::new();
    store
        .flows()
        .scan(moment, moment, FlowLookup::All, &mut |flow| {
            found.push((flow.record.key, flow.record.total().packets));
            ControlFlow::Continue(())
        });
    found.sort();
    let quiet = first[0].record;
    let quiet = (quiet.key, quiet.total().packets);
    assert!(found.contains(&quiet), "{found:?} without {quiet:?}");
    assert_eq!(found.len(), 2);
}

#[test]
fn a_batch_that_is_used_again_gives_flows_the_same_identity() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    let mut traffic = Traffic::new();
    let mut batch = FlowBatch::new();
    for _ in 0..5 {
        for row in traffic.drain(10, &[plain_step(1), plain_step(2)]) {
            batch.push(&row.change());
        }
        store.flows().append(&mut batch);
        assert!(store.flows().flush(PATIENCE));
    }
    assert_eq!(all_flows(&store), 2);
}

#[test]
fn a_visitor_stops_when_it_wants() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    let steps: Vec<_> = (0..10).map(plain_step).collect();
    append(&store, &Traffic::new().drain(10, &steps));
    let mut seen = 0;
    store.flows().scan(0, u64::MAX, FlowLookup::All, &mut |_| {
        seen += 1;
        if seen == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(seen, 3);
    assert_eq!(all_flows(&store), 10);
}

#[test]
fn flows_that_do_not_fit_into_the_queue_are_counted() {
    let dir = memory_dir();
    let config = StoreConfig {
        flow_queue_bytes: 10,
        ..StoreConfig::default()
    };
    let store = open(dir.path(), config);
    let steps: Vec<_> = (0..10).map(plain_step).collect();
    append(&store, &Traffic::new().drain(10, &steps));
    assert_eq!(store.stats().flows.lost.queue, 10);
    assert_eq!(all_flows(&store), 0);
}
