//! The server with real sockets.

mod described;
mod drains;
mod people;
mod pressure;
mod skydive;
mod sockets;

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::Router;
use serde_json::Value;
use skua_control::{Resources, capture::CaptureManager};
use skua_flow::FlowUpdate;
use skua_probe::LiveAddresses;
pub use skua_testkit::{
    lab::wait_for,
    scratch::{Scratch, scratch, secret},
};
use skua_topology::SharedGraph;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use skua_config::Config;
use skua_export::services::ServiceGraph;
use skua_fleet::analyzer::{Fleet, FleetSettings};
use skua_runtime::{
    actions::Actions,
    captures::{ovs::Switch, run::LocalRunner},
    query_engine::QueryEngine,
};
use skua_server::{
    Limits, Server, alive,
    auth::{
        Role,
        tokens::{self, Token, Tokens},
    },
    connections::Connections,
};
use skua_state::{Observers, Shared, State, captures::CaptureSets};

use crate::{
    health::Health,
    skydive::{captures::Captures, upload::Uploads},
    ws::Parts,
};

/// The capture that flows are of.
pub const CAPTURE: Uuid = Uuid::from_u128(0xcafe);

/// A served state without a probe: tests add drained records themselves.
pub struct Running {
    pub address: SocketAddr,
    pub graph: SharedGraph,
    pub connections: Arc<Connections>,
    /// The token of requests without credentials; empty if the test adds them.
    pub bearer: String,
    /// Another one.
    pub other: String,
    _tokens: Option<Scratch>,
    pub shared: Shared,
    updates: Arc<Mutex<Vec<FlowUpdate>>>,
}

/// Routes on a state of its own, with what drains it.
pub fn routes() -> (
    OpenApiRouter,
    QueryEngine,
    Shared,
    Arc<Mutex<Vec<FlowUpdate>>>,
    Actions,
) {
    let (mut wake, waker) = UnixStream::pair().unwrap();
    waker.set_nonblocking(true).unwrap();
    let mut state = State::new(256 << 20, 100_000, 1, 1);
    state.set_origin("here", Some(CAPTURE), None, Observers::default());
    let shared = Shared::new(state, waker);
    let updates = Arc::<Mutex<Vec<FlowUpdate>>>::default();
    let (drained, waiting) = (shared.clone(), updates.clone());
    std::thread::spawn(move || {
        // As the thread of a probe.
        while matches!(wake.read(&mut [0; 64]), Ok(1..)) {
            let mut state = drained.write();
            state.begin_drain();
            for update in waiting.lock().unwrap().drain(..) {
                state.apply(&update);
            }
            state.drains += 1;
            drop(state);
            drained.announce();
        }
    });
    let graph = SharedGraph::new(Default::default());
    let sets = CaptureSets::default();
    let runner = LocalRunner {
        config: Config::default(),
        sets: sets.clone(),
        graph: graph.clone(),
        observers: Observers::default(),
        switch: Switch::new(None),
    };
    let uploads = Uploads::new(runner.clone());
    let kept = Resources::open(None, 10);
    let manager = CaptureManager::start(graph.clone(), kept, Arc::new(runner)).unwrap();
    let captures = Captures {
        captures: Arc::new(manager),
        sets: sets.clone(),
        uploads,
        host: "here".into(),
    };
    let settings = FleetSettings {
        host: "here".into(),
        memory: 1 << 20,
        patience: Duration::from_secs(60),
        signer: None,
    };
    let fleet = Some(Fleet::new(graph.clone(), settings).unwrap());
    let health = Health::new(&graph, None, None, &captures).with_ends(fleet.clone(), None);
    let engine = QueryEngine::new(graph, shared.clone(), sets, None);
    let readable = shared.clone();
    let live = LiveAddresses::new(100, |_| Ok(()));
    let actions = Actions::start(&Config::default(), &engine, &shared, true).unwrap();
    let routes = crate::routes(
        shared.clone(),
        Some(live),
        engine.clone(),
        captures,
        fleet,
        &actions,
        health,
    )
    .merge(alive::routes(alive::Signs {
        drains: None,
        state: Some(alive::Readable::new(move || drop(readable.read()))),
    }))
    .merge(crate::services::routes(ServiceGraph::default()));
    (routes, engine, shared, updates, actions)
}

