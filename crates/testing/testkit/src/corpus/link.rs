//! Link layer: Ethernet, VLAN tags, ARP, LLC, link types without Ethernet.

use super::{Entry, Trace};
use crate::capture::{ByteOrder, Format, LinkType};
use crate::layer::{Arp, Ethernet, Llc, Pppoe};
use crate::packet::{Packet, mac};

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "arp",
        about: "request to broadcast, reply, gratuitous, padded to 60 bytes",
        make: arp,
    },
    Entry {
        name: "llc",
        about: "802.3 length fields: spanning tree, and a length of 1500, the highest",
        make: llc,
    },
    Entry {
        name: "lldp",
        about: "LLDP to its multicast address",
        make: lldp,
    },
    Entry {
        name: "ethertypes",
        about: "EtherTypes that are not decoded, and the border 0x05ff to 0x0600",
        make: ethertypes,
    },
    Entry {
        name: "vlan_one",
        about: "one tag, priority tag (VID 0), both directions",
        make: vlan_one,
    },
    Entry {
        name: "vlan_two",
        about: "two tags: 802.1ad, 0x9100, 802.1Q twice",
        make: vlan_two,
    },
    Entry {
        name: "vlan_three",
        about: "three to five tags: decoding ends at the fifth; one conversation's addresses under two fourth tags",
        make: vlan_three,
    },
    Entry {
        name: "vlan_cut",
        about: "frames that end within a tag",
        make: vlan_cut,
    },
    Entry {
        name: "vlan_same_addresses",
        about: "one conversation's addresses and ports in three VLANs",
        make: vlan_same_addresses,
    },
    Entry {
        name: "pppoe",
        about: "PPPoE discovery and session, which we count without decoding",
        make: pppoe,
    },
    Entry {
        name: "broadcast_multicast",
        about: "IPv4 broadcast, IPv4 and IPv6 multicast",
        make: broadcast_multicast,
    },
    Entry {
        name: "padding",
        about: "short packets padded to Ethernet's least length: padding counts",
        make: padding,
    },
    Entry {
        name: "jumbo",
        about: "frames of 9,018 bytes and the longest IPv4 and IPv6 packets, 65,535 bytes and more",
        make: jumbo,
    },
    Entry {
        name: "truncated_link",
        about: "frames of 0, 1 and 13 bytes between whole ones",
        make: truncated_link,
    },
    Entry {
        name: "raw_ip",
        about: "link type 101: IPv4, IPv6, other version nibbles, empty",
        make: raw_ip,
    },
    Entry {
        name: "raw_ipv4",
        about: "link type 228, big-endian µs file",
        make: raw_ipv4,
    },
    Entry {
        name: "raw_ipv6",
        about: "link type 229, big-endian ns file",
        make: raw_ipv6,
    },
    Entry {
        name: "linux_cooked",
        about: "link type 113: IPv4, IPv6, ARP, a VLAN tag, 802.2, cut off",
        make: linux_cooked,
    },
    Entry {
        name: "linux_cooked_2",
        about: "link type 276: the same with the newer header",
        make: linux_cooked_2,
    },
    Entry {
        name: "wireless",
        about: "link type 105: data of all directions, QoS, 802.2 without SNAP, fragments, protected, management",
        make: wireless,
    },
    Entry {
        name: "radiotap",
        about: "link type 127: the same behind radiotap headers with and without time, flags and padding",
        make: radiotap,
    },
    Entry {
        name: "nflog",
        about: "link type 239: IPv4 and IPv6 in attributes of NFLOG",
        make: nflog,
    },
    Entry {
        name: "bsd_null",
        about: "link type 0: address families of all systems in both byte orders",
        make: bsd_null,
    },
    Entry {
        name: "bsd_loop",
        about: "link type 108: address family in network byte order",
        make: bsd_loop,
    },
    Entry {
        name: "loopback",
        about: "all-zero MAC addresses, same address on both sides, same port on both sides",
        make: loopback,
    },
];

