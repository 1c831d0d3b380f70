//! The kernel's numbers in words, those that Skydive shows where it does.

use skua_topology::Value;

/// Bits of IFF_… (linux/if.h).
const LINK_FLAGS: [(u32, &str); 11] = [
    (0x1, "UP"),
    (0x2, "BROADCAST"),
    (0x8, "LOOPBACK"),
    (0x10, "POINTTOPOINT"),
    (0x40, "RUNNING"),
    (0x80, "NOARP"),
    (0x100, "PROMISC"),
    (0x200, "ALLMULTI"),
    (0x1000, "MULTICAST"),
    (0x1_0000, "LOWER_UP"),
    (0x2_0000, "DORMANT"),
];

/// Bits of NUD_… (linux/neighbour.h).
const NEIGHBOUR_STATES: [(u32, &str); 8] = [
    (0x01, "NUD_INCOMPLETE"),
    (0x02, "NUD_REACHABLE"),
    (0x04, "NUD_STALE"),
    (0x08, "NUD_DELAY"),
    (0x10, "NUD_PROBE"),
    (0x20, "NUD_FAILED"),
    (0x40, "NUD_NOARP"),
    (0x80, "NUD_PERMANENT"),
];

/// Bits of NTF_… (linux/neighbour.h).
const NEIGHBOUR_FLAGS: [(u32, &str); 8] = [
    (0x01, "NTF_USE"),
    (0x02, "NTF_SELF"),
    (0x04, "NTF_MASTER"),
    (0x08, "NTF_PROXY"),
    (0x10, "NTF_EXT_LEARNED"),
    (0x20, "NTF_OFFLOADED"),
    (0x40, "NTF_STICKY"),
    (0x80, "NTF_ROUTER"),
];

fn words(names: &[(u32, &'static str)], bits: u32) -> Value {
    let set = names.iter().filter(|(bit, _)| bits & bit != 0);
    set.map(|(_, name)| Value::from(*name)).collect()
}

/// IFF_… as a list.
pub(super) fn link_flags(bits: u32) -> Value {
    words(&LINK_FLAGS, bits)
}

/// NUD_… as a list.
pub(super) fn neighbour_state(bits: u16) -> Value {
    words(&NEIGHBOUR_STATES, bits.into())
}

/// NTF_… as a list.
pub(super) fn neighbour_flags(bits: u8) -> Value {
    words(&NEIGHBOUR_FLAGS, bits.into())
}

/// IF_OPER_… (linux/if.h).
pub(super) fn operational_state(state: u8) -> &'static str {
    match state {
        1 => "NOT-PRESENT",
        2 => "DOWN",
        3 => "LOWER-LAYER-DOWN",
        4 => "TESTING",
        5 => "DORMANT",
        6 => "UP",
        _ => "UNKNOWN",
    }
}

/// ARPHRD_… (linux/if_arp.h), as iproute2 says them.
pub(super) fn encapsulation(arphrd: u16) -> String {
    let name = match arphrd {
        0 => "netrom",
        1 => "ether",
        24 => "eui64",
        32 => "infiniband",
        256 => "slip",
        280 => "can",
        512 => "ppp",
        513 => "hdlc",
        519 => "rawip",
        768 => "ipip",
        769 => "tunnel6",
        772 => "loopback",
        774 => "fddi",
        776 => "sit",
        778 => "gre",
        801 => "ieee802.11",
        802 => "ieee802.11/prism",
        803 => "ieee802.11/radiotap",
        804 => "ieee802.15.4",
        820 => "phonet",
        822 => "ip6gre",
        823 => "gre6",
        824 => "netlink",
        825 => "6lowpan",
        0xfffe => "none",
        0xffff => "void",
        other => return format!("[{other}]"),
    };
    name.to_owned()
}

/// Whether the hardware address of this link layer is an IP address, as that of tunnels is.
pub(super) fn addressed_by_ip(arphrd: u16) -> bool {
    matches!(arphrd, 768 | 769 | 776 | 778 | 823)
}

/// RTN_… (linux/rtnetlink.h); none of plain unicast routes.
pub(super) fn route_kind(kind: u8) -> Option<&'static str> {
    Some(match kind {
        2 => "local",
        3 => "broadcast",
        4 => "anycast",
        5 => "multicast",
        6 => "blackhole",
        7 => "unreachable",
        8 => "prohibit",
        9 => "throw",
        10 => "nat",
        _ => return None,
    })
}

/// Bytes in hexadecimal with colons between.
pub(super) fn mac(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            text.push(':');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}
