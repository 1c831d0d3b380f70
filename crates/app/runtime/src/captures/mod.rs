//! What runs the captures that follow a query.

mod by_node;
mod counters;
pub mod dpdk;
mod each;
pub mod live;
pub mod ovs;
mod receive;
pub mod run;
pub mod target;
mod worker;
