//! Flow keys, accounting, ageing and the flow record.
//!
//! The rules are written down in `docs/accounting.md`; the kernel programs follow the same page.

pub mod key;
pub mod update;

pub use key::{FlowKey, Network, Tunnel};
pub use update::{Counters, EndReason, FlowUpdate, TcpUpdate};
