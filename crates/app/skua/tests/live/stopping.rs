//! Starting and stopping in mid-load: what passed while attached is counted, nothing stays.

use std::{
    collections::BTreeSet,
    net::UdpSocket,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};

use crate::lab::{
    Flow, SendMode, Sender, Sent, Skua, Sum, Wire, frame::Crowd, root_tests, wait_for,
};

/// Sends to `x0` until told to stop.
struct Load {
    stop: AtomicBool,
    pause: AtomicBool,
    /// Frames that have left before the last pause; odd while it sends.
    rounds: AtomicU64,
}

impl Load {
    fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
        }
    }

    fn run(&self, sender: &Sender) -> Sent {
        let crowd = Crowd::new(70);
        let mut sent = Sent::default();
        while !self.stop.load(Ordering::SeqCst) {
            if self.pause.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            self.rounds.fetch_add(1, Ordering::SeqCst);
            // Between the two a pause may have begun: it counts from the next round on.
            if !self.pause.load(Ordering::SeqCst) {
                sent += sender.send(640, |n| crowd.frame(n as u32 % 100));
            }
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        sent
    }

    /// Returns when nothing is being sent.
    fn pause(&self) {
        self.pause.store(true, Ordering::SeqCst);
        wait_for("pause", || {
            self.rounds
                .load(Ordering::SeqCst)
                .is_multiple_of(2)
                .then_some(())
        });
    }

    fn go_on(&self) {
        self.pause.store(false, Ordering::SeqCst);
    }
}

/// Runs `work` under load on `x0`.
fn under_load<T>(wire: &Wire, load: &Load, work: impl FnOnce() -> T) -> (Sent, T) {
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| load.run(&sender));
        // The load must end also when the work fails.
        struct Stop<'a>(&'a Load);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop.store(true, Ordering::SeqCst);
            }
        }
        let stop = Stop(load);
        let done = work();
        drop(stop);
        (thread.join().unwrap(), done)
    })
}

fn received(wire: &Wire) -> Sum {
    wire.near.counters("x0").rx
}

#[test]
fn started_and_stopped_in_mid_load() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let load = Load::new();
    under_load(&wire, &load, || {
        for _ in 0..3 {
            let before = received(&wire);
            let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
            let attached = received(&wire);
            wait_for("load", || {
                (received(&wire).packets > attached.packets + 20_000).then_some(())
            });
            let stopping = received(&wire);
            let report = skua.stop();
            let after = received(&wire);
            let seen = report.seen();
            // It was attached at least between `attached` and `stopping`, at most between
            // `before` and `after`.
            assert!((stopping - attached).within(seen), "{seen:?}");
            assert!(seen.within(after - before), "{seen:?}");
            assert_eq!(seen.bytes, 70 * seen.packets);
            assert_eq!(report.in_flows(), seen);
            assert_eq!(report.number("flows"), 100);
        }
    });
}

#[test]
fn stopped_in_a_pause_of_the_load() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let load = Load::new();
    under_load(&wire, &load, || {
        for _ in 0..3 {
            load.pause();
            let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
            let before = wire.near.settled_counters("x0").rx;
            load.go_on();
            wait_for("load", || {
                (received(&wire).packets > before.packets + 20_000).then_some(())
            });
            load.pause();
            let after = wire.near.settled_counters("x0").rx;
            let report = skua.stop();
            assert_eq!(report.seen(), after - before);
            assert_eq!(report.in_flows(), report.seen());
            load.go_on();
        }
    });
}

/// Identifiers of programs and links that a process holds, from /proc.
fn held(pid: u32) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut programs, mut links) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok())
        };
        // A link tells its program's identifier, too.
        programs.extend(field("prog_id:"));
        links.extend(field("link_id:"));
    }
    (programs, links)
}

fn alive(programs: &BTreeSet<u32>, links: &BTreeSet<u32>) -> (Vec<u32>, Vec<u32>) {
    (
        ProgInfoIter::default()
            .map(|program| program.id)
            .filter(|id| programs.contains(id))
            .collect(),
        LinkInfoIter::default()
            .map(|link| link.id)
            .filter(|id| links.contains(id))
            .collect(),
    )
}

#[test]
fn nothing_stays_after_kill_9() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let load = Load::new();
    let (sent, ()) = under_load(&wire, &load, || {
        let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
        skua.wait_attached("x0");
        let (programs, links) = held(skua.pid());
        assert!(programs.len() >= 2, "{programs:?}");
        assert!(
            links.len() > 2,
            "one for each direction, and those for sockets"
        );
        let (running, attached) = alive(&programs, &links);
        assert_eq!(
            (running.len(), attached.len()),
            (programs.len(), links.len())
        );
        let before = received(&wire);
        wait_for("load", || {
            (received(&wire).packets > before.packets + 20_000).then_some(())
        });
        skua.kill();
        // The kernel frees them a grace period later.
        wait_for("end of the programs", || {
            (alive(&programs, &links) == (vec![], vec![])).then_some(())
        });
        for direction in ["ingress", "egress"] {
            let filters = wire
                .near
                .exec(&format!("tc filter show dev x0 {direction}"));
            assert_eq!(filters.trim(), "", "{direction}");
        }
        let program = &wire.near.link("x0")["xdp"];
        assert!(program.is_null(), "{program}");
        // Traffic goes on, also the ordinary one.
        let after = received(&wire);
        wait_for("load", || {
            (received(&wire).packets > after.packets + 20_000).then_some(())
        });
        let receiver = wire
            .near
            .inside(|| UdpSocket::bind("10.7.0.2:7001"))
            .unwrap();
        let sender = wire
            .far
            .inside(|| UdpSocket::bind("10.7.0.1:7000"))
            .unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        sender.send_to(b"hello", "10.7.0.2:7001").unwrap();
        assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 5);
        // And the next one starts as if nothing had been.
        let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
        let before = received(&wire);
        wait_for("load", || {
            (received(&wire).packets > before.packets + 20_000).then_some(())
        });
        assert!(skua.stop().seen().packets > 20_000);
    });
    assert_eq!(sent.error, None);
}

