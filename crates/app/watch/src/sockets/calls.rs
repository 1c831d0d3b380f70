//! Which services are wanted, by flags and by the API alike, and how they are written.

use std::io;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use skua_socket::call::{self, Calls, CallsBy};
use utoipa::IntoParams;

use skua_state::sockets::Sockets;

/// Flags of `skua services`, and parameters of `/api/services` and `/api/dependencies`.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct CallsQuery {
    /// Those who call instead of those who are called
    #[arg(long)]
    pub clients: bool,
    /// Only this service (container, unit or process): called or calling
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Only calls of this port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Only tcp or udp
    #[arg(long, value_name = "PROTOCOL", value_parser = ["tcp", "udp"])]
    pub protocol: Option<String>,
    /// Order of rows [default: connections]
    #[arg(long, value_enum, value_name = "BY")]
    #[param(inline)]
    pub sort: Option<CallsSort>,
    /// Rows at most
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// `json` or `csv`.
    #[arg(skip)]
    pub format: Option<String>,
}

/// Orders of services; the greatest first, but for names.
#[derive(
    ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CallsSort {
    /// Connections since the start
    Connections,
    /// Open connections
    Open,
    /// New connections per second
    Rate,
    /// Payload both ways
    Bytes,
    /// Attempts that came to nothing
    Failed,
    /// 95% of round-trip times are below
    Rtt,
    /// Share of segments sent again
    Retransmits,
    /// Name of the service
    Name,
}

impl CallsQuery {
    /// What to sum up by.
    pub fn by(&self, dependencies: bool) -> CallsBy {
        match (dependencies, self.clients) {
            (true, _) => CallsBy::Dependency,
            (false, true) => CallsBy::Client,
            (false, false) => CallsBy::Server,
        }
    }

    fn matches(&self, calls: &Calls) -> bool {
        let ends = [&calls.client, &calls.server];
        self.service
            .as_ref()
            .is_none_or(|wanted| ends.into_iter().flatten().any(|end| end.service == *wanted))
            && self.port.is_none_or(|port| calls.port == Some(port))
            && self
                .protocol
                .as_ref()
                .is_none_or(|p| calls.protocol.name() == p)
    }
}

/// All calls, in no order.
pub fn all(sockets: &mut Sockets, query: &CallsQuery, dependencies: bool) -> Vec<Calls> {
    call::calls(&mut sockets.store, &sockets.owners, query.by(dependencies))
}

/// Those that are wanted, in order.
pub fn sorted(mut found: Vec<Calls>, query: &CallsQuery) -> Vec<Calls> {
    found.retain(|calls| query.matches(calls));
    let name = |calls: &Calls| (calls.server.clone(), calls.client.clone(), calls.port);
    let sort = query.sort.unwrap_or(CallsSort::Connections);
    found.sort_by(|a, b| {
        rank(b, sort)
            .total_cmp(&rank(a, sort))
            .then_with(|| name(a).cmp(&name(b)))
    });
    found.truncate(query.limit.unwrap_or(usize::MAX));
    found
}

fn rank(calls: &Calls, sort: CallsSort) -> f64 {
    let sums = &calls.sums;
    match sort {
        CallsSort::Connections => sums.connections as f64,
        CallsSort::Open => sums.open as f64,
        CallsSort::Rate => sums.rate,
        CallsSort::Bytes => sums.to_server as f64 + sums.to_client as f64,
        CallsSort::Failed => sums.failed as f64,
        CallsSort::Rtt => sums.rtt.quantile(0.95).unwrap_or(0.0),
        CallsSort::Retransmits => sums.retransmit_share().unwrap_or(0.0),
        CallsSort::Name => 0.0,
    }
}

/// Writes calls as JSON or CSV lines (without CSV header).
pub fn write(out: &mut impl io::Write, found: &[Calls], csv: bool) -> io::Result<()> {
    for calls in found {
        if csv {
            call::write_csv_row(&mut *out, calls)?;
        } else {
            serde_json::to_writer(&mut *out, calls)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// All calls that are wanted.
pub fn lines(sockets: &mut Sockets, query: &CallsQuery, dependencies: bool, csv: bool) -> Vec<u8> {
    let mut lines = Vec::new();
    // Writing to memory does not fail.
    let _ = write(
        &mut lines,
        &sorted(all(sockets, query, dependencies), query),
        csv,
    );
    lines
}
