//! The tables: their columns, each defined once. `docs/lake.md` is made from here.

use std::sync::Arc;

use parquet::{
    basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical},
    errors::ParquetError,
    schema::types::{SchemaDescPtr, SchemaDescriptor, Type},
};

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Time, µs since the Unix epoch, UTC.
    Time,
    /// Whole number, not negative, of 64 bits.
    Long,
    /// Whole number, not negative, of 32 bits.
    Int,
    /// UTF-8.
    Text,
    /// List of whole numbers of 32 bits.
    Ints,
}

impl Kind {
    /// In words of Parquet.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "INT64 (TIMESTAMP, µs, UTC)",
            Self::Long => "INT64",
            Self::Int => "INT32",
            Self::Text => "BYTE_ARRAY (STRING)",
            Self::Ints => "LIST of INT32",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name in the file.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// When the value is null, empty for never.
    pub absent: &'static str,
    /// Unit, empty for none.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Whether there is a bloom filter.
    pub bloom: bool,
}

impl Column {
    const fn new(
        name: &'static str,
        kind: Kind,
        absent: &'static str,
        unit: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            absent,
            unit,
            meaning,
            bloom: false,
        }
    }

    const fn with_bloom(mut self) -> Self {
        self.bloom = true;
        self
    }

    /// Whether values may be missing.
    pub fn optional(&self) -> bool {
        !self.absent.is_empty()
    }
}

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Table {
    /// What conversations have sent, from drain to drain.
    Flows,
    /// Sums by service, client and window, as collectors make them.
    Services,
}

/// Version of both schemas: it grows when a column changes its meaning, not when one is added.
pub const VERSION: u32 = 1;

impl Table {
    /// All tables.
    pub const ALL: [Self; 2] = [Self::Flows, Self::Services];

    /// Name of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Services => "services",
        }
    }

    /// The table of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Its columns, in the order of the file.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Flows => FLOWS,
            Self::Services => SERVICES,
        }
    }

    /// Place of a column.
    pub fn column(self, name: &str) -> Option<usize> {
        self.columns().iter().position(|column| column.name == name)
    }

    /// Columns that rows of a file are sorted by.
    pub(crate) fn order(self) -> &'static [usize] {
        match self {
            Self::Flows => &[flow::HOST, flow::SERVICE, flow::A_ADDRESS, flow::TIME],
            Self::Services => &[
                service::SERVER,
                service::PORT,
                service::CLIENT,
                service::WINDOW,
            ],
        }
    }

    /// The column that says when.
    pub fn time(self) -> usize {
        match self {
            Self::Flows => flow::TIME,
            Self::Services => service::WINDOW,
        }
    }

    /// As Parquet has it.
    pub(crate) fn schema(self) -> Result<SchemaDescPtr, ParquetError> {
        Ok(Arc::new(SchemaDescriptor::new(Arc::new(message(self)?))))
    }

    /// The columns as a Markdown table.
    pub fn markdown(self) -> String {
        let mut text =
            String::from("| column | type | unit | meaning | null |\n|---|---|---|---|---|\n");
        for column in self.columns() {
            let bloom = if column.bloom { "; bloom filter" } else { "" };
            text += &format!(
                "| `{}` | {}{bloom} | {} | {} | {} |\n",
                column.name,
                column.kind.name(),
                column.unit,
                column.meaning,
                column.absent
            );
        }
        text
    }
}

fn message(table: Table) -> Result<Type, ParquetError> {
    let fields: Result<Vec<_>, _> = table
        .columns()
        .iter()
        .map(|column| field(column).map(Arc::new))
        .collect();
    Type::group_type_builder(table.name())
        .with_fields(fields?)
        .build()
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let physical = match column.kind {
        Kind::Time | Kind::Long => Physical::INT64,
        Kind::Int => Physical::INT32,
        Kind::Text => Physical::BYTE_ARRAY,
        Kind::Ints => return list(column.name),
    };
    let repetition = if column.optional() {
        Repetition::OPTIONAL
    } else {
        Repetition::REQUIRED
    };
    let builder = Type::primitive_type_builder(column.name, physical).with_repetition(repetition);
    match column.kind {
        Kind::Time => {
            builder.with_logical_type(Some(LogicalType::timestamp(true, TimeUnit::MICROS)))
        }
        Kind::Text => builder.with_logical_type(Some(LogicalType::String)),
        _ => builder,
    }
    .build()
}

/// The three levels that the specification of Parquet wants (LogicalTypes.md, "Lists").
fn list(name: &str) -> Result<Type, ParquetError> {
    let element = Type::primitive_type_builder("element", Physical::INT32)
        .with_repetition(Repetition::REQUIRED)
        .build()?;
    let items = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(ConvertedType::LIST)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(items)])
        .build()
}

