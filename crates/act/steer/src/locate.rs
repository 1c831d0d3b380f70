//! Finds the value in a frame: `bpf/steer/packet.h` in Rust.

use crate::{Cause, From};

const ETHERNET: usize = 14;
/// Headers that begin behind this offset are not parsed.
const MOST_HEADERS: usize = 256;
/// IPv6 extension headers that are stepped over.
const EXTENSIONS: usize = 8;

/// The part of a frame that offsets begin at, without padding.
pub(crate) fn locate(frame: &[u8], from: From, transport: bool) -> Result<&[u8], Cause> {
    if from == From::Frame && !transport {
        return Ok(frame);
    }
    let (mut ip, mut protocol) = (ETHERNET, be16(header(frame, 12, 2, 0)?));
    header(frame, 0, ETHERNET, 0)?;
    for _ in 0..2 {
        if !matches!(protocol, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        protocol = be16(&header(frame, ip, 4, 0)?[2..]);
        ip += 4;
    }
    let found = match protocol {
        0x0800 => ipv4(frame, ip)?,
        0x86dd => ipv6(frame, ip)?,
        _ => return Err(Cause::NoPayload),
    };
    let part = |from: usize, to: usize| frame.get(from..to).unwrap_or_default();
    match from {
        From::Frame => Ok(frame),
        From::Ip => Ok(part(ip, found.end)),
        From::Payload => {
            let (base, end) = payload(frame, &found)?;
            Ok(part(base, end))
        }
    }
}

struct Transport {
    protocol: u8,
    at: usize,
    end: usize,
}

fn be16(bytes: &[u8]) -> u16 {
    match bytes {
        [high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// `size` bytes at `at`, of a header that begins `before` bytes earlier.
fn header(frame: &[u8], at: usize, size: usize, before: usize) -> Result<&[u8], Cause> {
    if at - before > MOST_HEADERS {
        return Err(Cause::Short);
    }
    frame.get(at..at + size).ok_or(Cause::Short)
}

fn ipv4(frame: &[u8], at: usize) -> Result<Transport, Cause> {
    let ip = header(frame, at, 20, 0)?;
    let size = usize::from(ip[0] & 0xf) * 4;
    if ip[0] >> 4 != 4 || size < 20 {
        return Err(Cause::Short);
    }
    let length = usize::from(be16(&ip[2..]));
    if length < size || at + length > frame.len() {
        return Err(Cause::Short);
    }
    if be16(&ip[6..]) & 0x3fff != 0 {
        return Err(Cause::Fragment);
    }
    Ok(Transport {
        protocol: ip[9],
        at: at + size,
        end: at + length,
    })
}

fn ipv6(frame: &[u8], at: usize) -> Result<Transport, Cause> {
    let ip = header(frame, at, 40, 0)?;
    if ip[0] >> 4 != 6 {
        return Err(Cause::Short);
    }
    let mut offset = at + 40;
    let end = offset + usize::from(be16(&ip[4..]));
    if end > frame.len() {
        return Err(Cause::Short);
    }
    let mut next = ip[6];
    for _ in 0..EXTENSIONS {
        // Hop by hop, routing, fragment, authentication, destination options, mobility, HIP, shim6.
        if !matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
            break;
        }
        let extension = header(frame, offset, 8, 0)?;
        let length = usize::from(extension[1]);
        offset += match next {
            44 if be16(&extension[2..]) & 0xfff9 != 0 => return Err(Cause::Fragment),
            44 => 8,
            51 => 8 + length * 4,
            _ => 8 + length * 8,
        };
        next = extension[0];
    }
    Ok(Transport {
        protocol: next,
        at: offset,
        end,
    })
}

/// Begin and end of what UDP or TCP carries.
fn payload(frame: &[u8], transport: &Transport) -> Result<(usize, usize), Cause> {
    let Transport { protocol, at, end } = *transport;
    match protocol {
        17 => {
            let length = usize::from(be16(&header(frame, at, 8, 0)?[4..]));
            match length >= 8 && at + length <= end {
                true => Ok((at + 8, at + length)),
                false => Err(Cause::Short),
            }
        }
        6 => {
            let size = usize::from(header(frame, at, 20, 0)?[12] >> 4) * 4;
            match size >= 20 && at + size <= end {
                true => Ok((at + size, end)),
                false => Err(Cause::Short),
            }
        }
        _ => Err(Cause::NoPayload),
    }
}
