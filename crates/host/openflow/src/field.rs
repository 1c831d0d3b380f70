//! Fields of matches and actions, in OXM and NXM (OpenFlow 1.4 section 7.2.3, Open vSwitch's ovs-fields(7)).

use crate::read::Reader;
use skua_topology::{Map, Value};
use std::{
    borrow::Cow,
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
};

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Decimal,
    Hex,
    Mac,
    V4,
    V6,
    Port,
    EtherType,
    CtState,
    TcpFlags,
    Fragment,
    VlanId,
}

/// A field. Names: in matches, as target of `set_field`, and in brackets as `NXM_…[]`.
pub(crate) struct Field {
    pub show: &'static str,
    set: &'static str,
    nxm: &'static str,
    pub form: Form,
    /// Class and number in headers, with Skydive's name for each.
    headers: &'static [(u16, u8, &'static str)],
}

const OXM: u16 = 0x8000;
const NXM: u16 = 0;
const NX: u16 = 1;
const REGISTERS: u16 = 0x8001;
const EXPERIMENTER: u16 = 0xffff;
/// Fields that came before their version of OpenFlow have the Open Networking Foundation's number.
const ONF: u32 = 0x4f4e_4600;

const fn field(
    show: &'static str,
    set: &'static str,
    nxm: &'static str,
    form: Form,
    headers: &'static [(u16, u8, &'static str)],
) -> Field {
    Field {
        show,
        set,
        nxm,
        form,
        headers,
    }
}

