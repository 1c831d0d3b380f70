//! Packets of DPDK ports: devices whose packets do not pass the kernel, and virtual devices.
//!
//! DPDK is linked only with the feature `dpdk` ([`BUILT`]); otherwise [`Port::open`] says how to have it.
//! It is started once in a process, when the first port is opened, and stays until the process ends.
//! A [`Port`] is added to DPDK if it has none of that name, and removed when it and its [`Queue`]s are
//! dropped.
//!
//! Everything `unsafe` that Skua does with DPDK stands in `sys.rs`; the macros and inline functions that
//! DPDK's interface is made of are called by `shim.c`.

mod eal;
mod error;
mod port;
#[cfg_attr(not(feature = "dpdk"), path = "absent.rs")]
mod sys;

pub use error::Error;
pub use port::{Burst, Packet, Polling, Port, PortInfo, PortStats, Queue, Settings, device_name};
pub use sys::BUILT;
