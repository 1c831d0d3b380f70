//! Random packets: well-formed ones of the kinds that filter expressions tell apart, with values from
//! small sets that the test's expressions name, then some of them damaged or cut.

use super::rng::Rng;

pub const SHORTEST: usize = 14;

const MACS: [[u8; 6]; 5] = [
    [0x02, 0, 0, 0, 0, 1],
    [0x02, 0, 0, 0, 0, 2],
    [0xff; 6],
    [0x01, 0, 0x5e, 0, 0, 1],
    [0x01, 0x80, 0xc2, 0, 0, 0],
];
const VLANS: [u16; 6] = [0, 1, 100, 200, 0x0fff, 300];
const TPIDS: [u16; 5] = [0x8100, 0x8100, 0x8100, 0x88a8, 0x9100];
const IPV4: [[u8; 4]; 8] = [
    [10, 0, 0, 1],
    [10, 0, 0, 2],
    [10, 1, 2, 3],
    [192, 168, 1, 10],
    [172, 16, 5, 5],
    [224, 0, 0, 251],
    [255, 255, 255, 255],
    [0, 0, 0, 0],
];
const PORTS: [u16; 16] = [
    80, 443, 53, 22, 8080, 6081, 4789, 123, 1000, 1500, 2000, 65535, 0, 5060, 25, 7,
];
const PROTOCOLS: [u8; 16] = [6, 6, 6, 6, 17, 17, 17, 1, 1, 58, 58, 132, 2, 50, 51, 47];

/// A frame of the Ethernet link type, at least [`SHORTEST`] bytes long.
pub fn ethernet(rng: &mut Rng) -> Vec<u8> {
    let mut frame = Vec::with_capacity(256);
    frame.extend(rng.pick(&MACS));
    frame.extend(rng.pick(&MACS));
    for _ in 0..rng.pick(&[0, 0, 0, 0, 0, 1, 1, 2, 2, 3]) {
        frame.extend(rng.pick(&TPIDS).to_be_bytes());
        frame.extend(tci(rng).to_be_bytes());
    }
    typed_payload(rng, &mut frame, 0);
    finish(rng, frame)
}

/// A packet of the raw IP link type, at least [`SHORTEST`] bytes long.
pub fn raw_ip(rng: &mut Rng) -> Vec<u8> {
    let mut packet = Vec::with_capacity(256);
    match rng.below(10) {
        0..5 => ipv4(rng, &mut packet, 0),
        5..9 => ipv6(rng, &mut packet, 0),
        _ => packet.extend(rng.bytes(40)),
    }
    finish(rng, packet)
}

/// A tag as the kernel keeps it outside of the frame: TPID and TCI.
pub fn stripped_tag(rng: &mut Rng) -> (u16, u16) {
    (rng.pick(&[0x8100, 0x8100, 0x88a8]), tci(rng))
}

/// Priority, drop flag and VLAN.
fn tci(rng: &mut Rng) -> u16 {
    rng.pick(&[0, 0, 3 << 13, 0x1000, 0xf000]) | rng.pick(&VLANS)
}

fn finish(rng: &mut Rng, mut packet: Vec<u8>) -> Vec<u8> {
    if rng.one_in(30) {
        let count = rng.pick(&[500, 1000, 1400]);
        packet.extend(rng.bytes(count));
    }
    if rng.one_in(4) {
        for _ in 0..=rng.below(4) {
            let at = rng.below(packet.len().min(90));
            packet[at] = rng.byte();
        }
    }
    if rng.one_in(5) {
        packet.truncate(SHORTEST + rng.below(packet.len()));
    }
    if packet.len() < SHORTEST {
        packet.resize(SHORTEST, 0);
    }
    packet
}

