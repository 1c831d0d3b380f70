//! Receivers of flows and packets from exporters. sFlow, NetFlow and IPFIX come as datagrams, packets as
//! pcap or pcapng over TCP. `docs/receivers.md` describes how they are counted.

mod conversations;
mod engine;
mod exporters;
mod netflow;
mod pcapsocket;
mod probe;
mod received;
mod sflow;
mod socket;
mod worker;

pub use netflow::NetflowProbe;
pub use pcapsocket::{PcapSocketConfig, PcapSocketProbe};
pub use probe::{AllowList, DatagramProbe, ReceiverConfig};
pub use received::{ReceiveCause, Received};
pub use sflow::{InterfaceSample, SflowCounters, SflowProbe};
pub use socket::{Answering, MANY, ReceiveBuffers, Socket};

/// Port of sFlow (IANA).
pub const SFLOW_PORT: u16 = 6343;
/// Port that collectors of NetFlow mostly listen on.
pub const NETFLOW_PORT: u16 = 2055;
/// Numbers of exporters, which stand in place of network namespaces in flow keys, begin here: the
/// agent never has so many namespaces of its own.
pub const FIRST_EXPORTER: u16 = 0x8000;
