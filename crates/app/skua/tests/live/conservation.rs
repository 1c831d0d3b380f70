//! Flows against the interface's counters and the generator's own count.

use std::time::Duration;

use rustix::{
    process::Signal,
    thread::{CpuSet, sched_setaffinity},
};

use crate::lab::{
    Flow, Report, SendMode, Sender, Sent, Skua, Sum, Wire,
    frame::{CLASSES, Crowd},
    root_tests,
    skua::{parse_lines, sum_of},
    wait_for,
};

/// Frames go to `x0` and skua watches there: what the interface received since `before`, in the
/// interface's words and in the generator's, must be what skua saw.
fn assert_received(wire: &Wire, before: Sum, sent: Sent, report: &Report) {
    let received = wire.near.settled_counters("x0").rx - before;
    assert_eq!(sent.error, None);
    assert_eq!(received, sent.sum, "the wire itself lost something");
    assert_eq!(report.seen(), received, "{}", report.0);
}

#[test]
fn one_flow_of_every_size_both_ways() {
    if !root_tests() {
        return;
    }
    const EACH: u64 = 1500;
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let before = wire.near.counters("x0");
    let flow = Flow::numbered(1);
    let there = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let back = Sender::open(&wire.near, "x0", SendMode::Queue);
    let (mut received, mut answered) = (Sent::default(), Sent::default());
    // 42: nothing but headers, shorter than Ethernet's least; 60: mostly padding; 9014: jumbo.
    for size in [42, 43, 60, 61, 64, 128, 590, 1514, 9014] {
        received += there.repeat(EACH, &flow.frame(size));
        answered += back.repeat(EACH, &flow.reversed().frame(size));
    }
    received += there.repeat(EACH, &flow.padded());
    answered += back.repeat(EACH, &flow.reversed().padded());
    assert_eq!((received.error, answered.error), (None, None));

    let flows = skua.flows();
    let report = skua.stop();
    let counted = wire.near.settled_counters("x0") - before;
    assert_eq!(counted.rx, received.sum);
    assert_eq!(counted.tx, answered.sum);
    assert_eq!(report.seen(), counted.rx + counted.tx + answered.dropped);
    assert_eq!(report.in_flows(), report.seen());
    assert_eq!(
        report.directions("x0"),
        (counted.rx, counted.tx + answered.dropped)
    );
    assert_eq!(report.number("flows"), 1);
    let [flow] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!(flow["a"]["address"], "10.0.0.1");
    assert_eq!(Sum::of(&flow["ab"]), received.sum);
    assert_eq!(Sum::of(&flow["ba"]), answered.sum + answered.dropped);
}

/// The interface's own counters in the summary are those of the end, too.
#[test]
fn the_summary_tells_the_interface_counters_of_its_end() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    // Events about the interface must not move what its counters are compared with.
    for change in ["mtu 2000", "mtu 9000", "alias lv"] {
        sender.repeat(100, &Flow::numbered(1).frame(100));
        wire.near.ip(&format!("link set x0 {change}"));
        skua.summary();
    }
    let sent = sender.repeat(700, &Flow::numbered(1).frame(100));
    let report = skua.stop();
    let counters = &report.interface("x0")["interface_counters"];
    assert_eq!(sent.error, None);
    assert_eq!(report.seen(), Sum::new(1000, 100_000));
    assert_eq!(counters["rx_packets"], 1000);
    assert_eq!(counters["rx_bytes"], 100_000);
}

/// The table takes half as many again until a drain has made room; a little less when it meets a
/// crowded corner.
fn assert_between(entries: u64, flows: u64) {
    assert!((entries..=entries * 3 / 2).contains(&flows), "{flows}");
}

/// Frames of all protocol classes, sizes of their own so that bytes distinguish them.
fn classed(number: u64) -> (usize, Vec<u8>) {
    let class = number as usize % CLASSES.len();
    let size = 60 + 8 * (number as usize % 61);
    let flow = Flow::numbered(number as u32).with_protocol(CLASSES[class].0);
    (class, flow.frame(size))
}

