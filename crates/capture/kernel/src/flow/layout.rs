//! The structs of `bpf/flow/flow.h`, some of them reached as atomics: programs write at the same time.

use std::sync::atomic::Ordering::Relaxed;

use skua_flow::FlowKey;

pub(crate) use crate::{
    bindings::flow::{
        COLD_LABEL, COLD_MAC, COLD_MS, COLD_RST_BY_HI, COLD_TAG_SHIFT, COUNTED_ANEW,
        FlowCold as ColdSlot, FlowControl as Control, FlowEnded as Ended, FlowSettings as Settings,
        FlowSlot as Slot, PROBES, SEEN_HI_OPENED, SEEN_LO_FIRST, SEEN_LO_INGRESS, SEEN_LO_OPENED,
        SENT_CARRY_BYTES, SENT_CARRY_PACKETS, SENT_PACKETS_SHIFT, SLOT_BUSY, SLOT_DYING,
        SLOT_EMPTY, SLOT_LIVE, SLOT_TOMB,
    },
    plain::Plain,
};

impl Ended {
    /// From a message of a program.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        (message.len() >= size_of::<Self>()).then(|| {
            // SAFETY: there are enough bytes, and every bit pattern is valid (all are integers).
            unsafe { message.as_ptr().cast::<Self>().read_unaligned() }
        })
    }
}

/// The key's words as a key.
pub(crate) fn key(words: [u64; 7]) -> FlowKey {
    // SAFETY: both are 56 bytes of plain integers without padding, valid for any bit pattern.
    unsafe { std::mem::transmute::<[u64; 7], FlowKey>(words) }
}

/// What the words of a key that mostly are 0 then add to a sum, as in `identify` of `bpf/flow/table.h`.
pub(crate) fn added_by_zeros(secret: &[u64]) -> u64 {
    [0, 2, 6].iter().fold(0, |sum: u64, word| {
        let secret = secret[*word];
        sum.wrapping_add((secret & 0xffff_ffff).wrapping_mul(secret >> 32))
    })
}

impl Slot {
    /// Stands for the key, as long as the slot has one: its place follows from the upper half.
    pub(crate) fn hash(&self) -> u64 {
        let print = self.print.load(Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        u64::from(self.hash_high.load(Relaxed)) << 32 | print >> 32
    }
}
