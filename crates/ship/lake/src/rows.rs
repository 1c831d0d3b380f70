//! From records to rows.

use skua_record::TcpCounters;
use std::{
    borrow::Cow,
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use foldhash::fast::RandomState;
use skua_collect::Line;
use skua_flow::{Counters, FlowKey, FlowRecord, Network, Party, fields::end_name, names};

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
    /// The observing host.
    pub host: &'a str,
    /// The observing interface.
    pub interface: Cow<'a, str>,
    /// Owners of the sockets of `lo` and `hi`.
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
    put_owners(batch, row, change);
    let [ab, ba] = record.by_a(added);
    for (column, more) in [
        (flow::AB_PACKETS, ab.packets),
        (flow::AB_BYTES, ab.bytes),
        (flow::BA_PACKETS, ba.packets),
        (flow::BA_BYTES, ba.bytes),
    ] {
        batch.sum(row, column, more);
    }
    match record.end {
        Some(end) => batch.set_text(row, flow::END, end_name(end)),
        None => batch.clear_text(row, flow::END),
    }
    if record.key.proto == 6 {
        put_tcp(batch, row, record, counted);
    }
    true
}

fn put_tcp(batch: &mut Batch, row: usize, record: &FlowRecord, added: Option<TcpCounters>) {
    if let Some(state) = record.tcp_state() {
        batch.set_text(row, flow::TCP_STATE, state.name());
    }
    if let Some(rtt) = record.handshake_rtt_ns() {
        batch.set(row, flow::HANDSHAKE_RTT, rtt);
    }
    let [ab, ba] = record.by_a(record.tcp.flags);
    batch.set(row, flow::AB_FLAGS, ab.into());
    batch.set(row, flow::BA_FLAGS, ba.into());
    let added = added.unwrap_or_default().all();
    for (column, more) in (flow::TCP_COUNTERS..).zip(added.as_flattened()) {
        batch.sum(row, column, (*more).into());
    }
}

/// Sets the columns that never change.
fn put_key(batch: &mut Batch, row: usize, change: &FlowChange<'_>) {
    let record = change.record;
    let key = &record.key;
    let mut text = |column, value: &dyn std::fmt::Display| {
        batch.set_text(row, column, &value.to_string());
    };
    let (a, a_port) = record.a();
    let (b, b_port) = record.b();
    text(flow::A_ADDRESS, &Address(key, a));
    text(flow::B_ADDRESS, &Address(key, b));
    text(flow::PROTOCOL, &names::Protocol(key));
    batch.set(row, flow::START, record.first_ns / 1_000);
    batch.set_text(row, flow::HOST, change.host);
    batch.set_text(row, flow::INTERFACE, &change.interface);
    batch.set(row, flow::ID, record.id);
    batch.set(row, flow::SAMPLING, record.sampling.max(1).into());
    if key.ethernet() {
        batch.set_text(row, flow::LINK, "ethernet");
    }
    for (column, vlan) in [flow::VLAN, flow::INNER_VLAN]
        .into_iter()
        .zip(key.vlan_ids())
    {
        batch.set(row, column, vlan.into());
    }
    if key.network() == Network::None {
        batch.set(row, flow::ETHERTYPE, key.detail.into());
    } else {
        batch.set(row, flow::IP_PROTOCOL, key.proto.into());
        batch.set(row, flow::A_PORT, a_port.into());
        batch.set(row, flow::B_PORT, b_port.into());
    }
    if key.is_icmp() {
        let [kind, code] = key.lo_port;
        batch.set(row, flow::ICMP_TYPE, kind.into());
        batch.set(row, flow::ICMP_CODE, code.into());
        batch.set(row, flow::ICMP_ID, key.detail.into());
    }
    if let Some(tunnel) = key.tunnel() {
        batch.set_text(row, flow::TUNNEL, names::tunnel(tunnel));
        batch.set(row, flow::TUNNEL_ID, record.tunnel_id.into());
    }
}

/// Sets the columns that may become known later.
fn put_owners(batch: &mut Batch, row: usize, change: &FlowChange<'_>) {
    let record = change.record;
    let [a, b] = record.by_a(change.parties);
    for (first, party) in [(flow::A_ADDRESS, a), (flow::B_ADDRESS, b)] {
        let at = |column: usize| first + column - flow::A_ADDRESS;
        batch.set_name(row, at(flow::A_PROCESS), party.process);
        if party.pid > 0 {
            batch.set(row, at(flow::A_PID), party.pid.into());
        }
        match (party.user, party.uid) {
            ("", Some(uid)) => batch.set_text(row, at(flow::A_USER), &uid.to_string()),
            (name, _) => batch.set_name(row, at(flow::A_USER), name),
        }
        batch.set_name(row, at(flow::A_CONTAINER), party.container);
        batch.set_name(row, at(flow::A_POD), party.pod);
        batch.set_name(row, at(flow::A_UNIT), party.unit);
    }
    let Some(found) = record.service else { return };
    let is_a = found.lo == record.lo_first;
    batch.set_text(row, flow::SERVICE_SIDE, if is_a { "a" } else { "b" });
    batch.set_text(row, flow::SERVICE_BY, found.by.name());
    let (party, (address, port)) = if is_a {
        (a, record.a())
    } else {
        (b, record.b())
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

/// An endpoint's address as records show it.
struct Address<'a>(&'a FlowKey, &'a [u8; 16]);

impl std::fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.ip(self.1) {
            Some(ip) => ip.fmt(f),
            None if self.0.ethernet() => {
                for (place, byte) in self.1[10..].iter().enumerate() {
                    write!(f, "{}{byte:02x}", if place == 0 { "" } else { ":" })?;
                }
                Ok(())
            }
            None => Ok(()),
        }
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
