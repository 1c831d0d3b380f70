//! Which tables of OVN become nodes, and how their rows refer to each other. Names are Skydive's where it has them.

use crate::{Atom, Datum, Monitored, Row};
use skua_topology::{Map, Value};
use uuid::Uuid;

/// A table whose rows are nodes: its name, and its columns with their keys under `OVN`.
pub(super) struct Table {
    pub name: &'static str,
    /// `Type` of the nodes.
    pub kind: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

/// A reference that becomes an edge: from rows of a table, by a column, to rows of another.
pub(super) struct Reference {
    pub table: &'static str,
    pub column: By,
    pub target: &'static str,
    pub relation: &'static str,
}

pub(super) enum By {
    /// The column has the rows.
    Rows(&'static str),
    /// The column has the target's text in a column.
    Text(&'static str, &'static str),
    /// A key of the column's map has the target's name.
    Option(&'static str, &'static str),
}

const OVN: &str = "ovn";
pub(super) const SWITCH: &str = "Logical_Switch";
pub(super) const PORT: &str = "Logical_Switch_Port";
pub(super) const ACL: &str = "ACL";
pub(super) const CHASSIS: &str = "Chassis";
pub(super) const BINDING: &str = "Port_Binding";
/// Not nodes: what tells the ACL of a rule.
pub(super) const FLOW: &str = "Logical_Flow";

#[rustfmt::skip]
pub(super) const NORTH: &[Table] = &[
    Table { name: SWITCH, kind: "LogicalSwitch", columns: &[
        ("name", "Name"), ("ports", "Ports"), ("acls", "ACLs"), ("qos_rules", "QOSRules"), ("load_balancer", "LoadBalancer"),
        ("dns_records", "DNSRecords"), ("forwarding_groups", "ForwardingGroups"), ("other_config", "OtherConfig"),
        ("external_ids", "ExternalIDs"),
    ] },
    Table { name: PORT, kind: "LogicalSwitchPort", columns: &[
        ("name", "Name"), ("type", "Type"), ("addresses", "Addresses"), ("dynamic_addresses", "DynamicAddresses"),
        ("port_security", "PortSecurity"), ("up", "Up"), ("enabled", "Enabled"), ("parent_name", "ParentName"), ("tag", "Tag"),
        ("tag_request", "TagRequest"), ("dhcpv4_options", "Dhcpv4Options"), ("dhcpv6_options", "Dhcpv6Options"),
        ("options", "Options"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "Logical_Router", kind: "LogicalRouter", columns: &[
        ("name", "Name"), ("ports", "Ports"), ("static_routes", "StaticRoutes"), ("policies", "Policies"), ("enabled", "Enabled"),
        ("nat", "Nat"), ("load_balancer", "LoadBalancer"), ("options", "Options"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "Logical_Router_Port", kind: "LogicalRouterPort", columns: &[
        ("name", "Name"), ("mac", "MAC"), ("networks", "Networks"), ("peer", "Peer"), ("enabled", "Enabled"),
        ("gateway_chassis", "GatewayChassis"), ("ipv6_prefix", "Ipv6Prefix"), ("ipv6_ra_configs", "Ipv6RaConfigs"),
        ("options", "Options"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: ACL, kind: "ACL", columns: &[
        ("name", "Name"), ("priority", "Priority"), ("direction", "Direction"), ("match", "Match"), ("action", "Action"),
        ("log", "Log"), ("severity", "Severity"), ("meter", "Meter"), ("label", "Label"), ("options", "Options"),
        ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "Port_Group", kind: "PortGroup", columns: &[
        ("name", "Name"), ("ports", "Ports"), ("acls", "ACLs"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "Load_Balancer", kind: "LoadBalancer", columns: &[
        ("name", "Name"), ("vips", "Vips"), ("protocol", "Protocol"), ("ip_port_mappings", "IPPortMappings"),
        ("selection_fields", "SelectionFields"), ("options", "Options"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "NAT", kind: "NAT", columns: &[
        ("type", "Type"), ("external_ip", "ExternalIP"), ("external_mac", "ExternalMAC"), ("logical_ip", "LogicalIP"),
        ("logical_port", "LogicalPort"), ("external_port_range", "ExternalPortRange"), ("options", "Options"),
        ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "QoS", kind: "QoS", columns: &[
        ("priority", "Priority"), ("direction", "Direction"), ("match", "Match"), ("action", "Action"),
        ("bandwidth", "Bandwidth"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "Logical_Router_Static_Route", kind: "LogicalRouterStaticRoute", columns: &[
        ("ip_prefix", "IPPrefix"), ("nexthop", "Nexthop"), ("output_port", "OutputPort"), ("policy", "Policy"),
        ("options", "Options"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "Logical_Router_Policy", kind: "LogicalRouterPolicy", columns: &[
        ("priority", "Priority"), ("match", "Match"), ("action", "Action"), ("nexthop", "Nexthop"), ("options", "Options"),
        ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "DHCP_Options", kind: "DHCPOptions", columns: &[
        ("cidr", "Cidr"), ("options", "Options"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: "Address_Set", kind: "AddressSet", columns: &[
        ("name", "Name"), ("addresses", "Addresses"), ("external_ids", "ExternalIDs"),
    ] },
];

#[rustfmt::skip]
pub(super) const SOUTH: &[Table] = &[
    Table { name: CHASSIS, kind: "Chassis", columns: &[
        ("name", "Name"), ("hostname", "Hostname"), ("other_config", "OtherConfig"), ("external_ids", "ExternalIDs"),
    ] },
    Table { name: BINDING, kind: "PortBinding", columns: &[
        ("logical_port", "LogicalPort"), ("type", "Type"), ("tunnel_key", "TunnelKey"), ("mac", "MAC"), ("up", "Up"),
        ("chassis", "Chassis"), ("nat_addresses", "NatAddresses"), ("options", "Options"), ("external_ids", "ExternalIDs"),
    ] },
];

const fn rows(table: &'static str, column: &'static str, target: &'static str) -> Reference {
    Reference {
        table,
        column: By::Rows(column),
        target,
        relation: OVN,
    }
}

pub(super) const REFERENCES: &[Reference] = &[
    rows(SWITCH, "ports", PORT),
    rows(SWITCH, "acls", ACL),
    rows(SWITCH, "qos_rules", "QoS"),
    rows(SWITCH, "load_balancer", "Load_Balancer"),
    rows("Logical_Router", "ports", "Logical_Router_Port"),
    rows(
        "Logical_Router",
        "static_routes",
        "Logical_Router_Static_Route",
    ),
    rows("Logical_Router", "policies", "Logical_Router_Policy"),
    rows("Logical_Router", "nat", "NAT"),
    rows("Logical_Router", "load_balancer", "Load_Balancer"),
    rows("Port_Group", "ports", PORT),
    rows("Port_Group", "acls", ACL),
    rows(PORT, "dhcpv4_options", "DHCP_Options"),
    rows(PORT, "dhcpv6_options", "DHCP_Options"),
    Reference {
        table: PORT,
        column: By::Option("options", "router-port"),
        target: "Logical_Router_Port",
        relation: "layer2",
    },
    Reference {
        table: "Logical_Router_Port",
        column: By::Text("peer", "name"),
        target: "Logical_Router_Port",
        relation: "layer2",
    },
    Reference {
        table: PORT,
        column: By::Text("name", "logical_port"),
        target: BINDING,
        relation: OVN,
    },
    rows(BINDING, "chassis", CHASSIS),
];

/// The monitored tables and columns of a database.
pub(super) fn monitored(tables: &'static [Table], flows: bool) -> Vec<Monitored> {
    let monitored = tables.iter().map(|table| Monitored {
        table: table.name,
        columns: table.columns.iter().map(|(column, _)| *column).collect(),
    });
    let flows = flows.then(|| Monitored::new(FLOW, &["external_ids"]));
    monitored.chain(flows).collect()
}

fn text(atom: &Atom) -> String {
    match atom {
        Atom::Str(text) => text.to_string(),
        Atom::Int(number) => number.to_string(),
        Atom::Real(number) => number.to_string(),
        Atom::Bool(truth) => truth.to_string(),
        Atom::Uuid(id) => id.to_string(),
    }
}

fn plain(atom: &Atom) -> Value {
    match atom {
        Atom::Int(number) => Value::Int(*number),
        Atom::Real(number) => Value::Float(*number),
        Atom::Bool(truth) => Value::Bool(*truth),
        other => text(other).as_str().into(),
    }
}

/// Columns that have a list whatever its length.
const LISTS: [&str; 8] = [
    "ports",
    "acls",
    "addresses",
    "networks",
    "port_security",
    "nat",
    "load_balancer",
    "mac",
];

fn value(column: &str, datum: &Datum) -> Option<Value> {
    match datum {
        Datum::Map(pairs) if pairs.is_empty() => None,
        Datum::Map(pairs) => {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(key, value)| (text(key).as_str().into(), plain(value)));
            Some(Map::new(pairs.collect()).into())
        }
        Datum::Set(atoms) => match &atoms[..] {
            [] => None,
            [Atom::Str(text)] if text.is_empty() => None,
            [one] if !LISTS.contains(&column) || column == "mac" && text(one).len() == 17 => {
                Some(plain(one))
            }
            _ => {
                // A set has no order, and a list that changes its own would be a change.
                let mut atoms: Vec<_> = atoms.iter().collect();
                atoms.sort_by_key(|atom| text(atom));
                Some(atoms.into_iter().map(plain).collect())
            }
        },
    }
}

impl Table {
    /// Metadata of a row, with its name.
    pub fn metadata(&self, tid: &str, id: Uuid, row: &Row) -> Map {
        let id = id.to_string();
        let name = ["name", "logical_port"]
            .iter()
            .find_map(|column| row.text(column));
        let name = name.filter(|name| !name.is_empty()).unwrap_or(&id);
        let mut ovn = vec![("UUID".into(), Value::from(&*id))];
        for (column, key) in self.columns {
            if let Some(value) = row.get(column).and_then(|datum| value(column, datum)) {
                ovn.push(((*key).into(), value.clone()));
                // As in Skydive, where the first is for its own use.
                if matches!(*column, "options" | "external_ids") {
                    ovn.push((format!("{key}Meta").as_str().into(), value));
                }
            }
        }
        Map::from([
            ("Type", self.kind.into()),
            ("Manager", "ovn".into()),
            ("Name", name.into()),
            ("UUID", (&*id).into()),
            ("TID", tid.into()),
            ("OVN", Map::new(ovn).into()),
        ])
    }
}
