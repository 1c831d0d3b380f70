//! The keys, and what they mean of a flow record.

use skua_flow::fields::{FIELDS, Field, FieldType};

use crate::{Kind, Unit};

/// What a side of a conversation has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SideField {
    /// IP or MAC.
    Address,
    /// Transport port.
    Port,
    /// Name of the process.
    Process,
    /// Its number.
    Pid,
    /// Its user.
    User,
    /// Its container.
    Container,
    /// Its Kubernetes pod.
    Pod,
    /// Its systemd unit.
    Unit,
    /// Country of its address.
    Country,
    /// Its autonomous system.
    Asn,
    /// Who runs that.
    Organization,
    /// Range of the user with its address.
    Network,
    /// Name by which its address was found.
    Name,
}

/// Which side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Either.
    Any,
    /// The one that spoke first.
    A,
    /// The other one.
    B,
    /// The one that offers a service.
    Server,
    /// The one that calls it.
    Client,
}

/// A key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Key {
    /// Of a side.
    Side(Side, SideField),
    /// Name of the interface.
    Interface,
    /// Network namespace of the interface.
    Namespace,
    /// VLAN identifiers.
    Vlan,
    /// Transport protocol.
    Protocol,
    /// Service that is called.
    Service,
    /// State of TCP, or why the record ended.
    State,
    /// Bits per second.
    Rate,
    /// Bytes of both directions.
    Bytes,
    /// Packets of both directions.
    Packets,
    /// Time of the handshake.
    Rtt,
    /// Segments that were sent again, of both sides.
    Retransmits,
    /// Time from the first packet to the last.
    Age,
    /// A field of the record by its path.
    Field(usize),
}

/// A key as people learn it.
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// The key.
    pub key: Key,
    /// What it means.
    pub meaning: &'static str,
    /// How it is written.
    pub example: &'static str,
}

const fn of(
    name: &'static str,
    key: Key,
    meaning: &'static str,
    example: &'static str,
) -> Described {
    Described {
        name,
        key,
        meaning,
        example,
    }
}

/// The keys that are offered; fields of the record are keys by their paths, too.
pub const KEYS: [Described; 25] = [
    of(
        "process",
        Key::Side(Side::Any, SideField::Process),
        "name of the process that has the socket of either side",
        "process:curl",
    ),
    of(
        "port",
        Key::Side(Side::Any, SideField::Port),
        "port of either side",
        "port:80,443",
    ),
    of(
        "address",
        Key::Side(Side::Any, SideField::Address),
        "address or prefix of either side",
        "address:10.0.0.0/8",
    ),
    of(
        "service",
        Key::Service,
        "service that is called: container, else systemd service, else process",
        "service:postgres",
    ),
    of(
        "protocol",
        Key::Protocol,
        "transport protocol",
        "protocol:udp",
    ),
    of(
        "state",
        Key::State,
        "state of TCP, or why the record ended",
        "state:established",
    ),
    of(
        "rate",
        Key::Rate,
        "bits per second of both directions",
        "rate>1Mbit",
    ),
    of(
        "bytes",
        Key::Bytes,
        "bytes of both directions",
        "bytes>10MB",
    ),
    of(
        "packets",
        Key::Packets,
        "packets of both directions",
        "packets>1000",
    ),
    of("rtt", Key::Rtt, "time of TCP's handshake", "rtt>50ms"),
    of(
        "retransmits",
        Key::Retransmits,
        "TCP segments that were sent again",
        "retransmits>0",
    ),
    of(
        "age",
        Key::Age,
        "time from the first packet to the last",
        "age>1h",
    ),
    of(
        "interface",
        Key::Interface,
        "interface that has seen it",
        "interface:eth*",
    ),
    of(
        "namespace",
        Key::Namespace,
        "network namespace of the interface",
        "namespace:web",
    ),
    of("vlan", Key::Vlan, "VLAN identifier of any tag", "vlan:7"),
    of(
        "container",
        Key::Side(Side::Any, SideField::Container),
        "container of either side",
        "container:web",
    ),
    of(
        "pod",
        Key::Side(Side::Any, SideField::Pod),
        "Kubernetes pod of either side",
        "pod:cart-*",
    ),
    of(
        "unit",
        Key::Side(Side::Any, SideField::Unit),
        "systemd unit of either side",
        "unit:nginx.service",
    ),
    of(
        "user",
        Key::Side(Side::Any, SideField::User),
        "user of either side's process",
        "user:root",
    ),
    of(
        "pid",
        Key::Side(Side::Any, SideField::Pid),
        "process identifier of either side",
        "pid:4711",
    ),
    of(
        "country",
        Key::Side(Side::Any, SideField::Country),
        "country of either side's address, by a file of `networks`",
        "country:DE",
    ),
    of(
        "asn",
        Key::Side(Side::Any, SideField::Asn),
        "autonomous system of either side, by a file of `networks`",
        "asn:3320",
    ),
    of(
        "organization",
        Key::Side(Side::Any, SideField::Organization),
        "who runs the autonomous system of either side",
        "organization:*telekom*",
    ),
    of(
        "network",
        Key::Side(Side::Any, SideField::Network),
        "range of your own with either side's address, by a file of `networks`",
        "network:office",
    ),
    of(
        "name",
        Key::Side(Side::Any, SideField::Name),
        "name by which either side's address was found, by DNS (`app.enabled`)",
        "name:*.example.com",
    ),
];

