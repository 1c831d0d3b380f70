//! Conversations as lines of JSON or CSV.

use skua_flow::{FlowRecord, Found, Merged, Query};
use std::io;

use crate::state::{Shared, State};

/// Writes conversations as JSON or CSV lines (without CSV header).
pub fn write_flows<F: Fn(&FlowRecord) -> bool>(
    lines: &mut Vec<u8>,
    state: &State,
    query: &Query<F>,
    csv: bool,
) {
    for merged in state.store.query(query) {
        write_flow(lines, state, &merged, csv);
    }
}

/// The same for conversations that were found before, as they are now. The state is not locked while lines are
/// sent.
///
/// # Errors
///
/// What they are written to fails.
pub fn send_flows<F: Fn(&FlowRecord) -> bool>(
    out: &mut impl io::Write,
    shared: &Shared,
    query: &Query<F>,
    found: &[Found],
    csv: bool,
) -> io::Result<()> {
    /// Lines at a time: some hundred KiB.
    const AT_ONCE: usize = 256;
    let mut lines = Vec::new();
    for some in found.chunks(AT_ONCE) {
        let state = shared.lock();
        for merged in some.iter().filter_map(|at| state.store.at(*at, query)) {
            write_flow(&mut lines, &state, &merged, csv);
        }
        drop(state);
        out.write_all(&lines)?;
        lines.clear();
    }
    Ok(())
}

fn write_flow(lines: &mut Vec<u8>, state: &State, merged: &Merged<'_>, csv: bool) {
    let interface = state.interface_of(&merged.record);
    let mut line = state.store.line(merged, &interface);
    if let Some(sockets) = &state.sockets {
        line.owners = sockets.parties(&merged.record);
    }
    // Writing to memory does not fail.
    if csv {
        let _ = skua_flow::fields::write_csv_row(lines, &line);
    } else {
        let _ = serde_json::to_writer(&mut *lines, &line);
        lines.push(b'\n');
    }
}
