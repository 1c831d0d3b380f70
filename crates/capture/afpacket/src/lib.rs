//! Capture of live packets in user space, for machines where the eBPF flow table cannot be used:
//! [`AfPacketCapture`] over a ring shared with the kernel (AF_PACKET, TPACKET_V3), and
//! `pcap_live` over libpcap. Both give the same [`Packet`]s, without copying, and the same
//! [`CaptureStats`]; [`PacketSource`] is what they have in common.
//!
//! Nothing is decoded here beyond what the kernel says about a packet.

mod capture;
mod error;
mod filter;
mod listener;
mod options;
mod packet;
#[cfg(feature = "libpcap")]
pub mod pcap_live;
mod ring;
mod sender;
mod source;
mod sys;

pub use capture::AfPacketCapture;
pub use error::Error;
pub use filter::BpfInstruction;
pub use listener::{ProtocolListener, Received};
pub use options::{Fanout, MAX_RING_BYTES, Options};
pub use packet::{Direction, Gso, GsoKind, Packet, Segments, Vlan};
pub use ring::{Block, Packets};
pub use sender::PacketSender;
pub use source::{CaptureStats, PacketSource};
