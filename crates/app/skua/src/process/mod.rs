//! What a process has to do with itself and its host.

pub mod certificates;
pub mod descriptors;
pub mod heap;
pub mod host;
pub mod orphans;
pub mod panics;
pub mod prometheus;
pub mod watched;
