//! What the tests of this crate share.
#![allow(dead_code)]

pub mod expressions;
pub mod kernel;
pub mod network;
pub mod packets;
pub mod rng;
