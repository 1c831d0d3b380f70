//! `skua links`: what is lost between two places, and nothing else.

use std::{
    net::{SocketAddr, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::Value;

use crate::{
    lab::{
        Skua, Wire, root_tests,
        skua::{self, parse_lines},
        wait_for,
    },
    queries,
};

/// Packets and lost ones of links, by whether they begin at `x0`.
fn links(wire: &Wire, skua: &Skua, port: u16) -> Vec<(bool, u64, u64)> {
    let output = skua::command(&wire.near)
        .args(["links", "--output", "json", "--port", &port.to_string()])
        .env("SKUA_ANALYZER", &skua.address)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = parse_lines(&String::from_utf8(output.stdout).unwrap());
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap();
    let link = |line: &Value| {
        let from = line["from"].as_str().unwrap();
        let from_near = from.ends_with("x0");
        (from_near, number(line, "packets"), number(line, "lost"))
    };
    let mut links: Vec<_> = lines.iter().map(link).collect();
    links.sort_unstable();
    links
}

/// Ends a stream, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_link_loses_what_the_other_end_does_not_count_and_nothing_else() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A stream that runs when the places are attached, one after the other.
        let socket = wire
            .far
            .inside(|| UdpSocket::bind("10.7.0.1:5000").unwrap());
        let streams = &stop;
        scope.spawn(move || {
            while !streams.load(Ordering::Relaxed) {
                let _ = socket.send_to(&[7; 100], "10.7.0.2:9");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let end = Stop(&stop);
        let skua = Skua::run_among(&wire.near, &[&wire.near, &wire.far], "--scan-interval 1s");
        wait_for("the stream at both places", || {
            let count = queries::ask(
                &wire.near,
                &skua,
                "G.Flows().Has('Transport', 9, 'Metric.ABPackets', GT(100)).Count()",
            );
            (count == 2).then_some(())
        });
        // Which packets passed before both were watched nobody knows.
        for _ in 0..3 {
            assert_eq!(links(&wire, &skua, 9), []);
        }
        drop(end);
        // A connection that is refused, and the refusals lost: x0 has two records of it, g0 one.
        let tc = "filter add dev x0 egress pref 1 handle 1 bpf bytecode \
                  4,48\u{a0}0\u{a0}0\u{a0}23,21\u{a0}0\u{a0}1\u{a0}6,6\u{a0}0\u{a0}0\u{a0}2,6\u{a0}0\u{a0}0\u{a0}4294967295 direct-action";
        let words = |line: &str| -> Vec<String> {
            let words = line.split(' ').filter(|word| !word.is_empty());
            words.map(|word| word.replace('\u{a0}', " ")).collect()
        };
        for line in ["qdisc replace dev x0 clsact", tc] {
            let status = wire.near.command("tc").args(words(line)).status().unwrap();
            assert!(status.success(), "{line}");
        }
        let server: SocketAddr = "10.7.0.2:2525".parse().unwrap();
        let refused = wire
            .far
            .inside(|| TcpStream::connect_timeout(&server, Duration::from_millis(2_500)));
        assert!(refused.is_err());
        wait_for("the refusals to be lost", || {
            let links = links(&wire, &skua, 2_525);
            // Kernels send a SYN again after one second, or after one, two, ….
            match links[..] {
                [(false, tries, lost), (true, refusals, lost_refusals)] => {
                    assert!(lost == 0 && lost_refusals <= refusals, "{links:?}");
                    (tries >= 2 && [refusals, lost_refusals] == [tries; 2]).then_some(())
                }
                _ => None,
            }
        });
    });
}
