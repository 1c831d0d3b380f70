//! Receivers with real senders: what they tell must be what was sent. Needs root, softflowd, Open
//! vSwitch, tcpdump, dumpcap and netcat.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod collected;
#[cfg(feature = "dpdk")]
mod dpdk;
#[path = "../../../../capture/link/tests/support/mod.rs"]
mod lab;
mod lost;
mod ovs;
mod pcapsocket;
mod softflowd;
mod switch;
mod target;
mod truth;
