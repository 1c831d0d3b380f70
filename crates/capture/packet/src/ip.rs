//! IPv4 (RFC 791), IPv6 and its extension headers (RFC 8200).

use crate::{
    Fragment, Level, Network,
    cursor::{Cursor, be16},
    link::{ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    transport,
};

/// The most extension headers that are stepped over.
const MAX_EXTENSIONS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Decodes what an EtherType announces; anything but IP ends here.
#[inline]
pub(crate) fn network(cursor: &mut Cursor<'_>, level: &mut Level, ethertype: u16) {
    level.ethertype = ethertype;
    level.payload = cursor.at();
    let understood = match ethertype {
        ETHERTYPE_IPV4 => ipv4(cursor, level),
        ETHERTYPE_IPV6 => ipv6(cursor, level),
        _ => return,
    };
    // Nothing of a malformed header is kept: the packet counts as one without IP.
    level.malformed |= understood.is_none();
}

#[inline]
fn ipv4(cursor: &mut Cursor<'_>, level: &mut Level) -> Option<()> {
    let header: &[u8; 20] = cursor.peek()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < 20 || !cursor.has(header_len) {
        return None;
    }
    level.network = Network::V4;
    level.src[10..12].fill(0xff);
    level.src[12..].copy_from_slice(&header[12..16]);
    level.dst[10..12].fill(0xff);
    level.dst[12..].copy_from_slice(&header[16..20]);
    level.proto = header[9];
    level.hop_limit = header[8];
    let fragment = be16(header[6], header[7]);
    let id = u32::from(be16(header[4], header[5]));
    fragmented(level, fragment & 0x1fff != 0, fragment & 0x2000 != 0, id);
    let ip_payload = match u32::from(be16(header[2], header[3])) {
        0 => None,
        total => Some(total.saturating_sub(header_len as u32)),
    };
    cursor.skip(header_len);
    transport::transport(cursor, level, ip_payload);
    Some(())
}

fn ipv6(cursor: &mut Cursor<'_>, level: &mut Level) -> Option<()> {
    let header: &[u8; 40] = cursor.peek()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    level.network = Network::V6;
    level.src.copy_from_slice(&header[8..24]);
    level.dst.copy_from_slice(&header[24..]);
    level.proto = header[6];
    level.hop_limit = header[7];
    cursor.skip(40);
    let start = cursor.at();
    if extensions(cursor, level) {
        let skipped = cursor.at() - start;
        let ip_payload = match u32::from(be16(header[4], header[5])) {
            0 => None,
            len => Some(len.saturating_sub(skipped)),
        };
        transport::transport(cursor, level, ip_payload);
    } else {
        level.malformed = true;
        level.payload = cursor.at();
    }
    Some(())
}

/// Steps over extension headers; false when one is cut off or there are too many. `proto` is then
/// that header's own number, else the number of the first header that is no extension.
fn extensions(cursor: &mut Cursor<'_>, level: &mut Level) -> bool {
    for count in 0.. {
        if !matches!(
            level.proto,
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HIP | SHIM6
        ) {
            return true;
        }
        let Some(header) = cursor.peek::<8>() else {
            return false;
        };
        let len = match level.proto {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if count == MAX_EXTENSIONS || !cursor.has(len) {
            return false;
        }
        cursor.skip(len);
        let fragment = level.proto == FRAGMENT;
        level.proto = header[0];
        if fragment {
            let offset = be16(header[2], header[3]);
            let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            fragmented(level, offset & 0xfff8 != 0, offset & 1 != 0, id);
            if level.fragment == Fragment::Later {
                // What follows is data, whatever its number says.
                return true;
            }
        }
    }
    false
}

#[inline]
fn fragmented(level: &mut Level, offset: bool, more: bool, id: u32) {
    (level.fragment, level.fragment_id) = match (offset, more) {
        (false, false) => (Fragment::Whole, 0),
        (false, true) => (Fragment::First, id),
        (true, _) => (Fragment::Later, id),
    };
}
