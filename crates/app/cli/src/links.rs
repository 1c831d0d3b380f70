//! `skua links`: what conversations lose between two points that both have counted them, summed up by link.

use std::{collections::HashMap, io::Write as _, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_output::{Column, OutputFormat, Printer, count, each, text};

use crate::query::Format;

#[derive(Args, Debug)]
#[command(after_help = "\
A link leads from an interface that has seen conversations to the next one that has seen them, in one direction. What the
first counted and the second did not is lost between them. Left out are conversations that may have begun before both
interfaces were watched and, of those that go on, what was counted last: it may be under way.

Examples:
  skua links                                      the worst first
  skua links --address 10.0.0.5 --port 5432       only of conversations of this host and port
  skua links --sort packets --output json")]
pub struct LinksArguments {
    /// Only conversations of this address
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<std::net::IpAddr>,
    /// Only conversations of this port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Order of rows
    #[arg(long, value_enum, default_value = "loss", value_name = "BY")]
    pub sort: Sort,
    /// Rows at most
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// How to print
    #[arg(
        short,
        long,
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: OutputFormat,
    /// Show all columns, even if the terminal is too narrow
    #[arg(short, long)]
    pub wide: bool,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Orders of links.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// Share of packets that was lost
    Loss,
    /// Packets that were lost
    Lost,
    /// Packets that were sent
    Packets,
}

/// Records that are asked for: the latest.
const RECORDS: u32 = 50_000;
/// Links with fewer packets say little: they come last.
const FEW: i64 = 100;

#[derive(Default, PartialEq, Debug)]
struct Link {
    packets: i64,
    /// Below 0 where the end got packets that the begin did not.
    lost: i64,
    conversations: u64,
}

/// By the names of both ends.
type Links = HashMap<(String, String), Link>;

impl Link {
    fn lost(&self) -> i64 {
        self.lost.max(0)
    }

    fn share(&self) -> f64 {
        self.lost() as f64 / self.packets.max(1) as f64
    }
}

const fn column(title: &'static str, right: bool, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right,
        rank,
        cell,
    }
}

const LINKS: [Column; 6] = [
    column("FROM", false, 0, |l| text(&l["from"])),
    column("TO", false, 0, |l| text(&l["to"])),
    column("PACKETS", true, 1, |l| {
        count(l["packets"].as_u64().unwrap_or(0))
    }),
    column("LOST", true, 0, |l| count(l["lost"].as_u64().unwrap_or(0))),
    column("SHARE", true, 0, |l| {
        format!("{:.2}%", l["share"].as_f64().unwrap_or(0.0) * 100.0)
    }),
    column("CONVERSATIONS", true, 2, |l| {
        count(l["conversations"].as_u64().unwrap_or(0))
    }),
];

/// Name of a point: its interface, with the host before it when there are several.
fn point(hop: &Value, hosts: bool) -> String {
    let interface = text(&hop["Interface"]);
    match hosts {
        true => format!("{}:{interface}", text(&hop["Host"])),
        false => interface,
    }
}

/// Sums up paths: lists of hops by conversation, in the order in which the side that spoke first passes them.
fn links(paths: &Value) -> Links {
    let mut found = Links::new();
    let all = || {
        let objects = each(paths).iter().filter_map(Value::as_object);
        objects.flat_map(|object| object.values().map(each))
    };
    let mut hosts = all().flatten().map(|hop| &hop["Host"]);
    let first = hosts.next();
    let several = hosts.any(|host| Some(host) != first);
    for hops in all() {
        for pair in hops.windows(2) {
            let [from, to] = pair else { continue };
            let number = |hop: &Value, key: &str| hop[key].as_i64();
            let (Some(lost_ab), Some(lost_ba)) = (number(to, "LostAB"), number(to, "LostBA"))
            else {
                continue;
            };
            let [from_name, to_name] = [from, to].map(|hop| point(hop, several));
            let mut add = |name: (String, String), sent: Option<i64>, lost| {
                let sent = sent.unwrap_or(0);
                if sent > 0 {
                    let link = found.entry(name).or_default();
                    link.packets += sent;
                    link.lost += lost;
                    link.conversations += 1;
                }
            };
            let back = (to_name.clone(), from_name.clone());
            add((from_name, to_name), number(from, "ABPackets"), lost_ab);
            add(back, number(to, "BAPackets"), lost_ba);
        }
    }
    found
}

