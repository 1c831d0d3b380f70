//! Files of detectors: what is left out has a default, an error names the place.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use skua_steer::{
    Action, ByteOrder, Channel, ChannelField, Detector, Encoding, From, Order, Sample, Threshold,
    ValueField, WhenLost, parse,
};

fn one(text: &str) -> Detector {
    parse(text).unwrap().remove(0)
}

#[test]
fn the_preset_is_the_seeds_detector() {
    let d = one("{name: a, interface: eth0, preset: ewma-64, action: {drop: true}}");
    let channel = ChannelField {
        offset: 0,
        width: 2,
        order: ByteOrder::Big,
    };
    let value = ValueField {
        offset: 2,
        width: 20,
        encoding: Encoding::Decimal,
        order: ByteOrder::Big,
    };
    assert_eq!((d.channels, d.ring, d.fraction), (64, 10, 8));
    assert_eq!((d.smoothing, d.threshold), (3, Threshold::Shift(3)));
    assert_eq!((d.channel, d.value), (Some(channel), value));
    assert_eq!((d.release, d.warm_up), (d.threshold, 0));
    assert_eq!((d.hold, d.expression.as_str()), (Duration::ZERO, "udp"));
    assert_eq!(
        (d.action, d.order, d.from),
        (Action::Drop, Order::Last, From::Payload)
    );
    assert_eq!(d.watchdog.when_lost, WhenLost::Release);
}

