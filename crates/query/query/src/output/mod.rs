//! Answers as text.

mod dot;
mod json;
mod table;

use crate::{Answer, QueryError};

/// How an answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// As Skydive answers.
    Json,
    /// For Graphviz.
    Dot,
    /// For people.
    Table {
        /// Characters of a line; `usize::MAX`: unlimited.
        width: usize,
    },
}

/// Writes an answer.
pub fn format(answer: &Answer, format: Format) -> Result<String, QueryError> {
    match format {
        Format::Json => Ok(json::write(answer)),
        Format::Dot => dot::write(answer),
        Format::Table { width } => Ok(table::write(answer, width)),
    }
}

/// Writes an answer as [`Format::Json`], element by element.
///
/// # Errors
/// The output fails.
pub fn write_json(answer: &Answer, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    json::write_to(answer, out)
}

/// An answer as JSON: a list of elements, or the single value. Metrics, packets, sockets, groups
/// and next hops are a list of one object with an entry for each node, flow or group.
pub fn json(answer: &Answer) -> serde_json::Value {
    json::value(answer)
}
