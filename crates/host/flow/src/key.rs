//! The flow key: what makes two packets part of the same conversation.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use skua_packet::{ETHERTYPE_ARP, Network, Tunnel, VLAN_PRESENT};

/// Key of a flow; the same 56 bytes as `struct flow_key` in `bpf/flow/flow.h`
/// (`docs/accounting.md` section 1 describes each field).
#[repr(C)]
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
pub struct FlowKey {
    /// Lower endpoint address, IPv4 as `::ffff:a.b.c.d`, MAC in the last 6 bytes.
    pub lo: [u8; 16],
    /// Higher endpoint address.
    pub hi: [u8; 16],
    /// Port of `lo`, network byte order; ICMP: type and code.
    pub lo_port: [u8; 2],
    /// Port of `hi`, network byte order; ICMP: type and code.
    pub hi_port: [u8; 2],
    /// Interface index.
    pub ifindex: u32,
    /// The agent's number of the network namespace, 0 its own.
    pub netns: u16,
    /// Outer and inner VLAN: 0 none, else `0x1000 | VID`.
    pub vlan: [u16; 2],
    /// IP protocol, 0 without IP.
    pub proto: u8,
    /// Network layer, link layer and tunnel kind, see the accessors.
    pub kind: u8,
    /// EtherType without IP, identifier of ICMP queries, else 0.
    pub detail: u16,
    /// Which tunnel the flow is in, [`FlowKey::tunnel_hash`], exclusive-or its third and fourth VLAN tag; 0 without both.
    pub tunnel_hash: [u8; 6],
}

const _: () = assert!(size_of::<FlowKey>() == 56);

/// Odd factors of the hash without a secret: 64 fractional bits of the square roots of the first eight
/// primes, made odd.
const HASH_FACTORS: [u64; 8] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Secret of [`FlowKey::hash64`], the same words as `flow_settings.hash_key` in `bpf/flow/flow.h`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u64; 8]);

impl HashKey {
    /// Eight words from a secret number (SplitMix64), the last one odd.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut words = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        });
        words[7] |= 1;
        Self(words)
    }

    /// The words.
    pub fn words(&self) -> [u64; 8] {
        self.0
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey")
    }
}

/// Seed of identifiers that must be the same on every host.
const TRACKING_SEED: u64 = 0x5ba1_1a5c_0de5_eeda;

/// Tunnels in the order of their numbers, from 1 on, as `enum flow_tunnel` in `bpf/flow/flow.h` has them.
const TUNNELS: [Tunnel; 6] = [
    Tunnel::Vxlan,
    Tunnel::Geneve,
    Tunnel::Gre,
    Tunnel::IpInIp,
    Tunnel::Mpls,
    Tunnel::Erspan,
];

/// The tunnel with a number, none for 0.
pub(crate) fn numbered_tunnel(number: u8) -> Option<Tunnel> {
    let place = usize::from(number).checked_sub(1)?;
    TUNNELS.get(place).copied()
}

/// The number of a tunnel.
pub(crate) fn tunnel_number(tunnel: Tunnel) -> u8 {
    match tunnel {
        Tunnel::Vxlan => 1,
        Tunnel::Geneve => 2,
        Tunnel::Gre => 3,
        Tunnel::IpInIp => 4,
        Tunnel::Mpls => 5,
        Tunnel::Erspan => 6,
    }
}

/// `kind`: has an Ethernet header.
pub const KIND_ETHERNET: u8 = 1 << 2;
/// `kind`: shift of the tunnel number.
pub const KIND_TUNNEL_SHIFT: u8 = 3;

impl FlowKey {
    /// Network layer.
    pub fn network(&self) -> Network {
        match self.kind & 3 {
            1 => Network::V4,
            2 => Network::V6,
            _ => Network::None,
        }
    }

    /// Whether the packets have an Ethernet header.
    pub fn ethernet(&self) -> bool {
        self.kind & KIND_ETHERNET != 0
    }

    /// The tunnel that the flow was found inside.
    pub fn tunnel(&self) -> Option<Tunnel> {
        numbered_tunnel(self.kind >> KIND_TUNNEL_SHIFT & 7)
    }

