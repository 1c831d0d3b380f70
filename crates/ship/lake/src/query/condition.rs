//! Conditions on rows, and on the sums of groups: `process:nginx server_port>=1024 bytes>1MB`.

use skua_condition::{
    ConditionError, Key, Kind as ValueKind, SideField, Test, Unit,
    key::Side as KeySide,
    syntax::{self, Raw},
};

use super::{answer::Sums, field::Field};
use crate::{
    batch::NULL,
    error::{LakeError, Result},
    file::File,
    schema::{Kind, Table},
};

/// What must hold of a value.
#[derive(Clone, PartialEq, Debug)]
enum Wanted {
    /// It is as compared.
    Test(Test),
    /// The text contains this one, whatever the case of its letters.
    Contains(String),
}

/// A condition on any of some fields. A missing value is unequal to all others, and neither less nor greater; an empty
/// value means missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    pub(crate) fields: Vec<Field>,
    wanted: Wanted,
    pub(crate) negated: bool,
    /// Only the namespace of an interface's name is meant.
    namespace: bool,
}

/// A sum of a group.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Sum {
    Rate,
    Bytes,
    Packets,
    Retransmits,
    Rtt,
    Age,
}

/// A condition on the sums of a group.
#[derive(Clone, PartialEq, Debug)]
pub struct OfSums {
    sum: Sum,
    test: Test,
    negated: bool,
}

impl OfSums {
    /// Whether the sums over a time are as wanted.
    pub(crate) fn holds(&self, sums: &Sums, seconds: f64) -> bool {
        let bytes = sums.sent[1].saturating_add(sums.received[1]) as f64;
        let value = match self.sum {
            Sum::Rate => Some(bytes * 8.0 / seconds.max(0.001)),
            Sum::Bytes => Some(bytes),
            Sum::Packets => Some(sums.sent[0].saturating_add(sums.received[0]) as f64),
            Sum::Retransmits => Some(sums.retransmitted as f64),
            Sum::Rtt => sums.mean_rtt().map(|ns| ns as f64),
            Sum::Age => Some(sums.last.saturating_sub(sums.first).max(0) as f64 * 1e3),
        };
        self.test.holds_number(value) != self.negated
    }
}

/// Conditions of both kinds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conditions {
    /// On rows.
    pub rows: Vec<Condition>,
    /// On sums.
    pub sums: Vec<OfSums>,
}

/// Fields that a text is searched in.
const SEARCHED: [&str; 9] = [
    "process",
    "container",
    "pod",
    "unit",
    "user",
    "address",
    "service",
    "protocol",
    // The last: what is only in the name of an interface is asked of that point alone.
    "interface",
];

/// What a key is here.
enum Place {
    Fields(Vec<Field>, ValueKind, bool),
    Sum(Sum, ValueKind),
}

fn place(table: Table, name: &str) -> Result<Place> {
    let key = Key::named(name);
    let sum = match key {
        Some(Key::Rate) => Some(Sum::Rate),
        Some(Key::Bytes) => Some(Sum::Bytes),
        Some(Key::Packets) => Some(Sum::Packets),
        Some(Key::Retransmits) => Some(Sum::Retransmits),
        Some(Key::Rtt) => Some(Sum::Rtt),
        Some(Key::Age) => Some(Sum::Age),
        _ => None,
    };
    if let (Some(sum), Some(key)) = (sum, key) {
        return Ok(Place::Sum(sum, key.kind()));
    }
    let own = |names: &[&str], kind, namespace| {
        let fields = names.iter().map(|name| Field::named(table, name));
        Ok(Place::Fields(
            fields.collect::<Result<_>>()?,
            kind,
            namespace,
        ))
    };
    if let (Table::Flows, Some(key)) = (table, key) {
        let kind = key.kind();
        match key {
            Key::State => return own(&["tcp_state", "end"], kind, false),
            Key::Vlan => return own(&["vlan", "inner_vlan"], kind, false),
            Key::Namespace => return own(&["interface"], kind, true),
            Key::Side(side, field) => {
                let field = side_field(field);
                let name = match side {
                    KeySide::Any => field.to_owned(),
                    KeySide::A => format!("a_{field}"),
                    KeySide::B => format!("b_{field}"),
                    KeySide::Server => format!("server_{field}"),
                    KeySide::Client => format!("client_{field}"),
                };
                return own(&[&name], kind, false);
            }
            _ => {}
        }
    }
    let name = key.and_then(Key::column).unwrap_or(name);
    let field = Field::named(table, name)?;
    let kind = match field.kind {
        Kind::Text if field.name().contains("address") => ValueKind::Address,
        Kind::Text if matches!(field.name(), "client" | "server") => ValueKind::Address,
        Kind::Text => ValueKind::Text,
        _ => ValueKind::Number(Unit::of_field(field.unit(table))),
    };
    Ok(Place::Fields(vec![field], kind, false))
}

