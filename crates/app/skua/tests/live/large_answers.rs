//! Answers of many megabytes, and what memory they take of the `skua run` that gives them.

use crate::{
    lab::{
        Flow, SendMode, Sender, Skua, Wire, root_tests,
        skua::{self, parse_lines},
        wait_for,
    },
    queries::try_ask,
};

const FLOWS: u64 = 60_000;
const MIB: u64 = 1 << 20;

/// Resident bytes of a process, and the most since [`forget_most`].
fn resident(skua: &Skua) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", skua.pid())).unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// From here on the most is counted anew, proc(5).
fn forget_most(skua: &Skua) {
    std::fs::write(format!("/proc/{}/clear_refs", skua.pid()), "5").unwrap();
}

/// Bytes by which a process grew at most while it answered.
fn growth(skua: &Skua, what: &str, answer: impl FnOnce() -> usize) -> u64 {
    forget_most(skua);
    let (before, _) = resident(skua);
    let answered = answer() as u64;
    let (after, most) = resident(skua);
    let growth = most.saturating_sub(before);
    println!(
        "{what}: {} MiB, {} MiB more at most, {} MiB more now",
        answered / MIB,
        growth / MIB,
        after.saturating_sub(before) / MIB
    );
    growth
}

#[test]
fn answers_of_many_flows_take_little_memory() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let mut command = skua::command(&wire.near);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--interface", "x0"])
        .args(["--scan-interval", "200ms", "--summary", "json"])
        // Whenever a window of it ends it grows by some 20 MiB, which are no answer's.
        .env("SKUA_SOCKETS_GRAPH", "0");
    let skua = Skua::run_command(&wire.near, &mut command);
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let sent = sender.send(FLOWS, |number| Flow::numbered(number as u32).frame(100));
    wait_for("all flows", || {
        (skua.summary().in_flows() == sent.sum).then_some(())
    });
    let lines = |path: &str| skua.get(path).lines().count() as u64;
    // Nobody here has their sockets: they are one line.
    let sums = parse_lines(&skua.get("/api/flows?by=process"));
    assert_eq!((sums.len(), &sums[0]["flows"]), (1, &FLOWS.into()));

    let grown = growth(&skua, "flows", || {
        let text = skua.get("/api/flows");
        assert_eq!(text.lines().count() as u64, FLOWS);
        text.len()
    });
    assert!(grown < 24 * MIB, "{grown}");
    assert_eq!(lines("/api/flows?limit=100&offset=200"), 100);
    assert_eq!(lines("/api/flows?limit=100&offset=59950"), 50);
    assert_eq!(lines("/api/flows?limit=100&offset=70000"), 0);

    for query in ["G.Flows()", "G.Flows().Metrics()"] {
        let grown = growth(&skua, query, || {
            // A debug build that has a small part of a processor does not have it within the time of a query.
            let answer = wait_for("answer in time", || {
                match try_ask(&wire.near, &skua, query) {
                    Ok(answer) => Some(answer),
                    Err(error) if error.contains("the query takes longer than") => None,
                    Err(error) if error.contains("timeout: global") => None,
                    Err(error) => panic!("{query}: {error}"),
                }
            });
            let answered = match &answer[0]["UUID"] {
                serde_json::Value::Null => answer[0].as_object().unwrap().len(),
                _ => answer.as_array().unwrap().len(),
            };
            assert_eq!(answered as u64, FLOWS, "{query}");
            answer.to_string().len()
        });
        assert!(grown < 64 * MIB, "{query}: {grown}");
    }
    skua.stop();
}