/// In the order in which `ovs-ofctl` writes them.
#[rustfmt::skip]
const FIELDS: &[Field] = {
    use Form::*;
    &[
        field("packet_type", "packet_type", "OXM_OF_PACKET_TYPE", Hex, &[(OXM, 44, "packet_type")]),
        field("pkt_mark", "pkt_mark", "NXM_NX_PKT_MARK", Hex, &[(NX, 33, "pkt_mark")]),
        field("recirc_id", "recirc_id", "NXM_NX_RECIRC_ID", Hex, &[(NX, 36, "recirc_id")]),
        field("dp_hash", "dp_hash", "NXM_NX_DP_HASH", Hex, &[(NX, 35, "dp_hash")]),
        field("conj_id", "conj_id", "NXM_NX_CONJ_ID", Decimal, &[(NX, 37, "conj_id")]),
        field("actset_output", "actset_output", "OXM_OF_ACTSET_OUTPUT", Port, &[(OXM, 43, "actset_output")]),
        field("ct_state", "ct_state", "NXM_NX_CT_STATE", CtState, &[(NX, 105, "conn_tracking_state")]),
        field("ct_zone", "ct_zone", "NXM_NX_CT_ZONE", Decimal, &[(NX, 106, "conn_tracking_zone")]),
        field("ct_mark", "ct_mark", "NXM_NX_CT_MARK", Hex, &[(NX, 107, "conn_tracking_mark")]),
        field("ct_label", "ct_label", "NXM_NX_CT_LABEL", Hex, &[(NX, 108, "conn_tracking_label")]),
        field("ct_nw_src", "ct_nw_src", "NXM_NX_CT_NW_SRC", V4, &[(NX, 120, "conn_tracking_nw_src")]),
        field("ct_ipv6_src", "ct_ipv6_src", "NXM_NX_CT_IPV6_SRC", V6, &[(NX, 122, "conn_tracking_ipv6_src")]),
        field("ct_nw_dst", "ct_nw_dst", "NXM_NX_CT_NW_DST", V4, &[(NX, 121, "conn_tracking_nw_dst")]),
        field("ct_ipv6_dst", "ct_ipv6_dst", "NXM_NX_CT_IPV6_DST", V6, &[(NX, 123, "conn_tracking_ipv6_dst")]),
        field("ct_nw_proto", "ct_nw_proto", "NXM_NX_CT_NW_PROTO", Decimal, &[(NX, 119, "conn_tracking_nw_proto")]),
        field("ct_tp_src", "ct_tp_src", "NXM_NX_CT_TP_SRC", Decimal, &[(NX, 124, "conn_tracking_tp_src")]),
        field("ct_tp_dst", "ct_tp_dst", "NXM_NX_CT_TP_DST", Decimal, &[(NX, 125, "conn_tracking_tp_dst")]),
        // In its place come the names of protocols.
        field("dl_type", "eth_type", "NXM_OF_ETH_TYPE", EtherType, &[(OXM, 5, "eth_type"), (NXM, 3, "eth_type")]),
        // In their place come the registers.
        field("tun_id", "tun_id", "NXM_NX_TUN_ID", Hex, &[(NX, 16, "tunnel_id"), (OXM, 38, "tunnel_id")]),
        field("tun_src", "tun_src", "NXM_NX_TUN_IPV4_SRC", V4, &[(NX, 31, "tunnel_ipv4_src")]),
        field("tun_dst", "tun_dst", "NXM_NX_TUN_IPV4_DST", V4, &[(NX, 32, "tunnel_ipv4_dst")]),
        field("tun_ipv6_src", "tun_ipv6_src", "NXM_NX_TUN_IPV6_SRC", V6, &[(NX, 109, "tun_ipv6_src")]),
        field("tun_ipv6_dst", "tun_ipv6_dst", "NXM_NX_TUN_IPV6_DST", V6, &[(NX, 110, "tun_ipv6_dst")]),
        field("tun_gbp_id", "tun_gbp_id", "NXM_NX_TUN_GBP_ID", Hex, &[(NX, 38, "tun_gbp_id")]),
        field("tun_gbp_flags", "tun_gbp_flags", "NXM_NX_TUN_GBP_FLAGS", Hex, &[(NX, 39, "tun_gbp_flags")]),
        field("tun_flags", "tun_flags", "NXM_NX_TUN_FLAGS", Hex, &[(NX, 104, "tun_flags")]),
        field("metadata", "metadata", "OXM_OF_METADATA", Hex, &[(OXM, 2, "metadata")]),
        field("in_port", "in_port", "NXM_OF_IN_PORT", Port, &[(OXM, 0, "in_port"), (NXM, 0, "in_port")]),
        field("in_phy_port", "in_phy_port", "OXM_OF_IN_PHY_PORT", Port, &[(OXM, 1, "in_phy_port")]),
        field("dl_vlan", "vlan_vid", "OXM_OF_VLAN_VID", VlanId, &[(OXM, 6, "vlan_vid")]),
        field("vlan_tci", "vlan_tci", "NXM_OF_VLAN_TCI", Hex, &[(NXM, 4, "vlan_tci")]),
        field("dl_vlan_pcp", "vlan_pcp", "OXM_OF_VLAN_PCP", Decimal, &[(OXM, 7, "vlan_pcp")]),
        field("dl_src", "eth_src", "NXM_OF_ETH_SRC", Mac, &[(OXM, 4, "eth_src"), (NXM, 2, "eth_src")]),
        field("dl_dst", "eth_dst", "NXM_OF_ETH_DST", Mac, &[(OXM, 3, "eth_dst"), (NXM, 1, "eth_dst")]),
        field("nw_src", "ip_src", "NXM_OF_IP_SRC", V4, &[(OXM, 11, "ipv4_src"), (NXM, 7, "ip_src")]),
        field("nw_dst", "ip_dst", "NXM_OF_IP_DST", V4, &[(OXM, 12, "ipv4_dst"), (NXM, 8, "ip_dst")]),
        field("ipv6_src", "ipv6_src", "NXM_NX_IPV6_SRC", V6, &[(OXM, 26, "ipv6_src"), (NX, 19, "ipv6_src")]),
        field("ipv6_dst", "ipv6_dst", "NXM_NX_IPV6_DST", V6, &[(OXM, 27, "ipv6_dst"), (NX, 20, "ipv6_dst")]),
        field("arp_spa", "arp_spa", "NXM_OF_ARP_SPA", V4, &[(OXM, 22, "arp_spa"), (NXM, 16, "arp_spa")]),
        field("arp_tpa", "arp_tpa", "NXM_OF_ARP_TPA", V4, &[(OXM, 23, "arp_tpa"), (NXM, 17, "arp_tpa")]),
        field("ipv6_label", "ipv6_label", "NXM_NX_IPV6_LABEL", Hex, &[(OXM, 28, "ipv6_flabel"), (NX, 27, "ipv6_label")]),
        field("nw_proto", "nw_proto", "NXM_OF_IP_PROTO", Decimal, &[(OXM, 10, "ip_proto"), (NXM, 6, "ip_proto")]),
        field("arp_op", "arp_op", "NXM_OF_ARP_OP", Decimal, &[(OXM, 21, "arp_op"), (NXM, 15, "arp_op")]),
        field("arp_sha", "arp_sha", "NXM_NX_ARP_SHA", Mac, &[(OXM, 24, "arp_sha"), (NX, 17, "arp_sha")]),
        field("arp_tha", "arp_tha", "NXM_NX_ARP_THA", Mac, &[(OXM, 25, "arp_tha"), (NX, 18, "arp_tha")]),
        field("ip_dscp", "ip_dscp", "OXM_OF_IP_DSCP", Decimal, &[(OXM, 8, "ip_dscp")]),
        field("nw_tos", "nw_tos", "NXM_OF_IP_TOS", Decimal, &[(NXM, 5, "ip_tos")]),
        field("nw_ecn", "nw_ecn", "NXM_NX_IP_ECN", Decimal, &[(OXM, 9, "ip_ecn"), (NX, 28, "ip_ecn")]),
        field("nw_ttl", "nw_ttl", "NXM_NX_IP_TTL", Decimal, &[(NX, 29, "ip_ttl")]),
        field("mpls_label", "mpls_label", "OXM_OF_MPLS_LABEL", Decimal, &[(OXM, 34, "mpls_label")]),
        field("mpls_tc", "mpls_tc", "OXM_OF_MPLS_TC", Decimal, &[(OXM, 35, "mpls_tc")]),
        field("mpls_bos", "mpls_bos", "OXM_OF_MPLS_BOS", Decimal, &[(OXM, 36, "mpls_bos")]),
        field("mpls_ttl", "mpls_ttl", "NXM_NX_MPLS_TTL", Decimal, &[(NX, 30, "mpls_ttl")]),
        field("nw_frag", "ip_frag", "NXM_NX_IP_FRAG", Fragment, &[(NX, 26, "ip_frag")]),
        field("icmp_type", "icmp_type", "NXM_OF_ICMP_TYPE", Decimal, &[(OXM, 19, "icmpv4_type"), (NXM, 13, "icmp_type")]),
        field("icmp_code", "icmp_code", "NXM_OF_ICMP_CODE", Decimal, &[(OXM, 20, "icmpv4_code"), (NXM, 14, "icmp_code")]),
        field("icmp_type", "icmpv6_type", "NXM_NX_ICMPV6_TYPE", Decimal, &[(OXM, 29, "icmpv6_type"), (NX, 21, "icmpv6_type")]),
        field("icmp_code", "icmpv6_code", "NXM_NX_ICMPV6_CODE", Decimal, &[(OXM, 30, "icmpv6_code"), (NX, 22, "icmpv6_code")]),
        field("nd_target", "nd_target", "NXM_NX_ND_TARGET", V6, &[(OXM, 31, "ipv6_nd_target"), (NX, 23, "nd_target")]),
        field("nd_sll", "nd_sll", "NXM_NX_ND_SLL", Mac, &[(OXM, 32, "ipv6_nd_sll"), (NX, 24, "nd_sll")]),
        field("nd_tll", "nd_tll", "NXM_NX_ND_TLL", Mac, &[(OXM, 33, "ipv6_nd_tll"), (NX, 25, "nd_tll")]),
        field("tp_src", "tcp_src", "NXM_OF_TCP_SRC", Decimal, &[(OXM, 13, "tcp_src"), (NXM, 9, "tcp_src")]),
        field("tp_dst", "tcp_dst", "NXM_OF_TCP_DST", Decimal, &[(OXM, 14, "tcp_dst"), (NXM, 10, "tcp_dst")]),
        field("tp_src", "udp_src", "NXM_OF_UDP_SRC", Decimal, &[(OXM, 15, "udp_src"), (NXM, 11, "udp_src")]),
        field("tp_dst", "udp_dst", "NXM_OF_UDP_DST", Decimal, &[(OXM, 16, "udp_dst"), (NXM, 12, "udp_dst")]),
        field("tp_src", "sctp_src", "OXM_OF_SCTP_SRC", Decimal, &[(OXM, 17, "sctp_src")]),
        field("tp_dst", "sctp_dst", "OXM_OF_SCTP_DST", Decimal, &[(OXM, 18, "sctp_dst")]),
        field("tcp_flags", "tcp_flags", "NXM_NX_TCP_FLAGS", TcpFlags, &[(NX, 34, "tcp_flags"), (OXM, 42, "tcp_flags")]),
    ]
};

