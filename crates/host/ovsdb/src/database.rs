//! A copy of the monitored part of a database.

use crate::{Error, Row};
use std::collections::HashMap;
use uuid::Uuid;

/// A table and those of its columns that are wanted. Columns that the server's schema does not have
/// are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Monitored {
    /// Name of the table.
    pub table: &'static str,
    /// Names of columns.
    pub columns: Vec<&'static str>,
}

impl Monitored {
    /// A table and columns of it.
    pub fn new(table: &'static str, columns: &[&'static str]) -> Self {
        Self {
            table,
            columns: columns.to_vec(),
        }
    }
}

/// What happened to a row.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// Its table.
    pub table: &'static str,
    /// Its identifier.
    pub id: Uuid,
    /// All its monitored columns; none when it was deleted.
    pub row: Option<Row>,
}

/// Rows by table and identifier.
#[derive(Default, Debug)]
pub struct Database {
    tables: HashMap<&'static str, HashMap<Uuid, Row>>,
    bytes: usize,
}

impl Database {
    /// Applies a change and returns the previous row. The change is refused when all rows together would
    /// take more than `limit` bytes.
    pub fn apply(&mut self, change: Change, limit: usize) -> Result<Option<Row>, Error> {
        let table = self.tables.entry(change.table).or_default();
        let old = table.remove(&change.id);
        self.bytes -= old.as_ref().map_or(0, Row::bytes);
        if let Some(row) = change.row {
            let bytes = self.bytes + row.bytes();
            if bytes > limit {
                return Err(Error::TooLarge {
                    what: "the database",
                    limit,
                });
            }
            self.bytes = bytes;
            table.insert(change.id, row);
        }
        Ok(old)
    }

    /// A row.
    pub fn row(&self, table: &str, id: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&id)
    }

    /// The rows of a table, in no order.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        let rows = self.tables.get(table).into_iter().flatten();
        rows.map(|(id, row)| (*id, row))
    }

    /// The row with this text in the column `name`.
    pub fn named(&self, table: &str, name: &str) -> Option<(Uuid, &Row)> {
        self.rows(table)
            .find(|(_, row)| row.text("name") == Some(name))
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.tables.values().map(HashMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
