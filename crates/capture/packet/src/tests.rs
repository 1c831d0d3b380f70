//! Cases of `docs/accounting.md` section 2, and what must hold for any bytes.

use crate::*;
use proptest::prelude::*;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    cat(&[&MACS, &ethertype.to_be_bytes(), payload])
}

fn tag(vid: u16, ethertype: u16) -> Vec<u8> {
    cat(&[&(0xe000 | vid).to_be_bytes(), &ethertype.to_be_bytes()])
}

/// 192.0.2.1 to 192.0.2.2; `fragment` are the flags and the offset.
fn ipv4(proto: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len() as u16).to_be_bytes();
    let f = fragment.to_be_bytes();
    cat(&[
        &[
            0x45, 0, len[0], len[1], 0x12, 0x34, f[0], f[1], 64, proto, 0, 0,
        ],
        &[192, 0, 2, 1, 192, 0, 2, 2],
        payload,
    ])
}

/// 2001:db8::1 to 2001:db8::2.
fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, len[0], len[1], next, 64];
    for last in [1, 2] {
        header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    cat(&[&header, payload])
}

fn udp(dst: u16, payload: &[u8]) -> Vec<u8> {
    cat(&[&4000u16.to_be_bytes(), &dst.to_be_bytes(), &[0; 4], payload])
}

fn tcp(data_offset: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![
        0x9c,
        0x40,
        0,
        80,
        0,
        0,
        0,
        7,
        0,
        0,
        0,
        9,
        data_offset << 4,
        flags,
    ];
    header.extend([1, 2, 0, 0, 0, 0]);
    header.resize(usize::from(data_offset.max(5)) * 4, 1);
    cat(&[&header, payload])
}

fn decoded(frame: &Frame<'_>) -> Decoded {
    decode(frame, Options { tunnels: true }).expect("a link header")
}

fn outer(data: &[u8]) -> Level {
    decoded(&Frame::ethernet(data)).outer
}

fn child(data: &[u8]) -> Option<Level> {
    decoded(&Frame::ethernet(data)).child
}

const UDP_53: Transport = Transport::Ports { src: 4000, dst: 53 };

#[test]
fn tcp_in_ipv4() {
    let frame = ethernet(0x0800, &ipv4(6, 0, &tcp(6, 0x18, b"hello")));
    let level = outer(&frame);
    assert_eq!(level.mac_dst, MACS[..6]);
    assert_eq!(level.mac_src, MACS[6..]);
    assert_eq!(level.src[10..], [0xff, 0xff, 192, 0, 2, 1]);
    assert_eq!(level.dst[10..], [0xff, 0xff, 192, 0, 2, 2]);
    assert_eq!((level.network, level.proto), (Network::V4, 6));
    assert_eq!(level.payload, 14 + 20 + 24);
    let segment = TcpSegment {
        src_port: 40_000,
        dst_port: 80,
        seq: 7,
        ack: 9,
        flags: 0x18,
        window: 0x102,
        payload_len: 5,
        hop_limit: level.hop_limit,
    };
    assert_eq!(level.hop_limit, 64);
    assert_eq!(level.transport, Transport::Tcp(segment));
    assert!(!level.malformed && level.ethernet);
}

#[test]
fn tcp_payload_is_by_the_ip_length_unless_there_is_none() {
    let payload_len = |frame: &Frame<'_>| match decoded(frame).outer.transport {
        Transport::Tcp(segment) => segment.payload_len,
        other => panic!("{other:?}"),
    };
    // Ethernet padding is no payload, options are not either.
    let mut padded = ethernet(0x0800, &ipv4(6, 0, &tcp(5, 0x10, b"")));
    padded.resize(60, 0);
    assert_eq!(payload_len(&Frame::ethernet(&padded)), 0);
    let six = ethernet(
        0x86dd,
        &ipv6(60, &cat(&[&[6, 0, 0, 0, 0, 0, 0, 0], &tcp(5, 0, b"abc")])),
    );
    assert_eq!(payload_len(&Frame::ethernet(&six)), 3);

    // Super-packets and the IP length 0: by the length on the wire, also of what is not captured.
    let whole = ethernet(0x0800, &ipv4(6, 0, &tcp(5, 0x10, b"abc")));
    let mut zero = whole.clone();
    zero[16..18].fill(0);
    let cut = Frame {
        wire_len: 3054,
        ..Frame::ethernet(&zero)
    };
    assert_eq!(payload_len(&cut), 3000);
    let joined = Frame {
        wire_len: 3054,
        segments: 3,
        ..Frame::ethernet(&whole)
    };
    assert_eq!(payload_len(&joined), 3000);
    // An IP length shorter than the headers.
    zero[17] = 30;
    assert_eq!(payload_len(&Frame::ethernet(&zero)), 0);
}

