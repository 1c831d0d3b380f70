//! What the programs share with user space, made of the headers in `bpf/` (`tests/bindings.rs`).

#![allow(dead_code, reason = "programs alone use some of it")]

pub(crate) mod flow;
pub(crate) mod socket;
pub(crate) mod steer;
pub(crate) mod tap;
