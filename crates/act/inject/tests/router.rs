//! Packets through a router, as tcpdump, tshark and the kernel at the other end see them. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use skua_inject::{
    Addresses, Frames, InjectError, Injection, Kind, Mode, Outcome, Payload, Point, State, find_mac,
};
use std::{collections::BTreeSet, net::TcpListener, time::Duration};
use support::{A_MAC, Dumped, Lab, ROUTER_MAC, capture, carry_out, ip, made, point};

/// What tshark calls a kind, from our side only.
fn display_filter(kind: Kind) -> &'static str {
    match kind {
        Kind::Icmp4 => "icmp.type == 8",
        Kind::Icmp6 => "icmpv6.type == 128",
        Kind::Tcp4 => "tcp.dstport == 81 && ip && tcp.flags.syn == 1",
        Kind::Tcp6 => "tcp.dstport == 81 && ipv6 && tcp.flags.syn == 1",
        Kind::Udp4 => "udp.dstport == 81 && ip && !icmp",
        Kind::Udp6 => "udp.dstport == 81 && ipv6 && !icmpv6",
    }
}

#[test]
fn every_kind_leaves_and_arrives_as_it_was_made() {
    let lab = Lab::new();
    for kind in Kind::ALL {
        let (near, far) = (capture(&lab.router, "ra"), capture(&lab.b, "b0"));
        let mut job = lab.job(kind);
        // Each is longer than that before, one of them of odd length.
        job.frames = Frames::Made {
            template: lab.template(kind),
            payload: Payload::Bytes(b"0123456789".to_vec()),
            growth: 7,
            mode: Mode::Increment,
            seed: 5,
        };
        let status = carry_out(job);
        assert_eq!((status.sent, status.refused), (3, 0), "{kind}: {status:?}");
        assert_eq!(status.arrived, Some(3), "{kind}: {status:?}");
        let filter = display_filter(kind);
        let (near, far) = (Dumped::read(near, filter), Dumped::read(far, filter));
        assert_eq!((near.0.len(), far.0.len()), (3, 3), "{kind}");
        let ip_header = if kind.is_ipv6() { 40 } else { 20 };
        for (number, ((sent, right), (arrived, still_right))) in
            near.0.iter().zip(&far.0).enumerate()
        {
            assert!(right & still_right, "{kind}: wrong checksum: {sent:02x?}");
            assert_eq!(sent[..6], ROUTER_MAC);
            assert_eq!(sent[6..12], A_MAC);
            // The router changes addresses of the link layer, hops left and what follows from them.
            assert_eq!(sent[14 + ip_header..], arrived[14 + ip_header..], "{kind}");
            let transport = &sent[14 + ip_header..];
            let header = match kind {
                Kind::Tcp4 | Kind::Tcp6 => 20,
                _ => 8,
            };
            assert_eq!(transport.len(), header + 10 + 7 * number);
            assert_eq!(&transport[header..header + 10], b"0123456789");
            let mark = match kind.has_ports() {
                true => (&transport[0..2], 40_000),
                false => (&transport[4..6], 77),
            };
            assert_eq!(mark.0, (mark.1 + number as u16).to_be_bytes());
        }
    }
}

#[test]
fn the_kernel_at_the_other_end_answers() {
    let lab = Lab::new();
    for kind in [Kind::Icmp4, Kind::Icmp6] {
        let status = carry_out(lab.job(kind));
        assert_eq!(status.state, State::Done);
        assert_eq!(status.outcome(), Outcome::Answered, "{kind}: {status:?}");
        assert_eq!((status.answered, status.resets), (3, 0));
    }
    // Nobody listens.
    for kind in [Kind::Tcp4, Kind::Tcp6] {
        let status = carry_out(lab.job(kind));
        assert_eq!(status.outcome(), Outcome::Answered, "{kind}: {status:?}");
        assert_eq!((status.answered, status.resets), (3, 3));
    }
    for kind in [Kind::Udp4, Kind::Udp6] {
        let status = carry_out(lab.job(kind));
        assert_eq!(status.outcome(), Outcome::Arrived, "{kind}: {status:?}");
        let [error] = &status.icmp_errors[..] else {
            panic!("{kind}: {status:?}");
        };
        assert_eq!(error.meaning(), "port unreachable");
        assert_eq!(error.from, lab.addresses(kind).to);
    }
    // Somebody listens: SYN and ACK come, which the own kernel knows nothing of and resets.
    let listeners = lab.b.inside(|| {
        let open = |address| TcpListener::bind((address, 81)).unwrap();
        ["10.81.2.2", "fd81:2::2"].map(open)
    });
    for kind in [Kind::Tcp4, Kind::Tcp6] {
        let mut job = lab.job(kind);
        job.count = 1;
        let status = carry_out(job);
        assert_eq!(status.outcome(), Outcome::Answered, "{kind}: {status:?}");
        assert_eq!(status.resets, 0, "{kind}: {status:?}");
    }
    drop(listeners);
}

