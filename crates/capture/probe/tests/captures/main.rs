//! Captures on real traffic, in network namespaces of their own: several probes on one interface,
//! points that come and go, packets kept and watched. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod changes;
mod counts;
mod lab;
mod packets;
