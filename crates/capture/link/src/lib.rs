//! Network interfaces and network namespaces of this machine, over rtnetlink.
//!
//! Synchronous and free of threads of its own, except the short-lived ones on which
//! [`Namespace::enter`] runs its closure. Nothing here keeps state about interfaces: a caller
//! opens a [`LinkMonitor`], then lists with [`LinkSocket::list`], then applies the monitor's
//! events; events that were already part of the list repeat it and change nothing.
//!
//! For more than the list of interfaces there are [`Monitor`] and [`Requests`], with [`RouteEvent`] for
//! messages of rtnetlink (interfaces in full, addresses, routes, neighbours, VLANs of bridge ports,
//! identifiers of namespaces) and [`Ethtool`] for the rest.

mod address;
mod attribute;
mod error;
mod ethtool;
mod event;
mod interface;
mod link;
mod monitor;
mod namespace;
mod neighbour;
mod netns_id;
mod reach;
mod request;
mod route;
mod socket;
mod suggest;
mod veth;
mod vlan;

pub use address::Address;
pub use attribute::{
    Attributes, attribute, attributes, read_i32, read_ip, read_text, read_u8, read_u16,
    read_u16_be, read_u32, read_u32_be, read_u64,
};
pub use error::Error;
pub use ethtool::{Ethtool, EthtoolEvent, Modes};
pub use event::{Dump, RouteEvent, groups};
pub use interface::{COUNTER_NAMES, Interface, Xdp, XdpMode};
pub use link::{Link, LinkStats};
pub use monitor::{MONITOR_QUEUE, Monitor, Notice};
pub use namespace::{
    Changes, MAX_NAMESPACES, NAMED, Namespace, NamespaceId, Namespaces, in_namespace,
};
pub use neighbour::Neighbour;
pub use netns_id::namespace_id;
pub use reach::Reach;
pub use request::{Protocol, Requests};
pub use route::{NextHop, Route};
pub use socket::{LinkEvent, LinkMonitor, LinkSocket, check_error, messages};
pub use suggest::nearest_names;
pub use veth::{OWN_PREFIX, create_veth, delete_link, is_own_interface};
pub use vlan::PortVlan;
