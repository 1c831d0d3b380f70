//! `/api/workflow`: scripts that use this API, with the rights of who calls them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{DefaultBodyLimit, Extension, Path, State},
    http::{Method, Request, StatusCode, header},
};
use serde::Deserialize;
use serde_json::Value;
use skua_config::Config;
use skua_control::{Resources, workflow::Workflow};
use skua_server::{
    answer::{Answer, Json},
    auth::{Caller, Peer, Role, who},
    error::{ApiError, ErrorCode},
    paths::TOPOLOGY,
};
use skua_workflow::{Call, Limits, WorkflowError};
use tokio::{runtime::Handle, sync::Semaphore};
use tower::ServiceExt as _;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::{Coded, refused},
    resource::{Answered, answer, by_id, created, deleted},
};

/// Bytes of a request at most.
const BODY: usize = 1 << 20;
/// Workflows at most.
const MOST: usize = 256;
/// Calls at a time.
const AT_ONCE: usize = 4;
/// Bytes of an answer that a script may read.
const ANSWER: usize = 16 << 20;
/// What scripts may use: queries, and what users make.
const OPEN: [&str; 7] = [
    "alert",
    "capture",
    "edge",
    "edgerule",
    "injectpacket",
    "node",
    "noderule",
];

/// Workflows, and what their scripts use.
#[derive(Clone)]
struct Workflows {
    kept: Arc<Resources<Workflow>>,
    routes: Router,
    places: Arc<Semaphore>,
}

/// The paths of this module; scripts use the other paths.
pub fn routes(config: &Config, others: &Router) -> OpenApiRouter {
    let kept = Resources::open(config.resource_file("workflows").as_deref(), MOST);
    OpenApiRouter::new()
        .routes(routes!(workflows_by_id, create_workflow))
        .routes(routes!(get_workflow, delete_workflow))
        .routes(routes!(call_workflow))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(Workflows {
            kept: Arc::new(kept),
            routes: others.clone(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        })
}

impl Coded for WorkflowError {
    fn code(&self) -> ErrorCode {
        ErrorCode::BadRequest
    }
}

type All = State<Workflows>;

/// All workflows by identifier
#[utoipa::path(get, path = "/api/workflow", operation_id = "workflows", tag = "skydive",
    responses((status = 200, description = "The workflows", body = BTreeMap<String, Workflow>)))]
async fn workflows_by_id(State(workflows): All) -> Answered<BTreeMap<String, Workflow>> {
    by_id(move || workflows.kept.all(), |one| one.uuid.to_string()).await
}

/// A workflow
#[utoipa::path(get, path = "/api/workflow/{id}", operation_id = "getWorkflow", tag = "skydive",
    params(("id" = String, Path, description = "UUID or name")),
    responses((status = 200, description = "The workflow", body = Workflow)))]
async fn get_workflow(State(workflows): All, Path(id): Path<String>) -> Answered<Workflow> {
    answer(move || workflows.find(&id)).await
}

/// Makes a workflow
#[utoipa::path(post, path = "/api/workflow", operation_id = "createWorkflow", tag = "skydive",
    request_body = Workflow,
    responses((status = 201, description = "The new workflow", body = Workflow), (status = 409, description = "There is one of that name")))]
async fn create_workflow(
    State(workflows): All,
    Json(workflow): Json<Workflow>,
) -> Answered<Workflow> {
    if workflow.name.trim().is_empty() {
        return Err(ApiError::bad_request("Name is missing"));
    }
    skua_workflow::check(&workflow.name, &workflow.source, &Limits::default())
        .map_err(|error| ApiError::bad_request(format_args!("Source: {error}")))?;
    created(move || workflows.kept.add(workflow)).await
}

/// Deletes a workflow
#[utoipa::path(delete, path = "/api/workflow/{id}", operation_id = "deleteWorkflow", tag = "skydive",
    params(("id" = String, Path, description = "UUID or name")),
    responses((status = 200, description = "Deleted")))]
async fn delete_workflow(
    State(workflows): All,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    deleted(move || {
        let found = workflows.find(&id)?;
        workflows.kept.remove(&found.uuid.to_string())
    })
    .await
}

