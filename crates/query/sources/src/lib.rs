//! What queries are asked of: the flows of all captures in the shape of Skydive's records, now and in the past, the sockets
//! of nodes and flows, and pcap expressions for packets.

pub mod ask;
mod captured;
pub mod field;
mod filters;
mod flow;
mod past;
mod sockets;
mod source;
mod wanted;

pub use ask::Querier;
pub use captured::{Always, Captured};
pub use filters::PcapFilters;
pub use flow::{FlowView, KeptFlow};
pub use sockets::{KnownSockets, metadata_of};
pub use source::{FlowPast, FlowSet, Flows, SHOWN, VisitCaptured, VisitChange};
pub use wanted::Wanted;
