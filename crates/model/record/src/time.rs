//! Times as records show them.

use std::fmt;

/// ns since the Unix epoch, shown as RFC 3339 in UTC with 9 digits of ns:
/// `2026-11-21T10:00:00.000000001Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnixNs(pub u64);

const NS: u64 = 1_000_000_000;
const DAY_S: u64 = 86_400;

impl UnixNs {
    /// The 30 characters.
    pub fn text(self) -> [u8; 30] {
        let (seconds, ns) = (self.0 / NS, self.0 % NS);
        let (year, month, day) = date(seconds / DAY_S);
        let second = seconds % DAY_S;
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        digits(&mut text[..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], second / 3600);
        digits(&mut text[14..16], second / 60 % 60);
        digits(&mut text[17..19], second % 60);
        digits(&mut text[20..29], ns);
        text
    }
}

impl fmt::Display for UnixNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.text()).unwrap_or_default())
    }
}

fn digits(text: &mut [u8], mut value: u64) {
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Gregorian date of a day since 1970-01-01. Years are counted from March, so that the leap day is
/// the last of the year; an era is 400 years of 146,097 days (Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        // Seconds as `date -u -d … +%s` prints them.
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400 * NS, "2000-02-29T00:00:00.000000000Z"),
            (951_868_799 * NS + 5, "2000-02-29T23:59:59.000000005Z"),
            (4_107_542_400 * NS, "2100-03-01T00:00:00.000000000Z"),
            (4_107_542_399 * NS, "2100-02-28T23:59:59.000000000Z"),
            (1_795_255_200 * NS + 1, "2026-11-21T10:00:00.000000001Z"),
            (
                1_735_689_599 * NS + 999_999_999,
                "2024-12-31T23:59:59.999999999Z",
            ),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(UnixNs(ns).to_string(), text);
        }
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let leap =
            |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..u64::MAX / NS / DAY_S {
            assert_eq!(date(days), (year, month, day));
            let length = match month {
                4 | 6 | 9 | 11 => 30,
                2 if leap(year) => 29,
                2 => 28,
                _ => 31,
            };
            (year, month, day) = match (day == length, month) {
                (false, _) => (year, month, day + 1),
                (true, 12) => (year + 1, 1, 1),
                (true, _) => (year, month + 1, 1),
            };
        }
    }
}