/// Nothing but the sender says there which protocol a packet is of.
#[test]
fn packets_of_a_tunnel_without_a_link_layer_are_answered() {
    let lab = Lab::new();
    for (net, own, other) in [
        (&lab.a, "10.81.1.2", "10.81.2.2"),
        (&lab.b, "10.81.2.2", "10.81.1.2"),
    ] {
        let line = format!("ip tunnel add t0 mode gre local {own} remote {other} ttl 64");
        let made = net.command("sh").args(["-c", &line]).output().unwrap();
        if !made.status.success() {
            return skua_testkit::untested(
                "gre",
                "injection into a GRE tunnel: no such device here",
            );
        }
        let last = if own == "10.81.1.2" { 1 } else { 2 };
        net.ip(&format!("addr add 10.82.0.{last}/24 dev t0"));
        net.ip(&format!("addr add fd82::{last}/64 dev t0 nodad"));
        net.ip("link set t0 up");
    }
    for (kind, from, to) in [
        (Kind::Icmp4, "10.82.0.1", "10.82.0.2"),
        (Kind::Icmp6, "fd82::1", "fd82::2"),
    ] {
        let mut template = lab.template(kind);
        template.addresses = Addresses {
            macs: None,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
        };
        let mut job = lab.job(kind);
        (job.source, job.destination) = (point(&lab.a, "t0"), Some(point(&lab.b, "t0")));
        job.frames = made(template, Mode::Unique);
        let status = carry_out(job);
        assert_eq!(status.outcome(), Outcome::Answered, "{kind}: {status:?}");
        assert_eq!(status.answered, 3);
    }
}

#[test]
fn a_path_that_drops_or_refuses_is_reported() {
    let lab = Lab::new();
    lab.router.exec("ip route add blackhole 10.81.2.2/32");
    lab.router.exec("ip -6 route add blackhole fd81:2::2/128");
    for kind in Kind::ALL {
        let mut job = lab.job(kind);
        job.patience = Duration::from_millis(300);
        let status = carry_out(job.clone());
        assert_eq!(status.sent, 3);
        assert_eq!(status.arrived, Some(0), "{kind}: {status:?}");
        assert_eq!(status.outcome(), Outcome::Lost, "{kind}: {status:?}");
        job.destination = None;
        assert_eq!(carry_out(job).outcome(), Outcome::Unanswered, "{kind}");
    }
    lab.router.exec("ip route replace prohibit 10.81.2.2/32");
    lab.router
        .exec("ip -6 route replace prohibit fd81:2::2/128");
    lab.router
        .exec("sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0");
    for kind in Kind::ALL {
        let mut job = lab.job(kind);
        job.patience = Duration::from_millis(300);
        let status = carry_out(job);
        assert_eq!(status.outcome(), Outcome::Refused, "{kind}: {status:?}");
        let error = &status.icmp_errors[0];
        assert_eq!(error.meaning(), "administratively prohibited", "{kind}");
        let router = if kind.is_ipv6() {
            "fd81:1::1"
        } else {
            "10.81.1.1"
        };
        assert_eq!(error.from, ip(router));
    }
    // A packet that is one hop short.
    lab.router.exec("ip route del prohibit 10.81.2.2/32");
    let mut job = lab.job(Kind::Icmp4);
    job.patience = Duration::from_millis(300);
    if let Frames::Made { template, .. } = &mut job.frames {
        template.ttl = 1;
    }
    let status = carry_out(job);
    assert_eq!(status.icmp_errors[0].meaning(), "time exceeded");
}

#[test]
fn neighbours_are_found_on_the_wire() {
    let lab = Lab::new();
    let point = point(&lab.a, "a0");
    for (from, to) in [("10.81.1.2", "10.81.1.1"), ("fd81:1::2", "fd81:1::1")] {
        assert_eq!(
            find_mac(&point, A_MAC, ip(from), ip(to)).unwrap(),
            ROUTER_MAC
        );
    }
    let error = find_mac(&point, A_MAC, ip("10.81.1.2"), ip("10.81.1.99")).unwrap_err();
    assert!(matches!(error, InjectError::NoNeighbour { .. }), "{error}");
}