/// Place of `dl_type` in [`FIELDS`], and of what comes after the registers.
const PLACE_OF_TYPE: u16 = 17;

/// A field as a header names it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Named {
    /// In matches.
    pub show: Cow<'static, str>,
    /// In `set_field`.
    pub set: Cow<'static, str>,
    /// In brackets.
    pub nxm: Cow<'static, str>,
    /// As Skydive has it.
    pub skydive: Cow<'static, str>,
    pub form: Form,
    /// Where it stands among others.
    pub rank: u16,
}

/// Header of a field: class, number, whether a mask follows, and bytes that follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    class: u16,
    number: u8,
    pub masked: bool,
    pub length: u8,
    experimenter: u32,
}

impl Header {
    /// Reads one, with the experimenter's number if it has one.
    pub fn read(reader: &mut Reader) -> Option<Self> {
        let class = reader.u16()?;
        let number = reader.u8()?;
        let length = reader.u8()?;
        let mut header = Self {
            class,
            number: number >> 1,
            masked: number & 1 == 1,
            length,
            experimenter: 0,
        };
        if class == EXPERIMENTER {
            header.experimenter = reader.u32()?;
            header.length = length.checked_sub(4)?;
        }
        Some(header)
    }

    /// Bytes of the value.
    pub fn size(&self) -> usize {
        usize::from(if self.masked {
            self.length / 2
        } else {
            self.length
        })
    }

