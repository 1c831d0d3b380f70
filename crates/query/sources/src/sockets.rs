//! The sockets of nodes and flows, from where all sockets are.

use skua_query::{FlowRecord, FlowTime, SocketSource, SourceError};
use skua_record::{Name, NoOther};
use skua_socket::{
    Owner, SocketLine, SocketRecord,
    fields::{FIELDS, Field},
};
use skua_state::{
    Shared,
    sockets::{self, SocketCopy, Sockets},
};
use skua_topology::{Map, Node, Value, Window};
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

/// Sockets at most that one node or flow shows.
const MOST: usize = 65_536;
/// Packets may come a little before what made them is known, or after its end, ms.
const SLACK: i64 = 2_000;

/// Protocol, local address, the other one.
type Ends = (String, SocketAddr, Option<SocketAddr>);

/// The sockets that the probe knows, for one query.
pub struct KnownSockets {
    shared: Shared,
    /// By their ends, once a flow asks.
    by_ends: OnceLock<HashMap<Ends, Vec<SocketRecord>>>,
}

impl KnownSockets {
    /// Of a probe's state.
    pub fn new(shared: Shared) -> Self {
        Self {
            shared,
            by_ends: OnceLock::new(),
        }
    }

    fn read_all(&self, mut each: impl FnMut(SocketCopy)) {
        let read = |read: &mut dyn FnMut(&Sockets)| {
            if let Some(sockets) = &self.shared.read().sockets {
                read(sockets);
            }
        };
        sockets::read_all(&read, true, |_, socket| each(socket));
    }

    fn index(&self) -> HashMap<Ends, Vec<SocketRecord>> {
        let mut index: HashMap<Ends, Vec<SocketRecord>> = HashMap::new();
        self.read_all(|SocketCopy { record, .. }| {
            let remote = record.peer();
            // A listening socket of TCP has no packets of a conversation.
            if remote.is_some() || record.protocol.name() == "udp" {
                let ends = (protocol(&record), record.local, remote);
                index.entry(ends).or_default().push(record);
            }
        });
        index
    }

    /// The sockets at one end of a conversation.
    fn at(
        &self,
        protocol: &str,
        [local, remote]: [SocketAddr; 2],
        pid: Option<i64>,
        active: (i64, i64),
        sockets: &Sockets,
    ) -> Vec<Value> {
        let index = self.by_ends.get_or_init(|| self.index());
        let unspecified = |address: &str| address.parse::<IpAddr>().ok();
        let was_active = |record: &&SocketRecord| {
            let (begin, end) = span(record);
            begin <= active.1.saturating_add(SLACK) && end >= active.0.saturating_sub(SLACK)
        };
        let is_of = |record: &&SocketRecord| {
            let owner = sockets.owner(record);
            pid.is_some() && owner.map(|owner| i64::from(owner.pid)) == pid
        };
        let found = |local, remote| {
            let ends = (protocol.to_owned(), local, remote);
            let records = index.get(&ends).map_or(&[][..], Vec::as_slice);
            records.iter().filter(was_active).collect::<Vec<_>>()
        };
        let exact = found(local, Some(remote));
        let chosen = if exact.is_empty() {
            // One socket for many peers: only its owner shows that it is this one.
            let mut addresses = vec![local.ip()];
            addresses.extend(["0.0.0.0", "::"].into_iter().filter_map(unspecified));
            let at = |address| found(SocketAddr::new(address, local.port()), None);
            addresses.into_iter().flat_map(at).filter(is_of).collect()
        } else if exact.iter().any(is_of) {
            // Namespaces may have the same addresses.
            exact.into_iter().filter(is_of).collect()
        } else {
            exact
        };
        let chosen: Vec<&SocketRecord> = chosen;
        chosen
            .into_iter()
            .map(|record| shown(&sockets.copy(record)))
            .collect()
    }
}

/// What of a node its sockets have.
enum Of<'a> {
    Namespace(u64),
    Container(&'a str),
    Process(u64),
}

