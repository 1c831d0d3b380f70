//! The tables: their columns, each defined once. `docs/lake.md` is made from here.

use std::sync::Arc;

use parquet::{
    basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical},
    errors::ParquetError,
    schema::types::{SchemaDescPtr, SchemaDescriptor, Type},
};
use skua_collect::fields::FIELDS as LINES;
use skua_flow::fields::FIELDS;
use skua_record::{Aggregation, Field, FieldType, Record, same};

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
    /// What it has of a field, as the documentation says it; none for columns of the lake alone.
    defined: Option<&'static str>,
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
            defined: None,
        }
    }

    /// That of a field.
    const fn of<R: Record>(name: &'static str, field: &Field<R>) -> Self {
        let kind = match field.column_kind {
            FieldType::Time => Kind::Time,
            FieldType::Integer => Kind::Long,
            FieldType::Integer32 => Kind::Int,
            FieldType::String => Kind::Text,
            FieldType::Integers => Kind::Ints,
            FieldType::Number | FieldType::Pairs | FieldType::Strings => {
                panic!("no column has this type")
            }
        };
        let mut column = Self::new(name, kind, field.absent, field.unit, field.meaning);
        column.defined = Some(match field.aggregation {
            Aggregation::Sum => ", of this row",
            _ if field.kind as u8 != field.column_kind as u8 => "; here a number",
            _ => "",
        });
        column.bloom = Self::is_address(name);
        column
    }

    /// Whether it is an address, which has a bloom filter.
    const fn is_address(name: &str) -> bool {
        let (flows, lines) = (["a_address", "b_address"], ["client", "server"]);
        same(name, flows[0]) || same(name, flows[1]) || same(name, lines[0]) || same(name, lines[1])
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
            let here = column.defined.unwrap_or_default();
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
    while !same(columns[at].name, name) {
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
        A_COUNTRY "a_country",
        A_ASN "a_asn",
        A_ORGANIZATION "a_organization",
        A_NETWORK "a_network",
        A_NAME "a_name",
        B_ADDRESS "b_address",
        B_PORT "b_port",
        AB_PACKETS "ab_packets",
        AB_BYTES "ab_bytes",
        BA_PACKETS "ba_packets",
        BA_BYTES "ba_bytes",
        AB_PACKETS_ONCE "ab_packets_once",
        AB_BYTES_ONCE "ab_bytes_once",
        BA_PACKETS_ONCE "ba_packets_once",
        BA_BYTES_ONCE "ba_bytes_once",
        BEGUN "begun",
        BEGUN_ONCE "begun_once",
        ENDED_ONCE "ended_once",
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
        INTERFACE "interface",
        TUNNEL "tunnel",
        TUNNEL_PARENT "tunnel_parent",
        AB_RETRANSMITTED "tcp_ab_retransmitted",
        BA_RETRANSMITTED "tcp_ba_retransmitted",
    );

    /// Fields of flow records and their columns.
    pub(crate) static DEFINED: super::Placed<
        skua_flow::fields::Flows,
        { super::defined(super::FIELDS) },
    > = super::placed(super::FLOWS, super::FIELDS);

    /// What a row adds to conversations that are counted once.
    pub(crate) const SUMS_ONCE: [usize; 4] = [
        AB_PACKETS_ONCE,
        AB_BYTES_ONCE,
        BA_PACKETS_ONCE,
        BA_BYTES_ONCE,
    ];

    /// Whether they began or ended.
    pub(crate) const EVENTS_ONCE: [usize; 2] = [BEGUN_ONCE, ENDED_ONCE];

    /// What the points of one conversation differ in.
    pub(crate) const OF_POINT: [usize; 5] = [INTERFACE, VLAN, INNER_VLAN, TUNNEL, TUNNEL_PARENT];

    /// Those of `a` and `b`.
    pub(crate) const RETRANSMITTED: [usize; 2] = [AB_RETRANSMITTED, BA_RETRANSMITTED];
}

/// Places of the columns of `services`.
pub(crate) mod service {
    /// Fields of lines and their columns.
    pub(crate) static DEFINED: super::Placed<
        skua_collect::fields::Lines,
        { super::defined(super::LINES) },
    > = super::placed(super::SERVICES, super::LINES);

    places!(
        super::SERVICES;
        WINDOW "window",
        SECONDS "window_length",
        COLLECTOR "collector",
        PROTOCOL "protocol",
        CLIENT "client",
        SERVER "server",
        PORT "port",
        CLIENT_PACKETS "client_packets",
        CLIENT_BYTES "client_bytes",
        SERVER_PACKETS "server_packets",
        SERVER_BYTES "server_bytes",
        CLIENT_RETRANSMITTED "client_retransmitted",
        SERVER_RETRANSMITTED "server_retransmitted",
        BEGUN "begun",
        ENDED "ended",
        RTT_COUNT "rtt_count",
        RTT_SUM "rtt_sum",
        ROUND_TRIP_CLASSES "round_trip_classes",
        ROUND_TRIP_COUNTS "round_trip_counts",
    );
}

use Kind::{Int, Ints, Long, Text, Time};

const NO_IP: &str = "without IP";
const NO_SERVICE: &str = "not known";
const NEVER: &str = "";