/// What stands before a key of a side, and which side that is.
pub const SIDES: [(&str, Side, &str); 4] = [
    ("client", Side::Client, "the side that calls a service"),
    ("server", Side::Server, "the side that offers it"),
    ("a", Side::A, "the side that spoke first"),
    ("b", Side::B, "the other one"),
];

impl Key {
    /// The key with a name; `client_process` equals `client.process`.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(known) = KEYS.iter().find(|known| known.name == name) {
            return Some(known.key);
        }
        if let Some((side, own)) = name.split_once(['.', '_'])
            && let Some((_, side, _)) = SIDES.iter().find(|(known, ..)| *known == side)
            && let Some(Self::Side(Side::Any, field)) = Self::named(own)
        {
            return Some(Self::Side(*side, field));
        }
        let same = |field: &Field| {
            let mut chars = field.path.chars().map(|c| if c == '.' { '_' } else { c });
            name.chars()
                .map(|c| if c == '.' { '_' } else { c })
                .eq(chars.by_ref())
        };
        FIELDS.iter().position(same).map(Self::Field)
    }

    /// The field of a key that is one.
    pub fn field(self) -> Option<&'static Field> {
        match self {
            Self::Field(at) => FIELDS.get(at),
            _ => None,
        }
    }

    /// The column that the lake has of it, when it has one.
    pub fn column(self) -> Option<&'static str> {
        self.field()?.column.get()
    }

    /// Kind of its values.
    pub fn kind(self) -> Kind {
        match self {
            Self::Side(_, SideField::Address) => Kind::Address,
            Self::Side(_, SideField::Port | SideField::Pid | SideField::Asn) | Self::Vlan => {
                Kind::Number(Unit::None)
            }
            Self::Rate => Kind::Number(Unit::Rate),
            Self::Bytes => Kind::Number(Unit::Bytes),
            Self::Packets | Self::Retransmits => Kind::Number(Unit::None),
            Self::Rtt | Self::Age => Kind::Number(Unit::Time),
            Self::Side(..)
            | Self::Interface
            | Self::Namespace
            | Self::Protocol
            | Self::Service
            | Self::State => Kind::Text,
            Self::Field(_) => match self.field() {
                Some(field)
                    if matches!(
                        field.kind,
                        FieldType::Integer | FieldType::Integer32 | FieldType::Number
                    ) =>
                {
                    Kind::Number(Unit::of_field(field.unit))
                }
                _ => Kind::Text,
            },
        }
    }

    /// Whether the points of a conversation differ in it: then it selects points.
    pub fn is_of_point(self) -> bool {
        match self {
            Self::Interface | Self::Namespace | Self::Vlan => true,
            Self::Field(_) => self
                .field()
                .is_some_and(|field| matches!(field.path, "ifindex" | "netns" | "vlans" | "id")),
            _ => false,
        }
    }
}

/// The name of a key that looks most like another word, if one does.
pub fn like(word: &str) -> Option<&'static str> {
    let distance = |name: &str| {
        let (a, b): (Vec<char>, Vec<char>) = (word.chars().collect(), name.chars().collect());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, c) in a.iter().enumerate() {
            let mut before = row[0];
            row[0] = i + 1;
            for (j, d) in b.iter().enumerate() {
                let cost = before + usize::from(c != d);
                before = row[j + 1];
                row[j + 1] = cost.min(row[j] + 1).min(row[j + 1] + 1);
            }
        }
        row[b.len()]
    };
    let word_fits = word.len() <= 32;
    let all = KEYS.iter().filter(|_| word_fits).map(|known| known.name);
    let best = all.min_by_key(|name| distance(name))?;
    (distance(best) <= 2 && distance(best) < best.len() && distance(best) < word.len())
        .then_some(best)
}
