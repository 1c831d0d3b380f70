//! From records to rows.

use std::{
    borrow::Cow,
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use foldhash::fast::RandomState;
use skua_collect::Line;
use skua_flow::{
    Counters, FlowKey, FlowLine, FlowRecord, Network, Party, Rate,
    fields::{Aggregation, Field, FieldType, Own},
    names,
};
use skua_record::{TcpCounters, Value};

use crate::{
    batch::Batch,
    schema::{Table, flow, service},
};

/// TCP conversations whose counters are remembered: a record has totals, a row what was added.
const COUNTED: usize = 131_072;

/// What a drain has changed of a conversation.
pub struct FlowChange<'a> {
    /// The record; what its interval added is counted.
    pub record: &'a FlowRecord,
    /// Where it was seen.
    pub host: &'a str,
    /// Interface where it was seen.
    pub interface: Cow<'a, str>,
    /// Who owns the sockets of `lo` and `hi`.
    pub parties: [Party<'a>; 2],
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
    /// What was added since the row before; none when that is not known.
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

/// Adds what a drain changed to the conversation's row, or makes one where there is room; false when it is lost.
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
    // Owners became known, or the end did; the packets are in a row that was written already.
    let nothing = added.iter().all(Counters::is_zero);
    let row = match open.0.get(&conversation) {
        Some(row) => *row as usize,
        None if nothing && record.end.is_none() => return true,
        None if !room => return false,
        None => {
            open.0.insert(conversation, before as u32);
            batch.add();
            put_key(batch, before, change);
            batch.set(before, flow::BEGUN, 0);
            before
        }
    };
    let counted = counted.added(change);
    if !nothing && added == [record.lo_sent, record.hi_sent] {
        batch.set(row, flow::BEGUN, 1);
    }
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
        rate: Rate::default(),
        parties: change.parties,
    };
    for (place, column) in Table::Flows.columns().iter().enumerate() {
        if let Some(field) = column.field
            && (row == before || field.aggregation != Aggregation::Same)
        {
            put(batch, row, place, field, (field.value)(&line));
        }
    }
    true
}

/// Puts a value into the column of its field.
pub(crate) fn put(
    batch: &mut Batch,
    row: usize,
    column: usize,
    field: &Field,
    value: Value<'_, Own<'_>>,
) {
    let number = match &value {
        Value::Absent if field.aggregation == Aggregation::Latest => {
            return batch.clear_text(row, column);
        }
        // It may have been known before.
        Value::Absent => return,
        Value::Integer(number) => Some(*number),
        Value::Time(ns) => Some(ns / 1_000),
        Value::Text(text) => return batch.set_text(row, column, text),
        Value::Other(own) => own.number(),
        Value::Number(_) | Value::Numeral(_) | Value::Ip(_) => None,
    };
    match number {
        Some(more) if field.aggregation == Aggregation::Sum => batch.sum(row, column, more),
        Some(number) if field.column_kind != FieldType::String => batch.set(row, column, number),
        _ => batch.set_text(row, column, &value.to_string()),
    }
}

/// What has another form here than in records, and stays the same as long as a conversation goes on.
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
fn service_of<'a>(party: &Party<'a>) -> &'a str {
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
    let ip = |ip: IpAddr| ip.to_canonical().to_string();
    batch.set_text(row, service::COLLECTOR, collector);
    batch.set_text(row, service::PROTOCOL, &names::Protocol(&key).to_string());
    batch.set_text(row, service::CLIENT, &ip(line.client));
    batch.set_text(row, service::SERVER, &ip(line.server));
    batch.set_text(row, service::SERVICE_BY, line.service_by);
    for (column, name) in [
        (service::CLIENT_SERVICE, line.client_service),
        (service::SERVER_SERVICE, line.server_service),
    ] {
        batch.set_name(row, column, name);
    }
    let between = &line.between_hosts;
    for (columns, sum) in [
        (
            [service::CLIENT_PACKETS, service::CLIENT_BYTES],
            &line.client_sent,
        ),
        (
            [service::SERVER_PACKETS, service::SERVER_BYTES],
            &line.server_sent,
        ),
        (
            [
                service::BETWEEN_CLIENT_PACKETS,
                service::BETWEEN_CLIENT_BYTES,
            ],
            &between.client_sent,
        ),
        (
            [
                service::BETWEEN_SERVER_PACKETS,
                service::BETWEEN_SERVER_BYTES,
            ],
            &between.server_sent,
        ),
    ] {
        let sum = Counters::new(sum.packets, sum.bytes);
        batch.set(row, columns[0], sum.packets);
        batch.set(row, columns[1], sum.bytes);
    }
    for (column, value) in [
        (service::WINDOW, line.window / 1_000),
        (service::SECONDS, (line.seconds * 1e9) as u64),
        (service::IP_PROTOCOL, line.protocol.into()),
        (service::PORT, line.port.into()),
        (service::CLIENT_RETRANSMITTED, line.retransmitted.client),
        (service::SERVER_RETRANSMITTED, line.retransmitted.server),
        (service::BEGUN, line.begun),
        (service::ENDED, line.ended),
        (service::RESET, line.reset),
        (service::REFUSED, line.refused),
        (service::TIMED_OUT, line.timed_out),
        (service::ROUND_TRIP_COUNT, line.rtt.sums.count),
        (service::ROUND_TRIP_SUM, line.rtt.sums.sum_us),
        (service::ROUND_TRIP_MIN, line.rtt.sums.min_us),
        (service::ROUND_TRIP_MAX, line.rtt.sums.max_us),
        (service::RTT_COUNT, line.handshake.count),
        (service::RTT_SUM, line.handshake.sum_us),
        (service::RTT_MIN, line.handshake.min_us),
        (service::RTT_MAX, line.handshake.max_us),
        (service::CLIENT_PORTS_BEYOND, line.client_ports.beyond),
        (service::RECORDS, line.records),
        (service::SAMPLES, line.samples),
        (service::AGENTS, line.agents.into()),
        (service::JOINED, line.joined),
    ] {
        batch.set(row, column, value);
    }
    let ports = line.client_ports.list.iter();
    batch.set_list(service::CLIENT_PORTS, ports.map(|port| (*port).into()));
    let mut classes: Vec<_> = line.rtt.classes.classes().collect();
    classes.sort_unstable();
    // As wide as numbers of times and conversations in a window can be read.
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let middles = classes.iter().map(|(middle, _)| number(*middle));
    batch.set_list(service::ROUND_TRIP_CLASSES, middles);
    let counts = classes.iter().map(|(_, count)| number(*count));
    batch.set_list(service::ROUND_TRIP_COUNTS, counts);
}
