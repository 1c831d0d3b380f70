//! `/metrics`, in the text format of OpenMetrics.

use axum::{
    Extension,
    extract::State as Extract,
    http::header,
    response::{IntoResponse as _, Response},
};
use skua_archive::lake;
use skua_export::{export, services};
use skua_fleet::{agent, analyzer};
use skua_process::{
    metrics::{Exposition, Group, MEDIA_TYPE},
    panics, resources,
};
use skua_runtime::{actions::Actions, alert_metrics, graph_metrics, steer, tap};
use skua_server::{blocking, error::ApiError};
use skua_state::Shared;
use skua_watch::{dns_metrics, flow_metrics, sockets};

use crate::{
    health::{self, Health},
    skydive::topology,
};

/// All that `skua run`, `skua agent` and `skua analyzer` serve.
pub const GROUPS: [&Group; 17] = [
    &flow_metrics::METRICS,
    &sockets::metrics::METRICS,
    &dns_metrics::METRICS,
    &graph_metrics::METRICS,
    &health::metrics::METRICS,
    &health::metrics::of_history::METRICS,
    &lake::report::METRICS,
    &tap::metrics::METRICS,
    &steer::metrics::METRICS,
    &alert_metrics::METRICS,
    &services::metrics::METRICS,
    &export::report::METRICS,
    &agent::metrics::METRICS,
    &analyzer::metrics::METRICS,
    &topology::METRICS,
    &panics::METRICS,
    &resources::METRICS,
];

/// Answers with all metrics, except those of parts that this process does not run.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "server", summary = "For Prometheus, as OpenMetrics",
    responses((status = 200, description = "Metrics", body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(
    Extract(shared): Extract<Shared>,
    Extension(actions): Extension<Actions>,
    Extension(health): Extension<Health>,
) -> Result<Response, ApiError> {
    blocking(move || {
        let mut out = Exposition::default();
        let counts = shared.fresh().counts();
        flow_metrics::write(&mut out, &counts);
        if let Some(of_sockets) = &shared.read().sockets {
            sockets::metrics::write(&mut out, of_sockets);
        }
        let lookups = shared.read().lookups.clone();
        if let Some(log) = lookups {
            dns_metrics::write(&mut out, &log);
        }
        alert_metrics::write(&mut out, &actions.alert_counters());
        let detectors = actions.steers().counts();
        if !detectors.is_empty() {
            steer::metrics::write(&mut out, &detectors);
        }
        let taps = actions.taps();
        if !taps.is_empty() {
            tap::metrics::write(&mut out, &taps);
        }
        health.write_metrics(&mut out);
        resources::write(&mut out);
        out.single(&panics::REQUESTS_ENDED, panics::requests());
        out.single(&topology::LIMITED_QUERIES, topology::limited());
        Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], out.into_text()).into_response())
    })
    .await
}