fn typed_payload(rng: &mut Rng, out: &mut Vec<u8>, depth: u8) {
    let typed = |out: &mut Vec<u8>, ethertype: u16| out.extend(ethertype.to_be_bytes());
    match rng.below(20) {
        0..7 => {
            typed(out, 0x0800);
            ipv4(rng, out, depth);
        }
        7..12 => {
            typed(out, 0x86dd);
            ipv6(rng, out, depth);
        }
        12 => {
            let ethertype = rng.pick(&[0x0806, 0x8035]);
            typed(out, ethertype);
            out.extend([0, 1, 8, 0, 6, 4, 0, rng.pick(&[1, 2])]);
            out.extend(rng.pick(&MACS));
            out.extend(rng.pick(&IPV4));
            out.extend(rng.pick(&MACS));
            out.extend(rng.pick(&IPV4));
        }
        13 => {
            let ethertype = rng.pick(&[0x8847, 0x8847, 0x8848]);
            typed(out, ethertype);
            for bottom in [false, true] {
                if bottom || rng.one_in(2) {
                    let outer = if bottom { 16_u32 } else { 100_000 };
                    let label = rng.pick(&[1024, outer]);
                    let entry = label << 12 | u32::from(bottom) << 8 | 64;
                    out.extend(entry.to_be_bytes());
                }
            }
            if rng.one_in(3) {
                ipv6(rng, out, depth)
            } else {
                ipv4(rng, out, depth)
            }
        }
        14 => {
            typed(out, 0x8864);
            out.extend([0x11, 0]);
            out.extend(rng.pick(&[1_u16, 0x27]).to_be_bytes());
            out.extend([0, 60]);
            if rng.one_in(3) {
                out.extend([0, 0x57]);
                ipv6(rng, out, depth);
            } else {
                out.extend([0, 0x21]);
                ipv4(rng, out, depth);
            }
        }
        15 => {
            typed(out, 0x8863);
            out.extend(rng.bytes(30));
        }
        16 => {
            // 802.3 with LLC: STP, ISO (IS-IS), NetBEUI, SNAP with AppleTalk, IPX
            typed(out, 40);
            match rng.below(5) {
                0 => out.extend([0x42, 0x42, 3]),
                1 => out.extend([
                    0xfe,
                    0xfe,
                    3,
                    0x83,
                    27,
                    1,
                    0,
                    rng.pick(&[15, 16, 18, 20, 24]),
                ]),
                2 => out.extend([0xf0, 0xf0, 3]),
                3 => out.extend([0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b]),
                _ => out.extend([0xe0, 0xe0, 3]),
            }
            out.extend(rng.bytes(40));
        }
        17 => {
            let ethertype = rng.pick(&[0x9000, 0x88cc, 0x6003, 0x6004, 0x809b, 0x80f3, 0x8137]);
            typed(out, ethertype);
            out.extend(rng.bytes(46));
        }
        18 => {
            let ethertype = rng.next() as u16;
            typed(out, ethertype);
            out.extend(rng.bytes(46));
        }
        _ => {
            typed(out, 0x0800);
            out.extend(rng.bytes(46));
        }
    }
}

fn ipv4(rng: &mut Rng, out: &mut Vec<u8>, depth: u8) {
    let words = rng.pick(&[5, 5, 5, 5, 5, 6, 8, 15]);
    let protocol = protocol(rng);
    let mut payload = Vec::new();
    transport(rng, &mut payload, protocol, depth);
    let length = (usize::from(words) * 4 + payload.len()) as u16;
    let fragment = rng.pick(&[0_u16, 0, 0, 0, 0x4000, 0x2000, 0x2010, 0x0010, 0x1fff]);
    out.extend([0x40 | words, rng.pick(&[0, 0, 0x10, 0xb8])]);
    out.extend(length.to_be_bytes());
    out.extend(rng.bytes(2));
    out.extend(fragment.to_be_bytes());
    out.extend([rng.pick(&[64, 1, 255]), protocol, 0, 0]);
    out.extend(rng.pick(&IPV4));
    out.extend(rng.pick(&IPV4));
    for _ in 5..words {
        out.extend(rng.bytes(4));
    }
    out.extend(payload);
}

