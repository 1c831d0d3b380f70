//! The path of conversations: their capture points in order, and the loss between them.

use super::{Done, Flow, Run, Stage, flows::text, values::by_id};
use crate::{error::QueryError, filter::Filter, record::Record};
use hashbrown::HashMap;
use skua_topology::{Map, Value};
use std::{
    cmp::Reverse,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// First packets of a conversation at two places are the same packet if they are this close, in ns: less than the second
/// after which TCP sends a SYN again.
const SAME_BEGINNING: i64 = 900_000_000;
/// The same where it is not known since when places are watched: they may have begun with other packets.
const SAME_PACKET: i64 = 1_000_000;
/// A conversation that was seen so soon after its place was watched, in ns, may have begun before.
const AT_ONCE: i64 = 1_000_000_000;
/// Records between the same ports belong to one connection if they are no further apart than this, in ns: a place that did
/// not get the end of a refused connection has one record of two tries, and others have two.
const NEXT: i64 = 2_000_000_000;
/// When the last packet was seen so long ago, in ns, all places of a host have it and have been read since.
const SETTLED: i64 = 3_000_000_000;
/// The same where the places are of several hosts, whose agents report each at its own time.
const SETTLED_ELSEWHERE: i64 = 30_000_000_000;
/// For how long packets may be under way, in ms.
const UNDER_WAY: i64 = 500;
/// Records of what has ended so long ago, in ns, may not be there any more.
const KEPT: i64 = 590_000_000_000;

/// A conversation at a capture point.
struct Hop<'a> {
    flow: &'a Flow,
    node: Arc<str>,
    /// First and last packet, ns since the Unix epoch.
    start: i64,
    last: i64,
    /// Since when the place is watched, the same; 0: not known.
    since: i64,
    tcp: bool,
    /// Sides whose SYN was captured.
    opened: usize,
    /// Packets and bytes from A to B and back; the first capture point defines A and B.
    ab: [i64; 2],
    ba: [i64; 2],
    /// Packets of these that may not have been counted elsewhere yet.
    under_way: [i64; 2],
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

/// Now, in ns since the Unix epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}

impl<'a> Hop<'a> {
    fn of(flow: &'a Flow) -> Self {
        let start = flow.get("StartNs").and_then(|value| value.as_int());
        let count = |way: &str| {
            [
                int(flow, &format!("Metric.{way}Packets")),
                int(flow, &format!("Metric.{way}Bytes")),
            ]
        };
        let last = int(flow, "Last").saturating_mul(1_000_000);
        let read = |key: &str| int(flow, &format!("LastUpdateMetric.{key}"));
        // Readings follow one another quickly while others ask.
        let readings = UNDER_WAY / (read("Last") - read("Start")).clamp(10, UNDER_WAY);
        let lately = |way| read(way).saturating_mul(readings);
        Self {
            flow,
            node: text(&**flow, "NodeTID").unwrap_or_default(),
            start: start.unwrap_or_else(|| int(flow, "Start").saturating_mul(1_000_000)),
            last,
            since: int(flow, "PlaceSinceNs"),
            tcp: text(&**flow, "Transport.Protocol").as_deref() == Some("TCP"),
            opened: ["TCPMetric.ABSynStart", "TCPMetric.BASynStart"]
                .into_iter()
                .filter(|key| flow.has(key))
                .count(),
            ab: count("AB"),
            ba: count("BA"),
            under_way: ["ABPackets", "BAPackets"].map(lately),
        }
    }

    /// Ends what may be under way long after the last packet.
    fn settle(&mut self, before: i64) {
        if self.last < before {
            self.under_way = [0; 2];
        }
    }

    fn packets(&self) -> i64 {
        self.ab[0].saturating_add(self.ba[0])
    }

    fn turn(&mut self) {
        std::mem::swap(&mut self.ab, &mut self.ba);
        self.under_way.reverse();
    }

    /// Adds a later record of the same connection at the same place.
    fn add(&mut self, other: &Self) {
        let turned = side_a(other.flow) != side_a(self.flow);
        let (ab, ba, [ab_under_way, ba_under_way]) = match turned {
            true => (other.ba, other.ab, [other.under_way[1], other.under_way[0]]),
            false => (other.ab, other.ba, other.under_way),
        };
        for at in 0..2 {
            self.ab[at] = self.ab[at].saturating_add(ab[at]);
            self.ba[at] = self.ba[at].saturating_add(ba[at]);
        }
        self.under_way[0] += ab_under_way;
        self.under_way[1] += ba_under_way;
        self.last = self.last.max(other.last);
        self.opened = self.opened.max(other.opened);
    }

    /// Whether the difference to the hop before is loss on the way: both must have been watched when the first packet of
    /// the conversation passed, and all of its records must be there.
    fn compares_with(&self, before: &Self, now: i64) -> bool {
        let apart = self.start - before.start;
        let opened = self.tcp && self.opened > 0 && self.opened == before.opened;
        let known = self.since != 0 && before.since != 0;
        let watched = |hop: &Self, from: i64| known && from - hop.since >= AT_ONCE;
        self.node != before.node
            && match apart {
                // Both saw the same SYN.
                0..SAME_BEGINNING if opened => true,
                0..SAME_BEGINNING if known => {
                    watched(self, self.start) && watched(before, before.start)
                }
                0..=SAME_PACKET => true,
                // The first packet was lost between them.
                _ => opened && watched(self, before.start) && before.start > now - KEPT,
            }
    }
}

/// The most of a difference that cannot be under way.
fn certain(lost: i64, under_way: [i64; 2]) -> i64 {
    match lost {
        0.. => (lost - under_way[0]).max(0),
        _ => (lost + under_way[1]).min(0),
    }
}

/// Joins the records of each connection at each place, and orders the places. A list for each connection, the oldest first.
fn connections(mut hops: Vec<Hop<'_>>) -> Vec<Vec<Hop<'_>>> {
    hops.sort_by_key(|hop| hop.start);
    let mut connections: Vec<Vec<Hop<'_>>> = Vec::new();
    // Places of the latest connection by capture and flow; other tags or tunnels are of packets on another way.
    let mut places: HashMap<[Arc<str>; 3], usize> = HashMap::new();
    let mut end = i64::MIN;
    for hop in hops {
        if connections.is_empty() || hop.start > end.saturating_add(NEXT) {
            connections.push(Vec::new());
            places.clear();
            end = hop.last;
        }
        end = end.max(hop.last);
        let Some(connection) = connections.last_mut() else {
            continue;
        };
        let key = |key: &str| text(&**hop.flow, key).unwrap_or_default();
        match places.entry([hop.node.clone(), key("CaptureID"), key("UUID")]) {
            hashbrown::hash_map::Entry::Occupied(place) => connection[*place.get()].add(&hop),
            hashbrown::hash_map::Entry::Vacant(place) => {
                place.insert(connection.len());
                connection.push(hop);
            }
        }
    }
    for connection in &mut connections {
        // Of several captures on a node the one that saw most.
        connection.sort_by_key(|hop| (hop.node.clone(), Reverse(hop.packets())));
        connection.dedup_by(|a, b| !a.node.is_empty() && a.node == b.node);
        connection.sort_by_key(|hop| hop.start);
        if let Some(a) = connection.first().map(|first| side_a(first.flow)) {
            let turned = |hop: &&mut Hop<'_>| side_a(hop.flow) != a;
            connection.iter_mut().filter(turned).for_each(Hop::turn);
        }
    }
    connections
}

impl Run<'_> {
    /// A map for each hop, by conversation.
    pub(super) fn flow_paths(&self, flows: &[Flow]) -> Done<Stage> {
        let now = now();
        let keyed = flows.iter().filter_map(|flow| {
            let id = text(&**flow, "TrackingID")?;
            Some((id, Hop::of(flow)))
        });
        let mut all = Vec::new();
        for (id, hops) in by_id(keyed) {
            for mut hops in connections(hops) {
                let host = |hop: &Hop<'_>| text(&**hop.flow, "Host");
                let one = hops.windows(2).all(|pair| host(&pair[0]) == host(&pair[1]));
                let settled = if one { SETTLED } else { SETTLED_ELSEWHERE };
                hops.iter_mut().for_each(|hop| hop.settle(now - settled));
                for (place, hop) in hops.iter().enumerate() {
                    if self.budget.hold(all.len()).is_break() {
                        self.budget.check()?;
                    }
                    let before = place.checked_sub(1).map(|place| &hops[place]);
                    let before = before.filter(|before| hop.compares_with(before, now));
                    all.push((id.clone(), self.hop(hop, before, place)?));
                }
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
        if let Some(before) = before {
            let delay = (hop.start - before.start) / 1_000;
            let [ab, ba] = [0, 1].map(|way| (before.under_way[way], hop.under_way[way]));
            let lost_ab = certain(before.ab[0] - hop.ab[0], [ab.0, ab.1]);
            // Packets in this direction pass the hops in reverse order.
            let lost_ba = certain(hop.ba[0] - before.ba[0], [ba.1, ba.0]);
            entries.push(("DelayUs".into(), Value::Int(delay)));
            entries.push(("LostAB".into(), Value::Int(lost_ab)));
            entries.push(("LostBA".into(), Value::Int(lost_ba)));
        }
        Ok(Map::new(entries).into())
    }
}
