//! Network layer: IPv4 and IPv6 headers, options, extension headers, fragments.

use super::{Entry, Trace};
use crate::layer::{Ah, Extension, Ipv4, Ipv6, Udp};
use crate::packet::Packet;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "ipv4_options",
        about: "record route, router alert, 40 bytes of options, an option of length 0",
        make: ipv4_options,
    },
    Entry {
        name: "ipv4_malformed",
        about: "header length below 20, beyond the end; wrong version; cut off",
        make: ipv4_malformed,
    },
    Entry {
        name: "ipv4_lengths",
        about: "total length 0, too small, too large",
        make: ipv4_lengths,
    },
    Entry {
        name: "ipv4_fragments",
        about: "first, middle, last; two datagrams interleaved; both directions",
        make: ipv4_fragments,
    },
    Entry {
        name: "ipv4_fragments_late",
        about: "later fragments before the first, without a first, same id with other protocol",
        make: ipv4_fragments_late,
    },
    Entry {
        name: "ipv4_fragments_protocols",
        about: "fragmented TCP, ICMP, ESP; a first fragment too short for its header",
        make: ipv4_fragments_protocols,
    },
    Entry {
        name: "ipv4_protocols",
        about: "protocols without ports, from 0 to 255",
        make: ipv4_protocols,
    },
    Entry {
        name: "ipv6",
        about: "UDP and TCP conversations, flow labels",
        make: ipv6,
    },
    Entry {
        name: "ipv6_extensions",
        about: "hop-by-hop, routing, destination, AH, mobility, HIP, shim6, alone and together",
        make: ipv6_extensions,
    },
    Entry {
        name: "ipv6_extensions_many",
        about: "seven, eight, nine and a hundred extension headers",
        make: ipv6_extensions_many,
    },
    Entry {
        name: "ipv6_extensions_cut",
        about: "extension headers that reach beyond the packet",
        make: ipv6_extensions_cut,
    },
    Entry {
        name: "ipv6_no_next_header",
        about: "next header 59, at once and after an extension header",
        make: ipv6_no_next_header,
    },
    Entry {
        name: "ipv6_malformed",
        about: "wrong version, cut off, payload length 0 and too large",
        make: ipv6_malformed,
    },
    Entry {
        name: "ipv6_fragments",
        about: "first, middle, last, late first, atomic, after a hop-by-hop header",
        make: ipv6_fragments,
    },
    Entry {
        name: "ipv6_fragments_no_first",
        about: "later fragments whose first never comes",
        make: ipv6_fragments_no_first,
    },
    Entry {
        name: "zero_option_extension",
        about: "zero-length and PadN-only IPv6 options",
        make: zero_option_extension,
    },
];

fn v4() -> Packet {
    Packet::new().ethernet(1, 2).ipv4("10.0.0.1", "10.0.0.2")
}

fn v4_with(ip: impl FnOnce(&mut Ipv4)) -> Packet {
    let mut header = Ipv4::between("10.0.0.1", "10.0.0.2");
    ip(&mut header);
    Packet::new().ethernet(1, 2).layer(header)
}

fn v6() -> Packet {
    Packet::new().ethernet(1, 2).ipv6("fd00::1", "fd00::2")
}

fn v6_with(ip: impl FnOnce(&mut Ipv6)) -> Packet {
    let mut header = Ipv6::between("fd00::1", "fd00::2");
    ip(&mut header);
    Packet::new().ethernet(1, 2).layer(header)
}

fn ipv4_options(t: &mut Trace) {
    let mut route = vec![7, 39, 4];
    route.resize(39, 0);
    let many = vec![1; 40];
    for options in [
        vec![0x94, 4, 0, 0],
        vec![1, 1, 1, 0],
        route,
        many,
        // A length of 0 would loop a careless reader.
        vec![0x44, 0, 0, 0],
        vec![7, 255, 4, 0],
    ] {
        t.push(v4_with(|ip| ip.options = options).udp(40_000, 7).zeros(20));
    }
    t.push(v4().udp(40_000, 7).zeros(20));
}

