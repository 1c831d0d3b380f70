//! Copies chosen packets of interfaces to monitors, in the kernel.
//!
//! A program at each source selects packets and clones them ([`skua_kernel::tap`]). Clones go directly to
//! a monitor in the same namespace whose interface gets packets as the wire has them. For any other
//! monitor the tap makes a veth pair: its near end cuts super-packets into segments and completes
//! checksums, its far end is in the monitor's namespace, where a program tags, cuts and encapsulates only
//! copies.
//!
//! A [`Tap`] subscribes to nothing: its owner calls [`Tap::reconcile`] when the topology has changed, and
//! about once a second.

mod error;
mod monitor;
mod sources;
mod space;
mod spec;
mod tap;
mod veth_pair;

pub use error::TapError;
pub use skua_kernel::{
    Direction,
    flow::LinkKind,
    tap::{
        AddressSelection, Cause, Count, MonitorCounters, PacketReader, Role, SocketsHeld,
        SourceCounters, TapChoice, TapSocket, TapTask, TappedPacket,
    },
};
pub use spec::{Source, Space, Spec, Target, Tunnel, WantedSockets};
pub use tap::{MonitorStatus, SourceStatus, Tap, TapStatus, check};