#[test]
fn vlan_tags() {
    let inner = ipv4(17, 0, &udp(53, b""));
    let one = ethernet(0x8100, &cat(&[&tag(5, 0x0800), &inner]));
    assert_eq!(outer(&one).vlan, [0x1005, 0]);
    assert_eq!(outer(&one).transport, UDP_53);

    let two = ethernet(0x88a8, &cat(&[&tag(5, 0x8100), &tag(6, 0x0800), &inner]));
    assert_eq!(outer(&two).vlan, [0x1005, 0x1006]);
    assert_eq!(outer(&two).transport, UDP_53);

    // VID 0 (a priority tag) is a tag, too.
    let priority = ethernet(0x8100, &cat(&[&tag(0, 0x0800), &inner]));
    assert_eq!(outer(&priority).vlan, [0x1000, 0]);

    let tags = cat(&[
        &tag(5, 0x8100),
        &tag(6, 0x9100),
        &tag(7, 0x8100),
        &tag(8, 0x0800),
        &inner,
    ]);
    let four = outer(&ethernet(0x88a8, &tags));
    assert_eq!(
        (four.vlan, four.more_vlans),
        ([0x1005, 0x1006], [0x1007, 0x1008])
    );
    assert_eq!(four.transport, UDP_53);

    // A fifth tag ends decoding.
    let five = ethernet(0x8100, &cat(&[&tag(4, 0x88a8), &tags]));
    let five = outer(&five);
    assert_eq!((five.ethertype, five.network), (0x8100, Network::None));
    assert_eq!(
        (five.vlan, five.more_vlans),
        ([0x1004, 0x1005], [0x1006, 0x1007])
    );

    // A stripped tag is the outermost and counts among the four.
    let stripped = |data: &[u8]| {
        decoded(&Frame {
            stripped_vlan: Some(0x2009),
            ..Frame::ethernet(data)
        })
        .outer
    };
    assert_eq!(stripped(&one).vlan, [0x1009, 0x1005]);
    assert_eq!(stripped(&two).vlan, [0x1009, 0x1005]);
    assert_eq!(stripped(&two).more_vlans, [0x1006, 0]);
    let stripped = stripped(&ethernet(0x88a8, &tags));
    assert_eq!(
        (stripped.ethertype, stripped.more_vlans),
        (0x8100, [0x1006, 0x1007])
    );

    // A tag that is cut off ends decoding without being malformed.
    let cut = outer(&one[..17]);
    assert_eq!(
        (cut.ethertype, cut.vlan, cut.malformed),
        (0x8100, [0, 0], false)
    );
}

#[test]
fn frames_without_ip() {
    let arp = outer(&ethernet(0x0806, &[0; 28]));
    assert_eq!(
        (arp.ethertype, arp.network, arp.proto),
        (0x0806, Network::None, 0)
    );
    assert_eq!(
        outer(&ethernet(0x0026, &[0x42; 38])).ethertype,
        0,
        "an 802.3 length"
    );
    assert_eq!(outer(&ethernet(0x0600, &[])).ethertype, 0x0600);
    assert_eq!(
        decode(&Frame::ethernet(&MACS), Options::default()),
        Err(Truncated)
    );
}

