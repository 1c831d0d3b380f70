//! The structs of `bpf/flow/flow.h`, reached as atomics where programs write at the same time.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use skua_flow::FlowKey;

use crate::mapping::Shared;

pub(crate) const SLOT_EMPTY: u32 = 0;
pub(crate) const SLOT_TOMB: u32 = 1;
pub(crate) const SLOT_BUSY: u32 = 2;
pub(crate) const SLOT_DYING: u32 = 4;
pub(crate) const SLOT_LIVE: u32 = 1 << 31;

pub(crate) const SEEN_LO_INGRESS: u32 = 1 << 16;
pub(crate) const SEEN_LO_FIRST: u32 = 1 << 20;
pub(crate) const SEEN_LO_OPENED: u32 = 1 << 21;
pub(crate) const SEEN_HI_OPENED: u32 = 1 << 22;

/// In each counter from when ports were used again until it is taken.
pub(crate) const COUNTED_ANEW: u64 = 1 << 62;

/// Slots that a program looks at before the table counts as full.
pub(crate) const PROBES: u32 = 128;

/// `struct flow_counters`.
#[repr(C)]
pub(crate) struct SharedCounters {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
}

/// `struct flow_slot`.
#[repr(C)]
pub(crate) struct Slot {
    pub state: AtomicU32,
    pub tunnel_id: AtomicU32,
    pub key: [AtomicU64; 7],
    pub sent: [SharedCounters; 2],
    pub first: AtomicU64,
    pub last: AtomicU64,
    pub seen: AtomicU32,
    pub kept: AtomicU32,
    pub pad: [AtomicU32; 2],
}

/// `struct flow_tcp`.
#[repr(C)]
pub(crate) struct TcpSlot {
    pub next_seq: [AtomicU32; 2],
    pub retransmitted: [AtomicU32; 2],
    pub out_of_order: [AtomicU32; 2],
    pub zero_window: [AtomicU32; 2],
    pub syn: AtomicU64,
    pub synack: AtomicU32,
    pub ack: AtomicU32,
    pub gap_us: [AtomicU32; 2],
    pub have_seq: [AtomicU8; 2],
    pub no_syn: AtomicU8,
    pub pad: [AtomicU8; 5],
}

/// `struct flow_ended`.
#[repr(C)]
pub(crate) struct Ended {
    pub slot: Slot,
    pub tcp: TcpSlot,
}

impl Ended {
    /// From a message of a program.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        (message.len() >= size_of::<Self>()).then(|| {
            // SAFETY: there are enough bytes, and every bit pattern is valid (all are integers).
            unsafe { message.as_ptr().cast::<Self>().read_unaligned() }
        })
    }
}

/// `struct flow_control`.
#[repr(C)]
pub(crate) struct Control {
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

// SAFETY: all fields are atomics, every bit pattern is valid.
unsafe impl Shared for Slot {}
// SAFETY: as above.
unsafe impl Shared for TcpSlot {}
// SAFETY: as above.
unsafe impl Shared for Control {}

const _: () = assert!(size_of::<Slot>() == 128);
const _: () = assert!(size_of::<TcpSlot>() == 64);
const _: () = assert!(size_of::<Control>() == 128);
const _: () = assert!(size_of::<Ended>() == 192);

/// `struct flow_settings`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Settings {
    pub hash_key: [u64; 8],
    pub slot_count: u32,
    pub most_entries: u32,
    pub sampling: u32,
    pub netns: u16,
    pub tunnels: u8,
    pub coarse_clock: u8,
    pub gso_size: u8,
    pub exclude_self: u8,
    pub addresses: u8,
    pub first_packets: u8,
    pub packet_bytes: u32,
}

const _: () = assert!(size_of::<Settings>() == 88);

impl Settings {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) without padding: all bytes are initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// The key's words as a key.
pub(crate) fn key(words: [u64; 7]) -> FlowKey {
    // SAFETY: both are 56 bytes of plain integers without padding, valid for any bit pattern.
    unsafe { std::mem::transmute::<[u64; 7], FlowKey>(words) }
}
