//! Blocking work on threads of its own, with a turn of the client.

use std::future::Future;

use skua_process::panics;

use crate::{
    error::{ApiError, ErrorCode},
    fair::{ClientKey, Turn, Turns},
};

tokio::task_local! {
    static CLIENT: (Turns, ClientKey);
}

/// Runs a future in which [`blocking`] uses the turns of this client.
pub async fn of_client<F: Future>(turns: Turns, key: ClientKey, work: F) -> F::Output {
    CLIENT.scope((turns, key), work).await
}

/// The client and its turns, for work that continues after the answer.
pub fn client() -> Option<(Turns, ClientKey)> {
    CLIENT.try_with(Clone::clone).ok()
}

/// A turn for the client of this request.
pub(crate) async fn turn() -> Result<Option<Turn>, ApiError> {
    let Some((turns, key)) = client() else {
        return Ok(None);
    };
    turns.acquire(&key).await.map(Some).map_err(|_| ApiError {
        code: ErrorCode::Unavailable,
        message: "too many requests from this client at a time".into(),
        retry_after: Some(1),
    })
}

/// Runs work that may wait.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let turn = turn().await?;
    // The turn ends with the work, also if the client has disconnected.
    let done = tokio::task::spawn_blocking(move || (work(), turn)).await;
    match done {
        Ok((answer, _turn)) => answer,
        Err(error) => {
            if error.is_panic() {
                panics::count_request();
            }
            tracing::error!(%error, "an answer failed");
            Err(ApiError::internal("the answer failed; the log says why"))
        }
    }
}
