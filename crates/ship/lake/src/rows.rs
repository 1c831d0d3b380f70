//! From records to rows.

use std::{borrow::Cow, collections::HashMap, fmt::Display, net::SocketAddr};

use foldhash::fast::RandomState;
use skua_collect::{Line, fields::Own};
use skua_flow::{
    ConversationOwner, Counters, FlowKey, FlowLine, FlowRecord, Network, Once, Rate, names,
};
use skua_record::{Aggregation, Field, FieldType, Record, TcpCounters, Value};

use crate::{
    batch::Batch,
    schema::{flow, service},
};

/// TCP conversations whose counters are remembered: records have totals, rows have deltas.
const COUNTED: usize = 131_072;

/// What a drain has changed of a conversation.
pub struct FlowChange<'a> {
    /// The record; what its interval added is counted.
    pub record: &'a FlowRecord,
    /// What it added to the conversation, of which other points may know, too.
    pub once: Once,
    /// The observing host.
    pub host: &'a str,
    /// The observing interface.
    pub interface: Cow<'a, str>,
    /// The owners of the sockets of `lo` and `hi`.
    pub parties: [ConversationOwner<'a>; 2],
}

/// What distinguishes conversations.
#[derive(PartialEq, Eq, Hash)]
struct Conversation {
    key: FlowKey,
    serial: u64,
    /// Number of the host's name among the texts of the batch.
    host: u64,
}

/// Rows of conversations that are in the batch already.
#[derive(Default)]
pub(crate) struct Open(HashMap<Conversation, u32, RandomState>);

/// TCP's counters as they were in the row before, of conversations that have any.
#[derive(Default)]
pub(crate) struct Counted {
    totals: HashMap<Conversation, TcpCounters, RandomState>,
    hosts: HashMap<String, u64, RandomState>,
    /// Rows without these counters, because too many conversations have some.
    pub unknown: u64,
}

impl Counted {
    /// Delta since the last row; none if the last counters are unknown.
    fn added(&mut self, change: &FlowChange<'_>) -> Option<TcpCounters> {
        let record = change.record;
        let totals = record.tcp.counters.map(|sides| record.by_a(sides));
        if totals.is_zero() {
            return Some(totals);
        }
        let hosts = self.hosts.len() as u64;
        let host = match self.hosts.get(change.host) {
            Some(number) => *number,
            None => *self.hosts.entry(change.host.into()).or_insert(hosts),
        };
        let conversation = Conversation {
            key: record.key,
            serial: record.serial,
            host,
        };
        let before = match record.end {
            Some(_) => self.totals.remove(&conversation),
            None if self.totals.len() < COUNTED => self.totals.insert(conversation, totals),
            None => match self.totals.get_mut(&conversation) {
                Some(known) => Some(std::mem::replace(known, totals)),
                None => {
                    self.unknown += 1;
                    return None;
                }
            },
        };
        let before = before.unwrap_or_default();
        let mut before = before.all().into_iter();
        Some(totals.map(|[ab, ba]| {
            let [ab_before, ba_before] = before.next().unwrap_or_default();
            [ab.saturating_sub(ab_before), ba.saturating_sub(ba_before)]
        }))
    }
}

/// Adds a drain's changes to the conversation's row, or makes a row if there is space; false if the changes are
/// lost.
pub(crate) fn put_flow(
    batch: &mut Batch,
    open: &mut Open,
    counted: &mut Counted,
    change: &FlowChange<'_>,
    room: bool,
) -> bool {
    let record = change.record;
    let added = [record.interval.lo_sent, record.interval.hi_sent];
    let before = batch.rows();
    let host = batch.number_of(change.host);
    let conversation = Conversation {
        key: record.key,
        serial: record.serial,
        host: host.into(),
    };
    // Only owners or the end became known; the packets are in a row that was written before.
    let nothing = added.iter().all(Counters::is_zero) && change.once == Once::default();
    let row = match open.0.get(&conversation) {
        Some(row) => *row as usize,
        None if nothing && record.end.is_none() => return true,
        None if !room => return false,
        None => {
            open.0.insert(conversation, before as u32);
            batch.add();
            put_key(batch, before, change);
            for column in flow::SUMS_ONCE.into_iter().chain(flow::EVENTS_ONCE) {
                batch.set(before, column, 0);
            }
            batch.set(before, flow::BEGUN, 0);
            before
        }
    };
    let counted = counted.added(change);
    if !nothing && added == [record.lo_sent, record.hi_sent] {
        batch.set(row, flow::BEGUN, 1);
    }
    put_once(batch, row, change);
    batch.set(row, flow::TIME, record.last_ns / 1_000);
    put_service(batch, row, change);
    // What this row adds, in the place of the sums since the conversation began.
    let mut adds = *record;
    adds.lo_sent = record.interval.lo_sent;
    adds.hi_sent = record.interval.hi_sent;
    adds.tcp.counters = counted.unwrap_or_default();
    let line = FlowLine {
        record: &adds,
        interface: &change.interface,
        points: 1,
        rate: Rate::default(),
        owners: change.parties,
    };
    for (column, field) in &flow::DEFINED {
        if row == before || field.aggregation != Aggregation::Same {
            let value = (field.value)(&line);
            let number = match &value {
                Value::Other(own) => own.number(),
                _ => None,
            };
            put(batch, (row, *column), field, &value, number);
        }
    }
    true
}

