//! The steering program against its reference in user space, packet by packet, and on interfaces.
//! Needs root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acts;
mod causes;
mod frames;
mod hooks;
mod parity;