#[test]
fn everything_can_be_said() {
    let d = one("\
name: everything
interface: veth-a
netns: pods
match: udp port 9000
from: ip
channels: 65536
channel: {offset: 4, width: 4, order: little}
value: {offset: 8, width: 2, encoding: signed, order: little}
fraction: 4
ring: 64
smoothing: 5
threshold: {percent: 12.5}
release: {percent: 0.01}
warm_up: 100
hold: 5s
action:
  redirect: {to: veth-b, mac: '02:00:00:00:00:0b', address: 'fd00::b', port: 9001}
dry_run: true
watchdog: {when_lost: stay, after: 1s}
order: first
clock: exact
");
    assert_eq!(d.threshold, Threshold::Parts(1_250));
    assert_eq!(d.release, Threshold::Parts(1));
    assert_eq!(
        d.action.destination().unwrap().macs().0,
        Some([2, 0, 0, 0, 0, 0x0b])
    );
    assert!(d.dry_run);
}

#[test]
fn several_documents_are_several_detectors() {
    let text = "---\n{name: a, interface: x, preset: ewma-64, action: {report: true}}\n---\n\
                {name: b, interface: x, preset: ewma-64, action: {mark: 7}}\n---\n";
    let names: Vec<_> = parse(text).unwrap().into_iter().map(|d| d.name).collect();
    assert_eq!(names, ["a", "b"]);
    let twice = text.replace("name: b", "name: a");
    assert!(parse(&twice).unwrap_err().to_string().contains("twice"));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let base = "name: a\ninterface: eth0\n";
    let preset = format!("{base}preset: ewma-64\n");
    let report = "action: {report: true}\n";
    for (text, told) in [
        (String::new(), "no detector in the file"),
        (
            format!("{base}{report}"),
            "detector \"a\": value is missing",
        ),
        (format!("{preset}action: {{}}\n"), "action must be one of"),
        (
            format!("{preset}action: {{drop: true, mark: 1}}\n"),
            "action must be one of",
        ),
        (
            format!("{preset}action: {{drop: false}}\n"),
            "action.drop can only be true",
        ),
        (
            format!("{preset}{report}channels: 65537\n"),
            "channels is 65537, must be 1 to 65536",
        ),
        (
            format!("{preset}{report}ring: 0\n"),
            "ring is 0, must be 1 to 64",
        ),
        (
            format!("{preset}{report}smoothing: 33\n"),
            "smoothing is 33",
        ),
        (format!("{preset}{report}fraction: 25\n"), "fraction is 25"),
        (
            format!("{preset}{report}threshold: {{}}\n"),
            "threshold must have either",
        ),
        (
            format!("{preset}{report}threshold: {{percent: .nan}}\n"),
            "threshold.percent is NaN",
        ),
        (
            format!("{preset}{report}threshold: {{percent: 1001}}\n"),
            "must be 0.01 to 1000",
        ),
        (
            format!("{preset}{report}hold: 2 days\n"),
            "hold must be 0s to 1day",
        ),
        (format!("{preset}{report}hold: soon\n"), "write it like 10s"),
        (
            format!("{preset}{report}watchdog: {{after: 1ms}}\n"),
            "watchdog.after must be",
        ),
        (
            format!("{preset}{report}colour: red\n"),
            "unknown field `colour`",
        ),
        (
            format!("{preset}{report}match: udp prot 1\n"),
            "did you mean",
        ),
        (format!("{preset}{report}netns: a/b\n"), "netns is no name"),
        (
            format!("{base}preset: ewma-65\n{report}"),
            "preset is \"ewma-65\"; there is ewma-64",
        ),
        (
            format!("{base}{report}value: {{offset: 0, width: 3, encoding: signed}}\n"),
            "value.width is 3, must be 1, 2, 4 or 8",
        ),
        (
            format!("{base}{report}value: {{offset: 0, width: 8, encoding: float}}\n"),
            "value.width is 8, must be 4 for this encoding",
        ),
        (
            format!("{base}{report}value: {{offset: 65536, encoding: float}}\n"),
            "value.offset is 65536",
        ),
        (
            format!("{preset}action: {{redirect: {{to: eth0}}}}\n"),
            "action.redirect.to is the interface that packets come from",
        ),
        (
            format!("{preset}action: {{redirect: {{to: b, mac: '2:0:0:0:0:0'}}}}\n"),
            "action.redirect.mac is no MAC address",
        ),
        (
            format!("{preset}action: {{mirror: {{to: b, port: 9}}}}\n"),
            "action.mirror copies packets as they are",
        ),
        (
            format!("{preset}action: {{redirect: {{to: b, port: 0}}}}\n"),
            "action.redirect.port must not be 0",
        ),
        (
            "name: 'a b'\ninterface: x\naction: {drop: true}\n".into(),
            "detector \"a b\": name must be",
        ),
        (
            "name: a\ninterface: sixteen-is-a-lot\naction: {drop: true}\n".into(),
            "interface must be the name of an interface",
        ),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(told), "{text}\n{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Feeds values a second apart; which of them stand fired.
fn fired(detector: &Detector, values: &[i64]) -> Vec<bool> {
    let mut channel = Channel::new(detector);
    let samples = values.iter().enumerate().map(|(second, value)| Sample {
        time_ns: second as u64 * 1_000_000_000,
        value: value << 8,
    });
    samples
        .map(|sample| channel.judge(detector, sample).fired)
        .collect()
}

#[test]
fn hysteresis_hold_and_warm_up() {
    let plain =
        "name: a\ninterface: x\npreset: ewma-64\nring: 2\nsmoothing: 1\naction: {drop: true}\n";
    let values = [100, 100, 200, 200, 200, 200, 200, 200, 200];
    let number = |more: &str| {
        let fired = fired(&one(&format!("{plain}{more}")), &values);
        // One after the other, from the third on.
        assert!(!fired[0] && !fired[1]);
        fired.iter().filter(|fired| **fired).count()
    };
    // The average moves by 50, 25, 12, 6, 3…, of 100, 150, 175…
    assert_eq!(number(""), 2);
    assert_eq!(number("release: {shift: 5}\n"), 4);
    assert_eq!(number("hold: 4s\n"), 5);
    assert_eq!(number("warm_up: 1\n"), 1);
    assert_eq!(number("threshold: {percent: 60}\n"), 0);
    assert_eq!(number("threshold: {percent: 49}\n"), 1);
}
