//! `/ws/subscriber`: the graph, and each change of it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::json;
use skua_query::Answer;
use skua_runtime::query_engine::QueryEngine;
use skua_topology::{Change, Delivery, Edge, Event, Export, Node, SharedGraph, Subscription};

use crate::ws::{
    Hub, alerts, blocking,
    mailbox::{Mail, Mailbox, Mailboxes, Message},
    message::{self, Incoming},
    socket::{Closed, Socket, SocketRequest},
};

/// Namespace of the messages.
const NAMESPACE: &str = "Graph";
/// Header, or parameter, with a query that selects elements.
const FILTER: &str = "X-Gremlin-Filter";
/// Events that wait for the thread that writes them.
const EVENTS: usize = 8192;
/// How often that thread checks whether there are subscribers.
const IDLE_CHECK: Duration = Duration::from_secs(60);
/// Least time between two runs of a filter.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest filter; queries are no longer anyway.
const LONGEST: usize = 64 << 10;

/// Encodes the changes of the graph once for all subscribers, on a thread that exists only while
/// there are any.
pub struct GraphFeed {
    graph: SharedGraph,
    /// Bytes that wait for each at most.
    waiting: usize,
    mailboxes: Mailboxes,
}

impl GraphFeed {
    /// A feed without subscribers.
    pub fn new(graph: SharedGraph, waiting: usize) -> Arc<Self> {
        Arc::new(Self {
            graph,
            waiting,
            mailboxes: Mailboxes::default(),
        })
    }

    /// A mailbox for all changes from now on.
    fn join(self: &Arc<Self>) -> Arc<Mailbox> {
        let mailbox = Mailbox::new(self.waiting);
        if self.mailboxes.add(&mailbox) {
            let subscription = self.graph.write().subscribe(EVENTS);
            let feed = self.clone();
            let pump = std::thread::Builder::new().name("graph-feed".into());
            if let Err(error) = pump.spawn(move || feed.pump(&subscription)) {
                tracing::error!("no thread for subscribers: {error}");
                mailbox.close();
            }
        }
        mailbox
    }

    fn pump(&self, subscription: &Subscription) {
        loop {
            let delivery = subscription.next(IDLE_CHECK);
            let open = self.mailboxes.open();
            if open.is_empty() {
                return;
            }
            match delivery {
                Some(Delivery::Event(event)) => {
                    let message = text_of(&event);
                    open.iter().for_each(|mailbox| mailbox.push(&message));
                }
                Some(Delivery::Lost(lost)) => {
                    open.iter().for_each(|mailbox| mailbox.drop_items(lost));
                }
                None if subscription.is_closed() => {
                    open.iter().for_each(|mailbox| mailbox.close());
                    return;
                }
                None => {}
            }
        }
    }
}

fn text_of(event: &Event) -> Message {
    let kind = event.change.name();
    let text = match &event.change {
        Change::NodeAdded(node) | Change::NodeUpdated(node) | Change::NodeDeleted(node) => {
            message::news(NAMESPACE, kind, node)
        }
        Change::EdgeAdded(edge) | Change::EdgeUpdated(edge) | Change::EdgeDeleted(edge) => {
            message::news(NAMESPACE, kind, edge)
        }
    };
    Message {
        text: text.into(),
        items: 1,
        seq: event.seq,
    }
}

/// The fields of a `SyncRequest`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct SyncRequest {
    /// A moment, ms since the Unix epoch; 0 for now.
    time: i64,
    /// A query that selects elements from now on.
    gremlin_filter: Option<String>,
}

/// The elements that match a filter.
#[derive(Default, Clone)]
struct View {
    nodes: HashMap<Arc<str>, Arc<Node>>,
    edges: HashMap<Arc<str>, Arc<Edge>>,
}

impl View {
    fn of(export: Export) -> Self {
        let nodes = export.nodes.into_iter().map(|n| (n.id.clone(), n));
        let edges = export.edges.into_iter().map(|e| (e.element.id.clone(), e));
        Self {
            nodes: nodes.collect(),
            edges: edges.collect(),
        }
    }

    /// Messages that turn an older view into this one: edges are removed before their nodes and
    /// added after them.
    fn changes_since(&self, old: &Self) -> Vec<String> {
        let news = |kind, node: &Arc<Node>| message::news(NAMESPACE, kind, node);
        let edge_news = |kind, edge: &Arc<Edge>| message::news(NAMESPACE, kind, edge);
        let mut texts = Vec::new();
        let gone = old
            .edges
            .iter()
            .filter(|(id, _)| !self.edges.contains_key(*id));
        texts.extend(gone.map(|(_, edge)| edge_news("EdgeDeleted", edge)));
        let gone = old
            .nodes
            .iter()
            .filter(|(id, _)| !self.nodes.contains_key(*id));
        texts.extend(gone.map(|(_, node)| news("NodeDeleted", node)));
        for (id, node) in &self.nodes {
            match old.nodes.get(id) {
                None => texts.push(news("NodeAdded", node)),
                Some(before) if before != node => texts.push(news("NodeUpdated", node)),
                Some(_) => {}
            }
        }
        for (id, edge) in &self.edges {
            match old.edges.get(id) {
                None => texts.push(edge_news("EdgeAdded", edge)),
                Some(before) if before != edge => texts.push(edge_news("EdgeUpdated", edge)),
                Some(_) => {}
            }
        }
        texts
    }
}