#[test]
fn other_link_types() {
    let ip = ipv4(17, 0, &udp(53, b""));
    let level = |link, data: &[u8]| {
        let frame = Frame {
            link,
            ..Frame::ethernet(data)
        };
        decode(&frame, Options::default()).map(|decoded| decoded.outer)
    };
    let raw = level(LinkType::RawIp, &ip).unwrap();
    assert_eq!((raw.transport, raw.ethernet), (UDP_53, false));
    let six = level(LinkType::RawIp, &ipv6(17, &udp(53, b""))).unwrap();
    assert_eq!((six.transport, six.network), (UDP_53, Network::V6));
    let odd = level(LinkType::RawIp, &[0x50; 40]).unwrap();
    assert_eq!(
        (odd.ethertype, odd.network, odd.malformed),
        (0, Network::None, false)
    );
    assert_eq!(level(LinkType::RawIp, &[]).unwrap(), Level::default());

    let mut sll = vec![0; 14];
    sll.extend([0x08, 0x00]);
    assert_eq!(
        level(LinkType::LinuxSll, &cat(&[&sll, &ip]))
            .unwrap()
            .transport,
        UDP_53
    );
    sll[15] = 0x06;
    let arp = level(LinkType::LinuxSll, &cat(&[&sll, &[0; 28]])).unwrap();
    assert_eq!(
        (arp.ethertype, arp.mac_src, arp.ethernet),
        (0x0806, [0; 6], false)
    );
    assert_eq!(level(LinkType::LinuxSll, &sll[..15]), Err(Truncated));

    let mut sll2 = vec![0x86, 0xdd];
    sll2.resize(20, 0);
    let six = level(
        LinkType::LinuxSll2,
        &cat(&[&sll2, &ipv6(17, &udp(53, b""))]),
    )
    .unwrap();
    assert_eq!(six.transport, UDP_53);

    for family in [[2, 0, 0, 0], [0, 0, 0, 2]] {
        assert_eq!(
            level(LinkType::BsdNull, &cat(&[&family, &ip]))
                .unwrap()
                .transport,
            UDP_53
        );
    }
    assert_eq!(level(LinkType::BsdNull, &[2, 0, 0]), Err(Truncated));
    assert_eq!(LinkType::from_pcap(276), Some(LinkType::LinuxSll2));
    assert_eq!(LinkType::from_pcap(192), None);
}

#[test]
fn malformed_ip_counts_as_no_ip() {
    let good = ipv4(17, 0, &udp(53, b""));
    let mut version = good.clone();
    version[0] = 0x65;
    let mut short_header = good.clone();
    short_header[0] = 0x44;
    let mut long_header = good.clone();
    long_header[0] = 0x4f;
    for bad in [&version[..], &short_header, &long_header, &good[..19], &[]] {
        let level = outer(&ethernet(0x0800, bad));
        assert!(level.malformed);
        assert_eq!(
            (level.network, level.ethertype, level.proto),
            (Network::None, 0x0800, 0)
        );
        assert_eq!((level.src, level.transport), ([0; 16], Transport::None));
    }
    assert!(outer(&ethernet(0x86dd, &ipv6(17, &[])[..39])).malformed);
    assert!(outer(&ethernet(0x86dd, &good)).malformed);
    // Without an Ethernet header the nibble names the EtherType.
    let raw = Frame {
        link: LinkType::RawIp,
        ..Frame::ethernet(&good[..12])
    };
    assert_eq!(decoded(&raw).outer.ethertype, 0x0800);
    assert!(decoded(&raw).outer.malformed);
}

#[test]
fn ipv4_options_are_stepped_over() {
    let mut packet = ipv4(17, 0, &cat(&[&[1; 8], &udp(53, b"")]));
    packet[0] = 0x47;
    assert_eq!(outer(&ethernet(0x0800, &packet)).transport, UDP_53);
}

