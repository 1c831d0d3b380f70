//! One network interface as rtnetlink describes it.

use crate::Error;
use netlink_packet_core::{
    NLA_TYPE_MASK, NlaBuffer, NlasIterator, parse_i32, parse_string, parse_u32,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkFlags, LinkHeader, LinkMessageBuffer, Stats64};

// Attribute numbers of linux/if_link.h. Only these are read: the library's decoder of link messages fails
// for the whole message at a driver's or newer kernel's private attribute, and an interface must not vanish
// because of that.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_NEW_NETNSID: u16 = 45;
const IFLA_INFO_KIND: u16 = 1;

/// Counters of an interface since it was created (`struct rtnl_link_stats64`, linux/if_link.h).
/// Bytes are link-layer bytes without the frame check sequence; a super-packet counts as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received packets that were dropped because a buffer was full.
    pub rx_dropped: u64,
    /// Packets that were dropped instead of sent.
    pub tx_dropped: u64,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index of the interface within its namespace.
    pub ifindex: u32,
    /// Name of the interface.
    pub name: String,
    /// Kind of a software interface (`veth`, `bridge`, `vxlan`…, IFLA_INFO_KIND); none for
    /// hardware and loopback.
    pub kind: Option<String>,
    /// Type of the link layer (ARPHRD_…, linux/if_arp.h): 1 Ethernet, 772 loopback.
    pub arphrd: u16,
    /// MAC address, when the hardware address is one of 6 bytes.
    pub mac: Option<[u8; 6]>,
    /// The administrator has set it up (IFF_UP).
    pub up: bool,
    /// It is up and has carrier (IFF_RUNNING).
    pub running: bool,
    /// Largest network-layer packet in bytes.
    pub mtu: u32,
    /// Index of the bridge, bond or VRF that it is a port of.
    pub master: Option<u32>,
    /// Index of the interface at the other end (veth) or below (vlan, macvlan), IFLA_LINK, in the namespace
    /// of `link_netnsid`.
    pub link: Option<u32>,
    /// The kernel's identifier, relative to this namespace, of the namespace of `link`; none: this one.
    pub link_netnsid: Option<i32>,
    /// Counters.
    pub stats: LinkStats,
}

/// Type of the link layer of Ethernet (ARPHRD_ETHER).
const ARPHRD_ETHER: u16 = 1;
/// Type of the link layer of the loopback interface (ARPHRD_LOOPBACK): it has an Ethernet header.
const ARPHRD_LOOPBACK: u16 = 772;

impl Link {
    /// Whether packets at this interface start with an Ethernet header.
    pub fn has_ethernet_header(&self) -> bool {
        matches!(self.arphrd, ARPHRD_ETHER | ARPHRD_LOOPBACK)
    }

    /// Whether packets at this interface start with an IP header.
    pub fn has_ip_header(&self) -> bool {
        // linux/if_arp.h: PPP, RAWIP, TUNNEL, TUNNEL6, SIT, IPGRE, IP6GRE, NONE
        const IP_ONLY: [u16; 8] = [512, 519, 768, 769, 776, 778, 823, 0xfffe];
        IP_ONLY.contains(&self.arphrd)
    }

    /// Whether this is a loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.arphrd == ARPHRD_LOOPBACK
    }
}

/// A decoded RTM_NEWLINK or RTM_DELLINK.
pub(crate) struct LinkMessage {
    pub link: Link,
    /// Present in RTM_DELLINK when the interface was moved to another namespace.
    pub moved_to: Option<i32>,
}

/// Decodes the payload of an RTM_NEWLINK or RTM_DELLINK message. `None` when the message is not
/// about an interface as such: bridges report their ports under an address family of their own,
/// and there RTM_DELLINK only means that the port has left the bridge.
pub(crate) fn decode(payload: &[u8]) -> Result<Option<LinkMessage>, Error> {
    let unreadable = |what: &dyn std::fmt::Display| Error::Decode(what.to_string());
    let header = LinkHeader::parse(payload).map_err(|e| unreadable(&e))?;
    if header.interface_family != AddressFamily::Unspec {
        return Ok(None);
    }
    let mut link = Link {
        ifindex: header.index,
        name: String::new(),
        kind: None,
        arphrd: header.link_layer_type.into(),
        mac: None,
        up: header.flags.contains(LinkFlags::Up),
        running: header.flags.contains(LinkFlags::Running),
        mtu: 0,
        master: None,
        link: None,
        link_netnsid: None,
        stats: LinkStats::default(),
    };
    let mut moved_to = None;
    let attributes = payload
        .get(size_of::<LinkMessageBuffer>()..)
        .unwrap_or_default();
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.map_err(|e| unreadable(&e))?;
        let value = attribute.value();
        match attribute.kind() & NLA_TYPE_MASK {
            IFLA_IFNAME => link.name = parse_string(value).map_err(|e| unreadable(&e))?,
            IFLA_ADDRESS => link.mac = value.try_into().ok(),
            IFLA_MTU => link.mtu = parse_u32(value).map_err(|e| unreadable(&e))?,
            // A tunnel without a lower interface says 0.
            IFLA_LINK => link.link = parse_u32(value).ok().filter(|index| *index != 0),
            IFLA_MASTER => link.master = parse_u32(value).ok().filter(|index| *index != 0),
            IFLA_LINK_NETNSID => link.link_netnsid = parse_i32(value).ok(),
            IFLA_NEW_NETNSID => moved_to = parse_i32(value).ok(),
            IFLA_LINKINFO => link.kind = kind(value),
            IFLA_STATS64 => {
                let stats = Stats64::parse(value).map_err(|e| unreadable(&e))?;
                link.stats = LinkStats::from(&stats);
            }
            _ => {}
        }
    }
    Ok(Some(LinkMessage { link, moved_to }))
}

/// The kind among the nested attributes of IFLA_LINKINFO.
fn kind(linkinfo: &[u8]) -> Option<String> {
    NlasIterator::new(linkinfo)
        .filter_map(Result::ok)
        .find(|attribute: &NlaBuffer<&[u8]>| attribute.kind() == IFLA_INFO_KIND)
        .and_then(|attribute| parse_string(attribute.value()).ok())
}

impl From<&Stats64> for LinkStats {
    fn from(stats: &Stats64) -> Self {
        Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
        }
    }
}
