//! What clients and the route `/api/services/graph` have in common.

use clap::Args;
use serde::{Deserialize, Serialize};
use skua_collect::graph::{Change, Edge, Endpoint};
use utoipa::IntoParams;

/// The path.
pub const PATH: &str = "/api/services/graph";
/// Bytes of lines at a time.
pub const BODY: usize = 4 << 20;
/// Who sends lines: another number in each run.
pub const SENDER: &str = "x-skua-sender";
/// The number of a batch of lines, each greater than the one before.
pub const BATCH: &str = "x-skua-batch";

/// Which edges are wanted: flags of `skua services --graph`, and parameters.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct GraphQuery {
    /// Only edges that have appeared (new) or are gone (vanished) in the last hour
    #[arg(long, value_name = "CHANGE", value_parser = ["new", "vanished"])]
    pub change: Option<String>,
    /// Only edges of this service, or of this address, at either end.
    #[arg(skip)]
    pub service: Option<String>,
    /// Only this port.
    #[arg(skip)]
    pub port: Option<u16>,
    /// `tcp` or `udp`.
    #[arg(skip)]
    pub protocol: Option<String>,
    /// Edges at most.
    #[arg(skip)]
    pub limit: Option<usize>,
    /// `json`, `csv` or `dot`.
    #[arg(skip)]
    pub format: Option<String>,
    /// As it was at a moment, ms since the Unix epoch.
    #[arg(skip)]
    pub at: Option<u64>,
}

impl GraphQuery {
    pub fn matches(&self, edge: &Edge) -> bool {
        let named = |wanted: &str| {
            let is = |endpoint: &Endpoint| match endpoint {
                Endpoint::Service(name) => **name == *wanted,
                Endpoint::Address(address) => wanted.parse() == Ok(*address),
            };
            is(&edge.key.client) || is(&edge.key.server)
        };
        self.service.as_deref().is_none_or(named)
            && self.port.is_none_or(|port| edge.key.port == port)
            && self
                .protocol
                .as_deref()
                .is_none_or(|protocol| protocol == skua_output::protocol(edge.key.protocol))
            && self.change.as_deref().is_none_or(|change| match change {
                "new" => edge.change == Some(Change::New),
                _ => edge.change == Some(Change::Vanished),
            })
    }
}
