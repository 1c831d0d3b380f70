//! Tunnels: VXLAN, GENEVE, GRE, IP-in-IP, MPLS, ERSPAN, nested, cut off and fragmented.

use super::{Entry, Trace};
use crate::layer::{Extension, Geneve, Gre, Ipv4, Udp, Vxlan};
use crate::packet::Packet;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "vxlan",
        about: "VXLAN on 4789 and 8472, both directions, two VNIs, inner VLAN, without the I flag",
        make: vxlan,
    },
    Entry {
        name: "geneve",
        about: "GENEVE without and with options, other versions, control packets",
        make: geneve,
    },
    Entry {
        name: "gre",
        about: "GRE plain, with key, sequence number and checksum; IPv4, IPv6, MPLS inside",
        make: gre,
    },
    Entry {
        name: "gre_ethernet",
        about: "transparent Ethernet bridging over GRE, with an inner VLAN",
        make: gre_ethernet,
    },
    Entry {
        name: "gre_other",
        about: "GRE of version 1 (PPTP) and with an unknown EtherType: no child",
        make: gre_other,
    },
    Entry {
        name: "ip_in_ip",
        about: "4in4, 6in4, 4in6, 6in6",
        make: ip_in_ip,
    },
    Entry {
        name: "mpls",
        about: "one to eight labels over IPv4, IPv6 and neither; nine labels; multicast EtherType",
        make: mpls,
    },
    Entry {
        name: "mpls_udp",
        about: "MPLS in UDP, in both directions with labels and source ports of their own; without bottom of stack",
        make: mpls_udp,
    },
    Entry {
        name: "erspan",
        about: "ERSPAN types I to III, two sessions, with a header of the platform; other versions: no child",
        make: erspan,
    },
    Entry {
        name: "tunnels_nested",
        about: "two levels: VXLAN in GRE, GRE in IP-in-IP, MPLS in GRE, IP-in-IP in VXLAN",
        make: nested,
    },
    Entry {
        name: "tunnels_deep",
        about: "three and four levels: the last is not decoded",
        make: deep,
    },
    Entry {
        name: "tunnels_cut",
        about: "tunnel and inner headers that end early",
        make: cut,
    },
    Entry {
        name: "tunnels_fragments",
        about: "fragmented outer packet: the first has a child, later ones have none",
        make: fragments,
    },
    Entry {
        name: "tunnels_same_inner",
        about: "one inner conversation under two VNIs and two outer pairs: four children",
        make: same_inner,
    },
    Entry {
        name: "tunnels_inner_malformed",
        about: "inner packets with wrong versions, header lengths, VLAN stacks",
        make: inner_malformed,
    },
];

fn outer() -> Packet {
    Packet::new().ethernet(1, 2).ipv4("192.0.2.1", "192.0.2.2")
}

fn outer_back() -> Packet {
    Packet::new().ethernet(2, 1).ipv4("192.0.2.2", "192.0.2.1")
}

fn outer6() -> Packet {
    Packet::new()
        .ethernet(1, 2)
        .ipv6("2001:db8::1", "2001:db8::2")
}

fn inner(packet: Packet) -> Packet {
    packet.ipv4("10.1.0.1", "10.1.0.2").udp(40_000, 7).zeros(40)
}

fn inner_back(packet: Packet) -> Packet {
    packet.ipv4("10.1.0.2", "10.1.0.1").udp(7, 40_000).zeros(60)
}

fn inner6(packet: Packet) -> Packet {
    packet
        .ipv6("fd01::1", "fd01::2")
        .tcp(40_000, 80, 0x18)
        .zeros(40)
}

fn vxlan(t: &mut Trace) {
    for vni in [1, 0xff_ffff] {
        t.push(inner(outer().vxlan(vni).ethernet(11, 12)));
        t.push(inner_back(outer_back().vxlan(vni).ethernet(12, 11)));
        t.push(inner6(outer6().vxlan(vni).ethernet(11, 12)));
    }
    t.push(inner(outer().vxlan(2).ethernet(11, 12).vlan(77)));
    let arp = crate::layer::Arp {
        operation: 1,
        sender: (crate::packet::mac(11), [10, 1, 0, 1]),
        target: ([0; 6], [10, 1, 0, 2]),
    };
    t.push(outer().vxlan(2).ethernet(11, 255).layer(arp));
    let linux = outer().udp(50_000, 8472).layer(Vxlan {
        vni: 3,
        flags: 0x08,
    });
    t.push(inner(linux.ethernet(11, 12)));
    let no_identifier = outer().udp(50_000, 4789).layer(Vxlan { vni: 3, flags: 0 });
    t.push(inner(no_identifier.ethernet(11, 12)));
    // Each direction has a source port of its own, as senders choose it: one conversation inside.
    let identified = Vxlan {
        vni: 9,
        flags: 0x08,
    };
    let there = outer().udp(51_111, 4789).layer(identified);
    t.push(inner(there.ethernet(11, 12)));
    let back = outer_back().udp(52_222, 4789).layer(identified);
    t.push(inner_back(back.ethernet(12, 11)));
    // From the port, not to it: no tunnel.
    let from = outer().udp(4789, 50_000).layer(Vxlan {
        vni: 3,
        flags: 0x08,
    });
    t.push(inner(from.ethernet(11, 12)));
}