#[test]
fn ipv6_extension_headers() {
    let options = |next: u8, units: u8| {
        let mut header = vec![next, units];
        header.resize((usize::from(units) + 1) * 8, 0);
        header
    };
    let authentication = cat(&[&[17, 4], &[0; 22]]);
    let chain = cat(&[
        &options(43, 0),
        &options(51, 2),
        &authentication,
        &udp(53, b""),
    ]);
    let level = outer(&ethernet(0x86dd, &ipv6(0, &chain)));
    assert_eq!(
        (level.proto, level.transport, level.malformed),
        (17, UDP_53, false)
    );
    assert_eq!(level.payload, 14 + 40 + 8 + 24 + 24 + 8);

    // Eight are stepped over, the ninth is not.
    let eight = cat(&[&options(60, 0).repeat(7), &options(17, 0), &udp(53, b"")]);
    assert_eq!(
        outer(&ethernet(0x86dd, &ipv6(60, &eight))).transport,
        UDP_53
    );
    let nine = cat(&[&options(60, 0).repeat(8), &options(17, 0), &udp(53, b"")]);
    let level = outer(&ethernet(0x86dd, &ipv6(60, &nine)));
    assert_eq!(
        (level.proto, level.transport, level.malformed),
        (60, Transport::None, true)
    );
    assert_eq!(level.network, Network::V6);

    // Cut off, or longer than the packet: its own number.
    for bad in [&options(17, 0)[..7], &options(17, 3)[..24]] {
        let level = outer(&ethernet(0x86dd, &ipv6(135, bad)));
        assert_eq!((level.proto, level.malformed), (135, true));
    }
    // No next header is a protocol like any other.
    let level = outer(&ethernet(0x86dd, &ipv6(59, b"")));
    assert_eq!((level.proto, level.malformed), (59, false));
}

#[test]
fn fragments() {
    let place = |data: &[u8]| {
        let level = outer(data);
        (
            level.fragment,
            level.fragment_id,
            level.transport,
            level.proto,
        )
    };
    let first = ethernet(0x0800, &ipv4(17, 0x2000, &udp(53, b"")));
    assert_eq!(place(&first), (Fragment::First, 0x1234, UDP_53, 17));
    let later = ethernet(0x0800, &ipv4(17, 0x2001, &udp(53, b"")));
    assert_eq!(
        place(&later),
        (Fragment::Later, 0x1234, Transport::None, 17)
    );
    let last = ethernet(0x0800, &ipv4(17, 0x0001, b""));
    assert_eq!(place(&last), (Fragment::Later, 0x1234, Transport::None, 17));
    assert!(!outer(&last).malformed);
    let dont = ethernet(0x0800, &ipv4(17, 0x4000, &udp(53, b"")));
    assert_eq!(place(&dont), (Fragment::Whole, 0, UDP_53, 17));

    let six = |offset: u16, next: u8| {
        let o = offset.to_be_bytes();
        let header = [next, 0, o[0], o[1], 1, 2, 3, 4];
        ethernet(0x86dd, &ipv6(44, &cat(&[&header, &udp(53, b"")])))
    };
    assert_eq!(
        place(&six(1, 17)),
        (Fragment::First, 0x0102_0304, UDP_53, 17)
    );
    assert_eq!(
        place(&six(8, 17)),
        (Fragment::Later, 0x0102_0304, Transport::None, 17)
    );
    assert_eq!(
        place(&six(0, 17)),
        (Fragment::Whole, 0, UDP_53, 17),
        "atomic"
    );
    // The data of a later fragment is not taken for an extension header.
    assert_eq!(
        place(&six(8, 60)),
        (Fragment::Later, 0x0102_0304, Transport::None, 60)
    );
}

#[test]
fn transport_headers_and_their_shortest_lengths() {
    let level = |proto, payload: &[u8]| outer(&ethernet(0x0800, &ipv4(proto, 0, payload)));
    for (proto, need) in [(6, 20), (17, 8), (136, 8), (132, 12), (33, 12)] {
        let mut header = vec![0x50; need];
        header[..4].copy_from_slice(&[0x0f, 0xa0, 0, 53]);
        let good = level(proto, &header);
        assert!(
            !good.malformed && good.transport != Transport::None,
            "{proto}"
        );
        let bad = level(proto, &header[..need - 1]);
        assert_eq!(
            (bad.malformed, bad.transport),
            (true, Transport::None),
            "{proto}"
        );
        assert_eq!((bad.network, bad.proto), (Network::V4, proto));
        assert_eq!(bad.payload, 34);
    }
    assert!(level(6, &tcp(4, 0, b"")).malformed);
    // TCP options may be cut off.
    assert!(!level(6, &tcp(15, 0, b"")[..20]).malformed);
    let other = level(50, b"");
    assert_eq!((other.transport, other.malformed), (Transport::None, false));
}