/// The parameters of a call.
#[derive(Deserialize, ToSchema)]
struct WorkflowCall {
    /// What the function is called with, in its order.
    #[serde(rename = "Params", default)]
    parameters: Option<Vec<Value>>,
}

/// Calls a workflow, with the rights of the caller: what its function returns
#[utoipa::path(post, path = "/api/workflow/{id}/call", operation_id = "callWorkflow", tag = "skydive",
    params(("id" = String, Path, description = "UUID or name")), request_body = WorkflowCall,
    responses((status = 200, description = "The result, in any format", body = Value)))]
async fn call_workflow(
    State(workflows): All,
    Path(id): Path<String>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Json(call): Json<WorkflowCall>,
) -> Answered<Value> {
    let workflow = workflows.find(&id).map_err(refused)?;
    let Ok(_place) = workflows.places.clone().try_acquire_owned() else {
        let text = format!("{AT_ONCE} workflows run already: try again later");
        return Err(ApiError::new(ErrorCode::Unavailable, text));
    };
    let api = Api {
        role: caller.as_ref().map_or(Role::Read, |caller| caller.role()),
        routes: workflows.routes,
        runtime: Handle::current(),
        peer: peer.clone(),
        caller: caller.clone(),
    };
    tracing::info!(
        name = workflow.name,
        by = who(peer, caller),
        "workflow called"
    );
    let cancel = Arc::new(AtomicBool::new(false));
    let _waiting = CancelOnDrop(cancel.clone());
    // Not on the pool of other requests, which it would hold for minutes.
    let work = tokio::task::spawn_blocking(move || {
        let parameters = Value::from(call.parameters.unwrap_or_default()).to_string();
        let call = Call {
            name: &workflow.name,
            source: &workflow.source,
            parameters: &parameters,
            cancel: &cancel,
        };
        let name = workflow.name.clone();
        let log = move |text: &str| tracing::info!(name, text, "a workflow logs");
        let requests =
            Box::new(move |method: &str, path: &str, body: &str| api.request(method, path, body));
        skua_workflow::run(&call, &Limits::default(), requests, log)
    });
    let done = work
        .await
        .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Answer::of(&done.map_err(refused)?))
}

/// Ends the script when its caller disconnects.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Workflows {
    /// By identifier or name.
    fn find(&self, id: &str) -> Result<Workflow, skua_control::ResourceError> {
        let named = || self.kept.all().into_iter().find(|one| one.name == id);
        self.kept.get(id).or_else(|error| named().ok_or(error))
    }
}

/// The API, as a script's caller may use it.
struct Api {
    role: Role,
    routes: Router,
    runtime: Handle,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
}

impl Api {
    fn request(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let method: Method = method
            .parse()
            .map_err(|_| format!("{method} is no method"))?;
        let resource = path.strip_prefix("/api/").unwrap_or_default();
        let resource = resource.split('/').next().unwrap_or_default();
        if path != TOPOLOGY && !OPEN.contains(&resource) {
            return Err(format!(
                "{path}: workflows may use {TOPOLOGY} and /api/ of {}",
                OPEN.join(", ")
            ));
        }
        if !self.role.may(&method, path) {
            return Err(format!(
                "{method} {path}: the caller has the role {}",
                self.role.name()
            ));
        }
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_owned()));
        let mut request = request.map_err(|error| format!("{path}: {error}"))?;
        if let Some(Extension(peer)) = &self.peer {
            request.extensions_mut().insert(peer.clone());
        }
        if let Some(Extension(caller)) = &self.caller {
            request.extensions_mut().insert(caller.clone());
        }
        self.runtime.block_on(async {
            let answer = match self.routes.clone().oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            let (parts, body) = answer.into_parts();
            let body = to_bytes(body, ANSWER).await;
            let body = body.map_err(|_| format!("{path}: the answer is too large"))?;
            let text = String::from_utf8_lossy(&body);
            match parts.status.is_success() {
                true => Ok(text.into_owned()),
                false => Err(format!("{path}: {}", text.trim())),
            }
        })
    }
}
