//! Work that may wait, on threads of its own, with a turn of the client that wants it.

use std::future::Future;

use skua_process::panics;

use crate::{
    error::{ApiError, ErrorCode},
    fair::{ClientKey, Turn, Turns},
};

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
pub(crate) async fn turn() -> Result<Option<Turn>, ApiError> {
    let Some((turns, key)) = client() else {
        return Ok(None);
    };
    turns.acquire(&key).await.map(Some).map_err(|_| ApiError {
        code: ErrorCode::Unavailable,
        message: "too many requests of this client at a time".into(),
        retry_after: Some(1),
    })
}

/// Runs work that may wait.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let turn = turn().await?;
    // The turn ends with the work, also when nobody waits for the answer any more.
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
