//! What queries are asked of: the flows of all captures in the shape of Skydive's records, and pcap
//! expressions for packets.

pub mod alert;
mod ask;
pub mod capture;
pub mod elements;
pub mod field;
mod filters;
mod flow;
mod follow;
pub mod injection;
mod past;
mod patch;
mod resource;
mod skydive;
mod source;
mod state_file;
pub mod tap;
mod wanted;

pub use ask::Questions;
pub use filters::PcapFilters;
pub use flow::{FlowPlace, FlowView, KeptFlow};
pub use json_patch::Patch as JsonPatch;
pub use resource::{Resource, ResourceError, Resources};
pub use source::{FlowPast, FlowSet, Flows, SHOWN, VisitCaptured, VisitChange};
pub use wanted::Wanted;
