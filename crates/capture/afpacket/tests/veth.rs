//! Captures on veth pairs in fresh network namespaces, exact against what was sent and against the
//! interface's own counters. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

use skua_afpacket::{
    AfPacketCapture, BpfInstruction, CaptureStats, Direction, Error, Fanout, GsoKind, Options,
    Packet, PacketSource, Vlan,
};
use skua_testkit::{
    lab::{Net, kernel, root_tests},
    wire::Counters,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const WAIT: Duration = Duration::from_millis(50);

/// Two namespaces, a with `va` and b with `vb`, that can talk and between which nothing passes but
/// what a test sends: addresses are known, so there is no ARP.
struct Pair {
    a: Net,
    b: Net,
    ipv6: bool,
}

impl Pair {
    /// With IPv4 only: IPv6 would announce itself whenever it likes.
    fn new() -> Self {
        Self::make(false)
    }

    fn with_ipv6() -> Self {
        Self::make(true)
    }

    fn make(ipv6: bool) -> Self {
        let new = if ipv6 { Net::with_ipv6 } else { Net::new };
        let (a, b) = (new(), new());
        let end = |name: &str, mac: &str| format!("{name} address 02:00:00:00:00:{mac}");
        a.pair(&end("va", "0a"), &b, &end("vb", "0b"));
        for (ns, link, own, peer, mac) in [(&a, "va", "1", "2", "0b"), (&b, "vb", "2", "1", "0a")] {
            ns.ip(&format!("addr add 10.78.0.{own}/24 dev {link}"));
            ns.ip(&format!(
                "neigh add 10.78.0.{peer} lladdr 02:00:00:00:00:{mac} dev {link}"
            ));
            if ipv6 {
                ns.ip(&format!("addr add fd78::{own}/64 dev {link} nodad"));
                ns.ip(&format!(
                    "neigh add fd78::{peer} lladdr 02:00:00:00:00:{mac} dev {link}"
                ));
            }
        }
        Self { a, b, ipv6 }
    }

    /// Options for `vb`, with room for all packets of a test: how soon a thread gets a CPU to read
    /// them must not decide it.
    fn options(&self) -> Options {
        Options {
            ring_bytes: 32 << 20,
            ..Options::new(self.b.ifindex("vb"), "vb")
        }
    }

    fn open(&self, options: &Options) -> AfPacketCapture {
        self.b.inside(|| AfPacketCapture::open(options)).unwrap()
    }

    /// Counters of `vb`.
    fn counters(&self) -> Counters {
        self.b.counters("vb")
    }

    /// Packets that never came to `vb`: on a busy machine the kernel's queue between the two ends
    /// of a veth overflows, and the sending end counts that.
    fn lost_on_the_way(&self) -> u64 {
        self.a.counters("va").tx_dropped
    }

    fn udp_from_a(&self, from: &str) -> UdpSocket {
        self.a.inside(|| UdpSocket::bind(from)).unwrap()
    }

    /// A socket that takes what is sent to `to`, so that no ICMP error answers.
    fn udp_in_b(&self, to: &str) -> UdpSocket {
        self.b.inside(|| UdpSocket::bind(to)).unwrap()
    }
}

/// What a capture saw.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// Packets as the interface counts them: super-packets are one.
    packets: u64,
    bytes: u64,
    /// Packets on the wire.
    wire_packets: u64,
    wire_bytes: u64,
    super_packets: u64,
    outgoing: u64,
    last_ns: u64,
    /// Of the received TCP packets, on the wire: all packets and bytes, those with payload, and
    /// their payload.
    tcp_packets: u64,
    tcp_bytes: u64,
    tcp_data_packets: u64,
    tcp_data_bytes: u64,
}

impl Seen {
    fn add(&mut self, packet: &Packet<'_>) {
        assert!(packet.data.len() <= packet.length as usize);
        self.last_ns = packet.timestamp_ns;
        self.packets += 1;
        self.bytes += u64::from(packet.length);
        self.wire_packets += packet.segments().map_or(1, |s| u64::from(s.count));
        self.wire_bytes += packet.wire_bytes();
        self.super_packets += u64::from(packet.gso.is_some());
        self.outgoing += u64::from(packet.direction.is_outgoing());
        if let (Direction::Host, Some(headers)) = (packet.direction, tcp_headers(packet.data)) {
            let count = packet.segments().map_or(1, |s| u64::from(s.count));
            let payload = u64::from(packet.length) - headers;
            self.tcp_packets += count;
            self.tcp_bytes += packet.wire_bytes();
            self.tcp_data_packets += if payload > 0 { count } else { 0 };
            self.tcp_data_bytes += payload;
        }
    }
}

