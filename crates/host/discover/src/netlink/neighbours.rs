//! Neighbours of an interface, or its forwarding table, in bounds.

use super::names;
use skua_link::Neighbour;
use skua_topology::{Map, Value};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

// linux/neighbour.h
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_FAILED: u16 = 0x20;
const NUD_NOARP: u16 = 0x40;
const NTF_SELF: u8 = 0x02;
const NTF_PROXY: u8 = 0x08;

/// What entries are distinguished by.
type Key = (Option<IpAddr>, Vec<u8>, Option<u16>, Option<u32>, bool);

fn key(neighbour: &Neighbour) -> Key {
    if neighbour.forwarding {
        (
            neighbour.ip,
            neighbour.mac.clone(),
            neighbour.vlan,
            neighbour.vni,
            neighbour.flags & NTF_SELF != 0,
        )
    } else {
        (neighbour.ip, Vec::new(), None, None, false)
    }
}

/// How much a notification changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changed {
    /// Nothing.
    No,
    /// Only its state, which changes while it is in use.
    State,
    /// An entry was added, removed, failed, or has another address.
    Entry,
}

/// The entries.
#[derive(Debug)]
pub(super) struct Neighbours {
    entries: BTreeMap<Key, Neighbour>,
    most: usize,
    omitted: u64,
    value: Option<Value>,
}

impl Neighbours {
    /// An empty list of at most so many.
    pub fn new(most: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            most,
            omitted: 0,
            value: None,
        }
    }

    /// How many did not fit, about: those that were updated meanwhile count again.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Whether what did not fit would fit now.
    pub fn wants_listing(&self) -> bool {
        self.omitted > 0 && self.entries.len() < self.most / 2
    }

    /// Adds an entry; the second value says that the limit was reached.
    pub fn set(&mut self, neighbour: Neighbour) -> (Changed, bool) {
        if !is_announced(&neighbour) {
            return (Changed::No, false);
        }
        let key = key(&neighbour);
        let full = self.entries.len() >= self.most;
        let changed = match self.entries.get_mut(&key) {
            Some(known) if *known == neighbour => Changed::No,
            Some(known) => {
                let failed = |neighbour: &Neighbour| neighbour.state & NUD_FAILED != 0;
                let same = failed(known) == failed(&neighbour)
                    && known.mac == neighbour.mac
                    && known.flags == neighbour.flags;
                *known = neighbour;
                if same { Changed::State } else { Changed::Entry }
            }
            None if full => {
                self.omitted += 1;
                return (Changed::Entry, true);
            }
            None => {
                self.entries.insert(key, neighbour);
                Changed::Entry
            }
        };
        if changed != Changed::No {
            self.value = None;
        }
        (changed, false)
    }

    /// Takes an entry away.
    pub fn remove(&mut self, neighbour: &Neighbour) -> Changed {
        if self.entries.remove(&key(neighbour)).is_some() {
            self.value = None;
            return Changed::Entry;
        }
        if self.omitted > 0 && is_announced(neighbour) {
            self.omitted -= 1;
            return Changed::Entry;
        }
        Changed::No
    }

    /// The entries as metadata, none when there are none.
    pub fn value(&mut self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        let entries = &self.entries;
        let value = self
            .value
            .get_or_insert_with(|| entries.values().map(metadata).collect());
        Some(value.clone())
    }
}

/// The kernel does not announce some entries when they come. In the neighbour table: those that it makes
/// for addresses that need no resolution, and those that it has just begun to resolve. In the forwarding
/// table: what an interface that is no bridge and no tunnel receives in addition to its own address.
fn is_announced(neighbour: &Neighbour) -> bool {
    if neighbour.forwarding {
        let tunnel = neighbour.ip.is_some() || neighbour.vni.is_some();
        return tunnel || neighbour.flags & NTF_SELF == 0;
    }
    neighbour.state & (NUD_NOARP | NUD_INCOMPLETE) == 0
        && neighbour.state != 0
        && neighbour.flags & NTF_PROXY == 0
}

fn metadata(neighbour: &Neighbour) -> Value {
    let mut entries: Vec<(Arc<str>, Value)> = vec![
        ("IfIndex".into(), Value::Int(neighbour.ifindex.into())),
        ("State".into(), names::neighbour_state(neighbour.state)),
    ];
    let mut add = |key: &str, value: Option<Value>| {
        entries.extend(value.map(|value| (Arc::from(key), value)));
    };
    let mac = (!neighbour.mac.is_empty()).then(|| names::mac(&neighbour.mac));
    add("MAC", mac.map(|mac| mac.as_str().into()));
    add("IP", neighbour.ip.map(|ip| ip.to_string().as_str().into()));
    let flags = (neighbour.flags != 0).then(|| names::neighbour_flags(neighbour.flags));
    add("Flags", flags);
    add("Vlan", neighbour.vlan.map(|vlan| Value::Int(vlan.into())));
    add("VNI", neighbour.vni.map(|vni| Value::Int(vni.into())));
    Map::new(entries).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(last: u8, state: u16) -> Neighbour {
        Neighbour {
            ifindex: 2,
            forwarding: false,
            ip: Some([10, 0, 0, last].into()),
            mac: vec![2, 0, 0, 0, 0, last],
            state,
            flags: 0,
            vlan: None,
            vni: None,
            master: None,
        }
    }

    #[test]
    fn only_what_is_new_is_an_entry() {
        let mut table = Neighbours::new(10);
        let (reachable, stale) = (0x02, 0x04);
        assert_eq!(table.set(neighbour(1, reachable)).0, Changed::Entry);
        assert_eq!(table.set(neighbour(1, reachable)).0, Changed::No);
        assert_eq!(table.set(neighbour(1, stale)).0, Changed::State);
        assert_eq!(table.set(neighbour(1, NUD_FAILED)).0, Changed::Entry);
        assert_eq!(table.set(neighbour(2, NUD_INCOMPLETE)).0, Changed::No);
        assert_eq!(table.set(neighbour(3, NUD_NOARP)).0, Changed::No);
        let list = table.value().unwrap();
        assert_eq!(
            serde_json::to_string(&list).unwrap(),
            r#"[{"IP":"10.0.0.1","IfIndex":2,"MAC":"02:00:00:00:00:01","State":["NUD_FAILED"]}]"#
        );
        assert_eq!(table.remove(&neighbour(1, 0)), Changed::Entry);
        assert_eq!(table.remove(&neighbour(1, 0)), Changed::No);
        assert_eq!(table.value(), None);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut table = Neighbours::new(4);
        for last in 0..10 {
            assert_eq!(table.set(neighbour(last, 0x02)).1, last >= 4);
        }
        assert_eq!(table.omitted(), 6);
        table.remove(&neighbour(9, 0x02));
        assert_eq!((table.omitted(), table.wants_listing()), (5, false));
        for last in 0..3 {
            table.remove(&neighbour(last, 0x02));
        }
        assert!(table.wants_listing());
    }
}
