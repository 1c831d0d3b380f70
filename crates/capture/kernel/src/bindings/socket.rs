//! Made of `bpf/socket/socket.h` by `tests/bindings.rs`: change those.

pub const STATE_UDP_CONNECTED: u32 = 64;
pub const STATE_UDP_UNCONNECTED: u32 = 65;
pub const RTT_BUCKETS: u32 = 24;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SocketTask {
    pub pid: u32,
    pub uid: u32,
    pub start_ns: u64,
    pub cgroup: u64,
    pub comm: [u8; 16],
    pub exe: [u8; 32],
}

pub const RULE_ACCEPT: SocketRule = 0;
pub const RULE_CONNECT: SocketRule = 1;
pub const RULE_FILE: SocketRule = 2;
pub const RULE_CLOSE: SocketRule = 3;
pub const RULE_SEND: SocketRule = 4;
pub const RULE_CREATE: SocketRule = 5;
pub const RULE_LISTENER: SocketRule = 6;
pub const RULE_UNKNOWN: SocketRule = 7;
pub type SocketRule = u32;
pub const OPENER_UNKNOWN: SocketOpener = 0;
pub const OPENER_LOCAL: SocketOpener = 1;
pub const OPENER_REMOTE: SocketOpener = 2;
pub type SocketOpener = u32;
pub const END_NONE: SocketEnd = 0;
pub const END_CLOSED: SocketEnd = 1;
pub const END_RESET_LOCAL: SocketEnd = 2;
pub const END_RESET_REMOTE: SocketEnd = 3;
pub const END_REFUSED: SocketEnd = 4;
pub const END_TIMED_OUT: SocketEnd = 5;
pub const END_ERROR: SocketEnd = 6;
pub type SocketEnd = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SocketTcp {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub bytes_retransmitted: u64,
    pub segments_sent: u32,
    pub segments_received: u32,
    pub retransmits: u32,
    pub lost: u32,
    pub srtt_eighths: u32,
    pub mdev_quarters: u32,
    pub min_rtt_us: u32,
    pub cwnd: u32,
    pub mss: u32,
    pub rate_delivered: u32,
    pub rate_interval_us: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SocketRecord {
    pub id: u64,
    pub start_ns: u64,
    pub established_ns: u64,
    pub now_ns: u64,
    pub task: SocketTask,
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub local_port: u16,
    pub remote_port: u16,
    pub netns: u32,
    pub protocol: u8,
    pub state: u8,
    pub rule: u8,
    pub opener: u8,
    pub end: u8,
    pub pad: u8,
    pub error: u16,
    pub backlog: u32,
    pub backlog_max: u32,
    pub tcp: SocketTcp,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct PairKey {
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub task_start_ns: u64,
    pub pid: u32,
    pub netns: u32,
    pub service_port: u16,
    pub protocol: u8,
    pub opener: u8,
    pub rule: u8,
    pub pad: [u8; 3],
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct PairSums {
    pub task: SocketTask,
    pub connections: u64,
    pub failed: u64,
    pub reset: u64,
    pub duration_ns: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub bytes_retransmitted: u64,
    pub segments_sent: u64,
    pub segments_received: u64,
    pub retransmits: u64,
    pub rtt_count: u64,
    pub rtt_sum_us: u64,
    pub rtt_min_us_complement: u64,
    pub rtt_max_us: u64,
    pub first_ns_complement: u64,
    pub last_ns: u64,
    pub rtt_histogram: [u32; 24],
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct CgroupMade {
    pub id: u64,
    pub length: u32,
    pub pad: u32,
}

pub const LOSS_RING_FULL: SocketLoss = 0;
pub const LOSS_TABLE_FULL: SocketLoss = 1;
pub const LOSS_PAIRS_FULL: SocketLoss = 2;
pub const STORAGE_REFUSED: SocketLoss = 3;
pub const LOSSES: SocketLoss = 4;
pub type SocketLoss = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct LookControl {
    pub thread: u32,
    pub looked: u32,
    pub owned: u32,
    pub pid: u32,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct Look {
    pub record: SocketRecord,
    pub sk: u64,
    pub inode: u64,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SocketSettings {
    pub wake_at: u32,
    pub aggregate: u8,
    pub pad: [u8; 3],
}

crate::plain::plain!(
    SocketTask,
    SocketTcp,
    SocketRecord,
    PairKey,
    PairSums,
    CgroupMade,
    LookControl,
    Look,
    SocketSettings
);