    /// VLAN identifiers, outermost first.
    pub fn vlan_ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.vlan
            .iter()
            .filter(|v| **v & VLAN_PRESENT != 0)
            .map(|v| v & 0x0fff)
    }

    /// Whether the protocol has ports (TCP, UDP, UDP-Lite, SCTP, DCCP).
    pub fn has_ports(&self) -> bool {
        matches!(self.proto, 6 | 17 | 33 | 132 | 136) && self.network() != Network::None
    }

    /// Whether this is ICMP in IPv4 or ICMPv6 in IPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(
            (self.network(), self.proto),
            (Network::V4, 1) | (Network::V6, 58)
        )
    }

    /// IP address of an endpoint as stored, none for MAC addresses.
    pub fn ip(&self, address: &[u8; 16]) -> Option<IpAddr> {
        match self.network() {
            Network::None => None,
            Network::V4 => {
                Some(Ipv4Addr::new(address[12], address[13], address[14], address[15]).into())
            }
            Network::V6 => Some(Ipv6Addr::from(*address).into()),
        }
    }
}

impl FlowKey {
    /// 64-bit hash of the key under a secret, the same function as `flow_hash` in
    /// `bpf/flow/table.h`: it picks the slot and names flows and tunnels.
    ///
    /// The sum of products is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, 1999) over the halves of
    /// each word: without the secret, the probability of finding two keys with one sum is at most 2^-31,
    /// for any keys. The steps after it are one to one. The products do not depend on one another, so that
    /// a CPU computes them at the same time.
    #[inline]
    pub fn hash64(&self, HashKey(secret): &HashKey) -> u64 {
        let mut hash = 0u64;
        for (word, secret) in self.words().into_iter().zip(secret) {
            let sum = word.wrapping_add(*secret);
            hash = hash.wrapping_add((sum & 0xffff_ffff).wrapping_mul(sum >> 32));
        }
        hash = hash.wrapping_mul(secret[7]);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(HASH_FACTORS[7]);
        hash ^ hash >> 29
    }

    /// Hash without a secret, the same everywhere.
    fn public_hash(&self, seed: u64) -> u64 {
        let mut hash = seed;
        for (word, factor) in self.words().into_iter().zip(HASH_FACTORS) {
            let mixed = word ^ seed;
            hash = hash.wrapping_add((mixed ^ mixed >> 32).wrapping_mul(factor));
        }
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(HASH_FACTORS[7]);
        hash ^ hash >> 29
    }