/// Changes of the graph (namespace Graph) and events of alerts (Alert); SyncRequest is answered with SyncReply
#[utoipa::path(get, path = "/ws/subscriber", operation_id = "subscribe", tag = "websocket",
    params(("x-websocket-namespace" = Option<String>, Query, description = "Graph or Alert, which may come several times; all without it; also as header X-Websocket-Namespace"),
        ("x-gremlin-filter" = Option<String>, Query, description = "A query that selects the elements; also as header X-Gremlin-Filter")),
    responses((status = 101, description = "A WebSocket from here on")))]
pub async fn subscribe(State(hub): State<Hub>, request: SocketRequest) -> Response {
    let filter = request
        .values(FILTER)
        .into_iter()
        .find(|filter| !filter.is_empty());
    let all = hub.clone();
    let [graph, alerts] = [NAMESPACE, alerts::NAMESPACE].map(|namespace| request.wants(namespace));
    request.open(&hub, async move |socket| {
        let subscriber = Subscriber {
            // From here on no event is missed.
            mailbox: graph.then(|| all.graph.join()),
            alerts: alerts.then(|| all.alerts.join()),
            hub: all,
            socket,
            seen: 0,
            filter: None,
        };
        subscriber.run(filter).await;
    })
}

struct Subscriber {
    hub: Hub,
    socket: Socket,
    /// Changes of the graph, unless the client wants none.
    mailbox: Option<Arc<Mailbox>>,
    /// Events of alerts, likewise.
    alerts: Option<Arc<Mailbox>>,
    /// The last event that the client has.
    seen: u64,
    filter: Option<Filter>,
}

/// A client's filter, and the elements it has received.
struct Filter {
    query: String,
    view: Arc<View>,
}

/// Cancels a query when its client disconnects.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The result of a query, as a part of the graph.
fn elements(engine: &QueryEngine, query: &str, cancel: &AtomicBool) -> Result<Export, String> {
    let ask = |query: &str| {
        let found = engine.ask_graph(query, cancel);
        found.map_err(|error| error.render(query))
    };
    match ask(query)? {
        Answer::Graph(export) => Ok(export),
        // With the edges between them.
        Answer::Nodes(nodes) => match ask(&format!("{query}.SubGraph()")) {
            Ok(Answer::Graph(export)) => Ok(export),
            _ => Ok(Export {
                nodes,
                edges: Vec::new(),
            }),
        },
        Answer::Edges(edges) => Ok(Export {
            nodes: Vec::new(),
            edges,
        }),
        _ => Err("the query returns neither a graph nor nodes nor edges".into()),
    }
}

impl Subscriber {
    async fn run(mut self, filter: Option<String>) {
        if let Some(query) = filter
            && self.set_filter(query, "").await.is_err()
        {
            return;
        }
        // Ends with the connection.
        let _ = self.serve().await;
    }

    async fn serve(&mut self) -> Result<(), Closed> {
        loop {
            tokio::select! {
                text = self.socket.next() => self.handle_message(&text?).await?,
                mail = next(self.mailbox.as_ref()) => self.send(mail).await?,
                mail = next(self.alerts.as_ref()) => match mail {
                    Mail::Message(message) => self.socket.send(message.text).await?,
                    Mail::Dropped(lost) => self.socket.send(alerts::lost(lost)).await?,
                    Mail::Closed => return Err(Closed),
                },
            }
        }
    }

    async fn handle_message(&mut self, text: &str) -> Result<(), Closed> {
        let incoming = match serde_json::from_str::<Incoming>(text) {
            Ok(incoming) => incoming,
            Err(error) => {
                let error = format!("a message needs Namespace and Type: {error}");
                return self
                    .socket
                    .send(message::bad(NAMESPACE, "Error", "", &error))
                    .await;
            }
        };
        if (incoming.namespace.as_str(), incoming.r#type.as_str()) != (NAMESPACE, "SyncRequest") {
            let error = "the only request is SyncRequest of the namespace Graph";
            let text = message::bad(NAMESPACE, "Error", &incoming.uuid, error);
            return self.socket.send(text).await;
        }
        let request = match incoming.obj {
            serde_json::Value::Null => SyncRequest::default(),
            obj => match serde_json::from_value(obj) {
                Ok(request) => request,
                Err(error) => return self.refuse(&incoming.uuid, &error.to_string()).await,
            },
        };
        if request.time != 0 {
            return self.show_past(request, &incoming.uuid).await;
        }
        match request.gremlin_filter {
            Some(query) if !query.is_empty() => self.set_filter(query, &incoming.uuid).await,
            // Skydive's clients leave it out when it stays as it is.
            None if self.filter.is_some() => {
                let query = self.filter.as_ref().map(|f| f.query.clone());
                self.set_filter(query.unwrap_or_default(), &incoming.uuid)
                    .await
            }
            _ => {
                self.filter = None;
                self.synchronise("SyncReply", &incoming.uuid, 0).await
            }
        }
    }

