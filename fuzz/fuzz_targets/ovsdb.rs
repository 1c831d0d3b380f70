//! Any text as a message of an OVSDB server: it is read or refused within its limits, and what is kept
//! is counted; and as what a switch answers to commands.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_ovsdb::{
    Database, Monitored,
    said::{Connection, Trace},
    wire::{Message, changes, notified, schema},
};
use std::sync::LazyLock;

const LIMIT: usize = 64 << 10;

static MONITORED: LazyLock<Vec<Monitored>> = LazyLock::new(|| {
    let tables = ["Open_vSwitch", "Bridge", "Port", "Interface"];
    let monitored = tables.map(|table| Monitored::new(table, &["name", "ports", "interfaces"]));
    monitored.to_vec()
});

/// What a switch says of packets: there is no more of it than there are lines.
fn said(text: &str) {
    assert!(Trace::read(text).cookies.len() <= text.lines().count());
    for line in text.lines() {
        let _ = Connection::read(line).map(|connection| connection.acl_label());
    }
}

fuzz_target!(|text: &str| {
    said(text);
    let Ok(message) = serde_json::from_str::<Message>(text) else {
        return;
    };
    if let Some(result) = &message.result {
        let _ = schema(result.get());
        let _ = changes(result.get(), &MONITORED, LIMIT);
    }
    let Some(params) = &message.params else {
        return;
    };
    let Ok(changes) = notified(params.get(), &MONITORED, LIMIT) else {
        return;
    };
    let mut rows = Database::default();
    for change in &changes {
        let old = rows.apply(change.clone(), LIMIT);
        assert!(old.is_err() || rows.row(change.table, change.id) == change.row.as_ref());
        assert!(rows.bytes() <= LIMIT);
        for (_, row) in rows.rows(change.table) {
            for column in ["name", "ports", "interfaces"] {
                let _ = (row.text(column), row.int(column), row.truth(column));
                let _ = (row.uuids(column).count(), row.text_at(column, "peer"));
            }
        }
    }
    // Going the way back, nothing is left.
    for mut change in changes {
        change.row = None;
        let _ = rows.apply(change, LIMIT);
    }
    assert!(rows.is_empty() && rows.bytes() == 0);
});
