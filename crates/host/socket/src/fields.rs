//! Every field of the socket record, once: JSON, CSV, their schema, keys of queries, the page's types and
//! `docs/records.md` come from [`FIELDS`].

use std::io;

pub use skua_record::FieldType;
use skua_record::NoOther;

use crate::{End, TaskRule, TcpMetrics, record::SocketLine};

/// The socket record.
pub struct Sockets;

impl skua_record::Record for Sockets {
    type Line<'a> = SocketLine<'a>;
    type Other<'a> = NoOther;
    type Getter = for<'a, 'b> fn(&'b SocketLine<'a>) -> Value<'a>;

    fn get<'a>(
        getter: Self::Getter,
        line: &Self::Line<'a>,
    ) -> skua_record::Value<'a, Self::Other<'a>> {
        getter(line)
    }
}

/// A field of the socket record.
pub type Field = skua_record::Field<Sockets>;

type Value<'a> = skua_record::Value<'a, NoOther>;

use FieldType::{Integer, Integer32, String, Time};

const NO_OWNER: &str = "not known";
const NO_PEER: &str = "no peer";
const NO_TCP: &str = "not TCP, or listening";
const NO_SAMPLE: &str = "no sample";
const NOT_LISTENING: &str = "not a listening TCP socket";
const NO_SERVICE: &str = "not known";

