//! What can be made of a chosen row: a capture or a tap of just that.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::{columns::text, view::View};

/// Lifetime of captures and taps made here.
pub const MINUTES: u64 = 10;
/// Their name.
const NAME: &str = "top";

/// A capture or a tap to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Make {
    /// Whether it is a tap.
    pub tap: bool,
    /// Query of its nodes.
    gremlin: String,
    /// Interface with its namespace, as taps name them, when it is one.
    from: Option<String>,
    /// Only packets that match this; all when empty.
    filter: String,
    /// Destination of a tap's copies.
    pub to: String,
}

/// A text in a query.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A word for a shell.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// An address in a pcap expression, with its keyword.
fn host(end: &Value) -> Option<String> {
    let address = end["address"].as_str()?;
    if address.parse::<IpAddr>().is_ok() {
        return Some(format!("host {address}"));
    }
    let mac = address.split(':').count() == 6
        && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
    mac.then(|| format!("ether host {address}"))
}

/// A pcap expression of the packets between two endpoints.
fn between(protocol: &str, ends: [&Value; 2]) -> Option<String> {
    let mut parts = Vec::new();
    if matches!(protocol, "tcp" | "udp" | "sctp") {
        parts.push(protocol.to_owned());
    }
    for end in ends {
        parts.push(host(end)?);
        if let Some(port) = end["port"].as_u64().filter(|port| *port > 0) {
            parts.push(format!("port {port}"));
        }
    }
    Some(parts.join(" and "))
}

