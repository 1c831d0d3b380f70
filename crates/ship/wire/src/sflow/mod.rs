//! sFlow version 5 (sFlow.org, July 2004): datagrams, flow and counters samples, and their records.
//!
//! [`decode`] reads the header of a datagram; [`Datagram::samples`] iterates over its samples, and
//! these over their records. A damaged sample is an error of its own; the next one is still read if
//! the lengths give its start. Unknown structures are skipped by their length; records may be longer
//! than known. [`Writer`] writes the same structures.
//!
//! ```
//! use skua_wire::sflow::{self, Record, Sample};
//!
//! fn print(datagram: &[u8]) -> Result<(), skua_wire::DecodeError> {
//!     let datagram = sflow::decode(datagram)?;
//!     for sample in datagram.samples() {
//!         if let Sample::Flow(sample) = sample? {
//!             for record in sample.records() {
//!                 if let Record::RawHeader(raw) = record? {
//!                     println!("1:{} {} bytes", sample.head.rate, raw.frame_length);
//!                 }
//!             }
//!         }
//!     }
//!     Ok(())
//! }
//! ```

mod counters;
mod datagram;
mod host;
mod names;
pub mod own;
mod record;
mod sample;
mod write;
mod xdr;

pub use counters::{Counters, EthernetCounters, InterfaceCounters};
pub use datagram::{Datagram, Header, Samples, decode};
pub use host::{Socket, TcpInfo};
pub use names::{Definitions, NAME, NAMES, NAMES_RECORD, Name, Names, ServiceName};
pub use own::{AgentReport, Conversation, ConversationTcp, ENTERPRISE, Hello, SocketTcp};
pub use record::{
    EthernetFrame, ExtendedRouter, ExtendedSwitch, IpPacket, RawHeader, Record, Records,
    header_protocol,
};
pub use sample::{
    CountersHead, CountersRecords, CountersSample, DataSource, FlowHead, FlowSample, Port, Sample,
};
pub use write::{CountersWriter, RecordWriter, Writer};

/// Version of the datagrams.
pub const VERSION: u32 = 5;

/// What distinguishes structures: enterprise in the upper 20 bits, format in the lower 12.
pub const fn tag(enterprise: u32, format: u32) -> u32 {
    enterprise << 12 | format & 0xfff
}

/// Address types.
const ADDRESS_UNKNOWN: u32 = 0;
const ADDRESS_V4: u32 = 1;
const ADDRESS_V6: u32 = 2;

/// Tags of samples.
const FLOW_SAMPLE: u32 = tag(0, 1);
const COUNTERS_SAMPLE: u32 = tag(0, 2);
const EXPANDED_FLOW_SAMPLE: u32 = tag(0, 3);
const EXPANDED_COUNTERS_SAMPLE: u32 = tag(0, 4);

/// Tags of flow records.
const RAW_HEADER: u32 = tag(0, 1);
const ETHERNET_FRAME: u32 = tag(0, 2);
const IPV4: u32 = tag(0, 3);
const IPV6: u32 = tag(0, 4);
const EXTENDED_SWITCH: u32 = tag(0, 1001);
const EXTENDED_ROUTER: u32 = tag(0, 1002);
const TIMESTAMP: u32 = tag(0, 1043);
const SOCKET_IPV4: u32 = tag(0, 2100);
const SOCKET_IPV6: u32 = tag(0, 2101);
const TCP_INFO: u32 = tag(0, 2209);

/// Tags of counters records.
const INTERFACE_COUNTERS: u32 = tag(0, 1);
const ETHERNET_COUNTERS: u32 = tag(0, 2);
