//! Which lookups are wanted, by flags and by the API alike, and how they are written.

use std::{collections::HashMap, io, net::IpAddr, sync::Arc};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use skua_apps::dns::{Lookup, Outcome, numbers, write_csv_row};
use skua_record::{
    FieldType::{Integer, String as Text},
    NoOther, Value,
};
use utoipa::IntoParams;

/// Flags of `skua dns`, and parameters of `/api/dns`.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct DnsQuery {
    /// Only names with this text in them, or with `*` at an end those that begin or end so: api.example.com,
    /// *.example.com
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Only of this type, like AAAA
    #[arg(short, long = "type", value_name = "TYPE")]
    pub r#type: Option<String>,
    /// Only with this code, like NXDOMAIN
    #[arg(short, long, value_name = "CODE")]
    pub code: Option<String>,
    /// Only with this outcome
    #[arg(long, value_enum, value_name = "OUTCOME")]
    #[param(inline)]
    pub outcome: Option<WantedOutcome>,
    /// Only what failed: an error, or no answer in time
    #[arg(short = 'E', long)]
    pub errors: bool,
    /// Only of this client
    #[arg(long, value_name = "ADDRESS")]
    #[param(value_type = Option<String>)]
    pub client: Option<IpAddr>,
    /// Only to this server
    #[arg(long, value_name = "ADDRESS")]
    #[param(value_type = Option<String>)]
    pub server: Option<IpAddr>,
    /// Only answers that took at least this long, in ms
    #[arg(long, value_name = "MS")]
    pub slower: Option<u32>,
    /// The latest so many
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Sums by server instead of each question: answers, errors, latencies
    #[arg(short, long)]
    pub summary: bool,
    /// Only records that were added after this moment (`x-skua-drained` of an earlier answer), ns since the Unix epoch.
    #[arg(skip)]
    pub since: u64,
    /// `json` or `csv`.
    #[arg(skip)]
    pub format: Option<String>,
}

/// Outcomes, as they are written.
#[derive(
    ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum WantedOutcome {
    /// An answer came, perhaps with an error
    Answered,
    /// No answer in time
    Timeout,
    /// The question was not seen
    Unasked,
    /// Nobody asked (mDNS)
    Announced,
    /// Watching ended before an answer could come
    Open,
}

impl WantedOutcome {
    fn is(self, outcome: Outcome) -> bool {
        let wanted = match self {
            Self::Answered => Outcome::Answered,
            Self::Timeout => Outcome::Timeout,
            Self::Unasked => Outcome::Unasked,
            Self::Announced => Outcome::Announced,
            Self::Open => Outcome::Open,
        };
        wanted == outcome
    }
}

impl DnsQuery {
    /// Refuses what means nothing.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(kind) = &self.r#type
            && numbers::kind_number(kind).is_none()
        {
            anyhow::bail!("no type \"{kind}\": like A, AAAA, MX, TXT, HTTPS or TYPE65");
        }
        if let Some(code) = &self.code
            && !(0..=24).any(|number| numbers::code(number).eq_ignore_ascii_case(code))
        {
            anyhow::bail!("no code \"{code}\": like NOERROR, NXDOMAIN, SERVFAIL or REFUSED");
        }
        Ok(())
    }

    /// Whether a record is wanted.
    pub fn matches(&self, lookup: &Lookup) -> bool {
        let is = |wanted: &Option<IpAddr>, have: IpAddr| wanted.is_none_or(|w| w == have);
        let kind = self.r#type.as_deref().and_then(numbers::kind_number);
        let failed = lookup.outcome == Outcome::Timeout || lookup.code.is_some_and(|code| code > 0);
        let slow = |ms: u32| {
            lookup
                .latency_ns
                .is_some_and(|ns| ns >= u64::from(ms) * 1_000_000)
        };
        self.name
            .as_deref()
            .is_none_or(|name| named(name, &lookup.name))
            && kind.is_none_or(|kind| kind == lookup.kind)
            && self.code.as_ref().is_none_or(|wanted| {
                let code = lookup.code.map(numbers::code);
                code.is_some_and(|code| code.eq_ignore_ascii_case(wanted))
            })
            && self.outcome.is_none_or(|wanted| wanted.is(lookup.outcome))
            && (!self.errors || failed)
            && is(&self.client, lookup.client.ip())
            && is(&self.server, lookup.server.ip())
            && self.slower.is_none_or(slow)
    }
}

/// Whether a name is one of those that are wanted.
fn named(wanted: &str, name: &str) -> bool {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    let wanted = wanted.strip_suffix('.').unwrap_or(&wanted);
    match (wanted.strip_prefix('*'), wanted.strip_suffix('*')) {
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (Some(_), Some(_)) => name.contains(wanted.trim_matches('*')),
        (None, None) => name.contains(wanted),
    }
}

/// Writes the records that are wanted, the oldest first; with `summary` their sums by server.
pub fn write(out: &mut impl io::Write, query: &DnsQuery, all: &[Arc<Lookup>]) -> io::Result<()> {
    let csv = query.format.as_deref() == Some("csv");
    let wanted = all.iter().filter(|lookup| query.matches(lookup));
    let mut wanted: Vec<&Lookup> = wanted.map(|lookup| &**lookup).collect();
    if query.summary {
        return write_summary(out, &wanted, query.limit, csv);
    }
    let limit = query.limit.unwrap_or(usize::MAX);
    wanted.drain(..wanted.len().saturating_sub(limit));
    for lookup in wanted {
        match csv {
            true => write_csv_row(out, lookup)?,
            false => line(out, lookup)?,
        }
    }
    Ok(())
}

