//! The flows of all captures as one source of queries.

use crate::Wanted;
use crate::flow::{FlowPlace, FlowView, KeptFlow};
use skua_flow::{Counters, FlowRecord as FlowSums};
use skua_query::{FlowLookup, FlowRecord, FlowSource, FlowTime, RawPacket, SourceError};
use skua_topology::{IndexKey, Map, Value};
use std::{ops::ControlFlow, sync::Arc};

/// Flows that are looked at under one lock.
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
}

/// Takes what was added to a flow: the record after it, from when until when (ns since the Unix epoch),
/// and the counters of `lo` and `hi`.
pub type VisitChange<'a> =
    &'a mut dyn FnMut(&FlowSums, (u64, u64), [Counters; 2]) -> ControlFlow<()>;

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

    /// Visits what was added to a flow in a time, oldest first: from when, until when, what.
    fn changes(
        &self,
        record: &FlowSums,
        place: &FlowPlace,
        time: (u64, u64),
        visit: VisitChange<'_>,
    );
}

/// Flows of several captures.
pub struct Flows {
    sets: Vec<Arc<dyn FlowSet>>,
    past: Option<Arc<dyn FlowPast>>,
    now: i64,
}

/// Ns since the Unix epoch.
fn ns(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
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
        Self { sets, past, now }
    }

    fn shown(&self, flow: &FlowView<'_>, time: FlowTime) -> bool {
        let ms = |ns: u64| (ns / 1_000_000) as i64;
        let record = flow.record;
        match time {
            None => record.end.is_none() || ms(record.last_ns) >= self.now - SHOWN,
            Some((from, to)) => ms(record.first_ns) <= to && ms(record.last_ns) >= from,
        }
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
            past.scan(ns(from), ns(to), &wanted, &mut |flow| visit(flow));
            return Ok(());
        }
        if let Some((_, to)) = time
            && to < self.now - NOW
        {
            return Err(SourceError(
                "flows of the past are not kept: set history.directory; those up to now can be asked for"
                    .into(),
            ));
        }
        for set in &self.sets {
            let (mut from, mut ended) = (Some(0), false);
            while let Some(next) = from {
                from = set.scan(next, PART, &wanted, &mut |flow| {
                    if self.shown(flow, time) && visit(flow).is_break() {
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
        // No index, but a look at the record alone instead of at all that is known of the flow.
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