    async fn refuse(&mut self, uuid: &str, error: &str) -> Result<(), Closed> {
        let text = message::bad(NAMESPACE, "SyncReply", uuid, error);
        self.socket.send(text).await
    }

    /// Sends the complete graph.
    async fn synchronise(
        &mut self,
        kind: &'static str,
        uuid: &str,
        lost: u64,
    ) -> Result<(), Closed> {
        let graph = self.hub.engine.graph.clone();
        let uuid = uuid.to_owned();
        let (text, seen) = blocking(move || {
            let (export, seen) = {
                let graph = graph.read();
                (graph.export(), graph.stats().last_event)
            };
            (sync_text(kind, &uuid, &export, lost), seen)
        })
        .await?;
        self.seen = seen;
        self.socket.send(text).await
    }

    /// Sends the graph as it was.
    async fn show_past(&mut self, request: SyncRequest, uuid: &str) -> Result<(), Closed> {
        if request
            .gremlin_filter
            .is_some_and(|filter| !filter.is_empty())
        {
            let error = "Time and GremlinFilter cannot be combined: put At() into the query";
            return self.refuse(uuid, error).await;
        }
        let query = format!("G.At({})", request.time);
        match self.ask(query).await? {
            Ok(export) => {
                let text = sync_text("SyncReply", uuid, &export, 0);
                self.socket.send(text).await
            }
            Err(error) => self.refuse(uuid, &error).await,
        }
    }

    fn ask(
        &self,
        query: String,
    ) -> impl Future<Output = Result<Result<Export, String>, Closed>> + use<> {
        let engine = self.hub.engine.clone();
        async move {
            if query.len() > LONGEST {
                return Ok(Err("the query is too long".into()));
            }
            let cancel = Arc::new(AtomicBool::new(false));
            let _waiting = CancelOnDrop(cancel.clone());
            blocking(move || elements(&engine, &query, &cancel)).await
        }
    }

    /// Selects the elements that a query finds, from now on.
    async fn set_filter(&mut self, query: String, uuid: &str) -> Result<(), Closed> {
        match self.ask(query.clone()).await? {
            Ok(export) => {
                let text = sync_text("SyncReply", uuid, &export, 0);
                let view = Arc::new(View::of(export));
                self.filter = Some(Filter { query, view });
                self.socket.send(text).await
            }
            Err(error) => self.refuse(uuid, &error).await,
        }
    }

    async fn send(&mut self, mail: Mail) -> Result<(), Closed> {
        if self.filter.is_some() && !matches!(mail, Mail::Closed) {
            return self.refresh().await;
        }
        match mail {
            // Already part of the last sync.
            Mail::Message(message) if message.seq <= self.seen => Ok(()),
            Mail::Message(message) => {
                self.seen = message.seq;
                self.socket.send(message.text).await
            }
            Mail::Dropped(lost) => self.synchronise("Sync", "", lost).await,
            Mail::Closed => Err(Closed),
        }
    }

    /// After a change: runs the filter again, and sends the differences.
    async fn refresh(&mut self) -> Result<(), Closed> {
        // Changes come in bursts; one answer covers all of them.
        tokio::time::sleep(PAUSE).await;
        while let Some(mail) = self.mailbox.as_ref().and_then(|mailbox| mailbox.try_next()) {
            if matches!(mail, Mail::Closed) {
                return Err(Closed);
            }
        }
        let Some(filter) = &self.filter else {
            return Ok(());
        };
        let old = filter.view.clone();
        match self.ask(filter.query.clone()).await? {
            Ok(export) => {
                let (new, texts) = blocking(move || {
                    let new = View::of(export);
                    let texts = new.changes_since(&old);
                    (new, texts)
                })
                .await?;
                if let Some(filter) = &mut self.filter {
                    filter.view = Arc::new(new);
                }
                for text in texts {
                    self.socket.send(text).await?;
                }
                Ok(())
            }
            Err(error) => {
                let text = message::bad(NAMESPACE, "Error", "", &error);
                self.socket.send(text).await
            }
        }
    }
}

/// The next item of a mailbox; never without one.
async fn next(mailbox: Option<&Arc<Mailbox>>) -> Mail {
    match mailbox {
        Some(mailbox) => mailbox.next().await,
        None => std::future::pending().await,
    }
}

fn sync_text(kind: &str, uuid: &str, export: &Export, lost: u64) -> String {
    let obj = match lost {
        0 => json!({"Nodes": export.nodes, "Edges": export.edges}),
        lost => json!({"Nodes": export.nodes, "Edges": export.edges, "Lost": lost}),
    };
    message::good(NAMESPACE, kind, uuid, obj)
}
