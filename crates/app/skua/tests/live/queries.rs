//! `skua query` against a running `skua run`.

use serde_json::Value;

use crate::lab::{
    Flow, Net, SendMode, Sender, Skua, Wire, root_tests,
    skua::{self, sum_of},
    wait_for,
};

/// The answer of a query as JSON.
pub fn ask(net: &Net, skua: &Skua, query: &str) -> Value {
    try_ask(net, skua, query).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// The answer of a query as JSON, or the message.
pub fn try_ask(net: &Net, skua: &Skua, query: &str) -> Result<Value, String> {
    let output = skua::command(net)
        .args(["query", query, "--format", "json", "--analyzer"])
        .arg(&skua.address)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn queries_count_what_was_sent() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0");
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    for number in 1..=20 {
        sender.repeat(u64::from(number), &Flow::numbered(number).frame(100));
    }
    let ask = |query: &str| ask(&wire.near, &skua, query);
    // 1 + 2 + … + 20.
    let sum = "G.Flows().Has('Transport.Protocol', 'UDP', 'Metric.ABPackets', Gt(0)).Sum";
    // An answer may be a tenth of a second old.
    wait_for("all packets", || {
        (ask(&format!("{sum}('Metric.ABPackets')")) == 210).then_some(())
    });
    assert_eq!(ask(&format!("{sum}('Metric.ABBytes')")), 21_000);
    let flows = skua.flows();
    let numbered: Vec<&Value> = flows.iter().filter(|f| f["protocol"] == "udp").collect();
    assert_eq!(sum_of(numbered.iter().copied()).packets, 210);
    // One of them, by what `skua flows` says of it.
    let one = numbered
        .iter()
        .find(|flow| flow["ab"]["packets"] == 7)
        .unwrap();
    let address = one["a"]["address"].as_str().unwrap();
    let found = ask(&format!(
        "G.Flows().Has('Network', '{address}', 'Metric.ABPackets', 7)"
    ));
    assert_eq!(found.as_array().unwrap().len(), 1);
    let found = &found[0];
    assert_eq!(found["UUID"], one["id"]);
    assert_eq!(found["CommunityID"], one["community_id"]);
    assert_eq!(found["LayersPath"], one["layers"]);
    assert_eq!(found["Interface"], "x0");
    assert_eq!(found["Metric"]["ABBytes"], 700);
    // Nothing found is an empty list; the API says it as Skydive does.
    assert_eq!(
        ask("G.Flows().Has('Network', '203.0.113.1')"),
        Value::Array(vec![])
    );
}

#[test]
fn a_wrong_query_is_answered_with_its_place() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0");
    let output = skua::command(&wire.near)
        .args(["query", "G.V().Hass('Name', 'x0')", "--analyzer"])
        .arg(&skua.address)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "skua: there is no step `Hass`\n  G.V().Hass('Name', 'x0')\n        ^^^^\ndid you mean `Has`?\n"
    );
}
