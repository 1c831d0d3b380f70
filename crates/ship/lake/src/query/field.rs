//! Fields of queries: columns, and values derived from them.

use crate::{
    error::{LakeError, Result},
    schema::{Kind, Table, flow},
};

/// What a side has.
const SIDE: [(&str, usize); 13] = [
    ("address", flow::A_ADDRESS),
    ("port", flow::A_PORT),
    ("process", flow::A_PROCESS),
    ("pid", flow::A_PID),
    ("user", flow::A_USER),
    ("container", flow::A_CONTAINER),
    ("pod", flow::A_POD),
    ("unit", flow::A_UNIT),
    ("country", flow::A_COUNTRY),
    ("asn", flow::A_ASN),
    ("organization", flow::A_ORGANIZATION),
    ("network", flow::A_NETWORK),
    ("name", flow::A_NAME),
];

/// Times that can be grouped by, with their length in µs.
const TIMES: [(&str, i64); 3] = [
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", 24 * 3_600_000_000),
];

/// A side of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The column of this side, given the column of `a`.
    pub fn column(self, of_a: usize) -> usize {
        match self {
            Self::A => of_a,
            Self::B => of_a + flow::B_ADDRESS - flow::A_ADDRESS,
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The source of a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A column.
    Column(usize),
    /// A field of either side: the column of `a`.
    Either(usize),
    /// What the side has that offers the service: the column of `a`.
    Server(usize),
    /// What the other side has.
    Client(usize),
    /// Time, rounded down to a multiple of this many µs.
    Time(i64),
}

/// A field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    name: String,
    pub(crate) source: Source,
    pub(crate) kind: Kind,
}

impl Field {
    /// Its name in answers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The field with a name; dots equal underscores (`a.process`).
    ///
    /// # Errors
    ///
    /// If there is none; the error lists the fields.
    pub fn named(table: Table, name: &str) -> Result<Self> {
        let own = match name {
            // As for sums of what is captured now.
            "as" => "asn".to_owned(),
            name => name.replace('.', "_"),
        };
        let source = source(table, &own).ok_or_else(|| {
            LakeError::Question(format!(
                "there is no field \"{name}\" in {}; there are: {}",
                table.name(),
                Self::names(table).join(", ")
            ))
        })?;
        let columns = table.columns();
        let kind = match source {
            Source::Column(at) | Source::Either(at) | Source::Server(at) | Source::Client(at) => {
                columns[at].kind
            }
            Source::Time(_) => Kind::Time,
        };
        if kind == Kind::Ints {
            return Err(LakeError::Question(format!(
                "\"{name}\" is a list: it can neither be grouped nor filtered by"
            )));
        }
        Ok(Self {
            name: own,
            source,
            kind,
        })
    }

    /// Its unit, empty for none.
    pub(crate) fn unit(&self, table: Table) -> &'static str {
        match self.source {
            Source::Column(at) => table.columns()[at].unit,
            _ => "",
        }
    }

    /// Names of all fields.
    pub fn names(table: Table) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        if table == Table::Flows {
            names.extend(SIDE.map(|(name, _)| name.into()));
            for side in ["server", "client"] {
                names.extend(SIDE.map(|(name, _)| format!("{side}_{name}")));
            }
        }
        names.extend(TIMES.map(|(name, _)| name.into()));
        let columns = table.columns().iter();
        let columns = columns.filter(|column| column.kind != Kind::Ints);
        names.extend(columns.map(|column| column.name.to_owned()));
        names
    }

    /// Columns that its value may be in.
    pub(crate) fn columns(&self, table: Table) -> Vec<usize> {
        match self.source {
            Source::Column(column) => vec![column],
            Source::Either(of_a) => Side::BOTH.map(|side| side.column(of_a)).to_vec(),
            Source::Server(of_a) | Source::Client(of_a) => {
                let mut columns = vec![flow::SERVICE_SIDE];
                columns.extend(Side::BOTH.map(|side| side.column(of_a)));
                columns
            }
            Source::Time(_) => vec![table.time()],
        }
    }

    /// The columns that may have the field's value.
    pub(crate) fn value_columns(&self, table: Table) -> Vec<usize> {
        let mut columns = self.columns(table);
        columns.retain(|column| {
            *column != flow::SERVICE_SIDE || self.source == Source::Column(*column)
        });
        columns
    }

    /// Whether the points of a conversation differ in it.
    pub(crate) fn is_of_point(&self) -> bool {
        matches!(self.source, Source::Column(column) if flow::OF_POINT.contains(&column))
    }

    /// Whether its value depends on the viewing side.
    pub(crate) fn has_sides(&self) -> bool {
        matches!(self.source, Source::Either(_))
    }

    /// Whether it is a side's container: where there is none the process may be on the host itself.
    pub(crate) fn is_container(&self) -> bool {
        matches!(
            self.source,
            Source::Either(flow::A_CONTAINER)
                | Source::Server(flow::A_CONTAINER)
                | Source::Client(flow::A_CONTAINER)
        )
    }

    /// Whether it is a name, which may be unknown.
    pub(crate) fn is_name(&self) -> bool {
        match self.source {
            Source::Either(of_a) | Source::Server(of_a) | Source::Client(of_a) => {
                of_a > flow::A_PORT
            }
            Source::Column(column) => self.name == "service" && column == flow::SERVICE,
            Source::Time(_) => false,
        }
    }

    /// Whether it identifies the owner of a socket.
    pub(crate) fn is_owner(&self) -> bool {
        matches!(self.source, Source::Either(of_a) if of_a > flow::A_PORT && of_a < flow::A_COUNTRY)
    }

    /// The column of `a` of what files say of an address, if it is that.
    pub(crate) fn of_address(&self) -> Option<usize> {
        match self.source {
            Source::Either(of_a) if of_a >= flow::A_COUNTRY => Some(of_a),
            _ => None,
        }
    }
}

fn source(table: Table, name: &str) -> Option<Source> {
    let side = |name: &str| {
        let found = SIDE.iter().find(|(known, _)| *known == name);
        found.map(|(_, column)| *column)
    };
    if let Some((_, length)) = TIMES.iter().find(|(known, _)| *known == name) {
        return Some(Source::Time(*length));
    }
    if table == Table::Flows {
        if let Some(column) = side(name) {
            return Some(Source::Either(column));
        }
        if let Some(column) = name.strip_prefix("server_").and_then(side) {
            return Some(Source::Server(column));
        }
        if let Some(column) = name.strip_prefix("client_").and_then(side) {
            return Some(Source::Client(column));
        }
    }
    table.column(name).map(Source::Column)
}
