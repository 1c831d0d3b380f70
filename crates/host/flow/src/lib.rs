//! Flow keys, accounting, ageing and the flow record.
//!
//! The rules are written down in `docs/accounting.md`; the kernel programs follow the same page.
//!
//! A packet walks through [`FlowTable`] (or the kernel's table), whose drains yield [`FlowUpdate`]s;
//! [`FlowStore`] sums them up to [`FlowRecord`]s, which users see as JSON or CSV.

pub mod addresses;
mod community;
mod conversation;
mod ends;
pub mod fields;
mod index;
pub mod key;
pub mod names;
pub mod numbered;
pub mod point;
pub mod raw_packets;
mod recent;
pub mod record;
mod slab;
pub mod store;
pub mod table;
mod tcp;
#[cfg(test)]
mod tests;
pub use skua_record::time;
pub mod update;

pub use addresses::{AddressCounts, AddressSet, Mark, Prefix, PrefixError};
pub use community::community_id;
pub use conversation::{Conversation, FragmentNotes, Ports};
pub use ends::Endpoint;
pub use key::{FlowKey, HashKey, KIND_ETHERNET, Network, Tunnel, VLAN_PRESENT};
pub use names::Layers;
pub use numbered::{Numbered, Used};
pub use point::{CapturePoint, Cause, Direction, PointCounters, PointTraffic};
pub use raw_packets::{
    PacketBuffer, RawPacket, RawPacketLimits, RawPacketStats, RawPackets, SeenPacket,
};
pub use record::{FlowLine, FlowRecord, Interval, Party, Rate, Service, ServiceRule, TcpState};
pub use store::{Finding, FlowStore, Found, Ownership, Query, SortBy, StoreLimits, Summary};
pub use table::{
    Ageing, Batch, Captured, Drained, First, FlowTable, Outcome, Sampled, TableConfig,
};
pub use update::{Counters, Directions, EndReason, FlowUpdate, TcpUpdate};
