//! TCP accounting of one entry (`docs/accounting.md` section 4).

use crate::TcpUpdate;
use skua_packet::TcpSegment;

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

/// State of one entry; `[0]` is `lo`, `[1]` is `hi`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tcp {
    next_seq: [u32; 2],
    gap_ns: [u64; 2],
    retransmitted: [u32; 2],
    out_of_order: [u32; 2],
    zero_window: [u32; 2],
    /// When the last part of the handshake was seen.
    handshake_ns: u64,
    server_rtt_ns: u32,
    client_rtt_ns: u32,
    handshake: Handshake,
    has_next_seq: [bool; 2],
    flags: [u8; 2],
    lo_opened: Option<bool>,
}

impl Tcp {
    /// State of an entry whose first packet says (or not) who opened.
    pub(crate) fn opened_by(lo_opened: Option<bool>) -> Self {
        Self {
            lo_opened,
            ..Self::default()
        }
    }

    /// Whether the conversation is over: RST, or FIN from both sides.
    #[inline]
    pub(crate) fn closed(&self) -> bool {
        let [lo, hi] = self.flags;
        (lo | hi) & RST != 0 || lo & hi & FIN != 0
    }

    /// Accounts a segment sent by `side`.
    #[inline]
    pub(crate) fn segment(&mut self, side: usize, segment: &TcpSegment, now_ns: u64) {
        let flags = segment.flags;
        self.flags[side] |= flags;
        if segment.window == 0 && flags & (SYN | RST) == 0 {
            self.zero_window[side] = self.zero_window[side].saturating_add(1);
        }
        if self.handshake != Handshake::Done {
            self.handshake(side, flags, now_ns);
        }
        let control = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        if segment.payload_len != 0 || control != 0 {
            self.sequence(side, segment, control, now_ns);
        }
    }

    fn handshake(&mut self, side: usize, flags: u8, now_ns: u64) {
        // Saturates at 4.29 s, as in the kernel; 0 would mean unknown.
        let since = |then: u64| now_ns.saturating_sub(then).clamp(1, u32::MAX.into()) as u32;
        let lo = side == 0;
        match (flags & SYN != 0, flags & ACK != 0, self.handshake) {
            (true, false, Handshake::None) => {
                self.handshake = Handshake::Syn;
                self.handshake_ns = now_ns;
                self.lo_opened.get_or_insert(lo);
            }
            (true, true, Handshake::None) => {
                self.handshake = Handshake::SynAck;
                self.handshake_ns = now_ns;
                self.lo_opened.get_or_insert(!lo);
            }
            (true, true, Handshake::Syn) => {
                self.handshake = Handshake::SynAck;
                self.server_rtt_ns = since(self.handshake_ns);
                self.handshake_ns = now_ns;
            }
            (false, true, Handshake::SynAck) if flags & RST == 0 && self.lo_opened == Some(lo) => {
                self.handshake = Handshake::Done;
                self.client_rtt_ns = since(self.handshake_ns);
            }
            _ => {}
        }
    }

    /// A segment that takes room in the sequence space: `control` counts SYN and FIN.
    #[inline]
    fn sequence(&mut self, side: usize, segment: &TcpSegment, control: u32, now_ns: u64) {
        let end = segment
            .seq
            .wrapping_add(segment.payload_len)
            .wrapping_add(control);
        let next = self.next_seq[side];
        // Comparison modulo 2³²: the sign of the difference.
        let ahead = segment.seq.wrapping_sub(next).cast_signed();
        if !self.has_next_seq[side] || ahead == 0 {
            self.has_next_seq[side] = true;
            self.next_seq[side] = end;
            return;
        }
        if ahead > 0 {
            self.gap_ns[side] = now_ns;
            self.next_seq[side] = end;
            return;
        }
        let keep_alive = ahead == -1 && segment.payload_len <= 1 && control == 0;
        if !keep_alive {
            let gap = self.gap_ns[side];
            let counter = if gap != 0 && now_ns.saturating_sub(gap) < REORDERING_NS {
                &mut self.out_of_order[side]
            } else {
                &mut self.retransmitted[side]
            };
            *counter = counter.saturating_add(1);
        }
        if end.wrapping_sub(next).cast_signed() > 0 {
            self.next_seq[side] = end;
        }
    }

    /// What a drain yields; differences begin anew.
    pub(crate) fn drain(&mut self) -> TcpUpdate {
        TcpUpdate {
            flags: self.flags,
            retransmitted: std::mem::take(&mut self.retransmitted),
            out_of_order: std::mem::take(&mut self.out_of_order),
            zero_window: std::mem::take(&mut self.zero_window),
            server_rtt_ns: self.server_rtt_ns.into(),
            client_rtt_ns: self.client_rtt_ns.into(),
            lo_opened: self.lo_opened,
        }
    }
}