fn side_field(field: SideField) -> &'static str {
    match field {
        SideField::Address => "address",
        SideField::Port => "port",
        SideField::Process => "process",
        SideField::Pid => "pid",
        SideField::User => "user",
        SideField::Container => "container",
        SideField::Pod => "pod",
        SideField::Unit => "unit",
        SideField::Country => "country",
        SideField::Asn => "asn",
        SideField::Organization => "organization",
        SideField::Network => "network",
        SideField::Name => "name",
    }
}

impl From<ConditionError> for LakeError {
    fn from(error: ConditionError) -> Self {
        Self::Question(error.to_string())
    }
}

impl Conditions {
    /// Adds those of a text.
    ///
    /// # Errors
    ///
    /// When it makes no sense.
    pub fn and(&mut self, table: Table, text: &str) -> Result<()> {
        for raw in syntax::parse(text)? {
            self.add(table, text, &raw)?;
        }
        Ok(())
    }

    fn add(&mut self, table: Table, text: &str, raw: &Raw) -> Result<()> {
        let Some(key) = &raw.key else {
            let lower = raw
                .values
                .iter()
                .map(|value| value.text.to_ascii_lowercase());
            let names = SEARCHED
                .iter()
                .filter_map(|name| Field::named(table, name).ok());
            let sides = ["client", "server"].iter();
            let services = sides.filter_map(|name| Field::named(table, name).ok());
            self.rows.push(Condition {
                fields: services.chain(names).collect(),
                wanted: Wanted::Contains(lower.collect()),
                negated: raw.negated,
                namespace: false,
            });
            return Ok(());
        };
        let test = |kind| {
            Test::new(kind, raw.sign, &raw.values).map_err(|(value, what)| {
                LakeError::from(ConditionError {
                    part: value.text,
                    at: text.get(..value.at).unwrap_or_default().chars().count(),
                    what,
                })
            })
        };
        match place(table, &key.text)? {
            Place::Fields(fields, kind, namespace) => self.rows.push(Condition {
                fields,
                wanted: Wanted::Test(test(kind)?),
                negated: raw.negated,
                namespace,
            }),
            Place::Sum(sum, kind) => self.sums.push(OfSums {
                sum,
                test: test(kind)?,
                negated: raw.negated,
            }),
        }
        Ok(())
    }
}

impl Condition {
    /// A condition on the address of either side, to skip row groups.
    pub(crate) fn address(table: Table, address: std::net::IpAddr) -> Result<Self> {
        let mut all = Conditions::default();
        all.and(table, &format!("address:{address}"))?;
        let one = all.rows.pop();
        one.ok_or_else(|| LakeError::Question("no address".into()))
    }

    /// Whether a text is searched in several fields.
    pub(crate) fn is_search(&self) -> bool {
        matches!(self.wanted, Wanted::Contains(_))
    }

    /// Whether a number is as compared; a negated condition holds when it is not.
    pub(crate) fn finds_number(&self, value: i64) -> bool {
        match &self.wanted {
            Wanted::Test(test) => test.holds_number((value != NULL).then_some(value as f64)),
            Wanted::Contains(_) => false,
        }
    }

