//! `skua agents`.

use std::io::Write as _;

use anyhow::bail;
use clap::Args;
use serde_json::Value;
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_output as output;
use skua_output::{OutputFormat, each, text_of};
use skua_process::host::unix_ms;

#[derive(Args, Debug)]
pub struct AgentsArguments {
    /// How to print
    #[arg(
        short,
        long,
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: OutputFormat,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// A row of the table.
pub fn line(agent: &Value) -> String {
    let count = |key: &str| output::count(agent[key].as_u64().unwrap_or(0));
    let since = unix_ms() - agent["since"].as_i64().unwrap_or_default();
    let since = std::time::Duration::from_secs(u64::try_from(since).unwrap_or(0) / 1_000);
    let state = match agent["connected"] == true {
        true => "connected",
        false => "gone",
    };
    format!(
        "{:<24} {state:<10} {:<12} {:<10} {:>8} {:>10} {:>10}",
        text_of(agent, "host"),
        humantime::format_duration(since).to_string(),
        text_of(agent, "version"),
        count("captures"),
        count("flows"),
        count("lost_flow_updates"),
    )
}

pub fn agents(arguments: &AgentsArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    let status = client.object("/api/agents")?;
    let agents = each(&status["agents"]);
    let mut out = std::io::stdout().lock();
    match arguments.output {
        OutputFormat::Json => {
            for agent in agents {
                writeln!(out, "{agent}")?;
            }
        }
        OutputFormat::Csv => bail!("agents cannot be printed as CSV: use table or json"),
        OutputFormat::Table if agents.is_empty() => writeln!(out, "no agents")?,
        OutputFormat::Table => {
            writeln!(
                out,
                "{:<24} {:<10} {:<12} {:<10} {:>8} {:>10} {:>10}",
                "HOST", "STATE", "FOR", "VERSION", "CAPTURES", "FLOWS", "LOST"
            )?;
            for agent in agents {
                writeln!(out, "{}", line(agent))?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
