//! Lookups in the API.

use axum::{
    extract::{Query, State as Extract},
    http::header,
    response::{IntoResponse as _, Response},
};
use skua_server::{
    answer::Parameters,
    blocking,
    error::{ApiError, ErrorCode},
};
use skua_state::Shared;
use skua_watch::dns::{self, DnsQuery};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::openapi::LookupLine;

/// The path.
pub const PATH: &str = "/api/dns";

const NOT_READ: &str = "what is said in conversations is not read: set app.enabled to true in the \
    configuration, or SKUA_APP_ENABLED=true, and start `skua run` again";

/// The routes.
pub fn routes(shared: Shared) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(lookups))
        .with_state(shared)
}

/// Questions to name servers with their answers, one JSON object a line, the latest at the end
#[utoipa::path(get, path = "/api/dns", operation_id = "lookups", tag = "flows", params(DnsQuery),
    responses((status = 200, description = "Lookups; with `summary` their sums by server", headers(("x-skua-drained" = u64)),
        content((LookupLine = "application/x-ndjson"), (String = "text/csv")))))]
async fn lookups(
    Extract(shared): Extract<Shared>,
    parameters: Parameters<DnsQuery>,
) -> Result<Response, ApiError> {
    let Query(query) = parameters?;
    query.check().map_err(ApiError::bad_request)?;
    let kind = match query.format.as_deref() {
        None | Some("json") => "application/x-ndjson",
        Some("csv") => "text/csv",
        Some(other) => {
            return Err(ApiError::bad_request(format_args!(
                "unknown format \"{other}\": json or csv"
            )));
        }
    };
    blocking(move || {
        // What is in the ring now is read by a drain.
        let log = shared.fresh().lookups.clone();
        let Some(log) = log else {
            return Err(ApiError::new(ErrorCode::Unavailable, NOT_READ));
        };
        let (all, last) = log.since(query.since);
        let mut body = Vec::new();
        dns::write(&mut body, &query, &all).map_err(ApiError::internal)?;
        let headers = [
            (header::CONTENT_TYPE.as_str(), kind.to_owned()),
            ("x-skua-drained", last.to_string()),
        ];
        Ok((headers, body).into_response())
    })
    .await
}
