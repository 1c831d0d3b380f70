//! IEEE 802.11 frames, with or without radiotap before them: found in files only.

use crate::cursor::{Cursor, be16};

/// Bits of the frame control field (IEEE 802.11-2020 section 9.2.4.1), its bytes as they stand.
const TYPE: u8 = 0x0c;
const DATA: u8 = 0x08;
const NO_DATA: u8 = 0x40;
const QOS: u8 = 0x80;
const TO_DS: u8 = 0x01;
const FROM_DS: u8 = 0x02;
const PROTECTED: u8 = 0x40;
const ORDER: u8 = 0x80;
/// The QoS control field's bit for several MSDUs in one frame.
const AMSDU: u8 = 0x80;
/// Most words of radiotap's bitmap that are read.
const MOST_WORDS: usize = 32;
/// Radiotap's flags: the header is padded to four bytes.
const PADDED: u8 = 0x20;

/// Radiotap (<https://www.radiotap.org>), then the frame; its EtherType, 0 where there is none.
pub(crate) fn radiotap(cursor: &mut Cursor<'_>) -> Option<u16> {
    let start = cursor.at();
    let &[_version, _, low, high] = cursor.read::<4>()?;
    // No shorter than what it begins with.
    let length = u32::from(u16::from_le_bytes([low, high])).max(8);
    let mut words = 0;
    let mut present = None;
    loop {
        let word = u32::from_le_bytes(*cursor.read::<4>()?);
        present.get_or_insert(word);
        words += 1;
        if word & 1 << 31 == 0 {
            break;
        }
        if words == MOST_WORDS {
            return Some(0);
        }
    }
    let present = present.unwrap_or(0);
    // First is the time (8 bytes, aligned to 8), then the flags.
    if present & 1 != 0 {
        let behind = cursor.at() - start;
        step(cursor, behind.next_multiple_of(8) - behind + 8)?;
    }
    let flags = match present & 2 {
        0 => 0,
        _ => cursor.peek::<1>().map_or(0, |flags| flags[0]),
    };
    cursor.seek(start);
    step(cursor, length)?;
    frame(cursor, flags & PADDED != 0)
}

/// A frame from its frame control field on; what it carries begins with LLC and SNAP (RFC 1042). None: not even
/// the frame control field is there.
pub(crate) fn frame(cursor: &mut Cursor<'_>, padded: bool) -> Option<u16> {
    let &control = cursor.read::<2>()?;
    let [kind, _] = control;
    // Management and control frames carry no packets.
    if kind & TYPE != DATA {
        return Some(0);
    }
    Some(data(cursor, control, padded).unwrap_or(0))
}

/// What a data frame carries; none when that is cut off or cannot be read.
fn data(cursor: &mut Cursor<'_>, [kind, flags]: [u8; 2], padded: bool) -> Option<u16> {
    let start = cursor.at() - 2;
    // Duration and three addresses.
    step(cursor, 20)?;
    let &[sequence, _] = cursor.read::<2>()?;
    if flags & (TO_DS | FROM_DS) == TO_DS | FROM_DS {
        step(cursor, 6)?;
    }
    let mut several = false;
    if kind & QOS != 0 {
        several = cursor.read::<2>()?[0] & AMSDU != 0;
        if flags & ORDER != 0 {
            step(cursor, 4)?;
        }
    }
    if padded {
        let length = cursor.at() - start;
        step(cursor, length.next_multiple_of(4) - length)?;
    }
    // Nothing, nothing that can be read, or a later fragment.
    if kind & NO_DATA != 0 || flags & PROTECTED != 0 || sequence & 0x0f != 0 {
        return None;
    }
    if several {
        // Of several MSDUs the first one: destination, source, length.
        step(cursor, 14)?;
    }
    match cursor.peek::<8>()? {
        // SNAP of RFC 1042, and of bridges (IEEE 802.1H).
        &[0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00 | 0xf8, high, low] => {
            cursor.skip(8);
            Some(be16(high, low))
        }
        _ => None,
    }
}

/// Steps over bytes that are there.
fn step(cursor: &mut Cursor<'_>, length: u32) -> Option<()> {
    let length = length as usize;
    cursor.has(length).then(|| cursor.skip(length))
}

/// The packet in a record of Linux's NFLOG: a header of four bytes, then attributes in the byte order of the host
/// that wrote them. Returns the address family (2 IPv4, 10 IPv6), 0 where there is no packet.
pub(crate) fn nflog(cursor: &mut Cursor<'_>) -> Option<u8> {
    /// NFULA_PAYLOAD.
    const PAYLOAD: u16 = 9;
    /// More attributes than Linux has.
    const MOST: usize = 64;
    let &[family, ..] = cursor.read::<4>()?;
    for _ in 0..MOST {
        let Some(&[a, b, c, d]) = cursor.peek::<4>() else {
            break;
        };
        // The types are small, so one of both bytes is 0.
        let (length, kind) = match d {
            0 => (u16::from_le_bytes([a, b]), u16::from(c)),
            _ => (u16::from_be_bytes([a, b]), u16::from(d)),
        };
        if length < 4 {
            break;
        }
        if kind == PAYLOAD {
            cursor.skip(4);
            return Some(family);
        }
        if step(cursor, u32::from(length).next_multiple_of(4)).is_none() {
            break;
        }
    }
    Some(0)
}
