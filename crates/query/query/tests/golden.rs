//! What people see: errors, plans, tables, dot, JSON. Each file in `golden/` has queries after `>>> `
//! and below each what is written for it.

#![allow(clippy::unwrap_used)]

mod lab;

use lab::{Lab, NOW};
use skua_query::{Prepared, output, output::Format};

fn check(name: &str, text: &str, write: impl Fn(&Lab, &str) -> String) {
    let lab = Lab::new();
    let mut found = String::new();
    let mut count = 0;
    for query in text
        .split(">>> ")
        .skip(1)
        .map(|block| block.lines().next().unwrap_or(""))
    {
        // A query of several lines is written in one.
        found += &format!(">>> {query}\n{}", write(&lab, &query.replace("\\n", "\n")));
        count += 1;
    }
    assert!(count > 0);
    assert_eq!(found, text, "golden/{name} should be:\n\n{found}");
}

fn as_format(format: Format) -> impl Fn(&Lab, &str) -> String {
    move |lab, query| output::format(&lab.query(query).unwrap(), format).unwrap()
}

#[test]
fn errors() {
    check(
        "errors.txt",
        include_str!("golden/errors.txt"),
        |lab, query| {
            let result = lab.query(query);
            let result = result.and_then(|answer| output::format(&answer, Format::Dot));
            result.unwrap_err().render(query) + "\n"
        },
    );
}

#[test]
fn plans() {
    check(
        "plans.txt",
        include_str!("golden/plans.txt"),
        |lab, query| {
            let sources = lab.sources();
            Prepared::new(query, &Default::default(), &sources, NOW)
                .unwrap()
                .plan
                .to_string()
        },
    );
}

#[test]
fn tables() {
    check(
        "tables.txt",
        include_str!("golden/tables.txt"),
        as_format(Format::Table { width: usize::MAX }),
    );
}

#[test]
fn tables_of_80_columns() {
    check(
        "tables_80.txt",
        include_str!("golden/tables_80.txt"),
        as_format(Format::Table { width: 80 }),
    );
}

#[test]
fn dot() {
    check(
        "dot.txt",
        include_str!("golden/dot.txt"),
        as_format(Format::Dot),
    );
}

#[test]
fn json() {
    check(
        "json.txt",
        include_str!("golden/json.txt"),
        as_format(Format::Json),
    );
}