/// Bytes up to the payload of a TCP packet without IP options.
fn tcp_headers(data: &[u8]) -> Option<u64> {
    let tcp = match (data.get(12..14)?, data.get(20)?, data.get(23)?) {
        ([0x08, 0], _, 6) => 34,
        ([0x86, 0xdd], 6, _) => 54,
        _ => return None,
    };
    Some(tcp as u64 + u64::from(data.get(tcp + 12)? >> 4) * 4)
}

/// Sets the flag at the end of its scope, also when an assertion fails: otherwise the thread that
/// waits for it would never end, and the test with it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits until so many packets have come to the captures, for what has been sent may still be in
/// the kernel's queue. If they never come the assertions that follow will tell.
fn wait_for(captures: &mut [impl PacketSource], packets: u64) {
    for _ in 0..1000 {
        if captures
            .iter_mut()
            .map(|c| c.stats().unwrap().received)
            .sum::<u64>()
            >= packets
        {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Captures on a thread of its own while `work` runs and until the number of packets that it
/// returns have come, then finishes.
fn while_capturing(
    capture: &mut impl PacketSource,
    work: impl FnOnce() -> u64,
) -> (Seen, CaptureStats) {
    let done = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let mut seen = Seen::default();
    let stats = thread::scope(|scope| {
        let stop = Stop(&done);
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                capture
                    .dispatch(WAIT, &mut |packet| seen.add(packet))
                    .unwrap();
            }
            wait_for(std::slice::from_mut(capture), sent.load(Ordering::Acquire));
            capture.finish(&mut |packet| seen.add(packet)).unwrap()
        });
        sent.store(work(), Ordering::Release);
        drop(stop);
        reader.join().unwrap()
    });
    (seen, stats)
}

/// What the interface has counted since then, both ways: packets, bytes.
fn counted(before: Counters, after: Counters) -> (u64, u64) {
    let sum = (after - before).rx + (after - before).tx;
    (sum.packets, sum.bytes)
}

/// A UDP packet in IPv6 from a to b, without payload, as a frame.
fn ipv6_frame() -> Vec<u8> {
    let mut frame = vec![0; 62];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 11, 2, 0, 0, 0, 0, 10, 0x86, 0xdd]);
    frame[14] = 0x60;
    frame[18..22].copy_from_slice(&[0, 8, 17, 64]);
    frame[22] = 0xfd;
    frame[38] = 0xfd;
    frame[54..60].copy_from_slice(&[0, 7, 0, 9, 0, 8]);
    frame
}

#[test]
fn every_small_packet_is_seen_once() {
    if !root_tests() {
        return;
    }
    for ipv6 in [false, true] {
        let pair = Pair::new();
        let socket = pair.udp_from_a("10.78.0.1:0");
        let _sink = pair.udp_in_b("10.78.0.2:9");
        let mut capture = pair.open(&pair.options());
        let before = pair.counters();
        let mut sent = 0;
        let (seen, stats) = while_capturing(&mut capture, || {
            if ipv6 {
                send_frames(&pair, &[&ipv6_frame()], 100_000);
            } else {
                for _ in 0..100_000 {
                    socket.send_to(&[7; 20], "10.78.0.2:9").unwrap();
                }
            }
            sent = 100_000 - pair.lost_on_the_way();
            sent
        });
        let after = pair.counters();
        assert_eq!((seen.packets, seen.bytes), (sent, sent * 62));
        assert_eq!((seen.packets, seen.bytes), counted(before, after));
        assert_eq!(
            (seen.wire_packets, seen.wire_bytes),
            (seen.packets, seen.bytes)
        );
        assert_eq!((seen.super_packets, seen.outgoing), (0, 0));
        let expected = CaptureStats {
            received: sent,
            delivered: sent,
            ..CaptureStats::default()
        };
        assert_eq!(
            CaptureStats {
                freezes: 0,
                ..stats
            },
            expected
        );
    }
}