/// From one reading of the counters to the next.
const BETWEEN: Duration = Duration::from_millis(500);

/// `skua links`.
pub fn show(arguments: &LinksArguments) -> anyhow::Result<()> {
    if arguments.output == OutputFormat::Csv {
        bail!("links cannot be printed as CSV: use table or json");
    }
    let mut query = "G.Flows()".to_owned();
    if let Some(address) = arguments.address {
        query += &format!(".Has(\"Network\", \"{address}\")");
    }
    if let Some(port) = arguments.port {
        query += &format!(".Has(\"Transport\", {port})");
    }
    query += &format!(".Sort(DESC, \"Last\").Limit({RECORDS}).Path()");
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    let body = json!({"GremlinQuery": query, "Explain": false});
    // The counters are read when somebody asks: what was counted between two readings may be under way.
    let read = json!({"GremlinQuery": "G.Flows().Limit(1)", "Explain": false});
    client.ask("/api/topology", Format::Json.media_type(), &read)?;
    std::thread::sleep(BETWEEN);
    let answer = client.ask("/api/topology", Format::Json.media_type(), &body)?;
    let answer: Value = serde_json::from_slice(&answer).context("the answer is not JSON")?;
    let mut found: Vec<_> = links(&answer).into_iter().collect();
    found.sort_by(|(a_name, a), (b_name, b)| {
        let order = match arguments.sort {
            Sort::Loss => {
                let few = |link: &Link| link.packets < FEW;
                few(a)
                    .cmp(&few(b))
                    .then(b.share().total_cmp(&a.share()))
                    .then(b.packets.cmp(&a.packets))
            }
            Sort::Lost => b.lost().cmp(&a.lost()).then(b.packets.cmp(&a.packets)),
            Sort::Packets => b.packets.cmp(&a.packets),
        };
        order.then_with(|| a_name.cmp(b_name))
    });
    found.truncate(arguments.limit.unwrap_or(usize::MAX));
    if found.is_empty() && arguments.output == OutputFormat::Table {
        let narrowed = arguments.address.is_some() || arguments.port.is_some();
        eprintln!(
            "skua: no conversation {}was counted at two interfaces since both are watched",
            if narrowed {
                "with this address and port "
            } else {
                ""
            }
        );
        return Ok(());
    }
    let mut lines = Vec::new();
    for ((from, to), link) in &found {
        let line = json!({
            "from": from, "to": to, "packets": link.packets, "lost": link.lost(), "share": link.share(),
            "conversations": link.conversations,
        });
        writeln!(lines, "{line}")?;
    }
    Printer::new(arguments.output, &LINKS, |_| Ok(()), arguments.wide).finish(&lines)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_of_the_direction_that_lost() {
        let hop = |interface: &str, ab: i64, ba: i64, lost: Option<[i64; 2]>| {
            let mut hop =
                json!({"Interface": interface, "Host": "h", "ABPackets": ab, "BAPackets": ba});
            if let Some([ab, ba]) = lost {
                hop["LostAB"] = ab.into();
                hop["LostBA"] = ba.into();
            }
            hop
        };
        // Once from x to z and once from z to x; z loses what it sends to y. The last pair cannot be compared.
        let paths = json!([{
            "one": [hop("x", 10, 18, None), hop("y", 10, 18, Some([0, 0])), hop("z", 10, 20, Some([0, 2]))],
            "two": [hop("z", 30, 7, None), hop("y", 27, 7, Some([3, 0]))],
            // A later connection between the same ports begins anew.
            "three": [hop("y", 5, 0, None), hop("x", 5, 0, None), hop("z", 9, 9, None)],
        }]);
        let found = links(&paths);
        let link = |from: &str, to: &str| &found[&(from.to_owned(), to.to_owned())];
        let expected = |packets, lost, conversations| Link {
            packets,
            lost,
            conversations,
        };
        assert_eq!(*link("z", "y"), expected(50, 5, 2));
        assert_eq!(*link("y", "z"), expected(17, 0, 2));
        assert_eq!(*link("x", "y"), expected(10, 0, 1));
        assert_eq!(*link("y", "x"), expected(18, 0, 1));
        assert_eq!(found.len(), 4);
        assert!((link("z", "y").share() - 0.1).abs() < 1e-9);
        assert_eq!(point(&json!({"Interface": "e", "Host": "h"}), true), "h:e");
        assert!(links(&json!([])).is_empty() && links(&json!(7)).is_empty());
    }
}
