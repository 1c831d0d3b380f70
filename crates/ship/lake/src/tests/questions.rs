//! Rows in, answers out.

use std::collections::BTreeMap;

use skua_flow::Counters;

use super::*;
use crate::query::{Order, PacketFilter};

fn filled() -> (TestLake, Lake) {
    let place = TestLake::new();
    let writer = place.writer();
    write(&writer, 1..501, 0);
    write(&writer, 501..1_001, 3_700);
    drop(writer);
    let lake = place.lake();
    (place, lake)
}

#[test]
fn sums_are_those_of_the_records() {
    let (place, lake) = filled();
    assert_eq!(place.files().len(), 2);
    let packets: u64 = (1..1_001).sum();
    assert_eq!(totals(&lake), (packets, packets * 100, 1_000_000));
    let by = ask(&lake, always().by("service,process").unwrap());
    assert_eq!(by.by, ["service", "process"]);
    // A conversation of two local processes counts for both.
    let mut expected: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for number in 1..1_001 {
        let [client, server] = parties(number);
        let service = match server.unit {
            "" => format!("10.1.0.{}:443", number % 7),
            unit => unit.into(),
        };
        let bytes = u64::from(number) * 100 + 1_000;
        *expected
            .entry((service.clone(), client.process))
            .or_default() += bytes;
        if server.pid > 0 {
            *expected.entry((service, server.process)).or_default() += bytes;
        }
    }
    let got: BTreeMap<_, _> = lines(&by)
        .into_iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            let bytes = |side: &str| line[side]["bytes"].as_u64().unwrap();
            (
                (text("service"), text("process")),
                bytes("sent") + bytes("received"),
            )
        })
        .collect();
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .map(|((service, process), bytes)| ((service, process.to_owned()), bytes))
        .collect();
    assert_eq!(got, expected);
}

#[test]
fn the_first_of_an_order_come() {
    let (_place, lake) = filled();
    let mut question = always().by("client_address").unwrap();
    question.top = 3;
    let answer = ask(&lake, question);
    assert_eq!(answer.all_groups, 200);
    let names: Vec<_> = lines(&answer)
        .iter()
        .map(|line| line["client_address"].as_str().unwrap().to_owned())
        .collect();
    // 1000, 800, …: the last of each two hundred.
    assert_eq!(names, ["10.0.0.0", "10.0.0.199", "10.0.0.198"]);
    let mut question = always().by("server_port,end").unwrap();
    question.order = Order::named("ended").unwrap();
    let answer = lines(&ask(&lake, question));
    assert_eq!(answer[0]["ended"], 500);
    assert_eq!(
        (&answer[0]["end"], &answer[1]["end"]),
        (&"closed".into(), &serde_json::Value::Null)
    );
    assert_eq!(answer[0]["server_port"], 443);
    assert_eq!(answer[0]["handshake_rtt"], 1_500);
    assert!(Order::named("size").is_err());
}

#[test]
fn conditions_choose_rows_and_sides() {
    let (_place, lake) = filled();
    let count = |question: Question| {
        let answer = lines(&ask(&lake, question));
        answer
            .first()
            .map_or(0, |line| line["begun"].as_u64().unwrap())
    };
    let of = |condition: &str| count(always().where_(condition).unwrap());
    assert_eq!(of("process=curl"), 333);
    assert_eq!(of("process=nginx"), 428);
    assert_eq!(of("client_process=nginx"), 0);
    assert_eq!(of("server_unit=nginx.service"), 428);
    assert_eq!(of("address=10.1.0.3"), 143);
    assert_eq!(of("client_address=10.1.0.3"), 0);
    assert_eq!(of("a.address=10.0.0.0/25"), 640);
    assert_eq!(of("ab_packets>=1000"), 1);
    assert_eq!(of("server_process="), 572);
    // Of a conversation of two processes only the matching side counts.
    let nginx = lines(&ask(
        &lake,
        always()
            .by("process")
            .unwrap()
            .where_("process=nginx")
            .unwrap(),
    ));
    assert_eq!(nginx.len(), 1);
    assert_eq!(nginx[0]["sent"]["bytes"], 428_000);
    let hour = |from: i64| {
        let mut question = always();
        question.since = (BEGIN / 1_000) as i64 + from * 3_600_000_000;
        question.until = question.since + 3_600_000_000;
        count(question)
    };
    assert_eq!([hour(-1), hour(0), hour(1), hour(2)], [0, 500, 500, 0]);
}

