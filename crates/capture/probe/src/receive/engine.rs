//! What receivers of datagrams differ in.

use std::{net::SocketAddr, sync::Arc};

use skua_flow::{AddressSet, Ageing, CapturePoint, Drained, FlowUpdate, PointCounters};

use super::Received;
use crate::Watched;

/// Counts what datagrams of one protocol report. Used under a lock.
pub(super) trait Engine: Send + 'static {
    /// Name of the protocol.
    const NAME: &'static str;

    /// Counts a datagram that came at `now_ns` (since the Unix epoch).
    fn datagram(&mut self, from: SocketAddr, bytes: &[u8], now_ns: u64, received: &mut Received);

    /// Entries in use.
    fn live(&self) -> usize;

    /// Entries made since the start.
    fn inserted(&self) -> u64;

    /// Yields what changed, ends what has aged.
    fn drain(
        &mut self,
        ageing: &Ageing,
        received: &mut Received,
        sink: &mut dyn FnMut(&FlowUpdate),
    ) -> Drained;

    /// Yields everything; nothing more will come.
    fn finish(&mut self, received: &mut Received, sink: &mut dyn FnMut(&FlowUpdate)) -> Drained;

    /// Calls `take` with the losses of each capture point since the start.
    fn points(&self, take: &mut dyn FnMut(CapturePoint, &PointCounters));

    /// Interfaces that were reported.
    fn interfaces(&self) -> Vec<Watched>;

    /// Has packets left out by their addresses.
    fn set_addresses(&mut self, set: Arc<AddressSet>);
}