#[test]
fn what_is_lost_is_counted() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    let socket = pair.udp_from_a("10.78.0.1:0");
    let _sink = pair.udp_in_b("10.78.0.2:9");
    let options = Options {
        ring_bytes: 32 << 10,
        block_bytes: 16 << 10,
        ..pair.options()
    };
    let mut capture = pair.open(&options);
    // Nobody reads while they are sent.
    for _ in 0..10_000 {
        socket.send_to(&[7; 20], "10.78.0.2:9").unwrap();
    }
    let sent = 10_000 - pair.lost_on_the_way();
    wait_for(std::slice::from_mut(&mut capture), sent);
    let mut seen = Seen::default();
    let stats = capture.finish(&mut |packet| seen.add(packet)).unwrap();
    // The ring has room for some 200.
    assert!(stats.drops > sent - 1000, "{stats:?}");
    assert!(stats.freezes > 0 && seen.packets > 0, "{stats:?}");
    assert_eq!(stats.received, sent);
    assert_eq!(seen.packets, sent - stats.drops);
    assert_eq!(stats.delivered, seen.packets);
    drop(capture);

    // The same with a reader that is too slow.
    let before = pair.lost_on_the_way();
    let mut sent = 0;
    let mut slow = Slow(pair.open(&options));
    let (seen, stats) = while_capturing(&mut slow, || {
        for _ in 0..50_000 {
            socket.send_to(&[7; 20], "10.78.0.2:9").unwrap();
        }
        sent = 50_000 - (pair.lost_on_the_way() - before);
        sent
    });
    assert_eq!(stats.received, sent);
    assert_eq!(seen.packets, sent - stats.drops);
}

/// A capture whose reader takes its time.
struct Slow(AfPacketCapture);

impl PacketSource for Slow {
    fn dispatch(
        &mut self,
        timeout: Duration,
        packets: &mut dyn FnMut(&Packet<'_>),
    ) -> Result<u64, Error> {
        thread::sleep(Duration::from_millis(2));
        self.0.dispatch(timeout, packets)
    }

    fn finish(&mut self, packets: &mut dyn FnMut(&Packet<'_>)) -> Result<CaptureStats, Error> {
        self.0.finish(packets)
    }

    fn stats(&mut self) -> Result<CaptureStats, Error> {
        self.0.stats()
    }
}

/// What the kernel says that a TCP socket has sent: packets with payload and bytes of payload, on
/// the wire and with all retransmissions.
fn tcp_sent(socket: &TcpStream) -> (u64, u64) {
    // `struct tcp_info`, linux/tcp.h.
    const DATA_SEGS_OUT: usize = 156;
    const BYTES_SENT: usize = 200;
    let mut info = [0_u8; 256];
    let mut length = info.len() as u32;
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert!(result == 0 && length as usize >= BYTES_SENT + 8);
    let packets = info[DATA_SEGS_OUT..][..4]
        .try_into()
        .map(u32::from_ne_bytes)
        .unwrap();
    let bytes = info[BYTES_SENT..][..8]
        .try_into()
        .map(u64::from_ne_bytes)
        .unwrap();
    (packets.into(), bytes)
}

/// Sends `bytes` over TCP from a to b with a capture on b, and checks everything that must hold
/// whatever the offloads. `headers` is the length of the headers of a packet with payload.
fn tcp_bulk(pair: &Pair, address: &str, bytes: usize, headers: u64) -> Seen {
    let listener = pair.b.inside(|| TcpListener::bind(address)).unwrap();
    let to = listener.local_addr().unwrap();
    let mut capture = pair.open(&pair.options());
    let before = pair.counters();
    let mut sent = (0, 0);
    let (seen, stats) = while_capturing(&mut capture, || {
        let mut sender = pair.a.inside(|| TcpStream::connect(to)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let chunk = vec![7; 256 << 10];
                for _ in 0..bytes / chunk.len() {
                    sender.write_all(&chunk).unwrap();
                }
                sender.shutdown(Shutdown::Write).unwrap();
            });
            let (mut receiver, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 256 << 10];
            let mut received = 0;
            loop {
                match receiver.read(&mut buffer).unwrap() {
                    0 => break,
                    n => received += n,
                }
            }
            assert_eq!(received, bytes);
        });
        // Until the last acknowledgement has passed.
        pair.b.settled_counters("vb");
        sent = tcp_sent(&sender);
        counted(before, pair.counters()).0
    });
    assert_eq!((stats.drops, stats.received), (0, seen.packets));
    if !pair.ipv6 {
        // IPv6 announces itself whenever it likes, also between two looks.
        assert_eq!((seen.packets, seen.bytes), counted(before, pair.counters()));
    }
    assert_eq!((seen.tcp_data_packets, seen.tcp_data_bytes), sent);
    assert!(seen.tcp_data_bytes >= bytes as u64);
    // Only the first packet has 8 bytes more of options.
    assert_eq!(
        seen.tcp_bytes,
        seen.tcp_packets * headers + 8 + seen.tcp_data_bytes
    );
    seen
}