#[test]
fn twice_as_many_flows_as_entries_are_lost_by_name() {
    if !root_tests() {
        return;
    }
    const ENTRIES: u64 = 10_000;
    let wire = Wire::new();
    let skua = Skua::run(
        &wire.near,
        &format!("--interface x0 --max-entries {ENTRIES}"),
    );
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let mut of_class = [Sum::ZERO; CLASSES.len()];
    // Nobody makes room while the process is halted: what is lost is known beforehand.
    skua.halt();
    let sent = sender.send(2 * ENTRIES, |number| {
        let (class, frame) = classed(number);
        of_class[class] += Sum::new(1, frame.len() as u64);
        frame
    });
    skua.go_on();
    let flows = skua.flows();
    let report = skua.stop();

    assert_received(&wire, before, sent, &report);
    assert_eq!(report.in_flows() + report.all_lost(), sent.sum);
    assert_between(ENTRIES, report.number("flows"));
    assert_eq!(report.in_flows().packets, report.number("flows"));
    assert_eq!(sum_of(&flows), report.in_flows());
    for ((_, name), sent) in CLASSES.iter().zip(of_class) {
        let kept = sum_of(flows.iter().filter(|flow| match *name {
            "other" => !["udp", "tcp", "icmp"].contains(&flow["protocol"].as_str().unwrap()),
            name => flow["protocol"] == name,
        }));
        let lost = report.lost(&format!("table_full_{name}"));
        assert_eq!(kept + lost, sent, "{name}");
        assert!(lost.packets > 0, "{name}");
    }
}

#[test]
fn a_million_flows_into_half_a_million_entries() {
    if !root_tests() {
        return;
    }
    const FLOWS: u64 = 1_000_000;
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 500000");
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let crowd = Crowd::new(74);
    let once = || sender.send(FLOWS, |number| crowd.frame(number as u32));
    // First without anybody to make room.
    skua.halt();
    let mut sent = once();
    skua.go_on();
    let report = skua.fresh_summary();
    let lost = report.lost("table_full_udp");
    assert_eq!(report.in_flows() + lost, sent.sum);
    assert_eq!(report.all_lost(), lost);
    assert_between(FLOWS / 2, report.in_flows().packets);
    assert_between(FLOWS / 2, report.number("flows"));
    // Then with room being made all the while; how much is lost depends on the machine, and is
    // told.
    sent += once();
    let report = skua.stop();
    assert_received(&wire, before, sent, &report);
    assert_eq!(
        report.in_flows() + report.lost("table_full_udp"),
        report.seen()
    );
    assert!(report.number("drains_under_pressure") > 0);
    eprintln!(
        "a million flows while the table is drained: {} packets lost",
        report.all_lost().packets - lost.packets
    );
}

fn on_cpu<T>(cpu: usize, work: impl FnOnce() -> T) -> T {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).unwrap();
    work()
}

#[test]
fn two_cpus_write_one_flow() {
    if !root_tests() {
        return;
    }
    const EACH: u64 = 200_000;
    let wire = Wire::new();
    let skua = Skua::run(
        &wire.near,
        "--interface x0 --max-entries 1000 --scan-interval 50ms",
    );
    let before = wire.near.counters("x0").rx;
    // Both also make new flows at once, of which they race for the first packet.
    let frames: Vec<_> = (0..64).map(|n| Flow::numbered(n).frame(64)).collect();
    let sent: Vec<Sent> = std::thread::scope(|scope| {
        let threads = [0, 1].map(|cpu| {
            let (wire, frames) = (&wire, &frames);
            scope.spawn(move || {
                on_cpu(cpu, || {
                    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
                    let mut sent = sender.send(64, |number| frames[number as usize].clone());
                    sent += sender.repeat(EACH, &frames[0]);
                    sent
                })
            })
        });
        threads.map(|thread| thread.join().unwrap()).to_vec()
    });
    let flows = skua.flows();
    let report = skua.stop();
    let mut all = Sent::default();
    sent.into_iter().for_each(|sent| all += sent);
    assert_received(&wire, before, all, &report);
    assert_eq!(report.in_flows(), report.seen());
    assert_eq!(report.number("flows"), 64);
    let one = flows.iter().find(|f| f["a"]["address"] == "10.0.0.0");
    // What the interface dropped is missing in some flow, mostly in none.
    let expected = Sum::new(2 * EACH + 2, 64 * (2 * EACH + 2));
    assert!(expected.packets - sum_of(one).packets <= all.dropped.packets);
}

