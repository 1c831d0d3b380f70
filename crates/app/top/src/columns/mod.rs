//! Columns of tables, of the command and of the view alike.

mod dns;
mod edges;
mod events;
mod flows;
mod groups;
mod interfaces;
mod sockets;
mod tree;

use serde_json::Value;

pub use dns::{LOOKUPS, NAME_SERVERS};
pub use edges::{EDGES, LATELY};
pub use events::EVENTS;
pub use flows::FLOW_COLUMNS;
pub use groups::{GROUPS, PROCESSES};
pub use interfaces::INTERFACES;
pub use sockets::{DEPENDENCIES, SERVICES, SOCKETS, place};
pub use tree::TREE;

/// A column of a table.
#[derive(Clone, Copy)]
pub struct Column {
    /// Title in capitals.
    pub title: &'static str,
    /// Whether cells end at the right, as numbers do.
    pub right: bool,
    /// Columns with greater numbers are left out first when the terminal is narrow.
    pub rank: u8,
    /// What it shows of a record.
    pub cell: fn(&Value) -> String,
}

/// A text, empty when there is none.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Column {
    /// How it is named when it is chosen: `sent-pkts`.
    pub fn name(&self) -> String {
        self.title.to_lowercase().replace(' ', "-")
    }
}

/// The columns of these names, in their order.
///
/// # Errors
///
/// The name that none has.
pub fn named(columns: &[Column], names: &[String]) -> Result<Vec<Column>, String> {
    let one = |name: &String| {
        let written = name.trim().to_lowercase().replace([' ', '_'], "-");
        let mut all = columns.iter();
        let found = all.find(|column| column.name() == written);
        found.copied().ok_or_else(|| name.clone())
    };
    names.iter().map(one).collect()
}

/// A left-aligned column.
pub const fn column(title: &'static str, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right: false,
        rank,
        cell,
    }
}

/// A column of numbers.
pub(crate) const fn number(title: &'static str, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right: true,
        rank,
        cell,
    }
}

/// Address and port, as one writes them.
pub fn endpoint(value: &Value) -> String {
    let address = text(&value["address"]);
    match value["port"].as_u64() {
        Some(0) | None => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

/// Which columns fit into `width`, by the longest cell of each, and how wide all are. Columns without
/// content are left out unless there are no records (`empty`).
pub fn fit(
    columns: &[Column],
    cells: &[usize],
    empty: bool,
    width: usize,
) -> (Vec<usize>, Vec<usize>) {
    let widths: Vec<usize> = columns
        .iter()
        .zip(cells)
        .map(|(column, width)| column.title.len().max(*width))
        .collect();
    let mut shown: Vec<usize> = (0..columns.len())
        .filter(|i| empty || cells[*i] > 0)
        .collect();
    let needed = |shown: &[usize]| shown.iter().map(|i| widths[*i] + 2).sum::<usize>();
    while needed(&shown) > width.saturating_add(2) {
        let Some(last) = shown.iter().copied().max_by_key(|i| (columns[*i].rank, *i)) else {
            break;
        };
        if columns[last].rank == 0 {
            break;
        }
        // Columns of one rank are removed together: packets of both directions have one rank.
        let rank = columns[last].rank;
        shown.retain(|i| columns[*i].rank != rank);
    }
    (shown, widths)
}
