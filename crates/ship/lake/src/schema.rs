//! The tables: their columns, each defined once. `docs/lake.md` is made from here.

use std::sync::Arc;

use parquet::{
    basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical},
    errors::ParquetError,
    schema::types::{SchemaDescPtr, SchemaDescriptor, Type},
};
use skua_flow::fields::{Aggregation, FIELDS, Field, FieldType};

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
#[derive(Clone, Copy)]
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
    /// The field of flow records that it has; none for those of the lake alone.
    pub(crate) field: Option<&'static Field>,
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
            field: None,
        }
    }

    /// That of a field.
    const fn of(name: &'static str, field: &'static Field) -> Self {
        let kind = match field.column_kind {
            FieldType::Time => Kind::Time,
            FieldType::Integer => Kind::Long,
            FieldType::Integer32 => Kind::Int,
            FieldType::String => Kind::Text,
            FieldType::Integers | FieldType::Number => panic!("no column has this type"),
        };
        let mut column = Self::new(name, kind, field.absent, field.unit, field.meaning);
        column.field = Some(field);
        column
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
            let here = match column.field {
                Some(field) if field.aggregation == Aggregation::Sum => ", of this row",
                Some(field) if field.column_kind != field.kind => "; here a number",
                _ => "",
            };
            text += &format!(
                "| `{}` | {}{bloom} | {} | {}{here} | {} |\n",
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

/// Numbers the columns of a table by their names.
macro_rules! places {
    ($columns:expr; $($name:ident $column:literal),* $(,)?) => {
        $(pub(crate) const $name: usize = super::place($columns, $column);)*
    };
}

/// The column of a name; that there is one, the compiler finds out.
const fn place(columns: &[Column], name: &str) -> usize {
    let mut at = 0;
    while !skua_record::same(columns[at].name, name) {
        at += 1;
    }
    at
}

/// Places of the columns of `flows` that are read or written by their names. Those of `a` and `b` have the same order.
pub(crate) mod flow {
    places!(
        super::FLOWS;
        TIME "time",
        START "start",
        HOST "host",
        PROTOCOL "protocol",
        IP_PROTOCOL "ip_protocol",
        SERVICE "service",
        SERVICE_SIDE "service_side",
        A_ADDRESS "a_address",
        A_PORT "a_port",
        A_PROCESS "a_process",
        A_PID "a_pid",
        A_USER "a_user",
        A_CONTAINER "a_container",
        A_POD "a_pod",
        A_UNIT "a_unit",
        B_ADDRESS "b_address",
        B_PORT "b_port",
        AB_PACKETS "ab_packets",
        AB_BYTES "ab_bytes",
        BA_PACKETS "ba_packets",
        BA_BYTES "ba_bytes",
        BEGUN "begun",
        END "end",
        HANDSHAKE_RTT "tcp_handshake_rtt",
        AB_FLAGS "tcp_ab_flags",
        BA_FLAGS "tcp_ba_flags",
        LINK "link",
        VLAN "vlan",
        INNER_VLAN "inner_vlan",
        ETHERTYPE "ethertype",
        ICMP_TYPE "icmp_type",
        ICMP_CODE "icmp_code",
        ICMP_ID "icmp_id",
        SAMPLING "sampling",
        AB_RETRANSMITTED "tcp_ab_retransmitted",
        BA_RETRANSMITTED "tcp_ba_retransmitted",
    );

    /// Those of `a` and `b`.
    pub(crate) const RETRANSMITTED: [usize; 2] = [AB_RETRANSMITTED, BA_RETRANSMITTED];
}

/// Places of the columns of `services`.
pub(crate) mod service {
    places!(
        super::SERVICES;
        WINDOW "window",
        SECONDS "window_length",
        COLLECTOR "collector",
        PROTOCOL "protocol",
        IP_PROTOCOL "ip_protocol",
        CLIENT "client",
        SERVER "server",
        PORT "port",
        SERVICE_BY "service_by",
        CLIENT_PACKETS "client_packets",
        CLIENT_BYTES "client_bytes",
        SERVER_PACKETS "server_packets",
        SERVER_BYTES "server_bytes",
        CLIENT_RETRANSMITTED "client_retransmitted",
        SERVER_RETRANSMITTED "server_retransmitted",
        BEGUN "begun",
        ENDED "ended",
        RESET "reset",
        RTT_COUNT "rtt_count",
        RTT_SUM "rtt_sum",
        RTT_MIN "rtt_min",
        RTT_MAX "rtt_max",
        CLIENT_PORTS "client_ports",
        CLIENT_PORTS_BEYOND "client_ports_beyond",
        RECORDS "records",
        SAMPLES "samples",
        AGENTS "agents",
        JOINED "joined",
        BETWEEN_CLIENT_PACKETS "between_client_packets",
        BETWEEN_CLIENT_BYTES "between_client_bytes",
        BETWEEN_SERVER_PACKETS "between_server_packets",
        BETWEEN_SERVER_BYTES "between_server_bytes",
        CLIENT_SERVICE "client_service",
        SERVER_SERVICE "server_service",
        REFUSED "refused",
        TIMED_OUT "timed_out",
        ROUND_TRIP_COUNT "round_trip_count",
        ROUND_TRIP_SUM "round_trip_sum",
        ROUND_TRIP_MIN "round_trip_min",
        ROUND_TRIP_MAX "round_trip_max",
        ROUND_TRIP_CLASSES "round_trip_classes",
        ROUND_TRIP_COUNTS "round_trip_counts",
    );
}

use Kind::{Int, Ints, Long, Text, Time};

const NO_IP: &str = "without IP";
const NO_SERVICE: &str = "not known";
const NEVER: &str = "";
const OLDER: &str = "in files of versions without it";

const FLOWS: &[Column] = &{
    const DEFINED: [Column; defined(FIELDS)] = columns_of(FIELDS);
    const ALL: usize = OF_FLOWS.len() + DEFINED.len();
    skua_record::joined::<_, ALL>(&[OF_FLOWS, &DEFINED])
};

/// How many columns some fields have.
const fn defined(fields: &[Field]) -> usize {
    let (mut count, mut field) = (0, 0);
    while field < fields.len() {
        count += fields[field].column.of_value().is_some() as usize;
        field += 1;
    }
    count
}

/// The columns of fields.
const fn columns_of<const N: usize>(fields: &'static [Field]) -> [Column; N] {
    let mut all = [OF_FLOWS[0]; N];
    let (mut at, mut field) = (0, 0);
    while field < fields.len() {
        if let Some(name) = fields[field].column.of_value() {
            all[at] = Column::of(name, &fields[field]);
            if skua_record::same(name, "a_address") || skua_record::same(name, "b_address") {
                all[at] = all[at].with_bloom();
            }
            at += 1;
        }
        field += 1;
    }
    all
}

/// Columns that no field of flow records has in this form.
#[rustfmt::skip]
const OF_FLOWS: &[Column] = &[
    Column::new("time", Time, NEVER, "", "last packet of what the row counts; the row belongs to the day and hour of this time"),
    Column::new("host", Text, NEVER, "", "host where it was seen"),
    Column::new("ip_protocol", Int, NO_IP, "", "IP protocol"),
    Column::new("service", Text, NO_SERVICE, "", "what is called: the container, else the systemd service, else the process that offers it; else its address and port"),
    Column::new("begun", Int, NEVER, "", "1 in the first row of a conversation, else 0"),
    Column::new("link", Text, "no link-layer header", "", "`ethernet`"),
    Column::new("vlan", Int, "without tag", "", "outer VLAN identifier"),
    Column::new("inner_vlan", Int, "without a second tag", "", "inner VLAN identifier"),
    Column::new("sampling", Int, NEVER, "", "one in so many packets was counted; 1: all"),
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
    use skua_record::Name;

    use super::*;

    #[test]
    fn every_field_of_flows_has_a_column_or_a_reason() {
        for field in FIELDS {
            match field.column {
                Name::Undefined => panic!("{}: define a column, or say why not", field.path),
                Name::Without(why) => assert!(!why.is_empty(), "{}", field.path),
                Name::Value(name) | Name::Own(name) => {
                    let columns = Table::Flows.columns().iter();
                    let found: Vec<_> = columns.filter(|column| column.name == name).collect();
                    let [column] = found[..] else {
                        panic!("{name}: {} times", found.len());
                    };
                    let derived = matches!(field.column, Name::Value(_));
                    assert_eq!(column.field.is_some(), derived, "{name}");
                }
            }
        }
    }

    #[test]
    fn a_new_field_is_a_new_column() {
        const NEW: &[Field] = &[
            Field::new(
                "tcp.new",
                FieldType::Integer32,
                "segments",
                "not TCP",
                "new",
                |_| skua_record::Value::Integer(7),
            )
            .is(Aggregation::Sum)
            .column("tcp_new"),
            Field::new("other", FieldType::String, "", "", "elsewhere", |_| {
                skua_record::Value::Absent
            })
            .no_column("not wanted"),
        ];
        let [column]: [Column; defined(NEW)] = columns_of(NEW);
        assert_eq!(
            (column.name, column.kind, column.unit),
            ("tcp_new", Kind::Int, "segments")
        );
        assert!(column.optional());
        let mut batch = crate::batch::Batch::new(Table::Flows);
        let row = batch.add();
        let place = flow::AB_RETRANSMITTED;
        for sum in [7, 14] {
            crate::rows::put(
                &mut batch,
                row,
                place,
                &NEW[0],
                skua_record::Value::Integer(7),
            );
            assert_eq!(batch.number(row, place), sum);
        }
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