fn ipv4_malformed(t: &mut Trace) {
    for words in [0, 1, 4] {
        t.push(
            v4_with(|ip| ip.header_words = Some(words))
                .udp(40_000, 7)
                .zeros(20),
        );
    }
    // 60 bytes of header where 20 + 8 + 20 are.
    t.push(
        v4_with(|ip| ip.header_words = Some(15))
            .udp(40_000, 7)
            .zeros(20),
    );
    for version in [0, 5, 6] {
        t.push(
            v4_with(|ip| ip.version = Some(version))
                .udp(40_000, 7)
                .zeros(20),
        );
    }
    let whole = v4().udp(40_000, 7).build();
    for keep in [14, 15, 33] {
        t.bytes(whole[..keep].to_vec());
    }
    t.bytes(whole);
}

fn ipv4_lengths(t: &mut Trace) {
    for length in [0, 19, 20, 27, 28, 47, 49, 1500, 65_535] {
        t.push(
            v4_with(|ip| ip.total_length = Some(length))
                .udp(40_000, 7)
                .zeros(20),
        );
    }
    for length in [0, 20, 39, 40, 65_535] {
        t.push(
            v4_with(|ip| ip.total_length = Some(length))
                .tcp(40_000, 80, 0x10)
                .zeros(20),
        );
    }
}

/// A UDP datagram with `bytes` of payload and a right length field, as the bytes to cut up.
fn datagram(source: u16, destination: u16, bytes: usize) -> Vec<u8> {
    Packet::new().udp(source, destination).zeros(bytes).build()
}

/// Fragment of an IPv4 datagram: `data` from `offset`, up to `end`.
fn piece(data: &[u8], id: u16, protocol: u8, offset: usize, end: usize) -> Packet {
    let ip = Ipv4::between("10.0.0.1", "10.0.0.2");
    Packet::new()
        .ethernet(1, 2)
        .layer(ip.fragment(id, protocol, (offset / 8) as u16, end < data.len()))
        .payload(&data[offset..end])
}

fn back(data: &[u8], id: u16, protocol: u8, offset: usize, end: usize) -> Packet {
    let ip = Ipv4::between("10.0.0.2", "10.0.0.1");
    Packet::new()
        .ethernet(2, 1)
        .layer(ip.fragment(id, protocol, (offset / 8) as u16, end < data.len()))
        .payload(&data[offset..end])
}

fn ipv4_fragments(t: &mut Trace) {
    let data = datagram(40_000, 7, 3000);
    t.push(piece(&data, 100, 17, 0, 1480));
    t.push(piece(&data, 100, 17, 1480, 2960));
    t.push(piece(&data, 100, 17, 2960, 3008));
    // Two datagrams of other ports, interleaved; the second in the other direction, same id.
    let (one, two) = (datagram(40_001, 7, 2000), datagram(7, 40_002, 2000));
    t.push(piece(&one, 101, 17, 0, 1480));
    t.push(back(&two, 101, 17, 0, 1480));
    t.push(piece(&one, 101, 17, 1480, 2008));
    t.push(back(&two, 101, 17, 1480, 2008));
    // Tiny fragments, the last one padded.
    let tiny = datagram(40_003, 7, 24);
    t.padded(piece(&tiny, 102, 17, 0, 8));
    t.padded(piece(&tiny, 102, 17, 8, 24));
    t.padded(piece(&tiny, 102, 17, 24, 32));
}

fn ipv4_fragments_late(t: &mut Trace) {
    let data = datagram(40_000, 7, 3000);
    // Last before first: its ports are not known yet.
    t.push(piece(&data, 200, 17, 2960, 3008));
    t.push(piece(&data, 200, 17, 0, 1480));
    t.push(piece(&data, 200, 17, 1480, 2960));
    // No first at all.
    t.push(piece(&data, 201, 17, 1480, 2960));
    t.push(piece(&data, 201, 17, 2960, 3008));
    // The same identification, another protocol: not the same datagram.
    t.push(piece(&data, 200, 136, 1480, 2960));
    // The identification comes back with other ports: the newer first fragment counts.
    let other = datagram(40_005, 7, 3000);
    t.push(piece(&other, 200, 17, 0, 1480));
    t.push(piece(&other, 200, 17, 1480, 2960));
}

