//! `/api/addresses`: reading and changing the address set of a running `skua run`.

use anyhow::Context as _;
use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skua_config::addresses::Lists;
use skua_flow::Prefix;
use skua_probe::{AddressChange, AddressEdit, LiveAddresses, ProbeError};
use skua_server::{
    answer::{Answer, object},
    blocking,
    error::{ApiError, ErrorCode},
};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::error::refused;

/// Bytes of a request beside its prefixes, and for each prefix that a set may have.
const BODY: usize = 4096;
const BODY_PER_PREFIX: usize = 64;

/// The paths of this module.
pub fn routes(addresses: LiveAddresses) -> OpenApiRouter {
    let limit = BODY + BODY_PER_PREFIX * addresses.max_entries() as usize;
    OpenApiRouter::new()
        .routes(routes!(list, replace, add, remove))
        .layer(DefaultBodyLimit::max(limit))
        .with_state(addresses)
}

type Body = Result<Bytes, BytesRejection>;

/// Prefixes to remove.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AddressRemoval)]
struct Removal {
    /// Prefixes, like `10.0.0.0/8`.
    prefixes: Vec<String>,
}

/// Result of a change of the address set.
#[derive(Serialize, ToSchema)]
#[schema(as = AddressChange)]
struct Changed {
    /// Prefixes to include now.
    include: usize,
    /// Prefixes to exclude now.
    exclude: usize,
    /// Prefixes that were not there before.
    added: usize,
    /// Prefixes that are now of the other kind.
    changed: usize,
    /// Prefixes that are no longer there.
    removed: usize,
}

/// The address set
#[utoipa::path(get, path = "/api/addresses", operation_id = "addresses", tag = "addresses",
    responses((status = 200, description = "The set", body = Lists)))]
async fn list(State(addresses): State<LiveAddresses>) -> Result<Answer<Lists>, ApiError> {
    blocking(move || Ok(Answer::of(&Lists::of(&addresses.set())))).await
}

/// Replaces all prefixes
#[utoipa::path(put, path = "/api/addresses", operation_id = "replaceAddresses", tag = "addresses",
    request_body(content = Lists, content_type = "application/json"), responses((status = 200, description = "The changes made", body = Changed)))]
async fn replace(
    State(addresses): State<LiveAddresses>,
    body: Body,
) -> Result<Answer<Changed>, ApiError> {
    change(addresses, body, |lists: Lists, addresses| {
        Ok(addresses.edit(AddressEdit::Replace(&lists.marks("")?))?)
    })
    .await
}

/// Adds prefixes
#[utoipa::path(post, path = "/api/addresses", operation_id = "addAddresses", tag = "addresses",
    request_body(content = Lists, content_type = "application/json"), responses((status = 200, description = "The changes made", body = Changed)))]
async fn add(
    State(addresses): State<LiveAddresses>,
    body: Body,
) -> Result<Answer<Changed>, ApiError> {
    change(addresses, body, |lists: Lists, addresses| {
        Ok(addresses.edit(AddressEdit::Add(&lists.marks("")?))?)
    })
    .await
}

/// Removes prefixes
#[utoipa::path(delete, path = "/api/addresses", operation_id = "removeAddresses", tag = "addresses",
    request_body(content = Removal, content_type = "application/json"), responses((status = 200, description = "The changes made", body = Changed)))]
async fn remove(
    State(addresses): State<LiveAddresses>,
    body: Body,
) -> Result<Answer<Changed>, ApiError> {
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

/// Parses a body and applies the change.
async fn change<T: DeserializeOwned>(
    addresses: LiveAddresses,
    body: Body,
    work: impl FnOnce(T, &LiveAddresses) -> anyhow::Result<AddressChange> + Send + 'static,
) -> Result<Answer<Changed>, ApiError> {
    let body = body.map_err(|error| {
        let mut refused = ApiError::from(error);
        if refused.code == ErrorCode::TooLarge {
            let most = addresses.max_entries();
            refused.message = format!("too long for {most} prefixes (flow.addresses.max_entries)");
        }
        refused
    })?;
    blocking(move || {
        let done = work(object(&body)?, &addresses).map_err(|error| {
            match error.downcast::<ProbeError>() {
                Ok(error) => refused(error),
                Err(error) => ApiError::bad_request(format_args!("{error:#}")),
            }
        })?;
        let now = addresses.counts();
        Ok(Answer::of(&Changed {
            include: now.include as usize,
            exclude: now.exclude as usize,
            added: done.added as usize,
            changed: done.changed as usize,
            removed: done.removed as usize,
        }))
    })
    .await
}