#[test]
fn icmp_and_its_identifier() {
    let icmp = |kind, code, id| Transport::Icmp(Icmp { kind, code, id });
    let level = |payload: &[u8]| outer(&ethernet(0x0800, &ipv4(1, 0, payload)));
    assert_eq!(
        level(&[8, 0, 0, 0, 1, 2, 0, 0]).transport,
        icmp(8, 0, 0x102)
    );
    assert_eq!(
        level(&[0, 0, 0, 0, 1, 2, 0, 0]).transport,
        icmp(0, 0, 0x102)
    );
    assert_eq!(level(&[3, 1, 0, 0, 1, 2, 0, 0]).transport, icmp(3, 1, 0));
    assert_eq!(level(&[3, 1, 0, 0]).transport, icmp(3, 1, 0));
    assert_eq!(level(&[10, 0, 0, 0]).transport, icmp(10, 0, 0));
    for cut in [&[8, 0, 0, 0, 1, 2, 0][..], &[3, 1, 0]] {
        assert!(level(cut).malformed);
        assert_eq!(level(cut).transport, Transport::None);
    }
    let six = |payload: &[u8]| outer(&ethernet(0x86dd, &ipv6(58, payload)));
    assert_eq!(
        six(&[129, 0, 0, 0, 1, 2, 0, 0]).transport,
        icmp(129, 0, 0x102)
    );
    assert_eq!(six(&[135, 0, 0, 0]).transport, icmp(135, 0, 0));
    // ICMPv6 in IPv4 is a protocol without ports.
    let odd = outer(&ethernet(0x0800, &ipv4(58, 0, &[128, 0, 0, 0])));
    assert_eq!((odd.transport, odd.malformed), (Transport::None, false));
}

fn inner_frame() -> Vec<u8> {
    ethernet(0x0800, &ipv4(17, 0, &udp(53, b"inner")))
}

/// The child of a frame must be the inner UDP packet.
#[track_caller]
fn assert_child(data: &[u8], tunnel: Tunnel, id: u32, start: usize) {
    let child = child(data).expect("a child");
    assert_eq!((child.tunnel, child.tunnel_id), (Some(tunnel), id));
    assert_eq!(child.start as usize, start);
    assert_eq!(child.transport, UDP_53);
    assert_eq!(child.payload as usize, data.len() - b"inner".len());
    // The parent is decoded as if there were no tunnel, and the child only on request.
    let without = decode(&Frame::ethernet(data), Options::default()).unwrap();
    assert_eq!((without.outer, without.child), (outer(data), None));
    // Nothing that is cut off yields half a child.
    for len in 14..start {
        assert_eq!(decoded(&Frame::ethernet(&data[..len])).child, None, "{len}");
    }
}

#[test]
fn vxlan() {
    let header = [8, 0, 0, 0, 1, 2, 3, 0];
    for port in [4789, 8472] {
        let packet = udp(port, &cat(&[&header, &inner_frame()]));
        assert_child(
            &ethernet(0x0800, &ipv4(17, 0, &packet)),
            Tunnel::Vxlan,
            0x01_0203,
            50,
        );
    }
    let no_flag = udp(4789, &cat(&[&[0; 8], &inner_frame()]));
    assert_eq!(child(&ethernet(0x0800, &ipv4(17, 0, &no_flag))), None);
    let other_port = udp(4790, &cat(&[&header, &inner_frame()]));
    assert_eq!(child(&ethernet(0x0800, &ipv4(17, 0, &other_port))), None);
    // First fragments have a child, later ones have none.
    let packet = udp(4789, &cat(&[&header, &inner_frame()]));
    assert!(child(&ethernet(0x0800, &ipv4(17, 0x2000, &packet))).is_some());
    assert_eq!(child(&ethernet(0x0800, &ipv4(17, 0x2001, &packet))), None);
    // An inner Ethernet header that is cut off.
    let cut = udp(4789, &cat(&[&header, &MACS]));
    assert_eq!(child(&ethernet(0x0800, &ipv4(17, 0, &cut))), None);
    // A child has its own VLANs.
    let tagged = cat(&[&MACS, &[0x81, 0], &tag(9, 0x0806)]);
    let outer_tag = cat(&[
        &tag(5, 0x0800),
        &ipv4(17, 0, &udp(4789, &cat(&[&header, &tagged]))),
    ]);
    assert_eq!(
        child(&ethernet(0x8100, &outer_tag)).unwrap().vlan,
        [0x1009, 0]
    );
}