fn geneve(t: &mut Trace) {
    t.push(inner(outer().geneve(5).ethernet(11, 12)));
    t.push(inner_back(outer_back().geneve(5).ethernet(12, 11)));
    // Another source port, the same conversation inside.
    let back = outer_back().udp(52_222, 6081).layer(Geneve {
        vni: 5,
        ..Geneve::default()
    });
    t.push(inner_back(back.ethernet(12, 11)));
    t.push(inner6(outer6().geneve(5).ethernet(11, 12)));
    let with = |geneve| outer().udp(50_000, 6081).layer(geneve);
    let options = vec![0x01, 0x02, 0x80, 0x01, 1, 2, 3, 4];
    t.push(inner(
        with(Geneve {
            vni: 6,
            options,
            ..Geneve::default()
        })
        .ethernet(11, 12),
    ));
    t.push(inner(
        with(Geneve {
            vni: 6,
            options: vec![0; 252],
            ..Geneve::default()
        })
        .ethernet(11, 12),
    ));
    t.push(inner(with(Geneve {
        vni: 7,
        ..Geneve::default()
    })));
    t.push(inner6(with(Geneve {
        vni: 7,
        ..Geneve::default()
    })));
    t.push(inner(
        with(Geneve {
            vni: 8,
            version: 1,
            ..Geneve::default()
        })
        .ethernet(11, 12),
    ));
    t.push(inner(
        with(Geneve {
            vni: 8,
            protocol: Some(0x88b5),
            ..Geneve::default()
        })
        .ethernet(11, 12),
    ));
}

fn gre(t: &mut Trace) {
    let headers = [
        Gre::default(),
        Gre {
            key: Some(42),
            ..Gre::default()
        },
        Gre {
            key: Some(43),
            ..Gre::default()
        },
        Gre {
            sequence: Some(1),
            ..Gre::default()
        },
        Gre {
            key: Some(42),
            sequence: Some(2),
            checksum: true,
            ..Gre::default()
        },
        Gre {
            checksum: true,
            ..Gre::default()
        },
    ];
    for header in headers {
        t.push(inner(outer().layer(header.clone())));
        t.push(inner_back(outer_back().layer(header.clone())));
        t.push(inner6(outer().layer(header.clone())));
        t.push(inner6(outer6().layer(header)));
    }
    t.push(inner(outer().gre().mpls(99)));
}

fn gre_ethernet(t: &mut Trace) {
    for key in [None, Some(7)] {
        let header = Gre {
            key,
            ..Gre::default()
        };
        t.push(inner(outer().layer(header.clone()).ethernet(11, 12)));
        t.push(inner_back(
            outer_back().layer(header.clone()).ethernet(12, 11),
        ));
        t.push(inner6(outer().layer(header).ethernet(11, 12).vlan(5)));
    }
}

fn gre_other(t: &mut Trace) {
    t.push(inner(outer().layer(Gre {
        key: Some(1),
        version: 1,
        protocol: Some(0x880b),
        ..Gre::default()
    })));
    // Keep-alive of some routers: EtherType 0, nothing inside.
    t.push(outer().layer(Gre {
        protocol: Some(0),
        ..Gre::default()
    }));
    for protocol in [0x88b5, 0x0806, 0x8100] {
        t.push(
            outer()
                .layer(Gre {
                    protocol: Some(protocol),
                    ..Gre::default()
                })
                .zeros(40),
        );
    }
}

fn ip_in_ip(t: &mut Trace) {
    t.push(inner(outer()));
    t.push(inner_back(outer_back()));
    t.push(inner6(outer()));
    t.push(inner(outer6()));
    t.push(inner6(outer6()));
    t.push(inner6(outer6().extension(60, &[4, 1, 4, 1, 1, 0])));
    // A child with another transport protocol.
    t.push(
        outer()
            .ipv4("10.1.0.1", "10.1.0.2")
            .icmp(8, 0, 9, 1)
            .zeros(8),
    );
    t.push(outer().ipv4("10.1.0.1", "10.1.0.2").esp(1, 1).zeros(40));
}