/// Loads both directions until so many drains have passed, then a little more.
fn drained_under_load(interval: &str, drains: u64) {
    let wire = Wire::new();
    let skua = Skua::run(
        &wire.near,
        &format!("--interface x0 --max-entries 4000 --scan-interval {interval}"),
    );
    let before = wire.near.counters("x0");
    let there = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let back = Sender::open(&wire.near, "x0", SendMode::Queue);
    let frames: Vec<_> = (0..1000)
        .map(|n| {
            (
                Flow::numbered(n).frame(64),
                Flow::numbered(n).reversed().frame(90),
            )
        })
        .collect();
    let (mut received, mut answered) = (Sent::default(), Sent::default());
    while skua.summary().number("drains") < drains {
        received += there.send(20_000, |n| frames[n as usize % 1000].0.clone());
        answered += back.send(20_000, |n| frames[n as usize % 1000].1.clone());
    }
    let flows = skua.flows();
    let report = skua.stop();
    let counted = wire.near.settled_counters("x0") - before;
    assert_eq!((received.error, answered.error), (None, None));
    assert_eq!(counted.rx, received.sum);
    assert_eq!(counted.tx, answered.sum);
    assert_eq!(
        report.directions("x0"),
        (counted.rx, counted.tx + answered.dropped)
    );
    assert_eq!(report.in_flows(), report.seen());
    assert_eq!(
        report.seen(),
        received.sum + answered.sum + answered.dropped
    );
    assert_eq!(report.number("flows"), 1000);
    assert_eq!(sum_of(&flows), report.in_flows());
}

#[test]
fn drains_every_100_ms_lose_nothing() {
    if root_tests() {
        drained_under_load("100ms", 10);
    }
}

#[test]
fn drains_every_10_ms_lose_nothing() {
    if root_tests() {
        drained_under_load("10ms", 100);
    }
}

/// Entries that come and go all the time: what they counted is kept, and the table has room again
/// when the storm is over.
#[test]
fn entries_that_are_evicted_under_load_keep_their_counts() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(
        &wire.near,
        "--interface x0 --max-entries 2000 --scan-interval 1h",
    );
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let crowd = Crowd::new(64);
    let mut sent = Sent::default();
    // One in four is new, the others come again and again.
    for round in 0..40 {
        sent += sender.send(20_000, |n| {
            let number = if n % 4 == 0 {
                1000 + round * 20_000 + n
            } else {
                n % 1000
            };
            crowd.frame(number as u32)
        });
    }
    let storm = skua.fresh_summary();
    assert!(storm.number("drains_under_pressure") > 0);
    let live = wait_for("room", || {
        let live = skua.fresh_summary().0["table"]["live"].as_u64().unwrap();
        (live <= 2000).then_some(live)
    });
    sent += sender.send(200, |n| crowd.frame(10_000_000 + n as u32));
    let calm = skua.fresh_summary();
    assert_eq!(
        calm.all_lost(),
        storm.all_lost(),
        "{live} entries: {}",
        calm.0
    );
    assert_eq!(calm.number("flows"), storm.number("flows") + 200);

    let report = skua.stop();
    assert_received(&wire, before, sent, &report);
    assert_eq!(
        report.in_flows() + report.lost("table_full_udp"),
        report.seen()
    );
    assert_eq!(report.directions("x0"), (report.in_flows(), Sum::ZERO));
}