impl Running {
    /// With a configuration of the API, as YAML, and more routes.
    pub fn start(api: &str, limits: Limits, more: Router) -> Self {
        let mut bearers = [String::new(), String::new()];
        let mut api = api.to_owned();
        let mut kept = None;
        if !api.contains("users:") && !api.contains("tokens:") {
            let mut list = Tokens::default();
            for (number, bearer) in bearers.iter_mut().enumerate() {
                *bearer = tokens::new_token().unwrap();
                list.0.push(Token {
                    name: format!("test{number}"),
                    role: Role::Admin,
                    end: None,
                    hash: tokens::hash(bearer),
                });
            }
            let tokens = secret("tokens", &list.text());
            api += &format!(", tokens: {}", tokens.display());
            kept = Some(tokens);
        }
        if !api.contains("socket:") {
            api += ", socket: ''";
        }
        let text = format!("api: {{listen: '127.0.0.1:0'{api}}}");
        let file = secret("config", &text);
        let config = Config::load(Some(&file)).unwrap();
        let (routes, engine, shared, updates, actions) = routes();
        let graph = engine.graph.clone();
        let server = Server::bind(&config, "").unwrap().with_limits(limits);
        let address = server.addresses()[0];
        let connections = server.connections().clone();
        let parts = Parts::new(&engine, &shared, &actions);
        let routes = crate::complete(routes.merge(more.into()), parts, &config, &limits);
        server.serve(routes).unwrap();
        let [bearer, other] = bearers;
        Self {
            bearer,
            other,
            _tokens: kept,
            address,
            graph,
            connections,
            shared,
            updates,
        }
    }

    /// With the default configuration.
    pub fn plain() -> Self {
        Self::start("", Limits::default(), Router::new())
    }

    /// Adds the updates of a drain.
    pub fn drain(&self, updates: Vec<FlowUpdate>) {
        *self.updates.lock().unwrap() = updates;
        wait_for("drain", || {
            drop(self.shared.fresh());
            self.updates.lock().unwrap().is_empty().then_some(())
        });
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// From another address of this machine.
    pub fn connect_from(&self, from: [u8; 4]) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&stream, &SocketAddr::new(IpAddr::from(from), 0)).unwrap();
        connect(&stream, &self.address).unwrap();
        stream.into()
    }

    /// The bytes of a request. `head` is method, path and headers, as `GET /\r\nA: b`.
    pub fn request(&self, head: &str, body: &str) -> String {
        let (first, rest) = head.split_once("\r\n").unwrap_or((head, ""));
        let rest = if rest.is_empty() {
            "".into()
        } else {
            format!("{rest}\r\n")
        };
        let length = match body {
            "" => String::new(),
            body => format!("Content-Length: {}\r\n", body.len()),
        };
        let host = self.address;
        let shown = ["Authorization:", "X-Auth-Token:", "Cookie:"];
        let rest = match self.bearer.as_str() {
            "" => rest,
            _ if shown.iter().any(|name| rest.contains(name)) => rest,
            bearer => format!("Authorization: Bearer {bearer}\r\n{rest}"),
        };
        format!("{first} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{rest}{length}\r\n{body}")
    }

    pub fn ask(&self, head: &str, body: &str) -> Reply {
        self.ask_over(self.connect(), head, body)
    }

    pub fn ask_over(&self, mut stream: TcpStream, head: &str, body: &str) -> Reply {
        stream
            .write_all(self.request(head, body).as_bytes())
            .unwrap();
        Reply::read(stream)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask(&format!("GET {path}"), "")
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{text:?}"));
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().skip(1).filter_map(|l| l.split_once(": "));
        let mut pairs = pairs.filter(|(n, _)| n.eq_ignore_ascii_case(name));
        pairs.next().map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}