#[test]
fn super_packets_are_cut_as_on_the_wire() {
    if !root_tests() {
        return;
    }
    for (pair, address, headers) in [
        (Pair::new(), "10.78.0.2:0", 66),
        (Pair::with_ipv6(), "[fd78::2]:0", 86),
    ] {
        let seen = tcp_bulk(&pair, address, 256 << 20, headers);
        assert!(seen.super_packets > 1000, "{seen:?}");
        assert!(seen.wire_packets > 10 * seen.packets, "{seen:?}");
    }
}

#[test]
fn without_offload_nothing_is_cut() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    for (ns, link) in [(&pair.a, "va"), (&pair.b, "vb")] {
        ns.exec(&format!("ethtool -K {link} tso off gso off gro off"));
    }
    let seen = tcp_bulk(&pair, "10.78.0.2:0", 8 << 20, 66);
    assert_eq!(seen.super_packets, 0);
    assert_eq!(
        (seen.wire_packets, seen.wire_bytes),
        (seen.packets, seen.bytes)
    );
}

#[test]
fn udp_super_packets_are_counted_or_told_as_lost() {
    if !root_tests() {
        return;
    }
    const UDP_SEGMENT: i32 = 103;
    let pair = Pair::new();
    let socket = pair.udp_from_a("10.78.0.1:0");
    let _sink = pair.udp_in_b("10.78.0.2:9");
    let size: i32 = 1000;
    // SAFETY: the kernel reads the four bytes of `size`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            UDP_SEGMENT,
            std::ptr::from_ref(&size).cast(),
            4,
        )
    };
    assert_eq!(result, 0);
    let mut kinds = Vec::new();
    let mut capture = pair.open(&pair.options());
    let before = pair.counters();
    for _ in 0..100 {
        assert_eq!(socket.send_to(&[7; 20_500], "10.78.0.2:9").unwrap(), 20_500);
    }
    wait_for(
        std::slice::from_mut(&mut capture),
        counted(before, pair.counters()).0,
    );
    let mut seen = Seen::default();
    let stats = capture
        .finish(&mut |packet| {
            seen.add(packet);
            kinds.extend(packet.gso.map(|gso| gso.kind));
        })
        .unwrap();
    let interface = counted(before, pair.counters());
    assert_eq!(stats.received, interface.0);
    if interface.0 > 100 {
        // veth of this kernel does not take them whole: they come cut.
        assert_eq!((seen.packets, seen.bytes), interface);
    } else if kernel() >= (6, 2) {
        assert_eq!((seen.packets, seen.bytes), interface);
        assert_eq!(kinds, vec![GsoKind::UdpDatagrams; 100]);
    } else {
        // The kernel cannot describe them yet.
        assert_eq!((seen.packets, stats.drops), (0, 100));
        return;
    }
    assert_eq!(seen.wire_packets, 100 * 21);
    assert_eq!(seen.wire_bytes, 100 * (20_500 + 21 * 42));
}