#[test]
fn geneve() {
    let header = |first: u8, proto: u16| {
        let p = proto.to_be_bytes();
        cat(&[
            &[first, 0, p[0], p[1], 0, 0, 7, 0],
            &vec![0; usize::from(first & 0x3f) * 4],
        ])
    };
    let packet = |first, proto, inner: &[u8]| {
        let payload = cat(&[&header(first, proto), inner]);
        ethernet(0x86dd, &ipv6(17, &udp(6081, &payload)))
    };
    assert_child(&packet(0, 0x6558, &inner_frame()), Tunnel::Geneve, 7, 70);
    assert_child(&packet(3, 0x6558, &inner_frame()), Tunnel::Geneve, 7, 82);
    assert_child(
        &packet(0, 0x0800, &inner_frame()[14..]),
        Tunnel::Geneve,
        7,
        70,
    );
    assert_eq!(
        child(&packet(0x40, 0x6558, &inner_frame())),
        None,
        "version 1"
    );
    assert_eq!(child(&packet(0, 0x0806, &inner_frame())), None);
}

#[test]
fn gre() {
    let packet =
        |header: &[u8], inner: &[u8]| ethernet(0x0800, &ipv4(47, 0, &cat(&[header, inner])));
    let ip = &inner_frame()[14..];
    assert_child(&packet(&[0, 0, 8, 0], ip), Tunnel::Gre, 0, 38);
    let all = [0xb0, 0, 0x65, 0x58, 9, 9, 9, 9, 0, 0, 1, 0, 8, 8, 8, 8];
    assert_child(&packet(&all, &inner_frame()), Tunnel::Gre, 256, 50);
    let mpls = [0x20, 0, 0x88, 0x47, 0, 0, 0, 5, 0, 1, 0, 64, 0, 1, 1, 64];
    assert_child(&packet(&mpls, ip), Tunnel::Gre, 5, 50);
    assert_eq!(child(&packet(&[0, 1, 8, 0], ip)), None, "version 1");
    assert_eq!(
        child(&packet(&[0x40, 0, 8, 0], &cat(&[&[0; 8], ip]))),
        None,
        "routing"
    );
    assert_eq!(child(&packet(&[0, 0, 8, 6], ip)), None, "ARP");
    assert_eq!(child(&packet(&[0, 0, 8, 0], &[0x50; 40])), None, "no IP");
}

#[test]
fn ip_in_ip_and_mpls() {
    let ip = &inner_frame()[14..];
    assert_child(&ethernet(0x0800, &ipv4(4, 0, ip)), Tunnel::IpInIp, 0, 34);
    assert_child(&ethernet(0x86dd, &ipv6(4, ip)), Tunnel::IpInIp, 0, 54);
    let six = ipv6(17, &udp(53, b"inner"));
    assert_child(&ethernet(0x0800, &ipv4(41, 0, &six)), Tunnel::IpInIp, 0, 34);

    let label = |value: u32, bottom: u32| (value << 12 | bottom << 8 | 64).to_be_bytes();
    let stack = cat(&[&label(16, 0), &label(1000, 1)]);
    assert_child(
        &ethernet(0x8847, &cat(&[&stack, ip])),
        Tunnel::Mpls,
        1000,
        22,
    );
    assert_child(
        &ethernet(0x8848, &cat(&[&label(16, 1), &six])),
        Tunnel::Mpls,
        16,
        18,
    );
    let eight = cat(&[&label(16, 0).repeat(7), &label(9, 1)]);
    assert_child(&ethernet(0x8847, &cat(&[&eight, ip])), Tunnel::Mpls, 9, 46);
    let nine = cat(&[&label(16, 0).repeat(8), &label(9, 1), ip]);
    assert_eq!(child(&ethernet(0x8847, &nine)), None);
    // A pseudowire's control word, Ethernet: ambiguous.
    assert_eq!(
        child(&ethernet(0x8847, &cat(&[&label(9, 1), &[0; 40]]))),
        None
    );
}

