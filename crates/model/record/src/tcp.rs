//! Counters of TCP segments by side: one definition, of which records, queries, the lake, the history and the wire are made.

use serde::{Deserialize, Serialize};

/// Hands all counters to a macro, one after the other: field, name in records, name in Skydive's `TCPMetric`, and what
/// is counted, to be read after "segments of `a` ".
///
/// A new counter is a line here, and where its source counts it: `bpf/flow/` and `take_tcp` of `skua-kernel` for the
/// kernel's table, `tcp.rs` of `skua-flow` for that in user space.
#[macro_export]
macro_rules! for_each_tcp_counter {
    ($use:ident) => {
        $use! {
            retransmitted, "retransmitted", "SegmentRetransmitted", "that were retransmitted";
            out_of_order, "out_of_order", "SegmentOutOfOrder", "that arrived late, within 3 ms of the gap that they fill";
            zero_window, "zero_window", "ZeroWindow", "with a zero window: its receive buffer was full";
        }
    };
}

macro_rules! counters {
    ($($field:ident, $name:literal, $skydive:literal, $what:literal;)*) => {
        /// Segments by side, of flow records `[0]` of `lo` and `[1]` of `hi`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        pub struct TcpCounters {
            $(
                #[doc = concat!("Segments ", $what, ".")]
                pub $field: [u32; 2],
            )*
        }

        impl TcpCounters {
            /// How many there are.
            pub const COUNT: usize = [$($name),*].len();

            /// All, in the order of their definition.
            pub fn all(&self) -> [[u32; 2]; Self::COUNT] {
                [$(self.$field),*]
            }

            /// Of all, in the order of their definition.
            pub fn of([$($field),*]: [[u32; 2]; Self::COUNT]) -> Self {
                Self { $($field),* }
            }
        }
    };
}
for_each_tcp_counter!(counters);

impl TcpCounters {
    /// Each changed in the same way.
    pub fn map(&self, change: impl FnMut([u32; 2]) -> [u32; 2]) -> Self {
        Self::of(self.all().map(change))
    }

    /// Adds to each; what does not fit stays at the most.
    pub fn add(&mut self, more: &Self) {
        let mut more = more.all().into_iter();
        *self = self.map(|[lo, hi]| {
            let [more_lo, more_hi] = more.next().unwrap_or_default();
            [lo.saturating_add(more_lo), hi.saturating_add(more_hi)]
        });
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}
