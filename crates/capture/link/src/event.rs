//! Messages of rtnetlink: notifications and answers.

use crate::attribute::Attributes;
use crate::{
    Address, Error, Interface, Neighbour, Notice, PortVlan, Requests, Route, address, interface,
    neighbour, netns_id, route, vlan,
};
use netlink_packet_core::NLM_F_REPLACE;

// linux/rtnetlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWNSID: u16 = 88;
const RTM_DELNSID: u16 = 89;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const AF_BRIDGE: u8 = 7;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_IFNAME: u16 = 3;
/// VLANs, as ranges.
const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 1 << 2;

/// Multicast groups of NETLINK_ROUTE (RTNLGRP_…, linux/rtnetlink.h).
pub mod groups {
    /// Interfaces.
    pub const LINK: u32 = 1;
    /// Neighbours and forwarding tables.
    pub const NEIGH: u32 = 3;
    /// IPv4 addresses.
    pub const IPV4_IFADDR: u32 = 5;
    /// IPv4 routes.
    pub const IPV4_ROUTE: u32 = 7;
    /// IPv6 addresses.
    pub const IPV6_IFADDR: u32 = 9;
    /// IPv6 routes.
    pub const IPV6_ROUTE: u32 = 11;
    /// Identifiers of namespaces.
    pub const NSID: u32 = 28;
    /// Next hops as objects of their own (5.3).
    pub const NEXTHOP: u32 = 32;
}

/// An event of rtnetlink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteEvent {
    /// An interface appeared, or something about it has changed.
    Link(Box<Interface>),
    /// An interface was removed from this namespace.
    LinkRemoved {
        /// Index that it had.
        ifindex: u32,
        /// It lives on in another namespace.
        moved: bool,
    },
    /// VLANs of a bridge port may have changed.
    PortVlans {
        /// Index of the port.
        ifindex: u32,
        /// All that it has now; none when the message has no list.
        vlans: Option<Vec<PortVlan>>,
    },
    /// An address came.
    Address(Address),
    /// An address was removed.
    AddressRemoved(Address),
    /// A route came.
    Route {
        /// The route.
        route: Route,
        /// In place of one to the same destination.
        replaces: bool,
    },
    /// A route was removed.
    RouteRemoved(Route),
    /// A neighbour or an entry of a forwarding table came or changed.
    Neighbour(Neighbour),
    /// A neighbour or an entry of a forwarding table was removed.
    NeighbourRemoved(Neighbour),
    /// A namespace has got this identifier, relative to this one, or has lost it.
    NamespaceId(i32),
    /// Next hops that routes share have changed or were removed; routes may have been removed with them.
    NextHops,
    /// The kernel had to drop notifications, or one could not be read: everything must be listed again.
    Lost,
}

impl RouteEvent {
    /// What a notification of NETLINK_ROUTE says, none of kinds that are not known.
    pub fn decode(notice: Notice<'_>) -> Option<Self> {
        let Notice::Message {
            kind,
            flags,
            payload,
        } = notice
        else {
            return Some(Self::Lost);
        };
        Self::message(kind, flags, payload).unwrap_or(Some(Self::Lost))
    }

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Result<Option<Self>, Error> {
        let of_bridge = payload.first() == Some(&AF_BRIDGE);
        Ok(match kind {
            RTM_NEWLINK if of_bridge => {
                vlan::decode(payload).map(|(ifindex, vlans)| Self::PortVlans { ifindex, vlans })
            }
            RTM_DELLINK if of_bridge => vlan::decode(payload).map(|(ifindex, _)| Self::PortVlans {
                ifindex,
                vlans: Some(Vec::new()),
            }),
            // Wireless drivers send messages of their own under this type, without a name.
            RTM_NEWLINK if has_name(payload) => {
                interface::decode(payload)?.map(|interface| Self::Link(Box::new(interface)))
            }
            RTM_DELLINK => crate::link::decode(payload)?.map(|gone| Self::LinkRemoved {
                ifindex: gone.link.ifindex,
                moved: gone.moved_to.is_some(),
            }),
            RTM_NEWADDR => address::decode(payload).map(Self::Address),
            RTM_DELADDR => address::decode(payload).map(Self::AddressRemoved),
            RTM_NEWROUTE => route::decode(payload).map(|route| Self::Route {
                route,
                replaces: flags & NLM_F_REPLACE != 0,
            }),
            RTM_DELROUTE => route::decode(payload).map(Self::RouteRemoved),
            RTM_NEWNEIGH => neighbour::decode(payload).map(Self::Neighbour),
            RTM_DELNEIGH => neighbour::decode(payload).map(Self::NeighbourRemoved),
            RTM_NEWNSID | RTM_DELNSID => netns_id::decode(payload).map(Self::NamespaceId),
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => Some(Self::NextHops),
            _ => None,
        })
    }
}

fn has_name(payload: &[u8]) -> bool {
    let attributes = payload.get(16..).unwrap_or_default();
    crate::attribute(attributes, IFLA_IFNAME).is_some()
}

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dump {
    /// All interfaces, as [`RouteEvent::Link`].
    Links,
    /// One interface.
    Link(u32),
    /// VLANs of all bridge ports.
    PortVlans,
    /// All addresses.
    Addresses,
    /// All routes.
    Routes,
    /// All neighbours.
    Neighbours,
    /// All forwarding tables.
    Forwarding,
}

impl Dump {
    /// Lists objects and hands them out. False: the kernel says that they changed meanwhile.
    pub fn request(
        self,
        requests: &mut Requests,
        mut take: impl FnMut(RouteEvent),
    ) -> Result<bool, Error> {
        let family = |family: u8, length: usize| {
            let mut head = vec![0; length];
            head[0] = family;
            Attributes::after(&head)
        };
        let (kind, request) = match self {
            Self::Links => (RTM_GETLINK, family(0, 16)),
            Self::Link(ifindex) => (
                RTM_GETLINK,
                Attributes::after(&crate::socket::link_request(ifindex)),
            ),
            Self::PortVlans => (
                RTM_GETLINK,
                family(AF_BRIDGE, 16).with_u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN_COMPRESSED),
            ),
            Self::Addresses => (RTM_GETADDR, family(0, 8)),
            Self::Routes => (RTM_GETROUTE, family(0, 12)),
            Self::Neighbours => (RTM_GETNEIGH, family(0, 12)),
            Self::Forwarding => (RTM_GETNEIGH, family(AF_BRIDGE, 12)),
        };
        let mut each = |kind, payload: &[u8]| {
            if let Some(event) = RouteEvent::message(kind, 0, payload)? {
                take(event);
            }
            Ok(())
        };
        match self {
            Self::Link(_) => requests
                .get(kind, request.bytes(), &mut each)
                .map(|()| true),
            _ => requests.dump(kind, request.bytes(), &mut each),
        }
    }
}
