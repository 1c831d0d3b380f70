//! What is captured, as queries see it.

use std::ops::ControlFlow;

use skua_analyzer::{FlowSet, FlowView};

use crate::state::Shared;

/// The flows of a session.
pub struct Captured(pub Shared);

impl FlowSet for Captured {
    fn scan(
        &self,
        from: u32,
        places: u32,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32> {
        let state = self.0.lock();
        state.store.scan(from, places, &mut |record| {
            let sockets = state.sockets.as_ref();
            visit(&FlowView {
                record,
                place: state.place_of(record),
                parties: sockets.map_or_else(Default::default, |s| s.parties(record)),
            })
        })
    }
}
