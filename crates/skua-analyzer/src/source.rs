//! The flows of all captures as one source of queries.

use crate::flow::{FlowPlace, FlowView, KeptFlow};
use skua_flow::FlowRecord as FlowSums;
use skua_query::{FlowLookup, FlowRecord, FlowSource, FlowTime, RawPacket, Record, SourceError};
use skua_topology::{IndexKey, Value};
use std::{ops::ControlFlow, sync::Arc};

/// Flows that are looked at under one lock.
const PART: u32 = 4_096;

/// For how long a flow that has ended still counts as one of now, in ms after its last packet.
pub const SHOWN: i64 = 600_000;

/// How far before now a moment may lie and still be now, in ms.
const NOW: i64 = 2_000;

/// The flows of a capture on a host.
pub trait FlowSet: Send + Sync {
    /// Visits the flows in the places from `from` on, at most so many, as
    /// [`skua_flow::FlowStore::scan`]. The visitor must not ask the set: it may be locked meanwhile.
    fn scan(
        &self,
        from: u32,
        places: u32,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32>;

    /// Whether a flow that was captured at `place` is one of these.
    fn owns(&self, place: &FlowPlace) -> bool;

    /// The packets that are kept of a flow, by position.
    fn raw_packets(&self, record: &FlowSums) -> Vec<RawPacket>;
}

/// Flows of several captures.
pub struct Flows {
    sets: Vec<Arc<dyn FlowSet>>,
    now: i64,
}

impl Flows {
    /// The flows of these sets; `now` in ms since the Unix epoch.
    pub fn new(sets: Vec<Arc<dyn FlowSet>>, now: i64) -> Self {
        Self { sets, now }
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

/// The value is right, whatever kind it is compared as.
fn equals(flow: &FlowView<'_>, key: &str, value: &IndexKey) -> bool {
    flow.leaves(key, &mut |leaf| {
        IndexKey::of(&leaf.to_value()).as_ref() == Some(value)
    })
}

impl FlowSource for Flows {
    fn flows(
        &self,
        lookup: FlowLookup<'_>,
        time: FlowTime,
        visit: &mut dyn FnMut(&dyn FlowRecord) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        if let Some((_, to)) = time
            && to < self.now - NOW
        {
            return Err(SourceError(
                "flows of the past are not kept here; those up to now can be asked for".into(),
            ));
        }
        for set in &self.sets {
            let (mut from, mut ended) = (Some(0), false);
            while let Some(next) = from {
                from = set.scan(next, PART, &mut |flow| {
                    let wanted = match lookup {
                        FlowLookup::All => true,
                        FlowLookup::Key(key, value) => equals(flow, key, value),
                    };
                    if wanted && self.shown(flow, time) && visit(flow).is_break() {
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

    fn estimate(&self, _: &str, _: &IndexKey) -> Option<usize> {
        // Looking at all of them is quick: a comparison takes less time than a record to be read.
        None
    }

    fn metrics(&self, flow: &dyn FlowRecord, _: (i64, i64)) -> Result<Vec<Value>, SourceError> {
        // Only sums are kept.
        Ok(flow.get("Metric").into_iter().collect())
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
