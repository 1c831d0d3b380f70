//! Sets of addresses, of which a packet must have one.

use std::{collections::BTreeMap, net::IpAddr};

use skua_flow::Prefix;

use super::layout::host_bit;
use crate::bindings::tap as c;

/// Which address of a packet is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Role(u32);

impl Role {
    /// As source.
    pub const SOURCE: Self = Self(1);
    /// As destination.
    pub const DESTINATION: Self = Self(2);
    /// As either.
    pub const EITHER: Self = Self(3);

    /// Both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Addresses of which a packet must have one. An empty set selects all packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressSelection {
    prefixes: BTreeMap<(IpAddr, u8), Role>,
    macs: BTreeMap<[u8; 6], Role>,
}

fn merge<K: Ord>(map: &mut BTreeMap<K, Role>, key: K, role: Role) {
    let known = map.entry(key).or_insert(role);
    *known = known.and(role);
}

/// An entry of a map: key and value.
pub(super) type Entry = (Vec<u8>, [u8; 4]);

impl AddressSelection {
    /// Adds a prefix.
    pub fn add_prefix(&mut self, prefix: Prefix, role: Role) {
        merge(
            &mut self.prefixes,
            (prefix.address(), prefix.length()),
            role,
        );
    }

    /// Adds a MAC address.
    pub fn add_mac(&mut self, mac: [u8; 6], role: Role) {
        merge(&mut self.macs, mac, role);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.prefixes.len() + self.macs.len()
    }

    /// Whether there is none, so that all packets are wanted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The roles that an address has by all prefixes that hold it, for the longest alone is found.
    fn inherited(&self, address: IpAddr, length: u8, role: Role) -> Role {
        let shorter = (0..length).filter_map(|length| {
            let prefix = Prefix::holding(address, length)?;
            self.prefixes.get(&(prefix.address(), length)).copied()
        });
        shorter.fold(role, Role::and)
    }

    /// Entries of the map with a name.
    pub(super) fn entries(&self, map: &str) -> Option<Vec<Entry>> {
        let entries = |wanted: fn(IpAddr, u8) -> Option<Vec<u8>>| {
            let found = self
                .prefixes
                .iter()
                .filter_map(|((address, length), role)| {
                    let key = wanted(*address, *length)?;
                    let role = self.inherited(*address, *length, *role);
                    Some((key, role.0.to_ne_bytes()))
                });
            Some(found.collect())
        };
        match map {
            "hosts4" => entries(|address, length| match address {
                IpAddr::V4(v4) if length == 32 => Some(v4.octets().to_vec()),
                _ => None,
            }),
            "hosts6" => entries(|address, length| match address {
                IpAddr::V6(v6) if length == 128 => Some(v6.octets().to_vec()),
                _ => None,
            }),
            "prefixes4" => entries(|address, length| match address {
                IpAddr::V4(v4) if length < 32 => Some(prefix_key(length, &v4.octets())),
                _ => None,
            }),
            "prefixes6" => entries(|address, length| match address {
                IpAddr::V6(v6) if length < 128 => Some(prefix_key(length, &v6.octets())),
                _ => None,
            }),
            "macs" => {
                let macs = self.macs.iter();
                Some(
                    macs.map(|(mac, role)| (mac.to_vec(), role.0.to_ne_bytes()))
                        .collect(),
                )
            }
            _ => None,
        }
    }

    /// `struct host_bits` of the entries of `hosts4` and `hosts6`.
    pub(super) fn host_bits(&self) -> Vec<u8> {
        let mut words = vec![0u64; (1 << c::HOST_BITS) / 64];
        let hosts = ["hosts4", "hosts6"].into_iter();
        for (key, _) in hosts.filter_map(|map| self.entries(map)).flatten() {
            let bit = host_bit(&key);
            words[bit / 64] |= 1 << (bit % 64);
        }
        words.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    /// The sets that the program has to search.
    pub(super) fn flags(&self) -> u32 {
        let sets = [
            ("hosts4", c::TAP_HOSTS4),
            ("hosts6", c::TAP_HOSTS6),
            ("prefixes4", c::TAP_PREFIXES4),
            ("prefixes6", c::TAP_PREFIXES6),
            ("macs", c::TAP_MACS),
        ];
        let used = sets.into_iter().filter(|(map, _)| {
            let entries = self.entries(map);
            entries.is_some_and(|entries| !entries.is_empty())
        });
        used.fold(0, |flags, (_, flag)| flags | flag)
    }
}

/// `struct prefix4`, `struct prefix6`.
fn prefix_key(length: u8, octets: &[u8]) -> Vec<u8> {
    let mut key = u32::from(length).to_ne_bytes().to_vec();
    key.extend(octets);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[(&str, Role)]) -> AddressSelection {
        let mut addresses = AddressSelection::default();
        for (text, role) in all {
            addresses.add_prefix(text.parse().unwrap(), *role);
        }
        addresses
    }

    #[test]
    fn a_longer_prefix_has_the_roles_of_those_around_it() {
        let addresses = addresses(&[
            ("10.0.0.0/8", Role::SOURCE),
            ("10.1.0.0/16", Role::DESTINATION),
            ("11.0.0.0/8", Role::DESTINATION),
            ("10.1.2.3/32", Role::DESTINATION),
        ]);
        let entries = addresses.entries("prefixes4").unwrap();
        let role = |first: [u8; 2]| {
            let found = entries.iter().find(|(key, _)| key[4..6] == first);
            u32::from_ne_bytes(found.unwrap().1)
        };
        assert_eq!((role([10, 0]), role([10, 1]), role([11, 0])), (1, 3, 2));
        assert_eq!(addresses.entries("hosts4").unwrap().len(), 1);
        assert_eq!(addresses.flags(), c::TAP_HOSTS4 | c::TAP_PREFIXES4);
    }

    #[test]
    fn each_host_has_a_bit_and_few_of_them_share_one() {
        let mut all = AddressSelection::default();
        for number in 0..5_000u32 {
            let v4 = std::net::Ipv4Addr::from(0x0a00_0000 + number * 7);
            let v6 = std::net::Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(number));
            for address in [IpAddr::from(v4), v6.into()] {
                let length = if address.is_ipv4() { 32 } else { 128 };
                let prefix = Prefix::holding(address, length).unwrap();
                all.add_prefix(prefix, Role::EITHER);
            }
        }
        let ones = |addresses: &AddressSelection| -> u32 {
            let bits = addresses.host_bits();
            bits.iter().map(|byte| byte.count_ones()).sum()
        };
        assert!((9_500..=10_000).contains(&ones(&all)));
        assert_eq!(ones(&addresses(&[("10.0.0.0/8", Role::EITHER)])), 0);
    }

    #[test]
    fn each_kind_of_address_has_its_set() {
        let mut all = addresses(&[("fd00::/8", Role::EITHER), ("::1/128", Role::SOURCE)]);
        assert_eq!(all.flags(), c::TAP_HOSTS6 | c::TAP_PREFIXES6);
        all.add_mac([2; 6], Role::SOURCE);
        all.add_mac([2; 6], Role::DESTINATION);
        let macs = all.entries("macs").unwrap();
        assert_eq!(macs, [(vec![2; 6], 3u32.to_ne_bytes())]);
        assert!(!all.is_empty() && AddressSelection::default().is_empty());
    }
}