fn arp(t: &mut Trace) {
    let (a, b) = ((mac(1), [10, 0, 0, 1]), (mac(2), [10, 0, 0, 2]));
    let ask = |operation, sender, target| Arp {
        operation,
        sender,
        target,
    };
    t.padded(
        Packet::new()
            .ethernet(1, 255)
            .layer(ask(1, a, ([0; 6], b.1))),
    );
    t.padded(Packet::new().ethernet(2, 1).layer(ask(2, b, a)));
    t.padded(Packet::new().ethernet(1, 2).layer(ask(1, a, b)));
    t.padded(Packet::new().ethernet(3, 255).layer(ask(
        1,
        (mac(3), [10, 0, 0, 3]),
        ([0; 6], [10, 0, 0, 3]),
    )));
    t.padded(Packet::new().ethernet(1, 2).vlan(5).layer(ask(1, a, b)));
}

fn llc(t: &mut Trace) {
    let stp = Llc {
        dsap: 0x42,
        ssap: 0x42,
        control: 3,
    };
    for _ in 0..3 {
        t.padded(
            Packet::new()
                .layer(Ethernet {
                    source: mac(1),
                    destination: [0x01, 0x80, 0xc2, 0, 0, 0],
                    ethertype: None,
                })
                .layer(stp.clone())
                .zeros(35),
        );
    }
    // A test command to a null access point, as long as 802.3 allows.
    let test = Llc {
        dsap: 0,
        ssap: 0,
        control: 0xf3,
    };
    t.push(Packet::new().ethernet(1, 2).layer(test.clone()).zeros(1497));
    t.padded(Packet::new().ethernet(2, 1).layer(test.clone()).zeros(3));
    t.padded(Packet::new().ethernet(2, 1).vlan(9).layer(test).zeros(3));
}

fn lldp(t: &mut Trace) {
    let mut tlvs = vec![0x02, 0x07, 4];
    tlvs.extend_from_slice(&mac(1));
    tlvs.extend_from_slice(&[
        0x04, 0x05, 5, b'e', b't', b'h', b'0', 0x06, 0x02, 0, 120, 0, 0,
    ]);
    for _ in 0..2 {
        t.padded(
            Packet::new()
                .layer(Ethernet {
                    source: mac(1),
                    destination: [0x01, 0x80, 0xc2, 0, 0, 0x0e],
                    ethertype: Some(0x88cc),
                })
                .payload(&tlvs),
        );
    }
}

fn ethertypes(t: &mut Trace) {
    for ethertype in [0x05ff, 0x0600, 0x0805, 0x0842, 0x88b5, 0x88b6, 0xffff] {
        for (source, destination) in [(1, 2), (2, 1)] {
            t.padded(
                Packet::new()
                    .layer(Ethernet {
                        source: mac(source),
                        destination: mac(destination),
                        ethertype: Some(ethertype),
                    })
                    .zeros(50),
            );
        }
    }
}

fn vlan_one(t: &mut Trace) {
    for vid in [1, 100, 4094] {
        let there = Packet::new().ethernet(1, 2).vlan(vid);
        t.push(there.ipv4("10.0.0.1", "10.0.0.2").udp(40_000, 7).zeros(100));
        let back = Packet::new().ethernet(2, 1).vlan(0xe000 | vid);
        t.push(back.ipv4("10.0.0.2", "10.0.0.1").udp(7, 40_000).zeros(80));
    }
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .vlan(0xa000)
            .ipv6("fd00::1", "fd00::2")
            .udp(40_000, 7)
            .zeros(20),
    );
}

fn vlan_two(t: &mut Trace) {
    for (outer, inner) in [
        (0x88a8, 0x8100),
        (0x9100, 0x8100),
        (0x8100, 0x8100),
        (0x88a8, 0x88a8),
    ] {
        t.push(
            Packet::new()
                .ethernet(1, 2)
                .tag(outer, 200)
                .tag(inner, 10)
                .ipv4("10.0.0.1", "10.0.0.2")
                .tcp(40_001, 80, 0x10)
                .zeros(30),
        );
        t.push(
            Packet::new()
                .ethernet(2, 1)
                .tag(outer, 200)
                .tag(inner, 10)
                .ipv6("fd00::2", "fd00::1")
                .udp(7, 40_001)
                .zeros(30),
        );
    }
}

