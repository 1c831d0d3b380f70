//! `skua flows --by`: conversations summed up by process, container, service, or what files say of addresses.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize, Serializer};
use skua_condition::SideField;
use skua_flow::{Counters, FlowRecord, Query, Rate, SortBy, names::Protocol};
use skua_output as output;
use skua_output::{Column, OutputFormat, Printer, bytes, count, text};
use skua_record::{FieldType, NoOther, Record, Value};

use skua_state::{
    Shared, State,
    copies::{FlowCopy, PAGE, read_flows},
    filter::FlowFilter,
};

use crate::sockets::tables;

/// What conversations are summed up by.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Process that has the socket
    Process,
    /// Container that it runs in
    Container,
    /// What is called: service, protocol and port
    Service,
    /// Country of the address, by a file of `networks`
    Country,
    /// Autonomous system of the address
    #[value(name = "as", alias = "asn")]
    As,
    /// Range of your own with the address
    Network,
}

impl By {
    /// The one of a name.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let mut all = Self::value_variants().iter().copied();
        let name = if name == "asn" { "as" } else { name };
        all.find(|by| by.name() == name).with_context(|| {
            format!(
                "cannot sum up by \"{name}\": process, container, service, country, as or network, or point for each interface alone; with --since 1h, of the lake, \
                 by up to six of more fields"
            )
        })
    }

    /// Whether there are files that say it.
    ///
    /// # Errors
    ///
    /// There are none: which to name, and where.
    pub fn check(self) -> anyhow::Result<()> {
        let (databases, ranges) = skua_networks::installed();
        match self {
            Self::Country | Self::As if !databases => bail!(
                "nothing here knows the {} of addresses: name files of MaxMind or IPinfo in the configuration, \
                 `networks: {{databases: [/usr/share/GeoIP/GeoLite2-Country.mmdb]}}`",
                if self == Self::As {
                    "autonomous systems"
                } else {
                    "countries"
                }
            ),
            Self::Network if !ranges => bail!(
                "nothing here knows networks by name: name files of yours in the configuration, \
                 `networks: {{ranges: [/etc/skua/ranges.csv]}}`, with lines like 10.1.0.0/16,office"
            ),
            _ => Ok(()),
        }
    }

    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
            Self::Service => "service",
            Self::Country => "country",
            Self::As => "as",
            Self::Network => "network",
        }
    }
}

/// What stands for those whose owner is not known.
const UNKNOWN: &str = "(unknown)";
/// What stands for processes outside of containers.
const HOST: &str = "(host)";

/// Conversations under one name.
#[derive(Default)]
pub struct Group {
    by: &'static str,
    name: String,
    /// Container or unit of a process, when all are in the same.
    place: String,
    protocol: String,
    port: Option<u16>,
    flows: u64,
    active: u64,
    sent: Counters,
    received: Counters,
    rate: Rate,
    retransmitted: u64,
    /// Handshakes, and the sum of their times in ns.
    handshakes: [u64; 2],
    first_ns: u64,
    last_ns: u64,
}

/// What distinguishes groups.
#[derive(PartialEq, Eq, Hash, Default)]
struct Key<'a> {
    name: &'a str,
    place: &'a str,
    /// Protocol and port of a service; its address when nobody knows more.
    service: Option<(u8, u16)>,
    address: Option<IpAddr>,
    /// Number of an autonomous system.
    asn: Option<u32>,
}

/// The record of a group.
pub struct Groups;

impl Record for Groups {
    type Line<'a> = &'a Group;
    type Other<'a> = NoOther;
    type Getter = for<'a, 'b> fn(&'b &'a Group) -> Value<'a, NoOther>;

    fn get<'a>(getter: Self::Getter, line: &Self::Line<'a>) -> Value<'a, Self::Other<'a>> {
        getter(line)
    }
}

use FieldType::{Integer, Number, String as Text};

const NO_SERVICE: &str = "not by service";

/// A field of it.
type Field = skua_record::Field<Groups>;

