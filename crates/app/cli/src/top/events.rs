//! Live changes of the graph, from the API's WebSocket.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use skua_client::websocket::{self, Endpoint};
use skua_config::arguments::AnalyzerArguments;
use skua_output::{one_line, text};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    changes::Was,
    top::{Input, Sender},
};

/// Path of the WebSocket.
const PATH: &str = "/ws/subscriber";
/// Pause before a lost connection is retried.
const RETRY: Duration = Duration::from_secs(2);
/// Nodes whose former metadata is kept.
const KNOWN: usize = 20_000;

/// Something that has changed.
pub struct Event {
    /// What happened.
    pub event: &'static str,
    /// Type of the node, or relation of the edge.
    pub kind: String,
    /// Name of the node, or of both ends of the edge.
    pub name: String,
    /// The differences.
    pub what: String,
}

/// What all nodes were.
#[derive(Default)]
struct Past(HashMap<String, Was>);

/// An event that reports missing changes.
fn no_changes(why: String) -> Event {
    Event {
        event: "no changes",
        kind: String::new(),
        name: String::new(),
        what: why,
    }
}

/// Follows the changes on a thread of its own, until the receiver is dropped.
pub fn follow(analyzer: &AnalyzerArguments, sender: &Sender) -> anyhow::Result<()> {
    let sender = sender.clone();
    let endpoints = match websocket::endpoints(analyzer) {
        Ok(endpoints) => endpoints,
        // The other views work all the same.
        Err(error) => {
            let _ = sender.send(Input::Event(no_changes(one_line(&error))));
            return Ok(());
        }
    };
    let Some(endpoint) = endpoints.into_iter().next() else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = move || {
        runtime.block_on(async {
            let mut reported = String::new();
            loop {
                let why = match listen(&endpoint, &sender).await {
                    Ok(()) => return,
                    Err(error) => one_line(&error),
                };
                if why != reported {
                    let event = no_changes(why.clone());
                    if sender.send(Input::Event(event)).is_err() {
                        return;
                    }
                    reported = why;
                }
                tokio::time::sleep(RETRY).await;
            }
        });
    };
    std::thread::Builder::new()
        .name("events".into())
        .spawn(work)?;
    Ok(())
}

/// Sends changes until the receiver is dropped.
async fn listen(endpoint: &Endpoint, sender: &Sender) -> anyhow::Result<()> {
    let mut socket = endpoint.connect(PATH).await?;
    let ask = json!({"Namespace": "Graph", "Type": "SyncRequest", "UUID": "top"});
    socket.send(Message::text(ask.to_string())).await?;
    let mut past = Past::default();
    while let Some(message) = socket.next().await {
        let Message::Text(message) = message? else {
            continue;
        };
        let message: Value = serde_json::from_str(&message).context("a message is not JSON")?;
        if let Some(event) = past.event_of(&message)
            && sender.send(Input::Event(event)).is_err()
        {
            return Ok(());
        }
    }
    bail!("the connection for changes has ended")
}

impl Past {
    /// Applies a message; returns the event to show.
    fn event_of(&mut self, message: &Value) -> Option<Event> {
        let element = &message["Obj"];
        let event = match message["Type"].as_str()? {
            "SyncReply" | "Sync" => {
                for node in element["Nodes"].as_array()? {
                    self.remember(node, Was::of(node));
                }
                return None;
            }
            "NodeAdded" => "added",
            "NodeUpdated" => "changed",
            "NodeDeleted" => "deleted",
            "EdgeAdded" => "joined",
            "EdgeDeleted" => "parted",
            _ => return None,
        };
        if matches!(event, "joined" | "parted") {
            let name = |end: &str| {
                let id = text(&element[end]);
                self.0.get(&id).map_or(id.clone(), |was| was.name.clone())
            };
            return Some(Event {
                event,
                kind: text(&element["Metadata"]["RelationType"]),
                name: format!("{} {}", name("Parent"), name("Child")),
                what: String::new(),
            });
        }
        let now = Was::of(element);
        let (kind, name) = (text(&element["Metadata"]["Type"]), now.name.clone());
        let what = match event {
            "changed" => {
                let before = self.0.get(&text(&element["ID"]));
                let changes = before.map(|was| was.changes(&now, element));
                // An unknown node has changed somehow; counters alone are no change.
                changes.map_or_else(|| "?".to_owned(), |changes| changes.join(", "))
            }
            _ => String::new(),
        };
        match event {
            "deleted" => drop(self.0.remove(&text(&element["ID"]))),
            _ => self.remember(element, now),
        }
        if event == "changed" && what.is_empty() {
            return None;
        }
        Some(Event {
            event,
            kind,
            name,
            what,
        })
    }

    fn remember(&mut self, node: &Value, was: Was) {
        let id = text(&node["ID"]);
        if self.0.len() < KNOWN || self.0.contains_key(&id) {
            self.0.insert(id, was);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn node(kind: &str, metadata: &Value) -> Value {
        let mut metadata = metadata.clone();
        metadata["Name"] = "eth0".into();
        metadata["Type"] = "veth".into();
        json!({"Namespace": "Graph", "Type": kind, "Obj": {"ID": "a", "Metadata": metadata}})
    }

    #[test]
    fn a_change_shows_the_values_that_differ() {
        let mut past = Past::default();
        let added = node("NodeAdded", &json!({"State": "UP", "MTU": 1500}));
        assert_eq!(past.event_of(&added).unwrap().event, "added");
        let counted = json!({"State": "UP", "MTU": 1500, "Metric": {"RxBytes": 1}});
        assert!(past.event_of(&node("NodeUpdated", &counted)).is_none());
        let changed = past.event_of(&node("NodeUpdated", &json!({"State": "DOWN"})));
        let changed = changed.unwrap();
        assert_eq!(changed.what, "State=DOWN, no MTU");
        assert_eq!((&*changed.kind, &*changed.name), ("veth", "eth0"));
        let edge = json!({"Type": "EdgeAdded", "Obj": {
            "Parent": "x", "Child": "a", "Metadata": {"RelationType": "ownership"},
        }});
        assert_eq!(past.event_of(&edge).unwrap().name, "x eth0");
        assert_eq!(
            past.event_of(&node("NodeDeleted", &json!({})))
                .unwrap()
                .event,
            "deleted"
        );
        assert!(past.0.is_empty());
    }

    #[test]
    fn other_messages_are_ignored() {
        let mut past = Past::default();
        for message in [
            json!(null),
            json!([]),
            json!({"Type": "Sync"}),
            json!({"Type": 5}),
        ] {
            assert!(past.event_of(&message).is_none());
        }
    }
}