/// The interface of a flow or a row of interfaces: query and name for taps.
fn interface(name: &str, netns: Option<&str>, index: Option<u64>) -> (String, String) {
    let (netns, name) = match netns.filter(|netns| !netns.is_empty()) {
        Some(netns) => {
            let bare = name.strip_prefix(netns).and_then(|n| n.strip_prefix('/'));
            (Some(netns), bare.unwrap_or(name))
        }
        None => match name.rsplit_once('/') {
            Some((netns, name)) => (Some(netns), name),
            None => (None, name),
        },
    };
    let home = match netns {
        None => r#"G.V().Has("Type", "host")"#.to_owned(),
        Some(netns) => format!(
            r#"G.V().Has("Type", "netns").Has("Name", {})"#,
            quoted(netns)
        ),
    };
    let mut query = format!(r#"{home}.Out("Name", {})"#, quoted(name));
    if let Some(index) = index {
        query += &format!(r#".Has("IfIndex", {index})"#);
    }
    let from = match netns {
        None => name.to_owned(),
        Some(netns) => format!("{name}@{netns}"),
    };
    (query, from)
}

impl Make {
    /// The capture or tap for a row of a view, or why there is none.
    pub fn of(view: View, row: &Value, tap: bool) -> Result<Self, &'static str> {
        let (gremlin, from, filter) = match view {
            View::Overview | View::Flows => {
                let name = row["interface"]
                    .as_str()
                    .ok_or("this flow has no interface")?;
                let (gremlin, from) = match row["NodeTID"].as_str() {
                    // Of an agent.
                    Some(tid) => (format!(r#"G.V().Has("TID", {})"#, quoted(tid)), None),
                    None => {
                        let index = row["ifindex"].as_u64();
                        let (gremlin, from) = interface(name, None, index);
                        (gremlin, Some(from))
                    }
                };
                let mut filter = between(&text(&row["protocol"]), [&row["a"], &row["b"]])
                    .ok_or("this flow has no addresses")?;
                for vlan in row["vlans"].as_array().into_iter().flatten().rev() {
                    filter = format!("vlan {vlan} and {filter}");
                }
                (gremlin, from, filter)
            }
            View::Sockets => {
                let filter = match row["remote"].is_null() {
                    false => between(&text(&row["protocol"]), [&row["local"], &row["remote"]]),
                    true => row["local"]["port"]
                        .as_u64()
                        .map(|port| format!("{} port {port}", text(&row["protocol"]))),
                };
                let gremlin = format!(
                    r#"G.V().Has("NetNsInode", {}).HasKey("IfIndex")"#,
                    row["netns"]
                );
                (gremlin, None, filter.ok_or("this socket has no address")?)
            }
            View::Interfaces => {
                let name = row["interface"].as_str().ok_or("this has no name")?;
                let (gremlin, from) = interface(name, row["netns"].as_str(), None);
                (gremlin, Some(from), String::new())
            }
            View::Topology => {
                let tid = row["Metadata"]["TID"].as_str();
                if row["Metadata"]["IfIndex"].is_null() {
                    return Err("this node is not an interface");
                }
                let tid = quoted(tid.ok_or("this node has no TID")?);
                (format!(r#"G.V().Has("TID", {tid})"#), None, String::new())
            }
            View::Services | View::Events => {
                return Err("choose a flow, a socket, an interface or a node of the topology");
            }
        };
        Ok(Self {
            tap,
            gremlin,
            from,
            filter,
            to: if tap { "stream".into() } else { String::new() },
        })
    }

    /// The path in the API.
    pub fn path(&self) -> &'static str {
        if self.tap { "/api/tap" } else { "/api/capture" }
    }

    /// The body of the request.
    pub fn body(&self) -> Value {
        let description = "made in skua top";
        if !self.tap {
            return json!({
                "GremlinQuery": self.gremlin, "Type": "ebpf", "BPFFilter": self.filter,
                "Name": NAME, "Description": description,
            });
        }
        let to: Vec<_> = self.to.split(',').map(str::trim).collect();
        let mut body = json!({
            "Match": self.filter, "To": to, "Name": NAME, "Description": description,
        });
        match &self.from {
            Some(from) => body["From"] = json!([from]),
            None => body["GremlinQuery"] = json!(self.gremlin),
        }
        body
    }

    /// The same on a command line.
    pub fn command(&self) -> String {
        let mut command = if self.tap {
            let mut command = "skua tap create".to_owned();
            match &self.from {
                Some(from) => command += &format!(" --from {}", word(from)),
                None => command += &format!(" --gremlin {}", word(&self.gremlin)),
            }
            if !self.filter.is_empty() {
                command += &format!(" --match {}", word(&self.filter));
            }
            command + &format!(" --to {}", word(&self.to))
        } else {
            let mut command = format!("skua capture create --gremlin {}", word(&self.gremlin));
            if !self.filter.is_empty() {
                command += &format!(" --bpf {}", word(&self.filter));
            }
            command
        };
        command += &format!(" --name {NAME} --ttl {MINUTES}m");
        command
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn command(view: View, row: &Value, tap: bool) -> String {
        Make::of(view, row, tap).unwrap().command()
    }

    #[test]
    fn of_a_flow_just_that_conversation() {
        let flow = json!({
            "interface": "red/eth0", "ifindex": 2, "protocol": "tcp", "vlans": [7],
            "a": {"address": "10.0.0.1", "port": 40000}, "b": {"address": "fd00::2", "port": 443},
        });
        assert_eq!(
            command(View::Flows, &flow, false),
            "skua capture create --gremlin 'G.V().Has(\"Type\", \"netns\").Has(\"Name\", \"red\")\
             .Out(\"Name\", \"eth0\").Has(\"IfIndex\", 2)' --bpf 'vlan 7 and tcp and host 10.0.0.1 \
             and port 40000 and host fd00::2 and port 443' --name top --ttl 10m"
        );
        let tap = Make::of(View::Flows, &flow, true).unwrap();
        assert_eq!(tap.body()["From"], json!(["eth0@red"]));
        assert_eq!(tap.body()["To"], json!(["stream"]));
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let row = json!({"interface": "x\")' ; rm", "netns": ""});
        let command = command(View::Interfaces, &row, false);
        assert!(
            command.contains(r#".Out("Name", "x\")'\'' ; rm")"#),
            "{command}"
        );
        let flow = json!({
            "interface": "lo", "protocol": "tcp", "a": {"address": "1 or 1"}, "b": {"address": "::1"},
        });
        assert!(Make::of(View::Flows, &flow, false).is_err());
    }

    #[test]
    fn sockets_and_nodes() {
        let socket =
            json!({"protocol": "tcp", "netns": 402, "local": {"address": "::", "port": 80}});
        let make = Make::of(View::Sockets, &socket, false).unwrap();
        assert_eq!(make.body()["BPFFilter"], "tcp port 80");
        assert_eq!(
            make.body()["GremlinQuery"],
            r#"G.V().Has("NetNsInode", 402).HasKey("IfIndex")"#
        );
        let host = json!({"Metadata": {"TID": "t", "Name": "h"}});
        assert!(Make::of(View::Topology, &host, false).is_err());
        assert!(Make::of(View::Services, &host, true).is_err());
    }
}
