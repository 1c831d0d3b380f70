//! Conversations as lines of JSON or CSV.

use skua_flow::{Found, Query};
use std::io;

use skua_state::{
    Shared,
    copies::{FlowCopy, PAGE, find_flows, read_found},
    filter::FlowFilter,
};

/// Writes conversations as JSON or CSV lines (without CSV header).
pub fn write_flows(lines: &mut Vec<u8>, shared: &Shared, query: &Query<FlowFilter>, csv: bool) {
    // Writing to memory does not fail.
    let _ = send_flows(lines, shared, query, &find_flows(shared, query).0, csv);
}

/// The same for conversations that were found before, as they are now.
///
/// # Errors
///
/// What they are written to fails.
pub fn send_flows(
    out: &mut impl io::Write,
    shared: &Shared,
    query: &Query<FlowFilter>,
    found: &[Found],
    csv: bool,
) -> io::Result<()> {
    let mut lines = Vec::new();
    for some in found.chunks(PAGE) {
        read_found(shared, query.view, some, |points| {
            if let Some(flow) = FlowCopy::merged(query, points) {
                write_flow(&mut lines, &flow, csv);
            }
        });
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
