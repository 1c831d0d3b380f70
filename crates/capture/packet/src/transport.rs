//! TCP (RFC 9293), UDP (RFC 768), UDP-Lite (RFC 3828), SCTP (RFC 9260), DCCP (RFC 4340), ICMP
//! (RFC 792) and ICMPv6 (RFC 4443).

use crate::{
    Fragment, Icmp, Level, Network, TcpSegment, Transport,
    cursor::{Cursor, be16},
};

/// Decodes the transport header at the cursor. `ip_payload` is what the IP header says to follow,
/// none when it says nothing.
#[inline]
pub(crate) fn transport(cursor: &mut Cursor<'_>, level: &mut Level, ip_payload: Option<u32>) {
    level.payload = cursor.at();
    if level.fragment == Fragment::Later {
        return;
    }
    let understood = match (level.proto, level.network) {
        (6, _) => tcp(cursor, level, ip_payload),
        (17 | 136, _) => ports::<8>(cursor, level),
        (132 | 33, _) => ports::<12>(cursor, level),
        (1, Network::V4) => icmp(cursor, level, &[8, 0, 13, 14, 15, 16, 17, 18]),
        (58, Network::V6) => icmp(cursor, level, &[128, 129]),
        _ => return,
    };
    level.malformed |= understood.is_none();
}

#[inline]
fn tcp(cursor: &mut Cursor<'_>, level: &mut Level, ip_payload: Option<u32>) -> Option<()> {
    let header: &[u8; 20] = cursor.peek()?;
    let header_len = tcp_header_len(header)?;
    cursor.skip(header_len as usize);
    let payload_len = match ip_payload {
        Some(len) if !cursor.super_packet() => len.saturating_sub(header_len),
        _ => cursor.wire_rest(),
    };
    level.payload = cursor.at();
    level.transport = Transport::Tcp(segment(header, payload_len, level.hop_limit));
    Some(())
}

/// Length of a TCP header with its options, none when it is impossible.
#[inline]
pub(crate) fn tcp_header_len(header: &[u8; 20]) -> Option<u32> {
    let len = u32::from(header[12] >> 4) * 4;
    (len >= 20).then_some(len)
}

/// The decoded fields of a TCP header.
#[inline]
pub(crate) fn segment(header: &[u8; 20], payload_len: u32, hop_limit: u8) -> TcpSegment {
    TcpSegment {
        src_port: be16(header[0], header[1]),
        dst_port: be16(header[2], header[3]),
        seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        flags: header[13],
        window: be16(header[14], header[15]),
        payload_len,
        hop_limit,
    }
}

/// A header of `N` bytes that starts with two ports.
#[inline]
fn ports<const N: usize>(cursor: &mut Cursor<'_>, level: &mut Level) -> Option<()> {
    let header: &[u8; N] = cursor.read()?;
    level.payload = cursor.at();
    level.transport = Transport::Ports {
        src: be16(header[0], header[1]),
        dst: be16(header[2], header[3]),
    };
    Some(())
}

#[inline]
fn icmp(cursor: &mut Cursor<'_>, level: &mut Level, with_id: &[u8]) -> Option<()> {
    let header: &[u8; 4] = cursor.peek()?;
    let id = if with_id.contains(&header[0]) {
        let header: &[u8; 8] = cursor.peek()?;
        be16(header[4], header[5])
    } else {
        0
    };
    level.transport = Transport::Icmp(Icmp {
        kind: header[0],
        code: header[1],
        id,
    });
    Some(())
}