fn mpls(t: &mut Trace) {
    let labels = |count: u32| (0..count).fold(Packet::new().ethernet(1, 2), |p, i| p.mpls(16 + i));
    for count in [1, 2, 8, 9] {
        t.push(inner(labels(count)));
        t.push(inner6(labels(count)));
    }
    t.push(inner_back(Packet::new().ethernet(2, 1).mpls(16)));
    // Each direction has labels of its own: one conversation inside.
    t.push(inner_back(Packet::new().ethernet(2, 1).mpls(700).mpls(701)));
    t.push(inner(Packet::new().ethernet(1, 2).vlan(8).mpls(16)));
    // A pseudowire with control word: nibble 0, then Ethernet.
    t.push(inner(
        Packet::new()
            .ethernet(1, 2)
            .mpls(500)
            .payload(&[0; 4])
            .ethernet(11, 12),
    ));
    let multicast = crate::layer::Ethernet {
        source: crate::packet::mac(1),
        destination: crate::packet::mac(2),
        ethertype: Some(0x8848),
    };
    t.push(inner(Packet::new().layer(multicast).mpls(17)));
}

fn mpls_udp(t: &mut Trace) {
    let to = |packet: Packet, source| packet.udp(source, 6635);
    t.push(inner(to(outer(), 50_001).mpls(100)));
    t.push(inner_back(to(outer_back(), 50_002).mpls(30).mpls(200)));
    t.push(inner6(to(outer6(), 50_001).mpls(100)));
    // From the port, not to it: no tunnel.
    t.push(outer().udp(6635, 50_000).zeros(8));
    t.push(to(outer(), 50_001).layer(crate::layer::Mpls {
        label: 17,
        bottom: Some(false),
    }));
}

/// GRE that says so and an ERSPAN header.
fn erspan_header(packet: Packet, protocol: u16, sequence: Option<u32>, header: &[u8]) -> Packet {
    packet
        .layer(Gre {
            sequence,
            protocol: Some(protocol),
            ..Gre::default()
        })
        .payload(header)
}

/// The header of type III: session, and the last two bytes, frame type to whether a platform's header follows.
fn erspan3_header(session: u16, last: u16) -> Vec<u8> {
    let [high, low] = session.to_be_bytes();
    let [type_high, type_low] = last.to_be_bytes();
    vec![0x20, 1, high, low, 1, 2, 3, 4, 0, 0, type_high, type_low]
}

fn erspan(t: &mut Trace) {
    for session in [1, 0x3ff] {
        let [high, low] = u16::to_be_bytes(session);
        let second = |packet| {
            let header = [0x10, 1, high, low, 0, 0, 0, 1];
            erspan_header(packet, 0x88be, Some(7), &header)
        };
        t.push(inner(second(outer()).ethernet(11, 12)));
        t.push(inner_back(second(outer()).ethernet(12, 11)));
        t.push(inner6(second(outer6()).ethernet(11, 12).vlan(5)));
        let third = |last| {
            let header = erspan3_header(session, last);
            erspan_header(outer(), 0x22eb, Some(7), &header)
        };
        t.push(inner(third(0).ethernet(11, 12)));
        t.push(inner_back(third(8).ethernet(12, 11)));
    }
    let mut platform = erspan3_header(2, 1);
    platform.extend([0x0c, 0, 0, 0, 0, 0, 0, 1]);
    let platform = erspan_header(outer(), 0x22eb, Some(8), &platform);
    t.push(inner(platform.ethernet(11, 12)));
    let first = || erspan_header(outer(), 0x88be, None, &[]);
    t.push(inner(first().ethernet(11, 12)));
    t.push(inner_back(first().ethernet(12, 11)));
    for end in [38, 42, 44, 50, 58] {
        let header = erspan3_header(2, 0);
        let whole = inner(erspan_header(outer(), 0x22eb, Some(9), &header).ethernet(11, 12));
        t.cut(whole.build(), end);
    }
}

fn nested(t: &mut Trace) {
    let middle = |p: Packet| p.ipv4("198.51.100.1", "198.51.100.2");
    t.push(inner(middle(outer().gre()).vxlan(9).ethernet(11, 12)));
    t.push(inner(middle(outer()).gre()));
    t.push(inner6(middle(outer()).gre()));
    t.push(inner(middle(outer().vxlan(9).ethernet(11, 12))));
    t.push(inner(middle(outer().geneve(4).ethernet(11, 12)).gre()));
    t.push(inner(middle(Packet::new().ethernet(1, 2).mpls(30)).gre()));
    t.push(inner(
        outer().vxlan(9).ethernet(11, 12).ipv6("fd02::1", "fd02::2"),
    ));
}