/// All fields in the order in which they are written.
pub const FIELDS: &[Field] = &[
    Field::new(
        "by",
        Text,
        "",
        "",
        "`process`, `container`, `service`, `country`, `as` or `network`",
        |g| Value::Text(g.by),
    ),
    Field::new(
        "name",
        Text,
        "",
        "",
        "what is summed up; `(unknown)` without socket, `(host)` outside of containers, of services that nobody knows the address; `AS` and its number, then its name, of an autonomous system",
        |g| Value::Text(&g.name),
    ),
    Field::new(
        "place",
        Text,
        "",
        "neither",
        "container or unit of the process",
        |g| Value::nonempty(&g.place),
    ),
    Field::new(
        "protocol",
        Text,
        "",
        NO_SERVICE,
        "protocol of the service",
        |g| Value::nonempty(&g.protocol),
    ),
    Field::new(
        "port",
        Integer,
        "",
        NO_SERVICE,
        "port of the service",
        |g| Value::or_absent(g.port, |port| Value::Integer(port.into())),
    ),
    Field::new("flows", Integer, "", "", "conversations", |g| {
        Value::Integer(g.flows)
    }),
    Field::new(
        "active",
        Integer,
        "",
        "",
        "of them those that have not ended",
        |g| Value::Integer(g.active),
    ),
    Field::new(
        "sent.packets",
        Integer,
        "packets",
        "",
        "packets on the wire that it sent",
        |g| Value::Integer(g.sent.packets),
    ),
    Field::new(
        "sent.bytes",
        Integer,
        "bytes",
        "",
        "link-layer bytes that it sent",
        |g| Value::Integer(g.sent.bytes),
    ),
    Field::new(
        "received.packets",
        Integer,
        "packets",
        "",
        "packets that it received",
        |g| Value::Integer(g.received.packets),
    ),
    Field::new(
        "received.bytes",
        Integer,
        "bytes",
        "",
        "bytes that it received",
        |g| Value::Integer(g.received.bytes),
    ),
    Field::new(
        "rate.bits_per_second",
        Number,
        "bit/s",
        "",
        "both directions over the last five seconds or a little more",
        |g| Value::rounded(g.rate.bits_per_second),
    ),
    Field::new(
        "rate.packets_per_second",
        Number,
        "packets/s",
        "",
        "both directions over the last five seconds or a little more",
        |g| Value::rounded(g.rate.packets_per_second),
    ),
    Field::new(
        "start",
        Text,
        "RFC 3339, UTC",
        "",
        "time of the first packet",
        |g| Value::Time(g.first_ns),
    ),
    Field::new(
        "last",
        Text,
        "RFC 3339, UTC",
        "",
        "time of the last packet",
        |g| Value::Time(g.last_ns),
    ),
];

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        skua_record::serialize(FIELDS, &self, serializer)
    }
}