/// All fields in the order in which they are written. Fields of one JSON object stand together.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    Field::new("protocol", String, "", "", "`tcp` or `udp`", |l| Value::Text(l.record.protocol.name()))
        .own_key("Protocol"),
    Field::new("state", String, "", "", "TCP: state by RFC 9293 in lower case, of an ended socket the last one before it was closed; UDP: `connected` (has a fixed peer) or `unconnected`",
        |l| Value::Text(l.record.state.name()))
        .own_key("State"),
    Field::new("process", String, "", NO_OWNER, "name of the process that owns it",
        |l| Value::nonempty(l.owner.process))
        .key("Name"),
    Field::new("pid", Integer32, "", NO_OWNER, "its process identifier on the host", |l| Value::nonzero(l.owner.pid.into()))
        .key("Pid"),
    Field::new("ns_pid", Integer32, "", "the same, or not known", "its process identifier in its own PID namespace, as its container sees it",
        |l| Value::nonzero(l.ns_pid.into()))
        .key("NSPid"),
    Field::new("user", String, "", NO_OWNER, "its user, a number where there is no name", |l| l.owner.user_value())
        .key("User"),
    Field::new("executable", String, "", NO_OWNER, "path of its executable, or the last part of it",
        |l| Value::nonempty(l.executable))
        .own_key("Process"),
    Field::new("container", String, "", "not in a container", "its container: the name, else the identifier",
        |l| Value::nonempty(l.owner.container))
        .key("Container"),
    Field::new("pod", String, "", "not in a pod", "its Kubernetes pod", |l| Value::nonempty(l.owner.pod)).key("Pod"),
    Field::new("unit", String, "", "not in a unit", "its systemd unit", |l| Value::nonempty(l.owner.unit)).key("Unit"),
    Field::new("owner_by", String, "", NO_OWNER, "how the owner is known, best first: `accept` (it accepted), `connect` (it called connect or listen), `file` (it has the socket open), `close` (it closed it), `send` (it sent first), `create` (it made it), `listener` (it made the listening socket)",
        |l| match l.record.owner_by { TaskRule::Unknown => Value::Absent, rule => Value::Text(rule.name()) })
        .key("OwnerBy"),
    Field::new("local.address", String, "", "", "local address, unspecified (`0.0.0.0`, `::`) for all",
        |l| Value::Ip(l.record.local.ip()))
        .key("LocalAddress"),
    Field::new("local.port", Integer32, "", "", "local port", |l| Value::Integer(l.record.local.port().into()))
        .key("LocalPort"),
    Field::new("remote.address", String, "", NO_PEER, "address of the other side; of a UDP socket without connect the first that it sent to",
        |l| Value::or_absent(l.record.remote, |r| Value::Ip(r.ip())))
        .own_key("RemoteAddress"),
    Field::new("remote.port", Integer32, "", NO_PEER, "its port",
        |l| Value::or_absent(l.record.remote, |r| Value::Integer(r.port().into())))
        .own_key("RemotePort"),
    Field::new("opened_by", String, "", "older than the agent", "`local` or `remote`: the side that opened the connection",
        |l| Value::or_absent(l.record.opener.name(), Value::Text))
        .key("OpenedBy"),
    Field::new("service.side", String, "", NO_SERVICE, "which side offers the service: `local` or `remote`",
        |l| Value::or_absent(l.service, |s| { Value::Text(if s.local { "local" } else { "remote" }) }))
        .key("ServiceSide"),
    Field::new("service.by", String, "", NO_SERVICE, "how that is known, best first: `kernel` (accept or connect was seen), `listening` (a socket listens there), `ephemeral` (the other port is in the host's ephemeral range), `well-known` (its port is below 1024)",
        |l| Value::or_absent(l.service, |s| Value::Text(s.by.name())))
        .key("ServiceRule"),
    Field::new("start", Time, "RFC 3339, UTC", "older than the agent", "begin: SYN sent or connection accepted; UDP: connect or first send",
        |l| match l.record.start_ns { 0 => Value::Absent, ns => Value::Time(ns) })
        .key("Start"),
    Field::new("established", Time, "RFC 3339, UTC", "never, or not seen", "time at which the connection was established",
        |l| match l.record.established_ns { 0 => Value::Absent, ns => Value::Time(ns) })
        .key("Established"),
    Field::new("seen", Time, "RFC 3339, UTC", "", "time of the end, or when the socket was last read; the numbers are from then",
        |l| Value::Time(l.record.now_ns))
        .own_key("Last"),
    Field::new("age", Integer, "ns", "older than the agent", "time from `start` to `seen`",
        |l| Value::or_absent(l.record.age_ns(), Value::Integer))
        .key("Age"),
    Field::new("end", String, "", "still open", "why it ended: `closed`, `reset-local` (this side sent a RST), `reset-remote`, `refused`, `timed-out`, `error` (see `errno`), `vanished` (no end was seen: the numbers are from when it was last read)",
        |l| Value::or_absent(l.record.end, |end| Value::Text(end.name())))
        .key("End"),
    Field::new("errno", Integer32, "", "`end` is not `error`", "Linux' number of the error",
        |l| match l.record.end {
            Some(End::Error(errno)) => Value::Integer(errno.unsigned_abs().into()),
            _ => Value::Absent,
        })
        .key("Errno"),
    Field::new("sent.bytes", Integer, "bytes", NO_TCP, "payload that the other side acknowledged",
        |l| tcp(l, |t| t.bytes_sent))
        .key("BytesSent"),
    Field::new("sent.segments", Integer, "segments", NO_TCP, "segments sent, those without payload and retransmitted ones included",
        |l| tcp(l, |t| t.segments_sent))
        .key("SegmentsSent"),
    Field::new("received.bytes", Integer, "bytes", NO_TCP, "payload received in order",
        |l| tcp(l, |t| t.bytes_received))
        .key("BytesReceived"),
    Field::new("received.segments", Integer, "segments", NO_TCP, "segments received",
        |l| tcp(l, |t| t.segments_received))
        .key("SegmentsReceived"),
    Field::new("tcp.srtt", Integer32, "µs", NO_SAMPLE, "smoothed round-trip time",
        |l| sample(l, |t| t.srtt_us.into()))
        .own_key("RTT"),
    Field::new("tcp.rttvar", Integer32, "µs", NO_SAMPLE, "its mean deviation",
        |l| match l.record.tcp {
            Some(t) if t.srtt_us != 0 => Value::Integer(t.rttvar_us.into()),
            _ => Value::Absent,
        })
        .own_key("RTTVar"),
    Field::new("tcp.min_rtt", Integer32, "µs", NO_SAMPLE, "smallest round-trip time of the kernel's window",
        |l| sample(l, |t| t.min_rtt_us.into()))
        .own_key("MinRTT"),
    Field::new("tcp.retransmits", Integer32, "segments", NO_TCP, "segments sent again",
        |l| tcp(l, |t| t.retransmits.into()))
        .key("Retransmits"),
    Field::new("tcp.retransmitted", Integer, "bytes", NO_TCP, "payload sent again",
        |l| tcp(l, |t| t.bytes_retransmitted))
        .key("BytesRetransmitted"),
    Field::new("tcp.lost", Integer32, "segments", NO_TCP, "segments held for lost at that moment",
        |l| tcp(l, |t| t.lost.into()))
        .key("Lost"),
    Field::new("tcp.cwnd", Integer32, "segments", NO_TCP, "congestion window", |l| tcp(l, |t| t.cwnd.into()))
        .key("CWND"),
    Field::new("tcp.mss", Integer32, "bytes", NO_TCP, "maximum segment size for sending",
        |l| tcp(l, |t| t.mss.into()))
        .key("MSS"),
    Field::new("tcp.delivery_rate", Integer, "bytes/s", NO_SAMPLE, "latest sample of how fast data is delivered",
        |l| sample(l, |t| t.delivery_rate))
        .key("DeliveryRate"),
    Field::new("backlog.waiting", Integer32, "connections", NOT_LISTENING, "connections that wait for accept",
        |l| Value::or_absent(l.record.backlog, |(waiting, _)| { Value::Integer(waiting.into()) }))
        .key("BacklogWaiting"),
    Field::new("backlog.limit", Integer32, "connections", NOT_LISTENING, "the most that may",
        |l| Value::or_absent(l.record.backlog, |(_, limit)| Value::Integer(limit.into())))
        .key("BacklogLimit"),
    Field::new("netns", Integer32, "", "", "inode number of its network namespace (`lsns -t net`)",
        |l| Value::Integer(l.record.netns.into()))
        .key("NetNsInode"),
    Field::new("id", Integer, "", "", "the kernel's socket cookie, as `ss -e` shows it (`sk:`, there in hexadecimal)",
        |l| Value::Integer(l.record.id))
        .key("Cookie"),
];

