use super::*;

pub fn line(client: &str, window: u64, rtt: &[(u32, u32)]) -> GraphLine<'static> {
    let json = format!(
        r#"{{"window":"2026-11-21T20:30:{window:02}.000000000Z","seconds":10.0,"protocol":6,
        "client":"10.0.0.1","server":"10.0.0.2","client_service":"{client}","port":443,
        "client_sent":{{"packets":3,"bytes":300}},"server_sent":{{"packets":2,"bytes":5000}},
        "retransmitted":{{"client":1,"server":0}},"begun":2,"ended":2,"reset":0,"refused":1,"timed_out":0,
        "handshake":{{"count":0}},"records":3,"samples":0,
        "rtt":{{"count":{count},"sum_us":9,"min_us":5,"max_us":9000,"classes":{rtt}}}}}"#,
        count = rtt.iter().map(|(_, n)| n).sum::<u32>(),
        rtt = serde_json::to_string(rtt).unwrap(),
    );
    let line: GraphLine<'_> = serde_json::from_str(&json).unwrap();
    GraphLine {
        client_service: line.client_service.into_owned().into(),
        server_service: "".into(),
        ..line
    }
}

#[test]
fn lines_of_windows_and_addresses_are_one_edge() {
    let all = [
        line("web", 10, &[(100, 60), (200, 30)]),
        line("web", 20, &[(200, 6), (1_000, 4)]),
        line("", 20, &[]),
    ];
    let found = edges(all);
    let parties: Vec<_> = found
        .iter()
        .map(|edge| (edge.key.client.to_string(), edge.bytes()))
        .collect();
    assert_eq!(
        parties,
        [("web".into(), 10_600), ("10.0.0.1".into(), 5_300)]
    );
    let edge = &found[0];
    let (sums, quantiles) = (&edge.sums, edge.quantiles.map(Option::unwrap));
    assert_eq!((sums.rtt_count, quantiles), (100, [100, 200, 1_000]));
    assert_eq!((sums.connections, sums.refused), (4, 2));
    assert_eq!(sums.last_ns - sums.first_ns, 20 * SECOND);
    let json = serde_json::to_value(edge).unwrap();
    assert_eq!(json["client"]["service"], "web");
    assert_eq!(json["server"]["address"], "10.0.0.2");
    assert_eq!(json["first"], "2026-11-21T20:30:10.000000000Z");
}

#[test]
fn edges_appear_vanish_and_make_room() {
    let begin = line("", 0, &[]).window;
    let mut graph = Graph::new(2, begin);
    let at = |client: &str, s: u64| GraphLine {
        window: begin + s * SECOND,
        ..line(client, 0, &[]).clone()
    };
    graph.add(&at("old", 0));
    graph.add(&at("new", 1_000));
    graph.add(&at("third", 1_010));
    assert_eq!(graph.counts().edges_full, 1);
    let none = Graph::new(0, 0);
    let changes = |graph: &Graph, s: u64| -> Vec<_> {
        let mut all: Vec<_> = graph
            .edges(&none, begin + s * SECOND)
            .into_iter()
            .map(|edge| (edge.key.client.to_string(), edge.change))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    let named = |name: &str, change| (name.to_owned(), change);
    let (new, vanished) = (Some(Change::New), Some(Change::Vanished));
    assert_eq!(
        changes(&graph, 1_020),
        [named("new", new), named("old", vanished)]
    );
    assert_eq!(
        changes(&graph, 1_400),
        [named("new", vanished), named("old", vanished)]
    );
    assert_eq!(
        changes(&graph, 9_999),
        [named("new", None), named("old", None)]
    );
    graph.add(&at("third", 5_000));
    assert_eq!(graph.counts().forgotten, 1);
    // Open lines count, too, and are not added to the graph.
    let mut open = Graph::new(9, begin);
    open.add(&at("third", 5_010));
    let edges = graph.edges(&open, begin + 5_020 * SECOND);
    let third = edges
        .iter()
        .find(|edge| edge.key.client.to_string() == "third");
    assert_eq!(third.unwrap().bytes(), 10_600);
    assert_eq!(graph.edges(&none, begin)[0].bytes(), 5_300);
}
