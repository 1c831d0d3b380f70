//! Messages in Skydive's shape.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Status of success.
const OK: u16 = 200;
/// Status of a bad request.
pub const BAD: u16 = 400;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Outgoing<'a, T> {
    namespace: &'a str,
    r#type: &'a str,
    #[serde(rename = "UUID")]
    uuid: &'a str,
    status: u16,
    obj: T,
}

/// A message that a client sends.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
pub struct Incoming {
    /// The part of the protocol.
    pub namespace: String,
    /// The kind of message.
    pub r#type: String,
    /// Repeated in the answer.
    #[serde(rename = "UUID", default)]
    pub uuid: String,
    /// The rest.
    #[serde(default)]
    pub obj: Value,
}

/// The text of an unsolicited message.
pub fn news(namespace: &str, kind: &str, obj: impl Serialize) -> String {
    reply(namespace, kind, "", OK, obj)
}

/// The text of an answer.
pub fn good(namespace: &str, kind: &str, uuid: &str, obj: impl Serialize) -> String {
    reply(namespace, kind, uuid, OK, obj)
}

/// The text of an error.
pub fn bad(namespace: &str, kind: &str, uuid: &str, error: &str) -> String {
    reply(
        namespace,
        kind,
        uuid,
        BAD,
        serde_json::json!({"Error": error}),
    )
}

fn reply(namespace: &str, kind: &str, uuid: &str, status: u16, obj: impl Serialize) -> String {
    let message = Outgoing {
        namespace,
        r#type: kind,
        uuid,
        status,
        obj,
    };
    // Keys of objects are texts: the conversion cannot fail.
    serde_json::to_string(&message).unwrap_or_default()
}
