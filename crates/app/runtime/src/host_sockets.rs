//! The open sockets of the host as metadata of its node.

use skua_sources::{ask::unix_ms, metadata_of};
use skua_state::Observer;
use skua_topology::{Patch, SharedGraph, Value};
use std::sync::Arc;

/// Metadata as Skydive has it.
const KEY: &str = "Sockets";

/// Writes the sockets of a node's network namespace to that node, with each drain.
pub fn observer(graph: SharedGraph, node: &str) -> Arc<Observer> {
    let node: Arc<str> = node.into();
    Arc::new(move |capture, state| {
        let (None, Some(sockets)) = (capture, &state.sockets) else {
            return;
        };
        let Some(now) = graph.read().current_node(&node) else {
            return;
        };
        let netns = now.metadata.get("NetNsInode").and_then(Value::as_int);
        let Some(netns) = netns.and_then(|inode| u64::try_from(inode).ok()) else {
            return;
        };
        let value = metadata_of(sockets, netns);
        if now.metadata.get(KEY) != Some(&value) {
            let patch = [Patch::Set(KEY.into(), value)];
            // The node may be gone meanwhile.
            let _ = graph.write().patch_node(&node, &patch, unix_ms());
        }
    })
}
