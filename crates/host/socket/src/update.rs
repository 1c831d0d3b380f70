//! What a socket probe yields. `docs/sockets.md` is the contract.

use std::net::{IpAddr, SocketAddr};

/// Transport protocols whose sockets are watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP, and MPTCP's subflows.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// State of a socket. TCP's are those of RFC 9293 with the kernel's numbers
/// (include/net/tcp_states.h); `NewSynRecv` (12) is shown as `SynRecv`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "names of RFC 9293")]
pub enum SocketState {
    Established = 1,
    SynSent = 2,
    SynRecv = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
    /// A UDP socket with a fixed peer.
    UdpConnected = 64,
    /// A UDP socket without one.
    UdpUnconnected = 65,
}

/// The opener of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Opener {
    /// Not known: older than the probe, and no listening socket shows it.
    #[default]
    Unknown,
    /// This side, by `connect` (or the first send of an unbound UDP socket).
    Local,
    /// The other side: accepted here.
    Remote,
}

/// A process as the kernel knew it at the moment of the event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Task {
    /// Process (thread group) in the initial pid namespace; 0 unknown.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Start of the process (its first thread), ns of CLOCK_BOOTTIME; 0 unknown. With `pid` it is unique:
    /// pids are reused.
    pub start_ns: u64,
    /// Id of its control group: of the unified hierarchy (its directory's inode number) or, where
    /// that only has the root, of version 1's `pids`, or without that `memory`; 0 unknown.
    /// Hierarchies number their groups alike: one of version 1 has [`CGROUP_V1`](Self::CGROUP_V1)
    /// set.
    pub cgroup: u64,
    /// Name of the process (its first thread's `comm`), NUL padded. Any bytes.
    pub comm: [u8; 16],
    /// Last component of its executable's path, NUL padded, cut at 32. Any bytes.
    pub exe: [u8; 32],
}

impl Task {
    /// Bit of [`cgroup`](Self::cgroup) that no kernel's id has: a group of version 1.
    pub const CGROUP_V1: u64 = 1 << 63;
}

/// How the owner of a socket was found, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum TaskRule {
    /// It accepted the connection.
    Accept,
    /// It called connect or listen.
    Connect,
    /// It has the socket open now (file table).
    File,
    /// It was the last to close the socket, or shut it down.
    Close,
    /// It sent first (UDP).
    Send,
    /// It made the socket.
    Create,
    /// It made the listening socket that the connection came in by.
    Listener,
    /// Not known.
    #[default]
    Unknown,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// By FIN of both sides, or given up by this side after its FIN.
    Closed,
    /// This side sent a RST.
    ResetLocal,
    /// The other side sent a RST.
    ResetRemote,
    /// The attempt was answered with a RST (ECONNREFUSED).
    Refused,
    /// No answer in time (ETIMEDOUT), to the attempt or to data.
    TimedOut,
    /// Another error, as errno: EHOSTUNREACH, ENETUNREACH, …
    Error(i32),
    /// A poll saw the socket and the next one did not, without an event: its last numbers are those of the
    /// last poll.
    Vanished,
}

/// What TCP itself measured (`struct tcp_sock`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpMetrics {
    /// Payload bytes that the other side acknowledged; SYN and FIN not counted.
    pub bytes_sent: u64,
    /// Payload bytes received in order; FIN not counted.
    pub bytes_received: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Segments sent, retransmitted ones and those without payload included.
    pub segments_sent: u64,
    /// Segments received.
    pub segments_received: u64,
    /// Segments sent again since the start (`total_retrans`).
    pub retransmits: u32,
    /// Segments held for lost now (`lost_out`).
    pub lost: u32,
    /// Smoothed round-trip time, µs; 0: no sample.
    pub srtt_us: u32,
    /// Its mean deviation (`mdev_us`, what `ss` shows as RTT variance), µs.
    pub rttvar_us: u32,
    /// Smallest round-trip time of the kernel's window, µs; 0: no sample.
    pub min_rtt_us: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Maximum segment size for sending, bytes.
    pub mss: u32,
    /// Latest delivery rate sample, bytes per second; 0: none.
    pub delivery_rate: u64,
}

