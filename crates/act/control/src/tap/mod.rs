//! Taps: whose packets are copied to which monitors.

mod holders;
mod manager;
mod plan;

use crate::resource::Resource;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use holders::{Holders, SocketFinder};
pub use manager::{Amount, Counts, TapError, TapManager, TapSettings, TapView, TapWatch};
pub use plan::spec;

/// Directions of packets, seen from a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = TapDirection)]
pub enum TapDirection {
    /// Received and sent.
    #[default]
    Both,
    /// Received.
    In,
    /// Sent.
    Out,
}

/// A tap. In the configuration file keys are written small (`from`, `gremlin_query`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Tap {
    /// Identifier.
    #[serde(rename = "UUID", deserialize_with = "crate::skydive::id")]
    pub uuid: Uuid,
    /// For people.
    #[serde(alias = "name")]
    pub name: String,
    /// For people.
    #[serde(alias = "description")]
    pub description: String,
    /// Interfaces whose packets are copied, `eth0` or `eth0@NAMESPACE`.
    #[serde(alias = "from")]
    pub from: Vec<String>,
    /// Query that finds such interfaces, too.
    #[serde(alias = "gremlin_query")]
    pub gremlin_query: String,
    /// Direction of the packets.
    #[serde(alias = "direction")]
    pub direction: TapDirection,
    /// Pcap expression; only matching packets are copied.
    #[serde(alias = "match")]
    pub r#match: String,
    /// Addresses or prefixes, of which packets must have one as source or destination.
    #[serde(alias = "nets")]
    pub nets: Vec<String>,
    /// The same, as source.
    #[serde(alias = "source_nets")]
    pub source_nets: Vec<String>,
    /// The same, as destination.
    #[serde(alias = "destination_nets")]
    pub destination_nets: Vec<String>,
    /// MAC addresses, of which packets must have one; any address of all these lists is enough.
    #[serde(rename = "MACs", alias = "macs")]
    pub macs: Vec<String>,
    /// The same, as source.
    #[serde(rename = "SourceMACs", alias = "source_macs")]
    pub source_macs: Vec<String>,
    /// The same, as destination.
    #[serde(rename = "DestinationMACs", alias = "destination_macs")]
    pub destination_macs: Vec<String>,
    /// Processes by name, number or path; only packets of their sockets on this host are copied.
    #[serde(alias = "processes")]
    pub processes: Vec<String>,
    /// Containers by name or begin of their identifier; the same.
    #[serde(alias = "containers")]
    pub containers: Vec<String>,
    /// Services as `skua services` names them, or units of systemd; the same.
    #[serde(alias = "services")]
    pub services: Vec<String>,
    /// Where copies go, `mon0` or `mon0@NAMESPACE`; conversations are spread over several. `stream`: to
    /// who watches.
    #[serde(alias = "to")]
    pub to: Vec<String>,
    /// VLAN identifier of copies from the first source, one more for each further one; 0: no tag.
    #[serde(rename = "VLAN", alias = "vlan")]
    pub vlan: u16,
    /// Bytes of a packet that are kept; 0: all.
    #[serde(alias = "cut")]
    pub cut: u32,
    /// One packet of so many is copied, by chance.
    #[serde(alias = "sampling")]
    pub sampling: u32,
    /// Packets per second at most; 0: no limit.
    #[serde(alias = "packet_rate")]
    pub packet_rate: u64,
    /// Bits per second at most; 0: no limit.
    #[serde(alias = "bit_rate")]
    pub bit_rate: u64,
    /// A packet that was copied where it came in is not copied where it goes out.
    #[serde(alias = "dedup")]
    pub dedup: bool,
    /// Super-packets stay whole, and checksums as they are.
    #[serde(alias = "whole")]
    pub whole: bool,
    /// Who made it; not for people to say.
    pub who: String,
    /// It stands in the configuration file; not for people to say.
    pub declared: bool,
    /// Ms since the Unix epoch.
    pub create_time: i64,
    /// When it ends by itself, ms since the Unix epoch.
    pub expire_time: Option<i64>,
    /// Ends with who made it: is not kept, and there may be another that does the same.
    #[serde(skip)]
    pub passing: bool,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            uuid: Uuid::nil(),
            name: String::new(),
            description: String::new(),
            from: Vec::new(),
            gremlin_query: String::new(),
            direction: TapDirection::Both,
            r#match: String::new(),
            nets: Vec::new(),
            source_nets: Vec::new(),
            destination_nets: Vec::new(),
            macs: Vec::new(),
            source_macs: Vec::new(),
            destination_macs: Vec::new(),
            processes: Vec::new(),
            containers: Vec::new(),
            services: Vec::new(),
            to: Vec::new(),
            vlan: 0,
            cut: 0,
            sampling: 1,
            packet_rate: 0,
            bit_rate: 0,
            dedup: false,
            whole: false,
            who: String::new(),
            declared: false,
            create_time: 0,
            expire_time: None,
            passing: false,
        }
    }
}

impl Resource for Tap {
    const KIND: &'static str = "tap";

    fn id(&self) -> Uuid {
        self.uuid
    }

    fn set_id(&mut self, id: Uuid) {
        self.uuid = id;
    }

    fn ends_at(&self) -> Option<i64> {
        self.expire_time
    }

    fn is_kept(&self) -> bool {
        !self.declared && !self.passing
    }

    fn is_same(&self, other: &Self) -> bool {
        let bare = |tap: &Self| Self {
            uuid: Uuid::nil(),
            name: String::new(),
            description: String::new(),
            who: String::new(),
            declared: false,
            create_time: 0,
            expire_time: None,
            ..tap.clone()
        };
        !self.passing && !other.passing && bare(self) == bare(other)
    }
}
