//! Whether a conversation meets conditions. Nothing here allocates (but the first question what files say of an address): conditions are asked of each record under the lock
//! of the state.

use std::{
    fmt::{self, Write as _},
    net::IpAddr,
};

use skua_flow::{ConversationOwner, FlowLine, Network, fields::Own, names::Protocol};
use skua_record::Value;

use crate::{
    ConditionError, Key, SideField, Test,
    key::{self, KEYS, Side},
    syntax::{self, Raw},
};

/// A conversation that conditions are about.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The record with its owners, interface and rate.
    pub line: &'a FlowLine<'a>,
    /// Name of the service that is called, empty when nobody knows it.
    pub service: &'a str,
}

/// What a term asks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Question {
    /// Of a key.
    Key(Key, Test),
    /// In any text, in lower case.
    Anywhere(String),
}

/// A condition.
#[derive(Clone, PartialEq, Debug)]
pub struct Term {
    negated: bool,
    question: Question,
}

/// Conditions that must all hold.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conditions {
    /// They select points.
    of_points: Vec<Term>,
    /// They select conversations.
    of_all: Vec<Term>,
}

/// Text of few bytes.
struct Short {
    bytes: [u8; 64],
    length: usize,
}

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Has a value read as a text.
fn as_text<T>(value: impl fmt::Display, read: impl FnOnce(&str) -> T) -> T {
    let mut short = Short {
        bytes: [0; 64],
        length: 0,
    };
    // What is longer is no address, protocol, identifier or flags: it is cut.
    let _ = write!(short, "{value}");
    read(std::str::from_utf8(&short.bytes[..short.length]).unwrap_or_default())
}

/// Whether a text contains one in lower case, whatever the case of its letters.
fn contains(text: &str, lower: &str) -> bool {
    let (text, lower) = (text.as_bytes(), lower.as_bytes());
    lower.is_empty()
        || text
            .windows(lower.len())
            .any(|part| part.eq_ignore_ascii_case(lower))
}

/// The namespace of an interface's name, `web/eth0`.
pub(crate) fn namespace(interface: &str) -> &str {
    interface
        .split_once('/')
        .map_or("", |(namespace, _)| namespace)
}