/// Puts a value into the column of its field; `number` is that of a value that only this kind of record has.
pub(crate) fn put<R: Record, O: Display>(
    batch: &mut Batch,
    (row, column): (usize, usize),
    field: &Field<R>,
    value: &Value<'_, O>,
    number: Option<u64>,
) {
    let number = match value {
        Value::Absent if field.aggregation == Aggregation::Latest => {
            return batch.clear_text(row, column);
        }
        // It may have been known before.
        Value::Absent => return,
        Value::Text(text) => return batch.set_text(row, column, text),
        Value::Integer(number) => Some(*number),
        Value::Time(ns) => Some(ns / 1_000),
        Value::Number(_) | Value::Numeral(_) | Value::Ip(_) | Value::Other(_) => number,
    };
    match number {
        Some(more) if field.aggregation == Aggregation::Sum => batch.sum(row, column, more),
        Some(number) if field.column_kind != FieldType::String => batch.set(row, column, number),
        _ => batch.set_text(row, column, &value.to_string()),
    }
}

/// What counts when conversations are counted once.
fn put_once(batch: &mut Batch, row: usize, change: &FlowChange<'_>) {
    let once = &change.once;
    let [ab, ba] = change.record.by_a([once.lo_sent, once.hi_sent]);
    let sums = [ab.packets, ab.bytes, ba.packets, ba.bytes];
    for (column, more) in flow::SUMS_ONCE.into_iter().zip(sums) {
        batch.sum(row, column, more);
    }
    for (column, happened) in flow::EVENTS_ONCE.into_iter().zip([once.begun, once.ended]) {
        if happened {
            batch.set(row, column, 1);
        }
    }
}

/// Writes the columns that have another form here than in records and do not change during a conversation.
fn put_key(batch: &mut Batch, row: usize, change: &FlowChange<'_>) {
    let key = &change.record.key;
    batch.set_text(row, flow::HOST, change.host);
    batch.set(row, flow::SAMPLING, change.record.sampling.max(1).into());
    if key.ethernet() {
        batch.set_text(row, flow::LINK, "ethernet");
    }
    for (column, vlan) in [flow::VLAN, flow::INNER_VLAN]
        .into_iter()
        .zip(key.vlan_ids())
    {
        batch.set(row, column, vlan.into());
    }
    if key.network() != Network::None {
        batch.set(row, flow::IP_PROTOCOL, key.proto.into());
    }
}

/// Name of the service, which may become known later.
fn put_service(batch: &mut Batch, row: usize, change: &FlowChange<'_>) {
    let record = change.record;
    let Some(found) = record.service else { return };
    let [a, b] = record.by_a(change.parties);
    let (party, (address, port)) = match found.lo == record.lo_first {
        true => (a, record.a()),
        false => (b, record.b()),
    };
    match service_of(&party) {
        "" => match record.key.ip(address) {
            Some(ip) if record.key.has_ports() => {
                batch.set_text(row, flow::SERVICE, &SocketAddr::new(ip, port).to_string());
            }
            Some(ip) => batch.set_text(row, flow::SERVICE, &ip.to_string()),
            None => {}
        },
        name => batch.set_text(row, flow::SERVICE, name),
    }
}

/// Name of what an owner offers, by the rule of `skua services` (`skua_socket::Owner::service`).
fn service_of<'a>(party: &ConversationOwner<'a>) -> &'a str {
    if !party.container.is_empty() {
        return party.container;
    }
    match party.unit {
        unit if unit.ends_with(".service") && !unit.starts_with("user@") => unit,
        _ => party.process,
    }
}

/// Adds a line of a collector on a host.
pub(crate) fn put_line(batch: &mut Batch, collector: &str, line: &Line<'_>) {
    let row = batch.add();
    // The name depends on the network layer for ICMP alone.
    let key = FlowKey {
        proto: line.protocol,
        kind: if line.client.is_ipv4() { 1 } else { 2 },
        ..FlowKey::default()
    };
    batch.set_text(row, service::COLLECTOR, collector);
    batch.set_text(row, service::PROTOCOL, &names::Protocol(&key).to_string());
    batch.set(row, service::SECONDS, (line.seconds * 1e9) as u64);
    for (column, field) in &service::DEFINED {
        match (field.value)(line) {
            Value::Other(Own::Ports(list)) => {
                batch.set_list(*column, list.iter().map(|port| (*port).into()));
            }
            value => put(batch, (row, *column), field, &value, None),
        }
    }
    let classes = Own::classes(line.rtt.classes);
    // As wide as numbers of times and conversations in a window can be read.
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let middles = classes.iter().map(|(middle, _)| number(*middle));
    batch.set_list(service::ROUND_TRIP_CLASSES, middles);
    let counts = classes.iter().map(|(_, count)| number(*count));
    batch.set_list(service::ROUND_TRIP_COUNTS, counts);
}
