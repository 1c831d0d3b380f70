//! What is defined of a field.

use crate::Record;

/// A field of a record.
pub struct Field<R: Record> {
    /// Place in the JSON object, `ab.packets` being `packets` in the object `ab`.
    pub path: &'static str,
    /// Type of the value.
    pub kind: FieldType,
    /// Unit of the value, empty for none.
    pub unit: &'static str,
    /// When the field is left out, empty for never.
    pub absent: &'static str,
    /// What the value means.
    pub meaning: &'static str,
    /// How it is found.
    pub value: R::Getter,
    /// Whether its object is in every record, although each field of it may be left out.
    pub in_every_record: bool,
    /// What it is in several records of the same thing together.
    pub aggregation: Aggregation,
    /// Key in queries (Gremlin).
    pub key: Name,
    /// Column in the lake.
    pub column: Name,
    /// Type of that column, when it is not that of the field: a number instead of text.
    pub column_kind: FieldType,
    /// Name in Kafka's messages or rows.
    pub message: Name,
    /// Its number there.
    pub number: u32,
}

/// What the value is in several records of the same thing together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregation {
    /// The same in all.
    Same,
    /// The sum.
    Sum,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
    /// All of them.
    Union,
    /// The one that is known, once it is.
    Known,
    /// The latest; it may be absent again.
    Latest,
    /// Nothing that values give: it is computed anew.
    Anew,
}

impl Aggregation {
    /// Name in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Sum => "sum",
            Self::Least => "least",
            Self::Greatest => "greatest",
            Self::Union => "union",
            Self::Known => "known",
            Self::Latest => "latest",
            Self::Anew => "computed anew",
        }
    }
}

/// Name of a field in an output that not every kind of record has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// Nothing is defined.
    Undefined,
    /// The output has the value, in its form of the type.
    Value(&'static str),
    /// The output has the value in another form, and makes it itself.
    Own(&'static str),
    /// The output does not have it, and why.
    Without(&'static str),
}

impl Name {
    /// The name, when there is one.
    pub const fn get(self) -> Option<&'static str> {
        match self {
            Self::Value(name) | Self::Own(name) => Some(name),
            Self::Undefined | Self::Without(_) => None,
        }
    }

    /// The name of a value that the output does not make itself.
    pub const fn of_value(self) -> Option<&'static str> {
        match self {
            Self::Value(name) => Some(name),
            _ => None,
        }
    }
}

/// Whether two texts are the same; in constants `==` cannot be used.
pub const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl<R: Record> Field<R> {
    /// A field, its parts in the order of the table in the documentation.
    pub const fn new(
        path: &'static str,
        kind: FieldType,
        unit: &'static str,
        absent: &'static str,
        meaning: &'static str,
        value: R::Getter,
    ) -> Self {
        Self {
            path,
            kind,
            unit,
            absent,
            meaning,
            value,
            in_every_record: false,
            aggregation: Aggregation::Same,
            key: Name::Undefined,
            column: Name::Undefined,
            column_kind: kind,
            message: Name::Undefined,
            number: 0,
        }
    }

    /// In an object that is in every record.
    pub const fn in_every_record(mut self) -> Self {
        self.in_every_record = true;
        self
    }

    /// Whether what is directly in the record, the field or its object, is in every record.
    pub(crate) const fn is_required(&self) -> bool {
        self.in_every_record || self.absent.is_empty()
    }

    /// Sets how values of several records combine.
    pub const fn is(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = aggregation;
        self
    }

    /// With the key in queries that has this value.
    pub const fn key(mut self, key: &'static str) -> Self {
        self.key = Name::Value(key);
        self
    }

    /// With the key in queries that has this value in Skydive's form.
    pub const fn own_key(mut self, key: &'static str) -> Self {
        self.key = Name::Own(key);
        self
    }

    /// Without a key in queries, and why.
    pub const fn no_key(mut self, why: &'static str) -> Self {
        self.key = Name::Without(why);
        self
    }

    /// With the column of the lake that has this value.
    pub const fn column(mut self, column: &'static str) -> Self {
        self.column = Name::Value(column);
        self
    }

    /// With the column of the lake that has this value as a number.
    pub const fn number_column(mut self, column: &'static str, kind: FieldType) -> Self {
        self.column_kind = kind;
        self.column(column)
    }

    /// With the column of the lake that has this value in another form.
    pub const fn own_column(mut self, column: &'static str) -> Self {
        self.column = Name::Own(column);
        self
    }

    /// With the number and name in Kafka's messages that has this value.
    pub const fn message(mut self, number: u32, name: &'static str) -> Self {
        self.number = number;
        self.message = Name::Value(name);
        self
    }

    /// With the number and name in Kafka's messages that has this value in another form.
    pub const fn own_message(mut self, number: u32, name: &'static str) -> Self {
        self.number = number;
        self.message = Name::Own(name);
        self
    }

    /// With the name in Kafka's rows, which are flat JSON.
    pub const fn row(mut self, name: &'static str) -> Self {
        self.message = Name::Value(name);
        self
    }

    /// Not in Kafka's messages or rows, and why.
    pub const fn no_message(mut self, why: &'static str) -> Self {
        self.message = Name::Without(why);
        self
    }

    /// Without a column in the lake, and why.
    pub const fn no_column(mut self, why: &'static str) -> Self {
        self.column = Name::Without(why);
        self
    }
}

// Derived they would want that of `R`, which is only a name.
impl<R: Record> Clone for Field<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Record> Copy for Field<R> {}

/// Type of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldType {
    /// Text.
    String,
    /// Time, in JSON and CSV as text (RFC 3339, UTC).
    Time,
    /// Whole number, not negative.
    Integer,
    /// Whole number of 32 bits, not negative.
    Integer32,
    /// Number, not negative.
    Number,
    /// List of such numbers; in CSV separated by spaces.
    Integers,
    /// List of pairs of such numbers.
    Pairs,
    /// List of texts.
    Strings,
}

impl FieldType {
    /// Name in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::String | Self::Time => "string",
            Self::Integer | Self::Integer32 => "integer",
            Self::Number => "number",
            Self::Integers => "integers",
            Self::Pairs => "pairs of integers",
            Self::Strings => "strings",
        }
    }
}
