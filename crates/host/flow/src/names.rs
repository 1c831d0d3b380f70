//! Names of layers, protocols and TCP flags, as records show them.

use crate::{FlowKey, FlowRecord, Network, Tunnel};
use std::fmt;

/// The layers of a flow's packets, outermost first: `Ethernet/Dot1Q/IPv4/UDP`. Begins with the
/// network layer when there is no Ethernet header, and ends with that of a tunnel, if what it carries is decoded:
/// `Ethernet/IPv4/UDP/VXLAN`.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a>(pub &'a FlowRecord);

impl fmt::Display for Layers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, carries) = (&self.0.key, self.0.carries);
        if key.ethernet() {
            f.write_str("Ethernet/")?;
        }
        for _ in self.0.vlan_ids() {
            f.write_str("Dot1Q/")?;
        }
        match key.network() {
            Network::None => return write_ethertype(f, key),
            Network::V4 => f.write_str("IPv4/")?,
            Network::V6 => f.write_str("IPv6/")?,
        }
        match ip_protocol(key.proto) {
            Some((layer, _)) => f.write_str(layer)?,
            None => write!(f, "IPProto-{}", key.proto)?,
        }
        if let Some(message) = icmpv6_message(key) {
            write!(f, "/{message}")?;
        }
        match carries.tunnel() {
            Some(Tunnel::Vxlan) => f.write_str("/VXLAN")?,
            Some(Tunnel::Geneve) => f.write_str("/Geneve")?,
            Some(Tunnel::Erspan) => f.write_str("/ERSPAN")?,
            // Their protocol has named them.
            Some(Tunnel::Gre | Tunnel::IpInIp | Tunnel::Mpls) | None => {}
        }
        if carries.has_labels() {
            f.write_str("/MPLS")?;
        }
        Ok(())
    }
}

/// What UDP carries between these ports, by the number that IANA has assigned to one of them; nothing of it is read. Named as
/// Skydive's decoder names the layer.
pub fn application(key: &FlowKey) -> Option<&'static str> {
    const UDP: u8 = 17;
    if key.network() == Network::None || key.proto != UDP {
        return None;
    }
    let ports = [key.lo_port, key.hi_port].map(u16::from_be_bytes);
    ports.into_iter().find_map(|port| {
        Some(match port {
            53 => "DNS",
            67 | 68 => "DHCPv4",
            123 => "NTP",
            546 | 547 => "DHCPv6",
            1812 => "RADIUS",
            2152 => "GTPv1U",
            3784 => "BFD",
            5060 => "SIP",
            6343 => "SFlow",
            _ => return None,
        })
    })
}

/// Layer behind the header of ICMPv6 (RFC 4443, RFC 4861, RFC 2710), of a request and its reply that of the request.
fn icmpv6_message(key: &FlowKey) -> Option<&'static str> {
    if key.network() != Network::V6 || !key.is_icmp() {
        return None;
    }
    Some(match key.lo_port[0] {
        128 => "ICMPv6Echo",
        130 => "MLDv1MulticastListenerQuery",
        133 => "ICMPv6RouterSolicitation",
        135 => "ICMPv6NeighborSolicitation",
        137 => "ICMPv6Redirect",
        143 => "MLDv2MulticastListenerReport",
        _ => return None,
    })
}

fn write_ethertype(f: &mut fmt::Formatter<'_>, key: &FlowKey) -> fmt::Result {
    match non_ip(key) {
        Some((layer, _)) => f.write_str(layer),
        None => write!(f, "{:#06x}", key.detail),
    }
}

/// The protocol of a flow in lower case: `tcp`, `icmpv6`, `arp`; numbers without a name as they
/// are: `253`, `0x88b5`.
#[derive(Clone, Copy, Debug)]
pub struct Protocol<'a>(pub &'a FlowKey);

impl fmt::Display for Protocol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.0;
        if key.network() == Network::None {
            return match non_ip(key) {
                Some((_, name)) => f.write_str(name),
                None => write!(f, "{:#06x}", key.detail),
            };
        }
        match ip_protocol(key.proto) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", key.proto),
        }
    }
}

/// Layer and protocol name of a flow without IP.
fn non_ip(key: &FlowKey) -> Option<(&'static str, &'static str)> {
    match (key.detail, key.ethernet()) {
        (0, true) => Some(("LLC", "llc")),
        (0, false) => Some(("Unknown", "unknown")),
        (ethertype, _) => ethertype_name(ethertype),
    }
}

