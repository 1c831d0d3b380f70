//! The laboratory: network namespaces, exact traffic and the `skua` command under test.

pub mod frame;
pub mod packet;
pub mod skua;
pub mod tcp;

pub use frame::Flow;
pub use packet::{SendMode, Sender, Sent};
pub use skua::{Report, Skua};
pub use skua_testkit::{
    lab as net,
    lab::{Net, root_tests, wait_for},
    wire::{Counters, Sum, Wire},
};
