//! Captures that follow a query: their API, commands, and what runs them.

pub mod dpdk;
mod each;
pub mod live;
pub mod ovs;
mod receive;
pub mod run;
pub mod target;
mod worker;