const FLOWS: &[Column] = &{
    const DEFINED: [Column; defined(FIELDS)] = columns_of(FIELDS);
    const ALL: usize = OF_FLOWS.len() + DEFINED.len();
    skua_record::joined::<_, ALL>(&[OF_FLOWS, &DEFINED])
};

/// How many columns some fields have.
const fn defined<R: Record>(fields: &[Field<R>]) -> usize {
    let (mut count, mut field) = (0, 0);
    while field < fields.len() {
        count += fields[field].column.of_value().is_some() as usize;
        field += 1;
    }
    count
}

/// The columns of fields.
const fn columns_of<R: Record, const N: usize>(fields: &[Field<R>]) -> [Column; N] {
    let mut all = [OF_FLOWS[0]; N];
    let (mut at, mut field) = (0, 0);
    while field < fields.len() {
        if let Some(name) = fields[field].column.of_value() {
            all[at] = Column::of(name, &fields[field]);
            at += 1;
        }
        field += 1;
    }
    all
}

/// Fields with the places of their columns.
type Placed<R, const N: usize> = [(usize, &'static Field<R>); N];

const fn placed<R: Record, const N: usize>(
    columns: &[Column],
    fields: &'static [Field<R>],
) -> Placed<R, N> {
    let mut all = [(0, &fields[0]); N];
    let (mut at, mut field) = (0, 0);
    while field < fields.len() {
        if let Some(name) = fields[field].column.of_value() {
            all[at] = (place(columns, name), &fields[field]);
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
    Column::new("service", Text, NO_SERVICE, "", "service that is called: the container, else the systemd service, else the process that offers it; else its address and port"),
    Column::new("ab_packets_once", Long, NEVER, "packets", "what the row adds to the most that one point of the host counted of the conversation; 0 but at the point that stands for it: sums of this count each conversation once"),
    Column::new("ab_bytes_once", Long, NEVER, "bytes", "the same for `ab_bytes`"),
    Column::new("ba_packets_once", Long, NEVER, "packets", "the same for `ba_packets`"),
    Column::new("ba_bytes_once", Long, NEVER, "bytes", "the same for `ba_bytes`"),
    Column::new("begun", Int, NEVER, "", "1 in the first row of a conversation at a point, else 0"),
    Column::new("begun_once", Int, NEVER, "", "1 in the first row of a conversation at any point, else 0"),
    Column::new("ended_once", Int, NEVER, "", "1 in the row of a conversation that has ended at all points, else 0"),
    Column::new("link", Text, "no link-layer header", "", "`ethernet`"),
    Column::new("vlan", Int, "without tag", "", "outer VLAN identifier"),
    Column::new("inner_vlan", Int, "without a second tag", "", "inner VLAN identifier"),
    Column::new("sampling", Int, NEVER, "", "one in this many packets was counted; 1: all"),
];

const SERVICES: &[Column] = &{
    const DEFINED: [Column; defined(LINES)] = columns_of(LINES);
    const ALL: usize = OF_SERVICES.len() + DEFINED.len();
    skua_record::joined::<_, ALL>(&[OF_SERVICES, &DEFINED])
};

/// Columns that no field of lines has in this form.
#[rustfmt::skip]
const OF_SERVICES: &[Column] = &[
    Column::new("window_length", Long, NEVER, "ns", "length of the window"),
    Column::new("collector", Text, NEVER, "", "host of the collector"),
    Column::new("protocol", Text, NEVER, "", "as in flow records: `tcp`, `udp`; a number where there is no name"),
    Column::new("round_trip_classes", Ints, NEVER, "µs", "middles of the classes of these times, the least first, as `rtt.classes` in collector.md; add up counts of the same middle"),
    Column::new("round_trip_counts", Ints, NEVER, "", "how many are in each of these classes, in the same order"),
];

#[cfg(test)]
mod tests {
    use skua_record::Name;

    use super::*;

    #[test]
    fn every_field_has_a_column_or_a_reason() {
        let flows = FIELDS.iter().map(|f| (Table::Flows, f.path, f.column));
        let lines = LINES.iter().map(|f| (Table::Services, f.path, f.column));
        for (table, path, column) in flows.chain(lines) {
            match column {
                Name::Undefined => panic!("{path}: define a column, or say why not"),
                Name::Without(why) => assert!(!why.is_empty(), "{path}"),
                Name::Value(name) | Name::Own(name) => {
                    let columns = table.columns().iter();
                    let found: Vec<_> = columns.filter(|column| column.name == name).collect();
                    let [found] = found[..] else {
                        panic!("{name}: {} times", found.len());
                    };
                    let derived = matches!(column, Name::Value(_));
                    assert_eq!(found.defined.is_some(), derived, "{name}");
                }
            }
        }
    }

    #[test]
    fn a_new_field_is_a_new_column() {
        type FlowField = Field<skua_flow::fields::Flows>;
        const NEW: &[FlowField] = &[
            FlowField::new(
                "tcp.new",
                FieldType::Integer32,
                "segments",
                "not TCP",
                "new",
                |_| skua_record::Value::Integer(7),
            )
            .is(Aggregation::Sum)
            .column("tcp_new"),
            FlowField::new("other", FieldType::String, "", "", "elsewhere", |_| {
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
            let value = skua_record::Value::<skua_record::NoOther>::Integer(7);
            crate::rows::put(&mut batch, (row, place), &NEW[0], &value, None);
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
