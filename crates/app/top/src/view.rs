//! The views, and the data that each requests.

use serde_json::Value;

use crate::columns::{self, Column, text};

/// A view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Rates, top flows, top processes, health and losses.
    Overview,
    /// Conversations.
    Flows,
    /// Sockets.
    Sockets,
    /// Listening sockets, and the results of their connections.
    Services,
    /// Interfaces that are watched.
    Interfaces,
    /// The graph as a tree.
    Topology,
    /// Changes of the graph.
    Events,
}

impl View {
    /// All, in the order of their keys.
    pub const ALL: [Self; 7] = [
        Self::Overview,
        Self::Flows,
        Self::Sockets,
        Self::Services,
        Self::Interfaces,
        Self::Topology,
        Self::Events,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Flows => "flows",
            Self::Sockets => "sockets",
            Self::Services => "services",
            Self::Interfaces => "interfaces",
            Self::Topology => "topology",
            Self::Events => "events",
        }
    }

    /// Orders of its rows; those of lists of the API as the API calls them.
    pub fn sorts(self) -> &'static [&'static str] {
        match self {
            Self::Flows => &[
                "rate",
                "bytes",
                "packets",
                "rtt",
                "retransmits",
                "sent",
                "received",
                "last",
                "start",
            ],
            Self::Sockets => &[
                "bytes",
                "sent",
                "received",
                "rtt",
                "retransmits",
                "rate",
                "start",
                "process",
                "port",
            ],
            Self::Services => &[
                "connections",
                "open",
                "rate",
                "bytes",
                "failed",
                "rtt",
                "retransmits",
                "name",
            ],
            Self::Interfaces => &["rate", "total", "name"],
            Self::Overview | Self::Topology | Self::Events => &[],
        }
    }

    /// Columns of its list; the overview has the flows'.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Overview | Self::Flows => &columns::FLOW_COLUMNS,
            Self::Sockets => &columns::SOCKETS,
            Self::Services => &columns::SERVICES,
            Self::Interfaces => &columns::INTERFACES,
            Self::Topology => &columns::TREE,
            Self::Events => &columns::EVENTS,
        }
    }

    /// What distinguishes its rows.
    pub fn identity(self) -> fn(&Value) -> String {
        match self {
            Self::Overview | Self::Flows => |r| text(&r["id"]),
            Self::Sockets => |r| format!("{} {}", r["id"], r["netns"]),
            Self::Services => |r| {
                format!(
                    "{} {} {} {}",
                    r["client"], r["server"], r["protocol"], r["port"]
                )
            },
            Self::Interfaces => |r| format!("{} {}", r["netns"], r["interface"]),
            Self::Topology => |r| text(&r["ID"]),
            Self::Events => |r| r["number"].to_string(),
        }
    }

    /// What its filter is, in words; `fleet`: of an analyzer that watches no host.
    pub fn filter_help(self, fleet: bool) -> &'static str {
        match self {
            Self::Overview | Self::Flows if fleet => {
                "steps of Gremlin on flows, like: Has(\"Network\", \"10.0.0.5\")"
            }
            Self::Overview | Self::Flows => {
                "like: process:curl port:443 rate>1Mbit -user:root \"text\", or tcp port 443; Tab completes"
            }
            Self::Sockets => "words like: process=curl port=443 state=established listen closed",
            Self::Services => "words like: service=nginx port=443 protocol=tcp clients",
            Self::Interfaces | Self::Events => "part of a line",
            Self::Topology => "Gremlin query of nodes, like: G.V().Has(\"Type\", \"bridge\")",
        }
    }
}

/// What an answer is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    /// Sums, health and interfaces.
    Status,
    /// Flows of the overview.
    TopFlows,
    /// Processes of the overview.
    TopProcesses,
    /// Rows of a view.
    Rows(View),
    /// Edges below the nodes of the tree that are open.
    Edges,
    /// Nodes below them.
    Nodes,
}

/// Kinds of requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// A list: a record a line.
    Lines {
        /// Path in the API.
        path: &'static str,
        /// Names and values.
        parameters: Vec<(String, String)>,
    },
    /// One object.
    Object {
        /// Path in the API.
        path: &'static str,
    },
    /// A query in Gremlin.
    Query(String),
}

/// A request to the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// About what.
    pub topic: Topic,
    /// How.
    pub question: Question,
    /// Seconds until the next request.
    pub pause: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server is unreachable.
    Unreachable(String),
    /// The server refused the request.
    Refused(String),
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Records.
    Rows(Vec<Value>),
    /// Records, and how many there would be without a limit.
    Page(Vec<Value>, usize),
    /// One object.
    Object(Value),
}

/// Words of a filter as parameters of the API: `name=value`, or `name` for flags.
pub fn words(filter: &str) -> Vec<(String, String)> {
    let word = |word: &str| {
        let word = word.trim_start_matches("--");
        match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (word.to_owned(), "true".to_owned()),
        }
    };
    filter.split_whitespace().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parameters() {
        let pairs = words("process=curl --listen  port=443");
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("process", "curl"), ("listen", "true"), ("port", "443")]
        );
    }
}
