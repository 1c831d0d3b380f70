//! Work that may wait, on threads of its own, with a turn of the client that wants it.

use std::future::Future;

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use skua_process::panics;

use crate::fair::{ClientKey, Turn, Turns};

tokio::task_local! {
    static CLIENT: (Turns, ClientKey);
}

/// Carries out a future in which [`blocking`] takes the turns of this client.
pub async fn of_client<F: Future>(turns: Turns, key: ClientKey, work: F) -> F::Output {
    CLIENT.scope((turns, key), work).await
}

/// Whose turns are taken here, for what goes on after the answer.
pub fn client() -> Option<(Turns, ClientKey)> {
    CLIENT.try_with(Clone::clone).ok()
}

/// A turn for the client whose request this is.
pub(crate) async fn turn() -> Result<Option<Turn>, Response> {
    let Some((turns, key)) = client() else {
        return Ok(None);
    };
    turns.take(&key).await.map(Some).map_err(|_| {
        let text = "too many requests of this client at a time\n";
        let later = [(header::RETRY_AFTER, "1")];
        (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response()
    })
}

/// Runs work that may wait.
pub async fn blocking(work: impl FnOnce() -> Response + Send + 'static) -> Response {
    let turn = match turn().await {
        Ok(turn) => turn,
        Err(busy) => return busy,
    };
    // The turn ends with the work, also when nobody waits for the answer any more.
    let done = tokio::task::spawn_blocking(move || (work(), turn)).await;
    match done {
        Ok((response, _turn)) => response,
        Err(error) => {
            if error.is_panic() {
                panics::count_request();
            }
            tracing::error!(%error, "an answer failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
