//! Copies chosen packets of interfaces to monitors, in the kernel.
//!
//! At each source hangs a program that chooses packets and clones them ([`skua_kernel::tap`]). A clone
//! goes to the monitor straight, where that can be: it is an interface in the same namespace that gets
//! packets as the wire has them. Else it goes through a veth pair of the tap's own, whose near end cuts
//! super-packets into segments and completes checksums, and whose far end lies in the namespace of the
//! monitor: a program there tags, cuts and encapsulates what no one else sees.
//!
//! Nothing here is told of changes by itself: whoever has a [`Tap`] calls [`Tap::look`] when the topology
//! has changed, and about once a second.

mod error;
mod monitor;
mod room;
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