    /// Whether a text is as compared.
    pub(crate) fn finds_text(&self, value: &str) -> bool {
        let value = match self.namespace {
            true => value.split_once('/').map_or("", |(namespace, _)| namespace),
            false => value,
        };
        match &self.wanted {
            Wanted::Test(test) => test.holds_text(value),
            Wanted::Contains(lower) => {
                let (value, lower) = (value.as_bytes(), lower.as_bytes());
                lower.is_empty()
                    || value
                        .windows(lower.len())
                        .any(|part| part.eq_ignore_ascii_case(lower))
            }
        }
    }

    /// Whether a row group may have a matching row.
    pub(crate) fn may_hold(&self, file: &File<'_>, table: Table, group: usize) -> Result<bool> {
        let Wanted::Test(test) = &self.wanted else {
            return Ok(true);
        };
        if self.negated || self.namespace {
            return Ok(true);
        }
        for field in &self.fields {
            for column in field.value_columns(table) {
                if may_hold_in(test, field.kind, file, group, column)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn may_hold_in(
    test: &Test,
    kind: Kind,
    file: &File<'_>,
    group: usize,
    column: usize,
) -> Result<bool> {
    if kind != Kind::Text {
        let range = file.number_range(group, column);
        return Ok(range.is_none_or(|(least, most)| test.may_hold(least as f64, most as f64)));
    }
    let Some(texts) = test.exact() else {
        return Ok(true);
    };
    for wanted in texts {
        let inside = file
            .text_range(group, column)
            .is_none_or(|(least, most)| least <= wanted.as_bytes() && wanted.as_bytes() <= most);
        if inside && file.may_have(group, column, &wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Condition {
        let mut all = Conditions::default();
        all.and(Table::Flows, text).unwrap();
        all.rows.pop().unwrap()
    }

    #[test]
    fn values_are_compared_as_their_kind_wants() {
        assert!(parse("process=nginx").finds_text("nginx"));
        assert!(!parse("process = nginx").finds_text("nginx2"));
        assert!(parse("process!=nginx").negated && parse("-process:nginx").negated);
        assert!(parse("process=").finds_text(""));
        let net = parse("a.address=10.0.0.0/8");
        assert!(net.finds_text("10.1.2.3") && !net.finds_text("11.1.2.3"));
        assert!(!net.finds_text("02:00:00:00:00:01"));
        assert!(parse("port>=1024").finds_number(1024) && !parse("port>1024").finds_number(1024));
        assert!(!parse("port<1024").finds_number(NULL));
        assert!(parse("vlan=").finds_number(NULL));
        assert!(parse("namespace:web").finds_text("web/eth0"));
        assert!(parse("tcp_handshake_rtt>10ms").finds_number(11_000_000));
        assert!(parse("\"NGI\"").finds_text("nginx") && !parse("ngi").finds_text("apache"));
    }

    #[test]
    fn sums_are_compared_when_they_are_summed_up() {
        let mut all = Conditions::default();
        all.and(Table::Flows, "bytes>1kB rate<=8kbit -packets:3 age<2s")
            .unwrap();
        let sums = |packets, bytes| Sums {
            sent: [packets, bytes],
            first: 0,
            last: 1_000_000,
            ..Sums::default()
        };
        let holds = |sums: Sums| all.sums.iter().all(|condition| condition.holds(&sums, 2.0));
        assert!(all.rows.is_empty() && holds(sums(2, 2_000)));
        assert!(!holds(sums(2, 1_000)) && !holds(sums(2, 2_001)) && !holds(sums(3, 2_000)));
    }

    #[test]
    fn conditions_without_sense_are_refused() {
        for (text, why) in [
            ("proces=nginx", "no field \"proces\""),
            ("port=http", "write a whole number"),
            ("port<", "write a whole number"),
            ("process<nginx", "texts can only be compared"),
            ("process:a or process:b", "all conditions must hold"),
        ] {
            let error = Conditions::default()
                .and(Table::Flows, text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
