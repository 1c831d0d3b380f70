//! One WebSocket: its client, and keepalive.

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{
        FromRequestParts,
        ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code},
    },
    http::{HeaderMap, HeaderValue, StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
};
use skua_server::{
    auth::Peer,
    error::ApiError,
    fair::{ClientKey, network},
    gate::Gate,
    work,
};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::ws::{Hub, MESSAGE, SocketSlot};

/// Pings that may stay unanswered.
const UNANSWERED: u32 = 2;

/// A request for a WebSocket.
pub struct SocketRequest {
    upgrade: WebSocketUpgrade,
    headers: HeaderMap,
    parameters: Vec<(String, String)>,
    gate: Arc<Gate>,
    peer: Peer,
}

impl<S: Send + Sync> FromRequestParts<S> for SocketRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        let upgrade =
            upgrade.map_err(|e| (e.status(), format!("{}\n", e.body_text())).into_response())?;
        let failed = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
        let gate = Extension::<Arc<Gate>>::from_request_parts(parts, state).await;
        let peer = Extension::<Peer>::from_request_parts(parts, state).await;
        let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let parameters = query.map_err(|e| ApiError::from(e).into_response())?.0;
        Ok(Self {
            upgrade,
            headers: parts.headers.clone(),
            parameters,
            gate: gate.map_err(|e| failed(e.into_response()))?.0,
            peer: peer.map_err(|e| failed(e.into_response()))?.0,
        })
    }
}

impl SocketRequest {
    /// The values of a header, or of the parameter of its name in small letters, which browsers use.
    pub fn values(&self, header: &str) -> Vec<String> {
        let headers = self.headers.get_all(header).iter();
        let headers = headers.filter_map(|value| Some(value.to_str().ok()?.to_owned()));
        let parameters = self.parameters.iter();
        let parameters = parameters.filter(|(name, _)| name.eq_ignore_ascii_case(header));
        headers
            .chain(parameters.map(|(_, value)| value.clone()))
            .collect()
    }

    /// Whether it subscribes to a namespace: by the header or parameter `X-Websocket-Namespace`, or
    /// to all without one.
    pub fn wants(&self, namespace: &str) -> bool {
        let named = self.values("X-Websocket-Namespace");
        named.is_empty() || named.iter().any(|name| name == "*" || name == namespace)
    }

    /// Opens it, if the limits allow one more, and serves it until `work` ends.
    pub fn open<F, W>(self, hub: &Hub, work: W) -> Response
    where
        F: Future<Output = ()> + Send,
        W: FnOnce(Socket) -> F + Send + 'static,
    {
        let (turns, client) = work::client().unwrap_or_else(|| {
            let client = ClientKey::Address(network(self.peer.address));
            (self.gate.turns.clone(), client)
        });
        let Some(seat) = hub.places.acquire(client.clone()) else {
            let text = "too many WebSockets are open\n";
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                [("retry-after", "10")],
                text,
            )
                .into_response();
        };
        let ping = hub.ping;
        let mut upgrade = self
            .upgrade
            .max_message_size(MESSAGE)
            .max_frame_size(MESSAGE);
        if upgrade.requested_protocols().next().is_some() {
            upgrade = upgrade.protocols(["skydive"]);
        }
        let (gate, peer, headers) = (self.gate, self.peer, self.headers);
        let mut answer = upgrade.on_upgrade(async move |inner| {
            let socket = Socket::new(inner, seat, ping, gate, peer, headers);
            work::of_client(turns, client, work(socket)).await;
        });
        // Skydive's clients hang up without these.
        let said = answer.headers_mut();
        said.insert("x-host-id", hub.host.clone());
        said.insert("x-service-type", HeaderValue::from_static("analyzer"));
        answer
    }
}

/// A WebSocket.
pub struct Socket {
    inner: WebSocket,
    pings: Interval,
    unanswered: u32,
    gate: Arc<Gate>,
    peer: Peer,
    headers: HeaderMap,
    _seat: SocketSlot,
}

/// The WebSocket is closed.
#[derive(Debug)]
pub struct Closed;

impl Socket {
    fn new(
        inner: WebSocket,
        seat: SocketSlot,
        ping: Duration,
        gate: Arc<Gate>,
        peer: Peer,
        headers: HeaderMap,
    ) -> Self {
        let mut pings = interval_at(Instant::now() + ping, ping);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            inner,
            pings,
            unanswered: 0,
            gate,
            peer,
            headers,
            _seat: seat,
        }
    }

    /// Sends a text.
    pub async fn send(&mut self, text: impl Into<Utf8Bytes>) -> Result<(), Closed> {
        self.inner
            .send(Message::Text(text.into()))
            .await
            .map_err(|_| Closed)
    }

    /// The client's next message. While it waits, it pings the client and checks that its credentials
    /// are still valid. Cancellation loses nothing.
    pub async fn next(&mut self) -> Result<String, Closed> {
        loop {
            tokio::select! {
                message = self.inner.recv() => {
                    let Some(Ok(message)) = message else {
                        // For example too long; the protocol reports it to the client.
                        return Err(Closed);
                    };
                    self.unanswered = 0;
                    match message {
                        Message::Text(text) => return Ok(text.to_string()),
                        // Skydive's clients send JSON as binary messages, too.
                        Message::Binary(bytes) => match String::from_utf8(bytes.into()) {
                            Ok(text) => return Ok(text),
                            Err(_) => {
                                self.close(close_code::UNSUPPORTED, "messages must be text").await;
                                return Err(Closed);
                            }
                        },
                        Message::Close(_) => return Err(Closed),
                        Message::Ping(_) | Message::Pong(_) => {}
                    }
                }
                _ = self.pings.tick() => self.check().await?,
            }
        }
    }

    async fn check(&mut self) -> Result<(), Closed> {
        if self.unanswered >= UNANSWERED {
            self.close(close_code::AWAY, "no answer to pings").await;
            return Err(Closed);
        }
        let authenticator = &self.gate.authenticator;
        let caller = authenticator.caller(&self.peer, &self.headers).await;
        if caller.is_err() {
            self.close(close_code::POLICY, "the login is no longer valid")
                .await;
            return Err(Closed);
        }
        self.unanswered += 1;
        let ping = Message::Ping(Default::default());
        self.inner.send(ping).await.map_err(|_| Closed)
    }

    /// Closes it with a reason.
    pub async fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame {
            code,
            reason: Utf8Bytes::from_static(reason),
        };
        // It ends anyway.
        let _ = self.inner.send(Message::Close(Some(frame))).await;
    }
}