/// A storm fills the table faster than it can be drained; when it is over there must be room again,
/// although the next drain by the clock is an hour away and nobody asks.
#[test]
fn a_full_table_calls_for_a_drain() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(
        &wire.near,
        "--interface x0 --max-entries 50000 --scan-interval 1h",
    );
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let crowd = Crowd::new(64);
    let mut sent = sender.send(500_000, |n| crowd.frame(n as u32));
    // Those that come first may still be refused, the last may not: eight seconds are enough for two drains on a busy machine.
    for number in 0..100 {
        sent += sender.repeat(1, &crowd.frame(9_000_000 + number));
        std::thread::sleep(Duration::from_millis(100));
    }
    let late: Vec<_> = (9_000_080..9_000_100)
        .map(|number| Flow::numbered(number).from.to_string())
        .collect();
    skua.fresh_summary();
    let newest = parse_lines(&skua.get("/api/flows?sort=start&limit=100"));
    let found = newest
        .iter()
        .filter(|f| late.iter().any(|address| f["a"]["address"] == **address));
    assert_eq!(found.count(), late.len(), "{}", skua.summary().0);

    let report = skua.stop();
    assert_received(&wire, before, sent, &report);
    assert_eq!(
        report.in_flows() + report.lost("table_full_udp"),
        report.seen()
    );
}

#[test]
fn sampling_leaves_out_what_it_does_not_count() {
    if !root_tests() {
        return;
    }
    const FRAMES: u64 = 100_000;
    let wire = Wire::new();
    let skua = Skua::run(
        &wire.near,
        "--interface x0 --max-entries 1000 --sampling 10",
    );
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let sent = sender.send(FRAMES, |n| {
        Flow::numbered(n as u32 % 7).frame(60 + n as usize % 50)
    });
    let report = skua.stop();
    assert_received(&wire, before, sent, &report);
    assert_eq!(
        report.in_flows() + report.left_out("sampled_out"),
        report.seen()
    );
    assert_eq!(report.all_lost(), Sum::ZERO);
    // One of ten: 10,000 expected, standard deviation 95; ten of them either way.
    let counted = report.in_flows().packets;
    assert!((9_050..=10_950).contains(&counted), "{counted}");
}

/// A halted process is woken, drains, and the account closes.
#[test]
fn a_process_that_was_halted_under_load_loses_by_name_only() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(
        &wire.near,
        "--interface x0 --max-entries 5000 --scan-interval 50ms",
    );
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let crowd = Crowd::new(64);
    let mut sent = Sent::default();
    for round in 0..5u32 {
        skua.halt();
        sent += sender.send(8_000, |n| crowd.frame(round * 6_000 + n as u32));
        skua.signal(Signal::CONT);
        sent += sender.send(8_000, |n| crowd.frame(round * 6_000 + n as u32));
        let drained = skua.summary().number("drains");
        wait_for("drain", || {
            (skua.summary().number("drains") > drained).then_some(())
        });
    }
    let report = skua.stop();
    assert_received(&wire, before, sent, &report);
    assert!(report.lost("table_full_udp").packets > 0);
    assert_eq!(
        report.in_flows() + report.lost("table_full_udp"),
        report.seen()
    );
}

/// Short of Ethernet's header nothing can be said of a frame; such frames cannot be sent by packet
/// sockets, but ones that end right behind it can.
#[test]
fn frames_without_anything_behind_the_header_are_counted() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let whole = Flow::numbered(1).frame(100);
    // Cut at every length: malformed, but all there.
    let sent = sender.send(86, |n| whole[..14 + n as usize].to_vec());
    let report = skua.stop();
    assert_received(&wire, before, sent, &report);
    assert_eq!(report.in_flows(), report.seen());
    // All that end within IP's 20 or UDP's 8 bytes.
    assert_eq!(report.note("malformed").packets, 28);
}