#[test]
fn a_capture_file_is_sent_as_it_is() {
    let lab = Lab::new();
    let mut job = lab.job(Kind::Udp4);
    // Three packets, made here and written as pcap (magic, version 2.4, snap length, Ethernet).
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    let mut frames = Vec::new();
    for length in [0, 11, 1_400] {
        let mut frame = Vec::new();
        lab.template(Kind::Udp4)
            .write(&vec![0x5a; length], &mut frame);
        file.extend([0; 8]);
        file.extend((frame.len() as u32).to_le_bytes());
        file.extend((frame.len() as u32).to_le_bytes());
        file.extend(&frame);
        frames.push(frame);
    }
    job.frames = Frames::from_file(&file, true).unwrap();
    job.count = 2;
    let dump = capture(&lab.router, "ra");
    let status = carry_out(job);
    assert_eq!((status.sent, status.arrived), (6, Some(6)));
    let seen = Dumped::read(dump, display_filter(Kind::Udp4));
    let seen: Vec<_> = seen.0.into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(seen, [frames.clone(), frames].concat());

    assert!(Frames::from_file(&file, false).is_err(), "no Ethernet");
    assert!(Frames::from_file(&file[..file.len() - 1], true).is_err());
    assert!(Frames::from_file(&file[..24], true).is_err(), "no packet");
    assert!(Frames::from_file(b"what is this?", true).is_err());
}

#[test]
fn conversations_of_random_and_counted_packets_are_all_seen() {
    let lab = Lab::new();
    for mode in [Mode::Random, Mode::Increment] {
        let mut job = lab.job(Kind::Icmp4);
        job.frames = made(lab.template(Kind::Icmp4), mode);
        job.count = 50;
        job.interval = Duration::ZERO;
        let status = carry_out(job);
        assert_eq!(
            (status.arrived, status.answered),
            (Some(50), 50),
            "{mode:?}"
        );
    }
}

#[test]
fn loopback_answers_itself() {
    let lab = Lab::new();
    let mut job = lab.job(Kind::Icmp4);
    let mut template = lab.template(Kind::Icmp4);
    template.addresses.macs = Some(([0; 6], [0; 6]));
    template.addresses.from = ip("127.0.0.1");
    template.addresses.to = ip("127.0.0.1");
    job.frames = made(template, Mode::Unique);
    job.source = point(&lab.a, "lo");
    job.destination = Some(job.source.clone());
    // Packets from outside must not claim to be from here, and these look so to the kernel.
    lab.a
        .exec("sysctl -qw net.ipv4.conf.all.route_localnet=1 net.ipv4.conf.lo.route_localnet=1");
    lab.a
        .exec("sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.lo.accept_local=1");
    let status = carry_out(job);
    assert_eq!(status.arrived, Some(3), "{status:?}");
}

#[test]
fn it_can_be_stopped_and_keeps_its_rate() {
    let lab = Lab::new();
    let mut job = lab.job(Kind::Udp4);
    job.count = 1_000_000;
    job.interval = Duration::ZERO;
    job.rate = 100;
    let injection = Injection::start(job).unwrap();
    while injection.status().sent < 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(injection.status().state, State::Running);
    injection.stop();
    let status = injection.wait(Duration::from_secs(60));
    assert_eq!(status.state, State::Stopped);
    assert!(status.sent < 1_000_000);
}

#[test]
fn impossible_injections_are_refused() {
    let lab = Lab::new();
    let good = lab.job(Kind::Udp4);
    let refused = |job| Injection::start(job).map(drop).unwrap_err().to_string();
    let mut job = good.clone();
    job.source = Point {
        netns_inode: 1,
        ..job.source
    };
    assert!(refused(job).contains("inode number 1"));
    let mut job = good.clone();
    job.source.ifindex = 4_000;
    assert!(refused(job).contains("no such interface"));
    let mut job = good.clone();
    let mut template = lab.template(Kind::Udp4);
    template.addresses.to = ip("fd81:2::2");
    job.frames = made(template, Mode::Unique);
    assert!(refused(job).contains("udp4 needs IPv4 addresses"));
    // More than fits on the wire: only the interface knows.
    let mut job = good;
    job.frames = Frames::Made {
        template: lab.template(Kind::Udp4),
        payload: Payload::Random(5_000),
        growth: 0,
        mode: Mode::Unique,
        seed: 1,
    };
    let status = carry_out(job);
    assert_eq!(status.state, State::Failed);
    assert_eq!(status.outcome(), Outcome::Failed);
    assert!(status.error.unwrap().contains("Message too long"));
}

#[test]
fn the_tracking_id_is_that_of_a_flow() {
    let lab = Lab::new();
    let mut ids = BTreeSet::new();
    for kind in Kind::ALL {
        let mut job = lab.job(kind);
        job.count = 1;
        job.destination = None;
        let injection = Injection::start(job).unwrap();
        ids.insert(injection.tracking_id().unwrap());
        // The same in each way: an answer counts only when its key is the same.
        let status = injection.wait(Duration::from_secs(60));
        assert_eq!(
            status.answered == 0,
            kind.name().starts_with("udp"),
            "{kind}"
        );
    }
    assert_eq!(ids.len(), Kind::ALL.len());
}