fn ipv4_fragments_protocols(t: &mut Trace) {
    let tcp = Packet::new().tcp(40_000, 80, 0x18).zeros(2000).build();
    t.push(piece(&tcp, 300, 6, 0, 1480));
    t.push(piece(&tcp, 300, 6, 1480, 2020));
    let icmp = Packet::new().icmp(8, 0, 77, 1).zeros(2000).build();
    t.push(piece(&icmp, 301, 1, 0, 1480));
    t.push(piece(&icmp, 301, 1, 1480, 2008));
    let esp = Packet::new().esp(5, 1).zeros(2000).build();
    t.push(piece(&esp, 302, 50, 0, 1480));
    t.push(piece(&esp, 302, 50, 1480, 2008));
    // Eight bytes of a TCP header: ports are there, the rest is not.
    t.padded(piece(&tcp, 303, 6, 0, 8));
    t.push(piece(&tcp, 303, 6, 8, 1480));
}

fn ipv4_protocols(t: &mut Trace) {
    // 0, IGMP, GGP, ST, EGP, CHAOS, RSVP, EIGRP, OSPF, PIM, VRRP, L2TP, unassigned, reserved.
    for protocol in [
        0, 2, 3, 5, 8, 16, 46, 59, 88, 89, 103, 112, 115, 146, 200, 253, 255,
    ] {
        t.push(v4_with(|ip| ip.protocol = Some(protocol)).zeros(40));
    }
    // IPv6's extension headers and ICMPv6 are no such thing in IPv4.
    for protocol in [43, 44, 58, 60] {
        t.push(v4_with(|ip| ip.protocol = Some(protocol)).zeros(40));
    }
}

fn ipv6(t: &mut Trace) {
    for i in 0..3u16 {
        t.push(
            v6_with(|ip| ip.flow_label = 0xabcde)
                .udp(40_000 + i, 7)
                .zeros(50),
        );
        t.push(
            Packet::new()
                .ethernet(2, 1)
                .ipv6("fd00::2", "fd00::1")
                .udp(7, 40_000 + i)
                .zeros(150),
        );
        t.push(v6().tcp(40_000 + i, 80, 0x02));
        t.push(
            Packet::new()
                .ethernet(2, 1)
                .ipv6("fd00::2", "fd00::1")
                .tcp(80, 40_000 + i, 0x12),
        );
    }
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .ipv6("::", "ff02::1:ff00:1")
            .udp(40_000, 7),
    );
}

/// Routing type 253, for experiments (RFC 4727), no segments left.
const ROUTING: &[u8] = &[253, 0, 0, 0, 0, 0];

fn ipv6_extensions(t: &mut Trace) {
    for number in [0, 43, 60, 135, 139, 140] {
        let body = if number == 43 { ROUTING } else { &[] };
        t.push(v6().extension(number, body).udp(40_000, 7).zeros(16));
    }
    // A long one: 2,048 bytes.
    t.push(v6().extension(60, &[0; 2046]).udp(40_000, 7).zeros(16));
    t.push(v6().ah(9, 1).udp(40_000, 7).zeros(16));
    t.push(
        v6().extension(0, &[5, 2, 0, 0])
            .extension(43, ROUTING)
            .extension(60, &[])
            .ah(9, 2)
            .tcp(40_000, 80, 0x18)
            .zeros(16),
    );
    t.push(v6().extension(60, &[]).icmpv6(128, 0, 5, 1).zeros(8));
    t.push(v6().extension(60, &[]).esp(9, 3).zeros(40));
    t.push(v6().udp(40_000, 7).zeros(16));
}

fn ipv6_extensions_many(t: &mut Trace) {
    for count in [7, 8, 9, 100] {
        let mut packet = v6();
        for _ in 0..count {
            packet = packet.extension(60, &[]);
        }
        t.push(packet.udp(40_000 + count, 7).zeros(8));
    }
    let mut mixed = v6().extension(0, &[]);
    for number in [43, 60, 135, 139, 140, 60, 43, 51] {
        mixed = match number {
            51 => mixed.ah(1, 1),
            43 => mixed.extension(43, ROUTING),
            _ => mixed.extension(number, &[]),
        };
    }
    t.push(mixed.udp(40_000, 7));
}

fn ipv6_extensions_cut(t: &mut Trace) {
    for number in [0, 43, 60, 135, 139, 140] {
        // Says 2,048 bytes where 16 are.
        let mut long = Extension::padded(number, &[0; 6]);
        long.rest[0] = 255;
        t.push(v6().layer(long.then(17)).zeros(8));
    }
    // One byte of the header, then nothing.
    t.push(v6_with(|ip| ip.next = Some(60)).payload(&[17]));
    t.push(v6_with(|ip| ip.next = Some(44)).zeros(7));
    t.push(v6_with(|ip| ip.next = Some(51)).payload(&[17, 4, 0, 0, 0, 0, 0, 9]));
    t.push(
        v6().extension(0, &[])
            .layer(Extension::padded(60, &[]).then(60))
            .payload(&[17, 1]),
    );
    t.push(v6_with(|ip| ip.next = Some(0)));
}

