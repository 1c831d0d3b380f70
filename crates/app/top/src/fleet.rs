//! An analyzer that watches no host itself: its agents' flows are queried in Gremlin, which has other
//! names of fields.

use serde_json::{Value, json};
use skua_flow::fields::{FIELDS, FieldType};

use crate::columns::text;

/// Whether a status is of a process that watches no host.
pub fn watches_nothing(status: &Value) -> bool {
    status["rung"] == "" && !status["fleet"].is_null()
}

/// The query of the first `limit` flows; `filter` are steps that keep some of them.
pub fn flows_query(sort: &str, filter: &str, limit: usize) -> String {
    let key = match sort {
        "rate" => "LastUpdateMetric.BABytes",
        "packets" => "Metric.ABPackets",
        "rtt" => "TCPMetric.HandshakeRTT",
        "retransmits" => "TCPMetric.ABSegmentRetransmitted",
        "last" => "Last",
        "start" => "Start",
        _ => "Metric.BABytes",
    };
    let filter = filter.trim_matches('.');
    let dot = if filter.is_empty() { "" } else { "." };
    format!(r#"G.Flows(){dot}{filter}.Sort(DESC, "{key}").Limit({limit})"#)
}

/// The value under a path of names with dots between them.
fn at<'a>(tree: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(tree, |inner, name| &inner[name])
}

/// Sets it in a tree that has only objects on the way.
fn put(tree: &mut Value, path: &str, value: Value) {
    let place = path.split('.').fold(tree, |inner, name| &mut inner[name]);
    *place = value;
}

/// A flow of Gremlin under the names of flow records: values that are the same there by the definition of their fields,
/// those in Skydive's form converted one by one. Other values keep their names.
pub fn flow(mut flow: Value) -> Value {
    let mut named = json!({});
    let same = FIELDS.iter().filter(|field| field.kind != FieldType::Time);
    for (path, key) in same.filter_map(|field| Some((field.path, field.key.of_value()?))) {
        let value = at(&flow, key);
        if !value.is_null() {
            put(&mut named, path, value.clone());
        }
    }
    for (side, letter) in [("a", "A"), ("b", "B")] {
        let address = match &flow["Network"][letter] {
            Value::Null => &flow["Link"][letter],
            address => address,
        };
        named[side]["address"] = address.clone();
        named[side]["port"] = flow["Transport"][letter].clone();
    }
    let layers = text(&flow["LayersPath"]);
    let innermost = layers.rsplit('/').next().unwrap_or_default();
    let protocol = flow["Transport"]["Protocol"].as_str().unwrap_or(innermost);
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let last = &flow["LastUpdateMetric"];
    let bytes = number(&last["ABBytes"]).saturating_add(number(&last["BABytes"]));
    let rate = match number(&last["Last"]).saturating_sub(number(&last["Start"])) {
        0 => 0.0,
        passed => bytes as f64 * 8000.0 / passed as f64,
    };
    let end = match flow["FinishType"].as_u64() {
        Some(1) => Some("timeout"),
        Some(2) => Some("tcp_fin"),
        Some(3) => Some("tcp_rst"),
        _ => None,
    };
    named["protocol"] = protocol.to_ascii_lowercase().into();
    named["interface"] = format!("{}:{}", text(&flow["Host"]), text(&flow["Interface"])).into();
    named["rate"] = json!({"bits_per_second": rate});
    named["end"] = json!(end);
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
            "A": {"Process": "curl"}, "Metric": {"ABPackets": 3, "ABBytes": 2048, "BAPackets": 0, "BABytes": 4096},
            "LastUpdateMetric": {"ABBytes": 1000, "BABytes": 250, "Start": 1000, "Last": 2000},
            "Start": 1000, "Last": 2500, "Duration": 1_500_000_000u64, "TCPMetric": {"State": "established"},
        }));
        let cells: Vec<_> = FLOW_COLUMNS.iter().map(|c| (c.cell)(&flow)).collect();
        assert_eq!(
            cells[..8],
            [
                "curl >",
                "tcp",
                "10.0.0.1:40000",
                "10.0.0.2:443",
                "10.0 kbit/s",
                "2.0 KiB",
                "4.0 KiB",
                "1.5s"
            ]
        );
        assert_eq!((&*cells[13], &*cells[14]), ("web1:eth0", "3"));
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