fn vlan_three(t: &mut Trace) {
    for third in [0x8100, 0x88a8, 0x9100] {
        t.push(
            Packet::new()
                .ethernet(1, 2)
                .tag(0x88a8, 300)
                .tag(0x8100, 20)
                .tag(third, 3)
                .ipv4("10.0.0.1", "10.0.0.2")
                .udp(40_000, 7)
                .zeros(30),
        );
    }
    for more in [&[4][..], &[5], &[4, 6]] {
        let tagged = Packet::new()
            .ethernet(1, 2)
            .tag(0x88a8, 300)
            .tag(0x8100, 20)
            .vlan(3);
        let tagged = more.iter().fold(tagged, |packet, vid| packet.vlan(*vid));
        t.push(tagged.ipv4("10.0.0.1", "10.0.0.2").udp(40_000, 7).zeros(30));
    }
}

fn vlan_cut(t: &mut Trace) {
    let whole = Packet::new()
        .ethernet(1, 2)
        .tag(0x88a8, 300)
        .tag(0x8100, 20)
        .ipv4("10.0.0.1", "10.0.0.2")
        .udp(40_000, 7)
        .build();
    for keep in [14, 16, 17, 18, 20, 21, 22] {
        t.bytes(whole[..keep].to_vec());
    }
}

fn vlan_same_addresses(t: &mut Trace) {
    let frames = [
        Packet::new().ethernet(1, 2),
        Packet::new().ethernet(1, 2).vlan(1),
        Packet::new().ethernet(1, 2).vlan(2),
        Packet::new().ethernet(1, 2).tag(0x88a8, 2).vlan(1),
    ];
    for (i, frame) in frames.into_iter().enumerate() {
        for _ in 0..=i {
            let packet = frame.clone().ipv4("10.0.0.1", "10.0.0.2");
            t.push(packet.udp(40_000, 7).zeros(10 * i));
        }
    }
}

fn pppoe(t: &mut Trace) {
    for (source, destination, code) in [(1, 255, 0x09), (2, 1, 0x07), (1, 2, 0x19), (2, 1, 0x65)] {
        let discovery = Pppoe {
            code,
            session: if code == 0x65 { 17 } else { 0 },
        };
        t.padded(
            Packet::new()
                .ethernet(source, destination)
                .layer(discovery)
                .payload(&[1, 1, 0, 0]),
        );
    }
    let session = Pppoe {
        code: 0,
        session: 17,
    };
    let there = Packet::new().ethernet(1, 2).layer(session.clone());
    t.push(
        there
            .clone()
            .ipv4("10.0.0.1", "10.0.0.2")
            .udp(40_000, 7)
            .zeros(64),
    );
    t.push(there.ipv6("fd00::1", "fd00::2").udp(40_000, 7).zeros(64));
    let back = Packet::new().ethernet(2, 1).layer(session);
    t.push(back.ipv4("10.0.0.2", "10.0.0.1").udp(7, 40_000).zeros(64));
}

fn broadcast_multicast(t: &mut Trace) {
    t.push(
        Packet::new()
            .ethernet(1, 255)
            .ipv4("10.0.0.1", "255.255.255.255")
            .udp(40_000, 9)
            .zeros(30),
    );
    let group = Ethernet {
        source: mac(1),
        destination: [0x01, 0, 0x5e, 0, 0, 0x7b],
        ethertype: None,
    };
    t.push(
        Packet::new()
            .layer(group)
            .ipv4("10.0.0.1", "239.0.0.123")
            .udp(40_000, 9)
            .zeros(30),
    );
    let group = Ethernet {
        source: mac(1),
        destination: [0x33, 0x33, 0, 0, 0, 0x7b],
        ethertype: None,
    };
    t.push(
        Packet::new()
            .layer(group)
            .ipv6("fe80::1", "ff02::7b")
            .udp(40_000, 9)
            .zeros(30),
    );
}

fn padding(t: &mut Trace) {
    for flags in [0x02, 0x10] {
        let there = Packet::new().ethernet(1, 2).ipv4("10.0.0.1", "10.0.0.2");
        t.padded(there.tcp(40_000, 80, flags));
    }
    t.padded(
        Packet::new()
            .ethernet(2, 1)
            .ipv4("10.0.0.2", "10.0.0.1")
            .udp(7, 40_000)
            .zeros(1),
    );
    // Padding that makes more than 60 bytes.
    let mut long = Packet::new()
        .ethernet(2, 1)
        .ipv4("10.0.0.2", "10.0.0.1")
        .udp(7, 40_000)
        .build();
    long.resize(500, 0xee);
    t.bytes(long);
}

