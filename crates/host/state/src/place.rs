//! Where flows were captured.

use skua_flow::FlowRecord;
use std::{borrow::Cow, sync::Arc};

/// Where a flow was captured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowPlace {
    /// Name of the host.
    pub host: Arc<str>,
    /// Identifier of the capture, empty for what is always captured.
    pub capture: Arc<str>,
    /// Name of the interface, with its namespace.
    pub interface: Box<str>,
    /// `TID` of the node, empty while there is none.
    pub node: Box<str>,
    /// Since when packets are counted there, ns since the Unix epoch, or a little later; 0: not known.
    pub since_ns: u64,
}

/// Name of the interface at a place where a record was captured, its index when it has none.
pub fn interface_at<'a>(place: &'a FlowPlace, record: &FlowRecord) -> Cow<'a, str> {
    match &*place.interface {
        "" => format!("if{}", record.key.ifindex).into(),
        name => name.into(),
    }
}
