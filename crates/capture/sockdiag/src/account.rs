//! What the kernel's numbers mean: payload bytes without SYN and FIN, who opened, why it ended.
//!
//! For a destroyed socket the kernel reports neither its last state nor its error. Sequence numbers show
//! much of it: what was acknowledged or is in flight, less the payload that was sent, is how many of SYN
//! and FIN this side has sent.

use crate::record::Record;
use crate::tcp_info::TcpInfo;
use skua_socket::{End, Opener, SocketState, TcpMetrics};

/// How much is behind an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Certainty {
    /// It follows from numbers that the kernel took under the socket's lock.
    Exact,
    /// The numbers may have changed while they were read.
    Likely,
}

/// Who opened an open connection, from its numbers alone: the SYN of an active open is among the
/// acknowledged bytes, that of a passive one is not. Unknown before Linux 4.19.
pub fn opener_of_open(record: &Record) -> (Opener, Certainty) {
    let Some(info) = &record.info else {
        return (Opener::Unknown, Certainty::Likely);
    };
    let fin_sent = match record.state {
        SocketState::SynSent => return (Opener::Local, Certainty::Exact),
        SocketState::Established | SocketState::CloseWait => 0,
        // A FIN that waits behind unsent data has no place yet.
        SocketState::FinWait1 | SocketState::Closing | SocketState::LastAck => {
            u64::from(info.unacked > 0 && info.notsent_bytes == 0)
        }
        SocketState::FinWait2 => 1,
        _ => return (Opener::Unknown, Certainty::Likely),
    };
    let (in_flight, certainty) = if info.unacked == 0 {
        (0, Certainty::Exact)
    } else {
        let in_flight = record.wqueue.saturating_sub(info.notsent_bytes);
        (u64::from(in_flight), Certainty::Likely)
    };
    let syn = info
        .payload_sent_once()
        .and_then(|payload| (info.bytes_acked + in_flight).checked_sub(payload + fin_sent));
    let opener = match syn {
        Some(0) => Opener::Remote,
        Some(1) => Opener::Local,
        _ => Opener::Unknown,
    };
    (opener, certainty)
}

/// Metrics of an open connection; none for listening sockets and UDP. With an unknown opener
/// `bytes_sent` may be one too many.
pub fn metrics_of_open(record: &Record, opener: Opener) -> Option<TcpMetrics> {
    let info = record.info.as_ref()?;
    let fin_acked = match record.state {
        SocketState::Listen => return None,
        SocketState::FinWait2 | SocketState::TimeWait => 1,
        _ => 0,
    };
    let control = u64::from(opener == Opener::Local) + fin_acked;
    Some(metrics(
        info,
        control,
        u64::from(has_received_fin(record.state)),
    ))
}

/// Whether the other side's FIN has come, so that it is among the received bytes.
pub(crate) fn has_received_fin(state: SocketState) -> bool {
    matches!(
        state,
        SocketState::CloseWait
            | SocketState::LastAck
            | SocketState::Closing
            | SocketState::TimeWait
    )
}

fn metrics(info: &TcpInfo, sent_control: u64, received_control: u64) -> TcpMetrics {
    TcpMetrics {
        bytes_sent: info.bytes_acked.saturating_sub(sent_control),
        bytes_received: info.bytes_received.saturating_sub(received_control),
        bytes_retransmitted: info.bytes_retrans,
        segments_sent: u64::from(info.segs_out),
        segments_received: u64::from(info.segs_in),
        retransmits: info.total_retrans,
        lost: info.lost,
        srtt_us: info.rtt_us,
        rttvar_us: if info.rtt_us == 0 { 0 } else { info.rttvar_us },
        min_rtt_us: info.min_rtt_us.unwrap_or(0),
        cwnd: info.snd_cwnd,
        mss: info.snd_mss,
        delivery_rate: info.delivery_rate,
    }
}

/// What was known of a connection before it was destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Before {
    /// The opener, or the remote side because the local port is a listening one.
    pub opener: Opener,
    /// The last poll saw no listening socket by which it could have come in.
    pub no_listener: bool,
    /// State at the last poll.
    pub state: Option<SocketState>,
    /// How often the namespace sends a SYN again (`net.ipv4.tcp_syn_retries`).
    pub syn_retries: u8,
}

/// What is deduced of a connection that has been destroyed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ended {
    pub end: End,
    pub opener: Opener,
    pub state: SocketState,
    /// It was established once.
    pub established: bool,
    pub metrics: TcpMetrics,
}

/// Deduces how a destroyed TCP connection ended.
pub(crate) fn ended(record: &Record, info: &TcpInfo, before: Before) -> Ended {
    let in_flight = u64::from(record.wqueue.saturating_sub(info.notsent_bytes));
    let all_acked = record.wqueue == 0;
    // SYN and FIN of this side that were sent: 0 to 2, or not known.
    let control = info
        .payload_sent_once()
        .and_then(|payload| (info.bytes_acked + in_flight).checked_sub(payload))
        .filter(|control| *control <= 2);

    // A SYN without answer: in flight alone, and nothing measured.
    let established = !(before.opener != Opener::Remote
        && info.bytes_acked == 0
        && info.bytes_received == 0
        && info.min_rtt_us.is_none()
        && record.wqueue > 0
        && control.is_none_or(|control| control == 1));
    let opener = match (before.opener, control) {
        (Opener::Unknown, _) if !established => Opener::Local,
        (Opener::Unknown, Some(0)) => Opener::Remote,
        (Opener::Unknown, Some(2)) => Opener::Local,
        // A SYN or a FIN: an incoming connection would most likely have had a listening socket.
        (Opener::Unknown, Some(1)) if before.no_listener => Opener::Local,
        (known, _) => known,
    };
    let syn = match opener {
        Opener::Local => Some(1),
        Opener::Remote => Some(0),
        Opener::Unknown => None,
    };
    let fin_sent = match (control, syn) {
        (Some(control), Some(syn)) => control > syn,
        // Most connections end in order.
        _ => all_acked,
    };
    let end = if established {
        end_of_established(record, info, fin_sent)
    } else if info.segs_in > 0 {
        End::Refused
    } else if info.retransmits > 0 && info.retransmits >= before.syn_retries {
        End::TimedOut
    } else {
        End::Closed
    };
    let sent_control = if all_acked {
        control.unwrap_or(syn.unwrap_or(0) + u64::from(fin_sent))
    } else {
        syn.unwrap_or(0)
    };
    // The kernel does not report whether a FIN is among the received bytes. After an orderly end it nearly
    // always is.
    let fin_received = before.state.is_some_and(has_received_fin) || end == End::Closed;
    Ended {
        end,
        opener,
        state: before.state.unwrap_or(if established {
            SocketState::Established
        } else {
            SocketState::SynSent
        }),
        established,
        metrics: metrics(info, sent_control, u64::from(fin_received)),
    }
}

fn end_of_established(record: &Record, info: &TcpInfo, fin_sent: bool) -> End {
    let timed_out = info.probes > 0 || (record.wqueue > 0 && info.retransmits > 0);
    match fin_sent {
        true if record.wqueue == 0 => End::Closed,
        _ if timed_out => End::TimedOut,
        // Closed with unread data: the kernel sends a RST in place of a FIN.
        false if record.rqueue > 0 => End::ResetLocal,
        _ => End::ResetRemote,
    }
}
