//! Both ends without a network between them.

use std::{num::NonZeroU32, ops::ControlFlow, sync::Arc, time::Duration};

use proptest::prelude::*;
use skua_control::elements::ORIGIN;
use skua_sources::Wanted;
use skua_topology::{Change, Config, Edge, Export, Map, Node, Patch, SharedGraph, Value};
use uuid::Uuid;

use crate::{
    analyzer::{Fleet, FleetSettings, session::Session},
    protocol::{
        Flows, FromAgent, Incoming, MESSAGE, PROTOCOL, Party, TEXT, is_sound, read_flows, read_text,
    },
};

fn fleet(graph: &SharedGraph, patience: Duration) -> Fleet {
    let settings = FleetSettings {
        host: "center".into(),
        memory: 1 << 20,
        patience,
        signer: None,
    };
    Fleet::new(graph.clone(), settings).unwrap()
}

fn hello(host: &str, instance: Uuid) -> FromAgent {
    FromAgent::Hello {
        protocol: PROTOCOL,
        version: "1".into(),
        host: host.into(),
        instance,
        challenge: Uuid::nil(),
    }
}

fn connect(fleet: &Fleet, host: &str) -> Session {
    fleet.connect(hello(host, Uuid::new_v4())).unwrap().0
}

fn node(id: &str, host: &str, mtu: i64) -> Node {
    Node::new(id, host, Map::from([("MTU", Value::Int(mtu))]))
}

/// As messages are sent.
fn over(message: &FromAgent) -> FromAgent {
    let text = serde_json::to_string(message).unwrap();
    match read_text(&text).unwrap() {
        Incoming::Message(message) => message,
        _ => panic!("{text}"),
    }
}

fn sync(session: &mut Session, graph: Export) -> anyhow::Result<()> {
    session.apply(over(&FromAgent::Sync { graph, last: true }))
}

fn whole(nodes: &[Node]) -> Export {
    Export {
        nodes: nodes.iter().cloned().map(Arc::new).collect(),
        edges: Vec::new(),
    }
}

fn shape(graph: &SharedGraph) -> Vec<String> {
    let export = graph.read().export();
    let nodes = export.nodes.iter();
    let mut all: Vec<_> = nodes
        .map(|n| format!("{} {:?}", n.id, n.metadata))
        .collect();
    let edges = export.edges.iter();
    all.extend(edges.map(|e| format!("{} {} {}", e.element.id, e.parent, e.child)));
    all.sort();
    all
}

#[test]
fn telling_the_same_again_changes_nothing() {
    let graph = SharedGraph::new(Config::default());
    let fleet = fleet(&graph, Duration::from_secs(60));
    let all = whole(&[node("a", "x", 1), node("b", "x", 2)]);
    sync(&mut connect(&fleet, "x"), all.clone()).unwrap();
    let before = graph.read().last_event();
    sync(&mut connect(&fleet, "x"), all).unwrap();
    assert_eq!(graph.read().last_event(), before);
    sync(&mut connect(&fleet, "x"), whole(&[node("a", "x", 3)])).unwrap();
    assert_eq!(graph.read().last_event(), before + 2);
}

#[test]
fn what_others_write_to_nodes_of_an_agent_stays() {
    let graph = SharedGraph::new(Config::default());
    let fleet = fleet(&graph, Duration::from_secs(60));
    let mut session = connect(&fleet, "x");
    let with_speed = |mtu| {
        let mut node = node("a", "x", mtu);
        node.metadata = node.metadata.with("Speed", Value::Int(10));
        node
    };
    sync(&mut session, whole(&[with_speed(1)])).unwrap();
    for key in ["Captures", "Room"] {
        let patch = Patch::Set(key.into(), Value::from("kept"));
        graph.write().patch_node("a", &[patch], 1).unwrap();
    }
    let update = Change::NodeUpdated(Arc::new(node("a", "x", 2)));
    session
        .apply(over(&FromAgent::Changes(vec![update])))
        .unwrap();
    let now = graph.read().current_node("a").unwrap();
    let has = |key: &str| now.metadata.get(key).cloned();
    assert_eq!(has("MTU"), Some(Value::Int(2)));
    assert_eq!(has("Speed"), None);
    assert_eq!(has("Captures"), Some(Value::from("kept")));
    assert_eq!(has("Room"), Some(Value::from("kept")));
}

#[test]
fn an_agent_touches_only_what_is_its_own() {
    let graph = SharedGraph::new(Config::default());
    graph
        .write()
        .add_node(node("mine", "center", 1), 1)
        .unwrap();
    let mut users = node("users", "x", 1);
    users.origin = ORIGIN.into();
    graph.write().add_node(users.clone(), 1).unwrap();
    let before = shape(&graph);
    let fleet = fleet(&graph, Duration::from_secs(60));
    let deleted =
        |node: &Node| FromAgent::Changes(vec![Change::NodeDeleted(Arc::new(node.clone()))]);
    let joined = Edge::new("e", "mine", "mine", "x", Map::default());
    let joined = FromAgent::Changes(vec![Change::EdgeAdded(Arc::new(joined))]);
    let mut foreign = users.clone();
    foreign.origin = "other".into();
    for message in [
        deleted(&node("mine", "center", 1)),
        deleted(&node("mine", "x", 1)),
        deleted(&users),
        deleted(&foreign),
        joined,
    ] {
        let mut session = connect(&fleet, "x");
        sync(&mut session, Export::default()).unwrap();
        assert!(session.apply(over(&message)).is_err(), "{message:?}");
        assert_eq!(shape(&graph), before);
    }
    let mut session = connect(&fleet, "x");
    assert!(sync(&mut session, whole(&[node("mine", "x", 2)])).is_err());
    assert_eq!(shape(&graph), before);
}