fn ipv6_no_next_header(t: &mut Trace) {
    t.push(v6());
    t.push(v6().zeros(30));
    t.push(v6().layer(Extension::padded(60, &[]).then(59)));
    t.push(
        Packet::new()
            .ethernet(2, 1)
            .ipv6("fd00::2", "fd00::1")
            .zeros(10),
    );
}

fn ipv6_malformed(t: &mut Trace) {
    for version in [0, 4, 7] {
        t.push(
            v6_with(|ip| ip.version = Some(version))
                .udp(40_000, 7)
                .zeros(20),
        );
    }
    let whole = v6().udp(40_000, 7).build();
    for keep in [14, 15, 53] {
        t.bytes(whole[..keep].to_vec());
    }
    for length in [0, 7, 8, 1000, 65_535] {
        t.push(
            v6_with(|ip| ip.payload_length = Some(length))
                .udp(40_000, 7)
                .zeros(20),
        );
    }
    t.bytes(whole);
}

/// Fragment of an IPv6 packet's fragmentable part.
fn piece6(data: &[u8], id: u32, protocol: u8, offset: usize, end: usize) -> Packet {
    v6().layer(Extension::fragment(id, (offset / 8) as u16, end < data.len()).then(protocol))
        .payload(&data[offset..end])
}

fn ipv6_fragments(t: &mut Trace) {
    let data = datagram(40_000, 7, 3000);
    t.push(piece6(&data, 100, 17, 0, 1448));
    t.push(piece6(&data, 100, 17, 1448, 2896));
    t.push(piece6(&data, 100, 17, 2896, 3008));
    // The last comes first.
    let late = datagram(40_001, 7, 2000);
    t.push(piece6(&late, 101, 17, 1448, 2008));
    t.push(piece6(&late, 101, 17, 0, 1448));
    // Atomic fragments are whole packets.
    t.push(v6().fragment6(102, 0, false).udp(40_002, 7).zeros(20));
    t.push(v6().fragment6(102, 0, false).tcp(40_002, 80, 0x02));
    // The unfragmentable part has a hop-by-hop header, the fragmentable one destination options.
    let options = Packet::new()
        .extension(60, &[])
        .udp(40_003, 7)
        .zeros(2000)
        .build();
    for (offset, end) in [(0, 1448), (1448, options.len())] {
        t.push(
            v6().extension(0, &[])
                .layer(Extension::fragment(103, (offset / 8) as u16, end < options.len()).then(60))
                .payload(&options[offset..end]),
        );
    }
    let icmp = Packet::new().icmpv6(128, 0, 77, 1).zeros(2000).build();
    t.push(piece6(&icmp, 104, 58, 0, 1448));
    t.push(piece6(&icmp, 104, 58, 1448, 2008));
}

fn ipv6_fragments_no_first(t: &mut Trace) {
    let data = datagram(40_000, 7, 3000);
    t.push(piece6(&data, 200, 17, 1448, 2896));
    t.push(piece6(&data, 200, 17, 2896, 3008));
    t.push(piece6(&data, 200, 6, 1448, 2896));
    t.push(piece6(&data, 200, 60, 1448, 2896));
}

fn zero_option_extension(t: &mut Trace) {
    // PadN of no bytes, an unknown option of no bytes, Pad1 only.
    for body in [[1, 0, 1, 0, 1, 0], [0x1e, 0, 0x1e, 0, 0x1e, 0], [0; 6]] {
        t.push(v6().extension(0, &body).udp(40_000, 7).zeros(8));
        t.push(v6().extension(60, &body).udp(40_000, 7).zeros(8));
    }
    // AH whose length field says 8 bytes, less than its fixed part.
    let short = Ah {
        spi: 1,
        sequence: 1,
        icv: Vec::new(),
        next: Some(17),
    };
    t.push(v6().layer(short).layer(Udp::ports(40_000, 7)).zeros(8));
}
