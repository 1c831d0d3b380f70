//! An analyzer that watches no host itself: its flows are those of its agents, asked for in Gremlin, whose
//! names of fields are other ones.

use serde_json::{Value, json};

use crate::columns::text;

/// Whether a status is of somebody who watches no host.
pub fn watches_nothing(status: &Value) -> bool {
    status["rung"] == "" && !status["fleet"].is_null()
}

/// The query of the first `limit` flows; `filter` are steps that keep some of them.
pub fn flows_query(sort: &str, filter: &str, limit: usize) -> String {
    let key = match sort {
        "rate" => "LastUpdateMetric.BABytes",
        "packets" => "Metric.ABPackets",
        "last" => "Last",
        "start" => "Start",
        _ => "Metric.BABytes",
    };
    let filter = filter.trim_matches('.');
    let dot = if filter.is_empty() { "" } else { "." };
    format!(r#"G.Flows(){dot}{filter}.Sort(DESC, "{key}").Limit({limit})"#)
}

/// One end of a flow.
fn end(flow: &Value, side: &str) -> Value {
    let address = match &flow["Network"][side] {
        Value::Null => &flow["Link"][side],
        address => address,
    };
    let owner = &flow[side];
    json!({
        "address": address, "port": flow["Transport"][side], "process": owner["Process"],
        "pid": owner["PID"], "container": owner["Container"], "unit": owner["Unit"],
    })
}

/// Packets and bytes one way.
fn way(metric: &Value, way: &str) -> Value {
    let of = |what: &str| metric[format!("{way}{what}")].as_u64().unwrap_or(0);
    json!({"packets": of("Packets"), "bytes": of("Bytes")})
}

/// A flow of Gremlin under the names of flow records, as far as tables and captures need them; the rest
/// stays under its own.
pub fn flow(mut flow: Value) -> Value {
    let layers = text(&flow["LayersPath"]);
    let protocol = match flow["Transport"]["Protocol"].as_str() {
        Some(protocol) => protocol.to_ascii_lowercase(),
        None => layers
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase(),
    };
    let ms = |value: &Value| value.as_u64().unwrap_or(0);
    let last = &flow["LastUpdateMetric"];
    let bytes = ms(&last["ABBytes"]).saturating_add(ms(&last["BABytes"]));
    let passed = ms(&last["Last"]).saturating_sub(ms(&last["Start"]));
    let rate = match passed {
        0 => 0.0,
        passed => bytes as f64 * 8000.0 / passed as f64,
    };
    let duration = ms(&flow["Last"]).saturating_sub(ms(&flow["Start"]));
    let end_reason = match flow["FinishType"].as_u64() {
        Some(1) => Some("timeout"),
        Some(2) => Some("tcp_fin"),
        Some(3) => Some("tcp_rst"),
        _ => None,
    };
    let named = json!({
        "interface": format!("{}:{}", text(&flow["Host"]), text(&flow["Interface"])),
        "protocol": protocol,
        "a": end(&flow, "A"), "b": end(&flow, "B"),
        "ab": way(&flow["Metric"], "AB"), "ba": way(&flow["Metric"], "BA"),
        "duration": duration.saturating_mul(1_000_000),
        "rate": {"bits_per_second": rate},
        "id": flow["UUID"], "tcp": {"state": flow["TCPMetric"]["State"]},
        "end": end_reason, "community_id": flow["CommunityID"],
    });
    if let (Some(flow), Value::Object(named)) = (flow.as_object_mut(), named) {
        flow.extend(named);
    }
    flow
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::FLOW_COLUMNS;

    #[test]
    fn a_flow_of_an_agent_fills_the_same_columns() {
        let flow = flow(json!({
            "UUID": "u", "Host": "web1", "Interface": "eth0", "NodeTID": "t", "LayersPath": "Ethernet/IPv4/TCP",
            "Network": {"A": "10.0.0.1", "B": "10.0.0.2"},
            "Transport": {"Protocol": "TCP", "A": 40000, "B": 443},
            "A": {"Process": "curl"}, "Metric": {"ABPackets": 3, "ABBytes": 2048, "BABytes": 4096},
            "LastUpdateMetric": {"ABBytes": 1000, "BABytes": 250, "Start": 1000, "Last": 2000},
            "Start": 1000, "Last": 2500, "TCPMetric": {"State": "established"},
        }));
        let cells: Vec<_> = FLOW_COLUMNS.iter().map(|c| (c.cell)(&flow)).collect();
        assert_eq!(
            cells[..8],
            [
                "web1:eth0",
                "tcp",
                "10.0.0.1:40000",
                "10.0.0.2:443",
                "curl >",
                "10.0 kbit/s",
                "3",
                "2.0 KiB"
            ]
        );
        assert_eq!(cells[10], "1.5s");
        assert_eq!(
            flows_query("bytes", r#"Has("Network", "10.0.0.1")"#, 32),
            r#"G.Flows().Has("Network", "10.0.0.1").Sort(DESC, "Metric.BABytes").Limit(32)"#
        );
        assert!(watches_nothing(
            &json!({"rung": "", "fleet": {"agents": []}})
        ));
        assert!(!watches_nothing(&json!({"rung": "tc", "fleet": {}})));
    }
}