/// State of a socket: as polled ([`end`](Self::end) none) or at its end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SocketUpdate {
    /// The kernel's socket cookie; another number with the same promise where there is none:
    /// never used again on this host. A TCP socket that connects again is a new one.
    pub id: u64,
    /// Protocol.
    pub protocol: Protocol,
    /// State now; of an ended socket the last one before [`SocketState::Close`].
    pub state: SocketState,
    /// Inode number of its network namespace.
    pub netns: u32,
    /// Local address, an IPv4 one where an IPv6 socket speaks IPv4; unspecified when not bound.
    pub local: SocketAddr,
    /// The other side; none for listening and unconnected sockets. For UDP without connect the
    /// first destination.
    pub remote: Option<SocketAddr>,
    /// The opener.
    pub opener: Opener,
    /// Owner.
    pub task: Task,
    /// How the owner was found.
    pub task_rule: TaskRule,
    /// Begin of the attempt (SYN sent or connection accepted; UDP: socket known), ns since the
    /// Unix epoch; 0: older than the probe.
    pub start_ns: u64,
    /// Established, ns since the Unix epoch; 0: never, or not seen.
    pub established_ns: u64,
    /// Time of this poll or of the end, ns since the Unix epoch.
    pub now_ns: u64,
    /// Why it ended; none while it is open.
    pub end: Option<End>,
    /// TCP's metrics; none for UDP and listening sockets.
    pub tcp: Option<TcpMetrics>,
    /// Listening TCP sockets: connections that wait for accept, and the most that may.
    pub backlog: Option<(u32, u32)>,
}

/// Round-trip times of several connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RttSum {
    /// Connections with a sample.
    pub count: u64,
    /// Sum of smoothed round-trip times, µs.
    pub sum_us: u64,
    /// Smallest, µs.
    pub min_us: u32,
    /// Greatest, µs.
    pub max_us: u32,
    /// Connections by smoothed RTT: place `n` counts those of [2ⁿ, 2ⁿ⁺¹) µs, place 0 also below
    /// 1 µs, the last all above.
    pub histogram: [u32; 24],
}

/// Ended connections between one process and one peer, summed up by the kernel since the drain
/// before (aggregate mode): the ephemeral port is left out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PairUpdate {
    /// Protocol.
    pub protocol: Protocol,
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Local address.
    pub local: IpAddr,
    /// The other side's.
    pub remote: IpAddr,
    /// Port of the side that did not open.
    pub service_port: u16,
    /// The opener.
    pub opener: Opener,
    /// Owner of the local sockets.
    pub task: Task,
    /// How the owner was found.
    pub task_rule: TaskRule,
    /// Ended connections.
    pub connections: u64,
    /// Of them: refused, timed out or unreachable before they were established.
    pub failed: u64,
    /// Of them: reset by either side after they were established.
    pub reset: u64,
    /// Sum of lifetimes, ns.
    pub duration_ns: u64,
    /// Sums of the counters that add up; others 0.
    pub tcp: TcpMetrics,
    /// Round-trip times.
    pub rtt: RttSum,
    /// First begin and last end in this drain, ns since the Unix epoch.
    pub first_ns: u64,
    /// Last end, ns since the Unix epoch.
    pub last_ns: u64,
}

/// Sockets that did not become a record, by cause; since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketLosses {
    /// Ends that did not fit into the ring buffer.
    pub ring_full: u64,
    /// Sockets for which the kernel had no memory or no free entry.
    pub table_full: u64,
    /// Ended connections above the limit of the kernel's pair table.
    pub pairs_full: u64,
}

impl SocketLosses {
    /// Causes with their names.
    pub fn by_cause(&self) -> [(&'static str, u64); 3] {
        [
            ("ring_full", self.ring_full),
            ("table_full", self.table_full),
            ("pairs_full", self.pairs_full),
        ]
    }
}

/// Whether a hook does what it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookState {
    /// Proven by an exchange of our own.
    Active,
    /// Attached, but saw nothing of our exchange.
    Silent,
    /// Does not load or attach.
    Unsupported,
    /// Not needed: a better rung serves.
    NotNeeded,
}

/// A rung of the ladder of one capability of the socket probe, for `skua doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookStatus {
    /// What it is for: `tcp state`, `accept`, `udp connect`, `udp send`, `close`, `existing`, ….
    pub capability: &'static str,
    /// The hook, like `tp_btf/inet_sock_set_state`.
    pub hook: String,
    /// Result of the proof.
    pub state: HookState,
    /// Why, when it is not active.
    pub reason: String,
}