impl<'a> Of<'a> {
    fn node(node: &'a Node) -> Option<Self> {
        let number = |key: &str| u64::try_from(node.metadata.get(key)?.as_int()?).ok();
        match node.metadata.get("Type")?.as_str()? {
            "host" | "netns" => number("NetNsInode").map(Self::Namespace),
            "container" => {
                let about = node.metadata.get("Container")?.as_map()?;
                about.get("ID")?.as_str().map(Self::Container)
            }
            "process" | "vm" | "libvirt" => number("PID").map(Self::Process),
            _ => None,
        }
    }

    fn has(&self, record: &SocketRecord, owner: Option<&Owner>) -> bool {
        match self {
            Self::Namespace(inode) => u64::from(record.netns) == *inode,
            Self::Container(id) => owner
                .and_then(|owner| owner.container.as_ref())
                .is_some_and(|container| container.id == **id),
            Self::Process(pid) => owner.is_some_and(|owner| u64::from(owner.pid) == *pid),
        }
    }
}

impl SocketSource for KnownSockets {
    fn of_node(&self, node: &Node, window: Window) -> Result<Vec<Value>, SourceError> {
        let state = self.shared.read();
        let here = *state.host() == *node.host && state.sockets.is_some();
        drop(state);
        let (Some(of), true) = (Of::node(node), here) else {
            // Who made the node may have said.
            return Ok(match node.metadata.get("Sockets") {
                Some(Value::List(sockets)) => sockets.to_vec(),
                _ => Vec::new(),
            });
        };
        let now = window.live && window.is_moment();
        let in_window = |record: &SocketRecord| {
            let (begin, end) = span(record);
            match now {
                true => record.end.is_none(),
                false => begin <= window.to && end >= window.from,
            }
        };
        let mut found = Vec::new();
        self.read_all(|socket| {
            let (record, owner) = (&socket.record, socket.owner.as_deref());
            if found.len() < MOST && in_window(record) && of.has(record, owner) {
                found.push(shown(&socket));
            }
        });
        Ok(found)
    }

    fn of_flow(&self, flow: &dyn FlowRecord, _: FlowTime) -> Result<Vec<Value>, SourceError> {
        let number = |key: &str| flow.get(key).and_then(|value| value.as_int());
        let text = |key: &str| match flow.get(key) {
            Some(Value::Str(text)) => Some(text),
            _ => None,
        };
        let end = |side: &str| {
            let address: IpAddr = text(&format!("Network.{side}"))?.parse().ok()?;
            let port = u16::try_from(number(&format!("Transport.{side}"))?).ok()?;
            Some(SocketAddr::new(address, port))
        };
        let (Some(a), Some(b), Some(protocol)) = (end("A"), end("B"), text("Transport.Protocol"))
        else {
            return Ok(Vec::new());
        };
        let protocol = protocol.to_ascii_uppercase();
        // Made before the lock, for which it waits itself.
        self.by_ends.get_or_init(|| self.index());
        let state = self.shared.read();
        let Some(sockets) = &state.sockets else {
            return Ok(Vec::new());
        };
        let active = (
            number("Start").unwrap_or(i64::MIN),
            number("Last").unwrap_or(i64::MAX),
        );
        let mut found = self.at(&protocol, [a, b], number("A.PID"), active, sockets);
        found.extend(self.at(&protocol, [b, a], number("B.PID"), active, sockets));
        Ok(found)
    }
}

/// Keys of sockets in metadata: those that Skydive has, which do not change while a socket is open but for its state.
const IN_METADATA: [&str; 9] = [
    "Protocol",
    "State",
    "LocalAddress",
    "LocalPort",
    "RemoteAddress",
    "RemotePort",
    "Name",
    "Process",
    "Pid",
];
/// Sockets at most that metadata has.
const MOST_IN_METADATA: usize = 4_096;

