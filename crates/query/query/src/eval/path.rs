//! The path of conversations: their capture points in order, and the loss between them.

use super::{Done, Flow, Run, Stage, flows::text, values::by_id};
use crate::{error::QueryError, filter::Filter, record::Record};
use skua_topology::{Map, Value};
use std::{cmp::Reverse, sync::Arc};

/// Two capture points saw the same beginning if their first packets are this close, in ns: only then
/// can the loss between them be computed.
const SAME_BEGINNING: i64 = 1_000_000_000;
/// The same for a connection whose handshake one of them did not see: both must have begun with the same packet, as points
/// are not watched from the same moment on.
const SAME_PACKET: i64 = 1_000_000;

/// A conversation at a capture point.
struct Hop<'a> {
    flow: &'a Flow,
    node: Arc<str>,
    /// First packet, ns since the Unix epoch.
    start: i64,
    tcp: bool,
    /// Sides whose SYN was captured.
    opened: usize,
    /// Packets and bytes from A to B and back; the first capture point defines A and B.
    ab: [i64; 2],
    ba: [i64; 2],
}

fn int(flow: &Flow, key: &str) -> i64 {
    flow.get(key)
        .and_then(|value| value.as_int())
        .unwrap_or_default()
}

/// The A side of a flow, to compare it with another flow's.
fn side_a(flow: &Flow) -> [Option<Value>; 2] {
    match flow.get("Network.A") {
        Some(address) => [Some(address), flow.get("Transport.A")],
        None => [flow.get("Link.A"), None],
    }
}

impl<'a> Hop<'a> {
    fn of(flow: &'a Flow) -> Self {
        let ns = flow.get("StartNs").and_then(|value| value.as_int());
        let count = |way: &str| {
            [
                int(flow, &format!("Metric.{way}Packets")),
                int(flow, &format!("Metric.{way}Bytes")),
            ]
        };
        Self {
            flow,
            node: text(&**flow, "NodeTID").unwrap_or_default(),
            start: ns.unwrap_or_else(|| int(flow, "Start").saturating_mul(1_000_000)),
            tcp: text(&**flow, "Transport.Protocol").as_deref() == Some("TCP"),
            opened: ["TCPMetric.ABSynStart", "TCPMetric.BASynStart"]
                .into_iter()
                .filter(|key| flow.has(key))
                .count(),
            ab: count("AB"),
            ba: count("BA"),
        }
    }

    fn packets(&self) -> i64 {
        self.ab[0].saturating_add(self.ba[0])
    }

    /// Whether the difference to the hop before is loss on the way. A connection that began before one of both was watched
    /// has lost nothing there.
    fn compares_with(&self, before: &Self) -> bool {
        let apart = match self.tcp {
            true => SAME_PACKET,
            false => SAME_BEGINNING,
        };
        // Who saw the SYN+ACK alone was watched too late for the SYN.
        let opened = self.opened > 0 && self.opened == before.opened;
        let half_seen = self.opened != before.opened && self.start != before.start;
        self.node != before.node && (opened || (!half_seen && self.start - before.start <= apart))
    }
}

impl Run<'_> {
    /// A map for each hop, by conversation.
    pub(super) fn flow_paths(&self, flows: &[Flow]) -> Done<Stage> {
        let keyed = flows.iter().filter_map(|flow| {
            let id = text(&**flow, "TrackingID")?;
            Some((id, Hop::of(flow)))
        });
        let mut all = Vec::new();
        for (id, mut hops) in by_id(keyed) {
            // Of several captures on a node the one that saw most.
            hops.sort_by_key(|hop| (hop.node.clone(), Reverse(hop.packets())));
            hops.dedup_by(|a, b| !a.node.is_empty() && a.node == b.node);
            hops.sort_by_key(|hop| hop.start);
            if let Some(a) = hops.first().map(|first| side_a(first.flow)) {
                for hop in &mut hops {
                    if side_a(hop.flow) != a {
                        std::mem::swap(&mut hop.ab, &mut hop.ba);
                    }
                }
            }
            for (place, hop) in hops.iter().enumerate() {
                if self.budget.hold(all.len()).is_break() {
                    self.budget.check()?;
                }
                let before = place.checked_sub(1).map(|place| &hops[place]);
                all.push((id.clone(), self.hop(hop, before, place)?));
            }
        }
        Ok(Stage::Sockets(by_id(all)))
    }

    fn hop(
        &self,
        hop: &Hop<'_>,
        before: Option<&Hop<'_>>,
        place: usize,
    ) -> Result<Value, QueryError> {
        let mut entries: Vec<(Arc<str>, Value)> = vec![
            ("Hop".into(), Value::Int(place as i64 + 1)),
            ("ABPackets".into(), Value::Int(hop.ab[0])),
            ("ABBytes".into(), Value::Int(hop.ab[1])),
            ("BAPackets".into(), Value::Int(hop.ba[0])),
            ("BABytes".into(), Value::Int(hop.ba[1])),
            ("Start".into(), Value::Int(hop.start / 1_000_000)),
        ];
        for key in [
            "UUID",
            "NodeTID",
            "CaptureID",
            "Host",
            "Interface",
            "LayersPath",
        ] {
            entries.extend(hop.flow.get(key).map(|value| (key.into(), value)));
        }
        if !hop.node.is_empty() {
            let every = Filter::default();
            let node = self.first_node("TID", &hop.node, &every)?;
            let name = node.and_then(|node| node.item.get("Name"));
            entries.extend(name.map(|name| ("Node".into(), name)));
        }
        if let Some(before) = before.filter(|before| hop.compares_with(before)) {
            let delay = (hop.start - before.start) / 1_000;
            entries.push(("DelayUs".into(), Value::Int(delay)));
            entries.push(("LostAB".into(), Value::Int(before.ab[0] - hop.ab[0])));
            // Packets in this direction pass the hops in reverse order.
            entries.push(("LostBA".into(), Value::Int(hop.ba[0] - before.ba[0])));
        }
        Ok(Map::new(entries).into())
    }
}