/// The process that waits to clean up after `pid`. The kernel may leave out children in a reading
/// of the list (proc(5)), hence more than one.
fn cleaner_of(pid: u32) -> u32 {
    wait_for("second process", || {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let children: Vec<_> = list.split_whitespace().collect();
        assert!(children.len() < 2, "{list}");
        children.first()?.parse().ok()
    })
}

fn classifiers(wire: &Wire, interface: &str) -> [String; 2] {
    ["ingress", "egress"].map(|direction| {
        wire.near
            .exec(&format!("tc filter show dev {interface} {direction}"))
            .trim()
            .to_owned()
    })
}

/// Classifiers are no links: a second process detaches them.
#[test]
fn no_classifier_stays_after_kill_9() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let load = Load::new();
    let (sent, ()) = under_load(&wire, &load, || {
        let skua = Skua::run(
            &wire.near,
            "--interface x0 --max-entries 1000 --hook clsact",
        );
        skua.wait_attached("x0");
        for filters in classifiers(&wire, "x0") {
            assert!(filters.contains("direct-action"), "{filters}");
        }
        let cleaner = cleaner_of(skua.pid());
        // It must not hold what the kernel frees with the last descriptor.
        assert_eq!(held(cleaner), Default::default());
        // What is sent to all of the process group, or of the service, must not reach it.
        let group = |pid: u32| {
            rustix::process::getpgid(rustix::process::Pid::from_raw(pid as i32)).unwrap()
        };
        assert_ne!(group(cleaner), group(skua.pid()));
        let cleaner_pid = rustix::process::Pid::from_raw(cleaner as i32).unwrap();
        for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
            rustix::process::kill_process(cleaner_pid, signal).unwrap();
        }
        let (programs, _) = held(skua.pid());
        let before = received(&wire);
        wait_for("load", || {
            (received(&wire).packets > before.packets + 20_000).then_some(())
        });
        skua.kill();
        wait_for("end of the classifiers", || {
            (classifiers(&wire, "x0") == ["", ""]).then_some(())
        });
        wait_for("end of the programs", || {
            alive(&programs, &BTreeSet::new())
                .0
                .is_empty()
                .then_some(())
        });
        wait_for("end of the cleaner", || {
            (!std::path::Path::new(&format!("/proc/{cleaner}/ns/net")).exists()).then_some(())
        });
        let after = received(&wire);
        wait_for("load", || {
            (received(&wire).packets > after.packets + 20_000).then_some(())
        });
    });
    assert_eq!(sent.error, None);
}

/// An interface that comes and one that goes; then an ordinary end.
#[test]
fn classifiers_are_followed_and_go_in_an_ordinary_end() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--max-entries 1000 --hook clsact");
    skua.wait_attached("x0");
    wire.far.veth("late1", &wire.near, "late0");
    skua.wait_attached("late0");
    wire.far.veth("gone1", &wire.near, "gone0");
    skua.wait_attached("gone0");
    wire.near.ip("link del gone0");
    let cleaner = cleaner_of(skua.pid());
    skua.kill();
    for interface in ["x0", "late0"] {
        wait_for("end of the classifiers", || {
            (classifiers(&wire, interface) == ["", ""]).then_some(())
        });
    }
    wait_for("end of the cleaner", || {
        (!std::path::Path::new(&format!("/proc/{cleaner}/ns/net")).exists()).then_some(())
    });

    let skua = Skua::run(
        &wire.near,
        "--interface x0 --max-entries 1000 --hook clsact",
    );
    let cleaner = cleaner_of(skua.pid());
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let sent = sender.repeat(5000, &Flow::numbered(1).frame(99));
    assert_eq!(skua.stop().seen(), sent.sum);
    assert_eq!(classifiers(&wire, "x0"), ["", ""]);
    wait_for("end of the cleaner", || {
        (!std::path::Path::new(&format!("/proc/{cleaner}/ns/net")).exists()).then_some(())
    });
}

/// What a killed run left because the one that cleans up was killed, too, is replaced; and what
/// a later run attached is not detached with an earlier one.
#[test]
fn a_later_run_takes_the_place_of_what_was_left() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let arguments = "--interface x0 --max-entries 1000 --hook clsact";
    let skua = Skua::run(&wire.near, arguments);
    let cleaner = rustix::process::Pid::from_raw(cleaner_of(skua.pid()) as i32).unwrap();
    rustix::process::kill_process(cleaner, rustix::process::Signal::KILL).unwrap();
    skua.kill();
    for filters in classifiers(&wire, "x0") {
        assert!(filters.contains("direct-action"), "{filters}");
    }
    let one = Skua::run(&wire.near, arguments);
    let two = Skua::run(&wire.near, arguments);
    one.stop();
    for filters in classifiers(&wire, "x0") {
        assert_eq!(filters.matches("direct-action").count(), 1, "{filters}");
    }
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let sent = sender.repeat(5000, &Flow::numbered(1).frame(99));
    assert_eq!(two.stop().seen(), sent.sum);
    assert_eq!(classifiers(&wire, "x0"), ["", ""]);
}

/// A second look at the same interface does not change what the first counts.
#[test]
fn two_at_once_count_the_same() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let one = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let two = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let sent = sender.repeat(5000, &Flow::numbered(1).frame(99));
    assert_eq!(one.stop().seen(), sent.sum);
    assert_eq!(two.stop().seen(), sent.sum);
}