impl Subject<'_> {
    /// Whether the side that spoke first is the service; none without a service.
    fn server(&self) -> Option<bool> {
        let record = self.line.record;
        record.service.map(|service| service.lo == record.lo_first)
    }

    fn owner(&self, a: bool) -> ConversationOwner<'_> {
        let [first, second] = self.line.record.by_a(self.line.owners);
        if a { first } else { second }
    }

    fn address(&self, a: bool) -> Option<IpAddr> {
        let record = self.line.record;
        let (address, _) = if a { record.a() } else { record.b() };
        record.key.ip(address)
    }

    /// What files say of the address of a side. Only the first question about an address allocates.
    fn known(&self, a: bool) -> skua_networks::Known {
        self.address(a).map(skua_networks::of).unwrap_or_default()
    }

    /// Whether a side has what is asked for.
    fn side(&self, a: bool, field: SideField, test: &Test) -> bool {
        let (record, owner) = (self.line.record, self.owner(a));
        let known = |number: u64| (number != 0).then_some(number as f64);
        match field {
            SideField::Address => match self.address(a) {
                Some(ip) => test.holds_ip(ip, || as_text(ip, |text| test.holds_text(text))),
                None if record.key.ethernet() => {
                    let (address, _) = if a { record.a() } else { record.b() };
                    as_text(Own::mac(address), |text| test.holds_text(text))
                }
                None => test.holds_text(""),
            },
            SideField::Port => {
                let (_, port) = if a { record.a() } else { record.b() };
                let there = record.key.network() != Network::None;
                test.holds_number(there.then_some(port.into()))
            }
            SideField::Pid => test.holds_number(known(owner.pid.into())),
            SideField::Process => test.holds_text(owner.process),
            SideField::User => match (owner.user, owner.uid) {
                ("", Some(uid)) => as_text(uid, |text| test.holds_text(text)),
                (user, _) => test.holds_text(user),
            },
            SideField::Container => test.holds_text(owner.container),
            SideField::Pod => test.holds_text(owner.pod),
            SideField::Unit => test.holds_text(owner.unit),
            SideField::Country => test.holds_text(self.known(a).country),
            SideField::Asn => test.holds_number(self.known(a).asn.map(f64::from)),
            SideField::Organization => test.holds_text(self.known(a).organization),
            SideField::Network => test.holds_text(self.known(a).network),
            SideField::Name => test.holds_text(record.name_of(a).as_deref().unwrap_or_default()),
        }
    }

    fn key(&self, key: Key, test: &Test, view: Option<(bool, SideField)>) -> bool {
        let line = self.line;
        let record = line.record;
        match key {
            Key::Side(Side::Any, field) => match view {
                Some((a, by)) if by == field => self.side(a, field, test),
                _ => self.side(true, field, test) || self.side(false, field, test),
            },
            Key::Side(Side::A, field) => self.side(true, field, test),
            Key::Side(Side::B, field) => self.side(false, field, test),
            Key::Side(Side::Server, field) => {
                self.server().is_some_and(|a| self.side(a, field, test))
            }
            Key::Side(Side::Client, field) => {
                self.server().is_some_and(|a| self.side(!a, field, test))
            }
            Key::Interface => test.holds_text(line.interface),
            Key::Namespace => test.holds_text(namespace(line.interface)),
            Key::Vlan => {
                let mut tags = record.key.vlan_ids().peekable();
                match tags.peek() {
                    None => test.holds_number(None),
                    Some(_) => tags.any(|tag| test.holds_number(Some(tag.into()))),
                }
            }
            Key::Protocol => as_text(Protocol(&record.key), |text| test.holds_text(text)),
            Key::Service => test.holds_text(self.service),
            Key::State => {
                let state = record.tcp_state().map_or("", |state| state.name());
                let end = record.end.map_or("", skua_flow::fields::end_name);
                test.holds_text(state) || (!end.is_empty() && test.holds_text(end))
            }
            Key::Rate => test.holds_number(Some(line.rate.bits_per_second)),
            Key::Bytes => test.holds_number(Some(record.total().bytes as f64)),
            Key::Packets => test.holds_number(Some(record.total().packets as f64)),
            Key::Rtt => test.holds_number(record.handshake_rtt_ns().map(|ns| ns as f64)),
            Key::Retransmits => test.holds_number(Some(record.retransmitted() as f64)),
            Key::Age => {
                let ns = record.last_ns.saturating_sub(record.first_ns);
                test.holds_number(Some(ns as f64))
            }
            Key::Field(_) => key.field().is_some_and(|field| {
                let value = (field.value)(line);
                match (key.kind(), value) {
                    (crate::Kind::Number(_), value) => test.holds_number(match value {
                        Value::Integer(number) => Some(number as f64),
                        Value::Number(number) => Some(number),
                        Value::Other(other) => other.number().map(|number| number as f64),
                        _ => None,
                    }),
                    (_, Value::Text(text)) => test.holds_text(text),
                    (_, Value::Absent) => test.holds_text(""),
                    (_, Value::Ip(ip)) => {
                        test.holds_ip(ip, || as_text(ip, |text| test.holds_text(text)))
                    }
                    (_, Value::Other(other)) => as_text(other, |text| test.holds_text(text)),
                    (_, Value::Numeral(number)) => as_text(number, |text| test.holds_text(text)),
                    (_, Value::Time(ns)) => {
                        as_text(skua_record::time::UnixNs(ns), |text| test.holds_text(text))
                    }
                    (_, Value::Integer(number)) => as_text(number, |text| test.holds_text(text)),
                    _ => false,
                }
            }),
        }
    }

    fn anywhere(&self, lower: &str) -> bool {
        let found = |text: &str| contains(text, lower);
        let record = self.line.record;
        let side = |a: bool| {
            let owner = self.owner(a);
            [
                owner.process,
                owner.container,
                owner.pod,
                owner.unit,
                owner.user,
            ]
            .into_iter()
            .any(found)
                || match self.address(a) {
                    Some(ip) => as_text(ip, found),
                    None => {
                        let (address, _) = if a { record.a() } else { record.b() };
                        record.key.ethernet() && as_text(Own::mac(address), found)
                    }
                }
        };
        found(self.line.interface)
            || found(self.service)
            || side(true)
            || side(false)
            || as_text(Protocol(&record.key), found)
            || record.tcp_state().is_some_and(|state| found(state.name()))
    }
}

