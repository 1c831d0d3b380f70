//! Transport protocols other than TCP's state, and headers that are cut off.

use super::{Entry, Trace};
use crate::layer::{Tcp, Udp, UdpLite};
use crate::packet::Packet;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "udp",
        about: "one way, both ways, second direction first, port 0, equal ports",
        make: udp,
    },
    Entry {
        name: "udp_lengths",
        about: "UDP length fields of 0, too small, too large; no checksum",
        make: udp_lengths,
    },
    Entry {
        name: "udplite",
        about: "UDP-Lite with full and partial coverage, IPv4 and IPv6",
        make: udplite,
    },
    Entry {
        name: "sctp",
        about: "SCTP association: INIT, INIT ACK, DATA, several chunks",
        make: sctp,
    },
    Entry {
        name: "dccp",
        about: "DCCP request, response, ack, data, reset",
        make: dccp,
    },
    Entry {
        name: "esp",
        about: "ESP in IPv4 and IPv6, several security associations of one pair",
        make: esp,
    },
    Entry {
        name: "ah",
        about: "AH in IPv4 (a protocol of its own) and IPv6 (an extension header)",
        make: ah,
    },
    Entry {
        name: "transport_cut",
        about: "transport headers that end early, in packets that are whole",
        make: transport_cut,
    },
    Entry {
        name: "snap_64",
        about: "snap length 64: headers there, payload cut, lengths from the wire",
        make: snap_64,
    },
    Entry {
        name: "snap_40",
        about: "snap length 40: cuts within transport and IPv6 headers",
        make: snap_40,
    },
];

fn v4() -> Packet {
    Packet::new().ethernet(1, 2).ipv4("10.0.0.1", "10.0.0.2")
}

fn v4_back() -> Packet {
    Packet::new().ethernet(2, 1).ipv4("10.0.0.2", "10.0.0.1")
}

fn v6() -> Packet {
    Packet::new().ethernet(1, 2).ipv6("fd00::1", "fd00::2")
}

fn v6_back() -> Packet {
    Packet::new().ethernet(2, 1).ipv6("fd00::2", "fd00::1")
}

fn udp(t: &mut Trace) {
    t.push(v4().udp(40_000, 7).zeros(100));
    for i in 0..5 {
        t.push(v4().udp(40_001, 7).zeros(10 * i));
        t.push(v4_back().udp(7, 40_001).zeros(300));
    }
    t.push(v4_back().udp(7, 40_002).zeros(300));
    t.push(v4().udp(40_002, 7).zeros(1));
    t.push(v4().udp(0, 0).zeros(1));
    t.push(v4().udp(7777, 7777).zeros(1));
    t.push(v4_back().udp(7777, 7777).zeros(1));
    // A pause longer than any idle timeout: replay never ends flows for it.
    t.wait(3_600_000_000_000);
    t.push(v4().udp(40_000, 7).zeros(100));
}

fn udp_lengths(t: &mut Trace) {
    for length in [0, 1, 7, 8, 27, 29, 65_535] {
        t.push(
            v4().layer(Udp {
                length: Some(length),
                ..Udp::ports(40_000, 7)
            })
            .zeros(20),
        );
    }
    t.push(
        v4().layer(Udp {
            checksum: Some(0),
            ..Udp::ports(40_000, 7)
        })
        .zeros(20),
    );
}

fn udplite(t: &mut Trace) {
    for coverage in [0, 8, 20, 7] {
        let header = UdpLite {
            source: 40_000,
            destination: 7,
            coverage,
        };
        t.push(v4().layer(header.clone()).zeros(20));
        t.push(v6().layer(header).zeros(20));
    }
    t.push(v4_back().udplite(7, 40_000).zeros(30));
}

fn sctp(t: &mut Trace) {
    let init = [
        1, 0, 0, 20, 0, 0, 0, 9, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1,
    ];
    let mut init_ack = init;
    init_ack[0] = 2;
    let data = [
        0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, b'd', b'a', b't', b'a',
    ];
    let sack = [3, 0, 0, 16, 0, 0, 0, 1, 0, 0, 255, 255, 0, 0, 0, 0];
    t.push(v4().sctp(40_000, 36_412, 0).payload(&init));
    t.push(v4_back().sctp(36_412, 40_000, 9).payload(&init_ack));
    t.push(v4().sctp(40_000, 36_412, 7).payload(&data));
    t.push(
        v4_back()
            .sctp(36_412, 40_000, 9)
            .payload(&[sack.as_slice(), &data].concat()),
    );
    t.push(v6().sctp(40_000, 36_412, 0).payload(&init));
    t.push(v6_back().sctp(36_412, 40_000, 9).payload(&init_ack));
}

