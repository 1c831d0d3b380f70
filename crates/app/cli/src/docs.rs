//! `docs/records.md` is made from the definitions of the records' fields, `docs/metrics.md` from those of the metrics.

use std::path::Path;

use skua_process::metrics::{self, Group};
use skua_watch::groups;

const HEAD: &str = "\
# Records

This page is made from the definitions of the fields in the code: `UPDATE_DOCS=1 cargo test -p skua-cli docs`
writes it anew.

JSON is one object a line, without line breaks inside. `ab.packets` in a table is the field `packets` of
the object `ab`. Fields that do not apply are left out, as the last column says; an object without
fields, too. New fields may come, none of these will change its meaning.

`together` is what the value is in several records of the same thing: `sum`, `least`, `greatest`, `union` of all, `known`
once it is, or the `latest`, which may be left out again; `same` does not change, and what is `computed anew` has to be. Queries and the lake have some values
in a form of their own: [queries](gremlin.md) those of Skydive, the lake numbers for flags and identifiers.

CSV has a column for each field in the order of the table, with `_` for `.` in its name (`ab_packets`);
what does not apply is empty, lists are separated by spaces. The first line has the names.

- [Flow records](#flow-records): `skua flows`, `/api/flows`
- [Sums of flows](#sums-of-flows): `skua flows --by`
- [Socket records](#socket-records): `skua sockets`, `/api/sockets`
- [Services and dependencies](#services-and-dependencies): `skua services`, `/api/services`, `/api/dependencies`
- [Lookups](#lookups): `skua dns`, `/api/dns`
- [Name servers](#name-servers): `skua dns --summary`
- [Lines of collectors](#lines-of-collectors): `skua collector`, as JSON, in Kafka and in the lake
- [Edges of the service graph](#edges-of-the-service-graph): `skua services --graph`, `/api/services/graph`, rows in Kafka
";

#[test]
fn the_documentation_of_records_is_up_to_date() {
    let mut text = HEAD.to_owned();
    let [lookups, servers] = skua_watch::dns::documentation();
    for (title, chapter) in [
        ("Flow records", skua_flow::fields::documentation()),
        ("Sums of flows", groups::documentation()),
        ("Socket records", skua_socket::fields::documentation()),
        (
            "Services and dependencies",
            skua_socket::call::documentation(),
        ),
        ("Lookups", lookups),
        ("Name servers", servers),
        ("Lines of collectors", skua_collect::fields::documentation()),
        (
            "Edges of the service graph",
            skua_collect::graph::documentation(),
        ),
    ] {
        text += &format!("\n## {title}\n\n{chapter}");
    }
    up_to_date("records.md", &text);
}

#[test]
fn the_types_of_the_page_are_up_to_date() {
    let text = [
        "// Records, from the definitions of their fields: `UPDATE_DOCS=1 cargo test -p skua-cli docs` writes this anew.\n".into(),
        skua_record::typescript("Flow", skua_flow::fields::FIELDS),
        skua_record::typescript("Socket", skua_socket::fields::FIELDS),
        skua_record::typescript("Calls", skua_socket::call::FIELDS),
        skua_record::typescript("ServiceEdge", skua_collect::graph::FIELDS),
    ];
    up_to_date("../web/src/records.ts", &text.join("\n"));
}

#[test]
fn the_keys_of_the_page_are_those_of_conditions() {
    let mut text = "// Made from crates/host/condition/src/key.rs by `UPDATE_DOCS=1 cargo test -p skua-cli docs`.\n\n\
        /** Keys of conditions on flows, with their meanings. */\nexport const KEYS: [string, string][] = [\n"
        .to_owned();
    for key in skua_condition::completions("") {
        text += &format!("  [{:?}, {:?}],\n", key.text, key.meaning);
    }
    up_to_date("../web/src/flows/keys.ts", &(text + "];\n"));
}

#[test]
fn the_documentation_of_the_configuration_is_up_to_date() {
    up_to_date("configuration.md", &skua_config::documentation());
    up_to_date(
        "skua.schema.json",
        &format!("{:#}\n", skua_config::schema()),
    );
    up_to_date("../packaging/skua.yaml", &skua_config::sample());
}

/// Compares a page of docs with the text made from the code; `UPDATE_DOCS=1` writes it.
fn up_to_date(page: &str, text: &str) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs")).join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "docs/{page} is out of date: run `UPDATE_DOCS=1 cargo test -p skua-cli docs`"
    );
}

const METRICS_HEAD: &str = "\
# Metrics

This page is made from the definitions of the metrics in the code: `UPDATE_DOCS=1 cargo test -p skua-cli docs`
writes it anew.

`skua run`, `skua agent` and `skua analyzer` serve `/metrics` beside the API (`127.0.0.1:8082`, agents `:8081`),
`skua collector` at `127.0.0.1:6344`, in the text format of OpenMetrics 1.0. What a process does not do has no metrics
there. Counters begin with 0 when the process starts; bytes and seconds are base units. All of these processes answer
`/health` (200 while they do their work) and `/ready` (200 when they have begun to), without a login.
";

fn groups_of_metrics() -> Vec<Group> {
    let groups = skua_api::metrics::GROUPS.into_iter();
    groups.chain([&skua_collector::METRICS]).copied().collect()
}

#[test]
fn the_documentation_of_metrics_is_up_to_date() {
    let tables = metrics::documentation(&groups_of_metrics());
    up_to_date("metrics.md", &format!("{METRICS_HEAD}{tables}"));
}

#[test]
fn metrics_have_the_names_and_units_of_prometheus() {
    assert_eq!(metrics::faults(&groups_of_metrics()), Vec::<String>::new());
}

/// Every `metrics!` of the program is in the list from which the page is made.
#[test]
fn no_group_of_metrics_is_left_out() {
    let titles: Vec<_> = groups_of_metrics()
        .iter()
        .map(|group| group.title)
        .collect();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")];
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs")
                && !path.ends_with("process/src/metrics.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                for (_, rest) in text
                    .match_indices("metrics! { \"")
                    .map(|(at, _)| text.split_at(at + 12))
                {
                    let title = rest.split('"').next().unwrap();
                    assert!(titles.contains(&title), "{}: {title}", path.display());
                    found += 1;
                }
            }
        }
    }
    assert_eq!(found, titles.len());
}
