//! `skua addresses`: the address set of a running `skua run`.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::addresses::{Lists, expand, marks};
use skua_output::OutputFormat;

const PATH: &str = "/api/addresses";

#[derive(Args, Debug)]
#[command(after_help = "\
A PREFIX is like 10.0.0.0/8, fd00::/8 or 192.0.2.1. @FILE reads a file with one a line, - standard
input. A packet is left out when the longest prefix that holds its source or its destination is
excluded, or when there are includes and neither address is in one.

Examples:
  skua addresses add --exclude 10.1.2.3 fd00:1::/32
  skua addresses replace --include @ours.txt --exclude 10.9.0.0/16
  skua addresses remove 10.1.2.3
  skua addresses list --output json")]
pub struct AddressesArguments {
    #[command(subcommand)]
    action: Action,
    /// How to print
    #[arg(
        short,
        long,
        alias = "format",
        value_enum,
        default_value = "table",
        value_name = "FORMAT",
        global = true
    )]
    output: OutputFormat,
    #[command(flatten)]
    analyzer: skua_config::arguments::AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show the prefixes
    List,
    /// Add prefixes, or change the mark of those in the set
    Add(Marked),
    /// Remove prefixes; prefixes that are not in the set are ignored
    Remove {
        /// Prefixes to remove
        #[arg(required = true, value_name = "PREFIX|@FILE|-")]
        prefixes: Vec<String>,
    },
    /// Replace all prefixes at once
    Replace(Marked),
    /// Remove all prefixes: everything is counted
    Clear,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct Marked {
    /// Prefixes to count
    #[arg(long, num_args = 1.., value_name = "PREFIX|@FILE|-")]
    include: Vec<String>,
    /// Prefixes to leave out
    #[arg(long, num_args = 1.., value_name = "PREFIX|@FILE|-")]
    exclude: Vec<String>,
}

impl Marked {
    fn lists(&self) -> anyhow::Result<Value> {
        let lists = Lists {
            include: expand("--include", &self.include)?,
            exclude: expand("--exclude", &self.exclude)?,
        };
        // Check here: the server's errors would count prefixes in an order that the user has not
        // seen.
        marks("--", &lists.include, &lists.exclude)?;
        Ok(json!(lists))
    }
}

pub fn addresses(arguments: &AddressesArguments) -> anyhow::Result<()> {
    // Errors in prefixes are reported also when no server runs.
    let change = match &arguments.action {
        Action::List => None,
        Action::Add(marked) => Some(("POST", marked.lists()?)),
        Action::Replace(marked) => Some(("PUT", marked.lists()?)),
        Action::Clear => Some(("PUT", json!(Lists::default()))),
        Action::Remove { prefixes } => {
            let prefixes = expand("remove", prefixes)?;
            Some(("DELETE", json!({ "prefixes": prefixes })))
        }
    };
    let client = Client::connect(&arguments.analyzer)?.with_context(|| {
        format!(
            "no `skua run` answers at {}: start it, or give --analyzer",
            arguments.analyzer.address
        )
    })?;
    match change {
        None => print_list(&client.object(PATH)?, arguments.output),
        Some((method, body)) => {
            print_change(&client.change(method, PATH, &body)?, arguments.output)
        }
    }
}

fn print_list(answer: &Value, format: OutputFormat) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if format == OutputFormat::Json {
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let lists: Lists = serde_json::from_value(answer.clone()).context("no list of addresses")?;
    let separator = match format {
        OutputFormat::Csv => {
            writeln!(out, "mark,prefix")?;
            ','
        }
        _ => ' ',
    };
    for (mark, prefixes) in [("include", &lists.include), ("exclude", &lists.exclude)] {
        for prefix in prefixes {
            writeln!(out, "{mark}{separator}{prefix}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn print_change(answer: &Value, format: OutputFormat) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match format {
        OutputFormat::Json => writeln!(out, "{answer}")?,
        OutputFormat::Csv => bail!("changes cannot be printed as CSV: use --output json"),
        OutputFormat::Table => writeln!(
            out,
            "{} added, {} changed, {} removed; now {} to include, {} to exclude",
            answer["added"],
            answer["changed"],
            answer["removed"],
            answer["include"],
            answer["exclude"]
        )?,
    }
    Ok(())
}
