//! Arguments of single commands.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use skua_config::arguments::{
    AnalyzerArguments, CaptureArguments, Printing, Sort, SummaryFormat, duration,
};
use skua_lake::Location;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua flows                                      from the running `skua run`
  skua flows process:curl port:443 'rate>1Mbit'   conditions on what is known of conversations, docs/filters.md
  skua flows --filter 'tcp port 443' --sort bytes --limit 20   a pcap expression
  skua flows --interface eth0 --duration 10s      capture here and now
  skua flows --follow --output json | jq .        new and changed flows as they come
  skua flows --since 1h --by service,process --top 20   from the lake (lake.directory), without a server
  skua flows --since 1day process:nginx --by client_address --sort received")]
pub struct FlowsArguments {
    /// Only conversations that meet these conditions, like process:curl port:443 'rate>1Mbit' -user:root '"text"'; the
    /// same of the running `skua run` and of the lake (docs/filters.md)
    #[arg(value_name = "CONDITION", value_parser = ConditionParser, hide_possible_values = true)]
    pub conditions: Vec<String>,
    /// The same as CONDITION; may be given several times: all must hold
    #[arg(long = "where", value_name = "CONDITION", value_parser = ConditionParser, hide_possible_values = true)]
    pub also: Vec<String>,
    /// Capture here for this long, like 10s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Continue to show new and changed records
    #[arg(short = 'F', long)]
    pub follow: bool,
    #[command(flatten)]
    pub print: Printing,
    /// Columns of the table and their order, like processes,to,rate,countries,as; without it those that fit
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Order of rows
    #[arg(long, value_enum, default_value = "rate", value_name = "BY")]
    pub sort: Sort,
    /// Maximum number of rows
    #[arg(short = 'n', long, visible_alias = "top", value_name = "N")]
    pub limit: Option<usize>,
    /// Only conversations that have not ended
    #[arg(long)]
    pub active: bool,
    /// Sums by process, container, service, country, as or network instead of each conversation; point: each conversation at
    /// each interface; with --since sums by up to six fields (docs/lake.md)
    #[arg(long, value_name = "WHAT,…")]
    pub by: Option<String>,
    #[command(flatten, next_help_heading = "Of the lake")]
    pub lake: crate::arguments::LakeQuestion,
    /// Print all sums on standard error at the end
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
    #[command(flatten, next_help_heading = "Which server")]
    pub analyzer: AnalyzerArguments,
    #[command(flatten, next_help_heading = "Capturing here")]
    pub capture: CaptureArguments,
}

impl FlowsArguments {
    /// All conditions.
    pub fn conditions(&self) -> Vec<String> {
        self.conditions.iter().chain(&self.also).cloned().collect()
    }
}

/// Takes any text; shells complete the keys.
#[derive(Clone)]
pub struct ConditionParser;

impl TypedValueParser for ConditionParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let offered = skua_condition::completions("").into_iter();
        // A command is completed once, and there are few keys.
        Some(Box::new(offered.map(|one| {
            PossibleValue::new(&*one.text.leak()).help(&*one.meaning.leak())
        })))
    }
}

/// How a capture file is printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct ReplayPrinting {
    /// How to print
    #[arg(
        short,
        long,
        alias = "format",
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: ReplayFormat,
}

/// Formats of what a capture file contains.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplayFormat {
    /// For people
    Table,
    /// One JSON object a line
    Json,
    /// Comma-separated values with a header
    Csv,
    /// What is said in the conversations, message by message, in the form of Suricata (EVE JSON): DNS, TLS (docs/dns.md)
    Eve,
}

#[derive(Args, Debug)]
pub struct ReplayArguments {
    /// The file, - for standard input
    pub file: PathBuf,
    /// Print only conversations that meet these conditions, like port:443 'rate>1Mbit' (docs/filters.md)
    #[arg(value_name = "CONDITION", value_parser = ConditionParser, hide_possible_values = true)]
    pub conditions: Vec<String>,
    /// Count only what matches a pcap expression
    #[arg(short, long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Count only packets from or to a prefix, like 10.0.0.0/8; @FILE has one a line, - is standard
    /// input; may be given several times
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub include_net: Vec<String>,
    /// Leave out packets from or to a prefix; the longest prefix that contains an address decides
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub exclude_net: Vec<String>,
    /// Decode tunnels
    #[arg(long)]
    pub tunnels: bool,
    /// Count one in N packets
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub sampling: u32,
    /// Maximum number of flows in the table
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_entries: u32,
    #[command(flatten)]
    pub print: ReplayPrinting,
    /// Columns of the table and their order, like processes,to,rate,countries,as; without it those that fit
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Order of rows
    #[arg(long, value_enum, default_value = "bytes", value_name = "BY")]
    pub sort: Sort,
    /// Maximum number of rows
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print all sums on standard error at the end
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
    /// Exit with status 1 if the file is damaged or cut off; the readable part is printed anyway
    #[arg(long)]
    pub strict: bool,
    /// YAML configuration; of it only `networks` counts, the files that say whose addresses are [default:
    /// /etc/skua.yaml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct DoctorArguments {
    #[command(flatten)]
    pub print: Printing,
    /// Columns of the table and their order, like processes,to,rate,countries,as; without it those that fit
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub columns: Vec<String>,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// A query of a lake.
#[derive(Args, Debug, Default)]
pub struct LakeQuestion {
    /// Query the lake, since this long ago (1h, 3days) or since a moment (2026-11-21T10:00:00Z)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only rows before this moment, or before this long ago
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Where the lake is: a directory, s3://BUCKET/PREFIX or hdfs://HOST:PORT/PATH [default:
    /// lake.directory of the configuration, else that of the running `skua run`]
    #[arg(long, value_name = "LAKE")]
    pub lake: Option<Location>,
    /// Table of the lake: flows, or services, which collectors write
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
}

impl LakeQuestion {
    /// Whether the lake is to be queried.
    pub fn is_asked(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.lake.is_some() || self.table.is_some()
    }
}
