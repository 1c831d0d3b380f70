//! What is captured, as queries see it.

use skua_flow::FlowRecord;
use skua_query::RawPacket;
use skua_state::{FlowPlace, Shared, State, captures::CaptureSet, copies::FlowCopy};
use std::{ops::ControlFlow, sync::Arc};

use crate::{FlowSet, FlowView, Wanted};

/// Copies of the wanted flows in the places from `from` on, and where the next ones are.
fn page(
    shared: &Shared,
    from: u32,
    places: u32,
    wanted: &Wanted,
    mut copy: impl FnMut(&State, &FlowRecord),
) -> Option<u32> {
    let state = shared.read();
    wanted.scan(&state.store, from, places, &mut |record| {
        copy(&state, record);
        ControlFlow::Continue(())
    })
}

/// Shows a copy of a flow.
fn show(
    flow: &FlowCopy,
    raw_packets: usize,
    visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visit(&FlowView {
        record: &flow.record,
        place: &flow.place,
        parties: flow.parties(),
        raw_packets,
    })
}

/// The flows that are always captured, with their owners.
pub struct Always(pub Shared);

impl FlowSet for Always {
    fn scan(
        &self,
        from: u32,
        places: u32,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32> {
        let mut flows = Vec::new();
        let next = page(&self.0, from, places, wanted, |state, record| {
            flows.push(FlowCopy::of(state, record));
        });
        let shown = flows.iter().try_for_each(|flow| show(flow, 0, visit));
        next.filter(|_| shown.is_continue())
    }

    fn owns(&self, place: &FlowPlace) -> bool {
        place.capture.is_empty()
    }

    fn raw_packets(&self, _: &FlowRecord) -> Vec<RawPacket> {
        Vec::new()
    }
}

/// The flows of a capture. A query looks their owners up, among the sockets that there are or were until a
/// moment ago.
pub struct Captured {
    /// The capture.
    pub set: CaptureSet,
    /// Where sockets are.
    pub always: Shared,
}

impl FlowSet for Captured {
    fn scan(
        &self,
        from: u32,
        places: u32,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32> {
        let mut flows = Vec::new();
        let next = page(&self.set.shared, from, places, wanted, |state, record| {
            flows.push((FlowCopy::of(state, record), state.namespace_of(record)));
        });
        let always = self.always.read();
        for (flow, inode) in &mut flows {
            if let (Some(sockets), Some(inode)) = (&always.sockets, *inode) {
                flow.owners = sockets.keep_owners(sockets.store.join(&flow.record, inode).owners);
            }
        }
        drop(always);
        let shown = flows
            .iter()
            .try_for_each(|(flow, _)| show(flow, self.raw_packet_count(&flow.record), visit));
        next.filter(|_| shown.is_continue())
    }

    fn owns(&self, place: &FlowPlace) -> bool {
        *place.capture == *self.set.id.to_string()
    }

    fn whole(&self) -> Option<(u64, u64)> {
        self.set.file
    }

    fn raw_packet_count(&self, record: &FlowRecord) -> usize {
        let packets = self.set.packets.as_ref();
        packets.map_or(0, |packets| {
            packets.count_of_flow(&record.key, record.first_ns, record.last_ns)
        })
    }

    fn raw_packets(&self, record: &FlowRecord) -> Vec<RawPacket> {
        let mut kept = Vec::new();
        if let Some(packets) = &self.set.packets {
            packets.of_flow(
                &record.key,
                record.first_ns,
                record.last_ns,
                |index, packet| {
                    kept.push(RawPacket {
                        timestamp: (packet.time_ns / 1_000_000) as i64,
                        index: index as i64,
                        time_ns: packet.time_ns,
                        length: packet.length,
                        data: Arc::from(packet.data),
                        link_type: packet.link_type,
                    });
                },
            );
        }
        kept
    }
}
