//! Identifiers of nodes and edges.

use std::sync::Arc;
use uuid::Uuid;

/// UUIDv5 of texts one after the other, as Skydive makes its `TID`s.
pub(crate) fn tid(parts: &[&str]) -> Arc<str> {
    let name = parts.concat();
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
    id.to_string().into()
}

/// `TID` of a bridge or port: of the host's, the row and the type.
pub(crate) fn row_tid(host: &str, row: Uuid, kind: &str) -> Arc<str> {
    tid(&[&tid(&[host]), &row.to_string(), kind])
}
