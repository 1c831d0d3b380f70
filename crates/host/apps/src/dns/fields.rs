//! The record of a question and its answer, as users see it.

use std::{fmt, io};

use serde::{Serialize, Serializer};
use skua_record::FieldType::{Integer, String as Text, Strings, Time};

use super::{Lookup, flag, lookup, numbers};

/// The record.
pub struct LookupRecord;

/// Values of this kind of record alone.
pub enum Own<'a> {
    /// Name of a number.
    Named(std::borrow::Cow<'static, str>),
    /// Answers.
    Answers(&'a [super::Answer]),
    /// Flags of the header.
    Flags(u16),
}

impl Own<'_> {
    fn each(&self, with: &mut dyn FnMut(&str)) {
        match self {
            Self::Named(name) => with(name),
            Self::Answers(answers) => {
                for answer in *answers {
                    with(&lookup::text(answer));
                }
            }
            Self::Flags(flags) => {
                for (bit, name) in FLAGS {
                    if flags & bit != 0 {
                        with(name);
                    }
                }
            }
        }
    }
}

/// Flags and their names.
const FLAGS: [(u16, &str); 6] = [
    (flag::AA, "aa"),
    (flag::TC, "tc"),
    (flag::RD, "rd"),
    (flag::RA, "ra"),
    (0x0020, "ad"),
    (0x0010, "cd"),
];

impl fmt::Display for Own<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut first, mut done) = (true, Ok(()));
        self.each(&mut |text| {
            let space = if first { "" } else { " " };
            first = false;
            done = done.and_then(|()| write!(f, "{space}{text}"));
        });
        done
    }
}

impl Serialize for Own<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Named(name) = self {
            return serializer.serialize_str(name);
        }
        let mut all = Vec::new();
        self.each(&mut |text| all.push(text.to_owned()));
        all.serialize(serializer)
    }
}

impl skua_record::Record for LookupRecord {
    type Line<'a> = &'a Lookup;
    type Other<'a> = Own<'a>;
    type Getter = for<'a, 'b> fn(&'b &'a Lookup) -> Value<'a>;

    fn get<'a>(getter: Self::Getter, line: &Self::Line<'a>) -> Value<'a> {
        getter(line)
    }
}

type Field = skua_record::Field<LookupRecord>;
type Value<'a> = skua_record::Value<'a, Own<'a>>;

const NO_ANSWER: &str = "no answer";

