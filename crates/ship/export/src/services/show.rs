//! Edges as JSON, CSV and Graphviz.

use std::{fmt::Write as _, io};

use skua_collect::graph::{Change, Edge, FIELDS};
use skua_output::{bytes, count, nanoseconds, protocol};

/// One JSON object a line.
pub fn json(edges: &[Edge]) -> Vec<u8> {
    let mut lines = Vec::new();
    for edge in edges {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut lines, edge);
        lines.push(b'\n');
    }
    lines
}

/// The header of CSV.
pub fn csv_header(out: &mut Vec<u8>) -> io::Result<()> {
    skua_record::write_csv_header(FIELDS, out)
}

/// Rows of CSV, without header.
pub fn csv(edges: &[Edge]) -> Vec<u8> {
    let mut out = Vec::new();
    for edge in edges {
        // Writing to memory does not fail.
        let _ = skua_record::write_csv_row(FIELDS, &mut out, &edge);
    }
    out
}

/// A drawing for Graphviz: new edges are bold, those that have vanished dashed, those with failures red.
pub fn dot(edges: &[Edge]) -> Vec<u8> {
    let mut out = String::from("digraph services {\n  rankdir=LR;\n  node [shape=box];\n");
    let quoted = |text: String| text.replace('\\', "\\\\").replace('"', "\\\"");
    for edge in edges {
        let (client, server) = (edge.key.client.to_string(), edge.key.server.to_string());
        let failed = edge.failed();
        let mut label = format!(
            "{} {}\\n{}, {} connections",
            protocol(edge.key.protocol),
            edge.key.port,
            bytes(edge.bytes()),
            count(edge.sums.connections),
        );
        if let [_, Some(p95), _] = edge.quantiles {
            let p95 = nanoseconds(p95.saturating_mul(1_000));
            let _ = write!(label, "\\np95 {p95}");
        }
        if failed > 0 {
            let _ = write!(label, "\\n{} failed", count(failed));
        }
        let style = match edge.change {
            Some(Change::New) => ", style=bold",
            Some(Change::Vanished) => ", style=dashed",
            None => "",
        };
        let colour = if failed > 0 { ", color=red" } else { "" };
        let _ = writeln!(
            out,
            "  \"{}\" -> \"{}\" [label=\"{label}\"{style}{colour}];",
            quoted(client),
            quoted(server),
        );
    }
    out.push_str("}\n");
    out.into_bytes()
}