#[test]
fn vlan_tags_are_told() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    let before = pair.counters();
    let mut capture = pair.open(&pair.options());
    // A frame with one tag and one with two, sent as they are.
    let mut one = vec![0; 60];
    one[..12].copy_from_slice(&[2, 0, 0, 0, 0, 11, 2, 0, 0, 0, 0, 10]);
    one[12..18].copy_from_slice(&[0x81, 0, 0x20, 5, 0x88, 0xb5]);
    let mut two = one.clone();
    two[12..22].copy_from_slice(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x88, 0xb5]);
    send_frames(&pair, &[&one, &two], 500);
    let sent = 1000 - pair.lost_on_the_way();
    wait_for(std::slice::from_mut(&mut capture), sent);
    let mut tags = Vec::new();
    let mut seen = Seen::default();
    let stats = capture
        .finish(&mut |packet| {
            seen.add(packet);
            tags.push((packet.vlan, packet.data[12..14].to_vec(), packet.length));
        })
        .unwrap();
    assert_eq!((stats.received, stats.drops), (sent, 0));
    // The kernel takes the outer tag out of received frames; it is on the wire all the same.
    let single = (
        Some(Vlan {
            tci: 0x2005,
            tpid: 0x8100,
        }),
        vec![0x88, 0xb5],
        56,
    );
    let double = (
        Some(Vlan {
            tci: 7,
            tpid: 0x88a8,
        }),
        vec![0x81, 0],
        56,
    );
    assert!(
        tags.iter().all(|tag| *tag == single || *tag == double),
        "{tags:?}"
    );
    assert!(tags.contains(&single) && tags.contains(&double));
    assert_eq!((seen.wire_packets, seen.wire_bytes), (sent, sent * 60));
    assert_eq!(counted(before, pair.counters()), (sent, sent * 60));
}

/// Sends each of the frames from `va`, in turn, `times` times.
fn send_frames(pair: &Pair, frames: &[&[u8]], times: usize) {
    let ifindex = pair.a.ifindex("va");
    pair.a.inside(|| {
        // SAFETY: an all-zero sockaddr_ll is a valid one.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = ifindex as i32;
        // SAFETY: plain system calls on a descriptor of our own, with pointers to live data
        // and their true lengths.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            assert!(fd >= 0);
            for _ in 0..times {
                for frame in frames {
                    let sent = libc::sendto(
                        fd,
                        frame.as_ptr().cast(),
                        frame.len(),
                        0,
                        std::ptr::from_ref(&to).cast(),
                        size_of::<libc::sockaddr_ll>() as u32,
                    );
                    // What is lost on the way may be told here too.
                    let full =
                        std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
                    assert!(sent == frame.len() as isize || (sent < 0 && full));
                }
            }
            libc::close(fd);
        }
    });
}

#[test]
fn both_directions_are_told_apart() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    let a = pair.udp_from_a("10.78.0.1:4000");
    let b = pair.udp_in_b("10.78.0.2:4001");
    let ifindex = pair.options().ifindex;
    let mut capture = pair.open(&pair.options());
    for _ in 0..10 {
        a.send_to(&[1; 30], "10.78.0.2:4001").unwrap();
        b.send_to(&[2; 40], "10.78.0.1:4000").unwrap();
    }
    wait_for(std::slice::from_mut(&mut capture), 20);
    let mut directions = Vec::new();
    capture
        .finish(&mut |packet| {
            assert_eq!(packet.ifindex, ifindex);
            directions.push((packet.direction, packet.length));
        })
        .unwrap();
    let expected = [(Direction::Host, 72), (Direction::Outgoing, 82)].repeat(10);
    assert_eq!(directions, expected);
}

#[test]
fn loopback_is_counted_once() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let options = Options {
        loopback: true,
        ..Options::new(1, "lo")
    };
    let (mut capture, a, b) = net.inside(|| {
        let capture = AfPacketCapture::open(&options).unwrap();
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        (capture, a, b)
    });
    for _ in 0..500 {
        a.send_to(&[0; 10], b.local_addr().unwrap()).unwrap();
    }
    // No more than the kernel can queue, for there it does not tell what it loses.
    wait_for(std::slice::from_mut(&mut capture), 500);
    let mut seen = Seen::default();
    capture.finish(&mut |packet| seen.add(packet)).unwrap();
    assert_eq!(
        (seen.packets, seen.bytes, seen.outgoing),
        (500, 500 * 52, 0)
    );
}

