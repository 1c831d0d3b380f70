//! The job of Flink.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Command, Stdio},
};

use prost::Message as _;
use serde_json::Value;
use skua_kafka::LineMessage;
use skua_testkit::broker::Broker;

use crate::{
    job::{Job, after, broker, check, command, in_process, input, late, publish, rows},
    support::wait_for,
};

/// Puts something into a topic that is no line.
fn put(broker: &Broker, bytes: &[u8]) {
    let mut kcat = Command::new("kcat")
        .args(["-P", "-b", &broker.address(), "-t", "lines", "-p", "0"])
        .arg("/dev/stdin")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    kcat.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(kcat.wait().unwrap().success());
}

#[test]
#[ignore = "wants Flink, 315 MB: make test-stream"]
fn flink_and_the_graph_in_process_come_to_the_same() {
    let broker = broker();
    let input = input();
    publish(&broker, &input);
    // What nobody can read, and what is of a later version, holds nothing up and is not counted.
    put(&broker, b"\xff\xff\xffno line");
    let mut newer = LineMessage::of(&input[0]).unwrap();
    newer.version = 2;
    put(&broker, &newer.encode_to_vec());

    let output = command(&broker)
        .args(["--from", "earliest", "--until-now"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{wrong}");

    let (found, again) = rows(&broker);
    assert!(!found.is_empty(), "{said}\n{wrong}");
    assert_eq!(again, 0);
    let (expected, corrected) = in_process(&input);
    assert_eq!(corrected, 0);
    check(&found, &expected);
    let sum = |name: &str| -> u64 { found.values().map(|row| row[name].as_u64().unwrap()).sum() };
    let packets: u64 = input.iter().map(|line| line.client_sent.packets).sum();
    assert_eq!(sum("client_packets"), packets);
}

#[test]
#[ignore = "wants Flink, 315 MB: make test-stream"]
fn flink_goes_on_where_it_was_killed_and_corrects_what_comes_late() {
    let broker = broker();
    let (mut input, late) = (input(), late());
    let (on_time, _) = in_process(&input);
    input.extend(late.iter().cloned());
    let (expected, corrected) = in_process(&input);
    assert!(corrected > 10, "{corrected}");
    input.truncate(input.len() - late.len());
    let state = std::env::temp_dir().join(format!("skua-job-{}", std::process::id()));
    let start = || {
        let mut command = command(&broker);
        command.args(["--from", "earliest", "--state", state.to_str().unwrap()]);
        Job::start(&mut command, &state)
    };
    let half = input.len() / 2;
    publish(&broker, &input[..half]);
    let job = start();
    wait_for("rows and a checkpoint", || {
        !rows(&broker).0.is_empty() && job.checkpoints() > 0
    });
    drop(job);
    publish(&broker, &input[half..]);
    let job = start();
    assert!(job.checkpoints() > 0);
    publish(&broker, &after());
    let has = |wanted: &BTreeMap<String, Value>| {
        let found = rows(&broker).0;
        wanted.iter().all(|(key, row)| found.get(key) == Some(row))
    };
    wait_for("all rows", || has(&on_time));
    // What comes when all these windows are over corrects their rows.
    publish(&broker, &late);
    wait_for("all corrections", || has(&expected));
    check(&rows(&broker).0, &expected);
    assert!(job.said().contains("going on from"), "{}", job.said());
    drop(job);
    std::fs::remove_dir_all(state).unwrap();
}
