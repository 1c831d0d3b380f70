//! Conditions on fields: `process=nginx`, `server_port>=1024`, `address=10.0.0.0/8`.

use std::net::IpAddr;

use ipnet::IpNet;

use super::field::Field;
use crate::{
    batch::NULL,
    error::{LakeError, Result},
    file::File,
    schema::{Kind, Table},
};

/// How values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("!=", Comparison::Unequal),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
    ("=", Comparison::Equal),
];

/// What a value is compared with.
#[derive(Clone, PartialEq, Debug)]
enum Operand {
    Number(i64),
    Text(String),
    Prefix(IpNet),
}

/// A condition on a field. A missing value is unequal to all others, and neither less nor greater; an empty
/// value means missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    pub(crate) field: Field,
    comparison: Comparison,
    operand: Operand,
}

impl Condition {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// When it makes no sense.
    pub fn parse(table: Table, text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            LakeError::Question(format!(
                "\"{text}\" is not a condition: {why}; write it like process=nginx, port>=1024 or \
                 address=10.0.0.0/8"
            ))
        };
        let at = text
            .find(['!', '<', '>', '='])
            .ok_or_else(|| wrong("it has no comparison"))?;
        let (name, rest) = text.split_at(at);
        let found = COMPARISONS
            .into_iter()
            .find_map(|(sign, comparison)| Some((comparison, rest.strip_prefix(sign)?)));
        let (comparison, value) = found.ok_or_else(|| wrong("it has no comparison"))?;
        let (field, value) = (Field::named(table, name.trim())?, value.trim());
        let ordered = !matches!(comparison, Comparison::Equal | Comparison::Unequal);
        let operand = match field.kind {
            Kind::Text => {
                if ordered {
                    return Err(wrong("text can only be compared with = and !="));
                }
                match value.parse::<IpNet>() {
                    Ok(prefix)
                        if value.contains('/') && field.name().contains("address")
                            || matches!(field.name(), "client" | "server")
                                && value.contains('/') =>
                    {
                        Operand::Prefix(prefix)
                    }
                    _ => Operand::Text(value.into()),
                }
            }
            _ if value.is_empty() && !ordered => Operand::Number(NULL),
            _ => Operand::Number(
                value
                    .parse::<u64>()
                    .ok()
                    .and_then(|number| i64::try_from(number).ok())
                    .ok_or_else(|| wrong("the field is a number"))?,
            ),
        };
        Ok(Self {
            field,
            comparison,
            operand,
        })
    }

    /// A condition on the address of either side, to skip row groups.
    pub(crate) fn address(table: Table, address: IpAddr) -> Result<Self> {
        Self::parse(table, &format!("address={address}"))
    }

    /// Whether a number matches.
    pub(crate) fn holds_number(&self, value: i64) -> bool {
        let Operand::Number(wanted) = self.operand else {
            return false;
        };
        let known = value != NULL;
        match self.comparison {
            Comparison::Equal => value == wanted,
            Comparison::Unequal => value != wanted,
            Comparison::Less => known && value < wanted,
            Comparison::AtMost => known && value <= wanted,
            Comparison::Greater => known && value > wanted,
            Comparison::AtLeast => known && value >= wanted,
        }
    }

    /// Whether a text matches.
    pub(crate) fn holds_text(&self, value: &str) -> bool {
        let equal = match &self.operand {
            Operand::Text(wanted) => value == wanted,
            Operand::Prefix(prefix) => {
                let ip = value.parse::<IpAddr>();
                ip.is_ok_and(|ip| prefix.contains(&ip))
            }
            Operand::Number(_) => false,
        };
        equal == (self.comparison == Comparison::Equal)
    }

    /// Whether a row group may have a matching row.
    pub(crate) fn may_hold(&self, file: &File<'_>, table: Table, group: usize) -> Result<bool> {
        for column in self.field.value_columns(table) {
            if self.may_hold_in(file, group, column)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn may_hold_in(&self, file: &File<'_>, group: usize, column: usize) -> Result<bool> {
        match &self.operand {
            Operand::Number(wanted) if *wanted != NULL => {
                let Some((least, most)) = file.number_range(group, column) else {
                    return Ok(true);
                };
                Ok(match self.comparison {
                    Comparison::Equal => (least..=most).contains(wanted),
                    Comparison::Unequal => true,
                    Comparison::Less => least < *wanted,
                    Comparison::AtMost => least <= *wanted,
                    Comparison::Greater => most > *wanted,
                    Comparison::AtLeast => most >= *wanted,
                })
            }
            Operand::Text(wanted) if !wanted.is_empty() && self.comparison == Comparison::Equal => {
                let inside = file.text_range(group, column).is_none_or(|(least, most)| {
                    least <= wanted.as_bytes() && wanted.as_bytes() <= most
                });
                Ok(inside && file.may_have(group, column, wanted)?)
            }
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Condition {
        Condition::parse(Table::Flows, text).unwrap()
    }

    #[test]
    fn values_are_compared_as_their_kind_wants() {
        assert!(parse("process=nginx").holds_text("nginx"));
        assert!(!parse("process = nginx").holds_text("nginx2"));
        assert!(parse("process!=nginx").holds_text(""));
        assert!(parse("process=").holds_text(""));
        let net = parse("a.address=10.0.0.0/8");
        assert!(net.holds_text("10.1.2.3") && !net.holds_text("11.1.2.3"));
        assert!(!net.holds_text("02:00:00:00:00:01"));
        assert!(parse("port>=1024").holds_number(1024) && !parse("port>1024").holds_number(1024));
        assert!(!parse("port<1024").holds_number(NULL));
        assert!(parse("port!=1024").holds_number(NULL) && parse("vlan=").holds_number(NULL));
    }

    #[test]
    fn conditions_without_sense_are_refused() {
        for (text, why) in [
            ("process", "it has no comparison"),
            ("process!nginx", "it has no comparison"),
            ("proces=nginx", "no field \"proces\""),
            ("port=http", "the field is a number"),
            ("port<", "the field is a number"),
            ("process<nginx", "text can only be compared"),
        ] {
            let error = Condition::parse(Table::Flows, text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
