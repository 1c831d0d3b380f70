//! VLANs of bridge ports.

use crate::attribute::{attribute, attributes, read_u16};
use std::collections::BTreeMap;

const AF_BRIDGE: u8 = 7;
// linux/if_link.h, linux/if_bridge.h
const IFLA_AF_SPEC: u16 = 26;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
const PVID: u16 = 1 << 1;
const UNTAGGED: u16 = 1 << 2;
const RANGE_BEGIN: u16 = 1 << 3;
const RANGE_END: u16 = 1 << 4;
/// The largest VLAN.
const LAST: u16 = 4094;

/// A VLAN of a bridge port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortVlan {
    /// Its number.
    pub id: u16,
    /// Untagged ingress packets belong to this VLAN.
    pub pvid: bool,
    /// Egress packets of this VLAN are untagged.
    pub untagged: bool,
}

/// Decodes the payload of an RTM_NEWLINK of bridges: index of the port and its VLANs; these are none
/// when the message does not speak of VLANs. None for messages that are not of bridges.
pub(crate) fn decode(payload: &[u8]) -> Option<(u32, Option<Vec<PortVlan>>)> {
    let (head, rest) = payload.split_first_chunk::<16>()?;
    if head[0] != AF_BRIDGE {
        return None;
    }
    let ifindex = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    Some((ifindex, attribute(rest, IFLA_AF_SPEC).map(vlans)))
}

fn vlans(spec: &[u8]) -> Vec<PortVlan> {
    // By number: the number of VLANs is bounded, however many ranges a message has.
    let mut vlans = BTreeMap::new();
    let mut first = None;
    for (kind, value) in attributes(spec) {
        let (Some(flags), Some(id)) = (read_u16(value), value.get(2..).and_then(read_u16)) else {
            continue;
        };
        if kind != IFLA_BRIDGE_VLAN_INFO || id > LAST {
            continue;
        }
        if flags & RANGE_BEGIN != 0 {
            first = Some(id);
            continue;
        }
        let from = match flags & RANGE_END {
            0 => id,
            _ => first.take().unwrap_or(id),
        };
        vlans.extend((from..=id).map(|id| {
            let vlan = PortVlan {
                id,
                pvid: flags & PVID != 0,
                untagged: flags & UNTAGGED != 0,
            };
            (id, vlan)
        }));
    }
    vlans.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    fn message(infos: &[(u16, u16)]) -> Attributes {
        let spec = infos
            .iter()
            .fold(Attributes::default(), |all, (flags, id)| {
                let value = [flags.to_ne_bytes(), id.to_ne_bytes()].concat();
                all.with(IFLA_BRIDGE_VLAN_INFO, &value)
            });
        let mut head = [0; 16];
        head[0] = AF_BRIDGE;
        head[4] = 5;
        Attributes::after(&head).nest(IFLA_AF_SPEC, spec)
    }

    #[test]
    fn ranges_are_written_out() {
        let message = message(&[(PVID | UNTAGGED, 1), (RANGE_BEGIN, 10), (RANGE_END, 12)]);
        let (port, vlans) = decode(message.bytes()).unwrap();
        let vlans = vlans.unwrap();
        assert_eq!(port, 5);
        let ids: Vec<u16> = vlans.iter().map(|vlan| vlan.id).collect();
        assert_eq!(ids, [1, 10, 11, 12]);
        assert!(vlans[0].pvid && vlans[0].untagged && !vlans[1].untagged);
    }

    #[test]
    fn many_ranges_cannot_make_more_than_all_vlans() {
        let wide: Vec<_> = (0..200)
            .flat_map(|_| [(RANGE_BEGIN, 0), (RANGE_END, LAST)])
            .collect();
        let (_, vlans) = decode(message(&wide).bytes()).unwrap();
        assert_eq!(vlans.unwrap().len(), usize::from(LAST) + 1);
    }
}