/// Numbers the columns of a table.
macro_rules! places {
    ($($name:ident),* $(,)?) => { places!(@ 0usize; $($name,)*); };
    (@ $at:expr; $name:ident, $($rest:ident,)*) => {
        #[allow(dead_code, reason = "those of `b` are found by those of `a`")]
        pub(crate) const $name: usize = $at;
        places!(@ $at + 1; $($rest,)*);
    };
    (@ $at:expr;) => { pub(crate) const COUNT: usize = $at; };
}

/// Places of the columns of `flows`; from `TCP_COUNTERS` on those of `a` and `b` in turn.
pub(crate) mod flow {
    places!(
        TIME,
        START,
        HOST,
        INTERFACE,
        PROTOCOL,
        IP_PROTOCOL,
        SERVICE,
        SERVICE_SIDE,
        SERVICE_BY,
        A_ADDRESS,
        A_PORT,
        A_PROCESS,
        A_PID,
        A_USER,
        A_CONTAINER,
        A_POD,
        A_UNIT,
        B_ADDRESS,
        B_PORT,
        B_PROCESS,
        B_PID,
        B_USER,
        B_CONTAINER,
        B_POD,
        B_UNIT,
        AB_PACKETS,
        AB_BYTES,
        BA_PACKETS,
        BA_BYTES,
        BEGUN,
        END,
        TCP_STATE,
        HANDSHAKE_RTT,
        AB_FLAGS,
        BA_FLAGS,
        LINK,
        VLAN,
        INNER_VLAN,
        ETHERTYPE,
        ICMP_TYPE,
        ICMP_CODE,
        ICMP_ID,
        TUNNEL,
        TUNNEL_ID,
        SAMPLING,
        ID,
        TCP_COUNTERS,
    );

    /// Those of `a` and `b` (a test looks at their names).
    pub(crate) const RETRANSMITTED: [usize; 2] = [TCP_COUNTERS, TCP_COUNTERS + 1];
}

/// Places of the columns of `services`.
pub(crate) mod service {
    places!(
        WINDOW,
        SECONDS,
        COLLECTOR,
        PROTOCOL,
        IP_PROTOCOL,
        CLIENT,
        SERVER,
        PORT,
        SERVICE_BY,
        CLIENT_PACKETS,
        CLIENT_BYTES,
        SERVER_PACKETS,
        SERVER_BYTES,
        CLIENT_RETRANSMITTED,
        SERVER_RETRANSMITTED,
        BEGUN,
        ENDED,
        RESET,
        RTT_COUNT,
        RTT_SUM,
        RTT_MIN,
        RTT_MAX,
        CLIENT_PORTS,
        CLIENT_PORTS_BEYOND,
        RECORDS,
        SAMPLES,
        AGENTS,
        JOINED,
        BETWEEN_CLIENT_PACKETS,
        BETWEEN_CLIENT_BYTES,
        BETWEEN_SERVER_PACKETS,
        BETWEEN_SERVER_BYTES,
        CLIENT_SERVICE,
        SERVER_SERVICE,
        REFUSED,
        TIMED_OUT,
        ROUND_TRIP_COUNT,
        ROUND_TRIP_SUM,
        ROUND_TRIP_MIN,
        ROUND_TRIP_MAX,
        ROUND_TRIP_CLASSES,
        ROUND_TRIP_COUNTS,
    );
}

const _: () = assert!(FLOWS_BUT_TCP.len() + 1 == flow::COUNT && SERVICES.len() == service::COUNT);

use Kind::{Int, Ints, Long, Text, Time};

const NO_OWNER: &str = "not known, or not on this host";
const NO_TCP: &str = "not TCP";
const NO_IP: &str = "without IP";
const NO_ICMP: &str = "not ICMP";
const NO_SERVICE: &str = "not known";
const NEVER: &str = "";
const OLDER: &str = "in files of versions without it";

const FLOWS: &[Column] = &{
    const ALL: usize = FLOWS_BUT_TCP.len() + TCP_COUNTERS.len();
    skua_record::joined::<_, ALL>(&[FLOWS_BUT_TCP, TCP_COUNTERS])
};

macro_rules! tcp_counters {
    ($($field:ident, $name:literal, $skydive:literal, $what:literal;)*) => {
        const TCP_COUNTERS: &[Column] = &[$(
            Column::new(concat!("tcp_ab_", $name), Int, NO_TCP, "segments", concat!("segments of `a` ", $what, ", of this row")),
            Column::new(concat!("tcp_ba_", $name), Int, NO_TCP, "segments", concat!("segments of `b` ", $what, ", of this row")),
        )*];
    };
}
skua_record::for_each_tcp_counter!(tcp_counters);

