//! What a receiver of NetFlow loses is seen wherever a user looks.

use std::net::UdpSocket;

use serde_json::{Value, json};
use skua_testkit::lab::root_tests;

use crate::{
    switch::Switch,
    truth::{Skua, wait},
};

/// An IPFIX message of one set with an identifier, whose records have a template that nobody has told.
fn without_template(sequence: u32, bytes: usize) -> Vec<u8> {
    let mut message = Vec::new();
    for half in [10, 16 + 4 + bytes as u16] {
        message.extend(u16::to_be_bytes(half));
    }
    for word in [1_763_700_000, sequence, 7] {
        message.extend(u32::to_be_bytes(word));
    }
    for half in [999, 4 + bytes as u16] {
        message.extend(u16::to_be_bytes(half));
    }
    message.resize(message.len() + bytes, 0);
    message
}

/// A NetFlow 5 header with a sequence number, without records that it counts.
fn cut_off(sequence: u32) -> Vec<u8> {
    let mut message = Vec::new();
    for half in [5_u16, 2] {
        message.extend(half.to_be_bytes());
    }
    for word in [1000, 1_763_700_000, 0, sequence, 0] {
        message.extend(u32::to_be_bytes(word));
    }
    message
}

#[test]
fn what_a_receiver_loses_is_in_status_metrics_and_doctor() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("lost");
    let skua = Skua::run(&switch);
    let id = skua.create("netflow", "G.V().Has('Type', 'host')");
    let port = skua.active(&id)["Port"].as_u64().unwrap() as u16;
    let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = switch.net.inside(bind);
    let send = |bytes: &[u8]| socket.send_to(bytes, ("127.0.0.1", port)).unwrap();
    for number in 0..200 {
        match number % 2 {
            0 => send(b"not what was meant"),
            _ => send(&cut_off(number)),
        };
    }
    // 1 MiB waits, and what is more is given up.
    const SETS: u32 = 800;
    for number in 0..SETS {
        send(&without_template(number, 1400));
    }
    let received = wait("what was lost", || {
        let status = skua.status();
        let captures = status["captures"].as_array().unwrap();
        let of = captures.iter().find(|capture| capture["uuid"] == *id);
        let received = of.unwrap()["received"].clone();
        let whole = received["datagrams"] == 200 + SETS;
        whole.then(|| received.clone()).ok_or(received)
    });
    let lost = &received["lost"];
    assert_eq!(lost["decode_error"], 200, "{received:#}");
    let given_up = lost["no_template"].as_u64().unwrap();
    let waiting = received["waiting"].as_u64().unwrap();
    assert!(given_up >= 50, "{received:#}");
    assert_eq!(given_up + waiting, u64::from(SETS), "{received:#}");
    assert!(received["last_error"].is_string(), "{received:#}");

    let metrics = skua.fetch("/metrics");
    for (cause, units) in [("decode_error", 200), ("no_template", given_up)] {
        let is_it = |line: &&str| {
            line.starts_with("skua_capture_receive_lost_total") && line.contains(cause)
        };
        let line = metrics.lines().find(is_it).unwrap_or_default();
        assert!(line.ends_with(&format!(" {units}")), "{line}");
    }
    let doctor: Value = serde_json::from_slice(&skua.ask(&["doctor", "--output", "json"])).unwrap();
    let advice = json!(doctor["advice"]).to_string();
    for said in ["200 datagrams could not be read", "no template came"] {
        assert!(advice.contains(said), "{advice}");
    }
}