/// All fields in the order in which they are written.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    Field::new("time", Time, "RFC 3339, UTC", "", "when the question was first seen; of an answer without a question when that was",
        |l| Value::Time(l.time_ns)),
    Field::new("protocol", Text, "", "", "`dns`, `mdns` or `llmnr`", |l| Value::Text(l.dialect.name())),
    Field::new("transport", Text, "", "", "`udp` or `tcp`", |l| Value::Text(if l.tcp { "tcp" } else { "udp" })),
    Field::new("client.address", Text, "", "", "who asks; of an announcement (mDNS) the group", |l| Value::Ip(l.client.ip())),
    Field::new("client.port", Integer, "", "", "port of the client", |l| Value::Integer(l.client.port().into())),
    Field::new("server.address", Text, "", "", "who is asked; when a group was asked, who answered", |l| Value::Ip(l.server.ip())),
    Field::new("server.port", Integer, "", "", "port of the server", |l| Value::Integer(l.server.port().into())),
    Field::new("name", Text, "", "no question in the message", "name that is asked for, as it was sent; what is not printable as `\\ddd`",
        |l| Value::nonempty(&l.name)),
    Field::new("type", Text, "", "", "type that is asked for, like `AAAA`; `TYPE1234` when it has no name", |l| Value::Other(Own::Named(numbers::kind(l.kind)))),
    Field::new("class", Text, "", "`IN`", "class", |l| match l.class {
        0 | 1 => Value::Absent,
        other => Value::Other(Own::Named(numbers::class(other).map_or_else(|| format!("CLASS{other}").into(), Into::into))),
    }),
    Field::new("opcode", Text, "", "`QUERY`", "what is wanted, like `NOTIFY`",
        |l| Value::Other(Own::Named(numbers::opcode(l.opcode))).unless(l.opcode == 0)),
    Field::new("id", Integer, "", "", "identifier of the question", |l| Value::Integer(l.id.into())),
    Field::new("outcome", Text, "", "", "`answered`; `timeout`: no answer in time; `unasked`: the question of this answer was not seen; `announced` (mDNS): nobody asked; `open`: watching ended, or too many questions were open",
        |l| Value::Text(l.outcome.name())),
    Field::new("code", Text, "", NO_ANSWER, "code of the answer, like `NOERROR`, `NXDOMAIN`, `SERVFAIL`",
        |l| Value::or_absent(l.code, |code| Value::Other(Own::Named(numbers::code(code))))),
    Field::new("latency", Integer, "ns", "no answer, or no question", "from the first question to the answer",
        |l| Value::or_absent(l.latency_ns, Value::Integer)),
    Field::new("retries", Integer, "", "none", "how often the same question was sent again before the answer or the time-out", |l| Value::nonzero(l.retries.into())),
    Field::new("answers", Strings, "", "none", "records of the answer, each its type and its data; not more than 32",
        |l| Value::Other(Own::Answers(&l.answers)).unless(l.answers.is_empty())),
    Field::new("answer_count", Integer, "", "none", "number of answers", |l| Value::nonzero(l.answer_count.into())),
    Field::new("ttl", Integer, "s", "no answers", "the least time to live of the answers", |l| Value::or_absent(l.ttl(), |ttl| Value::Integer(ttl.into()))),
    Field::new("flags", Strings, "", "none, or no answer", "of the answer: `aa` authoritative, `tc` truncated, `rd` and `ra` recursion desired and available, `ad` authentic, `cd` not checked",
        |l| Value::Other(Own::Flags(l.flags)).unless(FLAGS.iter().all(|(bit, _)| l.flags & bit == 0))),
    Field::new("follows", Text, "", "it is no repetition", "`truncated`: asks over TCP for what came truncated over UDP",
        |l| Value::Text("truncated").unless(!l.after_truncation)),
    Field::new("udp_size", Integer, "bytes", "no EDNS", "length of an answer over UDP that the client takes (EDNS)", |l| Value::nonzero(l.udp_size.into())),
    Field::new("bytes.question", Integer, "bytes", "not seen", "length of the question's message", |l| Value::nonzero(l.bytes[0].into())),
    Field::new("bytes.answer", Integer, "bytes", "not seen", "length of the answer's message", |l| Value::nonzero(l.bytes[1].into())),
    Field::new("cut", Text, "", "all was read", "`cut`: not all of a message was captured, or it is malformed; answers may be missing",
        |l| Value::Text("cut").unless(!l.cut)),
];

impl Serialize for Lookup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        skua_record::serialize(FIELDS, &self, serializer)
    }
}

/// Writes the CSV header: the paths with `_` for `.`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_header(out: &mut impl io::Write) -> io::Result<()> {
    skua_record::write_csv_header(FIELDS, out)
}

/// Writes a record as a CSV row; fields that do not apply are empty.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_row(out: &mut impl io::Write, lookup: &Lookup) -> io::Result<()> {
    skua_record::write_csv_row(FIELDS, out, &lookup)
}

/// The chapter on lookups of `docs/records.md`.
pub fn documentation() -> String {
    DOCUMENTATION.to_owned() + &skua_record::markdown(FIELDS)
}

const DOCUMENTATION: &str = "\
A question to a name server and its answer ([dns.md](dns.md)). A question that passes several interfaces of this host
is one record.

";

/// JSON Schema (2020-12) of lookups.
pub fn json_schema() -> serde_json::Value {
    skua_record::json_schema("Skua lookup", FIELDS)
}