/// The open sockets of a network namespace as metadata of its node, in one order.
pub fn metadata_of(known: &Sockets, netns: u64) -> Value {
    let mut found = Vec::new();
    let read = |read: &mut dyn FnMut(&Sockets)| read(known);
    sockets::read_all(&read, true, |_, socket| {
        let record = &socket.record;
        let open = record.end.is_none() && u64::from(record.netns) == netns;
        if open && found.len() < MOST_IN_METADATA {
            found.push((
                protocol(record),
                record.local,
                record.peer(),
                shown(&socket),
            ));
        }
    });
    found.sort_by(|a, b| (&a.0, a.1, a.2).cmp(&(&b.0, b.1, b.2)));
    let kept = |socket: &Value| {
        let entries = socket.as_map().into_iter().flat_map(Map::iter);
        let entries = entries.filter(|(key, _)| IN_METADATA.contains(&&***key));
        Value::from(Map::new(
            entries.map(|(k, v)| (k.clone(), v.clone())).collect(),
        ))
    };
    found.iter().map(|(.., socket)| kept(socket)).collect()
}

fn protocol(record: &SocketRecord) -> String {
    record.protocol.name().to_ascii_uppercase()
}

fn ms(ns: u64) -> i64 {
    i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX)
}

/// From when to when there was a socket, ms since the Unix epoch.
fn span(record: &SocketRecord) -> (i64, i64) {
    let begin = match record.start_ns {
        0 => i64::MIN,
        start => ms(start),
    };
    let end = match record.end {
        None => i64::MAX,
        Some(_) => ms(record.now_ns),
    };
    (begin, end)
}

/// A socket as queries show it, in Skydive's names where it has one: [`FIELDS`] with a key.
fn shown(socket: &SocketCopy) -> Value {
    let line = socket.line();
    let mut entries: Vec<(Arc<str>, Value)> = Vec::with_capacity(FIELDS.len());
    for field in FIELDS {
        let value = match field.key {
            Name::Value(_) => plain(field, (field.value)(&line)),
            Name::Own(key) => own(key, field, &line),
            Name::Undefined | Name::Without(_) => None,
        };
        if let (Some(key), Some(value)) = (field.key.get(), value) {
            entries.push((key.into(), value));
        }
    }
    if let Some(uid) = line.owner.uid {
        entries.push(("UID".into(), int(uid.into())));
    }
    Value::Map(Map::new(entries))
}

fn int(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A value as its definition has it; times are ms since the Unix epoch.
fn plain(field: &Field, value: skua_record::Value<'_, NoOther>) -> Option<Value> {
    Some(match value {
        skua_record::Value::Absent => return None,
        skua_record::Value::Integer(number) if field.unit == "µs" => {
            int(number.saturating_mul(1_000))
        }
        skua_record::Value::Integer(number) => int(number),
        skua_record::Value::Time(ns) => Value::Int(ms(ns)),
        shown => shown.to_string().as_str().into(),
    })
}

/// A value that has another form in queries.
fn own(key: &str, field: &Field, line: &SocketLine<'_>) -> Option<Value> {
    let record = line.record;
    // As the system's tables have it: those that wait have no other end.
    let remote = || {
        record.peer().unwrap_or(match record.local {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
        })
    };
    match key {
        "Protocol" => Some(protocol(record).as_str().into()),
        "State" => {
            let state = record.state.name().to_ascii_uppercase().replace('-', "_");
            Some(state.as_str().into())
        }
        "RemoteAddress" => Some(remote().ip().to_string().as_str().into()),
        "RemotePort" => Some(int(remote().port().into())),
        "Process" if line.executable.is_empty() => {
            let process = line.owner.process;
            (!process.is_empty()).then(|| process.into())
        }
        "Last" if record.end.is_none() => None,
        // Times are in ns.
        _ => plain(field, (field.value)(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_sockets_has_a_key_of_its_own() {
        let mut known = std::collections::HashSet::from(["UID"]);
        for field in FIELDS {
            match field.key {
                Name::Value(key) | Name::Own(key) => assert!(known.insert(key), "{key}"),
                Name::Without(why) => assert!(!why.is_empty(), "{}", field.path),
                Name::Undefined => panic!("{}: define a key, or say why not", field.path),
            }
        }
    }
}
