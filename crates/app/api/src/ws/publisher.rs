//! `/ws/publisher`: programs that publish nodes and edges, like an import by Skydive's client.

use std::{collections::HashSet, sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skua_control::{
    JsonPatch,
    elements::{ElementError, UserGraph},
};
use skua_topology::{Edge, Export, Node};

use crate::ws::{
    Hub, blocking,
    message::{self, Incoming},
    socket::{Closed, Socket, SocketRequest},
};

/// Namespace of the messages.
const NAMESPACE: &str = "Graph";
/// Header that says what becomes of elements when the publisher disconnects.
const PERSISTENCE: &str = "X-Persistence-Policy";
/// Its value for: they are deleted.
const DELETE: &str = "DeleteOnDisconnect";
/// How long further messages are waited for that are made together.
const PAUSE: Duration = Duration::from_millis(20);
/// Messages, and their bytes, that are made together at most.
const MESSAGES: usize = 4096;
const BYTES: usize = 4 << 20;

/// Publishes nodes and edges; messages as those of /ws/subscriber: NodeAdded, NodeUpdated, NodeDeleted, EdgeAdded, EdgeUpdated, EdgeDeleted
#[utoipa::path(get, path = "/ws/publisher", operation_id = "publish", tag = "websocket",
    params(("X-Persistence-Policy" = Option<String>, Header, description = "DeleteOnDisconnect: the elements go with the connection; else they stay")),
    responses((status = 101, description = "A WebSocket from here on")))]
pub async fn publish(State(hub): State<Hub>, request: SocketRequest) -> Response {
    let temporary = request.values(PERSISTENCE).iter().any(|v| v == DELETE);
    let elements = hub.elements.clone();
    request.open(&hub, async move |socket| {
        let mut publisher = Publisher {
            elements,
            socket,
            published: temporary.then(Published::default),
        };
        // Ends with the connection.
        let _ = publisher.serve().await;
        if let Some(published) = publisher.published {
            let elements = publisher.elements;
            let _ = blocking(move || published.delete(&elements)).await;
        }
    })
}

/// Elements that a connection has published.
#[derive(Default, Clone)]
struct Published {
    nodes: HashSet<Arc<str>>,
    edges: HashSet<Arc<str>>,
}

impl Published {
    fn add(&mut self, export: &Export) {
        let edges = export.edges.iter().map(|edge| edge.element.id.clone());
        self.edges.extend(edges);
        self.nodes
            .extend(export.nodes.iter().map(|node| node.id.clone()));
    }

    fn delete(self, elements: &UserGraph) {
        // What is not there any more was deleted by somebody else.
        for id in self.edges {
            let _ = elements.delete_edge(&id);
        }
        for id in self.nodes {
            let _ = elements.delete_node(&id);
        }
    }
}

struct Publisher {
    elements: Arc<UserGraph>,
    socket: Socket,
    /// What goes with the connection, if anything does.
    published: Option<Published>,
}

impl Publisher {
    async fn serve(&mut self) -> Result<(), Closed> {
        loop {
            let first = self.socket.next().await?;
            let mut bytes = first.len();
            let mut texts = vec![first];
            let mut open = true;
            while open && texts.len() < MESSAGES && bytes < BYTES {
                match tokio::time::timeout(PAUSE, self.socket.next()).await {
                    Ok(Ok(text)) => {
                        bytes += text.len();
                        texts.push(text);
                    }
                    Ok(Err(Closed)) => open = false,
                    Err(_) => break,
                }
            }
            let elements = self.elements.clone();
            let (answers, new) = blocking(move || carry_out(&elements, &texts)).await?;
            if let Some(published) = &mut self.published {
                published.add(&new);
            }
            if !open {
                return Ok(());
            }
            for answer in answers {
                self.socket.send(answer).await?;
            }
        }
    }
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "ID")]
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Changed {
    #[serde(rename = "ID")]
    id: String,
    metadata: Value,
}

/// Elements that are added by messages in a row.
#[derive(Default)]
struct Pending {
    export: Export,
    /// The UUID of the first message, which an error is reported for.
    uuid: String,
}

impl Pending {
    fn begin(&mut self, uuid: &str) -> &mut Export {
        if self.export.nodes.is_empty() && self.export.edges.is_empty() {
            self.uuid = uuid.into();
        }
        &mut self.export
    }

    /// Makes them.
    fn make(&mut self, elements: &UserGraph, all: &mut Export) -> Result<(), String> {
        let export = std::mem::take(&mut self.export);
        if export.nodes.is_empty() && export.edges.is_empty() {
            return Ok(());
        }
        elements
            .import(&export)
            .map_err(|error| error.to_string())?;
        all.nodes.extend(export.nodes);
        all.edges.extend(export.edges);
        Ok(())
    }
}

/// Does what messages ask for, in their order: the answers, and what was added.
fn carry_out(elements: &UserGraph, texts: &[String]) -> (Vec<String>, Export) {
    let (mut answers, mut all, mut pending) = (Vec::new(), Export::default(), Pending::default());
    let mut refuse = |uuid: &str, error: &str| {
        answers.push(message::bad(NAMESPACE, "Error", uuid, error));
    };
    for text in texts {
        let incoming = match serde_json::from_str::<Incoming>(text) {
            Ok(incoming) => incoming,
            Err(error) => {
                refuse("", &format!("a message needs Namespace and Type: {error}"));
                continue;
            }
        };
        let (kind, uuid, obj) = (incoming.r#type.as_str(), incoming.uuid, incoming.obj);
        let added = match kind {
            "NodeAdded" => {
                read::<Node>(obj).map(|node| pending.begin(&uuid).nodes.push(node.into()))
            }
            "EdgeAdded" => {
                read::<Edge>(obj).map(|edge| pending.begin(&uuid).edges.push(edge.into()))
            }
            _ => {
                if let Err(error) = pending.make(elements, &mut all) {
                    refuse(&pending.uuid, &error);
                }
                change(elements, kind, obj)
            }
        };
        if let Err(error) = added {
            refuse(&uuid, &error);
        }
    }
    if let Err(error) = pending.make(elements, &mut all) {
        refuse(&pending.uuid, &error);
    }
    (answers, all)
}

fn read<T: DeserializeOwned>(obj: Value) -> Result<T, String> {
    serde_json::from_value(obj).map_err(|error| format!("Obj: {error}"))
}

/// A message that changes what is there.
fn change(elements: &UserGraph, kind: &str, obj: Value) -> Result<(), String> {
    let replaced = |metadata: Value| {
        let patch = json!([{"op": "replace", "path": "/Metadata", "value": metadata}]);
        read::<JsonPatch>(patch)
    };
    let done: Result<(), ElementError> = match kind {
        "NodeUpdated" => {
            let new: Changed = read(obj)?;
            let patch = replaced(new.metadata)?;
            elements.patch_node(&new.id, &patch).map(drop)
        }
        "EdgeUpdated" => {
            let new: Changed = read(obj)?;
            let patch = replaced(new.metadata)?;
            elements.patch_edge(&new.id, &patch).map(drop)
        }
        "NodeDeleted" => elements.delete_node(&read::<Named>(obj)?.id),
        "EdgeDeleted" => elements.delete_edge(&read::<Named>(obj)?.id),
        _ => {
            return Err("NodeAdded, NodeUpdated, NodeDeleted, EdgeAdded, EdgeUpdated or EdgeDeleted is expected".into());
        }
    };
    done.map_err(|error| error.to_string())
}
