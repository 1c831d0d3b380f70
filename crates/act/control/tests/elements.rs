//! Nodes, edges and rules of users beside what is discovered.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use skua_control::elements::{
    EdgeRule, ElementError, NewEdge, NewNode, NodeRule, RuleAction, UserGraph,
};
use skua_topology::{Config, Edge, Export, Map, Node, SharedGraph};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

fn map(value: Value) -> Map {
    serde_json::from_value(value).unwrap()
}

struct Lab {
    graph: SharedGraph,
    users: UserGraph,
}

impl Lab {
    fn new() -> Self {
        Self::kept(None)
    }

    fn kept(directory: Option<&Path>) -> Self {
        Self::on(SharedGraph::new(Config::default()), directory)
    }

    fn on(graph: SharedGraph, directory: Option<&Path>) -> Self {
        let file = |kind: &str| directory.map(|path| path.join(kind));
        let users = UserGraph::start(&graph, file).unwrap();
        Self { graph, users }
    }

    /// As discovery does it.
    fn discover(&self, id: &str, metadata: Value) {
        let mut node = Node::new(id, "h", map(metadata));
        node.origin = "agent.h".into();
        self.graph.write().add_node(node, 1).unwrap();
    }

    fn set(&self, id: &str, key: &str, value: Value) {
        let value = serde_json::from_value(value).unwrap();
        let patch = skua_topology::Patch::Set(key.into(), value);
        self.graph.write().patch_node(id, &[patch], 2).unwrap();
    }

    fn metadata(&self, id: &str) -> Value {
        json!(self.users.node(id).unwrap().metadata)
    }

    fn create(&self, id: &str) -> Arc<Node> {
        self.users.create_node(new_node(id)).unwrap()
    }
}

fn new_node(id: &str) -> NewNode {
    NewNode {
        id: id.into(),
        metadata: map(json!({"Name": id, "Type": "fabric"})),
        ..NewNode::default()
    }
}

fn new_edge(id: &str, parent: &str, child: &str) -> NewEdge {
    NewEdge {
        id: id.into(),
        metadata: map(json!({"RelationType": "layer2"})),
        parent: parent.into(),
        child: child.into(),
        ..NewEdge::default()
    }
}

fn labels(query: &str, metadata: Value) -> NodeRule {
    NodeRule {
        action: RuleAction::Update,
        query: query.into(),
        metadata: map(metadata),
        ..NodeRule::default()
    }
}

