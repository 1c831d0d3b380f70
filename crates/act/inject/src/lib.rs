//! Makes packets, sends them into an interface, and sees whether they arrive and are answered.
//!
//! [`Template`] is what a packet looks like, [`Frames`] what is sent, a [`Job`] where and how fast;
//! [`Injection::start`] carries it out on a thread of its own. Nothing here knows of a graph: a
//! [`Point`] is an interface of a network namespace. Packets go out by AF_PACKET inside that
//! namespace: past the hooks on egress, but past no socket, firewall or route of the sender.

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
