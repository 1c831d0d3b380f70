//! `/api/injectpacket`.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use skua_control::injection::{InjectionView, Injections, PacketInjection};
use skua_server::{
    answer::Json,
    auth::{Caller, Peer, who},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::resource::{Answered, answer, by_id, created};

/// Bytes of a request at most: a capture file of 16 MiB in base64.
const BODY: usize = 24 << 20;

type All = State<Arc<Injections>>;

/// The paths of this module.
pub fn routes(injections: Arc<Injections>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(injections_by_id, create_injection))
        .routes(routes!(get_injection, delete_injection))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(injections)
}

/// All injections by identifier
#[utoipa::path(get, path = "/api/injectpacket", operation_id = "injections", tag = "skydive",
    responses((status = 200, description = "The injections", body = BTreeMap<String, InjectionView>)))]
async fn injections_by_id(State(injections): All) -> Answered<BTreeMap<String, InjectionView>> {
    by_id(
        move || injections.list(),
        |view| view.asked.uuid.to_string(),
    )
    .await
}

/// An injection and what happened to its packets
#[utoipa::path(get, path = "/api/injectpacket/{id}", operation_id = "getInjection", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The injection", body = InjectionView)))]
async fn get_injection(State(injections): All, Path(id): Path<String>) -> Answered<InjectionView> {
    answer(move || injections.get(&id)).await
}

/// Stops and deletes an injection
#[utoipa::path(delete, path = "/api/injectpacket/{id}", operation_id = "deleteInjection", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The injection, as it was", body = InjectionView)))]
async fn delete_injection(
    State(injections): All,
    Path(id): Path<String>,
) -> Answered<InjectionView> {
    answer(move || injections.delete(&id)).await
}

/// Injects packets
#[utoipa::path(post, path = "/api/injectpacket", operation_id = "createInjection", tag = "skydive",
    request_body = PacketInjection,
    responses((status = 201, description = "The new injection", body = InjectionView)))]
async fn create_injection(
    State(injections): All,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Json(asked): Json<PacketInjection>,
) -> Answered<InjectionView> {
    let who = who(peer, caller);
    created(move || injections.create(asked, &who)).await
}