fn links(src: &str, dst: &str) -> EdgeRule {
    EdgeRule {
        src: src.into(),
        dst: dst.into(),
        metadata: map(json!({"RelationType": "layer2"})),
        ..EdgeRule::default()
    }
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !there() {
        assert!(Instant::now() < end, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn patch(value: Value) -> json_patch::Patch {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_patch_leaves_what_says_which_node_it_is() {
    let kept = tempfile::tempdir().unwrap();
    let lab = Lab::kept(Some(kept.path()));
    let first = NewNode {
        metadata: map(json!({"Name": "tor", "Type": "fabric", "TID": "7", "Rack": 1})),
        revision: Some(0),
        ..new_node("tor")
    };
    assert_eq!(lab.users.create_node(first).unwrap().revision, 0);
    for nothing in [
        json!([{"op": "replace", "path": "/Metadata/Name", "value": "x"}]),
        json!([{"op": "replace", "path": "/Metadata/Type", "value": "x"}]),
        json!([{"op": "remove", "path": "/Metadata/TID"}]),
        json!([{"op": "replace", "path": "/Host", "value": "x"}]),
        json!([{"op": "replace", "path": "/Metadata/Rack", "value": 1}]),
    ] {
        let changed = lab.users.patch_node("tor", &patch(nothing.clone()));
        assert!(changed.unwrap().is_none(), "{nothing}");
    }
    let change = patch(json!([{"op": "replace", "path": "/Metadata/Rack", "value": 2}]));
    let changed = lab.users.patch_node("tor", &change).unwrap().unwrap();
    assert_eq!((changed.revision, &*changed.host), (1, ""));
    let expected = json!({"Name": "tor", "Type": "fabric", "TID": "7", "Rack": 2});
    assert_eq!(lab.metadata("tor"), expected);
    drop(lab);
    // After a restart it is counted on from where it began.
    let lab = Lab::kept(Some(kept.path()));
    assert_eq!(lab.metadata("tor"), expected);
    assert_eq!(lab.users.node("tor").unwrap().revision, 0);
}

#[test]
fn nodes_and_edges_are_made_changed_and_deleted() {
    let lab = Lab::new();
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    let made = lab.create("tor");
    assert_eq!((&*made.origin, made.revision), ("user", 1));
    lab.users.create_edge(new_edge("e", "tor", "eth0")).unwrap();
    assert_eq!(lab.users.nodes().len(), 2);
    assert_eq!(lab.users.edges()[0].relation(), "layer2");
    // What others have added stays when the user changes theirs.
    lab.set("tor", "Captures", json!([{"ID": "x"}]));
    let change = patch(json!([
        {"op": "add", "path": "/Metadata/Rack", "value": 7},
        {"op": "add", "path": "/Metadata/a.b", "value": "dotted"},
    ]));
    lab.users.patch_node("tor", &change).unwrap();
    let expected = json!({"Name": "tor", "Type": "fabric", "Rack": 7, "a.b": "dotted", "Captures": [{"ID": "x"}]});
    assert_eq!(lab.metadata("tor"), expected);
    let change = patch(json!([{"op": "remove", "path": "/Metadata/Rack"}]));
    lab.users.patch_node("tor", &change).unwrap();
    assert_eq!(lab.metadata("tor").get("Rack"), None);
    let change =
        patch(json!([{"op": "replace", "path": "/Metadata/RelationType", "value": "ownership"}]));
    let edge = lab.users.patch_edge("e", &change).unwrap().unwrap();
    assert_eq!((edge.relation(), edge.element.revision), ("ownership", 2));
    assert!(lab.users.patch_edge("e", &change).unwrap().is_none());
    // With the node its edges go, for good.
    lab.users.delete_node("tor").unwrap();
    assert!(lab.users.node("tor").is_err() && lab.users.edge("e").is_err());
    lab.create("tor");
    lab.set("eth0", "MTU", json!(9_000));
    std::thread::sleep(Duration::from_millis(200));
    assert!(lab.users.edge("e").is_err());
}

#[test]
fn what_is_wrong_is_refused() {
    let lab = Lab::new();
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    lab.create("tor");
    let wrong = |metadata: Value| NewNode {
        metadata: map(metadata),
        ..NewNode::default()
    };
    for metadata in [
        json!({}),
        json!({"Name": "x"}),
        json!({"Name": "x", "Type": 7}),
    ] {
        assert!(lab.users.create_node(wrong(metadata)).is_err());
    }
    assert!(matches!(
        lab.users.create_node(new_node("eth0")),
        Err(ElementError::Graph(_))
    ));
    assert!(
        lab.users
            .create_edge(new_edge("e", "tor", "nowhere"))
            .is_err()
    );
    assert!(
        lab.users
            .create_edge(NewEdge {
                metadata: Map::default(),
                ..new_edge("e", "tor", "eth0")
            })
            .is_err()
    );
    let nothing = patch(json!([]));
    assert!(matches!(
        lab.users.patch_node("eth0", &nothing),
        Err(ElementError::NotByUser(_))
    ));
    assert!(matches!(
        lab.users.delete_node("eth0"),
        Err(ElementError::NotByUser(_))
    ));
    assert!(matches!(
        lab.users.delete_node("nobody"),
        Err(ElementError::Resource(_))
    ));
    for change in [
        json!([{"op": "replace", "path": "/Nothing", "value": "x"}]),
        json!([{"op": "remove", "path": "/Metadata"}]),
        json!([{"op": "remove", "path": "/Metadata/Name"}]),
        json!([{"op": "replace", "path": "/Metadata", "value": 7}]),
    ] {
        assert!(
            lab.users.patch_node("tor", &patch(change.clone())).is_err(),
            "{change}"
        );
    }
    for rule in [
        labels("", json!({"Owner": "x"})),
        labels("G.V().Hass('x')", json!({"Owner": "x"})),
        labels("G.V().Count()", json!({"Owner": "x"})),
        labels("G.V()", json!({})),
        labels("G.V()", json!({"Name": "x"})),
        NodeRule {
            metadata: map(json!({"Name": "x"})),
            ..NodeRule::default()
        },
    ] {
        assert!(
            lab.users.create_node_rule(rule.clone()).is_err(),
            "{rule:?}"
        );
    }
    assert!(lab.users.create_edge_rule(links("G.V()", "G.E()")).is_err());
}

#[test]
fn a_rule_labels_also_what_comes_later_and_takes_its_labels_back() {
    let lab = Lab::new();
    lab.discover(
        "eth0",
        json!({"Name": "eth0", "Type": "device", "State": "UP"}),
    );
    lab.discover(
        "eth1",
        json!({"Name": "eth1", "Type": "device", "State": "UP", "Owner": "them"}),
    );
    let query = "G.V().Has('Type', 'device', 'State', 'UP')";
    let rule = lab
        .users
        .create_node_rule(labels(query, json!({"Owner": "us", "Slot": {"Row": 1}})))
        .unwrap();
    let id = rule.uuid.to_string();
    assert_eq!(lab.metadata("eth0")["Owner"], "us");
    assert_eq!(lab.metadata("eth1")["Owner"], "them", "theirs stays");
    let status = lab.users.node_rule(&id).unwrap().1;
    assert_eq!((status.applied, status.left_out), (1, 1));
    assert!(
        lab.users
            .create_node_rule(labels(query, json!({"Owner": "us", "Slot": {"Row": 1}})))
            .is_err()
    );
    lab.discover(
        "eth2",
        json!({"Name": "eth2", "Type": "device", "State": "UP"}),
    );
    wait_for("label of a later node", || {
        lab.metadata("eth2")["Owner"] == "us"
    });
    lab.set("eth2", "State", json!("DOWN"));
    wait_for("end of the label", || {
        lab.metadata("eth2").get("Owner").is_none()
    });
    assert_eq!(
        lab.metadata("eth2"),
        json!({"Name": "eth2", "Type": "device", "State": "DOWN"})
    );
    let change = patch(json!([{"op": "replace", "path": "/Metadata", "value": {"Team": "net"}}]));
    lab.users.patch_node_rule(&id, &change).unwrap();
    assert_eq!(
        lab.metadata("eth0"),
        json!({"Name": "eth0", "Type": "device", "State": "UP", "Team": "net"})
    );
    lab.users.delete_node_rule(&id).unwrap();
    assert_eq!(
        lab.metadata("eth0"),
        json!({"Name": "eth0", "Type": "device", "State": "UP"})
    );
    assert_eq!(lab.metadata("eth1")["Owner"], "them");
}

#[test]
fn a_rule_that_contradicts_itself_comes_to_rest() {
    let lab = Lab::new();
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    let rule = labels("G.V().HasNot('Owner')", json!({"Owner": "us"}));
    let rule = lab.users.create_node_rule(rule).unwrap();
    // Each of these has everything looked at again.
    for number in 0..5 {
        lab.discover(
            &format!("x{number}"),
            json!({"Name": "x", "Type": "x", "Owner": "them"}),
        );
        wait_for("look", || {
            lab.users
                .node_rule(&rule.uuid.to_string())
                .unwrap()
                .1
                .applied
                == 1
        });
        std::thread::sleep(Duration::from_millis(120));
        let node = lab.users.node("eth0").unwrap();
        assert_eq!(
            (node.revision, json!(node.metadata)["Owner"].clone()),
            (2, json!("us"))
        );
    }
    lab.users.delete_node_rule(&rule.uuid.to_string()).unwrap();
    assert_eq!(lab.metadata("eth0").get("Owner"), None);
}

#[test]
fn rules_make_nodes_and_edges() {
    let lab = Lab::new();
    let tor = NodeRule {
        metadata: map(json!({"Name": "tor", "Type": "fabric"})),
        ..NodeRule::default()
    };
    let tor = lab.users.create_node_rule(tor).unwrap();
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    let rule = links("G.V().Has('Name', 'tor')", "G.V().Has('Type', 'device')");
    let rule = lab.users.create_edge_rule(rule).unwrap();
    assert_eq!(lab.users.edges().len(), 1);
    lab.discover("eth1", json!({"Name": "eth1", "Type": "device"}));
    wait_for("edge to a later node", || lab.users.edges().len() == 2);
    lab.graph.write().delete_node("eth0", 3).unwrap();
    wait_for("end of an edge", || lab.users.edges().len() == 1);
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    wait_for("edge to what came back", || lab.users.edges().len() == 2);
    lab.set("eth1", "Type", json!("other"));
    wait_for("end of the other edge", || lab.users.edges().len() == 1);
    assert_eq!(
        lab.users
            .edge_rule(&rule.uuid.to_string())
            .unwrap()
            .1
            .applied,
        1
    );
    lab.users.delete_node_rule(&tor.uuid.to_string()).unwrap();
    assert_eq!((lab.users.nodes().len(), lab.users.edges().len()), (2, 0));
    lab.users
        .create_node_rule(NodeRule {
            metadata: map(json!({"Name": "tor", "Type": "fabric"})),
            ..NodeRule::default()
        })
        .unwrap();
    wait_for("edge", || lab.users.edges().len() == 1);
    lab.users.delete_edge_rule(&rule.uuid.to_string()).unwrap();
    assert_eq!((lab.users.nodes().len(), lab.users.edges().len()), (3, 0));
}

#[test]
fn everything_is_there_again_after_a_restart() {
    let room = tempfile::tempdir().unwrap();
    let rule = {
        let lab = Lab::kept(Some(room.path()));
        lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
        lab.create("tor");
        lab.users.create_edge(new_edge("e", "tor", "eth0")).unwrap();
        lab.users
            .create_edge_rule(links("G.V('tor')", "G.V().Has('Type', 'device')"))
            .unwrap();
        lab.users
            .create_node_rule(labels("G.V()", json!({"Owner": "us"})))
            .unwrap()
    };
    let lab = Lab::kept(Some(room.path()));
    assert_eq!(
        lab.metadata("tor"),
        json!({"Name": "tor", "Type": "fabric", "Owner": "us"})
    );
    assert!(
        lab.users.edge("e").is_err(),
        "one of its nodes is not there yet"
    );
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    wait_for("both edges", || lab.users.edges().len() == 2);
    assert!(lab.users.edge("e").is_ok());
    // A node that goes and comes back has its edges again.
    lab.graph.write().delete_node("eth0", 3).unwrap();
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    wait_for("both edges again", || lab.users.edges().len() == 2);
    wait_for("label", || lab.metadata("eth0")["Owner"] == "us");
    lab.users.delete_node_rule(&rule.uuid.to_string()).unwrap();
    lab.users.delete_edge("e").unwrap();
    lab.users.delete_node("tor").unwrap();
    let lab = Lab::kept(Some(room.path()));
    assert!(lab.users.nodes().is_empty());
}

#[test]
fn a_graph_that_was_kept_loses_what_users_have_deleted() {
    let room = tempfile::tempdir().unwrap();
    let lab = Lab::kept(Some(room.path()));
    lab.discover("eth0", json!({"Name": "eth0", "Type": "device"}));
    lab.create("tor");
    lab.create("old");
    for (id, child) in [("e", "tor"), ("f", "old")] {
        lab.users.create_edge(new_edge(id, "eth0", child)).unwrap();
    }
    // As it was before the last deletion.
    let before = SharedGraph::new(Config::default());
    before
        .write()
        .import(&lab.graph.read().export(), 5)
        .unwrap();
    lab.users.delete_node("old").unwrap();
    drop(lab);
    let lab = Lab::on(before, Some(room.path()));
    assert!(lab.users.node("old").is_err() && lab.users.edge("f").is_err());
    assert!(lab.users.edge("e").is_ok());
    assert_eq!(lab.users.nodes().len(), 2);
}

#[test]
fn an_export_is_imported() {
    let export = {
        let lab = Lab::new();
        lab.discover("a", json!({"Name": "a", "Type": "host"}));
        lab.discover(
            "b",
            json!({"Name": "b", "Type": "device", "IPV4": ["10.0.0.1/8"]}),
        );
        let edge = Edge::new(
            "e",
            "a",
            "b",
            "h",
            map(json!({"RelationType": "ownership"})),
        );
        lab.graph.write().add_edge(edge, 1).unwrap();
        lab.graph.read().export()
    };
    let export: Export = serde_json::from_value(json!(export)).unwrap();
    let room = tempfile::tempdir().unwrap();
    {
        let lab = Lab::kept(Some(room.path()));
        lab.discover("a", json!({"Name": "mine", "Type": "host"}));
        let done = lab.users.import(&export).unwrap();
        assert_eq!(
            (done.nodes, done.edges, done.known, done.waiting),
            (1, 1, 1, 0)
        );
        assert_eq!(lab.metadata("a")["Name"], "mine");
        let node = lab.users.node("b").unwrap();
        assert_eq!((&*node.origin, &*node.host), ("user", "h"));
        let done = lab.users.import(&export).unwrap();
        assert_eq!((done.nodes, done.edges, done.known), (0, 0, 3));
        // Nothing is kept of what the graph would not take.
        for id in [String::new(), "x".repeat(257)] {
            let nodes = [
                json!({"ID": "c", "Metadata": {}}),
                json!({"ID": id, "Metadata": {}}),
            ];
            let export: Export = serde_json::from_value(json!({"Nodes": nodes})).unwrap();
            assert!(lab.users.import(&export).is_err());
            assert!(lab.users.node("c").is_err());
        }
    }
    let lab = Lab::kept(Some(room.path()));
    assert_eq!(lab.users.nodes().len(), 1);
}
