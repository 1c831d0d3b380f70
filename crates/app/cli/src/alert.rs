//! `skua alert`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, Printing};
use skua_output as output;
use skua_output::Column;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua alert create --name links --expression 'G.V().Has(\"State\", \"DOWN\")' \\
      --action http://127.0.0.1:9000/hook --hold 30s
  skua alert create --expression 'G.Flows().Has(\"Transport\", 23).Count()' --threshold 0 \\
      --trigger duration:10s --action file:///var/log/skua/alerts.json
  skua alert list
  skua alert update --threshold 10 …

An alert fires when the answer is not empty, not 0 and not false, or compares with the threshold, and is
over when it is not so any more. docs/alerts.md explains it.")]
pub struct AlertArguments {
    #[command(subcommand)]
    pub command: AlertCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum AlertCommand {
    /// Make an alert
    Create {
        /// The query
        #[arg(long, value_name = "QUERY")]
        expression: String,
        /// End after this long, like 10m
        #[arg(long, value_name = "TIME", value_parser = skua_config::arguments::duration)]
        ttl: Option<std::time::Duration>,
        #[command(flatten)]
        rest: Settings,
    },
    /// Change alerts
    Update {
        /// Their UUIDs
        #[arg(required = true)]
        ids: Vec<String>,
        /// The query
        #[arg(long, value_name = "QUERY")]
        expression: Option<String>,
        #[command(flatten)]
        rest: Settings,
    },
    /// Show alerts and their state
    List(Printing),
    /// Show one alert
    Get {
        /// Its UUID
        id: String,
    },
    /// Delete alerts
    Delete {
        /// Their UUIDs
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// Settings of an alert.
#[derive(Args, Debug)]
pub struct Settings {
    /// A name for people
    #[arg(long)]
    pub name: Option<String>,
    /// A description for people
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Action: http(s)://…, file:///… (appends a line), command:…; default: none
    #[arg(long)]
    pub action: Option<String>,
    /// When the query runs: graph (when the graph changes, and every 10 s) or duration:10s
    #[arg(long, value_name = "graph|duration:TIME")]
    pub trigger: Option<String>,
    /// Threshold of the answer: a number, or the number of results
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub threshold: Option<f64>,
    /// How the answer is compared with the threshold: >, >=, <, <=, ==, !=
    #[arg(long, value_name = "OPERATOR")]
    pub operator: Option<String>,
    /// How long the condition must hold before the alert fires, like 30s
    #[arg(long, value_name = "TIME")]
    pub hold: Option<String>,
}

impl Settings {
    fn values(&self) -> Vec<(&'static str, Value)> {
        let texts = [
            ("Name", &self.name),
            ("Description", &self.description),
            ("Action", &self.action),
            ("Trigger", &self.trigger),
            ("Operator", &self.operator),
            ("Hold", &self.hold),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(key, text)| Some((key, json!(text.as_ref()?))));
        let threshold = self.threshold.map(|n| ("Threshold", json!(n)));
        texts.chain(threshold).collect()
    }
}

pub fn alert(arguments: &AlertArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        AlertCommand::Create {
            expression,
            ttl,
            rest,
        } => {
            let mut body = json!({"Expression": expression});
            for (key, value) in rest.values() {
                body[key] = value;
            }
            let ttl = ttl.map(|ttl| ttl.as_nanos().to_string());
            let headers: Vec<_> = ttl.map(|ttl| ("X-Resource-TTL", ttl)).into_iter().collect();
            output::pretty(&client.create("/api/alert", &headers, &body)?)
        }
        AlertCommand::Update {
            ids,
            expression,
            rest,
        } => {
            let query = expression
                .as_ref()
                .map(|query| ("Expression", json!(query)));
            let patch: Value = rest
                .values()
                .into_iter()
                .chain(query)
                .map(|(key, value)| json!({"op": "add", "path": format!("/{key}"), "value": value}))
                .collect();
            ids.iter().try_for_each(|id| {
                output::pretty(&client.patch(&format!("/api/alert/{id}"), &patch)?)
            })
        }
        AlertCommand::List(Printing { output }) => {
            client.list("/api/alert", *output, COLUMNS, "alerts")
        }
        AlertCommand::Get { id } => output::pretty(&client.object(&format!("/api/alert/{id}"))?),
        AlertCommand::Delete { ids } => ids
            .iter()
            .try_for_each(|id| client.delete(&format!("/api/alert/{id}"))),
    }
}

/// Columns of the list.
const COLUMNS: &[Column] = &[
    output::column("ALERT", 0, |r| output::text(&r["UUID"])),
    output::column("NAME", 1, |r| output::text(&r["Name"])),
    output::column("STATE", 0, |r| output::text(&r["State"])),
    output::column("VALUE", 2, |r| {
        r["Value"]
            .as_f64()
            .map_or_else(|| "-".into(), |value| value.to_string())
    }),
    output::column("FIRED", 2, |r| r["Fired"].to_string()),
    output::column("ACTION", 3, |r| output::text(&r["Action"])),
    output::column("EXPRESSION", 1, |r| output::text(&r["Expression"])),
    output::column("ERROR", 1, |r| {
        let error = [&r["Error"], &r["ActionError"]]
            .into_iter()
            .find(|e| !e.is_null());
        error.map_or_else(String::new, output::text)
    }),
];
