//! Questions: filter by time and any field, group by up to six, top N by a sum.

mod answer;
mod condition;
mod field;
mod packet;
mod run;

pub use answer::{Answer, FieldValue, Group};
pub use condition::{Condition, Conditions};
pub use field::Field;
pub use packet::PacketFilter;

use crate::{
    error::{LakeError, Result},
    schema::Table,
};

/// Fields to group by at most.
pub const FIELDS: usize = 6;
/// Most groups, by default.
pub const GROUPS: usize = 400_000;
/// Most bytes of names that a query holds.
pub(crate) const NAMES: usize = 128 << 20;

/// What groups are ordered by, the greatest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Bytes in both directions; also the order by rate.
    #[default]
    Bytes,
    /// Packets in both directions.
    Packets,
    /// Bytes sent.
    Sent,
    /// Bytes received.
    Received,
    /// Conversations that began.
    Begun,
    /// Conversations that ended.
    Ended,
    /// Retransmitted segments.
    Retransmitted,
    /// Mean time of the handshake.
    Rtt,
    /// Time of the last packet.
    Last,
    /// Time of the first one.
    First,
}

impl Order {
    /// All with their names.
    pub const ALL: [(&'static str, Self); 11] = [
        ("rate", Self::Bytes),
        ("bytes", Self::Bytes),
        ("packets", Self::Packets),
        ("sent", Self::Sent),
        ("received", Self::Received),
        ("begun", Self::Begun),
        ("ended", Self::Ended),
        ("retransmits", Self::Retransmitted),
        ("rtt", Self::Rtt),
        ("last", Self::Last),
        ("start", Self::First),
    ];

    /// The order with a name.
    ///
    /// # Errors
    ///
    /// If there is none; the error lists the orders.
    pub fn named(name: &str) -> Result<Self> {
        match Self::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, order)) => Ok(*order),
            None => Err(LakeError::Question(format!(
                "cannot sort by \"{name}\": {}",
                Self::ALL.map(|(name, _)| name).join(", ")
            ))),
        }
    }
}

/// A question.
pub struct Question {
    /// Of which table.
    pub table: Table,
    /// Rows from this time on, µs since the Unix epoch.
    pub since: i64,
    /// Rows before this time.
    pub until: i64,
    /// Groups: rows with the same in these are one. At most [`FIELDS`].
    pub by: Vec<Field>,
    /// All must match.
    pub conditions: Conditions,
    /// A further condition on the conversation's packets.
    pub filter: Option<PacketFilter>,
    /// Order of the groups.
    pub order: Order,
    /// Rates count up to this time at most, µs: the end of a query may be in the future.
    pub now: i64,
    /// Groups in the answer at most.
    pub top: usize,
    /// Groups in memory at most, 144 bytes each.
    pub groups: usize,
}

impl Question {
    /// Of everything in a time, into no groups yet.
    pub fn new(table: Table, since: i64, until: i64) -> Self {
        Self {
            table,
            since,
            until,
            by: Vec::new(),
            conditions: Conditions::default(),
            filter: None,
            order: Order::default(),
            now: i64::MAX,
            top: 20,
            groups: GROUPS,
        }
    }

    /// Groups by fields, `service,process`.
    ///
    /// # Errors
    ///
    /// When there is no such field, or there are too many.
    pub fn by(mut self, names: &str) -> Result<Self> {
        let names = names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        for name in names {
            self.by.push(Field::named(self.table, name)?);
        }
        if self.by.len() > FIELDS {
            return Err(LakeError::Question(format!(
                "groups by {} fields; {FIELDS} at most",
                self.by.len()
            )));
        }
        Ok(self)
    }

    /// Adds conditions, `process:nginx port:443`.
    ///
    /// # Errors
    ///
    /// When it makes no sense.
    pub fn where_(mut self, condition: &str) -> Result<Self> {
        self.conditions.and(self.table, condition)?;
        Ok(self)
    }
}