fn line(out: &mut impl io::Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Sums of a server.
#[derive(Default)]
pub struct ServerSums {
    server: Option<IpAddr>,
    lookups: u64,
    answered: u64,
    timeouts: u64,
    errors: u64,
    nxdomain: u64,
    servfail: u64,
    retries: u64,
    truncated: u64,
    /// Sorted.
    latencies: Vec<u64>,
}

impl ServerSums {
    fn add(&mut self, lookup: &Lookup) {
        self.lookups += 1;
        self.answered += u64::from(lookup.outcome == Outcome::Answered);
        self.timeouts += u64::from(lookup.outcome == Outcome::Timeout);
        self.errors += u64::from(lookup.code.is_some_and(|code| code > 0));
        self.nxdomain += u64::from(lookup.code == Some(3));
        self.servfail += u64::from(lookup.code == Some(2));
        self.retries += u64::from(lookup.retries);
        let truncated = lookup.code.is_some() && lookup.flags & skua_apps::dns::flag::TC != 0;
        self.truncated += u64::from(truncated);
        self.latencies.extend(lookup.latency_ns);
    }

    /// A quantile, by nearest rank.
    fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        self.latencies.get(rank.max(1) - 1).copied()
    }
}

/// The record of sums by server.
pub struct SummaryRecord;

impl skua_record::Record for SummaryRecord {
    type Line<'a> = &'a ServerSums;
    type Other<'a> = NoOther;
    type Getter = for<'a, 'b> fn(&'b &'a ServerSums) -> Value<'a, NoOther>;

    fn get<'a>(getter: Self::Getter, line: &Self::Line<'a>) -> Value<'a, NoOther> {
        getter(line)
    }
}

type Field = skua_record::Field<SummaryRecord>;

const NONE: &str = "no answer";

/// Fields of sums by server.
#[rustfmt::skip]
pub const SUMMARY: &[Field] = &[
    Field::new("server", Text, "", "", "address of the server", |s| Value::or_absent(s.server, Value::Ip)),
    Field::new("lookups", Integer, "", "", "questions, and answers without one", |s| Value::Integer(s.lookups)),
    Field::new("answered", Integer, "", "", "of them answered", |s| Value::Integer(s.answered)),
    Field::new("timeouts", Integer, "", "", "of them without an answer in time", |s| Value::Integer(s.timeouts)),
    Field::new("errors", Integer, "", "", "answers with another code than `NOERROR`", |s| Value::Integer(s.errors)),
    Field::new("nxdomain", Integer, "", "", "of them: there is no such name", |s| Value::Integer(s.nxdomain)),
    Field::new("servfail", Integer, "", "", "of them: the server failed", |s| Value::Integer(s.servfail)),
    Field::new("retries", Integer, "", "", "questions sent again", |s| Value::Integer(s.retries)),
    Field::new("truncated", Integer, "", "", "answers that did not fit", |s| Value::Integer(s.truncated)),
    Field::new("latency.p50", Integer, "ns", NONE, "half of the answers took no longer", |s| Value::or_absent(s.quantile(0.5), Value::Integer)),
    Field::new("latency.p95", Integer, "ns", NONE, "95% took no longer", |s| Value::or_absent(s.quantile(0.95), Value::Integer)),
    Field::new("latency.p99", Integer, "ns", NONE, "99% took no longer", |s| Value::or_absent(s.quantile(0.99), Value::Integer)),
    Field::new("latency.max", Integer, "ns", NONE, "the slowest answer", |s| Value::or_absent(s.latencies.last().copied(), Value::Integer)),
];

impl Serialize for ServerSums {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        skua_record::serialize(SUMMARY, &self, serializer)
    }
}

fn write_summary(
    out: &mut impl io::Write,
    wanted: &[&Lookup],
    limit: Option<usize>,
    csv: bool,
) -> io::Result<()> {
    let mut servers: HashMap<IpAddr, ServerSums> = HashMap::new();
    for lookup in wanted {
        let server = lookup.server.ip();
        let sums = servers.entry(server).or_default();
        sums.server = Some(server);
        sums.add(lookup);
    }
    let mut all: Vec<ServerSums> = servers.into_values().collect();
    all.sort_by_key(|sums| (std::cmp::Reverse(sums.lookups), sums.server));
    all.truncate(limit.unwrap_or(usize::MAX));
    for sums in &mut all {
        sums.latencies.sort_unstable();
        match csv {
            true => skua_record::write_csv_row(SUMMARY, out, &&*sums)?,
            false => line(out, sums)?,
        }
    }
    Ok(())
}

/// The CSV header of what a query asks for.
pub fn csv_header(summary: bool) -> fn(&mut Vec<u8>) -> io::Result<()> {
    match summary {
        true => |out| skua_record::write_csv_header(SUMMARY, out),
        false => |out| skua_apps::dns::write_csv_header(out),
    }
}

/// JSON Schema of a line: a lookup, or the sums of a server.
pub fn json_schema() -> serde_json::Value {
    let sums = skua_record::json_schema("Skua name server", SUMMARY);
    serde_json::json!({"anyOf": [skua_apps::dns::json_schema(), sums]})
}

/// The chapters on lookups of `docs/records.md`: of each, and of their sums by server.
pub fn documentation() -> [String; 2] {
    [
        skua_apps::dns::documentation(),
        "Lookups summed up by server (`skua dns --summary`), exact over the records that are kept.\n\n"
            .to_owned()
            + &skua_record::markdown(SUMMARY),
    ]
}
