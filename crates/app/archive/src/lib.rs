//! What is kept of what was seen: the history on disk, which queries about the past read, and the lake.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod history;
pub mod lake;
