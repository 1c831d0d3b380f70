//! Packet filters on conversations: keys rebuilt from rows.

use std::{collections::HashMap, net::IpAddr};

use skua_flow::{FlowKey, Network};

use crate::{
    batch::{Data, NO_TEXT, NULL, Texts},
    schema::flow,
};

/// Whether packets with this key and these TCP flags of `lo` and `hi` match.
pub type Matches = dyn Fn(&FlowKey, [u8; 2]) -> bool + Send + Sync;

/// A filter on packets.
pub struct PacketFilter {
    /// The filter.
    pub matches: Box<Matches>,
    /// Addresses in all matching packets: other rows are skipped.
    pub addresses: Vec<IpAddr>,
}

/// Columns that a key is made of.
pub(crate) const COLUMNS: [usize; 15] = [
    flow::A_ADDRESS,
    flow::A_PORT,
    flow::B_ADDRESS,
    flow::B_PORT,
    flow::IP_PROTOCOL,
    flow::LINK,
    flow::VLAN,
    flow::INNER_VLAN,
    flow::ETHERTYPE,
    flow::ICMP_TYPE,
    flow::ICMP_CODE,
    flow::ICMP_ID,
    flow::AB_FLAGS,
    flow::BA_FLAGS,
    flow::PROTOCOL,
];

/// Addresses by the number of their text.
#[derive(Default)]
pub(crate) struct Addresses(HashMap<u32, ([u8; 16], Network), foldhash::fast::RandomState>);

impl Addresses {
    fn get(&mut self, number: u32, texts: &Texts) -> ([u8; 16], Network) {
        *self
            .0
            .entry(number)
            .or_insert_with(|| parse(texts.get(number)))
    }
}

fn parse(text: &str) -> ([u8; 16], Network) {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => (ip.to_ipv6_mapped().octets(), Network::V4),
        Ok(IpAddr::V6(ip)) => (ip.octets(), Network::V6),
        Err(_) => {
            let mut address = [0; 16];
            for (place, part) in address[10..].iter_mut().zip(text.split(':')) {
                *place = u8::from_str_radix(part, 16).unwrap_or(0);
            }
            (address, Network::None)
        }
    }
}

/// The key of a row, and its flags.
pub(crate) fn key(
    row: usize,
    columns: &[Data],
    texts: &Texts,
    addresses: &mut Addresses,
) -> (FlowKey, [u8; 2]) {
    let number = |column: usize| match &columns[column] {
        Data::Numbers(values) => values.get(row).copied().filter(|value| *value != NULL),
        _ => None,
    };
    let text = |column: usize| match &columns[column] {
        Data::Texts(values) => values.get(row).copied().unwrap_or(NO_TEXT),
        _ => NO_TEXT,
    };
    let short = |column| number(column).map_or(0, |value| value as u16);
    let byte = |column| number(column).map_or(0, |value| value as u8);
    let (a, network) = addresses.get(text(flow::A_ADDRESS), texts);
    let (b, _) = addresses.get(text(flow::B_ADDRESS), texts);
    let ports = [flow::A_PORT, flow::B_PORT].map(|column| short(column).to_be_bytes());
    let flags = [flow::AB_FLAGS, flow::BA_FLAGS].map(byte);
    let network_kind = match network {
        Network::None => 0,
        Network::V4 => 1,
        Network::V6 => 2,
    };
    let ethernet = text(flow::LINK) != NO_TEXT;
    let vlan = |column| number(column).map_or(0, |id| skua_flow::VLAN_PRESENT | id as u16);
    let mut key = FlowKey {
        vlan: [vlan(flow::VLAN), vlan(flow::INNER_VLAN)],
        proto: byte(flow::IP_PROTOCOL),
        kind: network_kind
            | if ethernet {
                skua_flow::KIND_ETHERNET
            } else {
                0
            },
        detail: match network {
            Network::None => number(flow::ETHERTYPE).map_or(0, |value| value as u16),
            _ => short(flow::ICMP_ID),
        },
        ..FlowKey::default()
    };
    let a_is_lo = (a, ports[0]) <= (b, ports[1]);
    let pick = |[of_a, of_b]: [[u8; 2]; 2]| if a_is_lo { [of_a, of_b] } else { [of_b, of_a] };
    (key.lo, key.hi) = if a_is_lo { (a, b) } else { (b, a) };
    [key.lo_port, key.hi_port] = pick(ports);
    if key.is_icmp() {
        let kind = [byte(flow::ICMP_TYPE), byte(flow::ICMP_CODE)];
        (key.lo_port, key.hi_port) = (kind, kind);
    }
    let flags = if a_is_lo { flags } else { [flags[1], flags[0]] };
    (key, flags)
}