#[test]
fn of_two_agents_with_one_name_the_newer_one_stays() {
    let graph = SharedGraph::new(Config::default());
    let fleet = fleet(&graph, Duration::from_secs(60));
    let (old, new) = (Uuid::new_v4(), Uuid::new_v4());
    let (mut first, orders) = fleet.connect(hello("x", old)).unwrap();
    let (mut second, _orders) = fleet.connect(hello("x", new)).unwrap();
    assert!(orders.borrow().refused.is_some());
    assert!(sync(&mut first, Export::default()).is_err());
    sync(&mut second, whole(&[node("a", "x", 1)])).unwrap();
    drop(first);
    assert!(fleet.status().agents[0].connected);
    assert!(fleet.connect(hello("x", old)).is_err());
    // The same run may come again at once: its old connection is dead.
    assert!(fleet.connect(hello("x", new)).is_ok());
    assert!(fleet.connect(hello("center", new)).is_err());
    drop(second);
    // When the newer one is gone the older one may be back.
    assert!(fleet.connect(hello("x", old)).is_ok());
}

#[test]
fn an_agent_that_is_gone_for_long_loses_its_nodes() {
    let graph = SharedGraph::new(Config::default());
    graph.write().add_node(node("left", "y", 1), 1).unwrap();
    graph
        .write()
        .add_node(node("mine", "center", 1), 1)
        .unwrap();
    let fleet = fleet(&graph, Duration::from_millis(20));
    let mut session = connect(&fleet, "x");
    sync(&mut session, whole(&[node("a", "x", 1)])).unwrap();
    // One of a run before that never came back.
    while graph.read().current_node("left").is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(graph.read().current_node("a").is_some());
    drop(session);
    while graph.read().current_node("a").is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(graph.read().current_node("mine").is_some());
}

fn flows(number: u64, packets: u64) -> Flows {
    let mut record = skua_record_of(packets);
    record.last_ns = record.first_ns;
    Flows {
        number,
        known: false,
        capture: "".into(),
        places: Vec::new(),
        parties: Vec::new(),
        records: vec![record],
        once: Vec::new(),
    }
}

fn skua_record_of(packets: u64) -> skua_flow::FlowRecord {
    let mut store = skua_flow::FlowStore::new(
        skua_flow::StoreLimits {
            records: 4,
            bytes: 1 << 20,
        },
        1,
        1,
    );
    let mut update = skua_flow::FlowUpdate {
        key: skua_flow::FlowKey::default(),
        ..skua_flow::FlowUpdate::default()
    };
    update.lo_sent.packets = packets;
    *store.apply(&update)
}

#[test]
fn flows_that_come_twice_are_taken_once() {
    let graph = SharedGraph::new(Config::default());
    let fleet = fleet(&graph, Duration::from_secs(60));
    let run = Uuid::new_v4();
    let (session, _orders) = fleet.connect(hello("x", run)).unwrap();
    let (one, two) = (flows(1, 5), flows(2, 6));
    for (message, updates) in [(&one, 1), (&two, 2), (&one, 2), (&two, 2)] {
        let bytes = rmp_serde::to_vec(message).unwrap();
        let Incoming::Flows(message) = read_flows(&bytes).unwrap() else {
            panic!("no flows");
        };
        session.take_flows(message).unwrap();
        assert_eq!(fleet.status().agents[0].flow_updates, updates);
    }
    // Also by another connection of that run, but not by another run.
    let (session, _orders) = fleet.connect(hello("x", run)).unwrap();
    session.take_flows(flows(2, 6)).unwrap();
    assert_eq!(fleet.status().agents[0].flow_updates, 2);
    let session = connect(&fleet, "x");
    session.take_flows(flows(1, 6)).unwrap();
    assert_eq!(fleet.status().agents[0].flow_updates, 3);
    // What cannot be true is counted.
    let mut wrong = flows(2, 1 << 63);
    wrong.records.push(skua_record_of(1));
    session.take_flows(wrong).unwrap();
    let status = &fleet.status().agents[0];
    assert_eq!((status.flow_updates, status.refused_records), (4, 1));
    assert!(!is_sound(&flows(1, u64::MAX).records[0], u64::MAX));
}

