//! What of OVN's databases says which ACL a rule is of, and which port a packet comes from.

use super::tables::{ACL, PORT, SWITCH};
use crate::{Database, Row, topology::tid};
use skua_topology::Value;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};
use uuid::Uuid;

/// A MAC address.
pub type Mac = [u8; 6];

/// An ACL.
pub(super) struct Acl {
    /// Its keys in answers.
    pub facts: Vec<(Arc<str>, Value)>,
    /// `from-lport` or `to-lport`.
    pub direction: Box<str>,
    /// `allow`, `allow-related`, `drop`, …
    pub action: Box<str>,
    pub label: u32,
}

/// A logical port that a machine is at.
pub(super) struct Port {
    pub name: Box<str>,
    pub macs: Vec<Mac>,
    pub addresses: Vec<IpAddr>,
    /// MACs of routers at its switch.
    pub gateways: Arc<[Mac]>,
    pub switch: Uuid,
}

/// Of both databases at one time.
#[derive(Default)]
pub(super) struct Index {
    pub acls: Vec<Acl>,
    /// By the first 32 bits of the UUIDs of logical flows.
    by_cookie: HashMap<u32, usize>,
    /// By label and direction; none for labels that several have.
    by_label: HashMap<(u32, Box<str>), Option<usize>>,
    pub ports: Vec<Port>,
    by_address: HashMap<IpAddr, Vec<usize>>,
    by_mac: HashMap<Mac, Vec<usize>>,
}

/// Where it is published.
#[derive(Default)]
pub(super) struct Published(Mutex<Option<Arc<Index>>>);

impl Published {
    pub fn set(&self, index: Index) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(index));
    }

    pub fn get(&self) -> Option<Arc<Index>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A MAC address: six numbers of one or two hexadecimal digits, with colons.
pub fn read_mac(text: &str) -> Option<Mac> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() <= 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

impl Index {
    /// Of the northbound database; `cookies` are those of the rules of ACLs.
    pub fn new(north: &Database, cookies: &HashMap<u32, Uuid>) -> Self {
        let mut index = Self::default();
        let mut places = HashMap::new();
        let owners = owners(north);
        for (id, row) in north.rows(ACL) {
            places.insert(id, index.acls.len());
            index.acls.push(acl(id, row, owners.get(&id)));
        }
        for (cookie, id) in cookies {
            if let Some(place) = places.get(id) {
                index.by_cookie.insert(*cookie, *place);
            }
        }
        for (place, acl) in index.acls.iter().enumerate() {
            if acl.label != 0 {
                let key = (acl.label, acl.direction.clone());
                let there = index.by_label.entry(key).or_insert(Some(place));
                if *there != Some(place) {
                    *there = None;
                }
            }
        }
        let routers = north.rows("Logical_Router_Port");
        let routers =
            routers.filter_map(|(_, row)| Some((row.text("name")?, read_mac(row.text("mac")?)?)));
        let routers: HashMap<&str, Mac> = routers.collect();
        for (switch, row) in north.rows(SWITCH) {
            index.take_ports(north, &routers, switch, row);
        }
        for (place, port) in index.ports.iter().enumerate() {
            for address in &port.addresses {
                index.by_address.entry(*address).or_default().push(place);
            }
            for mac in &port.macs {
                index.by_mac.entry(*mac).or_default().push(place);
            }
        }
        index
    }

    fn take_ports(
        &mut self,
        north: &Database,
        routers: &HashMap<&str, Mac>,
        switch: Uuid,
        row: &Row,
    ) {
        let ports = || row.uuids("ports").filter_map(|id| north.row(PORT, id));
        let gateways = ports().filter_map(|port| {
            let name = port.text_at("options", "router-port")?;
            routers.get(name).copied()
        });
        let gateways: Arc<[Mac]> = gateways.collect();
        for port in ports() {
            // Those of routers, gateways and other networks are no machine's.
            if port.text("type").is_some_and(|kind| !kind.is_empty()) {
                continue;
            }
            let mut known = Port {
                name: port.text("name").unwrap_or_default().into(),
                macs: Vec::new(),
                addresses: Vec::new(),
                gateways: gateways.clone(),
                switch,
            };
            let columns = ["addresses", "dynamic_addresses"];
            let texts = columns.iter().flat_map(|column| port.set(column));
            for word in texts
                .filter_map(|atom| atom.as_str())
                .flat_map(str::split_whitespace)
            {
                known.macs.extend(read_mac(word));
                known.addresses.extend(word.parse::<IpAddr>().ok());
            }
            self.ports.push(known);
        }
    }

