//! `skua client workflow`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, Printing};
use skua_output as output;
use skua_output::Column;

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  skua client workflow create --path check.yaml
  skua client workflow call Check 4d2a 77f0

A file has Name, Parameters and Source, a function in JavaScript that uses the API. docs/skydive.md explains it.")]
pub struct WorkflowArguments {
    #[command(subcommand)]
    pub command: WorkflowCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum WorkflowCommand {
    /// Make a workflow from a file
    Create {
        /// The file, in YAML or JSON
        #[arg(long, value_name = "FILE")]
        path: PathBuf,
    },
    /// Show workflows
    List(Printing),
    /// Show one workflow
    Get {
        /// Its UUID or name
        id: String,
    },
    /// Call a workflow, and print what it returns
    Call {
        /// Its UUID or name
        id: String,
        /// Its parameters, in their order
        #[arg(allow_hyphen_values = true)]
        parameters: Vec<String>,
    },
    /// Delete workflows
    Delete {
        /// Their UUIDs or names
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

const PATH: &str = "/api/workflow";
/// Bytes of a file at most; the server takes no more.
const LONGEST: u64 = 1 << 20;

const COLUMNS: &[Column] = &[
    output::column("WORKFLOW", 0, |r| output::text(&r["UUID"])),
    output::column("NAME", 0, |r| output::text(&r["Name"])),
    output::column("PARAMETERS", 1, |r| {
        let names = r["Parameters"].as_array().into_iter().flatten();
        let names: Vec<_> = names.map(|one| output::text(&one["Name"])).collect();
        names.join(" ")
    }),
    output::column("TITLE", 2, |r| output::text(&r["Title"])),
];

/// A workflow in a file; JSON is YAML, too.
fn read(path: &Path) -> anyhow::Result<Value> {
    let named = || format!("cannot read {}", path.display());
    let size = std::fs::metadata(path).with_context(named)?.len();
    if size > LONGEST {
        bail!("{} has more than {LONGEST} bytes", path.display());
    }
    let text = std::fs::read_to_string(path).with_context(named)?;
    serde_yaml_ng::from_str(&text)
        .with_context(|| format!("{} is not a workflow in YAML", path.display()))
}

/// Parameters as the workflow declares them: texts unless it wants numbers or truths. Those that are not given
/// have their defaults.
fn parameters(workflow: &Value, given: &[String]) -> anyhow::Result<Vec<Value>> {
    let none = Vec::new();
    let declared = workflow["Parameters"].as_array().unwrap_or(&none);
    if given.len() > declared.len() {
        let most = declared.len();
        bail!(
            "the workflow has {most} parameters, {} are given",
            given.len()
        );
    }
    let values = declared.iter().enumerate().map(|(number, parameter)| {
        let Some(text) = given.get(number) else {
            return Ok(parameter["Default"].clone());
        };
        let kind = parameter["Type"].as_str().unwrap_or_default();
        let value: Option<Value> = serde_json::from_str(text).ok();
        let fits = match kind {
            "boolean" => value.filter(Value::is_boolean),
            "integer" => value.filter(|value| value.is_i64() || value.is_u64()),
            "number" => value.filter(Value::is_number),
            _ => Some(text.as_str().into()),
        };
        let name = output::text(&parameter["Name"]);
        fits.with_context(|| format!("{name}: \"{text}\" is no {kind}"))
    });
    values.collect()
}

pub fn workflow(arguments: &WorkflowArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        WorkflowCommand::Create { path } => {
            output::pretty(&client.create(PATH, &[], &read(path)?)?)
        }
        WorkflowCommand::List(printing) => client.list(PATH, printing.output, COLUMNS, "workflows"),
        WorkflowCommand::Get { id } => output::pretty(&client.object(&format!("{PATH}/{id}"))?),
        WorkflowCommand::Call {
            id,
            parameters: given,
        } => {
            let workflow = client.object(&format!("{PATH}/{id}"))?;
            let body = json!({"Params": parameters(&workflow, given)?});
            let id = output::text(&workflow["UUID"]);
            output::pretty(&client.create(&format!("{PATH}/{id}/call"), &[], &body)?)
        }
        WorkflowCommand::Delete { ids } => ids
            .iter()
            .try_for_each(|id| client.delete(&format!("{PATH}/{id}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parameters_have_the_types_that_are_declared() {
        let workflow = json!({"Parameters": [
            {"Name": "node", "Type": "node"}, {"Name": "all", "Type": "boolean"},
            {"Name": "seconds", "Type": "integer", "Default": 5}, {"Name": "last", "Type": "string"},
        ]});
        let read = |given: &[&str]| {
            let given: Vec<_> = given.iter().map(|text| text.to_string()).collect();
            parameters(&workflow, &given)
        };
        assert_eq!(
            read(&["12", "true"]).unwrap(),
            [json!("12"), json!(true), json!(5), json!(null)]
        );
        assert_eq!(
            read(&["a", "false", "7", "8"]).unwrap()[2..],
            [json!(7), json!("8")]
        );
        let wrong = read(&["a", "yes"]).unwrap_err().to_string();
        assert_eq!(wrong, "all: \"yes\" is no boolean");
        assert!(read(&["1", "true", "1", "1", "1"]).is_err());
    }
}