fn dccp(t: &mut Trace) {
    t.push(v4().dccp(40_000, 5001, 0));
    t.push(v4_back().dccp(5001, 40_000, 1));
    t.push(v4().dccp(40_000, 5001, 3));
    t.push(v4().dccp(40_000, 5001, 2).zeros(100));
    t.push(v4_back().dccp(5001, 40_000, 7));
    t.push(v6().dccp(40_000, 5001, 0));
}

fn esp(t: &mut Trace) {
    for sequence in 1..4 {
        t.push(v4().esp(0x1000, sequence).zeros(84));
        t.push(v4_back().esp(0x2000, sequence).zeros(116));
        t.push(v6().esp(0x3000, sequence).zeros(84));
    }
    t.push(v4().esp(0x1001, 1).zeros(84));
    // ESP in UDP, RFC 3948: a UDP conversation for us.
    t.push(v4().udp(4500, 4500).esp(0x1002, 1).zeros(84));
}

fn ah(t: &mut Trace) {
    for sequence in 1..3 {
        t.push(v4().ah(0x1000, sequence).udp(40_000, 7).zeros(20));
        t.push(v4_back().ah(0x1000, sequence).tcp(80, 40_000, 0x10));
        t.push(v6().ah(0x1000, sequence).udp(40_000, 7).zeros(20));
    }
}

fn transport_cut(t: &mut Trace) {
    let headers = [
        (v4().tcp(40_000, 80, 0x10), 20),
        (v4().udp(40_000, 7), 8),
        (v4().udplite(40_000, 7), 8),
        (v4().sctp(40_000, 36_412, 1), 12),
        (v4().dccp(40_000, 5001, 2), 16),
        (v4().icmp(8, 0, 7, 1), 8),
        (v6().tcp(40_000, 80, 0x10), 20),
        (v6().udp(40_000, 7), 8),
        (v6().icmpv6(128, 0, 7, 1), 8),
    ];
    for (packet, length) in headers {
        let whole = packet.build();
        for missing in [1, length / 2, length - 3, length] {
            t.bytes(whole[..whole.len() - missing].to_vec());
        }
    }
    for words in [0, 4] {
        t.push(
            v4().layer(Tcp {
                source: 40_000,
                destination: 80,
                flags: 0x10,
                offset_words: Some(words),
                ..Tcp::default()
            })
            .zeros(10),
        );
    }
    // Says 60 bytes of header where 30 are: ports can be read all the same.
    t.push(
        v4().layer(Tcp {
            source: 40_000,
            destination: 80,
            flags: 0x10,
            offset_words: Some(15),
            ..Tcp::default()
        })
        .zeros(10),
    );
}

fn snap(t: &mut Trace, keep: usize) {
    t.capture.interfaces[0].snap_length = keep as u32;
    let packets = [
        v4().udp(40_000, 7).zeros(1000),
        v4_back().udp(7, 40_000).zeros(1200),
        v4().tcp(40_000, 80, 0x18).zeros(1400),
        v6().udp(40_000, 7).zeros(1000),
        v6_back().tcp(80, 40_000, 0x10).zeros(1000),
        v4().icmp(8, 0, 5, 1).zeros(500),
        v6().icmpv6(128, 0, 5, 1).zeros(500),
        v6().extension(0, &[])
            .extension(60, &[])
            .udp(40_000, 7)
            .zeros(500),
        Packet::new()
            .ethernet(1, 2)
            .tag(0x88a8, 2)
            .vlan(3)
            .ipv4("10.0.0.1", "10.0.0.2")
            .udp(40_000, 7)
            .zeros(500),
    ];
    for packet in packets {
        t.cut(packet.build(), keep);
    }
}

fn snap_64(t: &mut Trace) {
    snap(t, 64);
}

fn snap_40(t: &mut Trace) {
    snap(t, 40);
}