#[test]
fn a_group_of_sockets_shares_the_packets() {
    if !root_tests() {
        return;
    }
    for fanout in [Fanout::Hash, Fanout::Cpu] {
        let pair = Pair::new();
        let sockets: Vec<UdpSocket> = (0..64)
            .map(|i| pair.udp_from_a(&format!("10.78.0.1:{}", 5000 + i)))
            .collect();
        let _sink = pair.udp_in_b("10.78.0.2:9");
        let options = pair.options();
        let mut captures = pair
            .b
            .inside(|| AfPacketCapture::open_group(&options, fanout, 4))
            .unwrap();
        for _ in 0..100 {
            for socket in &sockets {
                socket.send_to(&[0; 10], "10.78.0.2:9").unwrap();
            }
        }
        let sent = 6400 - pair.lost_on_the_way();
        wait_for(&mut captures, sent);
        // Source ports by socket.
        let mut ports: Vec<Vec<u16>> = Vec::new();
        let mut packets = 0;
        for capture in &mut captures {
            let mut seen = Vec::new();
            let stats = capture
                .finish(&mut |p| seen.push(u16::from_be_bytes([p.data[34], p.data[35]])))
                .unwrap();
            assert_eq!((stats.received, stats.drops), (seen.len() as u64, 0));
            packets += seen.len() as u64;
            seen.sort_unstable();
            seen.dedup();
            ports.push(seen);
        }
        assert_eq!(packets, sent, "{fanout:?}");
        if fanout == Fanout::Hash {
            // Each conversation on one socket, and all sockets in use.
            assert_eq!(ports.iter().map(Vec::len).sum::<usize>(), 64);
            assert!(ports.iter().all(|ports| !ports.is_empty()), "{ports:?}");
        }
    }
}

#[test]
fn a_filter_chooses() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    let a = pair.udp_from_a("10.78.0.1:0");
    let _sinks = [pair.udp_in_b("10.78.0.2:53"), pair.udp_in_b("10.78.0.2:54")];
    // Destination port 53 of a UDP packet in IPv4 without options.
    let filter = [
        (0x28, 0, 0, 12),
        (0x15, 0, 3, 0x0800),
        (0x28, 0, 0, 36),
        (0x15, 0, 1, 53),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ]
    .map(BpfInstruction::from)
    .to_vec();
    let mut capture = pair.open(&Options {
        filter,
        snaplen: 64,
        ..pair.options()
    });
    for _ in 0..100 {
        a.send_to(&[0; 100], "10.78.0.2:53").unwrap();
        a.send_to(&[0; 200], "10.78.0.2:54").unwrap();
    }
    wait_for(std::slice::from_mut(&mut capture), 100);
    let mut seen = Seen::default();
    let stats = capture
        .finish(&mut |packet| {
            assert_eq!(packet.data.len(), 64);
            seen.add(packet);
        })
        .unwrap();
    assert_eq!((seen.packets, seen.bytes), (100, 100 * 142));
    assert_eq!(stats.received, 100);

    // A jump out of the program.
    let bad = vec![
        BpfInstruction::from((0x15, 200, 0, 1)),
        BpfInstruction::from((0x06, 0, 0, 0)),
    ];
    let options = Options {
        filter: bad,
        ..pair.options()
    };
    let refused = pair.b.inside(|| AfPacketCapture::open(&options));
    assert!(matches!(refused, Err(Error::Filter { .. })), "{refused:?}");
    let long = vec![BpfInstruction::from((0x06, 0, 0, 0)); 5000];
    let options = Options {
        filter: long,
        ..pair.options()
    };
    let refused = pair.b.inside(|| AfPacketCapture::open(&options));
    assert!(matches!(refused, Err(Error::Filter { .. })), "{refused:?}");
}

#[test]
fn stopping_under_load_loses_nothing_unseen() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    let socket = pair.udp_from_a("10.78.0.1:0");
    let _sink = pair.udp_in_b("10.78.0.2:9");
    let stop = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let mut capture = pair.open(&pair.options());
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            // One after the other, also in the receiver's queue.
            let mut one = rustix::thread::CpuSet::new();
            one.set(rustix::thread::sched_getcpu());
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            while !stop.load(Ordering::Acquire) {
                // Numbered, so that a gap would be seen.
                let number = sent.fetch_add(1, Ordering::Relaxed);
                socket
                    .send_to(&number.to_be_bytes(), "10.78.0.2:9")
                    .unwrap();
            }
        });
        let mut last = None;
        let mut packets = 0;
        let mut check = |packet: &Packet<'_>| {
            let number = packet.data[42..50]
                .try_into()
                .map(u64::from_be_bytes)
                .unwrap();
            assert!(last < Some(number), "{number} after {last:?}");
            last = Some(number);
            packets += 1;
        };
        while sent.load(Ordering::Relaxed) < 50_000 {
            capture.dispatch(WAIT, &mut check).unwrap();
        }
        let stats = capture.finish(&mut check).unwrap();
        assert_eq!(
            (stats.delivered, stats.received),
            (packets, packets + stats.drops)
        );
        if stats.drops + pair.lost_on_the_way() == 0 {
            // None is missing between the first and the last.
            assert_eq!(last, Some(packets - 1));
        }
        assert!(stats.received > 40_000);
        drop(capture);
    });
}

