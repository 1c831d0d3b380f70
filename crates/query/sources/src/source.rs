//! The flows of all captures as one source of queries.

use crate::Wanted;
use crate::flow::{FlowView, KeptFlow};
use skua_flow::{Counters, FlowRecord as FlowSums};
use skua_query::{FlowLookup, FlowRecord, FlowSource, FlowTime, RawPacket, SourceError};
use skua_state::FlowPlace;
use skua_topology::{IndexKey, Map, Value};
use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
};

/// Places of a store that are read under one lock.
const PART: u32 = 1_024;

/// For how long a flow that has ended still counts as one of now, in ms after its last packet.
pub const SHOWN: i64 = 600_000;

/// A flow still goes on so long after a packet, in ms, when there is none before the moment that is
/// asked for.
const STILL: i64 = 60_000;

/// How far before now a moment may lie and still be now, in ms.
const NOW: i64 = 2_000;

/// The flows of a capture on a host.
pub trait FlowSet: Send + Sync {
    /// Visits the wanted flows in the places from `from` on, at most so many places, as
    /// [`skua_flow::FlowStore::scan`]. The visitor must not ask the set: it may be locked meanwhile.
    fn scan(
        &self,
        from: u32,
        places: u32,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32>;

    /// Whether a flow that was captured at `place` is one of these.
    fn owns(&self, place: &FlowPlace) -> bool;

    /// The packets that are kept of a flow, by position.
    fn raw_packets(&self, record: &FlowSums) -> Vec<RawPacket>;

    /// How many that are.
    fn raw_packet_count(&self, record: &FlowSums) -> usize {
        self.raw_packets(record).len()
    }

    /// From when until when (ns since the Unix epoch) all flows that there ever were are in it, if that is so.
    fn whole(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Takes what was added to a flow: the record after it, from when until when (ns since the Unix epoch),
/// and the counters of `lo` and `hi`.
pub type VisitChange<'a> =
    &'a mut dyn FnMut(&FlowSums, (u64, u64), [Counters; 2]) -> ControlFlow<()>;

/// Takes host, interface, and the times of the first and last packet (ns since the Unix epoch) of a flow that a capture
/// has seen.
pub type VisitCaptured<'a> = &'a mut dyn FnMut(&str, &str, (u64, u64));

/// The history of flows.
pub trait FlowPast: Send + Sync {
    /// Visits each wanted flow that was active in the time from and to (ns since the Unix epoch) once, with its
    /// sums up to its end.
    fn scan(
        &self,
        from: u64,
        to: u64,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    );

    /// Visits each flow that a capture has seen in that time.
    fn captured(&self, from: u64, to: u64, visit: VisitCaptured<'_>);

    /// Visits what was added to a flow in a time, oldest first: from when, until when, what.
    fn changes(
        &self,
        record: &FlowSums,
        place: &FlowPlace,
        time: (u64, u64),
        visit: VisitChange<'_>,
    );
}

/// Flows of several captures, and of what is always watched: where a capture runs, its flows stand for those, so that
/// no packet counts twice and its filter holds.
pub struct Flows {
    sets: Vec<Arc<dyn FlowSet>>,
    past: Option<Arc<dyn FlowPast>>,
    now: i64,
    /// `TID`s of nodes that are captured on now.
    captured: HashSet<Box<str>>,
    /// Whether only flows of captures are shown.
    on_demand: bool,
}

/// Ns since the Unix epoch.
fn ns(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

/// Ms since the Unix epoch.
fn ms(ns: u64) -> i64 {
    (ns / 1_000_000) as i64
}

/// Changes of a flow in one answer at most.
const CHANGES: usize = 100_000;

/// Counters over a time, as Skydive has them.
fn metric(from: u64, to: u64, [ab, ba]: [Counters; 2]) -> Value {
    let int = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    Map::from([
        ("ABPackets", int(ab.packets)),
        ("ABBytes", int(ab.bytes)),
        ("BAPackets", int(ba.packets)),
        ("BABytes", int(ba.bytes)),
        ("Start", int(from / 1_000_000)),
        ("Last", int(to / 1_000_000)),
    ])
    .into()
}

impl Flows {
    /// The flows of these sets; `now` in ms since the Unix epoch.
    pub fn new(sets: Vec<Arc<dyn FlowSet>>, past: Option<Arc<dyn FlowPast>>, now: i64) -> Self {
        Self {
            sets,
            past,
            now,
            captured: HashSet::new(),
            on_demand: false,
        }
    }

    /// Captures run on the nodes with these `TID`s.
    pub fn captured_on(mut self, nodes: HashSet<Box<str>>) -> Self {
        self.captured = nodes;
        self
    }

    /// Shows flows of captures only.
    pub fn on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = on_demand;
        self
    }

    /// Whether the flow is always watched, and something else stands for it.
    fn is_refined(&self, flow: &FlowView<'_>, refined: impl FnOnce() -> bool) -> bool {
        flow.place.capture.is_empty() && (self.on_demand || refined())
    }

    fn shown(&self, flow: &FlowView<'_>, time: FlowTime) -> bool {
        let record = flow.record;
        match time {
            None => record.end.is_none() || ms(record.last_ns) >= self.now - SHOWN,
            Some((from, to)) => ms(record.first_ns) <= to && ms(record.last_ns) >= from,
        }
    }
}

/// Captures give times of their own: the same packets may differ by so much, in ns.
const CLOCKS: u64 = 1_000_000_000;

/// When captures have seen flows, by host and interface.
#[derive(Default)]
struct CapturedThen(HashMap<Box<str>, Interfaces>);

/// From when until when, by interface.
type Interfaces = HashMap<Box<str>, (u64, u64)>;

impl CapturedThen {
    fn read(past: &dyn FlowPast, from: u64, to: u64) -> Self {
        let mut this = Self::default();
        past.captured(from, to, &mut |host, interface, (first, last)| {
            let interfaces = match this.0.get_mut(host) {
                Some(interfaces) => interfaces,
                None => this.0.entry(host.into()).or_default(),
            };
            match interfaces.get_mut(interface) {
                Some(span) => *span = (span.0.min(first), span.1.max(last)),
                None => drop(interfaces.insert(interface.into(), (first, last))),
            }
        });
        this
    }

    /// Whether a flow had packets while its interface was captured on.
    fn has(&self, flow: &FlowView<'_>) -> bool {
        let interfaces = self.0.get(&*flow.place.host);
        let span = interfaces.and_then(|interfaces| interfaces.get(&flow.place.interface));
        span.is_some_and(|(first, last)| {
            flow.record.first_ns <= last.saturating_add(CLOCKS)
                && flow.record.last_ns >= first.saturating_sub(CLOCKS)
        })
    }
}

impl Flows {
    /// Packets that are kept of a flow.
    fn raw_packet_count(&self, flow: &FlowView<'_>) -> usize {
        let set = self.sets.iter().find(|set| set.owns(flow.place));
        set.map_or(0, |set| set.raw_packet_count(flow.record))
    }
}

impl FlowSource for Flows {
    fn flows(
        &self,
        lookup: FlowLookup<'_>,
        time: FlowTime,
        visit: &mut dyn FnMut(&dyn FlowRecord) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        let wanted = match lookup {
            FlowLookup::All => Wanted::All,
            FlowLookup::Key(key, value) => Wanted::by(key, value)
                .ok_or_else(|| SourceError(format!("flows have no index on {key}")))?,
        };
        if let (Some((from, to)), Some(past)) = (time, &self.past) {
            // A moment shows what was going on then: packets come seldom, and drains more seldom.
            let from = if from == to { to - STILL } else { from };
            let (from, to) = (ns(from), ns(to));
            let captured = match self.on_demand {
                true => CapturedThen::default(),
                false => CapturedThen::read(&**past, from, to),
            };
            past.scan(from, to, &wanted, &mut |flow| {
                if self.is_refined(flow, || captured.has(flow)) {
                    return ControlFlow::Continue(());
                }
                // The history has no packets, but a capture that still runs may have those of the flow.
                let raw_packets = match flow.place.capture.is_empty() {
                    true => 0,
                    false => self.raw_packet_count(flow),
                };
                visit(&FlowView {
                    raw_packets,
                    ..*flow
                })
            });
            return Ok(());
        }
        // Of a time before, only those sets can answer that have all flows of it.
        let (mut sets, mut time): (Vec<_>, _) = (self.sets.iter().collect(), time);
        if let Some((from, to)) = time
            && to < self.now - NOW
        {
            let from = if from == to { to - STILL } else { from };
            time = Some((from, to));
            sets.retain(|set| {
                let whole = set.whole();
                whole.is_some_and(|(first, last)| ms(first) <= to && ms(last) >= from)
            });
            if sets.is_empty() {
                return Err(SourceError(
                    "flows of the past are not kept: set history.directory; those up to now can be asked for"
                        .into(),
                ));
            }
        }
        for set in sets {
            let (mut from, mut ended) = (Some(0), false);
            while let Some(next) = from {
                from = set.scan(next, PART, &wanted, &mut |flow| {
                    let shown = self.shown(flow, time)
                        && !self.is_refined(flow, || self.captured.contains(&flow.place.node));
                    if shown && visit(flow).is_break() {
                        ended = true;
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
            }
            if ended {
                break;
            }
        }
        Ok(())
    }

    fn estimate(&self, key: &str, value: &IndexKey) -> Option<usize> {
        // No index, but only the record is read instead of all that is known of the flow.
        Wanted::by(key, value)?.estimate()
    }

    fn metrics(
        &self,
        flow: &dyn FlowRecord,
        (from, to): (i64, i64),
    ) -> Result<Vec<Value>, SourceError> {
        let kept = flow.kept().and_then(|kept| kept.downcast_ref::<KeptFlow>());
        let (Some(past), Some(flow)) = (&self.past, kept.map(KeptFlow::view)) else {
            // Only sums are known.
            return Ok(flow.get("Metric").into_iter().collect());
        };
        let mut metrics = Vec::new();
        let time = (ns(from), ns(to));
        past.changes(
            flow.record,
            flow.place,
            time,
            &mut |record, (from, to), added| {
                metrics.push(metric(from, to, record.by_a(added)));
                match metrics.len() < CHANGES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            },
        );
        if metrics.len() >= CHANGES {
            return Err(SourceError(format!(
                "a flow has more than {CHANGES} changes in that time; ask for less of it"
            )));
        }
        Ok(metrics)
    }

    fn raw_packets(
        &self,
        flow: &dyn FlowRecord,
        time: FlowTime,
    ) -> Result<Vec<RawPacket>, SourceError> {
        let kept = flow.kept().and_then(|kept| kept.downcast_ref::<KeptFlow>());
        let Some(flow) = kept.map(KeptFlow::view) else {
            return Ok(Vec::new());
        };
        let set = self.sets.iter().find(|set| set.owns(flow.place));
        let mut packets = set
            .map(|set| set.raw_packets(flow.record))
            .unwrap_or_default();
        if let Some((from, to)) = time {
            packets.retain(|p| p.timestamp <= to && (from == to || p.timestamp >= from));
        }
        Ok(packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::{FlowKey, FlowUpdate};

    const SECOND: u64 = 1_000_000_000;

    /// A flow, and where it was seen.
    #[derive(Clone)]
    struct Seen(FlowSums, Arc<FlowPlace>);

    fn seen(interface: &str, capture: &str, seconds: u64) -> Seen {
        let update = FlowUpdate {
            key: FlowKey::default(),
            first_ns: seconds * SECOND,
            last_ns: (seconds + 1) * SECOND,
            ..FlowUpdate::default()
        };
        let place = FlowPlace {
            host: "here".into(),
            capture: capture.into(),
            interface: interface.into(),
            node: interface.into(),
            since_ns: 0,
        };
        Seen(FlowSums::new(&update, 1, 1, 0, 0), Arc::new(place))
    }

    #[derive(Clone)]
    struct Set(Vec<Seen>);

    impl Set {
        fn each(&self, visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>) {
            let _ = self.0.iter().try_for_each(|Seen(record, place)| {
                visit(&FlowView {
                    record,
                    place,
                    parties: Default::default(),
                    raw_packets: 0,
                })
            });
        }
    }

    /// As a capture that runs and keeps packets.
    struct Keeping(Set, usize);

    impl FlowSet for Keeping {
        fn scan(
            &self,
            from: u32,
            places: u32,
            wanted: &Wanted,
            visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
        ) -> Option<u32> {
            FlowSet::scan(&self.0, from, places, wanted, visit)
        }

        fn owns(&self, place: &FlowPlace) -> bool {
            self.0.0.iter().any(|seen| *seen.1 == *place)
        }

        fn raw_packets(&self, _: &FlowSums) -> Vec<RawPacket> {
            let packet = RawPacket {
                timestamp: 100_000,
                time_ns: 100 * SECOND,
                index: 0,
                length: 60,
                data: Arc::new([0; 60]),
                link_type: 1,
            };
            vec![packet; self.1]
        }
    }

    #[test]
    fn flows_of_the_past_have_the_packets_that_a_capture_keeps() {
        let captured = || Set(vec![seen("eth0", "c", 100)]);
        let sets: Vec<Arc<dyn FlowSet>> = vec![Arc::new(Keeping(captured(), 3))];
        let flows = Flows::new(sets, Some(Arc::new(captured())), 102_000);
        let mut kept = Vec::new();
        flows
            .flows(FlowLookup::All, Some((0, 102_000)), &mut |flow| {
                kept.push(flow.get("RawPacketsCaptured"));
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(kept, [Some(3.into())]);
    }

    impl FlowSet for Set {
        fn scan(
            &self,
            _: u32,
            _: u32,
            _: &Wanted,
            visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
        ) -> Option<u32> {
            self.each(visit);
            None
        }

        fn owns(&self, _: &FlowPlace) -> bool {
            false
        }

        fn raw_packets(&self, _: &FlowSums) -> Vec<RawPacket> {
            Vec::new()
        }
    }

    impl FlowPast for Set {
        fn scan(
            &self,
            _: u64,
            _: u64,
            _: &Wanted,
            visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
        ) {
            self.each(visit);
        }

        fn captured(&self, _: u64, _: u64, visit: VisitCaptured<'_>) {
            let captured = self.0.iter().filter(|seen| !seen.1.capture.is_empty());
            for Seen(record, place) in captured {
                let time = (record.first_ns, record.last_ns);
                visit(&place.host, &place.interface, time);
            }
        }

        fn changes(&self, _: &FlowSums, _: &FlowPlace, _: (u64, u64), _: VisitChange<'_>) {}
    }

    /// Of each flow that is shown its node, with a `*` when a capture has it.
    fn shown(flows: &Flows, time: FlowTime) -> Vec<String> {
        let mut found = Vec::new();
        flows
            .flows(FlowLookup::All, time, &mut |flow| {
                let node = flow.get("NodeTID");
                let node = node.as_ref().and_then(Value::as_str).unwrap_or_default();
                let mark = if flow.has("CaptureID") { "*" } else { "" };
                found.push(format!("{node}{mark}"));
                ControlFlow::Continue(())
            })
            .unwrap();
        found.sort();
        found
    }

    #[test]
    fn where_a_capture_runs_its_flows_stand_for_those_that_are_always_watched() {
        let always = Set(vec![seen("eth0", "", 100), seen("eth1", "", 100)]);
        let before = seen("eth0", "", 10);
        let captured = Set(vec![seen("eth0", "c", 100)]);
        let flows = |past: Option<Set>| {
            let past = past.map(|past| Arc::new(past) as Arc<dyn FlowPast>);
            let sets: Vec<Arc<dyn FlowSet>> =
                vec![Arc::new(always.clone()), Arc::new(captured.clone())];
            Flows::new(sets, past, 102_000)
        };
        let now = flows(None).captured_on(HashSet::from(["eth0".into()]));
        assert_eq!(shown(&now, None), ["eth0*", "eth1"]);
        // A capture that does not run yet hides nothing.
        assert_eq!(shown(&flows(None), None), ["eth0", "eth0*", "eth1"]);
        assert_eq!(shown(&flows(None).on_demand(true), None), ["eth0*"]);
        let all = [always.0.clone(), captured.0.clone(), vec![before]].concat();
        let then = Some((0, 102_000));
        let past = flows(Some(Set(all.clone())));
        // What was before the capture stays.
        assert_eq!(shown(&past, then), ["eth0", "eth0*", "eth1"]);
        assert_eq!(
            shown(&flows(Some(Set(all))).on_demand(true), then),
            ["eth0*"]
        );
    }
}
