//! `skua console`.

use std::{io::Write as _, process::Command};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_server::paths;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo skua console                    prints a link to the page that logs in once
  skua console --open                  as a member of the group skua: opens it in a browser")]
pub struct ConsoleArguments {
    /// Open it in a browser (xdg-open) instead of printing it
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

pub fn console(arguments: &ConsoleArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    let made = client.create(paths::CONSOLE, &[], &json!({}))?;
    let link = made["Url"].as_str().context("the answer has no link")?;
    if arguments.open {
        let done = Command::new("xdg-open").arg(link).status();
        if !done.context("cannot run xdg-open")?.success() {
            bail!("xdg-open did not open a browser; without --open the command prints the link");
        }
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{link}")?;
    Ok(out.flush()?)
}