fn jumbo(t: &mut Trace) {
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .vlan(1)
            .ipv4("10.0.0.1", "10.0.0.2")
            .udp(40_000, 7)
            .zeros(8972),
    );
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .ipv4("10.0.0.1", "10.0.0.2")
            .udp(40_000, 7)
            .zeros(65_535 - 28),
    );
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .ipv6("fd00::1", "fd00::2")
            .udp(40_000, 7)
            .zeros(65_535 - 8),
    );
    // Longer than any length field: like a super-packet that offloading has not cut yet.
    let longer = crate::layer::Ipv4 {
        total_length: Some(0),
        ..crate::layer::Ipv4::between("10.0.0.1", "10.0.0.2")
    };
    t.push(
        Packet::new()
            .ethernet(1, 2)
            .layer(longer)
            .tcp(40_000, 80, 0x10)
            .zeros(100_000),
    );
}

fn truncated_link(t: &mut Trace) {
    let whole = Packet::new()
        .ethernet(1, 2)
        .ipv4("10.0.0.1", "10.0.0.2")
        .udp(40_000, 7)
        .zeros(18)
        .build();
    t.bytes(whole.clone());
    for keep in [13, 1, 0, 14] {
        t.bytes(whole[..keep].to_vec());
    }
    // Captured short, but 60 bytes on the wire.
    t.cut(whole.clone(), 13);
    t.cut(whole.clone(), 0);
    t.bytes(whole);
}

fn raw(t: &mut Trace, link_type: LinkType) {
    t.capture.interfaces[0].link_type = link_type;
    if link_type != LinkType::IPV6 {
        t.push(
            Packet::new()
                .ipv4("10.0.0.1", "10.0.0.2")
                .udp(40_000, 7)
                .zeros(30),
        );
        t.push(
            Packet::new()
                .ipv4("10.0.0.2", "10.0.0.1")
                .tcp(80, 40_000, 0x12)
                .zeros(0),
        );
    }
    if link_type != LinkType::IPV4 {
        t.push(
            Packet::new()
                .ipv6("fd00::1", "fd00::2")
                .udp(40_000, 7)
                .zeros(30),
        );
        t.push(
            Packet::new()
                .ipv6("fd00::2", "fd00::1")
                .icmpv6(128, 0, 7, 1)
                .zeros(8),
        );
    }
}

fn raw_ip(t: &mut Trace) {
    raw(t, LinkType::RAW);
    for nibble in [0u8, 5, 7, 15] {
        t.bytes(vec![nibble << 4; 40]);
    }
    t.bytes(vec![0x45; 3]);
    t.bytes(vec![0x60; 39]);
    t.bytes(Vec::new());
}

fn raw_ipv4(t: &mut Trace) {
    t.capture.format = Format::PcapMicroseconds(ByteOrder::Big);
    raw(t, LinkType::IPV4);
}

fn raw_ipv6(t: &mut Trace) {
    t.capture.format = Format::PcapNanoseconds(ByteOrder::Big);
    raw(t, LinkType::IPV6);
}

fn loopback(t: &mut Trace) {
    for (source, destination) in [(5000, 6000), (6000, 5000), (7000, 7000), (7000, 7000)] {
        t.push(
            Packet::new()
                .ethernet(0, 0)
                .ipv4("127.0.0.1", "127.0.0.1")
                .udp(source, destination)
                .zeros(usize::from(source / 100)),
        );
        t.push(
            Packet::new()
                .ethernet(0, 0)
                .ipv6("::1", "::1")
                .udp(source, destination)
                .zeros(usize::from(source / 200)),
        );
    }
    // IPv4-mapped IPv6 addresses are IPv6 and not the IPv4 conversation.
    t.push(
        Packet::new()
            .ethernet(0, 0)
            .ipv6("::ffff:127.0.0.1", "::ffff:127.0.0.1")
            .udp(5000, 6000),
    );
}