#[rustfmt::skip]
const FLOWS_BUT_TCP: &[Column] = &[
    Column::new("time", Time, NEVER, "", "last packet of what the row counts; the row belongs to the day and hour of this time"),
    Column::new("start", Time, NEVER, "", "first packet of the conversation"),
    Column::new("host", Text, NEVER, "", "host where it was seen"),
    Column::new("interface", Text, NEVER, "", "interface where it was seen"),
    Column::new("protocol", Text, NEVER, "", "as in flow records: `tcp`, `icmpv6`, `arp`"),
    Column::new("ip_protocol", Int, NO_IP, "", "IP protocol"),
    Column::new("service", Text, NO_SERVICE, "", "what is called: the container, else the systemd service, else the process that offers it; else its address and port"),
    Column::new("service_side", Text, NO_SERVICE, "", "`a` or `b`: which side offers the service"),
    Column::new("service_by", Text, NO_SERVICE, "", "how that is known, as in flow records"),
    Column::new("a_address", Text, NEVER, "", "address of the side that spoke first: IP, or MAC without IP").with_bloom(),
    Column::new("a_port", Int, NO_IP, "", "its transport port, 0 for protocols without ports"),
    Column::new("a_process", Text, NO_OWNER, "", "process that has its socket"),
    Column::new("a_pid", Int, NO_OWNER, "", "its process identifier"),
    Column::new("a_user", Text, NO_OWNER, "", "its user"),
    Column::new("a_container", Text, NO_OWNER, "", "its container"),
    Column::new("a_pod", Text, NO_OWNER, "", "its Kubernetes pod"),
    Column::new("a_unit", Text, NO_OWNER, "", "its systemd unit"),
    Column::new("b_address", Text, NEVER, "", "address of the other side").with_bloom(),
    Column::new("b_port", Int, NO_IP, "", "its transport port"),
    Column::new("b_process", Text, NO_OWNER, "", "process that has its socket"),
    Column::new("b_pid", Int, NO_OWNER, "", "its process identifier"),
    Column::new("b_user", Text, NO_OWNER, "", "its user"),
    Column::new("b_container", Text, NO_OWNER, "", "its container"),
    Column::new("b_pod", Text, NO_OWNER, "", "its Kubernetes pod"),
    Column::new("b_unit", Text, NO_OWNER, "", "its systemd unit"),
    Column::new("ab_packets", Long, NEVER, "packets", "packets on the wire from `a` to `b` that this row adds"),
    Column::new("ab_bytes", Long, NEVER, "bytes", "link-layer bytes from `a` to `b` that this row adds"),
    Column::new("ba_packets", Long, NEVER, "packets", "packets from `b` to `a` that this row adds"),
    Column::new("ba_bytes", Long, NEVER, "bytes", "bytes from `b` to `a` that this row adds"),
    Column::new("begun", Int, NEVER, "", "1 in the first row of a conversation, else 0"),
    Column::new("end", Text, "still active", "", "why the conversation ended, as in flow records; only in its last row"),
    Column::new("tcp_state", Text, "no flags seen", "", "state at `time`, as in flow records"),
    Column::new("tcp_handshake_rtt", Long, "handshake not seen", "ns", "SYN to ACK; the same in all rows of a conversation that come after it"),
    Column::new("tcp_ab_flags", Int, NO_TCP, "", "flags seen from `a` since the conversation began, bits as in the TCP header (RFC 9293)"),
    Column::new("tcp_ba_flags", Int, NO_TCP, "", "flags seen from `b`"),
    Column::new("link", Text, "no link-layer header", "", "`ethernet`"),
    Column::new("vlan", Int, "without tag", "", "outer VLAN identifier"),
    Column::new("inner_vlan", Int, "without a second tag", "", "inner VLAN identifier"),
    Column::new("ethertype", Int, "with IP", "", "EtherType"),
    Column::new("icmp_type", Int, NO_ICMP, "", "ICMP or ICMPv6 type"),
    Column::new("icmp_code", Int, NO_ICMP, "", "code"),
    Column::new("icmp_id", Int, NO_ICMP, "", "identifier of queries, else 0"),
    Column::new("tunnel", Text, "not inside a tunnel", "", "what it was found inside: `vxlan`, `geneve`, `gre`, `ipip`, `mpls`; its bytes are part of those of the tunnel's own rows, too"),
    Column::new("tunnel_id", Long, "not inside a tunnel", "", "VNI, GRE key or MPLS label"),
    Column::new("sampling", Int, NEVER, "", "one in so many packets was counted; 1: all"),
    Column::new("id", Long, NEVER, "", "`id` of flow records as a number: of the conversation at this capture point"),
];

