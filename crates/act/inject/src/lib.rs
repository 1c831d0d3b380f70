//! Generates packets, sends them on an interface, and observes whether they arrive and are
//! answered.
//!
//! [`Template`] describes a packet, [`Frames`] all frames to send, a [`Job`] where and how fast;
//! [`Injection::start`] runs the job on its own thread. The crate does not know the graph: a [`Point`]
//! is an interface of a network namespace. AF_PACKET sends the packets inside that namespace: they
//! pass the hooks on egress, but no socket, firewall or route of the sender.

mod checksum;
mod error;
mod frames;
mod neighbour;
mod packet;
mod point;
mod run;
mod track;
mod witness;

pub use error::InjectError;
pub use frames::{Frames, MAX_FILE_BYTES, Mode, Payload};
pub use neighbour::find_mac;
pub use packet::{Addresses, Kind, MAX_PAYLOAD, Mac, Template, flags};
pub use point::Point;
pub use run::{Injection, Job, Outcome, State, Status};
pub use witness::IcmpError;