/// What a cooked capture holds: its header is made from the protocol number.
fn cooked(t: &mut Trace, header: impl Fn(u16) -> Vec<u8>) {
    let arp = Arp {
        operation: 1,
        sender: (mac(1), [10, 0, 0, 1]),
        target: ([0; 6], [10, 0, 0, 2]),
    };
    let packets = [
        (
            0x0800,
            Packet::new()
                .ipv4("10.0.0.1", "10.0.0.2")
                .udp(40_000, 7)
                .zeros(30),
        ),
        (
            0x0800,
            Packet::new()
                .ipv4("10.0.0.2", "10.0.0.1")
                .udp(7, 40_000)
                .zeros(40),
        ),
        (
            0x86dd,
            Packet::new()
                .ipv6("fd00::1", "fd00::2")
                .tcp(40_000, 80, 0x18)
                .zeros(30),
        ),
        (0x0806, Packet::new().layer(arp)),
        // After the tag's number in the header come its control information and the EtherType.
        (
            0x8100,
            Packet::new()
                .payload(&[0, 5, 8, 0])
                .ipv4("10.0.0.1", "10.0.0.2")
                .udp(40_000, 7)
                .zeros(30),
        ),
        // 802.2 and an unknown protocol.
        (0x0004, Packet::new().payload(&[0x42, 0x42, 3]).zeros(35)),
        (0x88b5, Packet::new().zeros(20)),
        // The version is not the one that the header announces.
        (
            0x0800,
            Packet::new().ipv6("fd00::1", "fd00::2").udp(40_000, 7),
        ),
    ];
    for (protocol, packet) in packets {
        let mut bytes = header(protocol);
        bytes.extend_from_slice(&packet.build());
        t.bytes(bytes);
    }
    let whole = header(0x0800);
    for keep in [whole.len(), whole.len() - 1, 0] {
        t.bytes(whole[..keep].to_vec());
    }
}

fn linux_cooked(t: &mut Trace) {
    t.capture.interfaces[0].link_type = LinkType::LINUX_SLL;
    cooked(t, |protocol| {
        // To us, Ethernet, address of six bytes.
        let mut header = vec![0, 0, 0, 1, 0, 6];
        header.extend_from_slice(&mac(1));
        header.extend_from_slice(&[0, 0]);
        header.extend_from_slice(&protocol.to_be_bytes());
        header
    });
}

fn linux_cooked_2(t: &mut Trace) {
    t.capture.interfaces[0].link_type = LinkType::LINUX_SLL2;
    cooked(t, |protocol| {
        let mut header = protocol.to_be_bytes().to_vec();
        // Reserved, interface 2, Ethernet, to us, address of six bytes.
        header.extend_from_slice(&[0, 0, 0, 0, 0, 2, 0, 1, 0, 6]);
        header.extend_from_slice(&mac(1));
        header.extend_from_slice(&[0, 0]);
        header
    });
}

/// LLC and SNAP, and a packet.
fn snapped(protocol: u16, packet: Packet) -> Vec<u8> {
    let mut bytes = vec![0xaa, 0xaa, 3, 0, 0, 0];
    bytes.extend_from_slice(&protocol.to_be_bytes());
    bytes.extend_from_slice(&packet.build());
    bytes
}

/// Frames of IEEE 802.11: their headers, and what they carry.
fn frames() -> Vec<(Vec<u8>, Vec<u8>)> {
    let header = |kind: u8, flags: u8, sequence: u8| {
        let mut header = vec![kind, flags, 0, 0];
        for number in 1..=3 {
            header.extend_from_slice(&mac(number));
        }
        header.extend_from_slice(&[sequence, 0]);
        if flags & 3 == 3 {
            header.extend_from_slice(&mac(4));
        }
        if kind & 0x80 != 0 && kind & 0x0c == 8 {
            header.extend_from_slice(&[0, 0]);
        }
        header
    };
    let v4 = || Packet::new().ipv4("10.0.0.1", "10.0.0.2");
    let v6 = || Packet::new().ipv6("fd00::1", "fd00::2");
    let mut frames = Vec::new();
    // Data and QoS data, within a cell, to and from the access point, between two of them.
    for kind in [0x08, 0x88] {
        for flags in 0..=3 {
            let packet = v4().udp(40_000, 7).zeros(30);
            frames.push((header(kind, flags, 0), snapped(0x0800, packet)));
            let packet = v6().tcp(40_000, 80, 0x18).zeros(30);
            frames.push((header(kind, flags, 0), snapped(0x86dd, packet)));
        }
    }
    // 802.2 without SNAP; no data; a later fragment; a beacon and an acknowledgement.
    frames.push((header(0x08, 1, 0), vec![0x42, 0x42, 3, 0, 0, 0, 0, 0, 0, 0]));
    frames.push((header(0x48, 1, 0), Vec::new()));
    frames.push((header(0x08, 1, 0x11), vec![0x55; 40]));
    frames.push((header(0x80, 0, 0), vec![0; 12]));
    frames.push((vec![0xd4, 0, 0, 0], mac(1).to_vec()));
    frames
}