/// Layer and protocol name of well-known EtherTypes (IEEE 802 numbers, IANA).
fn ethertype_name(ethertype: u16) -> Option<(&'static str, &'static str)> {
    Some(match ethertype {
        // IP in name only: its header was malformed.
        0x0800 => ("IPv4", "ipv4"),
        0x86dd => ("IPv6", "ipv6"),
        0x0806 => ("ARP", "arp"),
        0x0842 => ("WoL", "wol"),
        0x8035 => ("RARP", "rarp"),
        // A third tag, or one that is cut off.
        0x8100 => ("Dot1Q", "dot1q"),
        0x88a8 => ("Dot1AD", "dot1ad"),
        0x9100 => ("QinQ", "qinq"),
        0x8137 => ("IPX", "ipx"),
        0x8808 => ("MAC-Control", "mac-control"),
        0x8809 => ("SlowProtocols", "slow-protocols"),
        0x8847 | 0x8848 => ("MPLS", "mpls"),
        0x8863 => ("PPPoED", "pppoed"),
        0x8864 => ("PPPoE", "pppoe"),
        0x888e => ("EAPOL", "eapol"),
        0x8892 => ("PROFINET", "profinet"),
        0x88a4 => ("EtherCAT", "ethercat"),
        0x88b8 => ("GOOSE", "goose"),
        0x88ba => ("SV", "sv"),
        0x88cc => ("LLDP", "lldp"),
        0x88e5 => ("MACsec", "macsec"),
        0x88f7 => ("PTP", "ptp"),
        0x8902 => ("CFM", "cfm"),
        0x8906 => ("FCoE", "fcoe"),
        0x894f => ("NSH", "nsh"),
        0x8915 => ("RoCE", "roce"),
        0x6558 => ("TEB", "teb"),
        0x9000 => ("Loop", "loop"),
        _ => return None,
    })
}

/// Layer and protocol name of well-known IP protocols: keywords of IANA but where those are no names of one
/// thing alone, here or among EtherTypes.
fn ip_protocol(proto: u8) -> Option<(&'static str, &'static str)> {
    Some(match proto {
        0 => ("HopByHop", "hopopt"),
        1 => ("ICMPv4", "icmp"),
        2 => ("IGMP", "igmp"),
        4 => ("IPIP", "ipip"),
        6 => ("TCP", "tcp"),
        8 => ("EGP", "egp"),
        9 => ("IGP", "igp"),
        17 => ("UDP", "udp"),
        27 => ("RDP", "rdp"),
        33 => ("DCCP", "dccp"),
        41 => ("6in4", "6in4"),
        43 => ("Routing", "ipv6-route"),
        44 => ("Fragment", "ipv6-frag"),
        46 => ("RSVP", "rsvp"),
        47 => ("GRE", "gre"),
        50 => ("ESP", "esp"),
        51 => ("AH", "ah"),
        58 => ("ICMPv6", "icmpv6"),
        59 => ("NoNextHeader", "ipv6-nonxt"),
        60 => ("DestinationOptions", "ipv6-opts"),
        88 => ("EIGRP", "eigrp"),
        89 => ("OSPF", "ospf"),
        97 => ("EtherIP", "etherip"),
        103 => ("PIM", "pim"),
        108 => ("IPComp", "ipcomp"),
        112 => ("VRRP", "vrrp"),
        115 => ("L2TP", "l2tp"),
        132 => ("SCTP", "sctp"),
        135 => ("Mobility", "mobility"),
        136 => ("UDPLite", "udplite"),
        137 => ("MPLSinIP", "mpls-in-ip"),
        139 => ("HIP", "hip"),
        140 => ("Shim6", "shim6"),
        _ => return None,
    })
}

/// Name of what a flow was found inside.
pub fn tunnel(tunnel: Tunnel) -> &'static str {
    match tunnel {
        Tunnel::Vxlan => "vxlan",
        Tunnel::Geneve => "geneve",
        Tunnel::Gre => "gre",
        Tunnel::IpInIp => "ipip",
        Tunnel::Mpls => "mpls",
        Tunnel::Erspan => "erspan",
    }
}

/// TCP flags as letters in the order of their bits, `FSRPAUEC`: FIN, SYN, RST, PSH, ACK, URG, ECE,
/// CWR.
#[derive(Clone, Copy, Debug)]
pub struct TcpFlags(pub u8);

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in ["F", "S", "R", "P", "A", "U", "E", "C"]
            .into_iter()
            .enumerate()
        {
            if self.0 >> bit & 1 != 0 {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_name_means_one_protocol() {
        let mut meanings = BTreeMap::<&str, Vec<String>>::new();
        for proto in 0..=u8::MAX {
            if let Some((_, name)) = ip_protocol(proto) {
                let all = meanings.entry(name).or_default();
                all.push(format!("IP protocol {proto}"));
            }
        }
        for ethertype in 0..=u16::MAX {
            if let Some((_, name)) = ethertype_name(ethertype) {
                let all = meanings.entry(name).or_default();
                all.push(format!("EtherType {ethertype:#06x}"));
            }
        }
        meanings.retain(|_, all| all.len() > 1);
        // To one and to many.
        let mpls = ["EtherType 0x8847", "EtherType 0x8848"].map(str::to_owned);
        assert_eq!(meanings, BTreeMap::from([("mpls", mpls.into())]));
    }
}
