//! An exporter's times as ns since the Unix epoch.

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// From 1900 (NTP, RFC 5905) to 1970, s.
const NTP_OFFSET_S: u64 = 2_208_988_800;

/// An exporter's clock, from the head of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// When the datagram was sent, ns since the Unix epoch.
    pub export_ns: u64,
    /// Time since the exporter started, then, ms; wraps after 49.7 days. Not in IPFIX.
    pub uptime_ms: Option<u32>,
}

impl Clock {
    /// When the exporter started, ms since the Unix epoch.
    pub fn boot_ms(&self) -> Option<u64> {
        let uptime = u64::from(self.uptime_ms?);
        Some((self.export_ns / NS_PER_MS as u64).saturating_sub(uptime))
    }

    /// The time at which the uptime was `ms`; `boot_ms` is when it was 0, if the datagram has no
    /// uptime. Without both, the time of export.
    ///
    /// Uptimes have 32 bits: the difference to the one at the export is taken modulo 2³², with a
    /// sign, so that it is correct also when the counter wrapped between, and for flows that ended
    /// after the header was made.
    pub fn at_uptime(&self, ms: u32, boot_ms: Option<u64>) -> u64 {
        let now = match (boot_ms, self.uptime_ms) {
            (Some(boot), _) => (self.export_ns / NS_PER_MS as u64).wrapping_sub(boot) as u32,
            (None, Some(uptime)) => uptime,
            (None, None) => return self.export_ns,
        };
        let age_ms = now.wrapping_sub(ms).cast_signed();
        // What the milliseconds of an absolute start leave of the export time.
        let rest = match boot_ms {
            Some(_) => self.export_ns % NS_PER_MS as u64,
            None => 0,
        };
        (self.export_ns - rest).saturating_add_signed(-i64::from(age_ms) * NS_PER_MS)
    }

    /// The time `us` microseconds before the export.
    pub fn before_export(&self, us: u64) -> u64 {
        self.export_ns.saturating_sub(us.saturating_mul(1_000))
    }
}

/// dateTimeSeconds.
pub(super) fn seconds(value: u64) -> u64 {
    value.saturating_mul(NS_PER_S)
}

/// dateTimeMilliseconds.
pub(super) fn milliseconds(value: u64) -> u64 {
    value.saturating_mul(NS_PER_MS as u64)
}

/// dateTimeMicroseconds and dateTimeNanoseconds: NTP's format, s since 1900 and their 2³²nd parts
/// (RFC 7011 section 6.1.9). Seconds with the highest bit clear are of the era that begins in 2036.
pub(super) fn ntp(value: u64) -> u64 {
    let (mut seconds, fraction) = (value >> 32, value & 0xffff_ffff);
    if seconds < 1 << 31 {
        seconds += 1 << 32;
    }
    seconds.saturating_sub(NTP_OFFSET_S) * NS_PER_S + ((fraction * NS_PER_S) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;

    #[test]
    fn uptimes_wrap() {
        let clock = |uptime| Clock {
            export_ns: NOW_S * NS_PER_S + 500,
            uptime_ms: Some(uptime),
        };
        let ago = |ms: u64| NOW_S * NS_PER_S + 500 - ms * 1_000_000;
        assert_eq!(clock(10_000).at_uptime(7_000, None), ago(3_000));
        // The counter wrapped 1 s before the export, 3 s after the flow began.
        assert_eq!(clock(1_000).at_uptime(u32::MAX - 2_999, None), ago(4_000));
        // Ended 2 ms after the header was made.
        assert_eq!(clock(5).at_uptime(7, None), ago(0) + 2_000_000);
        assert_eq!(clock(5).boot_ms(), Some(NOW_S * 1_000 - 5));
    }

    #[test]
    fn uptimes_since_an_absolute_start() {
        let clock = Clock {
            export_ns: NOW_S * NS_PER_S,
            uptime_ms: None,
        };
        let boot = |ms: u64| Some(NOW_S * 1_000 - ms);
        assert_eq!(
            clock.at_uptime(900, boot(1_000)),
            NOW_S * NS_PER_S - 100_000_000
        );
        // Up for more than 2³² ms.
        let long = (1 << 32) + 50;
        assert_eq!(
            clock.at_uptime(20, boot(long)),
            NOW_S * NS_PER_S - 30_000_000
        );
        assert_eq!(clock.at_uptime(900, None), clock.export_ns);
    }

    #[test]
    fn ntp_times() {
        assert_eq!(
            ntp((NTP_OFFSET_S + NOW_S) << 32 | 1 << 31),
            NOW_S * NS_PER_S + 500_000_000
        );
        // 2040.
        let later = 2_208_988_800_u64;
        let wrapped = (NTP_OFFSET_S + later) & 0xffff_ffff;
        assert_eq!(ntp(wrapped << 32), later * NS_PER_S);
        for hostile in [0, u64::MAX, 1 << 63] {
            let _ = ntp(hostile);
        }
    }
}
