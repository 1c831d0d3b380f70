//! Which events subscribers get, and what slow ones lose.

use crate::*;
use std::time::Duration;

fn add(graph: &mut Graph, id: &str) {
    graph
        .add_node(Node::new(id, "host", Map::default()), 1)
        .unwrap();
}

fn seq(delivery: Option<Delivery>) -> u64 {
    match delivery {
        Some(Delivery::Event(event)) => event.seq,
        other => panic!("{other:?} is no event"),
    }
}

#[test]
fn a_slow_subscriber_is_told_what_it_lost_and_where() {
    let mut graph = Graph::new(Config::default());
    let (slow, fast) = (graph.subscribe(2), graph.subscribe(100));
    for id in ["a", "b", "c", "d"] {
        add(&mut graph, id);
    }
    assert_eq!(seq(slow.try_next()), 1);
    // There is room again, but the gap comes first.
    add(&mut graph, "e");
    assert_eq!(seq(slow.try_next()), 2);
    assert_eq!(slow.try_next(), Some(Delivery::Lost(3)));
    assert_eq!(slow.try_next(), None);
    add(&mut graph, "f");
    assert_eq!(seq(slow.try_next()), 6);
    let all: Vec<u64> = (0..6).map(|_| seq(fast.try_next())).collect();
    assert_eq!(all, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn waiting_ends_with_an_event_or_the_graph() {
    let shared = SharedGraph::new(Config::default());
    let subscription = shared.write().subscribe(10);
    let writer = shared.clone();
    let thread = std::thread::spawn(move || add(&mut writer.write(), "a"));
    assert_eq!(seq(subscription.next(Duration::from_secs(60))), 1);
    thread.join().unwrap();
    assert_eq!(subscription.next(Duration::ZERO), None);
    assert!(!subscription.is_closed());
    drop(shared);
    assert_eq!(subscription.next(Duration::from_secs(60)), None);
    assert!(subscription.is_closed());
}

#[test]
fn who_is_gone_is_forgotten() {
    let mut graph = Graph::new(Config::default());
    drop(graph.subscribe(1));
    assert_eq!(graph.stats().subscribers, 0);
    add(&mut graph, "a");
    assert_eq!(graph.stats().last_event, 1);
}