impl Group {
    fn merge(&mut self, other: &Self) {
        self.flows += other.flows;
        self.active += other.active;
        self.sent += other.sent;
        self.received += other.received;
        self.retransmitted += other.retransmitted;
        for (own, other) in self.handshakes.iter_mut().zip(other.handshakes) {
            *own = own.saturating_add(other);
        }
        self.rate.bits_per_second += other.rate.bits_per_second;
        self.rate.packets_per_second += other.rate.packets_per_second;
        self.first_ns = match self.first_ns {
            0 => other.first_ns,
            first => first.min(other.first_ns),
        };
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    fn add(&mut self, record: &FlowRecord, rate: Rate, lo: bool) {
        let (sent, received) = if lo {
            (record.lo_sent, record.hi_sent)
        } else {
            (record.hi_sent, record.lo_sent)
        };
        self.flows += 1;
        self.active += u64::from(record.end.is_none());
        self.sent += sent;
        self.received += received;
        self.retransmitted += record.retransmitted();
        if let Some(ns) = record.handshake_rtt_ns() {
            self.handshakes[0] += 1;
            self.handshakes[1] = self.handshakes[1].saturating_add(ns);
        }
        self.rate.bits_per_second += rate.bits_per_second;
        self.rate.packets_per_second += rate.packets_per_second;
        self.first_ns = match self.first_ns {
            0 => record.first_ns,
            first => first.min(record.first_ns),
        };
        self.last_ns = self.last_ns.max(record.last_ns);
    }
}

/// Sums up a page of conversations, each once however many points have seen it. One between two processes of this host is counted with both, from the view
/// of each; with the same on both sides, and by service, once.
fn groups(page: &[FlowCopy], by: By, filter: &FlowFilter) -> Vec<Group> {
    let mut groups: HashMap<Key<'_>, Group> = HashMap::new();
    for flow in page {
        let (record, rate, parties) = (&flow.record, flow.rate(), flow.parties());
        if by == By::Service {
            let (key, lo) = service_key(flow);
            let group = groups.entry(key).or_insert_with(|| Group {
                by: by.name(),
                protocol: Protocol(&record.key).to_string(),
                ..Group::default()
            });
            group.add(record, rate, lo);
            continue;
        }
        let field = match by {
            By::Container => SideField::Container,
            By::Country => SideField::Country,
            By::As => SideField::Asn,
            By::Network => SideField::Network,
            By::Process | By::Service => SideField::Process,
        };
        if matches!(by, By::Country | By::As | By::Network) {
            let known = [&record.key.lo, &record.key.hi]
                .map(|address| of_address(by, record.key.ip(address)));
            let unknown = known.iter().all(Option::is_none);
            let [lo, hi] = known;
            let has =
                |key: Option<Key<'static>>, lo| key.filter(|_| filter.has_side(flow, lo, field));
            sides(
                &mut groups,
                flow,
                by,
                [has(lo, true), has(hi, false)],
                unknown,
            );
            continue;
        }
        let unowned = parties.iter().all(|party| party.pid == 0);
        let mut which = [true, false].into_iter();
        let keys = parties.map(|party| {
            let lo = which.next().unwrap_or_default();
            if party.pid == 0 || !filter.has_side(flow, lo, field) {
                return None;
            }
            let place = match (party.container, party.unit) {
                ("", unit) => unit,
                (container, _) => container,
            };
            Some(match by {
                By::Container => Key {
                    name: if party.container.is_empty() {
                        HOST
                    } else {
                        party.container
                    },
                    ..Key::default()
                },
                _ => Key {
                    name: party.process,
                    place,
                    ..Key::default()
                },
            })
        });
        sides(&mut groups, flow, by, keys, unowned);
    }
    groups
        .into_iter()
        .map(|(key, group)| Group {
            name: match key.address {
                Some(address) => match key.service {
                    Some((_, port)) => SocketAddr::new(address, port).to_string(),
                    None => address.to_string(),
                },
                None => match key.asn {
                    Some(asn) => format!("AS{asn} {}", key.name).trim_end().to_owned(),
                    None => key.name.to_owned(),
                },
            },
            place: key.place.to_owned(),
            port: key.service.map(|(_, port)| port),
            ..group
        })
        .collect()
}

/// Adds a conversation to the groups of its sides, to one without a name when nothing is known of either.
fn sides<'a>(
    groups: &mut HashMap<Key<'a>, Group>,
    flow: &FlowCopy,
    by: By,
    keys: [Option<Key<'a>>; 2],
    unknown: bool,
) {
    let (record, rate) = (&flow.record, flow.rate());
    let mut add = |key, lo| {
        let group = groups.entry(key).or_insert_with(|| Group {
            by: by.name(),
            ..Group::default()
        });
        group.add(record, rate, lo);
    };
    match keys {
        [None, None] if !unknown => {}
        [None, None] => add(
            Key {
                name: UNKNOWN,
                ..Key::default()
            },
            record.lo_first,
        ),
        [Some(lo), Some(hi)] if lo == hi => add(lo, record.lo_first),
        [lo, hi] => {
            if let Some(lo) = lo {
                add(lo, true);
            }
            if let Some(hi) = hi {
                add(hi, false);
            }
        }
    }
}

/// What files say of an address, as a group.
fn of_address(by: By, address: Option<IpAddr>) -> Option<Key<'static>> {
    let known = skua_networks::of(address?);
    let (name, asn) = match by {
        By::Country => (known.country, None),
        By::As => (known.organization, known.asn),
        _ => (known.network, None),
    };
    (asn.is_some() || (by != By::As && !name.is_empty())).then(|| Key {
        name,
        asn,
        ..Key::default()
    })
}