fn wireless(t: &mut Trace) {
    t.capture.interfaces[0].link_type = LinkType::IEEE_802_11;
    for (header, body) in frames() {
        t.bytes([header, body].concat());
    }
}

fn radiotap(t: &mut Trace) {
    t.capture.interfaces[0].link_type = LinkType::RADIOTAP;
    // Bits of the bitmap: 0 the time, 1 flags, 2 the rate.
    for (present, padded) in [
        (0_u32, false),
        (4, false),
        (2, false),
        (2, true),
        (7, false),
        (7, true),
    ] {
        for (header, body) in frames() {
            let mut fields = Vec::new();
            if present & 1 != 0 {
                fields.extend_from_slice(&7_u64.to_le_bytes());
            }
            if present & 2 != 0 {
                fields.push(if padded { 0x20 } else { 0 });
            }
            if present & 4 != 0 {
                fields.push(2);
            }
            let mut bytes = vec![0, 0];
            bytes.extend_from_slice(&(8 + fields.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&present.to_le_bytes());
            bytes.extend_from_slice(&fields);
            let length = header.len();
            bytes.extend_from_slice(&header);
            // Only data frames have something to be aligned.
            if padded && header[0] & 0x0c == 8 {
                bytes.resize(bytes.len() + length.next_multiple_of(4) - length, 0);
            }
            bytes.extend_from_slice(&body);
            t.bytes(bytes);
        }
    }
}

fn nflog(t: &mut Trace) {
    t.capture.interfaces[0].link_type = LinkType::NFLOG;
    let packets = [
        (
            2,
            Packet::new()
                .ipv4("10.0.0.1", "10.0.0.2")
                .udp(40_000, 7)
                .zeros(30),
        ),
        (
            10,
            Packet::new()
                .ipv6("fd00::1", "fd00::2")
                .tcp(40_000, 80, 0x18)
                .zeros(30),
        ),
    ];
    for (family, packet) in packets {
        let packet = packet.build();
        // Version 0, group 5.
        let mut bytes = vec![family, 0, 0, 5];
        // Hardware protocol and hook; a prefix of three bytes, padded; the packet.
        for (kind, value) in [(1_u16, &[8, 0, 1, 0][..]), (10, b"in\0"), (9, &packet)] {
            bytes.extend_from_slice(&(4 + value.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        t.bytes(bytes);
    }
    // Without a packet.
    t.bytes(vec![2, 0, 0, 5, 8, 0, 1, 0, 8, 0, 1, 0]);
}

fn families(t: &mut Trace, header: impl Fn(u32) -> [u8; 4]) {
    // 2 everywhere IPv4; IPv6 is 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on Darwin.
    for family in [2, 24, 28, 30] {
        let packet = match family {
            2 => Packet::new().ipv4("10.0.0.1", "10.0.0.2"),
            _ => Packet::new().ipv6("fd00::1", "fd00::2"),
        };
        let mut bytes = header(family).to_vec();
        bytes.extend_from_slice(&packet.udp(40_000, 7).zeros(20).build());
        t.bytes(bytes);
    }
    // A family that is no IP.
    let mut other = header(7).to_vec();
    other.extend_from_slice(&[0; 30]);
    t.bytes(other);
    t.bytes(header(2)[..3].to_vec());
}

fn bsd_null(t: &mut Trace) {
    t.capture.interfaces[0].link_type = LinkType::NULL;
    families(t, u32::to_le_bytes);
    families(t, u32::to_be_bytes);
}

fn bsd_loop(t: &mut Trace) {
    t.capture.interfaces[0].link_type = LinkType::LOOP;
    families(t, u32::to_be_bytes);
}
