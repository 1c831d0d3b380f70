//! Any input: nothing panics, what is printed reads the same, answers come in time.

mod lab;

use lab::Lab;
use proptest::prelude::*;
use skua_query::{
    Class, Limits, Prepared,
    syntax::{Arg, ArgKind, PredicateName, Query, Step, StepName, SyntaxLimits, Word, parse},
};
use std::{
    sync::{LazyLock, atomic::AtomicBool},
    time::Duration,
};

static LAB: LazyLock<Lab> = LazyLock::new(Lab::new);

/// Without places.
fn bare(query: &Query) -> Query {
    fn plain(arg: &Arg) -> Arg {
        let kind = match &arg.kind {
            ArgKind::Call(name, inner) => ArgKind::Call(*name, inner.iter().map(plain).collect()),
            kind => kind.clone(),
        };
        Arg {
            kind,
            span: Default::default(),
        }
    }
    let step = |step: &Step| Step {
        name: step.name,
        args: step.args.iter().map(plain).collect(),
        span: Default::default(),
        whole: Default::default(),
    };
    Query {
        steps: query.steps.iter().map(step).collect(),
    }
}

fn run(text: &str) {
    let limits = Limits {
        time: Duration::from_millis(200),
        elements: 2_000,
        results: 500,
        ..Limits::default()
    };
    let sources = LAB.sources();
    match Prepared::new(text, &SyntaxLimits::default(), &sources, lab::NOW) {
        Ok(prepared) => {
            let _ = prepared.plan.to_string();
            match prepared.run(sources, limits, &AtomicBool::new(false)) {
                Ok(answer) => {
                    for format in ["Json", "Table", "Dot"] {
                        let format = match format {
                            "Json" => skua_query::output::Format::Json,
                            "Table" => skua_query::output::Format::Table { width: 30 },
                            _ => skua_query::output::Format::Dot,
                        };
                        let _ = skua_query::output::format(&answer, format);
                    }
                }
                Err(error) => drop(error.render(text)),
            }
        }
        Err(error) => drop(error.render(text)),
    }
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "Name", "Type", "MTU", "IPV4", "TID", "IfIndex", "RelationType", "@Host", "@CreatedAt",
            "Network", "Transport", "Metric.ABBytes", "Captures.ID", "LastUpdateMetric", "Sockets",
        ]).prop_map(str::to_owned),
        1 => "[a-zA-Z.@\"'\\\\ é]{0,12}[a-z]",
    ]
}

fn plain() -> impl Strategy<Value = ArgKind> {
    prop_oneof![
        key().prop_map(ArgKind::Str),
        prop::sample::select(vec![
            "eth0", "device", "10.0.0.1", "layer2", "-5m", "1h", "T1", "a"
        ])
        .prop_map(|text| ArgKind::Str(text.to_owned())),
        any::<i64>().prop_map(ArgKind::Int),
        (0..10i64).prop_map(ArgKind::Int),
        (-1e9..1e9f64).prop_map(ArgKind::Float),
        any::<bool>().prop_map(ArgKind::Bool),
        prop::sample::select(Word::ALL).prop_map(ArgKind::Word),
    ]
}

fn arg() -> impl Strategy<Value = Arg> {
    let kind = plain().prop_recursive(3, 12, 3, |inner| {
        let inner = inner.prop_map(|kind| Arg {
            kind,
            span: Default::default(),
        });
        (
            prop::sample::select(PredicateName::ALL),
            prop::collection::vec(inner, 0..3),
        )
            .prop_map(|(name, args)| ArgKind::Call(name, args))
    });
    kind.prop_map(|kind| Arg {
        kind,
        span: Default::default(),
    })
}

fn query() -> impl Strategy<Value = Query> {
    let step = (
        prop::sample::select(StepName::ALL),
        prop::collection::vec(arg(), 0..4),
    );
    let step = step.prop_map(|(name, args)| Step {
        name,
        args,
        span: Default::default(),
        whole: Default::default(),
    });
    prop::collection::vec(step, 0..8).prop_map(|steps| Query { steps })
}

