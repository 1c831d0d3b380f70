//! Rules and groups of an OpenFlow switch, as its management socket tells them.
//!
//! [`Connection`] speaks OpenFlow 1.3 or 1.4 (Open Networking Foundation TS-006, TS-012) with the extensions of
//! Open vSwitch, and only reads: it requests the rules with their counters, follows changes of rules (1.4), and
//! requests groups. [`Rule::text`] is in the syntax of `ovs-ofctl`.
//!
//! A switch is not trusted: a message has at most 64 KiB, what is kept of it is bounded, and nothing that comes
//! makes this crate panic.

mod action;
mod connection;
mod field;
pub mod message;
mod nicira;
mod read;
mod rule;

pub use action::{Action, Instructions};
pub use connection::{Connection, Error};
pub use message::{Message, Version};
pub use rule::{Bucket, Counters, Group, GroupCounters, Key, Rule, Update};