    pub fn named(&self) -> Named {
        let (class, number) = match (self.class, self.experimenter) {
            (EXPERIMENTER, ONF) => (OXM, self.number),
            other => (other.0, self.number),
        };
        for (rank, field) in FIELDS.iter().enumerate() {
            let header = field.headers.iter().find(|h| (h.0, h.1) == (class, number));
            if let Some((_, _, skydive)) = header {
                let rank = u16::try_from(rank).unwrap_or(u16::MAX);
                return Named {
                    show: field.show.into(),
                    set: field.set.into(),
                    nxm: field.nxm.into(),
                    skydive: (*skydive).into(),
                    form: field.form,
                    rank: if rank > PLACE_OF_TYPE {
                        rank + 256
                    } else {
                        rank
                    },
                };
            }
        }
        self.register(class, number)
    }

    fn register(&self, class: u16, number: u8) -> Named {
        let (name, nxm, rank) = match (class, number) {
            (NX, 0..=15) => (format!("reg{number}"), format!("NXM_NX_REG{number}"), 1),
            (REGISTERS, _) => (
                format!("xreg{number}"),
                format!("OXM_OF_PKT_REG{number}"),
                20,
            ),
            (NX, 111..=118) => {
                let number = number - 111;
                (
                    format!("xxreg{number}"),
                    format!("NXM_NX_XXREG{number}"),
                    30,
                )
            }
            (NX, 40..=103) => {
                let number = number - 40;
                let nxm = format!("NXM_NX_TUN_METADATA{number}");
                (format!("tun_metadata{number}"), nxm, 512)
            }
            (EXPERIMENTER, _) => {
                let name = format!("experimenter_{:#x}_{number}", self.experimenter);
                (name.clone(), name, 900)
            }
            _ => {
                let name = format!("field_{class:#06x}_{number}");
                (name.clone(), name, 900)
            }
        };
        Named {
            show: name.clone().into(),
            set: name.clone().into(),
            nxm: nxm.into(),
            skydive: name.into(),
            form: Form::Hex,
            rank: PLACE_OF_TYPE + rank + u16::from(number % 64),
        }
    }
}

/// A part of a field, `NAME[]`, `NAME[7]` or `NAME[0..15]`.
pub(crate) fn bits(header: &Header, offset: u16, count: u16) -> String {
    let named = header.named();
    let whole = header.size() * 8;
    // VLAN numbers and labels have fewer bits than their bytes.
    match usize::from(count) {
        n if offset == 0 && (n == whole || n == width(&named, whole)) => format!("{}[]", named.nxm),
        1 => format!("{}[{offset}]", named.nxm),
        n => format!("{}[{offset}..{}]", named.nxm, usize::from(offset) + n - 1),
    }
}

fn width(named: &Named, whole: usize) -> usize {
    match &*named.set {
        "vlan_vid" => 12,
        "vlan_pcp" | "mpls_tc" => 3,
        "mpls_label" | "ipv6_label" => 20,
        "mpls_bos" => 1,
        "ip_dscp" => 6,
        "nw_ecn" => 2,
        _ => whole,
    }
}

/// A field with a value, and perhaps a mask.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry<'a> {
    pub named: Named,
    pub value: &'a [u8],
    pub mask: Option<&'a [u8]>,
}