/// The service of a conversation, and whether it is `lo`.
fn service_key(flow: &FlowCopy) -> (Key<'_>, bool) {
    let record = &flow.record;
    let Some(service) = record.service else {
        let unknown = Key {
            name: UNKNOWN,
            ..Key::default()
        };
        return (unknown, !record.lo_first);
    };
    let (address, port, owner) = if service.lo {
        (&record.key.lo, record.key.lo_port, &flow.owners[0])
    } else {
        (&record.key.hi, record.key.hi_port, &flow.owners[1])
    };
    let at = Some((record.key.proto, u16::from_be_bytes(port)));
    let key = match owner {
        Some(owner) => Key {
            name: owner.service(),
            service: at,
            ..Key::default()
        },
        None => Key {
            address: record.key.ip(address),
            service: at,
            ..Key::default()
        },
    };
    (key, service.lo)
}

/// Writes groups as JSON or CSV lines (without CSV header).
pub fn write(lines: &mut Vec<u8>, shared: &Shared, by: By, query: &Query<FlowFilter>, csv: bool) {
    // Writing to memory does not fail.
    let _ = send(lines, &sorted(shared, by, query).0, csv);
}

/// Sums of all pages so far.
struct Pages<'f> {
    by: By,
    filter: &'f FlowFilter,
    /// Flows that are not summed up yet.
    page: Vec<FlowCopy>,
    groups: HashMap<Name, Group>,
}

/// Name, place, protocol and port of a group.
type Name = (String, String, String, Option<u16>);

impl Pages<'_> {
    fn add(&mut self, flow: FlowCopy) {
        self.page.push(flow);
        if self.page.len() == PAGE {
            self.sum_up();
        }
    }

    fn sum_up(&mut self) {
        for group in groups(&self.page, self.by, self.filter) {
            let name = |group: &Group| {
                (
                    group.name.clone(),
                    group.place.clone(),
                    group.protocol.clone(),
                    group.port,
                )
            };
            match self.groups.entry(name(&group)) {
                Entry::Occupied(mut known) => known.get_mut().merge(&group),
                Entry::Vacant(new) => {
                    new.insert(group);
                }
            }
        }
        self.page.clear();
    }
}

/// The groups that a query asks for, and how many conversations it asks for.
pub fn sorted(shared: &Shared, by: By, query: &Query<FlowFilter>) -> (Vec<Group>, u64) {
    let mut pages = Pages {
        by,
        filter: &query.filter,
        page: Vec::with_capacity(PAGE),
        groups: HashMap::new(),
    };
    let copy = |state: &State, found, record: &FlowRecord| FlowCopy::at(state, found, record);
    let mut conversations = 0;
    read_flows(shared, query.view, copy, |points| {
        if let Some(flow) = FlowCopy::merged(query, points) {
            conversations += 1;
            pages.add(flow);
        }
    });
    pages.sum_up();
    let mut found: Vec<_> = pages.groups.into_values().collect();
    found.sort_by(|a, b| {
        let total = |g: &Group| g.sent + g.received;
        match query.sort {
            SortBy::Rate => b.rate.bits_per_second.total_cmp(&a.rate.bits_per_second),
            SortBy::Bytes => total(b).bytes.cmp(&total(a).bytes),
            SortBy::Packets => total(b).packets.cmp(&total(a).packets),
            SortBy::Last => b.last_ns.cmp(&a.last_ns),
            SortBy::First => b.first_ns.cmp(&a.first_ns),
            SortBy::Sent => b.sent.bytes.cmp(&a.sent.bytes),
            SortBy::Received => b.received.bytes.cmp(&a.received.bytes),
            SortBy::Begun => b.flows.cmp(&a.flows),
            SortBy::Ended => (b.flows - b.active).cmp(&(a.flows - a.active)),
            SortBy::Retransmitted => b.retransmitted.cmp(&a.retransmitted),
            SortBy::Rtt => {
                let mean = |g: &Group| g.handshakes[1].checked_div(g.handshakes[0]);
                mean(b).cmp(&mean(a))
            }
        }
        .then_with(|| (&a.name, &a.place, a.port).cmp(&(&b.name, &b.place, b.port)))
    });
    found.truncate(query.limit);
    (found, conversations)
}