fn deep(t: &mut Trace) {
    let second = |p: Packet| p.ipv4("198.51.100.1", "198.51.100.2");
    let third = |p: Packet| p.ipv4("203.0.113.1", "203.0.113.2");
    t.push(inner(third(second(outer()))));
    t.push(inner(third(second(outer().gre()).gre()).gre()));
    t.push(inner(
        third(second(outer().vxlan(1).ethernet(11, 12)))
            .vxlan(2)
            .ethernet(21, 22),
    ));
    t.push(inner(third(third(second(outer())))));
}

fn cut(t: &mut Trace) {
    let packets = [
        (inner(outer().vxlan(1).ethernet(11, 12)).build(), 42),
        (inner(outer().geneve(1).ethernet(11, 12)).build(), 42),
        (inner(outer().gre()).build(), 34),
        (inner(outer()).build(), 34),
        (
            inner(Packet::new().ethernet(1, 2).mpls(16).mpls(17)).build(),
            14,
        ),
    ];
    for (whole, header) in packets {
        for more in [0, 1, 3, 4, 7, 8, 12, 20, 27, 28, 36] {
            t.cut(whole.clone(), header + more);
        }
    }
    // Whole packets whose GENEVE options or GRE fields reach beyond the end.
    t.push(outer().udp(50_000, 6081).layer(Geneve {
        vni: 1,
        option_words: Some(63),
        ..Geneve::default()
    }));
    t.push(outer().layer(Gre {
        protocol: Some(0x0800),
        ..Gre::default()
    }));
    // A label stack without bottom.
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .mpls(16)
            .layer(crate::layer::Mpls {
                label: 17,
                bottom: Some(false),
            }),
    );
}

fn fragments(t: &mut Trace) {
    let data = inner(
        Packet::new()
            .layer(Udp::ports(50_000, 4789))
            .layer(Vxlan {
                vni: 1,
                flags: 0x08,
            })
            .ethernet(11, 12),
    )
    .zeros(2000)
    .build();
    for (offset, end) in [(0, 1480), (1480, data.len())] {
        let ip = Ipv4::between("192.0.2.1", "192.0.2.2").fragment(
            5,
            17,
            (offset / 8) as u16,
            end < data.len(),
        );
        t.push(
            Packet::new()
                .ethernet(1, 2)
                .layer(ip)
                .payload(&data[offset..end]),
        );
    }
    // The inner packet is a fragment.
    let datagram = Packet::new().udp(40_000, 7).zeros(1000).build();
    for (offset, end) in [(0, 504), (504, datagram.len())] {
        let ip = Ipv4::between("10.1.0.1", "10.1.0.2").fragment(
            6,
            17,
            (offset / 8) as u16,
            end < datagram.len(),
        );
        let piece = &datagram[offset..end];
        t.push(outer().gre().layer(ip).payload(piece));
    }
    for (offset, end) in [(0, 504), (504, datagram.len())] {
        let header = Extension::fragment(7, (offset / 8) as u16, end < datagram.len()).then(17);
        let piece = &datagram[offset..end];
        t.push(
            outer()
                .ipv6("fd01::1", "fd01::2")
                .layer(header)
                .payload(piece),
        );
    }
}

fn same_inner(t: &mut Trace) {
    for vni in [10, 20] {
        t.push(inner(outer().vxlan(vni).ethernet(11, 12)));
        t.push(inner(outer6().vxlan(vni).ethernet(11, 12)));
    }
    t.push(inner(Packet::new().ethernet(11, 12)));
}

fn inner_malformed(t: &mut Trace) {
    for (version, words) in [(Some(5), None), (None, Some(3)), (None, Some(15))] {
        let ip = Ipv4 {
            version,
            header_words: words,
            ..Ipv4::between("10.1.0.1", "10.1.0.2")
        };
        t.push(outer().vxlan(1).ethernet(11, 12).layer(ip.clone()).zeros(8));
        t.push(outer().gre().layer(ip).zeros(8));
    }
    let mut vlans = outer().vxlan(1).ethernet(11, 12);
    for vid in 1..5 {
        vlans = vlans.vlan(vid);
    }
    t.push(inner(vlans));
    // The EtherType says IPv4, the version nibble 6.
    let mut six = inner6(Packet::new()).build();
    six.truncate(60);
    t.push(
        outer()
            .layer(Gre {
                protocol: Some(0x0800),
                ..Gre::default()
            })
            .payload(&six),
    );
}
