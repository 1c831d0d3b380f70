//! The analyzer's end of connections with agents.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::{
        State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code},
    },
    response::Response,
    routing::{any, get},
};
use tokio::sync::mpsc;

use super::{
    fleet::{AgentStatus, Fleet, Session},
    protocol::{self, FromAgent, ToAgent},
};

/// Messages of an agent that wait to be worked on; then it has to wait.
const WAITING: usize = 64;

/// The paths of this module.
pub fn routes(fleet: Fleet) -> Router {
    Router::new()
        .route(protocol::PATH, any(upgrade))
        .route("/api/agents", get(agents))
        .with_state(fleet)
}

async fn agents(State(fleet): State<Fleet>) -> Json<Vec<AgentStatus>> {
    Json(fleet.agents())
}

async fn upgrade(State(fleet): State<Fleet>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .max_message_size(protocol::MESSAGE)
        .max_frame_size(protocol::MESSAGE)
        .on_upgrade(|socket| talk(fleet, socket))
}

/// Forgets agents that are gone for long, as long as the runtime lasts.
pub async fn expire(fleet: Fleet) {
    loop {
        tokio::time::sleep(super::fleet::PATIENCE / 4).await;
        let fleet = fleet.clone();
        // It may wait for the graph.
        let _ = tokio::task::spawn_blocking(move || fleet.expire()).await;
    }
}

/// Says why, and ends the connection.
async fn refuse(mut socket: WebSocket, why: &str) {
    tracing::warn!(why, "agent refused");
    let told = serde_json::to_string(&ToAgent::Refused(why.into())).unwrap_or_default();
    // It may be gone already.
    let _ = socket.send(Message::Text(told.into())).await;
    let frame = CloseFrame {
        code: close_code::POLICY,
        reason: "".into(),
    };
    let _ = socket.send(Message::Close(Some(frame))).await;
}

/// What was understood of a message; none when there is nothing to do.
enum Heard {
    Message(Box<FromAgent>),
    Flows(Box<protocol::Flows>),
}

fn read(message: Message) -> Result<Option<Heard>, String> {
    match message {
        Message::Text(text) => serde_json::from_str(&text)
            .map(|message| Some(Heard::Message(Box::new(message))))
            .map_err(|error| format!("a message is not understood: {error}")),
        Message::Binary(bytes) => rmp_serde::from_slice(&bytes)
            .map(|flows| Some(Heard::Flows(Box::new(flows))))
            .map_err(|error| format!("flows are not understood: {error}")),
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Ok(None),
    }
}

async fn talk(fleet: Fleet, mut socket: WebSocket) {
    let silence = Duration::from_secs(protocol::SILENCE);
    let first = tokio::time::timeout(silence, socket.recv()).await;
    let hello = match first {
        Ok(Some(Ok(message))) => read(message),
        _ => return,
    };
    let (send, mut to_send) = mpsc::unbounded_channel();
    let session = match hello {
        Ok(Some(Heard::Message(hello))) => fleet.connect(*hello, send),
        Ok(_) => Err(anyhow::anyhow!("an agent has to say who it is first")),
        Err(why) => Err(anyhow::anyhow!(why)),
    };
    let session = match session {
        Ok(session) => session,
        Err(error) => return refuse(socket, &error.to_string()).await,
    };
    let (work, to_do) = mpsc::channel(WAITING);
    // The graph may be locked for a while: that is waited for elsewhere.
    let mut worker = tokio::task::spawn_blocking(move || digest(session, to_do));
    let mut beat = tokio::time::interval(Duration::from_secs(protocol::BEAT));
    let mut heard = tokio::time::Instant::now();
    let why = loop {
        tokio::select! {
            message = socket.recv() => {
                heard = tokio::time::Instant::now();
                let Some(Ok(message)) = message else { break None };
                match read(message) {
                    Ok(Some(message)) => if work.send(message).await.is_err() { break None },
                    Ok(None) => {}
                    Err(why) => break Some(why),
                }
            }
            message = to_send.recv() => {
                let Some(message) = message else { break None };
                let last = matches!(message, ToAgent::Refused(_));
                let text = serde_json::to_string(&message).unwrap_or_default();
                if socket.send(Message::Text(text.into())).await.is_err() || last { break None }
            }
            _ = beat.tick() => {
                if heard.elapsed() > silence { break Some("nothing was heard for too long".into()) }
                if socket.send(Message::Ping(Default::default())).await.is_err() { break None }
            }
            done = &mut worker => {
                break match done {
                    Ok(Err(error)) => Some(error.to_string()),
                    _ => None,
                };
            }
        }
    };
    if let Some(why) = why {
        refuse(socket, &why).await;
    }
}

/// Works on messages one after the other, until there are no more or one is wrong.
fn digest(mut session: Session, mut to_do: mpsc::Receiver<Heard>) -> anyhow::Result<()> {
    while let Some(message) = to_do.blocking_recv() {
        let done = match message {
            Heard::Message(message) => session.take(*message),
            Heard::Flows(flows) => session.take_flows(*flows),
        };
        if let Err(error) = done {
            tracing::warn!(host = %session.host, %error, "agent cut off");
            return Err(error);
        }
    }
    Ok(())
}
