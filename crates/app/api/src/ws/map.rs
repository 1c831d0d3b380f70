//! `/ws/map`: the map of `/api/map`, and its changes as they come; and lists that the page shows.

use std::time::Duration;

use axum::{extract::State, response::Response};
use skua_process::host::unix_ms;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::{
    map::{self, Picture},
    ws::{
        Hub,
        socket::{Asked, Gone, Socket},
        watch::Watches,
    },
};

/// The graph is looked at no more often than this, and only when something has happened. All that happens
/// in between to an element is one change.
const PAUSE: Duration = Duration::from_millis(250);
/// So many pauses it may not be looked at when nothing happens: what rests is told then.
const REST: u32 = 8;

/// The map of /api/map, whole and then what changes, at most four times a second
#[utoipa::path(get, path = "/ws/map", operation_id = "watchMap", tag = "websocket",
    responses((status = 101, description = "A WebSocket from here on")))]
pub async fn subscribe(State(hub): State<Hub>, asked: Asked) -> Response {
    let all = hub.clone();
    asked.open(&hub, async move |socket| {
        // Ends with the connection, and that is all there is to say.
        let _ = serve(all, socket).await;
    })
}

async fn serve(hub: Hub, mut socket: Socket) -> Result<(), Gone> {
    let mut picture = Picture::default();
    let mut told = None;
    let mut rested = 0;
    let mut watches = Watches::new(hub.routes.clone());
    let mut looks = interval(PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            // Who does not look at the map is told when it is looked at again.
            _ = looks.tick(), if watches.map || told.is_none() => {
                let last = map::last_event(&hub.analyzer);
                rested += 1;
                if told == Some(last) && rested < REST {
                    continue;
                }
                rested = 0;
                let analyzer = hub.analyzer.clone();
                let (after, text) = crate::ws::blocking(move || {
                    let (export, begins) = map::snapshot(&analyzer);
                    let changes = picture.changes(export, begins, unix_ms());
                    let text = (told.is_none() || !changes.is_empty())
                        .then(|| serde_json::to_string(&changes).unwrap_or_default());
                    (picture, text)
                })
                .await?;
                picture = after;
                told = Some(last);
                if let Some(text) = text {
                    socket.send(text).await?;
                }
            }
        }
    }
}

/// Waits until a list is to be looked at.
async fn due(watches: &Watches) {
    match watches.due() {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
