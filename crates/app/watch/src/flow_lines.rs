//! Conversations as lines of JSON or CSV.

use skua_flow::{FlowRecord, Found, Query};
use std::io;

use crate::{
    copies::{FlowCopy, PAGE, find_flows},
    state::Shared,
};

/// Writes records as JSON or CSV lines (without CSV header).
pub fn write_flows<F: Fn(&FlowRecord) -> bool>(
    lines: &mut Vec<u8>,
    shared: &Shared,
    query: &Query<F>,
    csv: bool,
) {
    // Writing to memory does not fail.
    let _ = send_flows(lines, shared, &find_flows(shared, query), csv);
}

/// The same for records that were found before, as they are now.
///
/// # Errors
///
/// What they are written to fails.
pub fn send_flows(
    out: &mut impl io::Write,
    shared: &Shared,
    found: &[Found],
    csv: bool,
) -> io::Result<()> {
    let mut lines = Vec::new();
    for some in found.chunks(PAGE) {
        let state = shared.read();
        let records = some.iter().filter_map(|found| state.store.at(*found));
        let page: Vec<_> = records.map(|record| FlowCopy::of(&state, record)).collect();
        drop(state);
        for flow in &page {
            write_flow(&mut lines, flow, csv);
        }
        out.write_all(&lines)?;
        lines.clear();
    }
    Ok(())
}

fn write_flow(lines: &mut Vec<u8>, flow: &FlowCopy, csv: bool) {
    let interface = flow.interface();
    let line = flow.line(&interface);
    // Writing to memory does not fail.
    if csv {
        let _ = skua_flow::fields::write_csv_row(lines, &line);
    } else {
        let _ = serde_json::to_writer(&mut *lines, &line);
        lines.push(b'\n');
    }
}
