//! Damaged files: correct parts are read, all others counted.

use super::*;
use crate::log::frame::{Frame, Kind};
use skua_topology::{Config, Graph, Map, Node, SharedGraph};
use std::{fs, path::PathBuf};

fn files(dir: &Path, log: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join(log)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// What happens to a file, at a part of 65,536 of its length.
#[derive(Clone, Debug)]
enum Harm {
    Flip(u16, u8),
    Zero(u16, usize),
    Cut(u16),
    Insert(u16, Vec<u8>),
    /// Repeats a part of it.
    Repeat(u16, usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        4 => (any::<u16>(), 1..=u8::MAX).prop_map(|(at, bits)| Harm::Flip(at, bits)),
        2 => (any::<u16>(), 1..5_000usize).prop_map(|(at, len)| Harm::Zero(at, len)),
        1 => any::<u16>().prop_map(Harm::Cut),
        1 => (any::<u16>(), prop::collection::vec(any::<u8>(), 1..100))
            .prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
        1 => (any::<u16>(), 1..5_000usize).prop_map(|(at, len)| Harm::Repeat(at, len)),
    ]
}

fn apply(bytes: &mut Vec<u8>, harm: &Harm) {
    let place = |at: u16, bytes: &[u8]| bytes.len() * usize::from(at) / 65_536;
    match harm {
        Harm::Flip(at, bits) => {
            let at = place(*at, bytes);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bits;
            }
        }
        Harm::Zero(at, len) => {
            let at = place(*at, bytes);
            let end = bytes.len().min(at + len);
            bytes[at..end].fill(0);
        }
        Harm::Cut(at) => bytes.truncate(place(*at, bytes)),
        Harm::Insert(at, more) => {
            let at = place(*at, bytes);
            bytes.splice(at..at, more.iter().copied());
        }
        Harm::Repeat(at, len) => {
            let at = place(*at, bytes);
            let end = bytes.len().min(at + len);
            let again = bytes[at..end].to_vec();
            bytes.splice(end..end, again);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn damaged_flows_are_left_out_and_never_wrong(
        drains in prop::collection::vec(prop::collection::vec(step(), 1..14), 5..40),
        harms in prop::collection::vec((any::<u8>(), harm()), 1..6),
    ) {
        let dir = memory_dir();
        let config = bounded(1 << 20);
        let (mut traffic, mut all) = (Traffic::new(), Vec::new());
        for part in drains.chunks(10) {
            // Several files.
            let store = open(dir.path(), config.clone());
            for steps in part {
                let rows = traffic.drain(10, steps);
                append(&store, &rows);
                all.extend(rows);
            }
        }
        let files = files(dir.path(), "flows");
        for (file, harm) in &harms {
            let path = &files[usize::from(*file) % files.len()];
            let mut bytes = fs::read(path).unwrap();
            apply(&mut bytes, harm);
            fs::write(path, bytes).unwrap();
        }
        let store = open(dir.path(), config);
        let mut found = 0;
        let mut ids: Vec<_> = all.iter().map(|row| row.stored().identity()).collect();
        ids.sort_by_key(|id| (id.id, id.capture.clone(), id.first_ns, u64::MAX - id.last_ns));
        ids.dedup_by_key(|id| (id.id, id.first_ns));
        for id in ids {
            store.flows().changes(&id, 0, u64::MAX, &mut |change| {
                found += 1;
                assert!(all.iter().any(|row| row.stored() == *change), "invented: {change:?}");
                ControlFlow::Continue(())
            });
        }
        store.flows().scan(0, u64::MAX, FlowLookup::All, &mut |flow| {
            assert!(all.iter().any(|row| row.stored() == *flow), "invented: {flow:?}");
            ControlFlow::Continue(())
        });
        let stats = store.stats().flows;
        prop_assert!(found <= all.len());
        // A file truncated to nothing counts as one position, without its number of records.
        let damage = stats.damage;
        let said = damage.places + damage.bytes + damage.records + stats.torn_bytes;
        prop_assert!(found == all.len() || said > 0, "{} of {}: {:?}", found, all.len(), stats);
        prop_assert!(found as u64 + stats.damage.records <= all.len() as u64, "{:?}", stats);
        // New rows are stored as before.
        let rows = traffic.drain(10, &[plain_step(3)]);
        append(&store, &rows);
        let mut last = 0;
        store.flows().changes(&rows[0].stored().identity(), rows[0].record.last_ns, u64::MAX, &mut |_| {
            last += 1;
            ControlFlow::Continue(())
        });
        prop_assert_eq!(last, 1);
    }

    #[test]
    fn a_damaged_graph_is_what_it_was_at_some_time(
        harms in prop::collection::vec((any::<u8>(), harm()), 1..5),
    ) {
        let dir = memory_dir();
        let config = bounded(4 << 20);
        let mut states = vec![Vec::new()];
        let mut now = 1_000_000;
        for run in 0..3 {
            let store = open(dir.path(), config.clone());
            let mut graph = Graph::new(Config::default());
            store.load_graph(&mut graph).unwrap();
            let graph = SharedGraph::from(graph);
            let journal = crate::GraphJournal::start(&store, &graph).unwrap();
            for number in 0..40 {
                now += 1_000;
                let id = format!("{}", number % 7);
                let map = Map::from([("Number", (run * 100 + number).into())]);
                let mut graph = graph.write();
                if graph.update_node(&id, map.clone(), now).is_err() {
                    graph.add_node(Node::new(&id, "host", map), now).unwrap();
                }
                states.push(state(&graph));
                drop(graph);
                if number % 5 == 0 {
                    prop_assert!(journal.flush(PATIENCE));
                }
            }
            prop_assert!(journal.flush(PATIENCE));
        }
        let files = files(dir.path(), "graph");
        for (file, harm) in &harms {
            let path = &files[usize::from(*file) % files.len()];
            let mut bytes = fs::read(path).unwrap();
            apply(&mut bytes, harm);
            fs::write(path, bytes).unwrap();
        }
        let store = open(dir.path(), config);
        let mut graph = Graph::new(Config::default());
        let restored = store.load_graph(&mut graph).unwrap();
        prop_assert!(states.contains(&state(&graph)), "never was: {:?}", state(&graph));
        let stats = store.stats().graph;
        let said = stats.damage.bytes + stats.damage.records + stats.torn_bytes;
        prop_assert!(restored.events == 120 || said > 0, "{:?} {:?}", restored, stats);
    }

    #[test]
    fn any_payload_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::check::payload(&bytes);
    }
}

fn state(graph: &Graph) -> Vec<(String, Map)> {
    let nodes = graph.export().nodes;
    let mut state: Vec<_> = nodes
        .iter()
        .map(|node| (node.id.to_string(), node.metadata.clone()))
        .collect();
    state.sort_by(|a, b| a.0.cmp(&b.0));
    state
}

/// A process may have a frame's bytes in its name; they must not be read as a frame.
#[test]
fn bytes_inside_a_frame_that_look_like_one_are_not_read_as_one() {
    let dir = memory_dir();
    let mut traffic = Traffic::new();
    let store = open(dir.path(), StoreConfig::default());
    let mut rows = traffic.drain(10, &[plain_step(1)]);
    append(&store, &rows);
    drop(store);
    // A complete frame of this store, as someone with read access would copy it.
    let file = files(dir.path(), "flows").remove(0);
    let bytes = fs::read(&file).unwrap();
    let mut again = bytes[32..].to_vec();
    let store = open(dir.path(), StoreConfig::default());
    let mut forged = Frame::new(Kind::Flows, 1, (0, i64::MAX), &again).unwrap();
    again.extend_from_slice(forged.finish(0, 0, 0));
    rows[0].parties[0].0 = again.iter().map(|byte| char::from(*byte)).collect();
    append(&store, &rows);
    drop(store);
    // The header of the frame around it is damaged.
    let file = files(dir.path(), "flows").remove(1);
    let mut bytes = fs::read(&file).unwrap();
    bytes[40] ^= 1;
    // The bytes themselves, instead of their packed form.
    bytes.splice(100..100, again);
    fs::write(&file, bytes).unwrap();
    let store = open(dir.path(), StoreConfig::default());
    assert_eq!(all_flows(&store), 1);
}

#[test]
fn a_damaged_head_costs_nothing_else() {
    let dir = memory_dir();
    let mut traffic = Traffic::new();
    for _ in 0..2 {
        let store = open(dir.path(), StoreConfig::default());
        append(&store, &traffic.drain(10, &[plain_step(1), plain_step(2)]));
    }
    for at in 0..32 {
        let file = files(dir.path(), "flows").remove(0);
        let whole = fs::read(&file).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x81;
        fs::write(&file, bytes).unwrap();
        let store = open(dir.path(), StoreConfig::default());
        let stats = store.stats().flows;
        assert_eq!(stats.records, 4, "byte {at}");
        assert_eq!((stats.damage.bytes, stats.damage.records), (32, 0));
        drop(store);
        fs::write(&file, whole).unwrap();
    }
}
