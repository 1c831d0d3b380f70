//! The structs of `bpf/flow/flow.h`, some of them reached as atomics: programs write at the same time.

use skua_flow::FlowKey;

pub(crate) use crate::{
    bindings::flow::{
        COLD_LABEL, COLD_MAC, COLD_MS, COLD_RST_BY_HI, COLD_TAG_SHIFT, COUNTED_ANEW,
        FlowCold as ColdSlot, FlowControl as Control, FlowEnded as Ended, FlowSettings as Settings,
        FlowSlot as Slot, FlowTcp as TcpSlot, PROBES, SEEN_HI_OPENED, SEEN_LO_FIRST,
        SEEN_LO_INGRESS, SEEN_LO_OPENED, SLOT_BUSY, SLOT_DYING, SLOT_EMPTY, SLOT_LIVE, SLOT_TOMB,
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
