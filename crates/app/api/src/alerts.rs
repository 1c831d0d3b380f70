//! `/api/alert`.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::get,
};
use serde_json::{Value, json};
use skua_analyzer::alert::{Alert, AlertError, AlertManager, AlertStatus};
use skua_server::{answer::bad_request, blocking};

use crate::resource;

/// Bytes of a request at most.
const BODY: usize = 256 << 10;

/// The paths of this module.
pub fn routes(alerts: Arc<AlertManager>) -> Router {
    Router::new()
        .route("/api/alert", get(list).post(create))
        .route("/api/alert/{id}", get(one).patch(change).delete(remove))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(alerts)
}

/// An alert with its status.
fn shown((alert, status, action): (Alert, AlertStatus, Option<String>)) -> Value {
    let mut value = json!(alert);
    let more = json!(status);
    for (key, part) in more.as_object().into_iter().flatten() {
        value[key] = part.clone();
    }
    if let Some(error) = action {
        value["ActionError"] = error.into();
    }
    value
}

fn refused(error: &AlertError) -> Response {
    match error {
        AlertError::Wrong(why) => bad_request(why),
        AlertError::Resource(error) => resource::refused(error),
    }
}

/// Answers with an alert, or why not.
fn answer(status: StatusCode, done: Result<Value, AlertError>) -> Response {
    match done {
        Ok(value) => resource::answer(status, &value),
        Err(error) => refused(&error),
    }
}

async fn list(State(alerts): State<Arc<AlertManager>>) -> Response {
    blocking(move || resource::list(alerts.list().into_iter().map(shown))).await
}

async fn one(State(alerts): State<Arc<AlertManager>>, Path(id): Path<String>) -> Response {
    blocking(move || answer(StatusCode::OK, alerts.get(&id).map(shown))).await
}

async fn remove(State(alerts): State<Arc<AlertManager>>, Path(id): Path<String>) -> Response {
    blocking(move || answer(StatusCode::OK, alerts.delete(&id).map(|alert| json!(alert)))).await
}

async fn create(
    State(alerts): State<Arc<AlertManager>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    blocking(move || {
        let mut alert: Alert = match resource::object(&body) {
            Ok(alert) => alert,
            Err(error) => return bad_request(error),
        };
        match resource::ends_at(&headers) {
            Ok(end) => alert.expire_time = end.or(alert.expire_time),
            Err(error) => return bad_request(error),
        }
        let made = alerts.create(alert);
        answer(StatusCode::CREATED, made.map(|alert| json!(alert)))
    })
    .await
}

async fn change(
    State(alerts): State<Arc<AlertManager>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    blocking(move || match resource::object(&body) {
        Ok(patch) => {
            let after = alerts.patch(&id, &patch);
            answer(StatusCode::OK, after.map(|alert| json!(alert)))
        }
        Err(error) => bad_request(error),
    })
    .await
}
