//! `struct tcp_info` (linux/tcp.h). It only ever grew at its end: what a kernel does not send is
//! none or 0.

/// Of `struct tcp_info` what is used here, in its units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Retransmissions of the oldest segment in a row without an answer.
    pub retransmits: u8,
    /// Unanswered window or keep-alive probes.
    pub probes: u8,
    /// Maximum segment size for sending, bytes.
    pub snd_mss: u32,
    /// Segments in flight.
    pub unacked: u32,
    /// Segments held for lost.
    pub lost: u32,
    /// Time since data was sent last, or since it was established, ms.
    pub last_data_sent_ms: u32,
    /// Time since data was received last, or since it was established, ms.
    pub last_data_recv_ms: u32,
    /// Smoothed round-trip time, µs; 0: no sample.
    pub rtt_us: u32,
    /// Its mean deviation, µs; without a sample 250,000, its start value.
    pub rttvar_us: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Segments sent again since the start.
    pub total_retrans: u32,
    /// Sequence numbers acknowledged by the other side: SYN and FIN count.
    pub bytes_acked: u64,
    /// Sequence numbers received in order: FIN counts, SYN does not.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Sequence numbers written but not sent yet.
    pub notsent_bytes: u32,
    /// Smallest round-trip time, µs; none: no sample.
    pub min_rtt_us: Option<u32>,
    /// Delivery rate, bytes per second.
    pub delivery_rate: u64,
    /// Payload bytes sent, those sent again too (Linux 4.19).
    pub bytes_sent: Option<u64>,
    /// Payload bytes sent again (Linux 4.19).
    pub bytes_retrans: u64,
}

/// Up to `tcpi_total_retrans`: what every kernel since 2.6 sends.
const LEAST_BYTES: usize = 104;

impl TcpInfo {
    /// Reads it; none when it is shorter than any kernel's.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < LEAST_BYTES {
            return None;
        }
        let opt32 = |at: usize| {
            let value = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_ne_bytes(value))
        };
        let opt64 = |at: usize| {
            let value = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_ne_bytes(value))
        };
        let u32_at = |at| opt32(at).unwrap_or(0);
        let u64_at = |at| opt64(at).unwrap_or(0);
        Some(Self {
            retransmits: bytes.get(2).copied().unwrap_or(0),
            probes: bytes.get(3).copied().unwrap_or(0),
            snd_mss: u32_at(16),
            unacked: u32_at(24),
            lost: u32_at(32),
            last_data_sent_ms: u32_at(44),
            last_data_recv_ms: u32_at(52),
            rtt_us: u32_at(68),
            rttvar_us: u32_at(72),
            snd_cwnd: u32_at(80),
            total_retrans: u32_at(100),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            segs_out: u32_at(136),
            segs_in: u32_at(140),
            notsent_bytes: u32_at(144),
            min_rtt_us: opt32(148).filter(|us| *us != u32::MAX),
            delivery_rate: u64_at(160),
            bytes_sent: opt64(200).filter(|_| bytes.len() >= 216),
            bytes_retrans: u64_at(208),
        })
    }

    /// Payload bytes sent at least once; none where the kernel does not say.
    pub(crate) fn payload_sent_once(&self) -> Option<u64> {
        self.bytes_sent?.checked_sub(self.bytes_retrans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As long as the newest kernel's, each byte its place.
    fn whole() -> Vec<u8> {
        (0..=255).collect()
    }

    fn at<const N: usize>(place: u8) -> [u8; N] {
        std::array::from_fn(|n| place + n as u8)
    }

    #[test]
    fn fields_lie_where_the_kernel_puts_them() {
        // offsetof() of struct tcp_info in linux/tcp.h.
        let info = TcpInfo::parse(&whole()).unwrap();
        assert_eq!((info.retransmits, info.probes), (2, 3));
        assert_eq!(info.snd_mss, u32::from_ne_bytes(at(16)));
        assert_eq!(info.unacked, u32::from_ne_bytes(at(24)));
        assert_eq!(info.lost, u32::from_ne_bytes(at(32)));
        assert_eq!(info.last_data_sent_ms, u32::from_ne_bytes(at(44)));
        assert_eq!(info.last_data_recv_ms, u32::from_ne_bytes(at(52)));
        assert_eq!(info.rtt_us, u32::from_ne_bytes(at(68)));
        assert_eq!(info.rttvar_us, u32::from_ne_bytes(at(72)));
        assert_eq!(info.snd_cwnd, u32::from_ne_bytes(at(80)));
        assert_eq!(info.total_retrans, u32::from_ne_bytes(at(100)));
        assert_eq!(info.bytes_acked, u64::from_ne_bytes(at(120)));
        assert_eq!(info.bytes_received, u64::from_ne_bytes(at(128)));
        assert_eq!(info.segs_out, u32::from_ne_bytes(at(136)));
        assert_eq!(info.segs_in, u32::from_ne_bytes(at(140)));
        assert_eq!(info.notsent_bytes, u32::from_ne_bytes(at(144)));
        assert_eq!(info.min_rtt_us, Some(u32::from_ne_bytes(at(148))));
        assert_eq!(info.delivery_rate, u64::from_ne_bytes(at(160)));
        assert_eq!(info.bytes_sent, Some(u64::from_ne_bytes(at(200))));
        assert_eq!(info.bytes_retrans, u64::from_ne_bytes(at(208)));
    }

    #[test]
    fn shorter_ones_of_older_kernels_are_read() {
        let whole = whole();
        for length in 0..LEAST_BYTES {
            assert_eq!(TcpInfo::parse(&whole[..length]), None);
        }
        let full = TcpInfo::parse(&whole).unwrap();
        // 4.9 and 4.15, 4.18, and the first that says payload bytes (4.19), 5.5, 6.7.
        for length in [160, 168, 192, 200, 224, 232, 240, 248] {
            let info = TcpInfo::parse(&whole[..length]).unwrap();
            assert_eq!(info.bytes_acked, full.bytes_acked);
            assert_eq!(info.bytes_sent, full.bytes_sent.filter(|_| length >= 224));
            assert_eq!(info.delivery_rate != 0, length >= 168);
        }
        assert_eq!(
            TcpInfo::parse(&whole[..LEAST_BYTES]).unwrap().bytes_acked,
            0
        );
    }
}
