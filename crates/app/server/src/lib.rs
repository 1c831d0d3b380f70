//! Serves the API: addresses, TLS, authentication, and fairness between clients.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod alive;
pub mod answer;
pub mod auth;
mod body;
pub mod connections;
pub mod console;
pub mod error;
pub mod fair;
pub mod gate;
mod guard;
pub mod local;
pub mod login;
mod paced;
pub mod paths;
mod serve;
mod stream;
pub mod tls;
pub mod work;

pub use stream::{Answering, Writer, streaming};
pub use work::blocking;

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{Router, middleware};
use skua_config::Config;
use skua_process::panics;

use crate::{
    auth::{Authenticator, Identity, Role},
    connections::Connections,
    fair::{FairLimits, Turns},
    gate::Gate,
    guard::Guard,
    local::LocalSocket,
    tls::TlsFiles,
};

/// Time limits and limits on concurrent work.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Time for the handshake of TLS.
    pub handshake: Duration,
    /// Time for the headers of a request, and between requests.
    pub headers: Duration,
    /// Time for a body.
    pub body: Duration,
    /// Time in which a client must read a part of its answer.
    pub reading: Duration,
    /// Work at a time.
    pub work: FairLimits,
    /// WebSockets of all clients.
    pub subscribers: usize,
    /// WebSockets of one client.
    pub subscribers_of_one: usize,
    /// Bytes that wait for a WebSocket at most.
    pub waiting: usize,
    /// Time between pings of a WebSocket.
    pub ping: Duration,
}

/// Threads for blocking work of subscribers and password checks.
const THREADS: usize = 8;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(30),
            body: Duration::from_secs(30),
            reading: Duration::from_secs(30),
            work: FairLimits {
                running: THREADS - 2,
                running_of_one: 4,
                waiting_of_one: 32,
                patience: Duration::from_secs(10),
            },
            subscribers: 64,
            subscribers_of_one: 16,
            waiting: 8 << 20,
            ping: Duration::from_secs(30),
        }
    }
}

/// Bound addresses, served once there is something to serve.
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    tls: Option<Arc<TlsFiles>>,
    authenticator: Authenticator,
    config: Config,
    limits: Limits,
    connections: Arc<Connections>,
    local: Option<LocalSocket>,
}

impl Server {
    /// Binds, and reads the files of TLS, users and tokens. The socket of this host's users is at
    /// `usual` when the configuration leaves that to us.
    pub fn bind(config: &Config, usual: &str) -> anyhow::Result<Self> {
        let api = &config.api;
        let tls = tls::open(&api.tls)?.map(Arc::new);
        let authenticator = Authenticator::open(api)?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &api.listen {
            let listener = TcpListener::bind(address).with_context(|| {
                format!(
                    "cannot listen on {address} (is a `skua run` there already? --listen takes \
                     another)"
                )
            })?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            listeners.push(listener);
        }
        let local = local::bind(api, usual)?;
        let limits = Limits::default();
        Ok(Self {
            local,
            connections: Connections::new(limits.connections),
            limits,
            listeners,
            addresses,
            tls,
            authenticator,
            config: config.clone(),
        })
    }

    /// With other limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self.connections = Connections::new(limits.connections);
        self
    }

    /// The first address as a URL; without one the socket.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.addresses
            .first()
            .map(|address| format!("{scheme}://{address}"))
            .or_else(|| {
                let local = self.local.as_ref()?;
                Some(format!("unix:{}", local.path.display()))
            })
            .unwrap_or_default()
    }

    /// The URL of the page, from this host.
    fn page(&self) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let first = self.addresses.first()?;
        let host = match (self.config.api.names.first(), first.ip()) {
            // A certificate is for a name.
            (Some(name), _) if self.tls.is_some() => name.clone(),
            (_, IpAddr::V4(any)) if any.is_unspecified() => "127.0.0.1".to_owned(),
            (_, IpAddr::V6(any)) if any.is_unspecified() => "[::1]".to_owned(),
            (_, IpAddr::V6(ip)) => format!("[{ip}]"),
            (_, IpAddr::V4(ip)) => ip.to_string(),
        };
        Some(format!("{scheme}://{host}:{}", first.port()))
    }

    /// A link to the page with a code for one login as admin, for the user who started this
    /// process.
    pub fn link(&self) -> anyhow::Result<Option<String>> {
        let Some(page) = self.page() else {
            return Ok(None);
        };
        let identity = Identity {
            name: "console".into(),
            role: Role::Admin,
        };
        let code = self.authenticator.new_code(identity)?;
        Ok(Some(login::link(&page, &code)))
    }

    /// The sockets that listen.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.as_fd())
    }

    /// The addresses that are bound.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The connections that are open.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Time limits and limits on concurrent work.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Serves routes on a thread of its own until the process ends.
    pub fn serve(self, routes: Router) -> anyhow::Result<()> {
        skua_process::descriptors::make_room(self.limits.connections as u64 + 1024);
        let gate = Arc::new(Gate {
            guard: Guard {
                names: self.config.api.names.clone(),
                tls: self.tls.is_some(),
            },
            page: self.page().unwrap_or_default(),
            authenticator: self.authenticator,
            metrics: self.config.api.metrics,
            tls: self.tls.is_some(),
            turns: Turns::new(self.limits.work),
            body_time: self.limits.body,
        });
        let reload = (self.tls.is_some() || self.config.api.authenticates())
            .then(hang_ups)
            .transpose()?;
        let app = routes
            .fallback(async || error::ApiError::not_found("there is no such path; GET / lists all"))
            .layer(middleware::from_fn_with_state(gate.clone(), gate::pass));
        let service = serve::Service {
            app,
            tls: self.tls,
            connections: self.connections,
            limits: self.limits,
        };
        let listeners = (self.listeners, self.local);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // Answers wait for a lock and for drains, on threads of their own.
            .max_blocking_threads(THREADS)
            .build()?;
        std::thread::Builder::new()
            .name("http".into())
            .spawn(move || {
                let serving = panics::request(serve::serve(listeners, service, gate, reload));
                match runtime.block_on(serving) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => tracing::error!("the API ended: {error}"),
                    None => panics::end_process("http"),
                }
            })?;
        Ok(())
    }
}

/// Readable after a SIGHUP. Without files to read again, SIGHUP ends the process by default.
fn hang_ups() -> anyhow::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    writer.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGHUP, writer)?;
    Ok(reader)
}
