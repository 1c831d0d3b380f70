//! What only some kinds of interfaces have (IFLA_INFO_DATA, IFLA_INFO_SLAVE_DATA of linux/if_link.h).

use super::names;
use skua_link::{
    Interface, attribute, attributes, read_ip, read_u8, read_u16, read_u16_be, read_u32,
    read_u32_be,
};
use skua_topology::{Map, Value};
use std::sync::Arc;

/// Keys that this module may write.
pub(super) const KEYS: &[&str] = &[
    "Bond",
    "BondMode",
    "BondSlave",
    "Bridge",
    "GENEVE",
    "GRE",
    "IPVLAN",
    "Macvlan",
    "Tunnel",
    "TunTap",
    "VRF",
    "VXLAN",
    "Vlan",
];

type Entries = Vec<(Arc<str>, Value)>;

fn int(number: impl Into<i64>) -> Value {
    Value::Int(number.into())
}

fn ip(value: &[u8]) -> Option<Value> {
    let ip = read_ip(value).filter(|ip| !ip.is_unspecified())?;
    Some(ip.to_string().as_str().into())
}

fn truth(value: &[u8]) -> Option<Value> {
    Some((read_u8(value)? != 0).into())
}

fn word(names: &[&'static str], number: Option<usize>) -> Option<Value> {
    Some((*names.get(number?)?).into())
}

/// The attributes that `read` knows.
fn entries(data: &[u8], read: impl Fn(u16, &[u8]) -> Option<(&'static str, Value)>) -> Entries {
    let known = attributes(data).filter_map(|(kind, value)| read(kind, value));
    known.map(|(name, value)| (name.into(), value)).collect()
}

/// Adds what is special of the kind of an interface.
pub(super) fn add(interface: &Interface, out: &mut Entries) {
    let data = &interface.data;
    let mut nest = |key: &str, inner: Entries| {
        if !inner.is_empty() {
            out.push((key.into(), Map::new(inner).into()));
        }
    };
    match interface.link.kind.as_deref() {
        Some("vxlan") => nest("VXLAN", vxlan(data)),
        Some("geneve") => nest("GENEVE", geneve(data)),
        Some("gre" | "gretap" | "ip6gre" | "ip6gretap" | "erspan" | "ip6erspan") => {
            nest("GRE", gre(data));
        }
        Some("ipip" | "sit" | "ip6tnl") => nest("Tunnel", ends(data, 2, 3)),
        Some("vti" | "vti6") => nest("Tunnel", ends(data, 4, 5)),
        Some("macvlan" | "macvtap") => nest("Macvlan", macvlan(data)),
        Some("ipvlan" | "ipvtap") => nest("IPVLAN", ipvlan(data)),
        Some("tun") => nest("TunTap", tuntap(data)),
        Some("bridge") => nest("Bridge", bridge(data)),
        Some("vrf") => nest(
            "VRF",
            entries(data, |kind, value| match kind {
                1 => Some(("Table", int(read_u32(value)?))),
                _ => None,
            }),
        ),
        Some("vlan") => out.extend(vlan(data)),
        Some("bond") => {
            nest("Bond", bond(data));
            out.extend(bond_mode(data));
        }
        _ => {}
    }
    if interface.port_kind == "bond" {
        let port = bond_port(&interface.port_data);
        out.push(("BondSlave".into(), Map::new(port).into()));
    }
}

/// Index of the interface that this one is on, or of the other end. VXLAN says it only among the
/// attributes of its kind.
pub(super) fn lower(interface: &Interface) -> Option<u32> {
    const IFLA_VXLAN_LINK: u16 = 3;
    let of_kind = || match interface.link.kind.as_deref() {
        Some("vxlan") => attribute(&interface.data, IFLA_VXLAN_LINK).and_then(read_u32),
        _ => None,
    };
    interface
        .link
        .link
        .or_else(of_kind)
        .filter(|index| *index != 0)
}

fn vxlan(data: &[u8]) -> Entries {
    entries(data, |kind, value| {
        Some(match kind {
            1 => ("VNI", int(read_u32(value)?)),
            2 | 16 => ("Remote", ip(value)?),
            4 | 17 => ("Local", ip(value)?),
            7 => ("Learning", truth(value)?),
            15 => ("Port", int(read_u16_be(value)?)),
            25 => ("External", truth(value)?),
            _ => return None,
        })
    })
}

fn geneve(data: &[u8]) -> Entries {
    entries(data, |kind, value| {
        Some(match kind {
            1 => ("VNI", int(read_u32(value)?)),
            2 | 7 => ("Remote", ip(value)?),
            5 => ("Port", int(read_u16_be(value)?)),
            // Its presence says so.
            6 => ("External", true.into()),
            _ => return None,
        })
    })
}

fn gre(data: &[u8]) -> Entries {
    entries(data, |kind, value| {
        let key = || read_u32_be(value).filter(|key| *key != 0).map(int);
        Some(match kind {
            4 => ("InputKey", key()?),
            5 => ("OutputKey", key()?),
            6 => ("Local", ip(value)?),
            7 => ("Remote", ip(value)?),
            _ => return None,
        })
    })
}

fn ends(data: &[u8], local: u16, remote: u16) -> Entries {
    entries(data, |kind, value| {
        Some(match kind {
            kind if kind == local => ("Local", ip(value)?),
            kind if kind == remote => ("Remote", ip(value)?),
            _ => return None,
        })
    })
}

fn macvlan(data: &[u8]) -> Entries {
    const MODES: [&str; 5] = ["private", "vepa", "bridge", "passthru", "source"];
    entries(data, |kind, value| match kind {
        1 => {
            // One bit is set.
            let bit = read_u32(value)?.trailing_zeros() as usize;
            Some(("Mode", word(&MODES, Some(bit))?))
        }
        _ => None,
    })
}

fn ipvlan(data: &[u8]) -> Entries {
    const MODES: [&str; 3] = ["l2", "l3", "l3s"];
    entries(data, |kind, value| match kind {
        1 => Some(("Mode", word(&MODES, read_u16(value).map(usize::from))?)),
        _ => None,
    })
}

fn tuntap(data: &[u8]) -> Entries {
    const KINDS: [&str; 3] = ["", "tun", "tap"];
    entries(data, |kind, value| {
        Some(match kind {
            1 => ("Owner", int(read_u32(value)?)),
            2 => ("Group", int(read_u32(value)?)),
            3 => ("Kind", word(&KINDS, read_u8(value).map(usize::from))?),
            6 => ("Persist", truth(value)?),
            7 => ("MultiQueue", truth(value)?),
            _ => return None,
        })
    })
}

fn bridge(data: &[u8]) -> Entries {
    entries(data, |kind, value| {
        Some(match kind {
            5 => ("STP", (read_u32(value)? != 0).into()),
            7 => ("VlanFiltering", truth(value)?),
            39 => ("DefaultPVID", int(read_u16(value)?)),
            _ => return None,
        })
    })
}

fn vlan(data: &[u8]) -> Entries {
    entries(data, |kind, value| match kind {
        1 => Some(("Vlan", int(read_u16(value)?))),
        _ => None,
    })
}

fn bond(data: &[u8]) -> Entries {
    entries(data, |kind, value| {
        Some(match kind {
            2 => ("ActiveSlave", int(read_u32(value)?)),
            3 => ("Miimon", int(read_u32(value)?)),
            _ => return None,
        })
    })
}

fn bond_mode(data: &[u8]) -> Entries {
    const MODES: [&str; 7] = [
        "balance-rr",
        "active-backup",
        "balance-xor",
        "broadcast",
        "802.3ad",
        "balance-tlb",
        "balance-alb",
    ];
    entries(data, |kind, value| match kind {
        1 => Some(("BondMode", word(&MODES, read_u8(value).map(usize::from))?)),
        _ => None,
    })
}

fn bond_port(data: &[u8]) -> Entries {
    const STATES: [&str; 2] = ["ACTIVE", "BACKUP"];
    const MII: [&str; 4] = ["UP", "GOING_DOWN", "DOWN", "GOING_BACK"];
    let mut port = entries(data, |kind, value| {
        let byte = || read_u8(value).map(usize::from);
        Some(match kind {
            1 => ("State", word(&STATES, byte())?),
            2 => ("MiiStatus", word(&MII, byte())?),
            3 => ("LinkFailureCount", int(read_u32(value)?)),
            4 => ("PermMAC", names::mac(value).as_str().into()),
            5 => ("QueueId", int(read_u16(value)?)),
            6 => ("AggregatorId", int(read_u16(value)?)),
            7 => ("AdActorOperPortState", int(read_u8(value)?)),
            8 => ("AdPartnerOperPortState", int(read_u16(value)?)),
            _ => return None,
        })
    });
    port.push(("Type".into(), "bond".into()));
    port
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_link::Attributes;

    fn json(entries: Entries) -> String {
        serde_json::to_string(&Map::new(entries)).unwrap()
    }

    // Kinds that cannot be made on every kernel that tests run on.

    #[test]
    fn tunnels() {
        let data = Attributes::default()
            .with_u32(1, 77)
            .with(2, &[192, 0, 2, 9])
            .with(5, &6081u16.to_be_bytes());
        assert_eq!(
            json(geneve(data.bytes())),
            r#"{"Port":6081,"Remote":"192.0.2.9","VNI":77}"#
        );
        let data = Attributes::default()
            .with(4, &42u32.to_be_bytes())
            .with(5, &[0; 4])
            .with(6, &[0; 4])
            .with(7, &[192, 0, 2, 7]);
        assert_eq!(
            json(gre(data.bytes())),
            r#"{"InputKey":42,"Remote":"192.0.2.7"}"#
        );
        let data = Attributes::default()
            .with(2, &[192, 0, 2, 1])
            .with(3, &[0; 4]);
        assert_eq!(json(ends(data.bytes(), 2, 3)), r#"{"Local":"192.0.2.1"}"#);
    }

    #[test]
    fn bonds_and_their_ports() {
        let data = Attributes::default().with(1, &[4]).with_u32(2, 3);
        assert_eq!(json(bond_mode(data.bytes())), r#"{"BondMode":"802.3ad"}"#);
        assert_eq!(json(bond(data.bytes())), r#"{"ActiveSlave":3}"#);
        let data = Attributes::default()
            .with(1, &[1])
            .with(2, &[2])
            .with_u32(3, 5)
            .with(4, &[2, 0, 0, 0, 0, 0x1f]);
        assert_eq!(
            json(bond_port(data.bytes())),
            r#"{"LinkFailureCount":5,"MiiStatus":"DOWN","PermMAC":"02:00:00:00:00:1f","State":"BACKUP","Type":"bond"}"#
        );
    }

    #[test]
    fn unknown_numbers_are_left_out() {
        let data = Attributes::default().with(1, &[200]);
        assert_eq!(json(bond_mode(data.bytes())), "{}");
        assert_eq!(
            json(macvlan(Attributes::default().with_u32(1, 0).bytes())),
            "{}"
        );
        assert_eq!(json(vxlan(&[7, 0])), "{}");
    }
}
