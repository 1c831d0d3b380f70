//! Sums by pairs equal the sums of what ended.

use std::{
    collections::HashMap,
    io::Write as _,
    net::{IpAddr, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use skua_kernel::socket::SocketTracerConfig;
use skua_socket::{End, Opener, PairUpdate, Protocol, RttSum, SocketState, SocketUpdate, TaskRule};

use crate::lab::*;

fn config(max_pairs: u32) -> SocketTracerConfig {
    SocketTracerConfig {
        aggregate: true,
        max_pairs,
        ..Default::default()
    }
}

type Key = (Protocol, u32, IpAddr, IpAddr, u16, Opener, u32, TaskRule);

fn key(pair: &PairUpdate) -> Key {
    (
        pair.protocol,
        pair.netns,
        pair.local,
        pair.remote,
        pair.service_port,
        pair.opener,
        pair.task.pid,
        pair.task_rule,
    )
}

/// What the kernel should have summed up, from single records.
fn sum(updates: &[SocketUpdate]) -> HashMap<Key, PairUpdate> {
    let mut pairs: HashMap<Key, PairUpdate> = HashMap::new();
    for update in updates {
        let remote = update.remote.unwrap();
        let port = match update.opener {
            Opener::Local => remote.port(),
            _ => update.local.port(),
        };
        let mut one = PairUpdate {
            protocol: update.protocol,
            netns: update.netns,
            local: update.local.ip(),
            remote: remote.ip(),
            service_port: port,
            opener: update.opener,
            task: update.task,
            task_rule: update.task_rule,
            connections: 1,
            failed: u64::from(update.end == Some(End::Refused)),
            reset: u64::from(matches!(
                update.end,
                Some(End::ResetLocal | End::ResetRemote)
            )),
            duration_ns: update.now_ns - update.start_ns,
            tcp: Default::default(),
            rtt: RttSum::default(),
            first_ns: update.start_ns,
            last_ns: update.now_ns,
        };
        if let Some(tcp) = update.tcp {
            one.tcp.bytes_sent = tcp.bytes_sent;
            one.tcp.bytes_received = tcp.bytes_received;
            one.tcp.segments_sent = tcp.segments_sent;
            one.tcp.segments_received = tcp.segments_received;
        }
        add(
            pairs.entry(key(&one)).or_insert(PairUpdate {
                connections: 0,
                failed: 0,
                reset: 0,
                duration_ns: 0,
                tcp: Default::default(),
                ..one
            }),
            &one,
        );
    }
    pairs
}

fn add(to: &mut PairUpdate, one: &PairUpdate) {
    to.connections += one.connections;
    to.failed += one.failed;
    to.reset += one.reset;
    to.duration_ns += one.duration_ns;
    to.tcp.bytes_sent += one.tcp.bytes_sent;
    to.tcp.bytes_received += one.tcp.bytes_received;
    to.tcp.segments_sent += one.tcp.segments_sent;
    to.tcp.segments_received += one.tcp.segments_received;
    to.rtt.count += one.rtt.count;
}

#[test]
fn sums_equal_the_events() {
    let net = Net::with_ipv6();
    // Two tracers see the same; one sums up.
    let mut single = Watch::new(&[&net]);
    let mut summed = Watch::with(&[&net], config(1000));
    net.inside(|| {
        let listeners = [listen("127.0.0.1"), listen("::1")];
        for number in 0..100 {
            let (mut client, server) = connect(&listeners[number % 2]);
            client.write_all(&vec![1; number]).unwrap();
            if number % 10 == 3 {
                close_with_reset(server);
            } else {
                let mut server = server;
                read_some(&mut server, number);
            }
        }
        for _ in 0..5 {
            TcpStream::connect("127.0.0.1:9").unwrap_err();
        }
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..3 {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(to.local_addr().unwrap()).unwrap();
        }
    });
    let mut events = single.ended(210);
    events.retain(|u| u.state != SocketState::Listen);
    assert_eq!(events.len(), 208);
    let pairs = summed.pairs();
    let expected = sum(&events);
    assert_eq!(pairs.len(), expected.len(), "{pairs:#?}");
    for pair in &pairs {
        let mut expected = expected[&key(pair)];
        assert_me(&pair.task);
        // Both clocks are read, one after the other.
        let near = |a: u64, b: u64| a.abs_diff(b) < 200_000_000;
        assert!(near(pair.duration_ns, expected.duration_ns));
        assert!(pair.first_ns > 0 && pair.first_ns <= pair.last_ns);
        expected.duration_ns = pair.duration_ns;
        expected.first_ns = pair.first_ns;
        expected.last_ns = pair.last_ns;
        let rtts: Vec<_> = events
            .iter()
            .filter(|u| sum(&[**u]).contains_key(&key(pair)))
            .filter_map(|u| u.tcp)
            .filter(|t| t.srtt_us > 0)
            .map(|t| t.srtt_us)
            .collect();
        assert_eq!(
            pair.rtt.count,
            pair.rtt
                .histogram
                .iter()
                .map(|n| u64::from(*n))
                .sum::<u64>()
        );
        assert!(pair.rtt.count >= rtts.len() as u64);
        if let (Some(min), Some(max)) = (rtts.iter().min(), rtts.iter().max()) {
            assert!(pair.rtt.min_us <= *min);
            assert_eq!(pair.rtt.max_us, *max);
            assert_eq!(
                pair.rtt.sum_us,
                rtts.iter().map(|r| u64::from(*r)).sum::<u64>()
            );
            let bucket = max.ilog2() as usize;
            assert!(pair.rtt.histogram[bucket] > 0);
            assert!(pair.rtt.histogram[bucket + 1..].iter().all(|n| *n == 0));
        }
        expected.rtt = pair.rtt;
        assert_eq!(*pair, expected);
    }
    // Listening sockets come one by one, nothing else does.
    let rest = summed.ended(2);
    assert!(rest.len() == 2 && rest.iter().all(|u| u.state == SocketState::Listen));
    assert!(summed.pairs().is_empty());
}

#[test]
fn drains_lose_nothing_and_count_nothing_twice() {
    const THREADS: u64 = 2;
    const EACH: u64 = 1000;
    let net = Net::with_ipv6();
    // Room for what all other programs on this machine do meanwhile.
    let mut watch = Watch::with(&[&net], config(50_000));
    let done = AtomicBool::new(false);
    let mut counted = (0, 0, 0);
    let drain = |watch: &mut Watch, counted: &mut (u64, u64, u64)| {
        for pair in watch.pairs() {
            match pair.opener {
                Opener::Local => counted.0 += pair.connections,
                _ => counted.1 += pair.connections,
            }
            counted.2 += pair.tcp.bytes_sent;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    net.enter();
                    let listener = listen("127.0.0.1");
                    for _ in 0..EACH {
                        let (mut client, mut server) = connect(&listener);
                        client.write_all(&[1; 11]).unwrap();
                        read_some(&mut server, 11);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for thread in threads {
                thread.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            drain(&mut watch, &mut counted);
        }
    });
    // A program that another test starts may have a copy of a descriptor until it executes.
    let total = THREADS * EACH;
    let deadline = Instant::now() + Duration::from_secs(10);
    while (counted.0 < total || counted.1 < total) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
        drain(&mut watch, &mut counted);
    }
    drain(&mut watch, &mut counted);
    assert_eq!(counted, (total, total, 11 * total));
    assert_eq!(watch.tracer.losses(), Default::default());
}

#[test]
fn a_full_table_is_counted() {
    let net = Net::with_ipv6();
    let mut watch = Watch::with(&[&net], config(1));
    // Each refused port is a pair of its own.
    net.inside(|| {
        for port in 1..=1500 {
            TcpStream::connect(("127.0.0.1", port)).unwrap_err();
        }
    });
    let kept: u64 = watch.pairs().iter().map(|p| p.failed).sum();
    let lost = watch.tracer.losses().pairs_full;
    // The least that a table has room for.
    assert!(kept <= 1024);
    assert!(kept + lost >= 1500, "{kept} {lost}");
}
