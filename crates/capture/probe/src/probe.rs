//! What all live probes have in common.

use std::{net::IpAddr, os::fd::BorrowedFd, time::Instant};

use skua_flow::FlowUpdate;
use skua_kernel::flow::OwnSockets;

use crate::{Account, LiveAddresses, LivePoints, Packets, ProbeError};

/// Why [`Probe::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// It is time for a drain.
    Interval,
    /// The table fills up: drain now.
    Pressure,
    /// The caller's descriptor is readable.
    Caller,
}

/// What a probe works with, as users see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// Name of the hook, like `tcx`.
    pub hook: &'static str,
    /// What it is made of.
    pub rung: String,
}

/// An interface that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Number of its network namespace.
    pub netns: u16,
    /// Its index there.
    pub ifindex: u32,
    /// Name of the namespace, empty for our own.
    pub netns_name: String,
    /// Its name.
    pub name: String,
    /// Inode number of its network namespace.
    pub netns_inode: u64,
    /// Since when it is watched, ns since the Unix epoch; 0: it is not known.
    pub since_ns: u64,
}

/// A network namespace that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedNamespace {
    /// Its number in flow keys.
    pub number: u16,
    /// Its inode number, by which sockets name it.
    pub inode: u32,
    /// Addresses of its interfaces.
    pub addresses: Vec<IpAddr>,
}

/// A live source of flows. Use it from one thread: [`wait`](Self::wait), then
/// [`drain`](Self::drain), at the end [`finish`](Self::finish).
pub trait Probe {
    /// Waits for the next drain. The wait ends at `until`, or when the caller's descriptor `caller` is
    /// readable.
    ///
    /// # Errors
    ///
    /// When waiting fails, or interfaces cannot be watched any more.
    fn wait(
        &mut self,
        caller: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> Result<Wake, ProbeError>;

    /// Reads the packets that wait, so that a drain has less to do.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn read_packets(&mut self) -> Result<(), ProbeError> {
        Ok(())
    }

    /// Hands out what was counted since the last drain.
    ///
    /// # Errors
    ///
    /// When the table cannot be read.
    fn drain(&mut self, wake: Wake, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError>;

    /// Detaches from everything and drains a last time.
    ///
    /// # Errors
    ///
    /// As [`drain`](Self::drain).
    fn finish(&mut self, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError>;

    /// What was seen and lost so far, up to the last drain.
    fn account(&mut self) -> Account;

    /// The interfaces that are watched.
    fn interfaces(&self) -> Vec<Watched>;

    /// The namespaces that are watched.
    fn namespaces(&self) -> Vec<WatchedNamespace>;

    /// What it works with.
    fn describe(&self) -> Description;

    /// The address set, which can be changed while the probe works.
    fn addresses(&self) -> LiveAddresses;

    /// The capture points, which can be changed while the probe works; none when it watches interfaces by
    /// name.
    fn points(&self) -> Option<LivePoints> {
        None
    }

    /// The kept packets and live streams; none when the configuration has neither.
    fn packets(&self) -> Option<Packets> {
        None
    }

    /// By which sockets are marked as our own: with `exclude_self` their traffic is left out. None of probes that
    /// cannot know sockets.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    fn own_sockets(&self) -> Result<Option<OwnSockets>, ProbeError> {
        Ok(None)
    }

    /// Bytes of kernel memory that it takes, by name.
    fn map_memory(&self) -> Vec<(String, u64)>;
}
