//! Docker's API, which Podman speaks, too.

use std::collections::HashMap;

use hyper::StatusCode;
use serde::Deserialize;

use super::http::Server;
use super::{Answer, Fail, Names};
use crate::container::Found;

/// Of the answer to `GET /containers/ID/json`, what we want.
#[derive(Deserialize)]
struct Inspect {
    #[serde(rename = "Id")]
    id: String,
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "Config", default)]
    config: Config,
}

#[derive(Deserialize, Default)]
struct Config {
    #[serde(rename = "Image", default)]
    image: String,
    #[serde(rename = "Labels", default)]
    labels: Option<HashMap<String, String>>,
}

pub(super) async fn query(server: Server<'_>, found: &Found) -> Answer {
    let response = server
        .get(&format!("/containers/{}/json", found.id))
        .await?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Err(Fail::Unknown),
        _ => return Err(Fail::Rubbish),
    }
    let body = response.into_body().to_bytes();
    let inspect: Inspect = serde_json::from_slice(&body).map_err(|_| Fail::Rubbish)?;
    if inspect.id != found.id {
        return Err(Fail::Rubbish);
    }
    let mut names = Names::from_labels(&inspect.config.labels.unwrap_or_default());
    let name = inspect.name.strip_prefix('/').unwrap_or(&inspect.name);
    names.name = names.name.or_else(|| super::cri::text(name));
    names.image = super::cri::text(&inspect.config.image);
    Ok(names)
}