    /// The key as seven little-endian words, as the kernel compares and hashes it.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 7] {
        let halves = |address: &[u8; 16]| {
            let whole = u128::from_le_bytes(*address);
            [whole as u64, (whole >> 64) as u64]
        };
        let [lo, lo_end] = halves(&self.lo);
        let [hi, hi_end] = halves(&self.hi);
        let p = self.tunnel_hash;
        [
            lo,
            lo_end,
            hi,
            hi_end,
            u64::from(u16::from_le_bytes(self.lo_port))
                | u64::from(u16::from_le_bytes(self.hi_port)) << 16
                | u64::from(self.ifindex) << 32,
            u64::from(self.netns)
                | u64::from(self.vlan[0]) << 16
                | u64::from(self.vlan[1]) << 32
                | u64::from(self.proto) << 48
                | u64::from(self.kind) << 56,
            u64::from_le_bytes([0, 0, p[0], p[1], p[2], p[3], p[4], p[5]]) | u64::from(self.detail),
        ]
    }

    /// Whether [`FlowKey::words`] are these. One after the other: what was just made up is still in
    /// registers, from where a comparison of bytes would have to write it to memory first.
    #[inline]
    pub(crate) fn is(&self, words: [u64; 7]) -> bool {
        let pairs = self.words().into_iter().zip(words);
        pairs.fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }

    /// Identifier of this flow as a parent: the low 48 bits of its hash, never 0.
    pub fn id48(&self, secret: &HashKey) -> u64 {
        match self.hash64(secret) & 0xffff_ffff_ffff {
            0 => 1,
            id => id,
        }
    }

    /// Identifier of the conversation, wherever and however it is captured: the same at each
    /// interface, with and without VLAN tags, link-layer header or a tunnel around it.
    pub fn tracking_id(&self) -> u64 {
        self.anywhere().public_hash(TRACKING_SEED)
    }

    /// As [`tracking_id`](Self::tracking_id), by the network layer and what is above it (protocol, ports, identifier of
    /// ICMP) alone, whatever tells flows apart below; none without IP.
    pub fn l3_tracking_id(&self) -> Option<u64> {
        let has_ip = self.network() != Network::None;
        has_ip.then(|| self.anywhere().public_hash(TRACKING_SEED))
    }

    /// The key without what depends on where it was captured.
    fn anywhere(&self) -> Self {
        Self {
            ifindex: 0,
            netns: 0,
            vlan: [0; 2],
            // Without IP the EtherType alone says what it is.
            kind: self.kind & 3,
            tunnel_hash: [0; 6],
            ..*self
        }
    }

    /// The hash of the tunnel that a flow found inside this one is in: of this key, and `tunnel_id` (VNI, GRE key,
    /// session). Where UDP carries the tunnel ports do not count: the sender chooses the source port by what is inside, so
    /// that it differs by direction (RFC 7348 section 5, RFC 8926 section 3.3, RFC 7510 section 3). Nor do labels of MPLS:
    /// each direction has its own.
    pub fn tunnel_hash(&self, secret: &HashKey, tunnel: Tunnel, tunnel_id: u32) -> [u8; 6] {
        let outer = Self {
            lo_port: [0; 2],
            hi_port: [0; 2],
            ..*self
        };
        let mixed = match tunnel {
            Tunnel::Mpls => 0,
            _ => mix48(tunnel_id),
        };
        let hash = outer.id48(secret) ^ mixed;
        let [a, b, c, d, e, f, ..] = hash.to_le_bytes();
        [a, b, c, d, e, f]
    }
}

/// Distinguishes the keys of packets by their third and fourth VLAN tag.
pub(crate) fn mix_in(tunnel_hash: [u8; 6], tags: [u16; 2]) -> [u8; 6] {
    let [third, fourth] = tags.map(u32::from);
    let mixed = mix48(third | fourth << 16).to_le_bytes();
    std::array::from_fn(|at| tunnel_hash[at] ^ mixed[at])
}

/// Spreads a tunnel identifier over 48 bits.
fn mix48(tunnel_id: u32) -> u64 {
    u64::from(tunnel_id).wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff_ffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// 65,536 keys between IPv6 addresses: two words of an address vary alike, in the top bits and
    /// where a shift by half a word would take these back out. A sum of products with fixed odd
    /// factors has few values for them, whatever its seed.
    fn crafted() -> impl Iterator<Item = FlowKey> {
        (0..=u16::MAX).map(|number| {
            let spread = |byte: u8| {
                let word = u64::from(byte) << 56 | u64::from(byte) << 24;
                let [a, b] = [word, word | 0x20].map(u64::to_le_bytes);
                let mut address = [0; 16];
                address[..8].copy_from_slice(&a);
                address[8..].copy_from_slice(&b);
                address
            };
            let [a, b] = number.to_le_bytes();
            FlowKey {
                lo: spread(a),
                hi: spread(b),
                proto: 17,
                kind: 2,
                ..FlowKey::default()
            }
        })
    }

    #[test]
    fn crafted_keys_collide_no_more_than_random_ones() {
        for seed in [0, 1, 7, 0x0123_4567_89ab_cdef, u64::MAX] {
            let public: HashSet<_> = crafted().map(|key| key.public_hash(seed)).collect();
            assert!(public.len() < 4096, "not crafted: {}", public.len());
            let secret = HashKey::new(seed);
            // Half a pair of 65,536 random numbers of 32 bits is alike.
            for half in [0, 32] {
                let hashes: HashSet<_> = crafted()
                    .map(|key| (key.hash64(&secret) >> half) as u32)
                    .collect();
                assert!(hashes.len() > 65_500, "{seed:x}: {}", hashes.len());
            }
            // And of 131,072 first slots four tenths are taken.
            let slots: HashSet<_> = crafted().map(|key| key.hash64(&secret) >> 47).collect();
            assert!(slots.len() > 48_000, "{seed:x}: {}", slots.len());
        }
    }
}
