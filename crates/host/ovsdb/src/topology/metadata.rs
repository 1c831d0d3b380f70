//! From rows to metadata, with Skydive's names where it has them.

use super::{meter::Meter, names};
use crate::{Atom, Row};
use skua_topology::{Map, Value};
use std::sync::Arc;
use uuid::Uuid;

/// Whether what is shown is known to be so now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Truth {
    Connected,
    Disconnected,
}

impl Truth {
    fn value(self) -> Value {
        match self {
            Self::Connected => "connected".into(),
            Self::Disconnected => "disconnected".into(),
        }
    }
}

/// Metadata in the making: what has no value is left out.
#[derive(Default)]
pub(super) struct Builder(Vec<(Arc<str>, Value)>);

impl Builder {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    fn some(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Columns under names of their own.
    fn texts(&mut self, row: &Row, names: &[(&str, &str)]) {
        for (name, column) in names {
            let text = row.text(column).filter(|text| !text.is_empty());
            self.some(name, text);
        }
    }

    fn ints(&mut self, row: &Row, names: &[(&str, &str)]) {
        for (name, column) in names {
            self.some(name, row.int(column));
        }
    }

    fn truths(&mut self, row: &Row, names: &[(&str, &str)]) {
        for (name, column) in names {
            self.some(name, row.truth(column));
        }
    }

    fn maps(&mut self, row: &Row, names: &[(&str, &str)]) {
        for (name, column) in names {
            let pairs = row.map(column);
            if !pairs.is_empty() {
                let entries = pairs.iter().map(|(key, value)| (text(key), plain(value)));
                self.set(name, Map::new(entries.collect()));
            }
        }
    }

    fn list(&mut self, row: &Row, name: &str, column: &str) {
        let mut items: Vec<_> = row.set(column).iter().collect();
        if !items.is_empty() {
            // A set has no order, and a list that changes its own would be a change.
            items.sort_by_key(|atom| (atom.as_int(), text(atom)));
            self.set(name, items.into_iter().map(plain).collect::<Value>());
        }
    }

    pub fn map(self) -> Map {
        Map::new(self.0)
    }
}

fn text(atom: &Atom) -> Arc<str> {
    match atom {
        Atom::Str(text) => text.clone(),
        Atom::Int(number) => number.to_string().into(),
        Atom::Real(number) => number.to_string().into(),
        Atom::Bool(truth) => truth.to_string().into(),
        Atom::Uuid(id) => id.to_string().into(),
    }
}

fn plain(atom: &Atom) -> Value {
    match atom {
        Atom::Int(number) => Value::Int(*number),
        Atom::Real(number) => Value::Float(*number),
        Atom::Bool(truth) => Value::Bool(*truth),
        Atom::Str(_) | Atom::Uuid(_) => Value::Str(text(atom)),
    }
}

fn identity(builder: &mut Builder, host: &str, id: Uuid, kind: &str, name: &str) {
    builder.set("Name", name);
    builder.set("Type", kind);
    builder.set("UUID", &*id.to_string());
    builder.set("TID", &*names::row_tid(host, id, kind));
}

fn begin_ovs(id: Uuid, truth: Truth) -> Builder {
    let mut ovs = Builder::default();
    ovs.set("DBID", &*id.to_string());
    ovs.set("State", truth.value());
    ovs
}

/// What the host's node gets under `Ovs`.
pub(super) fn system(row: &Row, truth: Truth) -> Map {
    let mut ovs = Builder::default();
    ovs.set("State", truth.value());
    ovs.texts(
        row,
        &[
            ("Version", "ovs_version"),
            ("DBVersion", "db_version"),
            ("SystemType", "system_type"),
            ("SystemVersion", "system_version"),
        ],
    );
    ovs.maps(
        row,
        &[("ExtID", "external_ids"), ("OtherConfig", "other_config")],
    );
    ovs.map()
}

/// Metadata of a bridge.
pub(super) fn bridge(host: &str, id: Uuid, row: &Row, truth: Truth) -> Map {
    let mut node = Builder::default();
    identity(
        &mut node,
        host,
        id,
        "ovsbridge",
        row.text("name").unwrap_or(""),
    );
    node.maps(row, &[("ExtID", "external_ids")]);
    let mut ovs = begin_ovs(id, truth);
    ovs.texts(
        row,
        &[
            ("DatapathType", "datapath_type"),
            ("DatapathID", "datapath_id"),
            ("DatapathVersion", "datapath_version"),
            ("FailMode", "fail_mode"),
        ],
    );
    ovs.truths(
        row,
        &[
            ("STP", "stp_enable"),
            ("RSTP", "rstp_enable"),
            ("McastSnooping", "mcast_snooping_enable"),
        ],
    );
    ovs.list(row, "Protocols", "protocols");
    ovs.maps(row, &[("OtherConfig", "other_config")]);
    node.set("Ovs", ovs.map());
    node.map()
}

/// Metadata of a port.
pub(super) fn port(host: &str, id: Uuid, row: &Row, truth: Truth) -> Map {
    let mut node = Builder::default();
    identity(
        &mut node,
        host,
        id,
        "ovsport",
        row.text("name").unwrap_or(""),
    );
    node.maps(row, &[("ExtID", "external_ids")]);
    node.ints(row, &[("Vlans", "tag")]);
    node.texts(
        row,
        &[
            ("VlanMode", "vlan_mode"),
            ("BondMode", "bond_mode"),
            ("LACP", "lacp"),
        ],
    );
    node.list(row, "Trunks", "trunks");
    node.list(row, "CVlans", "cvlans");
    let mut ovs = begin_ovs(id, truth);
    ovs.texts(row, &[("BondActive", "bond_active_slave")]);
    ovs.maps(row, &[("OtherConfig", "other_config")]);
    node.set("Ovs", ovs.map());
    node.map()
}

/// What an interface has whether its node is ours or another's. [`INTERFACE_KEYS`] are its names.
pub(super) fn interface(id: Uuid, row: &Row, truth: Truth, meter: Option<&Meter>) -> Map {
    let mut node = Builder::default();
    node.set("UUID", &*id.to_string());
    node.ints(row, &[("OfPort", "ofport")]);
    node.maps(row, &[("ExtID", "external_ids")]);
    for (name, column, key) in [
        ("LocalIP", "options", "local_ip"),
        ("RemoteIP", "options", "remote_ip"),
        ("TunEgressIface", "status", "tunnel_egress_iface"),
        (
            "TunEgressIfaceCarrier",
            "status",
            "tunnel_egress_iface_carrier",
        ),
    ] {
        node.some(name, row.text_at(column, key));
    }
    let mut ovs = begin_ovs(id, truth);
    ovs.texts(
        row,
        &[
            ("Type", "type"),
            ("Error", "error"),
            ("MACInUse", "mac_in_use"),
            ("LinkState", "link_state"),
            ("AdminState", "admin_state"),
            ("Duplex", "duplex"),
        ],
    );
    ovs.ints(
        row,
        &[
            ("LinkSpeed", "link_speed"),
            ("MTU", "mtu"),
            ("IfIndex", "ifindex"),
            ("LinkResets", "link_resets"),
        ],
    );
    ovs.truths(row, &[("LACPCurrent", "lacp_current")]);
    ovs.maps(
        row,
        &[
            ("Options", "options"),
            ("OtherConfig", "other_config"),
            ("Status", "status"),
        ],
    );
    if let Some(meter) = meter {
        ovs.set("Metric", meter.metric());
        ovs.some("LastUpdateMetric", meter.last_update());
    }
    node.set("Ovs", ovs.map());
    node.map()
}

/// Names of what [`interface`] gives.
pub(super) const INTERFACE_KEYS: &[&str] = &[
    "UUID",
    "OfPort",
    "ExtID",
    "LocalIP",
    "RemoteIP",
    "TunEgressIface",
    "TunEgressIfaceCarrier",
    "Ovs",
];

/// Name of the type of an interface that has none in the database.
const SYSTEM: &str = "system";

/// An interface's type.
pub(super) fn interface_type(row: &Row) -> &str {
    match row.text("type") {
        None | Some("") => SYSTEM,
        Some(kind) => kind,
    }
}

/// Metadata of an interface that the kernel does not have: `common` and what else the database knows.
pub(super) fn own_interface(bridge_tid: &str, row: &Row, common: Map) -> Map {
    let (kind, name) = (interface_type(row), row.text("name").unwrap_or(""));
    let mut node = Builder(common.iter().map(|(k, v)| (k.clone(), v.clone())).collect());
    node.set("Name", name);
    node.set("Type", kind);
    node.set("TID", &*names::tid(&[bridge_tid, name, kind]));
    let driver = row.text_at("status", "driver_name");
    node.set("Driver", driver.unwrap_or("openvswitch"));
    node.texts(row, &[("MAC", "mac_in_use")]);
    node.ints(row, &[("MTU", "mtu")]);
    node.some("IfIndex", row.int("ifindex").filter(|index| *index > 0));
    let states = (row.text("admin_state"), row.text("link_state"));
    node.some(
        "State",
        match states {
            (Some("up"), Some("up")) => Some("UP"),
            (None, None) => None,
            _ => Some("DOWN"),
        },
    );
    node.map()
}