/// Reads a field with its value.
pub(crate) fn entry<'a>(reader: &mut Reader<'a>) -> Option<Entry<'a>> {
    let header = Header::read(reader)?;
    let size = header.size();
    let value = reader.take(size)?;
    let mask = match header.masked {
        true => Some(reader.take(usize::from(header.length) - size)?),
        false => None,
    };
    Some(Entry {
        named: header.named(),
        value,
        mask: mask.filter(|mask| mask.iter().any(|byte| *byte != 0xff)),
    })
}

/// The first 16 bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .take(16)
        .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// In hexadecimal digits, as C writes them: zero has no `0x`.
pub(crate) fn digits(number: impl Into<u128>) -> String {
    match number.into() {
        0 => "0".to_owned(),
        number => format!("{number:#x}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    if bytes.len() <= 16 {
        return digits(number(bytes));
    }
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn mac(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

fn address(bytes: &[u8], form: Form) -> Option<String> {
    match form {
        Form::V4 => {
            let bytes: [u8; 4] = bytes.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).to_string())
        }
        Form::V6 => {
            let bytes: [u8; 16] = bytes.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_string())
        }
        Form::Mac if bytes.len() == 6 => Some(mac(bytes)),
        _ => None,
    }
}

/// Name of a reserved port, or its number. Ports of NXM have 16 bits (OpenFlow 1.0), others 32.
pub(crate) fn port(number: u32) -> String {
    let name = match number & 0xffff {
        0xfff8 => "IN_PORT",
        0xfff9 => "TABLE",
        0xfffa => "NORMAL",
        0xfffb => "FLOOD",
        0xfffc => "ALL",
        0xfffd => "CONTROLLER",
        0xfffe => "LOCAL",
        0xffff => "ANY",
        _ => "",
    };
    match number >> 16 {
        0 | 0xffff if !name.is_empty() => name.to_owned(),
        _ => number.to_string(),
    }
}

const CT_STATES: [(&str, &str); 8] = [
    ("new", "New"),
    ("est", "Established"),
    ("rel", "Related"),
    ("rpl", "Reply"),
    ("inv", "Invalid"),
    ("trk", "Tracked"),
    ("snat", "SNAT"),
    ("dnat", "DNAT"),
];
const TCP_FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

fn signs<'a>(names: impl Iterator<Item = &'a str>, value: u128, mask: u128) -> String {
    let mut text = String::new();
    for (bit, name) in names.enumerate() {
        if mask >> bit & 1 == 1 {
            text.push(if value >> bit & 1 == 1 { '+' } else { '-' });
            text.push_str(name);
        }
    }
    text
}

/// Number of leading ones, when only zeros follow.
fn prefix(mask: &[u8]) -> Option<u32> {
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let leading = mask.iter().take_while(|byte| **byte == 0xff).count();
    let next = mask.get(leading).map_or(0, |byte| byte.leading_ones());
    (u32::try_from(leading).ok()? * 8 + next == ones).then_some(ones)
}

