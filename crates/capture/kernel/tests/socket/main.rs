//! The socket programs, against what the tests' own clients and servers did. Needs root. The
//! programs see the whole host, so each test looks only at namespaces of its own.
#![allow(unsafe_code, clippy::unwrap_used)]

mod against_ss;
mod aggregate;
mod churn;
mod ends;
mod hooks;
mod lab;
mod lifecycle;
mod netem;
mod owners;
mod storage;
mod udp;
