//! Whose addresses are, by files of the user: in records, conditions, sums, queries and the lake; files that change or break.

use std::{fs, path::Path};

use serde_json::Value;
use skua_testkit::scratch;

use crate::lab::{
    Flow, SendMode, Sender, Skua, Wire, root_tests,
    skua::{self, parse_lines},
    wait_for,
};
use crate::queries;

const FILES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../host/networks/tests/files"
);

/// Names and bytes of sums.
fn sums(lines: &str) -> Vec<(String, u64)> {
    let lines = parse_lines(lines);
    let bytes = |line: &Value| {
        let of = |side: &str| line[side]["bytes"].as_u64().unwrap();
        of("sent") + of("received")
    };
    lines
        .iter()
        .map(|line| (line["name"].as_str().unwrap().to_owned(), bytes(line)))
        .collect()
}

#[test]
fn files_say_whose_addresses_are() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let directory = scratch::directory("networks");
    let place = |name: &str| format!("{}/{name}", directory.path());
    let lake = place("lake");
    let ranges = place("ranges.csv");
    fs::write(&ranges, "198.51.0.0/16,the north\n").unwrap();
    let broken = place("broken.mmdb");
    fs::write(&broken, "no database").unwrap();
    let database = |name: &str| format!("{FILES}/{name}");
    let mut command = skua::command(net);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--scan-interval", "200ms"])
        .env("SKUA_LAKE_DIRECTORY", &lake)
        .env("SKUA_LAKE_FLUSH", "1s")
        .env(
            "SKUA_NETWORKS_DATABASES",
            [
                broken.as_str(),
                &database("maxmind-country.mmdb"),
                &database("maxmind-asn.mmdb"),
                &database("ipinfo-lite.mmdb"),
            ]
            .join(","),
        )
        .env("SKUA_NETWORKS_RANGES", &ranges);
    let skua = Skua::run_command(net, &mut command);
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    let send = || {
        for (from, to, packets) in [
            ([10, 0, 0, 1], [198, 51, 100, 7], 1),
            ([10, 0, 0, 2], [203, 0, 113, 200], 2),
            // Of one country to itself: it counts once.
            ([198, 51, 100, 200], [198, 51, 100, 201], 4),
            ([10, 0, 0, 3], [10, 0, 0, 4], 8),
        ] {
            let flow = Flow {
                protocol: 17,
                from: from.into(),
                to: to.into(),
                ports: (5_000, 53),
            };
            sender.repeat(packets, &flow.frame(100));
        }
    };
    send();
    let ask = |path: &str| sums(&skua.get(path));
    let expected = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
        list.iter()
            .map(|(name, bytes)| ((*name).to_owned(), *bytes))
            .collect()
    };
    let countries = expected(&[("(unknown)", 800), ("DE", 500), ("NO", 200)]);
    wait_for("all countries", || {
        (ask("/api/flows?by=country&sort=bytes") == countries).then_some(())
    });
    assert_eq!(
        ask("/api/flows?by=as&sort=bytes"),
        expected(&[
            ("(unknown)", 1_200),
            ("AS64501 Example South", 200),
            ("AS64500 Example, \"North\"", 100),
        ])
    );
    assert_eq!(
        ask("/api/flows?by=network&sort=bytes"),
        expected(&[("(unknown)", 1_000), ("the north", 500)])
    );
    // Conditions, on the side that is summed up, too.
    let lines = |query: &str| parse_lines(&skua.get(&format!("/api/flows?sort=bytes&{query}")));
    assert_eq!(
        ask("/api/flows?by=country&where=country:DE,NO&sort=bytes"),
        countries[1..]
    );
    assert_eq!(lines("where=country:DE").len(), 2);
    assert_eq!(lines("filter=asn:64501")[0]["b"]["country"], "NO");
    let north = lines("where=asn:64500");
    let [north] = north.as_slice() else {
        panic!("{north:?}")
    };
    assert_eq!(north["b"]["organization"], "Example, \"North\"");
    assert_eq!(north["b"]["network"], "the north");
    assert!(north["a"].get("country").is_none(), "{north}");
    assert_eq!(lines("where=a.country:&where=b.country:").len(), 1);
    let ask_query = |query: &str| queries::ask(net, &skua, query);
    let query = ask_query("G.Flows().Has('Country', 'DE').Count()");
    assert_eq!(query, 2);
    let query = ask_query("G.Flows().Has('B.ASN', 64501).Values('B.Organization')");
    assert_eq!(query[0], "Example South");
    // The lake: what it wrote, and asked by the same names.
    let lake_of = |more: &str| {
        let output = skua::command(net)
            .args([
                "flows", "--since", "1h", "--lake", &lake, "--output", "json",
            ])
            .args(more.split_whitespace())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let by_country = || {
        let lines = parse_lines(&lake_of("--by country --sort bytes"));
        let of = |line: &Value, side: &str| line[side]["bytes"].as_u64().unwrap();
        let line = |line: &Value| {
            let name = line["country"].as_str().unwrap().to_owned();
            (name, of(line, "sent") + of(line, "received"))
        };
        lines.iter().map(line).collect::<Vec<_>>()
    };
    wait_for("all countries in the lake", || {
        (by_country() == countries).then_some(())
    });
    let lines = parse_lines(&lake_of("--by as,organization --where country:NO"));
    let [line] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    assert_eq!(
        (&line["asn"], &line["organization"]),
        (&64_501.into(), &"Example South".into())
    );
    // A file that changes counts without a restart, also for what was captured before; a broken one changes nothing.
    fs::write(&ranges, "198.51.0.0/16,the north\n10.0.0.0/8,home\n").unwrap();
    wait_for("the changed file", || {
        let home = expected(&[("home", 1_100), ("the north", 500)]);
        (ask("/api/flows?by=network&sort=bytes") == home).then_some(())
    });
    let (_, errors) = skua.stop_with_errors();
    let said: Vec<&str> = errors
        .lines()
        .filter(|line| line.contains("networks:"))
        .collect();
    let [said] = said.as_slice() else {
        panic!("{errors}")
    };
    assert!(
        said.contains("broken.mmdb: no usable MMDB file of version 2; records have nothing of it"),
        "{said}"
    );
    assert!(Path::new(&lake).exists());
}
