//! Captures packets, turns them into flows, and hands those on.

pub mod file;
