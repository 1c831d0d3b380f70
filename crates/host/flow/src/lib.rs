//! Flow keys, accounting, ageing and the flow record.
//!
//! The rules are written down in `docs/accounting.md`; the kernel programs follow the same page.
//!
//! A packet walks through [`FlowTable`] (or the kernel's table), whose drains yield [`FlowUpdate`]s;
//! [`FlowStore`] sums them up to [`FlowRecord`]s, which users see as JSON or CSV.

pub mod addresses;
mod cold;
mod community;
mod conversation;
mod ends;
pub mod fields;
mod index;
mod joins;
pub mod key;
mod merge;
pub mod names;
pub mod numbered;
mod once;
pub mod point;
pub mod query;
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
mod window;

pub use addresses::{AddressCounts, AddressSet, Mark, Prefix, PrefixError};
pub use community::community_id;
pub use conversation::{Conversation, FragmentNotes, Ports};
pub use ends::Endpoint;
pub use joins::{Joins, KnownPoints};
pub use key::{FlowKey, HashKey, KIND_ETHERNET, Network, Tunnel, VLAN_PRESENT};
pub use names::{Layers, application};
pub use numbered::{Numbered, Used};
pub use once::Once;
pub use point::{CapturePoint, Cause, Direction, PointCounters, PointTraffic};
pub use query::{Finding, Found, Merged, Query, SortBy, View};
pub use raw_packets::{
    ObservedPacket, PacketBuffer, RawPacket, RawPacketLimits, RawPacketStats, RawPackets,
};
pub use record::{
    ConversationOwner, FlowLine, FlowRecord, Interval, Rate, Rates, Service, ServiceRule, TcpState,
};
pub use store::{FlowStore, Ownership, StoreLimits, Summary};
pub use table::{
    Ageing, Batch, Captured, Drained, First, FlowTable, Outcome, Sampled, TableConfig,
};
pub use update::{Carries, Counters, Directions, EndReason, FlowUpdate, LinkUpdate, TcpUpdate};
