//! `/api/addresses`: reading and changing the address set of a running `skua run`.

use anyhow::Context as _;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use skua_config::addresses::Lists;
use skua_flow::{AddressCounts, Prefix};
use skua_probe::{AddressChange, AddressEdit, LiveAddresses, ProbeError};
use skua_server::{
    answer::{bad_request, json_answer},
    blocking,
};

/// Bytes of a request beside its prefixes, and for each prefix that a set may have.
const BODY: usize = 4096;
const BODY_PER_PREFIX: usize = 64;

/// The paths of this module.
pub fn routes(addresses: LiveAddresses) -> Router {
    let limit = BODY + BODY_PER_PREFIX * addresses.max_entries() as usize;
    let methods = get(list).put(replace).post(add).delete(remove);
    Router::new()
        .route("/api/addresses", methods)
        .layer(DefaultBodyLimit::max(limit))
        .with_state(addresses)
}

type Body = Result<Bytes, BytesRejection>;

/// Prefixes to take out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Removal {
    prefixes: Vec<String>,
}

async fn list(State(addresses): State<LiveAddresses>) -> Response {
    blocking(move || json_answer(&json!(Lists::of(&addresses.set())))).await
}

async fn replace(State(addresses): State<LiveAddresses>, body: Body) -> Response {
    change(addresses, body, |lists: Lists, addresses| {
        Ok(addresses.edit(AddressEdit::Replace(&lists.marks("")?))?)
    })
    .await
}

async fn add(State(addresses): State<LiveAddresses>, body: Body) -> Response {
    change(addresses, body, |lists: Lists, addresses| {
        Ok(addresses.edit(AddressEdit::Add(&lists.marks("")?))?)
    })
    .await
}

async fn remove(State(addresses): State<LiveAddresses>, body: Body) -> Response {
    change(addresses, body, |removal: Removal, addresses| {
        let mut prefixes = Vec::with_capacity(removal.prefixes.len());
        for (i, text) in removal.prefixes.iter().enumerate() {
            let prefix: Prefix = text.parse().with_context(|| format!("prefixes[{i}]"))?;
            prefixes.push(prefix);
        }
        Ok(addresses.edit(AddressEdit::Remove(&prefixes))?)
    })
    .await
}

/// Reads a body and does what it asks for.
async fn change<T: DeserializeOwned>(
    addresses: LiveAddresses,
    body: Body,
    work: impl FnOnce(T, &LiveAddresses) -> anyhow::Result<AddressChange> + Send + 'static,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let most = addresses.max_entries();
            let text = format!("too long for {most} prefixes (flow.addresses.max_entries)\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(error) => return (error.status(), error.body_text()).into_response(),
    };
    blocking(move || match serde_json::from_slice(&body) {
        Ok(asked) => match work(asked, &addresses) {
            Ok(done) => json_answer(&report(done, addresses.counts())),
            Err(error) => refused(&error),
        },
        Err(error) => bad_request(error),
    })
    .await
}

fn report(done: AddressChange, now: AddressCounts) -> serde_json::Value {
    json!({
        "include": now.include,
        "exclude": now.exclude,
        "added": done.added,
        "changed": done.changed,
        "removed": done.removed,
    })
}

/// The caller's mistake, but for what the kernel refuses.
fn refused(error: &anyhow::Error) -> Response {
    match error.downcast_ref() {
        Some(ProbeError::Kernel(_)) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response()
        }
        _ => bad_request(format_args!("{error:#}")),
    }
}
