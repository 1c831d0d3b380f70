//! What collectors are told besides flows: who has a conversation's sockets, and what these measure.

use std::num::NonZeroU32;

use skua_collect::Known;
use skua_flow::FlowRecord;
use skua_wire::sflow::{Name, ServiceName, SocketTcp};

use crate::state::State;

/// What a state knows.
pub struct Of<'a>(pub &'a State);

impl Known for Of<'_> {
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>> {
        let owner = self.0.sockets.as_ref()?.owner_of_flow(Some(owner))?;
        let unit = owner.unit.as_deref().unwrap_or_default();
        let (by, container) = match &owner.container {
            Some(_) => (ServiceName::Container, owner.service()),
            None if owner.service() == unit => (ServiceName::Unit, ""),
            None => (ServiceName::Process, ""),
        };
        Some(Name {
            by,
            process: &owner.process,
            container,
            unit,
        })
    }

    fn tcp(&self, record: &FlowRecord) -> Option<SocketTcp> {
        let (lo, srtt_us) = self.0.sockets.as_ref()?.srtt(record)?;
        Some(SocketTcp {
            destination: !lo,
            srtt_us,
        })
    }
}
