//! What is captured, as queries see it.

use skua_analyzer::{FlowPlace, FlowSet, FlowView, Wanted};
use skua_flow::{ConversationOwner, FlowRecord};
use skua_query::RawPacket;
use std::{
    num::NonZeroU32,
    ops::ControlFlow,
    sync::{Arc, MutexGuard},
};

use crate::{
    captures::run::CaptureSet,
    state::{Shared, State},
};

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
        let state = self.0.lock();
        wanted.scan(&state.store, from, places, &mut |record| {
            let sockets = state.sockets.as_ref();
            visit(&FlowView {
                record,
                place: state.place_of(record),
                parties: sockets.map_or_else(Default::default, |s| s.parties(record)),
                raw_packets: 0,
            })
        })
    }

    fn owns(&self, place: &FlowPlace) -> bool {
        place.capture.is_empty()
    }

    fn raw_packets(&self, _: &FlowRecord) -> Vec<RawPacket> {
        Vec::new()
    }
}

/// The flows of a capture. Whose they are is looked up when somebody asks, among the sockets that
/// there are or were until a moment ago.
pub struct Captured {
    /// The capture.
    pub set: CaptureSet,
    /// Where sockets are.
    pub always: Shared,
}

impl Captured {
    /// Shows a flow with its owners.
    fn show(
        &self,
        state: &State,
        sockets: &MutexGuard<'_, State>,
        record: &FlowRecord,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let packets = self.set.packets.as_ref();
        let count =
            |p: &skua_probe::Packets| p.count_of_flow(&record.key, record.first_ns, record.last_ns);
        let mut parties = [ConversationOwner::default(); 2];
        if let (Some(sockets), Some(inode)) = (&sockets.sockets, state.namespace_of(record)) {
            let owners = sockets.store.join(record, inode).owners;
            let party = |number: Option<NonZeroU32>| {
                let owner = sockets.owner_of_flow(number);
                owner
                    .map(skua_socket::conversation_owner)
                    .unwrap_or_default()
            };
            parties = owners.map(party);
        }
        visit(&FlowView {
            record,
            place: state.place_of(record),
            parties,
            raw_packets: packets.map_or(0, count),
        })
    }
}

impl FlowSet for Captured {
    fn scan(
        &self,
        from: u32,
        places: u32,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32> {
        // Nobody takes them the other way round.
        let state = self.set.shared.lock();
        let sockets = self.always.lock();
        wanted.scan(&state.store, from, places, &mut |record| {
            self.show(&state, &sockets, record, visit)
        })
    }

    fn owns(&self, place: &FlowPlace) -> bool {
        *place.capture == *self.set.id.to_string()
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