/// Queries that mostly fit: steps with arguments as they should be.
fn sensible() -> impl Strategy<Value = String> {
    let start = prop::sample::select(vec![
        "G.V()",
        "G.E()",
        "G.Flows()",
        "G.V().Has('Type', 'device')",
        "G.At('-10m').V()",
        "G.At(NOW, FOREVER).V()",
        "G.At(NOW, 600).Flows()",
    ]);
    let step = prop::sample::select(vec![
        "Has('Name', 'eth0')",
        "Has('MTU', Gt(1499))",
        "HasKey('IPV4')",
        "HasNot('MAC')",
        "Out()",
        "In()",
        "Both()",
        "OutE()",
        "BothE('RelationType', 'layer2')",
        "BothV()",
        "InV()",
        "Dedup()",
        "Dedup('Type')",
        "Limit(3)",
        "Range(1, 5)",
        "Sort(DESC, 'MTU')",
        "Count()",
        "Values('Name')",
        "ValueMap('Name', 'MTU')",
        "Keys()",
        "Sum('IfIndex')",
        "SubGraph()",
        "V()",
        "E()",
        "Flows()",
        "Hops()",
        "Nodes()",
        "Metrics()",
        "Aggregates(5)",
        "Sockets()",
        "ACLs()",
        "RawPackets()",
        "Group()",
        "MoreThan()",
        "Descendants(0)",
        "Ascendants(2)",
        "G",
        "Neighbors('RelationType', 'layer2', 2)",
        "NextHop('10.0.0.2')",
        "As('x')",
        "Select('x')",
        "ShortestPathTo(Metadata('Type', 'bridge'))",
    ]);
    (start, prop::collection::vec(step, 0..7)).prop_map(|(start, steps)| {
        format!("{start}.{}", steps.join("."))
            .trim_end_matches('.')
            .into()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        run(&text);
    }

    #[test]
    fn any_tokens_are_read_or_refused(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "G", ".", "V", "(", ")", ",", "'a'", "\"", "'", "Has", "5", "-", "1.5", "Within", "NOW",
            "\\", "é", "\n", "Flows", "Regex", "At", "'-5m'", "DESC",
        ]), 0..40),
    ) {
        run(&tokens.concat());
        run(&format!("G.V().{}", tokens.join(" ")));
    }

    #[test]
    fn what_is_printed_reads_the_same(query in query()) {
        let text = query.to_string();
        let read = parse(&text, &SyntaxLimits::default()).map_err(|error| {
            TestCaseError::fail(error.render(&text))
        })?;
        prop_assert_eq!(&bare(&read), &query);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn any_query_is_answered_or_refused(query in query()) {
        run(&query.to_string());
    }

    #[test]
    fn sensible_queries_are_answered_or_refused(text in sensible()) {
        run(&text);
    }
}

#[test]
fn hostile_queries_are_refused_with_one_error() {
    let long = format!("G.V().Has(\"Name\", \"{}\")", "x".repeat(70_000));
    let deep = format!(
        "G.V().Has('a', {}1{})",
        "Within(".repeat(50_000 / 7),
        ")".repeat(50_000 / 7)
    );
    let many = format!("G{}", ".V()".repeat(1_000));
    let wide = format!("G.V().Has({})", vec!["'a'"; 10_000].join(","));
    for text in [long, deep, many, wide] {
        let error = LAB.query(&text).unwrap_err();
        assert_eq!(error.class, Class::Limit, "{}", error.message);
        assert!(error.render(&text).len() < 2_000);
    }
}

#[test]
fn explosions_end_at_the_limits() {
    let text = format!("G.V(){}", ".Both()".repeat(60));
    let sources = LAB.sources();
    let prepared = Prepared::new(&text, &Default::default(), &sources, lab::NOW).unwrap();
    let limits = Limits {
        time: Duration::from_secs(600),
        elements: 5_000,
        results: 5_000,
        ..Limits::default()
    };
    let error = prepared
        .run(sources, limits, &AtomicBool::new(false))
        .unwrap_err();
    assert_eq!(error.class, Class::Limit);
    assert!(
        error.message.contains("more than 5000 elements"),
        "{}",
        error.message
    );
    assert_eq!(
        error.span.map(|span| &text[span.start..span.end]),
        Some("Both")
    );

    let limits = Limits {
        time: Duration::ZERO,
        ..Limits::default()
    };
    let error = prepared
        .run(sources, limits, &AtomicBool::new(false))
        .err()
        .unwrap();
    assert!(error.message.contains("takes longer"), "{}", error.message);

    let cancelled = AtomicBool::new(true);
    let error = prepared
        .run(sources, Limits::default(), &cancelled)
        .err()
        .unwrap();
    assert_eq!(error.class, Class::Cancelled);

    let few = Limits {
        results: 3,
        ..Limits::default()
    };
    let prepared = Prepared::new("G.V()", &Default::default(), &sources, lab::NOW).unwrap();
    let error = prepared
        .run(sources, few, &AtomicBool::new(false))
        .err()
        .unwrap();
    assert_eq!(error.message, "the answer has 15 elements; 3 are allowed");
}

/// What a query may hold is counted in bytes as well, whatever it holds, and never for what is only counted or dropped.
#[test]
fn what_takes_too_much_memory_ends_at_the_limit() {
    let sources = LAB.sources();
    let limits = Limits {
        bytes: 1_000,
        ..Limits::default()
    };
    let run = |text: &str| {
        let prepared = Prepared::new(text, &Default::default(), &sources, lab::NOW).unwrap();
        prepared.run(sources, limits, &AtomicBool::new(false))
    };
    for text in ["G.Flows()", "G.Flows().Sort()", "G.V().Flows().Metrics()"] {
        let error = run(text).unwrap_err();
        assert_eq!(error.class, Class::Limit, "{text}");
        assert!(error.to_string().contains("MiB"), "{error}");
    }
    for text in ["G.Flows().Count()", "G.Flows().Limit(1)", "G.V()"] {
        assert!(run(text).is_ok(), "{text}");
    }
}
