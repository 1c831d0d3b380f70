//! The analyzer's end of connections with agents.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use axum::{
    Extension,
    extract::{
        State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code},
    },
    http::HeaderMap,
    response::Response,
};
use skua_fleet::{
    analyzer::{Fleet, FleetStatus, Orders, session::Session},
    protocol::{self, FromAgent, Incoming, ToAgent, read_flows, read_text, signing::Sealer},
};
use skua_server::{
    answer::Answer,
    auth::{Caller, Identity, Peer},
    gate::Gate,
};
use tokio::sync::watch;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Time limit for the first message of a new connection.
const HELLO: Duration = Duration::from_secs(10);

/// Characters of a reason at most.
const REASON: usize = 400;

/// The paths of this module.
pub fn routes(fleet: Fleet) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(join_as_agent))
        .routes(routes!(agents))
        .with_state(fleet)
}

/// Agents that have reported their hosts, and their state
#[utoipa::path(get, path = "/api/agents", operation_id = "listAgents", tag = "agents",
    responses((status = 200, description = "The agents", body = FleetStatus)))]
async fn agents(State(fleet): State<Fleet>) -> Answer<FleetStatus> {
    Answer::of(&fleet.status())
}

/// For `skua agent`, which reports its host and receives captures to run
#[utoipa::path(get, path = "/ws/agent", operation_id = "joinAsAgent", tag = "websocket",
    responses((status = 101, description = "A WebSocket from here on")))]
async fn join_as_agent(
    State(fleet): State<Fleet>,
    caller: Option<Extension<Caller>>,
    gate: Option<Extension<Arc<Gate>>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let who = Who {
        identity: caller.and_then(|Extension(caller)| caller.identity),
        known_by: gate.zip(peer).map(|(gate, peer)| (gate.0, peer.0, headers)),
    };
    upgrade
        .max_message_size(protocol::MESSAGE)
        .max_frame_size(protocol::MESSAGE)
        .on_upgrade(|socket| serve(fleet, socket, who))
}

/// The identity of the other end, and its credentials.
struct Who {
    identity: Option<Identity>,
    known_by: Option<(Arc<Gate>, Peer, HeaderMap)>,
}

impl Who {
    /// The only host that it may report; none: any.
    fn only_host(&self) -> Option<&str> {
        self.identity.as_ref().and_then(Identity::only_host)
    }

    /// Whether its credentials are still valid: its token may have been revoked, or its certificate's user
    /// changed.
    async fn is_still_valid(&self) -> bool {
        let Some((gate, peer, headers)) = &self.known_by else {
            return true;
        };
        let caller = gate.authenticator.caller(peer, headers).await;
        caller.is_ok_and(|caller| caller.identity == self.identity)
    }
}

/// A reason as one line of limited length: parts of it may come from the agent.
fn one_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(REASON).collect()
}

async fn serve(fleet: Fleet, mut socket: WebSocket, who: Who) {
    // An agent that disconnects needs no answer.
    let Err(error) = exchange(&fleet, &mut socket, &who).await else {
        return;
    };
    let why = one_line(&error);
    tracing::warn!("agent refused: {why}");
    fleet.note_refusal();
    // The connection may be closed already.
    let _ = send(&mut socket, &ToAgent::Refused(why)).await;
    let frame = CloseFrame {
        code: close_code::POLICY,
        reason: "".into(),
    };
    let _ = socket.send(Message::Close(Some(frame))).await;
}

async fn send(socket: &mut WebSocket, message: &ToAgent) -> anyhow::Result<()> {
    let text = serde_json::to_string(message)?;
    Ok(socket.send(Message::Text(text.into())).await?)
}

fn read(message: Option<Result<Message, axum::Error>>) -> anyhow::Result<Incoming> {
    match message {
        None => Ok(Incoming::End),
        Some(Ok(Message::Text(text))) => read_text(&text),
        Some(Ok(Message::Binary(bytes))) => read_flows(&bytes),
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Incoming::Nothing),
        Some(Ok(Message::Close(_))) => Ok(Incoming::End),
        Some(Err(error)) => {
            let error = anyhow!(error);
            let hung_up = error
                .chain()
                .any(|cause| cause.downcast_ref::<std::io::Error>().is_some());
            if hung_up {
                return Ok(Incoming::End);
            }
            Err(error.context("cannot apply a message"))
        }
    }
}