/// Waits for the capture's error; gives back what came before it.
fn until_error(capture: &mut AfPacketCapture) -> (Seen, Error) {
    let mut seen = Seen::default();
    // Far more than it takes; a missing error fails the test instead of hanging it.
    for _ in 0..200 {
        if let Err(error) = capture.dispatch(WAIT, &mut |packet| seen.add(packet)) {
            return (seen, error);
        }
    }
    panic!("no error came");
}

#[test]
fn an_interface_may_go_down_come_up_and_vanish() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    let socket = pair.udp_from_a("10.78.0.1:0");
    let send = |packets| {
        for _ in 0..packets {
            socket.send_to(&[0; 10], "10.78.0.2:9").unwrap();
        }
    };
    // Answers to unwanted packets would be captured too.
    let _sink = pair.udp_in_b("10.78.0.2:9");
    let mut capture = pair.open(&pair.options());
    send(100);
    wait_for(std::slice::from_mut(&mut capture), 100);
    pair.b.ip("link set vb down");
    let (seen, error) = until_error(&mut capture);
    // What came before is not lost.
    assert_eq!(seen.packets, 100);
    assert!(matches!(error, Error::InterfaceDown { .. }), "{error:?}");
    assert_eq!(error.to_string(), "vb: the interface is down");
    // Told once.
    assert_eq!(capture.dispatch(WAIT, &mut |_| ()).unwrap(), 0);

    pair.b.ip("link set vb up");
    pair.b
        .ip("neigh replace 10.78.0.1 lladdr 02:00:00:00:00:0a dev vb");
    pair.a
        .ip("neigh replace 10.78.0.2 lladdr 02:00:00:00:00:0b dev va");
    pair.b.settled_counters("vb");
    send(50);
    let mut small = 0;
    while small < 50 {
        capture
            .dispatch(WAIT, &mut |packet| small += u64::from(packet.length == 52))
            .unwrap();
    }
    assert_eq!(small, 50);

    let before = capture.stats().unwrap().received;
    send(20);
    wait_for(std::slice::from_mut(&mut capture), before + 20);
    pair.b.ip("link del vb");
    let (seen, error) = until_error(&mut capture);
    assert_eq!(seen.packets, 20);
    assert!(matches!(error, Error::InterfaceGone { .. }), "{error:?}");
    // For good.
    let again = capture.dispatch(WAIT, &mut |_| ());
    assert!(
        matches!(again, Err(Error::InterfaceGone { .. })),
        "{again:?}"
    );
    assert_eq!(capture.finish(&mut |_| ()).unwrap().drops, 0);
}

#[test]
fn an_interface_that_is_down_and_one_that_is_not() {
    if !root_tests() {
        return;
    }
    let pair = Pair::new();
    pair.b.ip("link set vb down");
    let mut capture = pair.open(&pair.options());
    let (_, error) = until_error(&mut capture);
    assert!(matches!(error, Error::InterfaceDown { .. }), "{error:?}");
    // Deleted while it is down.
    pair.b.ip("link del vb");
    let (_, error) = until_error(&mut capture);
    assert!(matches!(error, Error::InterfaceGone { .. }), "{error:?}");

    let missing = Options::new(4711, "eth9");
    let refused = pair.b.inside(|| AfPacketCapture::open(&missing));
    assert!(
        matches!(refused, Err(Error::NoInterface { .. })),
        "{refused:?}"
    );
}

#[test]
fn without_the_right_it_is_said_which() {
    if !root_tests() {
        return;
    }
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    // On a thread of its own: capabilities belong to threads.
    let error = thread::spawn(|| {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).unwrap();
        AfPacketCapture::open(&Options::new(1, "lo")).unwrap_err()
    })
    .join()
    .unwrap();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
}

#[cfg(feature = "libpcap")]
mod libpcap {
    use super::*;
    use skua_afpacket::pcap_live::{self, PcapCapture};

