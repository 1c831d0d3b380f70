//! Packets to feed.

/// Ethernet from 02:…:01 to 02:…:02.
pub fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let macs = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    [&macs, &ethertype.to_be_bytes()[..], payload].concat()
}

/// A VLAN tag and what follows.
pub fn tag(vid: u16, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&vid.to_be_bytes(), &ethertype.to_be_bytes()[..], payload].concat()
}

/// IPv4 from 10.0.0.`src` to 10.0.0.`dst`.
pub fn ipv4(src: u8, dst: u8, proto: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_fragment(src, dst, proto, 0, 0, payload)
}

/// A fragment: flags with offset, identification.
pub fn ipv4_fragment(
    src: u8,
    dst: u8,
    proto: u8,
    fragment: u16,
    id: u16,
    payload: &[u8],
) -> Vec<u8> {
    let len = (20 + payload.len() as u16).to_be_bytes();
    let ([f0, f1], [i0, i1]) = (fragment.to_be_bytes(), id.to_be_bytes());
    let mut header = vec![0x45, 0, len[0], len[1], i0, i1, f0, f1, 64, proto, 0, 0];
    header.extend([10, 0, 0, src, 10, 0, 0, dst]);
    [&header, payload].concat()
}

/// IPv6 from 2001:db8::`src` to 2001:db8::`dst`.
pub fn ipv6(src: u8, dst: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, len[0], len[1], next, 64];
    for last in [src, dst] {
        header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&header, payload].concat()
}

pub fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    [&src.to_be_bytes(), &dst.to_be_bytes(), &[0; 4][..], payload].concat()
}

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
pub const ECE: u8 = 64;
pub const CWR: u8 = 128;

/// A TCP header with window 100.
pub fn tcp(src: u16, dst: u16, flags: u8, seq: u32, payload: &[u8]) -> Vec<u8> {
    tcp_window(src, dst, flags, seq, 100, payload)
}

pub fn tcp_window(src: u16, dst: u16, flags: u8, seq: u32, window: u16, payload: &[u8]) -> Vec<u8> {
    [
        &src.to_be_bytes(),
        &dst.to_be_bytes(),
        &seq.to_be_bytes()[..],
        &[0, 0, 0, 1, 0x50, flags],
        &window.to_be_bytes(),
        &[0; 4],
        payload,
    ]
    .concat()
}

pub fn icmp(kind: u8, code: u8, id: u16) -> Vec<u8> {
    let id = id.to_be_bytes();
    vec![kind, code, 0, 0, id[0], id[1], 0, 0]
}

/// UDP from 10.0.0.1:1000 to 10.0.0.2:2000 and back.
pub fn there(payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ipv4(1, 2, 17, &udp(1000, 2000, payload)))
}

pub fn back(payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ipv4(2, 1, 17, &udp(2000, 1000, payload)))
}

/// TCP of 10.0.0.1:1000, who opens, and of 10.0.0.2:80.
pub fn client(flags: u8, seq: u32, payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ipv4(1, 2, 6, &tcp(1000, 80, flags, seq, payload)))
}

pub fn server(flags: u8, seq: u32, payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ipv4(2, 1, 6, &tcp(80, 1000, flags, seq, payload)))
}

/// VXLAN from 10.0.0.8 to 10.0.0.9 around a frame.
pub fn vxlan(vni: u8, frame: &[u8]) -> Vec<u8> {
    let payload = [&[8, 0, 0, 0, 0, 0, vni, 0], frame].concat();
    ethernet(0x0800, &ipv4(8, 9, 17, &udp(5555, 4789, &payload)))
}
