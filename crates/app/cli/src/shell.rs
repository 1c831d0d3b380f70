//! `skua client shell`: queries one after the other, with completion and history.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, IsTerminal as _, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use clap::Args;
use rustyline::{
    CompletionType, Config, Context, Editor, Helper, completion::Completer, error::ReadlineError,
    highlight::Highlighter, hint::Hinter, history::FileHistory, validate::Validator,
};
use serde_json::json;
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_output as output;
use skua_query::syntax::{PredicateName, StepName};

use crate::query::Format;

#[derive(Args, Debug)]
#[command(after_help = "\
Each line is a query, like G.V().Has('Type', 'bridge'). Tab completes steps, predicates and keys; .json, .table, .dot
and .explain before a query print the answer so; Ctrl-D ends.")]
pub struct ShellArguments {
    /// File with earlier lines [default: ~/.skua_history]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Earlier lines that are kept.
const LINES: usize = 1_000;

pub fn shell(arguments: &ShellArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    if !std::io::stdin().is_terminal() {
        // A script: the first error ends it.
        for line in std::io::stdin().lock().lines() {
            ask(&client, &line?)?;
        }
        return Ok(());
    }
    let history = arguments.history.clone().or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".skua_history"))
    });
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(LINES)
        .context("history")?
        .build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(Words::of(&client)));
    if let Some(path) = &history {
        // There is none at first.
        let _ = editor.load_history(path);
    }
    loop {
        match editor.readline("skua> ") {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                editor.add_history_entry(line.trim())?;
                if let Err(error) = ask(&client, &line) {
                    if skua_output::is_broken_pipe(&error) {
                        return Err(error);
                    }
                    eprintln!("{error:#}");
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(path) = &history {
        let named = || format!("cannot write {}", path.display());
        editor.save_history(path).with_context(named)?;
    }
    Ok(())
}

/// How a line wants its answer, and its query.
fn parse(line: &str, terminal: bool) -> (Format, bool, &str) {
    let usual = match terminal {
        true => Format::Table,
        false => Format::Json,
    };
    let line = line.trim();
    let shapes = [
        (".json ", Format::Json, false),
        (".table ", Format::Table, false),
        (".dot ", Format::Dot, false),
        (".explain ", usual, true),
    ];
    for (prefix, format, explain) in shapes {
        if let Some(query) = line.strip_prefix(prefix) {
            return (format, explain, query.trim());
        }
    }
    (usual, false, line)
}

fn ask(client: &Client, line: &str) -> anyhow::Result<()> {
    let (format, explain, query) = parse(line, std::io::stdout().is_terminal());
    if query.is_empty() {
        return Ok(());
    }
    let body = json!({"GremlinQuery": query, "Explain": explain, "Width": output::width()});
    let answer = client.ask("/api/topology", format.media_type(), &body)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&answer)?;
    if !answer.is_empty() && !answer.ends_with(b"\n") {
        writeln!(out)?;
    }
    Ok(())
}

/// What Tab completes.
struct Words {
    /// Steps and predicates.
    names: BTreeSet<String>,
    /// Keys of nodes and flows.
    keys: BTreeSet<String>,
}

impl Words {
    fn of(client: &Client) -> Self {
        let steps = StepName::ALL.iter().map(|name| name.name());
        let predicates = PredicateName::ALL.iter().map(|name| name.name());
        let mut keys = BTreeSet::new();
        for query in ["G.V().Keys()", "G.Flows().Keys()"] {
            // Without keys it completes names all the same.
            let found = client.ask(
                "/api/topology",
                "application/json",
                &json!({"GremlinQuery": query}),
            );
            let found = found
                .ok()
                .and_then(|answer| serde_json::from_slice::<Vec<String>>(&answer).ok());
            keys.extend(found.into_iter().flatten());
        }
        Self {
            names: steps.chain(predicates).map(str::to_owned).collect(),
            keys,
        }
    }

    /// Where the word before a position begins, and what it may become.
    fn find(&self, line: &str, position: usize) -> (usize, Vec<String>) {
        let before = &line[..position];
        let quoted = ['\'', '"'].into_iter().find_map(|quote| {
            let open = before.matches(quote).count() % 2 == 1;
            open.then(|| before.rfind(quote)).flatten()
        });
        let (begin, words) = match quoted {
            Some(at) => (at + 1, &self.keys),
            None => {
                let word = |c: char| c.is_alphanumeric() || c == '_';
                (before.trim_end_matches(word).len(), &self.names)
            }
        };
        let part = before[begin..].to_lowercase();
        let fit = words
            .iter()
            .filter(|name| name.to_lowercase().starts_with(&part));
        (begin, fit.cloned().collect())
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.find(line, position))
    }
}

impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_are_completed_where_they_may_stand() {
        let set = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        let words = Words {
            names: set(&["Has", "HasKey", "V"]),
            keys: set(&["Metric.RxBytes", "MTU", "Name"]),
        };
        let find = |line: &str| words.find(line, line.len());
        assert_eq!(find("G.V().has"), (6, vec!["Has".into(), "HasKey".into()]));
        assert_eq!(
            find("G.V().Has('M"),
            (11, vec!["MTU".into(), "Metric.RxBytes".into()])
        );
        assert_eq!(find("G.V().Has('Name', \"x").0, 19);
        assert_eq!(find("G.V().Has('Name', ").1.len(), 3);
        assert_eq!(find("Gé.x"), (4, Vec::new()));
    }

    #[test]
    fn lines_say_how_their_answers_are_printed() {
        assert_eq!(parse("G.V()", true), (Format::Table, false, "G.V()"));
        assert_eq!(
            parse(" .json  G.V() ", true),
            (Format::Json, false, "G.V()")
        );
        assert_eq!(parse(".explain G", false), (Format::Json, true, "G"));
    }
}