    fn open(pair: &Pair, options: &pcap_live::Options) -> PcapCapture {
        pair.b.inside(|| PcapCapture::open(options)).unwrap()
    }

    #[test]
    fn every_packet_is_seen_once() {
        if !root_tests() {
            return;
        }
        let pair = Pair::new();
        let options = pcap_live::Options {
            buffer_bytes: 32 << 20,
            ..pcap_live::Options::new("vb")
        };
        let mut capture = open(&pair, &options);
        assert_eq!(capture.linktype(), 1);
        let before = pair.counters();
        let mut sent = 0;
        let (seen, stats) = while_capturing(&mut capture, || {
            send_frames(&pair, &[&ipv6_frame()], 50_000);
            sent = 50_000 - pair.lost_on_the_way();
            sent
        });
        assert_eq!((seen.packets, seen.bytes), (sent, sent * 62));
        assert_eq!((seen.packets, seen.bytes), counted(before, pair.counters()));
        assert_eq!(
            (stats.received, stats.drops, stats.delivered),
            (sent, 0, sent)
        );
        // 2026 to 2100: nanoseconds, not microseconds.
        let years = seen.last_ns / 1_000_000_000 / 31_556_952 + 1970;
        assert!((2026..2100).contains(&years), "{years}");
    }

    #[test]
    fn what_is_lost_is_counted() {
        if !root_tests() {
            return;
        }
        let pair = Pair::new();
        let socket = pair.udp_from_a("10.78.0.1:0");
        let _sink = pair.udp_in_b("10.78.0.2:9");
        let options = pcap_live::Options {
            buffer_bytes: 64 << 10,
            ..pcap_live::Options::new("vb")
        };
        let mut capture = open(&pair, &options);
        for _ in 0..20_000 {
            socket.send_to(&[7; 20], "10.78.0.2:9").unwrap();
        }
        let sent = 20_000 - pair.lost_on_the_way();
        wait_for(std::slice::from_mut(&mut capture), sent);
        let mut seen = Seen::default();
        let stats = capture.finish(&mut |packet| seen.add(packet)).unwrap();
        assert!(stats.drops > 0 && seen.packets > 0, "{stats:?}");
        assert_eq!(stats.received, sent);
        assert_eq!(seen.packets, sent - stats.drops);
    }

    #[test]
    fn tags_are_put_back_and_filters_choose() {
        if !root_tests() {
            return;
        }
        let pair = Pair::new();
        let mut tagged = vec![0; 60];
        tagged[..12].copy_from_slice(&[2, 0, 0, 0, 0, 11, 2, 0, 0, 0, 0, 10]);
        tagged[12..18].copy_from_slice(&[0x81, 0, 0x20, 5, 0x88, 0xb5]);
        let mut other = tagged.clone();
        other[15] = 6;
        let options = pcap_live::Options {
            filter: "vlan 5".into(),
            ..pcap_live::Options::new("vb")
        };
        let mut capture = open(&pair, &options);
        send_frames(&pair, &[&tagged, &other], 100);
        wait_for(std::slice::from_mut(&mut capture), 100);
        let mut packets = 0;
        let stats = capture
            .finish(&mut |packet| {
                packets += 1;
                assert_eq!((packet.data, packet.length), (&tagged[..], 60));
            })
            .unwrap();
        assert_eq!((packets, stats.received, stats.delivered), (100, 100, 100));
    }

    #[test]
    fn faults_are_told() {
        if !root_tests() {
            return;
        }
        let pair = Pair::new();
        let refused = |options: pcap_live::Options| {
            pair.b.inside(|| PcapCapture::open(&options).err().unwrap())
        };
        let error = refused(pcap_live::Options::new("eth9"));
        assert!(matches!(error, Error::NoInterface { .. }), "{error:?}");
        let error = refused(pcap_live::Options {
            filter: "tcp prt 80".into(),
            ..pcap_live::Options::new("vb")
        });
        assert!(matches!(error, Error::Filter { .. }), "{error:?}");

        let mut capture = open(&pair, &pcap_live::Options::new("vb"));
        pair.b.ip("link del vb");
        let error = (0..200)
            .find_map(|_| capture.dispatch(WAIT, &mut |_| ()).err())
            .expect("an error comes");
        assert!(matches!(error, Error::InterfaceGone { .. }), "{error:?}");
    }
}
