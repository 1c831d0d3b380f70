//! Queries with expected answers, on a fixed topology with history and fixed flows. How to add a
//! query is written at the head of `conformance/queries.txt`; no code is needed.

mod lab;

use lab::Lab;
use skua_query::{Answer, QueryError, output};

/// A query with what is expected of it, and where it stands in the file.
struct Row<'a> {
    line: usize,
    query: &'a str,
    expected: Vec<&'a str>,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let expectation = ["= ", "->", "! ", "^ ", "? "]
            .iter()
            .any(|sign| line.starts_with(sign));
        match rows.last_mut() {
            Some(row) if expectation => row.expected.push(line),
            _ => rows.push(Row {
                line: at + 1,
                query: line,
                expected: Vec::new(),
            }),
        }
    }
    rows
}

fn ids(answer: &Answer) -> Option<Vec<String>> {
    Some(match answer {
        Answer::Nodes(nodes) => nodes.iter().map(|node| node.id.to_string()).collect(),
        Answer::Edges(edges) => edges
            .iter()
            .map(|edge| edge.element.id.to_string())
            .collect(),
        Answer::Flows(flows) => flows
            .iter()
            .map(|flow| {
                flow.get("UUID")
                    .and_then(|id| id.as_str().map(str::to_owned))
            })
            .collect::<Option<_>>()?,
        Answer::Paths(paths) => paths
            .iter()
            .map(|path| {
                path.iter()
                    .map(|node| &*node.id)
                    .collect::<Vec<_>>()
                    .join("/")
            })
            .collect(),
        _ => return None,
    })
}

/// What the answer looks like in the file.
fn describe(query: &str, result: &Result<Answer, QueryError>) -> Vec<String> {
    match result {
        Ok(answer) => vec![match ids(answer) {
            Some(ids) => format!("-> {}", ids.join(" ")).trim_end().to_owned(),
            None => format!("= {}", output::json(answer)),
        }],
        Err(error) => {
            let mut lines = vec![format!("! {}", error.message)];
            lines.extend(
                error
                    .span
                    .map(|span| format!("^ {}", &query[span.start..span.end])),
            );
            lines.extend(error.help.as_ref().map(|help| format!("? {help}")));
            lines
        }
    }
}

#[test]
fn every_query_is_answered_as_the_file_says() {
    let text = include_str!("conformance/queries.txt");
    let number = check(&Lab::new(), text);
    assert!(number >= 200, "there are {number} queries");
}

#[test]
fn nodes_of_flows_without_ethernet_addresses_own_the_others() {
    let lab = Lab::with_flows(include_str!("conformance/flows-ip.json"));
    assert!(check(&lab, include_str!("conformance/queries-ip.txt")) > 10);
}

/// Asks all queries of a file; their number.
fn check(lab: &Lab, text: &str) -> usize {
    let rows = rows(text);
    let mut wrong = String::new();
    for row in &rows {
        let result = lab.query(row.query);
        let found = describe(row.query, &result);
        // JSON may be written in any way that means the same.
        let same = match (&row.expected[..], &found[..]) {
            ([expected], [found]) if expected.starts_with("= ") && found.starts_with("= ") => {
                let read = |text: &str| serde_json::from_str::<serde_json::Value>(&text[2..]);
                read(expected).ok() == read(found).ok()
            }
            (expected, found) => expected == found,
        };
        if !same {
            wrong += &format!("line {}: {}\n{}\n\n", row.line, row.query, found.join("\n"));
        }
    }
    assert!(wrong.is_empty(), "these are answered otherwise:\n\n{wrong}");
    rows.len()
}

#[test]
fn every_step_and_predicate_occurs() {
    use skua_query::syntax::{PredicateName, StepName};
    let text = include_str!("conformance/queries.txt");
    let queries: Vec<&str> = rows(text).into_iter().map(|row| row.query).collect();
    let steps = StepName::ALL.iter().map(|step| step.name());
    let predicates = PredicateName::ALL.iter().map(|predicate| predicate.name());
    let words = ["ASC", "DESC", "NOW", "FOREVER", "TRUE", "FALSE"];
    for name in steps.chain(predicates).chain(words) {
        let occurs = |query: &&&str| {
            query.match_indices(name).any(|(at, _)| {
                let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
                boundary(query[..at].chars().next_back())
                    && boundary(query[at + name.len()..].chars().next())
            })
        };
        let count = queries.iter().filter(occurs).count();
        assert!(count >= 2, "{name} occurs in {count} queries");
    }
}

