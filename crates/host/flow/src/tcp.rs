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
    /// As in [`TcpUpdate`].
    reply_ns: u32,
    syn_ttl: [u8; 2],
    syn_ns: [u64; 2],
    fin_ns: [u64; 2],
    rst_ns: [u64; 2],
    skipped: [u32; 2],
    skipped_bytes: [u32; 2],
    counters: TcpCounters,
}

/// Time from then to now; saturates at 4.29 s, as in the kernel; 0 would mean unknown.
fn since(then: u64, now_ns: u64) -> u32 {
    now_ns.saturating_sub(then).clamp(1, u32::MAX.into()) as u32
}

impl Details {
    /// Accounts a message of ICMP echo.
    pub(crate) fn echo(&mut self, request: bool, now_ns: u64) {
        if request && self.handshake_ns == 0 {
            self.handshake_ns = now_ns;
        } else if !request && self.handshake_ns != 0 {
            self.reply_ns = since(self.handshake_ns, now_ns);
            self.handshake_ns = 0;
        }
    }

    /// What a drain yields of ICMP echo.
    pub(crate) fn echo_update(&self) -> TcpUpdate {
        TcpUpdate {
            reply_ns: self.reply_ns.into(),
            ..TcpUpdate::default()
        }
    }
}

/// Place of no details.
pub(crate) const NO_DETAILS: u32 = u32::MAX;

/// The details of an entry, made when they are needed for the first time.
pub(crate) struct DetailsOf<'a> {
    pub(crate) all: &'a mut Slab<Details>,
    pub(crate) place: &'a mut u32,
}

impl DetailsOf<'_> {
    pub(crate) fn get(&mut self) -> &mut Details {
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

    /// Accounts a segment sent by `side` and finds the opener. Returns whether `side` sent a flag for the first time.
    #[inline]
    pub(crate) fn segment(
        &mut self,
        side: usize,
        segment: &TcpSegment,
        now_ns: u64,
        lo_opened: &mut Option<bool>,
        mut details: DetailsOf<'_>,
    ) -> bool {
        let flags = segment.flags;
        let new = flags & !self.flags[side] != 0;
        self.flags[side] |= flags;
        if segment.window == 0 && flags & (SYN | RST) == 0 {
            count(&mut details.get().counters.zero_window[side]);
        }
        if flags & (FIN | RST) != 0 {
            self.end(side, flags, now_ns, *lo_opened, details.get());
        }
        if flags & SYN != 0 || self.handshake == Handshake::SynAck {
            let details = details.get();
            if flags & SYN != 0 && details.syn_ttl[side] == 0 {
                details.syn_ttl[side] = segment.hop_limit;
            }
            self.handshake(side == 0, flags, now_ns, lo_opened, details);
        }
        let control = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        if segment.payload_len == 0 && control == 0 {
            return new;
        }
        if self.has_next_seq & 1 << side == 0 || segment.seq == self.next_seq[side] {
            self.has_next_seq |= 1 << side;
            self.next_seq[side] = end(segment, control);
        } else {
            self.out_of_sequence(side, segment, control, now_ns, details.get());
        }
        new
    }

    /// Notes the first FIN of a side, the first RST, and how long a SYN waited for that.
    fn end(
        &self,
        side: usize,
        flags: u8,
        now_ns: u64,
        lo_opened: Option<bool>,
        details: &mut Details,
    ) {
        if flags & FIN != 0 && details.fin_ns[side] == 0 {
            details.fin_ns[side] = now_ns;
        }
        if flags & RST == 0 {
            return;
        }
        if details.rst_ns == [0; 2] {
            details.rst_ns[side] = now_ns;
        }
        let answers = lo_opened == Some(side == 1);
        if self.handshake == Handshake::Syn && answers && details.reply_ns == 0 {
            details.reply_ns = since(details.handshake_ns, now_ns);
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
        let side = usize::from(!lo);
        match (flags & SYN != 0, flags & ACK != 0, self.handshake) {
            (true, false, Handshake::None) => {
                self.handshake = Handshake::Syn;
                details.handshake_ns = now_ns;
                lo_opened.get_or_insert(lo);
                details.syn_ns[side] = now_ns;
            }
            (true, true, Handshake::None) => {
                self.handshake = Handshake::SynAck;
                details.handshake_ns = now_ns;
                lo_opened.get_or_insert(!lo);
                details.syn_ns[side] = now_ns;
            }
            (true, true, Handshake::Syn) => {
                self.handshake = Handshake::SynAck;
                details.server_rtt_ns = since(details.handshake_ns, now_ns);
                details.reply_ns = 0;
                details.handshake_ns = now_ns;
                details.syn_ns[usize::from(*lo_opened == Some(true))] = now_ns;
            }
            (false, true, Handshake::SynAck) if flags & RST == 0 && *lo_opened == Some(lo) => {
                self.handshake = Handshake::Done;
                details.client_rtt_ns = since(details.handshake_ns, now_ns);
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
            count(&mut details.skipped[side]);
            let bytes = &mut details.skipped_bytes[side];
            *bytes = bytes.saturating_add(ahead.cast_unsigned());
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
            update.reply_ns = details.reply_ns.into();
            update.syn_ttl = details.syn_ttl;
            update.syn_ns = details.syn_ns;
            update.fin_ns = details.fin_ns;
            update.rst_ns = details.rst_ns;
            update.skipped = std::mem::take(&mut details.skipped);
            update.skipped_bytes = std::mem::take(&mut details.skipped_bytes).map(u64::from);
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
