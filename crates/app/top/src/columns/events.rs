//! Columns of events.

use super::{Column, column, text};

/// Columns of events: time, kind, element, and differences.
pub const EVENTS: [Column; 5] = [
    column("TIME", 0, |e| text(&e["time"])),
    column("EVENT", 0, |e| text(&e["event"])),
    column("TYPE", 2, |e| text(&e["type"])),
    column("NAME", 0, |e| text(&e["name"])),
    column("WHAT", 1, |e| text(&e["what"])),
];
