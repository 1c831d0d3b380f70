//! Rates are those of a fixed window: what was counted by the time that it took, whoever asks.

use std::{
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::lab::{Skua, Wire, root_tests, skua::parse_lines, wait_for};

/// Packets per second; of 1,000 bytes with their headers: 2 Mbit/s.
const PER_SECOND: u64 = 250;

/// Time since the first packet (s), bytes and bits per second of the only row.
fn sample(lines: &str) -> Option<[f64; 3]> {
    let rows = parse_lines(lines);
    let [row] = &rows[..] else { return None };
    let number = |value: &Value| value.as_f64();
    Some([
        number(&row["duration"])? / 1e9,
        number(&row["ab"]["bytes"])?,
        number(&row["rate"]["bits_per_second"])?,
    ])
}

#[test]
fn a_steady_sender_has_its_rate_also_by_process() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    wire.near.ip("address add 10.9.5.1/24 dev x0");
    wire.far.ip("address add 10.9.5.2/24 dev g0");
    let skua = Skua::run(&wire.near, "--interface x0");
    skua.wait_attached("x0");
    let sender = wire
        .near
        .inside(|| UdpSocket::bind("10.9.5.1:7502").unwrap());
    let _receiver = wire
        .far
        .inside(|| UdpSocket::bind("10.9.5.2:7500").unwrap());
    let over = AtomicBool::new(false);
    let samples = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begin = Instant::now();
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                let due = begin.elapsed().as_micros() as u64 * PER_SECOND / 1_000_000;
                while sent < due {
                    sender.send_to(&[3; 958], "10.9.5.2:7500").unwrap();
                    sent += 1;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        // Another one asks more often.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                skua.get("/api/flows?filter=port:7500");
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        let mut samples: Vec<[f64; 3]> = Vec::new();
        while samples.last().is_none_or(|[seconds, ..]| *seconds < 10.0) {
            samples.extend(sample(&skua.get("/api/flows?filter=port:7500")));
            std::thread::sleep(Duration::from_millis(400));
        }
        // The sums agree, but for a window that ends between the requests.
        wait_for("the same rate by process", || {
            let rate = |path: &str| parse_lines(&skua.get(path)).first().cloned();
            let one = rate("/api/flows?filter=port:7500")?;
            let sum = rate("/api/flows?by=process&filter=port:7500")?;
            let bits = |row: &Value| row["rate"]["bits_per_second"].as_f64();
            (bits(&one)? > 0.0 && bits(&one) == bits(&sum)).then_some(())
        });
        over.store(true, Ordering::Relaxed);
        samples
    });
    // A rate is a mean over some seconds before: it is within those of the shorter times in them.
    for (at, [now, _, rate]) in samples.iter().enumerate() {
        if *now < 9.0 {
            continue;
        }
        let window: Vec<_> = samples[..=at].iter().filter(|s| s[0] > now - 9.0).collect();
        let rates = window.windows(2).filter(|pair| pair[1][0] > pair[0][0]);
        let rates = rates.map(|pair| (pair[1][1] - pair[0][1]) * 8.0 / (pair[1][0] - pair[0][0]));
        let rates: Vec<f64> = rates.collect();
        let least = rates.iter().copied().fold(f64::MAX, f64::min) * 0.9;
        let most = rates.iter().copied().fold(0.0, f64::max) * 1.1;
        assert!((least..most).contains(rate), "{rate} of {samples:?}");
    }
    // All of it: what was counted by the time that passed.
    let [seconds, bytes, rate] = samples[samples.len() - 1];
    let mean = bytes * 8.0 / seconds;
    assert!(
        (mean * 0.9..mean * 1.1).contains(&rate),
        "{rate}, not {mean}"
    );
    skua.stop();
}