#[test]
fn packets_of_a_row_have_its_key() {
    let (_place, lake) = filled();
    let expected: std::collections::HashSet<_> = (1..1_001)
        .map(|number| {
            let key = record(number, 0).key;
            (
                key.lo,
                key.hi,
                key.lo_port,
                key.hi_port,
                key.proto,
                key.kind,
            )
        })
        .collect();
    let mut question = always();
    question.filter = Some(PacketFilter {
        matches: Box::new(move |key, flags| {
            let key = (
                key.lo,
                key.hi,
                key.lo_port,
                key.hi_port,
                key.proto,
                key.kind,
            );
            assert!(expected.contains(&key), "{key:?}");
            assert_eq!(flags, [0x12, 0x12]);
            key.3 == 443u16.to_be_bytes() && key.0[15] == 5
        }),
        addresses: vec!["10.0.0.5".parse().unwrap()],
    });
    assert_eq!(lines(&ask(&lake, question))[0]["begun"], 5);
}

#[test]
fn statistics_and_bloom_filters_spare_reading() {
    let (_place, lake) = filled();
    let pruned = |condition: &str| {
        let answer = ask(&lake, always().where_(condition).unwrap());
        (answer.read, answer.pruned)
    };
    // Inside of the range that statistics have, but not there.
    assert_eq!(pruned("address=10.0.0.500"), (0, 2));
    assert_eq!(pruned("ab_packets=700"), (1, 1));
    assert_eq!(pruned("service=postgres"), (0, 2));
    assert_eq!(pruned("process=curl"), (2, 0));
}

#[test]
fn a_conversation_counts_what_each_drain_added() {
    let place = TestLake::new();
    let writer = place.writer();
    let mut now = record(9, 0);
    now.end = None;
    put(&writer, &[(9, now)]);
    for drain in 1..10u32 {
        now.lo_sent += Counters::new(2, 200);
        now.interval.lo_sent = Counters::new(2, 200);
        now.interval.hi_sent = Counters::default();
        now.tcp.counters.retransmitted = [drain, 0];
        now.last_ns += SECOND;
        put(&writer, &[(9, now)]);
        // Only owners became known.
        let mut same = now;
        same.interval.lo_sent = Counters::default();
        put(&writer, &[(9, same)]);
        if drain == 5 {
            assert!(writer.flush(MINUTE));
        }
    }
    assert_eq!(writer.stats().waiting, 1);
    drop(writer);
    assert_eq!(place.files().len(), 2);
    let line = &lines(&ask(&place.lake(), always()))[0];
    assert_eq!(line["received"]["packets"], 9 + 18);
    assert_eq!(line["received"]["bytes"], 900 + 1_800);
    assert_eq!(line["sent"]["bytes"], 1_000);
    assert_eq!(line["retransmitted"], 9);
    assert_eq!((&line["begun"], &line["rows"]), (&1.into(), &2.into()));
    assert_eq!(line["handshakes"], 1);
}

#[test]
fn a_text_that_is_searched_counts_a_conversation_once() {
    let place = TestLake::new();
    let writer = place.writer();
    let (first, mut second) = (record(9, 0), record(9, 0));
    second.key.ifindex += 1;
    let nothing = Once {
        lo_sent: Counters::default(),
        hi_sent: Counters::default(),
        begun: false,
        ended: false,
    };
    let points = [
        (first, "eth0", Once::alone(&first, first.updated_ns)),
        (second, "br0", nothing),
    ];
    writer.flows(points.iter().map(|(record, interface, once)| FlowChange {
        once: *once,
        record,
        host: "web-1",
        interface: (*interface).into(),
        parties: parties(9),
    }));
    drop(writer);
    let bytes = |text: &str| {
        let mut question = always();
        question.conditions.and(Table::Flows, text).unwrap();
        let lines = lines(&ask(&place.lake(), question));
        lines.first().map(|line| line["received"]["bytes"].clone())
    };
    assert_eq!(bytes("\"CURL\""), Some(900.into()));
    // What only the name of an interface has is asked of that point.
    assert_eq!(bytes("\"br\""), Some(900.into()));
    assert_eq!(bytes("\"wlan\""), None);
}

#[test]
fn too_many_groups_are_refused_with_what_helps() {
    let (_place, lake) = filled();
    let mut question = always().by("client_address").unwrap();
    question.groups = 50;
    let error = lake.ask(&question).unwrap_err().to_string();
    assert!(error.contains("more than 50 groups"), "{error}");
    assert!(error.contains("shorter time"), "{error}");
    assert!(always().by("a,b").is_err());
    let seven = always().by("process,pid,user,container,pod,unit,address");
    assert!(seven.err().unwrap().to_string().contains("6 at most"));
}

#[test]
fn an_empty_lake_has_empty_answers() {
    let place = TestLake::new();
    assert_eq!(ask(&place.lake(), always()).groups, []);
    assert_eq!(place.lake().list().unwrap(), []);
}