fn tcp<'a>(line: &SocketLine<'a>, value: impl FnOnce(&TcpMetrics) -> u64) -> Value<'a> {
    match &line.record.tcp {
        Some(tcp) => Value::Integer(value(tcp)),
        None => Value::Absent,
    }
}

/// A measurement that may not have been made yet.
fn sample<'a>(line: &SocketLine<'a>, value: impl FnOnce(&TcpMetrics) -> u64) -> Value<'a> {
    Value::nonzero(line.record.tcp.as_ref().map_or(0, value))
}

/// Writes the CSV header: the paths with `_` for `.`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_header(out: &mut impl io::Write) -> io::Result<()> {
    skua_record::write_csv_header(FIELDS, out)
}

/// Writes a socket as a CSV row (RFC 4180, but LF); fields that do not apply are empty.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_row(out: &mut impl io::Write, line: &SocketLine<'_>) -> io::Result<()> {
    skua_record::write_csv_row(FIELDS, out, line)
}

/// The chapter on sockets of `docs/records.md`.
pub fn documentation() -> std::string::String {
    DOCUMENTATION.to_owned() + &skua_record::markdown(FIELDS)
}

const DOCUMENTATION: &str = "\
A record is a TCP or UDP socket of the host: open, or just closed. [How sockets become
records](sockets.md) is a page of its own.

";

/// JSON Schema (2020-12) of a record.
pub fn json_schema() -> serde_json::Value {
    skua_record::json_schema("Skua socket record", FIELDS)
}