#[rustfmt::skip]
const SERVICES: &[Column] = &[
    Column::new("window", Time, NEVER, "", "beginning of the window; the row belongs to the day and hour of this time"),
    Column::new("window_length", Long, NEVER, "ns", "length of the window"),
    Column::new("collector", Text, NEVER, "", "host of the collector"),
    Column::new("protocol", Text, NEVER, "", "as in flow records: `tcp`, `udp`; a number where there is no name"),
    Column::new("ip_protocol", Int, NEVER, "", "IP protocol"),
    Column::new("client", Text, NEVER, "", "address of who uses the service").with_bloom(),
    Column::new("server", Text, NEVER, "", "address of who offers it").with_bloom(),
    Column::new("port", Int, NEVER, "", "its port"),
    Column::new("service_by", Text, NEVER, "", "how the service's side is known"),
    Column::new("client_packets", Long, NEVER, "packets", "packets that the client sent"),
    Column::new("client_bytes", Long, NEVER, "bytes", "their bytes"),
    Column::new("server_packets", Long, NEVER, "packets", "packets that the server sent"),
    Column::new("server_bytes", Long, NEVER, "bytes", "their bytes"),
    Column::new("client_retransmitted", Long, NEVER, "segments", "segments of the client that came again"),
    Column::new("server_retransmitted", Long, NEVER, "segments", "segments of the server that came again"),
    Column::new("begun", Long, NEVER, "", "conversations that began"),
    Column::new("ended", Long, NEVER, "", "conversations that ended"),
    Column::new("reset", Long, NEVER, "", "of these, by RST"),
    Column::new("rtt_count", Long, NEVER, "", "handshakes whose time is known"),
    Column::new("rtt_sum", Long, NEVER, "µs", "sum of their times, SYN to ACK"),
    Column::new("rtt_min", Long, NEVER, "µs", "the least, 0 without"),
    Column::new("rtt_max", Long, NEVER, "µs", "the greatest, 0 without"),
    Column::new("client_ports", Ints, NEVER, "", "first ports of the client"),
    Column::new("client_ports_beyond", Long, NEVER, "", "further conversations, whose ports are not in the list"),
    Column::new("records", Long, NEVER, "", "records that were summed up"),
    Column::new("samples", Long, NEVER, "", "sampled packets that were: with some the sums are estimates"),
    Column::new("agents", Int, NEVER, "", "agents that exported it, at most 4 by name"),
    Column::new("joined", Long, NEVER, "", "conversations that a second host exported"),
    Column::new("between_client_packets", Long, NEVER, "packets", "packets of the client that one of two hosts counted and the other did not"),
    Column::new("between_client_bytes", Long, NEVER, "bytes", "their bytes"),
    Column::new("between_server_packets", Long, NEVER, "packets", "packets of the server that one of two hosts counted and the other did not"),
    Column::new("between_server_bytes", Long, NEVER, "bytes", "their bytes"),
    Column::new("client_service", Text, NO_SERVICE, "", "name of the service that the client is: container, unit or process"),
    Column::new("server_service", Text, NO_SERVICE, "", "name of the service that is offered"),
    Column::new("refused", Long, OLDER, "", "of `ended`, attempts that were answered with RST"),
    Column::new("timed_out", Long, OLDER, "", "of `ended`, attempts that were not answered"),
    Column::new("round_trip_count", Long, OLDER, "", "conversations whose round-trip time is known: of its handshake, else as a socket measured"),
    Column::new("round_trip_sum", Long, OLDER, "µs", "sum of these times"),
    Column::new("round_trip_min", Long, OLDER, "µs", "the least, 0 without"),
    Column::new("round_trip_max", Long, OLDER, "µs", "the greatest, 0 without"),
    Column::new("round_trip_classes", Ints, NEVER, "µs", "middles of the classes of these times, the least first, as `rtt.classes` in collector.md; add up counts of the same middle"),
    Column::new("round_trip_counts", Ints, NEVER, "", "how many are in each of these classes, in the same order"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_counters_have_their_names() {
        let name = |place: usize| Table::Flows.columns()[place].name;
        let names = flow::RETRANSMITTED.map(name);
        assert_eq!(names, ["tcp_ab_retransmitted", "tcp_ba_retransmitted"]);
    }

    #[test]
    fn docs_have_every_column() {
        const MARK: &str = "<!-- tables -->\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/lake.md");
        let written = std::fs::read_to_string(path).unwrap();
        let (head, _) = written.split_once(MARK).unwrap();
        let mut text = format!("{head}{MARK}");
        for table in Table::ALL {
            text += &format!("\n### {}\n\n{}", table.name(), table.markdown());
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, text).unwrap();
            return;
        }
        assert!(
            written == text,
            "docs/lake.md is out of date: run `UPDATE_DOCS=1 cargo test -p skua-lake docs`"
        );
    }
}
