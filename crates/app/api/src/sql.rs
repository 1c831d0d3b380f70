//! `/api/sql`.

use axum::response::Response;
use serde::Deserialize;
use skua_lake::Location;
use skua_server::error::{ApiError, ErrorCode};
use utoipa::IntoParams;

/// Rows of an answer, by default.
#[cfg(feature = "sql")]
const ROWS: usize = 1_000;
/// Rows of an answer at most.
#[cfg(feature = "sql")]
const MOST: usize = 10_000;
/// Bytes of an answer at most.
#[cfg(feature = "sql")]
const BYTES: usize = 16 << 20;
/// Limits on a query's memory and time: the page waits 15 s.
#[cfg(feature = "sql")]
const MEMORY: u64 = 256 << 20;
/// Bytes of a lake in an object store that are copied for a question.
#[cfg(feature = "sql")]
const COPY: u64 = 256 << 20;
#[cfg(feature = "sql")]
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(12);

/// Parameters of a request.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "sql"), allow(dead_code, reason = "no engine reads it"))]
pub struct SqlParameters {
    /// One `SELECT` in DuckDB's SQL; the tables are `flows` and `services`.
    statement: String,
    /// Only rows from this moment on: like `1h` ago, or `2026-11-21T10:00:00Z`.
    since: Option<String>,
    /// Only rows before this moment.
    until: Option<String>,
    /// Most rows, 1,000 by default and at most 10,000; `x-skua-more` is set if there are more.
    limit: Option<usize>,
}

/// How long a question waits for the one before.
#[cfg(feature = "sql")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// The answer of builds without an engine.
#[cfg(not(feature = "sql"))]
pub async fn answer(_: Location, _: SqlParameters) -> Result<Response, ApiError> {
    Err(ApiError::new(
        ErrorCode::NotImplemented,
        skua_archive::lake::sql::NO_ENGINE,
    ))
}

/// Answers with an object a line; one question at a time.
#[cfg(feature = "sql")]
pub async fn answer(location: Location, asked: SqlParameters) -> Result<Response, ApiError> {
    use axum::{http::header, response::IntoResponse as _};
    use skua_lake::LakeError;
    use tokio::sync::Semaphore;

    use skua_archive::lake::sql::{
        engine::{self, Question},
        print::Printer,
    };
    use skua_output::OutputFormat;
    use skua_server::blocking;

    static TURN: Semaphore = Semaphore::const_new(1);
    let Ok(Ok(turn)) = tokio::time::timeout(PATIENCE, TURN.acquire()).await else {
        let text = "another query in SQL is running: try again";
        return Err(ApiError::new(ErrorCode::Unavailable, text));
    };
    blocking(move || {
        let _turn = turn;
        let most = asked.limit.unwrap_or(ROWS).min(MOST);
        let question = Question {
            statement: asked.statement,
            since: asked.since,
            until: asked.until,
            memory: MEMORY,
            copy: COPY,
            timeout: TIMEOUT,
            format: OutputFormat::Json,
        };
        let mut printer = Printer::new(question.format, Bounded(Vec::new())).with_limit(most);
        let answered = engine::answer(&location, &question, &mut printer);
        let finished = answered.and_then(|()| Ok(printer.finish()?));
        match finished {
            Ok((Bounded(text), cut)) => {
                let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
                let mut response = (kind, text).into_response();
                if cut {
                    let more = header::HeaderValue::from_static("true");
                    response.headers_mut().insert("x-skua-more", more);
                }
                Ok(response)
            }
            Err(error) => {
                let code = match error.downcast_ref() {
                    Some(LakeError::Storage { .. }) => ErrorCode::Internal,
                    _ => ErrorCode::BadRequest,
                };
                Err(ApiError::new(code, skua_output::one_line(&error)))
            }
        }
    })
    .await
}

/// A buffer with a limit.
#[cfg(feature = "sql")]
struct Bounded(Vec<u8>);

#[cfg(feature = "sql")]
impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > BYTES {
            return Err(std::io::Error::other(
                "the answer is longer than 16 MiB: select fewer rows or columns",
            ));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
