//! What collectors get besides flows: who has a conversation's sockets, and what these measure.

use skua_collect::{Enrichment, Tcp};
use skua_flow::FlowRecord;
use skua_wire::sflow::{Name, ServiceName, SocketTcp, TcpInfo};
use std::num::NonZeroU32;

use skua_state::State;

/// What a state knows.
pub struct Of<'a>(pub &'a State);

impl Enrichment for Of<'_> {
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

    fn tcp(&self, record: &FlowRecord) -> Option<Tcp> {
        let (lo, measured) = self.0.sockets.as_ref()?.measured(record)?;
        Some(Tcp {
            socket: SocketTcp {
                destination: !lo,
                srtt_us: measured.srtt_us,
            },
            info: Some(TcpInfo {
                send_mss: measured.mss.into(),
                lost: measured.lost.into(),
                retransmitted: measured.retransmits,
                rtt_us: measured.srtt_us,
                rtt_variance_us: measured.rttvar_us,
                congestion_window: measured.cwnd.into(),
                min_rtt_us: measured.min_rtt_us,
                ..TcpInfo::default()
            }),
        })
    }
}
