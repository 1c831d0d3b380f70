//! Numbers of packets as fixed-point integers, by integer arithmetic alone: `bpf/steer/value.h` in
//! Rust.

use crate::{ByteOrder, Cause, Encoding, MOST_TEXT, ValueField};

/// Largest magnitude of a sample (`STEER_MOST`): the sum of a full ring fits 57 bits.
pub const MOST: u64 = (1 << 50) - 1;
/// Digits behind the decimal point that count, as a power of ten (`STEER_DIGITS`).
const DIGITS: u64 = 1_000_000_000;

fn number(magnitude: u64, negative: bool) -> Result<i64, Cause> {
    if magnitude > MOST {
        return Err(Cause::Overflow);
    }
    let value = magnitude as i64;
    Ok(if negative { -value } else { value })
}

fn whole(magnitude: u64, negative: bool, fraction: u8) -> Result<i64, Cause> {
    if magnitude > MOST >> fraction {
        return Err(Cause::Overflow);
    }
    number(magnitude << fraction, negative)
}

/// significand × 2^exponent; bits below the last one are cut off.
fn binary(significand: u64, exponent: i32, negative: bool, fraction: u8) -> Result<i64, Cause> {
    let shift = exponent + i32::from(fraction);
    match shift {
        _ if significand == 0 => Ok(0),
        50.. => Err(Cause::Overflow),
        0..50 if significand > MOST >> shift => Err(Cause::Overflow),
        0..50 => number(significand << shift, negative),
        ..=-64 => Ok(0),
        _ => number(significand >> -shift, negative),
    }
}

/// IEEE 754 binary32.
fn float(bits: u32, fraction: u8) -> Result<i64, Cause> {
    let (exponent, part) = ((bits >> 23 & 0xff) as i32, u64::from(bits & 0x7f_ffff));
    let negative = bits >> 31 != 0;
    match exponent {
        0xff => Err(Cause::NoNumber),
        0 => binary(part, -149, negative, fraction),
        _ => binary(part | 1 << 23, exponent - 150, negative, fraction),
    }
}

/// IEEE 754 binary64.
fn double(bits: u64, fraction: u8) -> Result<i64, Cause> {
    let (exponent, part) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let negative = bits >> 63 != 0;
    match exponent {
        0x7ff => Err(Cause::NoNumber),
        0 => binary(part, -1074, negative, fraction),
        _ => binary(part | 1 << 52, exponent - 1075, negative, fraction),
    }
}

fn signed(raw: u64, width: u8, fraction: u8) -> Result<i64, Cause> {
    let value = match width {
        1 => i64::from(raw as u8 as i8),
        2 => i64::from(raw as u16 as i16),
        4 => i64::from(raw as u32 as i32),
        _ => raw as i64,
    };
    whole(value.unsigned_abs(), value < 0, fraction)
}

/// Spaces, a sign, digits with at most one point among them, at least one digit; then the end, or
/// a character that ends a number.
fn decimal(text: &[u8], fraction: u8) -> Result<i64, Cause> {
    let (mut number_part, mut part, mut scale) = (0u64, 0u64, 1u64);
    let (mut negative, mut started, mut digits, mut point) = (false, false, false, false);
    for &c in text.iter().take(MOST_TEXT.into()) {
        match c {
            b'0'..=b'9' => {
                (started, digits) = (true, true);
                let digit = u64::from(c - b'0');
                if !point {
                    number_part = (number_part * 10 + digit).min(MOST + 1);
                } else if scale < DIGITS {
                    part = part * 10 + digit;
                    scale *= 10;
                }
            }
            b'.' if !point => (started, point) = (true, true),
            b'-' | b'+' if !started => (started, negative) = (true, c == b'-'),
            b' ' if !started => {}
            0 | b' ' | b'\t' | b'\r' | b'\n' | b',' | b';' | b'|' => break,
            _ => return Err(Cause::NoNumber),
        }
    }
    if !digits {
        return Err(Cause::NoNumber);
    }
    if number_part > MOST >> fraction {
        return Err(Cause::Overflow);
    }
    number(
        (number_part << fraction) + (part << fraction) / scale,
        negative,
    )
}

