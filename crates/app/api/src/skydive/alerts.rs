//! `/api/alert`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{DefaultBodyLimit, Path, State},
    http::HeaderMap,
};
use serde::Serialize;
use skua_control::{
    JsonPatch,
    alert::{Alert, AlertManager, AlertStatus},
};
use skua_server::answer::Json;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::resource::{self, Answered, Patch, answer, by_id, created};

/// Bytes of a request at most.
const BODY: usize = 256 << 10;

/// The paths of this module.
pub fn routes(alerts: Arc<AlertManager>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(alerts_by_id, create_alert))
        .routes(routes!(get_alert, change_alert, delete_alert))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(alerts)
}

/// An alert with its status.
#[derive(Serialize, ToSchema)]
struct AlertView {
    #[serde(flatten)]
    alert: Alert,
    #[serde(flatten)]
    status: AlertStatus,
    /// Why its action could not be carried out last.
    #[serde(rename = "ActionError", skip_serializing_if = "Option::is_none")]
    action_error: Option<String>,
}

impl From<(Alert, AlertStatus, Option<String>)> for AlertView {
    fn from((alert, status, action_error): (Alert, AlertStatus, Option<String>)) -> Self {
        Self {
            alert,
            status,
            action_error,
        }
    }
}

type Alerts = State<Arc<AlertManager>>;

/// All alerts by identifier
#[utoipa::path(get, path = "/api/alert", operation_id = "alerts", tag = "skydive",
    responses((status = 200, description = "The alerts", body = BTreeMap<String, AlertView>)))]
async fn alerts_by_id(State(alerts): Alerts) -> Answered<BTreeMap<String, AlertView>> {
    by_id(
        move || alerts.list().into_iter().map(AlertView::from),
        |view| view.alert.uuid.to_string(),
    )
    .await
}

/// An alert
#[utoipa::path(get, path = "/api/alert/{id}", operation_id = "getAlert", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The alert", body = AlertView)))]
async fn get_alert(State(alerts): Alerts, Path(id): Path<String>) -> Answered<AlertView> {
    answer(move || alerts.get(&id).map(Into::into)).await
}

/// Deletes an alert
#[utoipa::path(delete, path = "/api/alert/{id}", operation_id = "deleteAlert", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The alert, as it was", body = Alert)))]
async fn delete_alert(State(alerts): Alerts, Path(id): Path<String>) -> Answered<Alert> {
    answer(move || alerts.delete(&id)).await
}

/// Makes an alert
#[utoipa::path(post, path = "/api/alert", operation_id = "createAlert", tag = "skydive",
    params(("X-Resource-TTL" = Option<String>, Header, description = "Time until it ends: ns, or like 5m")),
    request_body = Alert,
    responses((status = 201, description = "The new alert", body = Alert), (status = 409, description = "An equal one exists already")))]
async fn create_alert(
    State(alerts): Alerts,
    headers: HeaderMap,
    Json(mut alert): Json<Alert>,
) -> Answered<Alert> {
    alert.expire_time = resource::ends_at(&headers)?.or(alert.expire_time);
    created(move || alerts.create(alert)).await
}

/// Changes an alert by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/alert/{id}", operation_id = "changeAlert", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    request_body = Patch,
    responses((status = 200, description = "The alert, as changed", body = Alert)))]
async fn change_alert(
    State(alerts): Alerts,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Answered<Alert> {
    answer(move || alerts.patch(&id, &patch)).await
}
