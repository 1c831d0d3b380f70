//! `/ws/map`: the map of `/api/map` and its changes; and lists that the page shows.

use std::time::Duration;

use axum::{extract::State, response::Response};
use skua_process::host::unix_ms;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::{
    map::{self, Picture},
    ws::{
        Hub,
        socket::{Closed, Socket, SocketRequest},
        watch::Watches,
    },
};

/// The graph is read at most once in this time, and only after events. All changes of an element in
/// between are one change.
const PAUSE: Duration = Duration::from_millis(250);
/// After this many pauses the graph is read even without events, to send rates that have ended.
const REST: u32 = 8;

/// The map of /api/map, complete and then its changes, at most four times a second
#[utoipa::path(get, path = "/ws/map", operation_id = "watchMap", tag = "websocket",
    responses((status = 101, description = "A WebSocket from here on")))]
pub async fn subscribe(State(hub): State<Hub>, request: SocketRequest) -> Response {
    let all = hub.clone();
    request.open(&hub, async move |socket| {
        // Ends with the connection.
        let _ = serve(all, socket).await;
    })
}

async fn serve(hub: Hub, mut socket: Socket) -> Result<(), Closed> {
    let mut picture = Picture::default();
    let mut sent = None;
    let mut rested = 0;
    let mut watches = Watches::new(hub.routes.clone());
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            text = socket.next() => {
                if let Err(why) = watches.handle_message(&text?) {
                    socket.send(serde_json::json!({"Error": why}).to_string()).await?;
                }
            }
            () = due(&watches) => {
                if let Some(text) = watches.poll().await {
                    socket.send(text).await?;
                }
            }
            // A client that stops to watch the map gets the changes when it watches again.
            _ = ticks.tick(), if watches.map || sent.is_none() => {
                let last = map::last_event(&hub.engine);
                rested += 1;
                if sent == Some(last) && rested < REST {
                    continue;
                }
                rested = 0;
                let engine = hub.engine.clone();
                let (after, text) = crate::ws::blocking(move || {
                    let (export, begins) = map::snapshot(&engine);
                    let changes = picture.changes(export, begins, unix_ms());
                    let text = (sent.is_none() || !changes.is_empty())
                        .then(|| serde_json::to_string(&changes).unwrap_or_default());
                    (picture, text)
                })
                .await?;
                picture = after;
                sent = Some(last);
                if let Some(text) = text {
                    socket.send(text).await?;
                }
            }
        }
    }
}

/// Waits until a list is due.
async fn due(watches: &Watches) {
    match watches.due() {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
