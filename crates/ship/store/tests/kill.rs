//! A process that writes is killed again and again; what it said is written is there.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PATIENCE, append, graph, number, numbers, set_number};
use skua_store::{GraphJournal, Store, StoreConfig};
use skua_topology::Change;
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

/// Directory for the process that is to be killed.
const CHILD: &str = "SKUA_STORE_TEST_CHILD";
const KILLS: u64 = 40;
/// Flows in a drain.
const DRAIN: u64 = 50;

fn config() -> StoreConfig {
    StoreConfig {
        gather: Duration::from_millis(1),
        ..StoreConfig::default()
    }
}

/// What the killed process does; without its directory (as with `--include-ignored`) it writes a little.
#[test]
#[ignore = "is run by the other test, as a process of its own"]
fn writes_until_it_is_killed() {
    let forever = std::env::var_os(CHILD);
    let own = tempfile::tempdir().unwrap();
    let dir = forever.clone().map_or(own.path().to_owned(), PathBuf::from);
    let store = Store::open(&dir, config()).unwrap();
    let mut next = numbers(&store).first().map_or(0, |last| last + 1);
    let graph = graph(&store);
    let mut state = number(&graph);
    let journal = GraphJournal::start(&store, &graph).unwrap();
    let mut round = 0;
    while forever.is_some() || round < 10 {
        round += 1;
        append(&store, next..next + DRAIN);
        next += DRAIN;
        for _ in 0..10 {
            state += 1;
            set_number(&graph, state);
        }
        assert!(store.flows().flush(PATIENCE) && journal.flush(PATIENCE));
        println!("written {next} {state}");
        std::io::stdout().flush().unwrap();
    }
}

/// Runs it, kills it some time after its start, or with `writing` after it has written something, and
/// returns the last that it said.
fn run_and_kill(dir: &Path, writing: bool, wait: Duration) -> Option<(u64, i64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "writes_until_it_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (begun, began) = mpsc::channel();
    let said = std::thread::spawn(move || {
        let mut last = None;
        for line in lines.map_while(Result::ok) {
            let Some((_, rest)) = line.split_once("written ") else {
                continue;
            };
            // The last line may be cut off.
            let words = rest.split_once(' ');
            let both = words.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            last = both.or(last);
            let _ = begun.send(());
        }
        last
    });
    if writing {
        began.recv().unwrap();
    }
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap();
    said.join().unwrap()
}

#[test]
fn everything_acknowledged_survives_being_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut flows, mut state, mut torn) = (0, 0, 0);
    for kill in 0..KILLS {
        let writing = kill % 4 != 0;
        let wait = Duration::from_micros(kill * 3_571 % 40_000);
        let said = run_and_kill(dir.path(), writing, wait);
        assert!(said.is_some() || !writing);
        (flows, state) = said.unwrap_or((flows, state));
        let store = Store::open(dir.path(), config()).unwrap();
        let found = numbers(&store);
        assert!(
            found.len() as u64 >= flows,
            "{} of {flows} after kill {kill}",
            found.len()
        );
        let all = (0..found.len() as u64).rev();
        assert!(
            all.eq(found.iter().copied()),
            "not in order after kill {kill}"
        );
        let graph = graph(&store);
        let last = number(&graph);
        assert!(last >= state, "{last} of {state} after kill {kill}");
        // Each change from the first on is in the history.
        let graph = graph.read();
        let events = graph.events_since(graph.stats().last_event - graph.stats().events as u64);
        let seen: Vec<_> = events
            .unwrap()
            .filter_map(|event| match event.change {
                Change::NodeAdded(node) | Change::NodeUpdated(node) => {
                    node.metadata.get("Number")?.as_int()
                }
                _ => None,
            })
            .collect();
        assert!(
            (1..=last).eq(seen),
            "changes of the graph are missing after kill {kill}"
        );
        let stats = store.stats();
        assert_eq!(stats.flows.damage, Default::default());
        assert_eq!(stats.graph.damage, Default::default());
        torn += stats.flows.torn_bytes + stats.graph.torn_bytes;
    }
    println!("{flows} flows, {state} changes of the graph, {torn} torn bytes");
}