impl Entry<'_> {
    /// `name=value` as in a rule's match.
    pub fn text(&self) -> String {
        let (value, mask) = (number(self.value), self.mask.map(number));
        let name = &self.named.show;
        match self.named.form {
            Form::VlanId => match mask {
                None if value & 0x1000 != 0 => format!("dl_vlan={}", value & 0xfff),
                None => "vlan_tci=0x0000/0x1fff".to_owned(),
                Some(mask) => format!("vlan_tci={value:#06x}/{mask:#06x}"),
            },
            Form::EtherType => format!("dl_type={value:#06x}"),
            _ if &*self.named.set == "vlan_tci" => match mask {
                None => format!("vlan_tci={value:#06x}"),
                Some(mask) => format!("vlan_tci={value:#06x}/{mask:#06x}"),
            },
            _ if &*self.named.set == "ip_dscp" => format!("nw_tos={}", (value & 0x3f) << 2),
            _ => format!("{name}={}", self.shown()),
        }
    }

    /// Only the value.
    pub fn shown(&self) -> String {
        let value = number(self.value);
        let masked = |text: String| match self.mask {
            Some(mask) => format!("{text}/{}", hex(mask)),
            None => text,
        };
        match self.named.form {
            Form::Mac | Form::V4 | Form::V6 => {
                let form = self.named.form;
                let Some(text) = address(self.value, form) else {
                    return masked(hex(self.value));
                };
                match self.mask {
                    None => text,
                    Some(mask) if form != Form::Mac => match prefix(mask) {
                        Some(length) => format!("{text}/{length}"),
                        None => format!("{text}/{}", address(mask, form).unwrap_or_default()),
                    },
                    Some(mask) => format!("{text}/{}", mac(mask)),
                }
            }
            Form::CtState => {
                let names = CT_STATES.iter().map(|(name, _)| *name);
                match self.mask {
                    Some(mask) => signs(names, value, number(mask)),
                    None => signs(names, value, u128::MAX),
                }
            }
            Form::TcpFlags => match self.mask {
                Some(mask) => signs(TCP_FLAGS.into_iter(), value, number(mask)),
                None => signs(TCP_FLAGS.into_iter(), value, 0xfff),
            },
            Form::Fragment => match (value & 3, self.mask.map(number).unwrap_or(3) & 3) {
                (0, 3) => "no".to_owned(),
                (1, 3) => "first".to_owned(),
                (3, 3) => "later".to_owned(),
                (1, 1) => "yes".to_owned(),
                (0, 2) => "not_later".to_owned(),
                _ => masked(hex(self.value)),
            },
            Form::Port => port(u32::try_from(value).unwrap_or(u32::MAX)),
            Form::Decimal if self.mask.is_none() => value.to_string(),
            Form::VlanId if self.mask.is_none() => value.to_string(),
            Form::EtherType => digits(value),
            _ => masked(hex(self.value)),
        }
    }

    /// As Skydive has it in `Filters` and in the arguments of `set_field`.
    pub fn map(&self) -> Map {
        let mut name = self.named.skydive.to_string();
        if self.mask.is_some() {
            name.push_str("_masked");
        }
        let mut map = Map::from([
            ("Type", name.as_str().into()),
            ("Value", self.plain(self.value)),
        ]);
        if let Some(mask) = self.mask {
            map = map.with("Mask", self.plain(mask));
        }
        map
    }

    fn plain(&self, bytes: &[u8]) -> Value {
        let value = number(bytes);
        match self.named.form {
            Form::CtState => {
                let set = CT_STATES.iter().enumerate();
                let set = set.filter(|(bit, _)| value >> bit & 1 == 1);
                let set = set.map(|(_, (_, name))| ((*name).into(), Value::Bool(true)));
                Map::new(set.collect()).into()
            }
            Form::EtherType => match ethertype(value) {
                Some(name) => name.into(),
                None => format!("{value:#06x}").as_str().into(),
            },
            form => match address(bytes, form) {
                Some(text) => text.as_str().into(),
                None => match i64::try_from(value) {
                    Ok(number) if bytes.len() <= 8 => number.into(),
                    _ => hex(bytes).as_str().into(),
                },
            },
        }
    }
}

/// Name of an Ethernet type in matches.
fn ethertype(number: u128) -> Option<&'static str> {
    Some(match number {
        0x0800 => "ip",
        0x86dd => "ipv6",
        0x0806 => "arp",
        0x8035 => "rarp",
        0x8847 => "mpls",
        0x8848 => "mplsm",
        _ => return None,
    })
}

/// The text of a match, as `ovs-ofctl` writes it.
pub(crate) fn match_text(entries: &[Entry]) -> String {
    let of = |name: &str| {
        let mut entries = entries.iter();
        let entry = entries.find(|e| e.named.set == name && e.mask.is_none());
        entry.map(|entry| number(entry.value))
    };
    let kind = of("eth_type");
    let protocol = of("nw_proto");
    let short = match (kind, protocol) {
        (Some(0x0800), Some(1)) => Some("icmp"),
        (Some(0x0800), Some(2)) => Some("igmp"),
        (Some(0x0800), Some(6)) => Some("tcp"),
        (Some(0x0800), Some(17)) => Some("udp"),
        (Some(0x0800), Some(132)) => Some("sctp"),
        (Some(0x86dd), Some(58)) => Some("icmp6"),
        (Some(0x86dd), Some(6)) => Some("tcp6"),
        (Some(0x86dd), Some(17)) => Some("udp6"),
        (Some(0x86dd), Some(132)) => Some("sctp6"),
        _ => None,
    };
    let mut parts: Vec<(u16, String)> = Vec::new();
    for entry in entries {
        let text = match &*entry.named.set {
            "eth_type" if entry.mask.is_none() => match short.or(ethertype(number(entry.value))) {
                Some(name) => name.to_owned(),
                None => entry.text(),
            },
            "nw_proto" if short.is_some() => continue,
            _ => entry.text(),
        };
        // Types without a name come after the addresses.
        let rank = match text.starts_with("dl_type=") {
            true => FIELDS.len() as u16 + 256 - 34,
            false => entry.named.rank,
        };
        parts.push((rank, text));
    }
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    parts.join(",")
}
