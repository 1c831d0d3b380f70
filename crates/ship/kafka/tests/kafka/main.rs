//! Lines to a real broker: they arrive as they were, each once, whatever becomes of the broker; what does not
//! arrive is counted by cause.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "client")]

mod broken;
mod delivery;
mod schema;
mod support;
