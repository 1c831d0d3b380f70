//! ICMP and ICMPv6.

use super::{Entry, Trace};
use crate::packet::Packet;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "icmp_echo",
        about: "echo and replies, several identifiers, both sides asking",
        make: echo,
    },
    Entry {
        name: "icmp_ids_low_byte",
        about: "identifiers that share their low byte, or their high byte, are different flows",
        make: ids_low_byte,
    },
    Entry {
        name: "icmp_queries",
        about: "every pair of request and reply of ICMP",
        make: queries,
    },
    Entry {
        name: "icmp_errors",
        about: "errors that quote UDP, TCP and ICMP packets; redirects; codes differ",
        make: errors,
    },
    Entry {
        name: "icmpv6_echo",
        about: "ICMPv6 echo with identifiers that share a byte",
        make: echo6,
    },
    Entry {
        name: "icmpv6_neighbours",
        about: "neighbour, router and multicast listener discovery",
        make: neighbours,
    },
    Entry {
        name: "icmpv6_queries",
        about: "every pair of request and reply of ICMPv6",
        make: queries6,
    },
    Entry {
        name: "icmpv6_errors",
        about: "errors that quote UDP, TCP and ICMPv6 packets, also with extension headers",
        make: errors6,
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

fn echo(t: &mut Trace) {
    for sequence in 0..3 {
        for id in [0, 1, 4711] {
            t.push(v4().icmp(8, 0, id, sequence).zeros(56));
            t.push(v4_back().icmp(0, 0, id, sequence).zeros(56));
        }
        t.push(v4_back().icmp(8, 0, 99, sequence).zeros(10));
        t.push(v4().icmp(0, 0, 99, sequence).zeros(10));
        // The same identifier asked from the other side shares the entry.
        t.push(v4_back().icmp(8, 0, 4711, sequence).zeros(10));
    }
    // A reply without a request.
    t.push(v4().icmp(0, 0, 5, 0).zeros(10));
}

fn ids_low_byte(t: &mut Trace) {
    for id in [0x0007, 0x0107, 0x0207, 0xff07, 0x0701, 0x0702] {
        t.push(v4().icmp(8, 0, id, 1).zeros(20));
        t.push(v4_back().icmp(0, 0, id, 1).zeros(20));
    }
}

fn queries(t: &mut Trace) {
    for (request, reply) in [(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)] {
        t.push(v4().icmp(request, 0, 7, 1).zeros(12));
        t.push(v4_back().icmp(reply, 0, 7, 1).zeros(12));
        // A code other than 0 makes another flow.
        t.push(v4().icmp(request, 1, 7, 1).zeros(12));
    }
}

fn errors(t: &mut Trace) {
    let quoted = Packet::new()
        .ipv4("10.0.0.1", "10.0.0.2")
        .udp(40_000, 7)
        .zeros(20)
        .build();
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .ipv4("10.0.0.1", "10.0.0.2")
            .udp(40_000, 7),
    );
    for code in [0, 1, 3, 4] {
        t.push(v4_back().icmp(3, code, 0, 1400).payload(&quoted[..28]));
    }
    let tcp = Packet::new()
        .ipv4("10.0.0.1", "10.0.0.2")
        .tcp(40_000, 80, 0x02)
        .build();
    t.push(v4_back().icmp(3, 13, 0, 0).payload(&tcp));
    t.push(v4_back().icmp(11, 0, 0, 0).payload(&tcp[..28]));
    t.push(v4_back().icmp(4, 0, 0, 0).payload(&quoted[..28]));
    t.push(v4_back().icmp(5, 1, 0x0a00, 0x0009).payload(&quoted[..28]));
    t.push(v4_back().icmp(12, 0, 0x1400, 0).payload(&quoted[..28]));
    let ping = Packet::new()
        .ipv4("10.0.0.1", "10.0.0.2")
        .icmp(8, 0, 7, 1)
        .build();
    t.push(v4_back().icmp(11, 0, 0, 0).payload(&ping));
    t.push(v4().icmp(11, 1, 0, 0).payload(&ping));
    // Unassigned types.
    t.push(v4().icmp(44, 3, 7, 1).zeros(8));
    t.push(v4_back().icmp(255, 255, 7, 1).zeros(8));
}

fn echo6(t: &mut Trace) {
    for id in [0x0007, 0x0107, 0x0701] {
        for sequence in 0..2 {
            t.push(v6().icmpv6(128, 0, id, sequence).zeros(56));
            t.push(v6_back().icmpv6(129, 0, id, sequence).zeros(56));
        }
    }
}

fn neighbours(t: &mut Trace) {
    let target = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let to_all = |destination| Packet::new().ethernet(1, 255).ipv6("fd00::1", destination);
    t.push(
        to_all("ff02::1:ff00:2")
            .icmpv6(135, 0, 0, 0)
            .payload(&target),
    );
    t.push(v6_back().icmpv6(136, 0, 0x6000, 0).payload(&target));
    t.push(v6().icmpv6(135, 0, 0, 0).payload(&target));
    t.push(v6_back().icmpv6(136, 0, 0x6000, 0).payload(&target));
    t.push(to_all("ff02::2").icmpv6(133, 0, 0, 0));
    t.push(v6().icmpv6(134, 0, 0x4000, 1800).zeros(8));
    // Multicast listener reports have a router alert in a hop-by-hop header.
    t.push(
        to_all("ff02::16")
            .extension(0, &[5, 2, 0, 0])
            .icmpv6(143, 0, 0, 1)
            .payload(&[4, 0, 0, 0])
            .payload(&target),
    );
}

fn queries6(t: &mut Trace) {
    let pairs = [
        (128, 129),
        (130, 131),
        (133, 134),
        (135, 136),
        (139, 140),
        (144, 145),
    ];
    for (request, reply) in pairs {
        t.push(v6().icmpv6(request, 0, 7, 1).zeros(16));
        t.push(v6_back().icmpv6(reply, 0, 7, 1).zeros(16));
        t.push(v6().icmpv6(request, 1, 7, 1).zeros(16));
    }
    t.push(v6().icmpv6(132, 0, 0, 0).zeros(16));
    t.push(v6().icmpv6(137, 0, 0, 0).zeros(32));
}

fn errors6(t: &mut Trace) {
    let quoted = Packet::new()
        .ipv6("fd00::1", "fd00::2")
        .udp(40_000, 7)
        .zeros(20)
        .build();
    let tcp = Packet::new()
        .ipv6("fd00::1", "fd00::2")
        .extension(60, &[])
        .tcp(40_000, 80, 0x02)
        .build();
    let ping = Packet::new()
        .ipv6("fd00::1", "fd00::2")
        .icmpv6(128, 0, 7, 1)
        .build();
    for code in [0, 3, 4] {
        t.push(v6_back().icmpv6(1, code, 0, 0).payload(&quoted));
    }
    t.push(v6_back().icmpv6(2, 0, 0, 1280).payload(&tcp));
    t.push(v6_back().icmpv6(3, 0, 0, 0).payload(&ping));
    t.push(v6_back().icmpv6(4, 1, 0, 40).payload(&quoted));
    t.push(v6().icmpv6(4, 1, 0, 40).payload(&quoted));
}
