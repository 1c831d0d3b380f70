//! Conversations as lines of JSON or CSV.

use skua_flow::{FlowRecord, Found, Query};
use std::io;

use crate::state::{Shared, State};

/// Writes records as JSON or CSV lines (without CSV header).
pub fn write_flows<F: Fn(&FlowRecord) -> bool>(
    lines: &mut Vec<u8>,
    state: &State,
    query: &Query<F>,
    csv: bool,
) {
    for record in state.store.query(query) {
        write_flow(lines, state, record, csv);
    }
}

/// The same for records that were found before, as they are now. The state is let go of between some of them
/// and the next, and never held while they are taken.
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
    /// Lines at a time: some hundred KiB.
    const AT_ONCE: usize = 256;
    let mut lines = Vec::new();
    for some in found.chunks(AT_ONCE) {
        let state = shared.lock();
        for record in some.iter().filter_map(|found| state.store.at(*found)) {
            write_flow(&mut lines, &state, record, csv);
        }
        drop(state);
        out.write_all(&lines)?;
        lines.clear();
    }
    Ok(())
}

fn write_flow(lines: &mut Vec<u8>, state: &State, record: &FlowRecord, csv: bool) {
    let interface = state.interface_of(record);
    let mut line = state.store.line(record, &interface);
    if let Some(sockets) = &state.sockets {
        line.owners = sockets.parties(record);
    }
    // Writing to memory does not fail.
    if csv {
        let _ = skua_flow::fields::write_csv_row(lines, &line);
    } else {
        let _ = serde_json::to_writer(&mut *lines, &line);
        lines.push(b'\n');
    }
}
