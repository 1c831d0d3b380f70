//! Made of `bpf/flow/flow.h` by `tests/bindings.rs`: change those.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::AtomicU16;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;

pub const KIND_IPV4: u32 = 1;
pub const KIND_IPV6: u32 = 2;
pub const KIND_NETWORK: u32 = 3;
pub const KIND_ETHERNET: u32 = 4;
pub const KIND_TUNNEL_SHIFT: u32 = 3;
pub const SLOT_EMPTY: u32 = 0;
pub const SLOT_TOMB: u32 = 1;
pub const SLOT_BUSY: u32 = 2;
pub const SLOT_DYING: u32 = 4;
pub const SLOT_LIVE: u32 = 2147483648;
pub const SEEN_LO_INGRESS: u32 = 65536;
pub const SEEN_LO_EGRESS: u32 = 131072;
pub const SEEN_HI_INGRESS: u32 = 262144;
pub const SEEN_HI_EGRESS: u32 = 524288;
pub const SEEN_DIRECTIONS: u32 = 983040;
pub const SEEN_LO_FIRST: u32 = 1048576;
pub const SEEN_LO_OPENED: u32 = 2097152;
pub const SEEN_HI_OPENED: u32 = 4194304;
pub const SEEN_LO_SEQ: u32 = 8388608;
pub const SEEN_HI_SEQ: u32 = 16777216;
pub const SEEN_SYNACK: u32 = 33554432;
pub const SEEN_ACK: u32 = 67108864;
pub const SENT_PACKETS_SHIFT: u32 = 40;
pub const SENT_CARRY_PACKETS: u64 = 1152921504606846976;
pub const SENT_CARRY_BYTES: u64 = 274877906944;
pub const COUNTED_ANEW: u64 = 4611686018427387904;
pub const COLD_MAC: u64 = 281474976710655;
pub const COLD_TAG_SHIFT: u32 = 48;
pub const COLD_LABEL: u32 = 2147483648;
pub const COLD_LABELS: u32 = 8;
pub const COLD_RST_BY_HI: u32 = 2147483648;
pub const COLD_MS: u32 = 1073741824;
pub const ADDRESSES_SET: u32 = 1;
pub const ADDRESSES_GENERATION: u32 = 2;
pub const ADDRESSES_HAS_INCLUDE: u32 = 4;
pub const ADDRESS_KEY_HEAD: u32 = 32;
pub const PROBES: u32 = 128;
pub const PACKET_MOST: u32 = 65536;
pub const PACKET_FIRST: u32 = 1;
pub const PACKET_LIVE: u32 = 2;
pub const PACKET_HEAD: u32 = 4;
#[repr(C)]
pub struct FlowSlot {
    pub state: AtomicU32,
    pub hash_high: AtomicU32,
    pub print: AtomicU64,
    pub sent: [AtomicU64; 2],
    pub first: AtomicU64,
    pub seen: AtomicU32,
    pub last: AtomicU32,
    pub next_seq: [AtomicU32; 2],
    pub kept: AtomicU32,
    pub pad: AtomicU32,
}

#[repr(C)]
pub struct FlowCold {
    pub key: [AtomicU64; 7],
    pub parent: AtomicU64,
    pub link: [AtomicU64; 2],
    pub pair: [AtomicU16; 2],
    pub label: [AtomicU32; 2],
    pub tunnel_id: AtomicU32,
    pub moved: AtomicU32,
    pub fragmented: AtomicU32,
    pub rst_after: AtomicU32,
    pub skipped: [AtomicU32; 2],
    pub skipped_bytes: [AtomicU32; 2],
    pub no_syn: AtomicU8,
    pub ttl: [AtomicU8; 2],
    pub carries: AtomicU8,
    pub syn: AtomicU64,
    pub synack: AtomicU32,
    pub ack: AtomicU32,
    pub retransmitted: [AtomicU32; 2],
    pub out_of_order: [AtomicU32; 2],
    pub zero_window: [AtomicU32; 2],
    pub gap_us: [AtomicU32; 2],
    pub fin_after: [AtomicU32; 2],
    pub carried: [AtomicU32; 2],
}

#[repr(C)]
pub struct FlowEnded {
    pub slot: FlowSlot,
    pub cold: FlowCold,
}

#[repr(C)]
pub struct FlowControl {
    pub inserted: AtomicU64,
    pub woken: AtomicU64,
    pub ended: AtomicU64,
    pub refused: AtomicU64,
    pub ended_woken: AtomicU64,
    pub pad0: [AtomicU64; 3],
    pub freed: AtomicU64,
    pub wake_at: AtomicU64,
    pub address_set: AtomicU64,
    pub live: AtomicU64,
    pub ended_wake_at: AtomicU64,
    pub pad1: [AtomicU64; 3],
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct AddressKey {
    pub prefix_length: u32,
    pub network: u8,
    pub generation: u8,
    pub pad: [u8; 2],
    pub address: [u8; 16],
}

pub const CAUSE_TABLE_FULL_TCP: PointCause = 0;
pub const CAUSE_TABLE_FULL_UDP: PointCause = 1;
pub const CAUSE_TABLE_FULL_ICMP: PointCause = 2;
pub const CAUSE_TABLE_FULL_OTHER: PointCause = 3;
pub const CAUSE_FILTERED: PointCause = 4;
pub const CAUSE_ADDRESS_SET: PointCause = 5;
pub const CAUSE_SAMPLED_OUT: PointCause = 6;
pub const CAUSE_SELF: PointCause = 7;
pub const CAUSE_TRUNCATED: PointCause = 8;
pub const CAUSE_NO_DECODE: PointCause = 9;
pub const CAUSE_RING_FULL: PointCause = 10;
pub const CAUSE_NO_BUFFER: PointCause = 11;
pub const CAUSE_DEVICE_ERROR: PointCause = 12;
pub const NOTE_MALFORMED: PointCause = 13;
pub const NOTE_SEGMENTED: PointCause = 14;
pub const NOTE_TAG_BYTES: PointCause = 15;
pub const NOTE_CHILD_FULL: PointCause = 16;
pub const NOTE_RAW_LOST: PointCause = 17;
pub const NOTE_LIVE_LOST: PointCause = 18;
pub const NOTE_REUSE_MERGED: PointCause = 19;
pub const NOTE_HEAD_LIMIT: PointCause = 20;
pub const NOTE_HEAD_LOST: PointCause = 21;
pub const CAUSE_MAX: PointCause = 22;
pub type PointCause = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct PointKey {
    pub ifindex: u32,
    pub netns: u32,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct FlowSettings {
    pub hash_key: [u64; 8],
    pub print_key: [u64; 7],
    pub hash_zeros: u64,
    pub print_zeros: u64,
    pub slot_count: u32,
    pub most_entries: u32,
    pub sampling: u32,
    pub netns: u16,
    pub tunnels: u8,
    pub look_shift: u8,
    pub gso_size: u8,
    pub exclude_self: u8,
    pub addresses: u8,
    pub first_packets: u8,
    pub packet_bytes: u32,
    pub head_rate: u32,
    pub head_segments: u8,
    pub pad: [u8; 3],
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct PacketHead {
    pub key: [u64; 7],
    pub time: u64,
    pub length: u32,
    pub captured: u32,
    pub tag_protocol: u16,
    pub tag: u16,
    pub why: u8,
    pub index: u8,
    pub direction: u8,
    pub ethernet: u8,
}

crate::mapping::shared!(FlowSlot, FlowCold, FlowEnded, FlowControl);
crate::plain::plain!(AddressKey, PointKey, FlowSettings, PacketHead);
