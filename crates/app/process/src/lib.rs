//! What a process has to do with itself and its host.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod certificates;
pub mod descriptors;
pub mod heap;
pub mod host;
pub mod metrics;
pub mod orphans;
pub mod panics;
pub mod resources;
pub mod watched;