#[test]
fn at_most_three_levels_and_malformed_children() {
    let mut packet = ipv4(17, 0, &udp(53, b""));
    for _ in 0..3 {
        packet = ipv4(4, 0, &packet);
    }
    let frame = ethernet(0x0800, &packet);
    let all = decoded(&Frame::ethernet(&frame));
    assert_eq!(all.levels().count(), MAX_LEVELS);
    assert_eq!((all.innermost().start, all.innermost().proto), (54, 4));
    assert_eq!(all.header_len(), 74);

    // A child whose IP header is malformed is a child without IP.
    let broken = ethernet(0x0800, &ipv4(4, 0, &[0x41; 30]));
    let all = decoded(&Frame::ethernet(&broken));
    let child = all.child.unwrap();
    assert!(all.malformed() && !all.outer.malformed);
    assert_eq!(
        (child.network, child.ethertype, child.ethernet),
        (Network::None, 0x0800, false)
    );
}

/// Bytes that get deep into the decoder: a sensible packet with some bytes replaced and cut off.
fn nearly_sensible() -> impl Strategy<Value = Vec<u8>> {
    let header = [8, 0, 0, 0, 1, 2, 3, 0];
    let options = cat(&[&[60, 0, 0, 0, 0, 0, 0, 0], &[44, 0, 0, 0, 0, 0, 0, 0]]);
    let frames = vec![
        ethernet(
            0x0800,
            &ipv4(17, 0, &udp(4789, &cat(&[&header, &inner_frame()]))),
        ),
        ethernet(
            0x86dd,
            &ipv6(
                0,
                &cat(&[&options, &[6, 0, 0, 1, 0, 0, 0, 1], &tcp(8, 2, b"")]),
            ),
        ),
        ethernet(
            0x8100,
            &cat(&[&tag(5, 0x8847), &[0, 0, 0x11, 64], &inner_frame()[14..]]),
        ),
        ethernet(
            0x0800,
            &ipv4(
                47,
                0,
                &cat(&[&[0xb0, 0, 0x65, 0x58], &[0; 12], &inner_frame()]),
            ),
        ),
        ethernet(0x86dd, &ipv6(58, &[128, 0, 0, 0, 1, 2, 3, 4])),
    ];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (
        prop::sample::select(frames),
        changes,
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut frame, changes, len)| {
            for (place, byte) in changes {
                let place = place.index(frame.len());
                frame[place] = byte;
            }
            frame.truncate(len.index(frame.len() + 1));
            frame
        })
}

