//! An agent's end of the connection with its analyzer.
//!
//! | module | what it does |
//! |---|---|
//! | `uplink` | keeps the connection, sends graph and flows |
//! | `outbox` | flows that wait to be sent or confirmed |
//! | `wanted` | runs the captures that the analyzer wants |

pub mod metrics;
mod outbox;
pub mod uplink;
mod wanted;
