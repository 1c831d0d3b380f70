//! Receivers with real senders: what they report must be what was sent. Needs root, softflowd, Open
//! vSwitch, tcpdump, dumpcap and netcat.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod collected;
#[cfg(feature = "dpdk")]
mod dpdk;
mod lost;
mod ovs;
mod pcapsocket;
mod softflowd;
mod switch;
mod target;
mod truth;