/// Writes groups as JSON or CSV lines (without CSV header).
///
/// # Errors
///
/// What they are written to fails.
pub fn send(out: &mut impl io::Write, groups: &[Group], csv: bool) -> io::Result<()> {
    let mut line = Vec::new();
    for group in groups {
        line.clear();
        if csv {
            skua_record::write_csv_row(FIELDS, &mut line, &group)?;
        } else {
            serde_json::to_writer(&mut line, group)?;
            line.push(b'\n');
        }
        out.write_all(&line)?;
    }
    Ok(())
}

fn header(out: &mut Vec<u8>) -> io::Result<()> {
    skua_record::write_csv_header(FIELDS, out)
}

/// Prints groups.
pub fn printer(by: By, format: OutputFormat) -> Printer {
    let columns = match by {
        By::Process => &PROCESSES,
        By::Container => &CONTAINERS,
        By::Service => &SERVICES,
        By::Country => &COUNTRIES,
        By::As => &SYSTEMS,
        By::Network => &NETWORKS,
    };
    Printer::new(format, columns, header, false)
}

const fn number(title: &'static str, rank: u8, cell: fn(&serde_json::Value) -> String) -> Column {
    Column {
        title,
        right: true,
        rank,
        cell,
    }
}

const fn name(title: &'static str) -> Column {
    Column {
        title,
        right: false,
        rank: 0,
        cell: |g| text(&g["name"]),
    }
}

/// Columns of groups by this name.
const fn columns(title: &'static str) -> [Column; 10] {
    [
        name(title),
        Column {
            title: "IN",
            right: false,
            rank: 4,
            cell: |g| tables::place(&serde_json::json!({"container": g["place"]})),
        },
        Column {
            title: "PROTO",
            right: false,
            rank: 3,
            cell: |g| text(&g["protocol"]),
        },
        number("PORT", 0, |g| {
            g["port"]
                .as_u64()
                .map(|p| p.to_string())
                .unwrap_or_default()
        }),
        number("FLOWS", 0, |g| count(g["flows"].as_u64().unwrap_or(0))),
        number("RATE", 1, |g| match g["rate"]["bits_per_second"].as_f64() {
            Some(rate) if rate > 0.0 => output::bit_rate(rate),
            _ => "-".into(),
        }),
        number("SENT PKTS", 5, |g| {
            count(g["sent"]["packets"].as_u64().unwrap_or(0))
        }),
        number("SENT", 2, |g| {
            bytes(g["sent"]["bytes"].as_u64().unwrap_or(0))
        }),
        number("RECEIVED PKTS", 5, |g| {
            count(g["received"]["packets"].as_u64().unwrap_or(0))
        }),
        number("RECEIVED", 2, |g| {
            bytes(g["received"]["bytes"].as_u64().unwrap_or(0))
        }),
    ]
}

const PROCESSES: [Column; 10] = columns("PROCESS");
const CONTAINERS: [Column; 10] = columns("CONTAINER");
const SERVICES: [Column; 10] = columns("SERVICE");
const COUNTRIES: [Column; 10] = columns("COUNTRY");
const SYSTEMS: [Column; 10] = columns("AUTONOMOUS SYSTEM");
const NETWORKS: [Column; 10] = columns("NETWORK");

/// The chapter on groups of `docs/records.md`.
pub fn documentation() -> String {
    DOCUMENTATION.to_owned() + &skua_record::markdown(FIELDS)
}

const DOCUMENTATION: &str = "\
With `skua flows --by` conversations are summed up: those that are in the history. One between two
processes of this host is counted with both, as each sees it. A conversation that several interfaces see
is counted once: of each direction the most that one of them counted. By country, autonomous system or network
a conversation counts with each side that files know; `(unknown)` has those of which they know neither.

";
