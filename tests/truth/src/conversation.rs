//! Conversations, in the shape that both sides are brought to.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use skua_file::{CaptureFile, Interface};
use skua_flow::{CapturePoint, Cause, Counters, FlowTable, FlowUpdate, TableConfig};
use skua_packet::Frame;

/// A tunnel: its kind and identifier.
pub type TunnelId = (&'static str, u32);

/// What makes packets one conversation, without the hashes of the flow key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Interface name, empty without.
    pub interface: String,
    /// The tunnel and the conversation around, see [`Key::around`]; outside of tunnels none.
    pub parent: Option<Box<(TunnelId, Key)>>,
    /// As in the flow key.
    pub vlan: [u16; 4],
    /// Has an Ethernet header.
    pub ethernet: bool,
    /// 0, 4 or 6.
    pub network: u8,
    /// IP protocol.
    pub protocol: u8,
    /// EtherType or ICMP identifier.
    pub detail: u16,
    /// Lower endpoint.
    pub lo: Endpoint,
    /// Higher endpoint.
    pub hi: Endpoint,
}

impl Key {
    /// The [`parent`](Key::parent) of what this conversation carries in a tunnel. Ports do not count: the source port differs
    /// by direction; nor do labels of MPLS, of which each direction has its own.
    pub fn around(mut self, mut tunnel: TunnelId) -> Box<(TunnelId, Self)> {
        (self.lo.1, self.hi.1) = (0, 0);
        if tunnel.0 == "mpls" {
            tunnel.1 = 0;
        }
        Box::new((tunnel, self))
    }
}

/// Address and port (ICMP: type and code) as in the flow key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(pub [u8; 16], pub u16);

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = std::net::Ipv6Addr::from(self.0);
        write!(f, "[{address}]:{}", self.1)
    }
}

/// A conversation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Conversation {
    /// What makes it.
    pub key: Key,
    /// Time of the first packet in ns.
    pub start_ns: u64,
    /// Time of the last packet in ns.
    pub end_ns: u64,
    /// Packets and bytes by `lo`.
    pub lo_sent: (u64, u64),
    /// Packets and bytes by `hi`.
    pub hi_sent: (u64, u64),
    /// Whether the first packet came from `lo`.
    pub lo_first: bool,
}

impl Conversation {
    /// Adds what another has; both have the same key.
    pub fn merge(&mut self, other: &Self) {
        if other.start_ns < self.start_ns {
            self.lo_first = other.lo_first;
        }
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.lo_sent.0 += other.lo_sent.0;
        self.lo_sent.1 += other.lo_sent.1;
        self.hi_sent.0 += other.hi_sent.0;
        self.hi_sent.1 += other.hi_sent.1;
    }
}

/// A capture summed up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Conversations in order.
    pub conversations: Vec<Conversation>,
    /// Packets and bytes of frames without a whole link header.
    pub truncated: (u64, u64),
}

/// What our user-space path makes of a file.
///
/// # Errors
///
/// The reader's message.
pub fn ours(file: &Path, tunnels: bool) -> Result<Account, String> {
    let mut reader = CaptureFile::open(file).map_err(|error| error.to_string())?;
    let mut table = FlowTable::new(&TableConfig {
        idle_timeout: None,
        tunnels,
        seed: 0x5eed,
        ..TableConfig::default()
    });
    while let Some(packet) = reader.next_packet().map_err(|error| error.to_string())? {
        let frame = Frame {
            data: packet.data,
            wire_len: packet.wire_len,
            link: packet.link_type,
            stripped_vlan: None,
            segments: 1,
        };
        let point = CapturePoint {
            ifindex: packet.interface,
            ..CapturePoint::default()
        };
        table.packet(point, &frame, packet.timestamp_ns);
    }
    let mut updates = Vec::new();
    table.finish(|update| updates.push(*update));
    let mut truncated = Counters::default();
    for (_, point) in table.points() {
        truncated += point[Cause::Truncated];
    }
    let secret = skua_flow::HashKey::new(table.seed());
    let by_id: HashMap<u64, FlowUpdate> = updates
        .iter()
        .map(|update| (update.key.id48(&secret), *update))
        .collect();
    let mut conversations: Vec<_> = updates
        .iter()
        .map(|update| Conversation {
            key: key(update, &by_id, reader.interfaces()),
            start_ns: update.first_ns,
            end_ns: update.last_ns,
            lo_sent: (update.lo_sent.packets, update.lo_sent.bytes),
            hi_sent: (update.hi_sent.packets, update.hi_sent.bytes),
            lo_first: update.lo_first,
        })
        .collect();
    conversations.sort();
    Ok(Account {
        conversations,
        truncated: (truncated.packets, truncated.bytes),
    })
}

fn key(update: &FlowUpdate, by_id: &HashMap<u64, FlowUpdate>, interfaces: &[Interface]) -> Key {
    let key = &update.key;
    let tunnel = key.tunnel().map(|tunnel| match tunnel {
        skua_flow::Tunnel::Vxlan => "vxlan",
        skua_flow::Tunnel::Geneve => "geneve",
        skua_flow::Tunnel::Gre => "gre",
        skua_flow::Tunnel::IpInIp => "ip-in-ip",
        skua_flow::Tunnel::Mpls => "mpls",
        skua_flow::Tunnel::Erspan => "erspan",
    });
    let parent = tunnel.and_then(|tunnel| {
        let outer = self::key(by_id.get(&update.parent)?, by_id, interfaces);
        Some(outer.around((tunnel, update.tunnel_id)))
    });
    let [third, fourth] = update.link.inner_tags;
    let interface = interfaces
        .get(key.ifindex as usize)
        .and_then(|interface| interface.name.as_deref())
        .unwrap_or_default();
    Key {
        interface: interface.to_owned(),
        parent,
        vlan: [key.vlan[0], key.vlan[1], third, fourth],
        ethernet: key.ethernet(),
        network: match key.network() {
            skua_flow::Network::None => 0,
            skua_flow::Network::V4 => 4,
            skua_flow::Network::V6 => 6,
        },
        protocol: key.proto,
        detail: key.detail,
        lo: Endpoint(key.lo, u16::from_be_bytes(key.lo_port)),
        hi: Endpoint(key.hi, u16::from_be_bytes(key.hi_port)),
    }
}

/// Conversations under construction, each with a number that tells apart those of one key.
#[derive(Default, Debug)]
pub struct Sums(BTreeMap<(Key, u64), Conversation>);

impl Sums {
    /// Adds a packet.
    pub fn add(&mut self, key: Key, part: u64, from_lo: bool, bytes: u64, time_ns: u64) {
        let sent = |mine: bool| if mine { (1, bytes) } else { (0, 0) };
        let packet = Conversation {
            key: key.clone(),
            start_ns: time_ns,
            end_ns: time_ns,
            lo_sent: sent(from_lo),
            hi_sent: sent(!from_lo),
            lo_first: from_lo,
        };
        match self.0.get_mut(&(key.clone(), part)) {
            Some(sum) => {
                // Who spoke first goes by the order of the file, not by the clock.
                let lo_first = sum.lo_first;
                sum.merge(&packet);
                sum.lo_first = lo_first;
            }
            None => {
                self.0.insert((key, part), packet);
            }
        }
    }

    /// The conversations in order.
    pub fn finish(self) -> Vec<Conversation> {
        let mut all: Vec<_> = self.0.into_values().collect();
        all.sort();
        all
    }
}