/// With fewer extension headers than `protochain` steps over.
fn ipv6(rng: &mut Rng, out: &mut Vec<u8>, depth: u8) {
    let last = protocol(rng);
    let extensions: Vec<u8> = match rng.below(6) {
        0 => (0..=rng.below(4))
            .map(|_| rng.pick(&[0, 43, 44, 60, 51]))
            .collect(),
        1 if rng.one_in(4) => vec![60; rng.below(30)],
        _ => Vec::new(),
    };
    let mut payload = Vec::new();
    for (index, &header) in extensions.iter().enumerate() {
        let next = extensions.get(index + 1).copied().unwrap_or(last);
        let units = if header == 44 { 0 } else { rng.below(2) as u8 };
        payload.extend([next, if header == 51 { 2 * units } else { units }]);
        payload.extend(rng.bytes(6 + 8 * usize::from(units)));
    }
    transport(rng, &mut payload, last, depth);
    out.extend([0x60, 0, 0, 0]);
    out.extend((payload.len() as u16).to_be_bytes());
    out.extend([
        extensions.first().copied().unwrap_or(last),
        rng.pick(&[64, 255]),
    ]);
    ipv6_address(rng, out);
    ipv6_address(rng, out);
    out.extend(payload);
}

fn ipv6_address(rng: &mut Rng, out: &mut Vec<u8>) {
    let prefix: [u8; 8] = rng.pick(&[
        [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0],
        [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1],
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0],
        [0xff, 0x02, 0, 0, 0, 0, 0, 0],
    ]);
    out.extend(prefix);
    out.extend([0, 0, 0, 0, 0, 0, 0, rng.pick(&[1, 2, 0xfb])]);
}

fn protocol(rng: &mut Rng) -> u8 {
    if rng.one_in(12) {
        rng.pick(&[0, 4, 41, 89, 103, 112, 136, 255])
    } else {
        rng.pick(&PROTOCOLS)
    }
}

fn transport(rng: &mut Rng, out: &mut Vec<u8>, protocol: u8, depth: u8) {
    let start = out.len();
    match protocol {
        6 | 17 | 132 => {
            let source = port(rng);
            let geneve = protocol == 17 && rng.one_in(4);
            let destination = if geneve { 6081 } else { port(rng) };
            out.extend(source.to_be_bytes());
            out.extend(destination.to_be_bytes());
            match protocol {
                6 => {
                    let words = rng.pick(&[5, 5, 5, 8, 15]);
                    out.extend(rng.bytes(8));
                    let flags = rng.pick(&[2, 0x12, 0x10, 0x18, 0x11, 4, 0x14, 0, 0xff]);
                    out.extend([words << 4, flags]);
                    out.extend(rng.bytes(6 + 4 * usize::from(words - 5)));
                    if rng.one_in(3) {
                        out.extend(b"GET / HTTP/1.1\r\n");
                    }
                }
                17 => {
                    out.extend([0, 60, 0, 0]);
                    if destination == 6081 && depth < 2 {
                        let options = rng.pick(&[0, 0, 1, 3]);
                        let ethertype = rng.pick(&[0x6558_u16, 0x0800, 0x86dd]);
                        out.extend([options, 0]);
                        out.extend(ethertype.to_be_bytes());
                        out.extend([0, 0, rng.pick(&[11, 12]), 0]);
                        out.extend(rng.bytes(4 * usize::from(options)));
                        match ethertype {
                            0x0800 => ipv4(rng, out, depth + 1),
                            0x86dd => ipv6(rng, out, depth + 1),
                            _ => {
                                out.extend(rng.pick(&MACS));
                                out.extend(rng.pick(&MACS));
                                typed_payload(rng, out, depth + 1);
                            }
                        }
                    }
                }
                _ => {
                    out.extend(rng.bytes(8));
                    out.extend([rng.pick(&[0, 1, 3]), 3, 0, 16]);
                }
            }
        }
        1 => {
            out.extend([rng.pick(&[0, 3, 8, 11, 13]), rng.pick(&[0, 1, 3]), 0, 0]);
            out.extend(rng.bytes(4));
        }
        58 => {
            out.extend([
                rng.pick(&[1, 128, 129, 133, 134, 135, 136]),
                rng.pick(&[0, 1]),
                0,
                0,
            ]);
            out.extend(rng.bytes(4));
        }
        51 => {
            out.extend([6, 4, 0, 0]);
            out.extend(rng.bytes(20));
        }
        _ => out.extend(rng.bytes(16)),
    }
    let rest = 24_usize.saturating_sub(out.len() - start) + rng.below(40);
    out.extend(rng.bytes(rest));
}

fn port(rng: &mut Rng) -> u16 {
    if rng.one_in(8) {
        rng.next() as u16
    } else {
        rng.pick(&PORTS)
    }
}