/// With and without what the planner does, answers are the same.
#[test]
fn plans_change_no_answer() {
    use skua_query::{
        Limits, Sources, check, plan,
        plan::{Access, Op},
        syntax,
    };
    use std::sync::atomic::AtomicBool;
    let lab = Lab::new();
    let mut compared = 0;
    for row in rows(include_str!("conformance/queries.txt")) {
        let Ok(query) = syntax::parse(row.query, &Default::default()) else {
            continue;
        };
        let Ok(checked) = check::check(&query, lab::NOW) else {
            continue;
        };
        let sources: Sources<'_> = lab.sources();
        let mut slow = plan::plan(&checked, &sources);
        for op in &mut slow.ops {
            if let Op::Scan(scan) = op
                && let Access::Index { .. } = scan.access
            {
                scan.access = Access::All;
                compared += 1;
            }
        }
        let run =
            |plan| skua_query::execute(plan, sources, Limits::default(), &AtomicBool::new(false));
        let fast = lab.query(row.query);
        let sorted = |answer: &Result<Answer, QueryError>| {
            let mut lines = describe(row.query, answer);
            // An index may find things in another order.
            if let Some(ids) = lines[0].strip_prefix("-> ") {
                let mut ids: Vec<_> = ids.split(' ').collect();
                ids.sort_unstable();
                lines[0] = ids.join(" ");
            }
            lines
        };
        assert_eq!(sorted(&run(&slow)), sorted(&fast), "{}", row.query);
    }
    assert!(compared > 50, "{compared} plans use an index");
}

/// Steps of Skydive's Gremlin, by the names that its scanners know.
/// `Workflow` is none of these: it makes the code of a workflow, and needs Skydive's store of them.
const STEPS_OF_SKYDIVE: &[&str] = &[
    "G",
    "V",
    "E",
    "Has",
    "HasKey",
    "HasNot",
    "HasEither",
    "Out",
    "In",
    "Both",
    "OutV",
    "InV",
    "BothV",
    "OutE",
    "InE",
    "BothE",
    "Dedup",
    "ShortestPathTo",
    "At",
    "Context",
    "Count",
    "Range",
    "Limit",
    "Sort",
    "Values",
    "ValueMap",
    "Keys",
    "Sum",
    "SubGraph",
    "As",
    "Select",
    "Flows",
    "Hops",
    "Nodes",
    "CaptureNode",
    "Node",
    "Aggregates",
    "RawPackets",
    "BPF",
    "Group",
    "MoreThan",
    "Metrics",
    "Sockets",
    "Descendants",
    "Ascendants",
    "Neighbors",
    "NextHop",
];

/// Its predicates and words likewise.
const WORDS_OF_SKYDIVE: &[&str] = &[
    "Within",
    "Without",
    "Metadata",
    "Ne",
    "Nee",
    "Regex",
    "Lt",
    "Gt",
    "Lte",
    "Gte",
    "Inside",
    "Between",
    "Ipv4Range",
    "ASC",
    "DESC",
    "FOREVER",
    "NOW",
    "TRUE",
    "FALSE",
];

#[test]
fn every_step_and_predicate_of_skydive_has_an_answer() {
    let text = include_str!("conformance/queries.txt");
    let answered: Vec<Row<'_>> = rows(text)
        .into_iter()
        .filter(|row| {
            row.expected
                .iter()
                .any(|line| line.starts_with("= ") || line.starts_with("-> "))
        })
        .collect();
    let missing: Vec<_> = STEPS_OF_SKYDIVE
        .iter()
        .chain(WORDS_OF_SKYDIVE)
        .filter(|name| {
            !answered.iter().any(|row| {
                row.query.match_indices(**name).any(|(at, _)| {
                    let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
                    boundary(row.query[..at].chars().next_back())
                        && boundary(row.query[at + name.len()..].chars().next())
                })
            })
        })
        .collect();
    assert!(missing.is_empty(), "without an answer: {missing:?}");
}