impl Term {
    /// Reads a term as it is written.
    ///
    /// # Errors
    ///
    /// What is wrong and where.
    pub fn new(text: &str, raw: &Raw) -> Result<Self, ConditionError> {
        let question = match &raw.key {
            None => Question::Anywhere(
                raw.values
                    .first()
                    .map(|value| value.text.to_ascii_lowercase())
                    .unwrap_or_default(),
            ),
            Some(written) => {
                let key = Key::named(&written.text).ok_or_else(|| unknown(text, written))?;
                Question::Key(key, test(text, key.kind(), raw)?)
            }
        };
        Ok(Self {
            negated: raw.negated,
            question,
        })
    }

    fn holds(&self, subject: &Subject<'_>, view: Option<(bool, SideField)>) -> bool {
        let found = match &self.question {
            Question::Key(key, test) => subject.key(*key, test, view),
            Question::Anywhere(lower) => subject.anywhere(lower),
        };
        found != self.negated
    }
}

/// The comparison of a term.
///
/// # Errors
///
/// What is wrong and where.
pub(crate) fn test(text: &str, kind: crate::Kind, raw: &Raw) -> Result<Test, ConditionError> {
    Test::new(kind, raw.sign, &raw.values)
        .map_err(|(value, what)| ConditionError::new(text, value.at, &value.text, what))
}

/// The error of a key that there is not.
pub(crate) fn unknown(text: &str, written: &syntax::Written) -> ConditionError {
    let what = match key::like(&written.text) {
        Some(like) => format!("there is no such key; did you mean `{like}`?"),
        None => {
            let names: Vec<&str> = KEYS.iter().map(|known| known.name).collect();
            format!("there is no such key; keys are {}", names.join(", "))
        }
    };
    ConditionError::new(text, written.at, &written.text, what)
}

impl Conditions {
    /// Reads a text.
    ///
    /// # Errors
    ///
    /// What is wrong and where.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut all = Self::default();
        all.and(text)?;
        Ok(all)
    }

    /// Adds those of a text, which must hold, too.
    ///
    /// # Errors
    ///
    /// What is wrong and where.
    pub fn and(&mut self, text: &str) -> Result<(), ConditionError> {
        for raw in syntax::parse(text)? {
            let term = Term::new(text, &raw)?;
            match &term.question {
                Question::Key(key, _) if key.is_of_point() => self.of_points.push(term),
                _ => self.of_all.push(term),
            }
        }
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.of_points.is_empty() && self.of_all.is_empty()
    }

    /// Whether there are some that select points.
    pub fn select_points(&self) -> bool {
        !self.of_points.is_empty()
    }

    /// Whether there are some that select conversations.
    pub fn select_conversations(&self) -> bool {
        !self.of_all.is_empty()
    }

    /// Whether a point of a conversation counts.
    pub fn hold_at(&self, point: &Subject<'_>) -> bool {
        self.of_points.iter().all(|term| term.holds(point, None))
    }

    /// Whether a conversation, merged of the points that count, is wanted.
    pub fn hold(&self, conversation: &Subject<'_>) -> bool {
        self.of_all
            .iter()
            .all(|term| term.holds(conversation, None))
    }

    /// The same for sums by what a side has: what is asked of that must hold of the side that is summed up.
    pub fn hold_for(&self, conversation: &Subject<'_>, a: bool, by: SideField) -> bool {
        let view = Some((a, by));
        self.of_all
            .iter()
            .all(|term| term.holds(conversation, view))
    }
}
