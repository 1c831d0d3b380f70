//! Round-trip times and retransmits are real: a link that delays and loses (sch_netem) shows as such.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use skua_socket::{Opener, SocketUpdate};

use crate::{against_ss::compare, lab::*};

const CONNECTIONS: usize = 8;
const BYTES: usize = 300_000;
/// Small messages there and back: what queues did to the smoothed round-trip time is forgotten.
const ROUNDS: usize = 30;

/// Packets that the namespace's netem let through and dropped, by its own counters.
fn passed_and_dropped(net: &Net) -> (u64, u64) {
    let output = net
        .command("tc")
        .args(["-s", "qdisc", "show", "dev", "veth0"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let after = |what: &str| -> u64 {
        let (_, rest) = text.split_once(what).unwrap();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    };
    (after("bytes "), after("dropped "))
}

fn netem(net: &Net, arguments: &str) -> bool {
    let output = net
        .command("tc")
        .args(["qdisc", "replace", "dev", "veth0", "root", "netem"])
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// One byte there and one back, again and again.
fn converse(connections: &[(TcpStream, TcpStream)]) {
    std::thread::scope(|scope| {
        for (client, server) in connections {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    (&*client).write_all(&[7]).unwrap();
                    (&*client).read_exact(&mut [0]).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    (&*server).read_exact(&mut [0]).unwrap();
                    (&*server).write_all(&[8]).unwrap();
                }
            });
        }
    });
}

/// Clients in `a` send; the connections, still open, when all has arrived in `b`.
fn transfer(a: &Net, b: &Net) -> Vec<(TcpStream, TcpStream)> {
    let listener = b.inside(|| listen("192.0.2.2"));
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let client = a.inside(|| TcpStream::connect(address).unwrap());
            let (server, _) = listener.accept().unwrap();
            (client, server)
        })
        .collect();
    std::thread::scope(|scope| {
        for (client, server) in &clients {
            scope.spawn(move || {
                (&*client).write_all(&vec![5; BYTES]).unwrap();
                // The other side's word that all is there: then nothing is under way any more.
                (&*client).read_exact(&mut [0]).unwrap();
            });
            scope.spawn(move || {
                (&*server).read_exact(&mut vec![0; BYTES]).unwrap();
                (&*server).write_all(&[6]).unwrap();
            });
        }
    });
    clients
}

fn assert_slow(update: &SocketUpdate, delay_us: u32) {
    let tcp = update.tcp.unwrap();
    let about = |value: u32, most: u32| (delay_us * 19 / 20..most).contains(&value);
    assert!(about(tcp.srtt_us, delay_us * 2), "{update:#?}");
    assert!(about(tcp.min_rtt_us, delay_us * 3 / 2), "{update:#?}");
    // The SYN and its answer took a round trip, at least.
    let asked = update.established_ns - update.start_ns;
    assert!(asked >= u64::from(delay_us) * 950, "{update:#?}");
}

#[test]
fn delay_and_loss_show_as_such() {
    let (a, b) = pair();
    // A loss is of one segment, not of many that are still one packet.
    for net in [&a, &b] {
        net.ip("link set veth0 gso_max_segs 1");
    }
    if !netem(&a, "delay 50ms loss 5% limit 100000") {
        println!("no netem in this kernel");
        // Those of the matrix have it.
        assert!(std::env::var_os("SKUA_KERNEL_MATRIX").is_none());
        return;
    }
    let mut watch = Watch::new(&[&a, &b]);
    let connections = transfer(&a, &b);
    let (passed, dropped) = passed_and_dropped(&a);
    assert!(netem(&a, "delay 50ms limit 100000"));
    converse(&connections);
    compare(&mut watch, &[&a, &b]);
    drop(connections);
    let ends = watch.connections(2 * CONNECTIONS);
    let senders = || ends.iter().filter(|u| u.opener == Opener::Local);
    assert_eq!(senders().count(), CONNECTIONS);
    let sum = |of: fn(&SocketUpdate) -> u64| senders().map(of).sum::<u64>();
    let again = sum(|u| u.tcp.unwrap().retransmits.into());
    let sent = sum(|u| u.tcp.unwrap().segments_sent);
    let bytes_again = sum(|u| u.tcp.unwrap().bytes_retransmitted);
    println!("netem dropped {dropped} of {}", passed + dropped);
    println!("{again} of {sent} segments sent again, {bytes_again} bytes");
    for update in senders() {
        println!("{:?}", update.tcp);
        assert_slow(update, 50_000);
        let bytes = update.tcp.unwrap().bytes_sent;
        assert_eq!(bytes, (BYTES + ROUNDS) as u64);
    }
    // What was dropped was sent again, but for acknowledgements without data; some was sent twice
    // that had arrived.
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    assert!((0.03..0.08).contains(&share(dropped, passed + dropped)));
    assert!((0.8..2.0).contains(&share(again, dropped)));
    assert!((0.03..0.12).contains(&share(again, sent)));
    assert!(bytes_again > 0);

    // Delay both ways, no loss.
    assert!(netem(&a, "delay 50ms limit 100000") && netem(&b, "delay 50ms limit 100000"));
    let connections = transfer(&a, &b);
    converse(&connections);
    compare(&mut watch, &[&a, &b]);
    drop(connections);
    let ends = watch.connections(2 * CONNECTIONS);
    for update in ends.iter().filter(|u| u.opener == Opener::Local) {
        assert_slow(update, 100_000);
    }
}
