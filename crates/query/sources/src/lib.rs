//! What queries are asked of: the flows of all captures in the shape of Skydive's records, and pcap
//! expressions for packets.

pub mod ask;
pub mod field;
mod filters;
mod flow;
mod past;
mod source;
mod wanted;

pub use ask::Questions;
pub use filters::PcapFilters;
pub use flow::{FlowPlace, FlowView, KeptFlow};
pub use source::{FlowPast, FlowSet, Flows, SHOWN, VisitCaptured, VisitChange};
pub use wanted::Wanted;
