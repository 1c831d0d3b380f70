//! Open vSwitch, seen and configured through its database.
//!
//! [`Client`] speaks the OVSDB management protocol (RFC 7047): it monitors tables, carries out transactions
//! and reconnects when the server was away. On it stand [`OvsTopology`], which keeps the bridges, ports and
//! interfaces in a graph, and [`OvsControl`], which makes mirrors and exporters and removes what it made.
//!
//! A server is not trusted: what it sends is bounded in size ([`Limits`]) and in time, and nothing that
//! it sends makes this crate panic.

mod client;
mod control;
mod data;
mod database;
mod error;
mod ovn;
mod rules;
mod session;
mod target;
mod topology;
mod unixctl;
pub mod wire;

pub use client::{Client, ClientConfig, ClientCounters, Limits, Watcher};
pub use control::{
    BridgeExport, Export, Ipfix, Mirror, MirrorSpec, MirrorState, MirrorStatistics, Netflow,
    OvsControl, Selected, Sflow,
};
pub use data::{Atom, Datum, Row};
pub use database::{Change, Database, Monitored};
pub use error::Error;
pub use ovn::{AclFinder, Asking, Conversation, Icmp, Mac, OvnConfig, OvnTopology, read_mac, said};
pub use rules::{RulesConfig, RulesCounters};
pub use target::Target;
pub use topology::{OvsConfig, OvsCounters, OvsTopology};
pub use unixctl::ControlSocket;

/// The database of Open vSwitch.
pub const DATABASE: &str = "Open_vSwitch";