/// Serves a connection until one side closes it; an error is the reason to close it.
async fn exchange(fleet: &Fleet, socket: &mut WebSocket, who: &Who) -> anyhow::Result<()> {
    let first = tokio::time::timeout(HELLO, socket.recv()).await;
    let hello = match read(first.context("the agent sent no message")?)? {
        Incoming::Message(hello) => hello,
        Incoming::End => return Ok(()),
        Incoming::Flows(_) | Incoming::Nothing => {
            bail!("the first message of an agent must be its Hello")
        }
    };
    let FromAgent::Hello {
        host, challenge, ..
    } = &hello
    else {
        bail!("the first message of an agent must be its Hello");
    };
    let mut sealer = Sealer::new(host, *challenge);
    if let Some(only) = who.only_host()
        && host != only
    {
        bail!("the token or certificate is for {only}: it cannot report {host}");
    }
    let (mut session, mut orders) = fleet.connect(hello)?;
    let version = env!("CARGO_PKG_VERSION").into();
    let sent = send(socket, &ToAgent::Welcome { version }).await;
    if sent.is_err() {
        return Ok(());
    }
    orders.mark_changed();
    let silence = Duration::from_secs(protocol::SILENCE);
    let mut beat = tokio::time::interval(Duration::from_secs(protocol::BEAT));
    let mut heard = tokio::time::Instant::now();
    loop {
        let sent = tokio::select! {
            message = socket.recv() => {
                let what = read(message)?;
                let accepted;
                (session, accepted) = match what {
                    Incoming::End => return Ok(()),
                    Incoming::Nothing => (session, None),
                    what => apply(session, what).await?,
                };
                heard = tokio::time::Instant::now();
                match accepted {
                    Some(number) => send(socket, &ToAgent::Taken(number)).await,
                    None => Ok(()),
                }
            }
            changed = orders.changed() => {
                changed.context("there is a newer connection")?;
                send_orders(fleet, &session, &mut sealer, socket, &mut orders).await?
            }
            _ = beat.tick() => {
                if heard.elapsed() > silence {
                    bail!("no message from {} for too long", session.host);
                }
                if !who.is_still_valid().await {
                    bail!("the token or certificate of {} is no longer valid", session.host);
                }
                Ok(socket.send(Message::Ping(Default::default())).await?)
            }
        };
        if sent.is_err() {
            return Ok(());
        }
    }
}

/// Sends orders; the outer error is why the connection must end, the inner one that it has ended.
async fn send_orders(
    fleet: &Fleet,
    session: &Session,
    sealer: &mut Sealer,
    socket: &mut WebSocket,
    orders: &mut watch::Receiver<Orders>,
) -> anyhow::Result<anyhow::Result<()>> {
    let refused = orders.borrow_and_update().refused.clone();
    if let Some(why) = refused {
        bail!("{why}");
    }
    let captures = sealer.seal(fleet.signer(), &fleet.assigned(&session.host))?;
    Ok(send(socket, &ToAgent::Captures(captures)).await)
}

/// Applies a message on a blocking thread, since the graph may be locked. Later messages wait in the socket.
/// However many agents connect at once, threads remain for clients.
async fn apply(mut session: Session, what: Incoming) -> anyhow::Result<(Session, Option<u64>)> {
    let turn = session.turn().await?;
    let work = move || -> anyhow::Result<(Session, Option<u64>)> {
        let accepted = match what {
            Incoming::Message(message) => session.apply(message).map(|()| None),
            Incoming::Flows(flows) => session.take_flows(flows).map(Some),
            Incoming::Nothing | Incoming::End => Ok(None),
        };
        let host = session.host.clone();
        let accepted = accepted.with_context(|| format!("agent of {host}"))?;
        drop(turn);
        Ok((session, accepted))
    };
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use skua_topology::{Config, Export, SharedGraph};
    use uuid::Uuid;

    use super::*;
    use skua_fleet::analyzer::FleetSettings;
    use skua_fleet::protocol::PROTOCOL;

    #[test]
    fn the_server_means_the_same_paths_and_types_as_what_it_serves() {
        assert_eq!(skua_server::paths::AGENTS, protocol::PATH);
        assert_eq!(skua_server::paths::PCAP, skua_server::paths::PCAP);
    }

    #[test]
    fn however_many_agents_connect_at_once_threads_are_left_for_others() {
        let graph = SharedGraph::new(Config::default());
        let settings = FleetSettings {
            host: "center".into(),
            memory: 1 << 20,
            patience: Duration::from_secs(60),
            signer: None,
        };
        let fleet = Fleet::new(graph.clone(), settings).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            // As many as the API has.
            .max_blocking_threads(8)
            .build()
            .unwrap();
        // Agents that report their graph wait for this.
        let (held, is_held) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            let guard = graph.write();
            held.send(()).unwrap();
            let _ = released.recv();
            drop(guard);
        });
        is_held.recv().unwrap();
        let accepted = runtime.block_on(async {
            let agents: Vec<_> = (0..50)
                .map(|number| {
                    let hello = FromAgent::Hello {
                        protocol: PROTOCOL,
                        version: "1".into(),
                        host: format!("host-{number}"),
                        instance: Uuid::new_v4(),
                        challenge: Uuid::new_v4(),
                    };
                    let (session, _) = fleet.connect(hello).unwrap();
                    let graph = Export::default();
                    let whole = FromAgent::Sync { graph, last: true };
                    tokio::spawn(apply(session, Incoming::Message(whole)))
                })
                .collect();
            // All agents wait for the graph.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            let answer = tokio::task::spawn_blocking(|| "an answer");
            let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
            assert_eq!(answer.unwrap().unwrap(), "an answer");
            assert!(agents.iter().all(|agent| !agent.is_finished()));
            drop(release);
            let mut accepted = 0;
            for agent in agents {
                accepted += usize::from(agent.await.unwrap().is_ok());
            }
            accepted
        });
        holder.join().unwrap();
        assert_eq!(accepted, 50);
    }
}
