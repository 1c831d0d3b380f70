//! `skua extcap`: Wireshark's interface for programs that capture (extcap). Wireshark starts the program in its extcap folder
//! with these options: to list interfaces, their link types and settings, and to capture into a pipe.

use std::{io::Write as _, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_probe::Selection;

use crate::capture::watch;

/// The only interface: a tap that lasts as long as Wireshark reads.
const INTERFACE: &str = "skua";
/// Sources of the tap when none are named: all interfaces that are up.
const SOURCES: &str = r#"G.V().HasKey("IfIndex").Has("State", "UP")"#;

#[derive(Args, Debug)]
#[command(after_help = "\
To have Skua among Wireshark's interfaces:
  tshark -G folders | grep -i extcap              names its folders for such programs
  ln -s \"$(command -v skua)\" FOLDER/skua        a link in one of them
  tshark -D                                       lists the interface skua
  tshark -i skua -f 'tcp port 443' -o 'extcap.skua.process: nginx'
docs/tap.md explains it.")]
pub struct ExtcapArguments {
    /// List interfaces
    #[arg(long)]
    pub extcap_interfaces: bool,
    /// List link types of an interface
    #[arg(long)]
    pub extcap_dlts: bool,
    /// List settings of an interface
    #[arg(long)]
    pub extcap_config: bool,
    /// Version of Wireshark
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    pub extcap_version: Option<String>,
    /// The interface
    #[arg(long, value_name = "NAME")]
    pub extcap_interface: Option<String>,
    /// Only packets that match a pcap expression
    #[arg(long, value_name = "EXPRESSION")]
    pub extcap_capture_filter: Option<String>,
    /// Capture
    #[arg(long)]
    pub capture: bool,
    /// The pipe to write packets to, as pcapng
    #[arg(long, value_name = "FILE")]
    pub fifo: Option<PathBuf>,
    /// Interfaces whose packets are copied, like eth0,tap3 or eth0@NAMESPACE [default: all that are up]
    #[arg(long, value_name = "INTERFACES", default_value = "")]
    pub from: String,
    /// Only packets of sockets of these processes
    #[arg(long, value_name = "PROCESSES", default_value = "")]
    pub process: String,
    /// Only packets of sockets in these containers
    #[arg(long, value_name = "CONTAINERS", default_value = "")]
    pub container: String,
    /// Only packets of sockets of these services
    #[arg(long, value_name = "SERVICES", default_value = "")]
    pub service: String,
    /// Bytes to copy of each packet; 0: all
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub cut: u32,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Settings as Wireshark's window has them: option, title, type, and what it does.
const SETTINGS: [(&str, &str, &str, &str); 6] = [
    (
        "from",
        "Interfaces",
        "string",
        "Like eth0,tap3 or eth0@NAMESPACE; empty: all that are up",
    ),
    (
        "process",
        "Processes",
        "string",
        "Only packets of sockets of these processes: names, numbers or paths",
    ),
    (
        "container",
        "Containers",
        "string",
        "Only packets of sockets in these containers: names, or starts of IDs",
    ),
    (
        "service",
        "Services",
        "string",
        "Only packets of sockets of these services",
    ),
    ("cut", "Bytes of each packet", "unsigned", "0: all"),
    (
        "analyzer",
        "Address of skua run",
        "string",
        "unix:PATH, HOST:PORT or https://HOST:PORT; empty: this host",
    ),
];

/// The word that stands before the options of Wireshark, which starts the program without a subcommand.
pub fn subcommand(first: &str) -> Option<&'static str> {
    (first.starts_with("--extcap-") || first == "--capture").then_some("extcap")
}

impl ExtcapArguments {
    fn filter(&self) -> Option<&str> {
        self.extcap_capture_filter
            .as_deref()
            .filter(|text| !text.trim().is_empty())
    }

    /// The tap.
    fn tap(&self) -> Value {
        let mut body = Map::new();
        let lists = [
            ("From", &self.from),
            ("Processes", &self.process),
            ("Containers", &self.container),
            ("Services", &self.service),
        ];
        for (key, list) in lists {
            let items: Vec<&str> = list
                .split(',')
                .map(str::trim)
                .filter(|i| !i.is_empty())
                .collect();
            if !items.is_empty() {
                body.insert(key.to_owned(), json!(items));
            }
        }
        if !body.contains_key("From") {
            body.insert("GremlinQuery".to_owned(), json!(SOURCES));
            // A packet passes several of them.
            body.insert("Dedup".to_owned(), json!(true));
        }
        if let Some(filter) = self.filter() {
            body.insert("Match".to_owned(), json!(filter));
        }
        if self.cut > 0 {
            body.insert("Cut".to_owned(), json!(self.cut));
        }
        Value::Object(body)
    }
}

/// `skua extcap`.
pub fn extcap(arguments: &ExtcapArguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.extcap_interfaces {
        writeln!(
            out,
            "extcap {{version={}}}{{help=https://github.com/skua-project/skua}}",
            env!("CARGO_PKG_VERSION")
        )?;
        writeln!(
            out,
            "interface {{value={INTERFACE}}}{{display=Skua: packets by process, container, service or namespace}}"
        )?;
        return Ok(());
    }
    match arguments.extcap_interface.as_deref() {
        Some(INTERFACE) => {}
        Some(other) => bail!("there is no interface \"{other}\": the only one is {INTERFACE}"),
        None => bail!(
            "Wireshark starts this command: link it into its extcap folder, as `skua extcap --help` says"
        ),
    }
    if arguments.extcap_dlts {
        writeln!(out, "dlt {{number=1}}{{name=EN10MB}}{{display=Ethernet}}")?;
        return Ok(());
    }
    if arguments.extcap_config {
        for (number, (option, title, kind, what)) in SETTINGS.iter().enumerate() {
            writeln!(
                out,
                "arg {{number={number}}}{{call=--{option}}}{{display={title}}}{{type={kind}}}{{tooltip={what}}}{{required=false}}"
            )?;
        }
        return Ok(());
    }
    if !arguments.capture {
        // Wireshark asks whether the expression can be used.
        Selection::new(arguments.filter().unwrap_or_default(), 1, 1)?;
        return Ok(());
    }
    let fifo = arguments.fifo.as_ref().context("--capture needs --fifo")?;
    let mut analyzer = arguments.analyzer.clone();
    if analyzer.address.is_empty() {
        // Wireshark gives its settings even if nothing is in them.
        analyzer.address = std::env::var("SKUA_ANALYZER")
            .ok()
            .filter(|address| !address.is_empty())
            .unwrap_or_else(|| skua_config::arguments::ANALYZER.to_owned());
    }
    let client = Client::connect_or_fail(&analyzer)?;
    let packets = client.stream("/api/tap/live", Some(&arguments.tap()))?;
    watch(packets, fifo)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        arguments: ExtcapArguments,
    }

    #[test]
    fn settings_of_wireshark_are_options_of_the_command() {
        for (option, _, kind, _) in SETTINGS {
            let value = if kind == "unsigned" { "64" } else { "x" };
            let arguments = ["extcap".to_owned(), format!("--{option}"), value.to_owned()];
            assert!(Command::try_parse_from(arguments).is_ok(), "{option}");
        }
    }

    #[test]
    fn a_tap_copies_what_is_asked_for() {
        let of = |arguments: &[&str]| {
            let all = ["extcap"].iter().chain(arguments);
            Command::parse_from(all).arguments.tap()
        };
        let all = of(&[]);
        assert_eq!(
            (&all["GremlinQuery"], &all["Dedup"]),
            (&json!(SOURCES), &json!(true))
        );
        let some = of(&[
            "--from",
            "eth0, eth1@red",
            "--process=curl",
            "--extcap-capture-filter",
            "udp",
            "--cut",
            "64",
        ]);
        assert_eq!(
            some,
            json!({"From": ["eth0", "eth1@red"], "Processes": ["curl"], "Match": "udp", "Cut": 64})
        );
    }

    #[test]
    fn wireshark_needs_no_subcommand() {
        assert_eq!(subcommand("--extcap-interfaces"), Some("extcap"));
        assert_eq!(subcommand("--capture"), Some("extcap"));
        assert_eq!(subcommand("flows"), None);
        assert_eq!(subcommand("--version"), None);
    }
}