#[test]
fn texts_of_an_agent_are_no_longer_than_those_of_an_honest_one() {
    let graph = SharedGraph::new(Config::default());
    let fleet = fleet(&graph, Duration::from_secs(60));
    let (session, _orders) = fleet.connect(hello("x", Uuid::new_v4())).unwrap();
    for number in 1..50 {
        let mut message = flows(number, 1);
        message.parties = vec![Party {
            // Letters of two bytes from the second byte on.
            texts: [format!("x{}", "é".repeat(500_000)), "u".repeat(TEXT)]
                .map(String::into_boxed_str)
                .into_iter()
                .chain(["c", "p", "u"].map(Into::into))
                .collect::<Vec<_>>()
                .try_into()
                .unwrap(),
            pid: number as u32,
            uid: None,
        }];
        message.records[0].serial = number;
        message.records[0].owners = [NonZeroU32::new(1), None];
        session.take_flows(message).unwrap();
    }
    // So all have room.
    let status = &fleet.status().agents[0];
    assert_eq!((status.forgotten_owners, status.refused_records), (0, 0));
    let mut texts = Vec::new();
    let set = &fleet.flow_sets()[0];
    set.scan(0, u32::MAX, &Wanted::All, &mut |view| {
        let party = &view.parties[0];
        texts.push((party.process.len(), party.user.len()));
        ControlFlow::Continue(())
    });
    assert_eq!(texts, vec![(TEXT - 1, TEXT); 49]);
}

/// A change of a graph with few nodes.
fn step() -> impl Strategy<Value = (u8, u8, i64)> {
    (0..5_u8, 0..6_u8, 0..3_i64)
}

fn apply(graph: &SharedGraph, (what, which, mtu): (u8, u8, i64)) {
    let mut graph = graph.write();
    let (id, next) = (format!("n{which}"), format!("n{}", (which + 1) % 6));
    let edge = format!("e{which}");
    // What cannot be is left out.
    let _ = match what {
        0 => graph.add_node(node(&id, "x", mtu), 1).map(drop),
        1 => graph.delete_node(&id, 1),
        2 => graph
            .patch_node(&id, &[Patch::Set("MTU".into(), Value::Int(mtu))], 1)
            .map(drop),
        3 => graph
            .add_edge(Edge::new(&edge, &id, &next, "x", Map::default()), 1)
            .map(drop),
        _ => graph.delete_edge(&edge, 1),
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever changes before, while and after there is no connection: the graphs are equal.
    #[test]
    fn graphs_become_equal(
        before in proptest::collection::vec(step(), 0..40),
        between in proptest::collection::vec(step(), 0..40),
        after in proptest::collection::vec(step(), 0..40),
    ) {
        let (theirs, ours) = (
            SharedGraph::new(Config::default()),
            SharedGraph::new(Config::default()),
        );
        let fleet = fleet(&ours, Duration::from_secs(60));
        before.into_iter().for_each(|step| apply(&theirs, step));
        let export = || theirs.read().export();
        sync(&mut connect(&fleet, "x"), export()).unwrap();
        prop_assert_eq!(shape(&theirs), shape(&ours));
        between.into_iter().for_each(|step| apply(&theirs, step));
        let mut session = connect(&fleet, "x");
        sync(&mut session, export()).unwrap();
        prop_assert_eq!(shape(&theirs), shape(&ours));
        let subscription = theirs.write().subscribe(1_000);
        after.into_iter().for_each(|step| apply(&theirs, step));
        while let Some(skua_topology::Delivery::Event(event)) = subscription.try_next() {
            session.apply(over(&FromAgent::Changes(vec![event.change.clone()]))).unwrap();
        }
        prop_assert_eq!(shape(&theirs), shape(&ours));
    }

    /// Bytes of any kind, also those of a message of which some are others, end nothing but the connection.
    #[test]
    fn no_message_panics(
        garbage in proptest::collection::vec(any::<u8>(), 0..300),
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        prop_assert!(garbage.len() < MESSAGE);
        let _ = read_text(&String::from_utf8_lossy(&garbage));
        let _ = read_flows(&garbage);
        let graph = SharedGraph::new(Config::default());
        let fleet = fleet(&graph, Duration::from_secs(60));
        let mut session = connect(&fleet, "x");
        let mut bytes = rmp_serde::to_vec(&flows(1, 7)).unwrap();
        let all = whole(&[node("a", "x", 1)]);
        let mut text = serde_json::to_vec(&FromAgent::Sync { graph: all, last: true }).unwrap();
        for (at, byte) in places {
            let place = at.index(bytes.len());
            bytes[place] = byte;
            let place = at.index(text.len());
            text[place] = byte;
        }
        if let Ok(Incoming::Flows(flows)) = read_flows(&bytes) {
            let _ = session.take_flows(flows);
        }
        if let Ok(Incoming::Message(message)) = read_text(&String::from_utf8_lossy(&text)) {
            let _ = session.apply(message);
        }
        for set in fleet.flow_sets() {
            set.scan(0, u32::MAX, &skua_sources::Wanted::All, &mut |view| {
                let _ = skua_query::FlowRecord::to_value(view);
                std::ops::ControlFlow::Continue(())
            });
        }
    }
}