/// An unsigned integer of 1 to 8 bytes.
pub(crate) fn unsigned(bytes: &[u8], order: ByteOrder) -> u64 {
    let join = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    match order {
        ByteOrder::Big => bytes.iter().fold(0, join),
        ByteOrder::Little => bytes.iter().rev().fold(0, join),
    }
}

/// The sample at the start of `bytes`, with `fraction` bits behind its point; `field` gives its
/// length.
///
/// # Errors
///
/// Why the bytes are no sample.
pub fn decode(bytes: &[u8], field: &ValueField, fraction: u8) -> Result<i64, Cause> {
    let width = usize::from(field.width);
    if field.encoding == Encoding::Decimal {
        return match bytes {
            [] => Err(Cause::Beyond),
            bytes => decimal(bytes.get(..width).unwrap_or(bytes), fraction),
        };
    }
    let raw = unsigned(bytes.get(..width).ok_or(Cause::Beyond)?, field.order);
    match field.encoding {
        Encoding::Signed => signed(raw, field.width, fraction),
        Encoding::Float => float(raw as u32, fraction),
        Encoding::Double => double(raw, fraction),
        _ => whole(raw, false, fraction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Result<i64, Cause> {
        decimal(text.as_bytes(), 8)
    }

    #[test]
    fn decimals() {
        for (written, value) in [
            ("0", 0),
            ("12", 12 << 8),
            ("12.5", 12 << 8 | 128),
            ("-12.5", -(12 << 8 | 128)),
            ("+.25,7", 64),
            ("3.", 3 << 8),
            ("  7 9", 7 << 8),
            ("1\n", 1 << 8),
            ("1\0garbage", 1 << 8),
            ("0.99999999999999", 255),
            // The field ends, whatever follows.
            ("00000000000000000001x", 1 << 8),
        ] {
            assert_eq!(text(written), Ok(value), "{written}");
        }
        for written in ["", "-", ".", "x", "1e5", "1.2.3", "--1", "nan", "0x1", "1-"] {
            assert_eq!(text(written), Err(Cause::NoNumber), "{written}");
        }
        assert_eq!(text("4398046511103"), Ok(0x3_ffff_ffff_ff00));
        assert_eq!(text("4398046511104"), Err(Cause::Overflow));
        assert_eq!(text("99999999999999999999"), Err(Cause::Overflow));
        assert_eq!(text("-99999999999999999999"), Err(Cause::Overflow));
    }

    #[test]
    fn floats_are_cut_towards_zero() {
        for value in [
            0.0f64, 1.0, -1.0, 0.5, 1234.567, -1234.567, 1e-9, 1e12, -1e12, 5e-324,
        ] {
            let wanted = (value * 256.0).trunc() as i64;
            assert_eq!(double(value.to_bits(), 8), Ok(wanted), "{value}");
            let single = value as f32;
            let wanted = (f64::from(single) * 256.0).trunc() as i64;
            assert_eq!(float(single.to_bits(), 8), Ok(wanted), "{single}");
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(double(value.to_bits(), 8), Err(Cause::NoNumber));
            assert_eq!(float((value as f32).to_bits(), 8), Err(Cause::NoNumber));
        }
        for value in [5e12f64, -5e12, f64::MAX] {
            assert_eq!(double(value.to_bits(), 8), Err(Cause::Overflow));
        }
        assert_eq!(float(f32::MAX.to_bits(), 0), Err(Cause::Overflow));
        assert_eq!(double(((1u64 << 49) as f64).to_bits(), 0), Ok(1 << 49));
    }

    #[test]
    fn integers_of_all_widths() {
        assert_eq!(signed(0xff, 1, 8), Ok(-256));
        assert_eq!(signed(0x8000, 2, 0), Ok(-32_768));
        assert_eq!(signed(u64::MAX, 8, 24), Ok(-(1 << 24)));
        assert_eq!(signed(1 << 63, 8, 0), Err(Cause::Overflow));
        assert_eq!(whole(MOST, false, 0), Ok(MOST as i64));
        assert_eq!(whole(MOST + 1, false, 0), Err(Cause::Overflow));
        assert_eq!(whole(1 << 42, false, 8), Err(Cause::Overflow));
        assert_eq!(unsigned(&[1, 2, 3, 4], ByteOrder::Big), 0x0102_0304);
        assert_eq!(unsigned(&[1, 2], ByteOrder::Little), 0x0201);
    }
}
