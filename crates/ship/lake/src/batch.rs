//! Rows in memory, column by column.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use crate::schema::{Kind, Table};

/// A missing number.
pub(crate) const NULL: i64 = i64::MIN;
/// A missing text.
pub(crate) const NO_TEXT: u32 = 0;

/// Memory of a text besides its bytes: entries in list and table, reference counts.
const TEXT_OVERHEAD: usize = 72;

/// Texts by number, each once.
#[derive(Debug)]
pub(crate) struct Texts {
    list: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32, RandomState>,
    bytes: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            // Index 0: the missing text.
            list: vec!["".into()],
            numbers: HashMap::default(),
            bytes: 0,
        }
    }
}

impl Texts {
    /// The number of a text.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let shared: Arc<str> = text.into();
        // Memory ends long before numbers do.
        let number = u32::try_from(self.list.len()).unwrap_or(NO_TEXT);
        self.bytes += text.len() + TEXT_OVERHEAD;
        self.list.push(shared.clone());
        self.numbers.insert(shared, number);
        number
    }

    /// The text of a number.
    pub fn get(&self, number: u32) -> &str {
        self.list.get(number as usize).map_or("", |text| text)
    }

    /// All of them by number.
    pub fn all(&self) -> &[Arc<str>] {
        &self.list
    }

    /// Memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// For each number, the text's rank in sort order.
    pub fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.list.len() as u32).collect();
        order.sort_unstable_by_key(|number| self.get(*number));
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number as usize] = rank as u32;
        }
        ranks
    }
}

/// A column's values.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// Numbers, [`NULL`] when missing.
    Numbers(Vec<i64>),
    /// Numbers of texts, [`NO_TEXT`] when missing.
    Texts(Vec<u32>),
    /// Lists: where each ends, and all values.
    Lists(Vec<u32>, Vec<i32>),
}

impl Data {
    /// Without a value.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Time | Kind::Long | Kind::Int => Self::Numbers(Vec::new()),
            Kind::Text => Self::Texts(Vec::new()),
            Kind::Ints => Self::Lists(Vec::new(), Vec::new()),
        }
    }

    /// The list in a row.
    pub fn list(&self, row: usize) -> &[i32] {
        let Self::Lists(ends, values) = self else {
            return &[];
        };
        let begin = match row {
            0 => 0,
            row => ends.get(row - 1).copied().unwrap_or(0),
        };
        let end = ends.get(row).copied().unwrap_or(begin);
        values.get(begin as usize..end as usize).unwrap_or_default()
    }
}

/// Rows of a table.
#[derive(Debug)]
pub(crate) struct Batch {
    table: Table,
    columns: Vec<Data>,
    texts: Texts,
    rows: usize,
}

impl Batch {
    /// Without rows.
    pub fn new(table: Table) -> Self {
        Self {
            table,
            columns: table
                .columns()
                .iter()
                .map(|column| Data::new(column.kind))
                .collect(),
            texts: Texts::default(),
            rows: 0,
        }
    }

    /// Memory of a row, without its texts and lists.
    pub fn row_bytes(table: Table) -> usize {
        let width = |kind| match kind {
            Kind::Text | Kind::Ints => 4,
            _ => 8,
        };
        let columns = table.columns().iter();
        columns.map(|column| width(column.kind)).sum()
    }

    pub fn table(&self) -> Table {
        self.table
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    pub fn column(&self, column: usize) -> &Data {
        &self.columns[column]
    }

    /// Adds a row with all values missing, and returns its index.
    pub fn add(&mut self) -> usize {
        for column in &mut self.columns {
            match column {
                Data::Numbers(values) => values.push(NULL),
                Data::Texts(values) => values.push(NO_TEXT),
                Data::Lists(ends, values) => ends.push(values.len() as u32),
            }
        }
        self.rows += 1;
        self.rows - 1
    }

    /// Sets a number; larger numbers than 63 bits are clamped.
    pub fn set(&mut self, row: usize, column: usize, value: u64) {
        if let Data::Numbers(values) = &mut self.columns[column] {
            values[row] = i64::try_from(value).unwrap_or(i64::MAX);
        }
    }

    /// Adds to a number.
    pub fn sum(&mut self, row: usize, column: usize, more: u64) {
        let before = self.number(row, column).max(0).cast_unsigned();
        self.set(row, column, before.saturating_add(more));
    }

    /// A number.
    pub fn number(&self, row: usize, column: usize) -> i64 {
        match &self.columns[column] {
            Data::Numbers(values) => values[row],
            _ => NULL,
        }
    }

    /// Sets a text.
    pub fn set_text(&mut self, row: usize, column: usize, text: &str) {
        let number = self.texts.number(text);
        if let Data::Texts(values) = &mut self.columns[column] {
            values[row] = number;
        }
    }

    /// Takes a text away.
    pub fn clear_text(&mut self, row: usize, column: usize) {
        if let Data::Texts(values) = &mut self.columns[column] {
            values[row] = NO_TEXT;
        }
    }

    /// The number of a text in this batch.
    pub fn number_of(&mut self, text: &str) -> u32 {
        self.texts.number(text)
    }

    /// Sets the list of the row that was added last.
    pub fn set_list(&mut self, column: usize, list: impl Iterator<Item = i32>) {
        if let Data::Lists(ends, values) = &mut self.columns[column] {
            values.extend(list);
            if let Some(end) = ends.last_mut() {
                *end = values.len() as u32;
            }
        }
    }

    /// Rows in the order in which files have them.
    pub fn sorted(&self) -> Vec<u32> {
        let ranks = self.texts.ranks();
        let keys: Vec<(&Data, &[u32])> = self
            .table
            .order()
            .iter()
            .map(|column| (&self.columns[*column], ranks.as_slice()))
            .collect();
        sort(self.rows, &keys)
    }
}

/// Rows sorted by some columns, given with the ranks of their texts.
pub(crate) fn sort(rows: usize, keys: &[(&Data, &[u32])]) -> Vec<u32> {
    let key = |row: u32, (data, ranks): &(&Data, &[u32])| match data {
        Data::Numbers(values) => values[row as usize],
        Data::Texts(values) => i64::from(ranks[values[row as usize] as usize]),
        Data::Lists(..) => 0,
    };
    let mut order: Vec<u32> = (0..rows as u32).collect();
    order.sort_unstable_by(|one, other| {
        let pairs = keys.iter();
        pairs
            .map(|keys| key(*one, keys).cmp(&key(*other, keys)))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| one.cmp(other))
    });
    order
}