fn link() -> impl Strategy<Value = LinkType> {
    prop::sample::select(vec![
        LinkType::Ethernet,
        LinkType::Ethernet,
        LinkType::RawIp,
        LinkType::LinuxSll,
        LinkType::LinuxSll2,
        LinkType::BsdNull,
        LinkType::Ieee80211,
        LinkType::Radiotap,
        LinkType::Nflog,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Any bytes: no panic, and what is reported lies within the captured bytes, but for TCP
    /// options that are cut off.
    #[test]
    fn stays_within_the_bytes(
        data in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), nearly_sensible()],
        link in link(),
        stripped_vlan: Option<u16>,
        segments: u16,
        wire_len: u32,
    ) {
        let frame = Frame { data: &data, wire_len, link, stripped_vlan, segments };
        let Ok(all) = decode(&frame, Options { tunnels: true }) else {
            // Radiotap says itself how long it is.
            prop_assert!(data.len() < 20 || link == LinkType::Radiotap);
            return Ok(());
        };
        let mut start = 0;
        for level in all.levels() {
            prop_assert!(level.start >= start && level.start <= level.payload);
            prop_assert!(level.start as usize <= data.len());
            start = level.payload;
            let beyond = level.payload as usize > data.len();
            prop_assert!(!beyond || matches!(level.transport, Transport::Tcp(_)));
            prop_assert!(level.network != Network::None || level.proto == 0);
        }
        // The bytes after what was understood change nothing.
        let used = (all.header_len() as usize).min(data.len());
        if used < data.len() && all.levels().all(|level| !level.malformed) {
            let outer = decode(&frame, Options::default()).unwrap().outer;
            let cut = Frame { data: &data[..data.len() - 1], ..frame };
            let Ok(Decoded { outer: shorter, .. }) = decode(&cut, Options::default()) else {
                prop_assert_eq!(link, LinkType::Radiotap);
                return Ok(());
            };
            if !shorter.malformed && shorter.ethertype == outer.ethertype {
                prop_assert_eq!(shorter, outer);
            }
        }
    }

    /// The short way finds what the long one does, and turns nothing away that it is made for.
    #[test]
    fn the_short_way_agrees(
        data in prop_oneof![
            1 => nearly_sensible(),
            4 => (plain_packet(), prop::option::weighted(0.3, 0..90usize), any::<u8>()).prop_map(
                |(mut data, at, value)| {
                    if let Some(byte) = at.and_then(|at| data.get_mut(at)) {
                        *byte = value;
                    }
                    data
                }
            ),
        ],
        cut in prop::option::weighted(0.1, 0..100usize),
        wire_len: u32,
        tag in prop::option::weighted(0.1, any::<u16>()),
        segments in prop_oneof![9 => 0..2u16, 1 => any::<u16>()],
        tunnels: bool,
    ) {
        let data = &data[..cut.unwrap_or(usize::MAX).min(data.len())];
        let frame = Frame { data, wire_len, link: LinkType::Ethernet, stripped_vlan: tag, segments };
        let options = Options { tunnels };
        let expected = match decode(&frame, options) {
            Ok(Decoded { outer, child: None, .. }) if segments < 2 => expected_plain(&outer),
            _ => None,
        };
        let plain = Plain::read(&frame, options).map(|plain| Expected {
            network: plain.network,
            proto: plain.proto,
            src: plain.src,
            dst: plain.dst,
            src_port: plain.src_port(),
            dst_port: plain.dst_port(),
            segment: plain.segment(),
        });
        if plain.is_some() {
            prop_assert_eq!(plain, expected);
        } else if let Some(expected) = expected {
            // Options and extension headers are not for it, nor what may be a tunnel.
            let v4_options = expected.network == Network::V4 && data[14] != 0x45;
            let v6_extensions = expected.network == Network::V6 && data[20] != expected.proto;
            let tunnel = tunnels && matches!(expected.dst_port, 4789 | 8472 | 6081);
            prop_assert!(v4_options || v6_extensions || tunnel, "{expected:?}");
        }
    }
}

/// UDP and TCP over IPv4 and IPv6.
fn plain_packet() -> impl Strategy<Value = Vec<u8>> {
    let udp = prop_oneof![Just(53), Just(4789), any::<u16>()]
        .prop_map(|dst| (17, udp(dst, &[8, 0, 0, 0, 0, 0, 1, 0])));
    let tcp = (5..8u8, any::<u8>()).prop_map(|(offset, flags)| (6, tcp(offset, flags, &[0; 20])));
    (prop_oneof![udp, tcp], any::<bool>()).prop_map(|((proto, payload), six)| match six {
        true => ethernet(0x86dd, &ipv6(proto, &payload)),
        false => ethernet(0x0800, &ipv4(proto, 0, &payload)),
    })
}

/// As [`Plain`].
#[derive(PartialEq, Debug)]
struct Expected {
    network: Network,
    proto: u8,
    src: [u64; 2],
    dst: [u64; 2],
    src_port: u16,
    dst_port: u16,
    segment: Option<TcpSegment>,
}

/// What the short way should find of a packet that the long one found to be this.
fn expected_plain(level: &Level) -> Option<Expected> {
    let (src_port, dst_port, segment) = match level.transport {
        Transport::Ports { src, dst } => (src, dst, None),
        Transport::Tcp(segment) => (segment.src_port, segment.dst_port, Some(segment)),
        _ => return None,
    };
    let plain = matches!(level.proto, 6 | 17)
        && level.vlan == [0; 2]
        && level.fragment == Fragment::Whole
        && level.fragment_id == 0
        && !level.malformed;
    let words = |address: [u8; 16]| {
        let (a, b) = address.split_at(8);
        [a, b].map(|word| u64::from_le_bytes(word.try_into().unwrap()))
    };
    plain.then_some(Expected {
        network: level.network,
        proto: level.proto,
        src: words(level.src),
        dst: words(level.dst),
        src_port,
        dst_port,
        segment,
    })
}