    /// The ACL that a rule is of.
    pub fn acl_of_rule(&self, cookie: u32) -> Option<usize> {
        self.by_cookie.get(&cookie).copied()
    }

    /// The only ACL with a label in a direction.
    pub fn acl_of_label(&self, label: u32, direction: &str) -> Option<usize> {
        *self.by_label.get(&(label, direction.into()))?
    }

    pub fn has_labels(&self) -> bool {
        !self.by_label.is_empty()
    }

    /// Ports that may have sent packets with these addresses, by what fits best: both, the IP address, the MAC.
    pub fn ports_of(&self, mac: Option<Mac>, address: IpAddr) -> Vec<&Port> {
        let of = |places: Option<&Vec<usize>>| -> Vec<&Port> {
            let places = places.into_iter().flatten();
            places.filter_map(|place| self.ports.get(*place)).collect()
        };
        let by_address = of(self.by_address.get(&address));
        let both = by_address.iter().copied();
        let both: Vec<_> = both
            .filter(|port| mac.is_some_and(|mac| port.macs.contains(&mac)))
            .collect();
        match (both.is_empty(), by_address.is_empty()) {
            (false, _) => both,
            (true, false) => by_address,
            (true, true) => of(mac.and_then(|mac| self.by_mac.get(&mac))),
        }
    }
}

/// What has each ACL: a switch or a group of ports.
fn owners(north: &Database) -> HashMap<Uuid, Vec<(&'static str, String)>> {
    let mut owners: HashMap<Uuid, Vec<_>> = HashMap::new();
    for (table, kind) in [(SWITCH, "LogicalSwitch"), ("Port_Group", "PortGroup")] {
        for (id, row) in north.rows(table) {
            let name = row.text("name").filter(|name| !name.is_empty());
            let name = name.map_or_else(|| id.to_string(), str::to_owned);
            for acl in row.uuids("acls") {
                owners.entry(acl).or_default().push((kind, name.clone()));
            }
        }
    }
    owners
}

fn acl(id: Uuid, row: &Row, owners: Option<&Vec<(&'static str, String)>>) -> Acl {
    let text = |column: &str| row.text(column).unwrap_or_default();
    let mut facts: Vec<(Arc<str>, Value)> = vec![
        ("ACL".into(), id.to_string().as_str().into()),
        ("TID".into(), (*tid(&["ovn", ACL, &id.to_string()])).into()),
    ];
    for (column, key) in [
        ("name", "Name"),
        ("direction", "Direction"),
        ("match", "Match"),
        ("action", "Action"),
    ] {
        if !text(column).is_empty() {
            facts.push((key.into(), text(column).into()));
        }
    }
    if let Some(priority) = row.int("priority") {
        facts.push(("Priority".into(), Value::Int(priority)));
    }
    let label = row.int("label").and_then(|label| u32::try_from(label).ok());
    let label = label.unwrap_or(0);
    if label != 0 {
        facts.push(("Label".into(), Value::Int(label.into())));
    }
    let mut owners = owners.cloned().unwrap_or_default();
    owners.sort();
    if let Some((kind, _)) = owners.first() {
        let names: Vec<_> = owners.iter().map(|(_, name)| name.as_str()).collect();
        facts.push(("Owner".into(), names.join(", ").as_str().into()));
        facts.push(("OwnerType".into(), (*kind).into()));
    }
    Acl {
        facts,
        direction: text("direction").into(),
        action: text("action").into(),
        label,
    }
}
