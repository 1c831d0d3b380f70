//! The flows of the history on disk, as queries see them.

use crate::{
    Wanted,
    flow::FlowView,
    source::{FlowPast, VisitCaptured, VisitChange},
};
use skua_flow::FlowRecord;
use skua_state::FlowPlace;
use skua_store::{FlowHistory, FlowId, FlowLookup, StoredFlow};
use std::{ops::ControlFlow, sync::Arc};

impl FlowPast for FlowHistory {
    fn scan(
        &self,
        from: u64,
        to: u64,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) {
        let lookup = wanted
            .address()
            .map_or(FlowLookup::All, FlowLookup::Address);
        // Flows of one place follow one another.
        let mut place = Arc::new(FlowPlace::default());
        FlowHistory::scan(self, from, to, lookup, &mut |flow: &StoredFlow<'_>| {
            if !wanted.has(&flow.record) {
                return ControlFlow::Continue(());
            }
            let context = &flow.context;
            let same = *place.host == *context.host
                && *place.capture == *context.capture
                && *place.interface == *context.interface
                && *place.node == *context.node_tid;
            if !same {
                place = Arc::new(FlowPlace {
                    host: context.host.into(),
                    capture: context.capture.into(),
                    interface: context.interface.into(),
                    node: context.node_tid.into(),
                    since_ns: 0,
                });
            }
            visit(&FlowView {
                record: &flow.record,
                place: &place,
                parties: flow.parties,
                raw_packets: 0,
            })
        });
    }

    fn captured(&self, from: u64, to: u64, visit: VisitCaptured<'_>) {
        FlowHistory::scan(self, from, to, FlowLookup::Captured, &mut |flow| {
            let time = (flow.record.first_ns, flow.record.last_ns);
            visit(flow.context.host, flow.context.interface, time);
            ControlFlow::Continue(())
        });
    }

    fn changes(
        &self,
        record: &FlowRecord,
        place: &FlowPlace,
        (from, to): (u64, u64),
        visit: VisitChange<'_>,
    ) {
        let flow = FlowId {
            host: place.host.clone(),
            capture: place.capture.clone(),
            id: record.id,
            serial: record.serial,
            first_ns: record.first_ns,
            last_ns: record.last_ns,
        };
        FlowHistory::changes(self, &flow, from, to, &mut |change| {
            visit(
                &change.record,
                (change.since_ns, change.record.last_ns),
                change.added,
            )
        });
    }
}
