//! TCP accounting of one entry (`docs/accounting.md` section 4).

use crate::{TcpUpdate, slab::Slab};
use skua_packet::TcpSegment;
use skua_record::TcpCounters;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// A late segment this long after a gap is a retransmission, not a reordering.
const REORDERING_NS: u64 = 3_000_000;

/// Which part of the handshake was seen last.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Handshake {
    #[default]
    None,
    Syn,
    SynAck,
    Done,
}

/// What every segment needs; `[0]` is `lo`, `[1]` is `hi`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tcp {
    next_seq: [u32; 2],
    flags: [u8; 2],
    /// Bit 0 for `lo`, 1 for `hi`: `next_seq` is known.
    has_next_seq: u8,
    handshake: Handshake,
}

/// What few segments need, kept apart so that the others do not fetch it into the cache.
#[derive(Clone, Copy, Default)]
pub(crate) struct Details {
    gap_ns: [u64; 2],
    /// When the last part of the handshake was seen.
    handshake_ns: u64,
    server_rtt_ns: u32,
    client_rtt_ns: u32,
    counters: TcpCounters,
}

/// Place of no details.
pub(crate) const NO_DETAILS: u32 = u32::MAX;

/// The details of an entry, made when they are needed for the first time.
pub(crate) struct DetailsOf<'a> {
    pub(crate) all: &'a mut Slab<Details>,
    pub(crate) place: &'a mut u32,
}

impl DetailsOf<'_> {
    fn get(&mut self) -> &mut Details {
        // There is room: no entry has more than one.
        if *self.place == NO_DETAILS
            && let Some(place) = self.all.insert(Details::default())
        {
            *self.place = place;
        }
        &mut self.all[*self.place]
    }
}

impl Tcp {
    /// Whether the conversation is over: RST, or FIN from both sides.
    #[inline]
    pub(crate) fn closed(&self) -> bool {
        let [lo, hi] = self.flags;
        (lo | hi) & RST != 0 || lo & hi & FIN != 0
    }

    /// Accounts a segment sent by `side` and finds the opener.
    #[inline]
    pub(crate) fn segment(
        &mut self,
        side: usize,
        segment: &TcpSegment,
        now_ns: u64,
        lo_opened: &mut Option<bool>,
        mut details: DetailsOf<'_>,
    ) {
        let flags = segment.flags;
        self.flags[side] |= flags;
        if segment.window == 0 && flags & (SYN | RST) == 0 {
            count(&mut details.get().counters.zero_window[side]);
        }
        if flags & SYN != 0 || self.handshake == Handshake::SynAck {
            let lo = side == 0;
            self.handshake(lo, flags, now_ns, lo_opened, details.get());
        }
        let control = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        if segment.payload_len == 0 && control == 0 {
            return;
        }
        if self.has_next_seq & 1 << side == 0 || segment.seq == self.next_seq[side] {
            self.has_next_seq |= 1 << side;
            self.next_seq[side] = end(segment, control);
        } else {
            self.out_of_sequence(side, segment, control, now_ns, details.get());
        }
    }

    fn handshake(
        &mut self,
        lo: bool,
        flags: u8,
        now_ns: u64,
        lo_opened: &mut Option<bool>,
        details: &mut Details,
    ) {
        // Saturates at 4.29 s, as in the kernel; 0 would mean unknown.
        let since = |then: u64| now_ns.saturating_sub(then).clamp(1, u32::MAX.into()) as u32;
        match (flags & SYN != 0, flags & ACK != 0, self.handshake) {
            (true, false, Handshake::None) => {
                self.handshake = Handshake::Syn;
                details.handshake_ns = now_ns;
                lo_opened.get_or_insert(lo);
            }
            (true, true, Handshake::None) => {
                self.handshake = Handshake::SynAck;
                details.handshake_ns = now_ns;
                lo_opened.get_or_insert(!lo);
            }
            (true, true, Handshake::Syn) => {
                self.handshake = Handshake::SynAck;
                details.server_rtt_ns = since(details.handshake_ns);
                details.handshake_ns = now_ns;
            }
            (false, true, Handshake::SynAck) if flags & RST == 0 && *lo_opened == Some(lo) => {
                self.handshake = Handshake::Done;
                details.client_rtt_ns = since(details.handshake_ns);
            }
            _ => {}
        }
    }

    /// A segment that takes room in the sequence space but does not start at `next_seq`; `control`
    /// counts SYN and FIN.
    fn out_of_sequence(
        &mut self,
        side: usize,
        segment: &TcpSegment,
        control: u32,
        now_ns: u64,
        details: &mut Details,
    ) {
        let next = self.next_seq[side];
        let end = end(segment, control);
        // Comparison modulo 2³²: the sign of the difference.
        let ahead = segment.seq.wrapping_sub(next).cast_signed();
        if ahead > 0 {
            details.gap_ns[side] = now_ns;
            self.next_seq[side] = end;
            return;
        }
        let keep_alive = ahead == -1 && segment.payload_len <= 1 && control == 0;
        if !keep_alive {
            let gap = details.gap_ns[side];
            count(if gap != 0 && now_ns.saturating_sub(gap) < REORDERING_NS {
                &mut details.counters.out_of_order[side]
            } else {
                &mut details.counters.retransmitted[side]
            });
        }
        if end.wrapping_sub(next).cast_signed() > 0 {
            self.next_seq[side] = end;
        }
    }

    /// Returns the details for a drain, and resets the differences.
    pub(crate) fn drain(&self, details: Option<&mut Details>) -> TcpUpdate {
        let mut update = TcpUpdate {
            flags: self.flags,
            ..TcpUpdate::default()
        };
        if let Some(details) = details {
            update.counters = std::mem::take(&mut details.counters);
            update.server_rtt_ns = details.server_rtt_ns.into();
            update.client_rtt_ns = details.client_rtt_ns.into();
        }
        update
    }
}

/// Sequence number after a segment.
#[inline]
fn end(segment: &TcpSegment, control: u32) -> u32 {
    segment
        .seq
        .wrapping_add(segment.payload_len)
        .wrapping_add(control)
}

fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}
