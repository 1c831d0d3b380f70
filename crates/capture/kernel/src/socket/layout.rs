//! The structs of `bpf/socket/socket.h`, and what they say in our own terms.

use std::{
    mem::MaybeUninit,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use skua_socket::{
    End, Opener, PairUpdate, Protocol, RttSum, SocketState, SocketUpdate, Task, TaskRule,
    TcpMetrics,
};

/// Types that may be read from any bytes.
///
/// # Safety
/// Every bit pattern must be valid, and there must be no implicit padding.
pub(super) unsafe trait Plain: Copy {
    /// Reads one from the begin of `bytes`, if there are enough.
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        let mut value = MaybeUninit::<Self>::uninit();
        // SAFETY: enough bytes are there, and any bit pattern is a valid value (Plain).
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                value.as_mut_ptr().cast(),
                size_of::<Self>(),
            );
            Some(value.assume_init())
        }
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: plain integers without implicit padding (Plain): all bytes are initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// `struct socket_settings`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Settings {
    pub wake_at: u32,
    pub aggregate: u8,
    pub pad: [u8; 3],
}

/// `struct socket_task`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RawTask {
    pid: u32,
    uid: u32,
    start_ns: u64,
    cgroup: u64,
    comm: [u8; 16],
    exe: [u8; 32],
}

/// `struct socket_tcp`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RawTcp {
    bytes_sent: u64,
    bytes_received: u64,
    bytes_retransmitted: u64,
    segments_sent: u32,
    segments_received: u32,
    retransmits: u32,
    lost: u32,
    srtt_eighths: u32,
    mdev_quarters: u32,
    min_rtt_us: u32,
    cwnd: u32,
    mss: u32,
    rate_delivered: u32,
    rate_interval_us: u32,
    pad: u32,
}

/// `struct socket_record`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRecord {
    id: u64,
    start_ns: u64,
    established_ns: u64,
    now_ns: u64,
    task: RawTask,
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
    netns: u32,
    protocol: u8,
    state: u8,
    rule: u8,
    opener: u8,
    end: u8,
    pad: u8,
    error: u16,
    backlog: u32,
    backlog_max: u32,
    tcp: RawTcp,
}

/// `struct look` of `bpf/socket/hash.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RawLook {
    pub record: RawRecord,
    /// Address of the socket.
    pub sk: u64,
    /// Inode number of its file; 0: nobody has it open.
    pub inode: u64,
}

/// `struct look_control` of `bpf/socket/hash.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LookControl {
    pub thread: u32,
    pub looked: u32,
    pub owned: u32,
    pub pad: u32,
}

/// `struct pair_key`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PairKey {
    local: [u8; 16],
    remote: [u8; 16],
    task_start_ns: u64,
    pid: u32,
    netns: u32,
    service_port: u16,
    protocol: u8,
    opener: u8,
    rule: u8,
    pad: [u8; 3],
}

/// `struct pair_sums`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PairSums {
    task: RawTask,
    connections: u64,
    failed: u64,
    reset: u64,
    duration_ns: u64,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_retransmitted: u64,
    segments_sent: u64,
    segments_received: u64,
    retransmits: u64,
    rtt_count: u64,
    rtt_sum_us: u64,
    rtt_min_us_complement: u64,
    rtt_max_us: u64,
    first_ns_complement: u64,
    last_ns: u64,
    rtt_histogram: [u32; 24],
}

/// `struct cgroup_made`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CgroupMade {
    pub id: u64,
    pub length: u32,
    pub pad: u32,
}

// SAFETY: integers only, padding is explicit; the sizes below equal the sums of the fields.
unsafe impl Plain for Settings {}
// SAFETY: as above.
unsafe impl Plain for RawRecord {}
// SAFETY: as above.
unsafe impl Plain for RawTask {}
// SAFETY: as above.
unsafe impl Plain for RawLook {}
// SAFETY: as above.
unsafe impl Plain for LookControl {}
// SAFETY: as above.
unsafe impl Plain for PairKey {}
// SAFETY: as above.
unsafe impl Plain for PairSums {}
// SAFETY: as above.
unsafe impl Plain for CgroupMade {}

const _: () = assert!(size_of::<Settings>() == 8);
const _: () = assert!(size_of::<RawTask>() == 72);
const _: () = assert!(size_of::<RawTcp>() == 72);
const _: () = assert!(size_of::<RawRecord>() == 232);
const _: () = assert!(size_of::<RawLook>() == 248);
const _: () = assert!(size_of::<LookControl>() == 16);
const _: () = assert!(size_of::<PairKey>() == 56);
const _: () = assert!(size_of::<PairSums>() == 296);
const _: () = assert!(size_of::<CgroupMade>() == 16);

/// Mean deviation that the kernel begins with.
const NO_DEVIATION_US: u32 = 250_000;

/// Turns times of CLOCK_MONOTONIC into wall-clock time: what is to be added.
#[derive(Clone, Copy)]
pub(super) struct Clock(pub i64);

impl Clock {
    fn unix(self, monotonic_ns: u64) -> u64 {
        match monotonic_ns {
            0 => 0,
            time => time.saturating_add_signed(self.0),
        }
    }
}

impl RawTask {
    /// Process; 0: unknown.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn task(&self) -> Task {
        Task {
            pid: self.pid,
            uid: self.uid,
            start_ns: self.start_ns,
            cgroup: self.cgroup,
            comm: self.comm,
            exe: self.exe,
        }
    }
}

/// `RULE_FILE` of `enum socket_rule`.
const RULE_FILE: u8 = 2;

fn address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

fn protocol(number: u8) -> Option<Protocol> {
    [Protocol::Tcp, Protocol::Udp]
        .into_iter()
        .find(|p| p.number() == number)
}

fn rule(number: u8) -> TaskRule {
    match number {
        0 => TaskRule::Accept,
        1 => TaskRule::Connect,
        2 => TaskRule::File,
        3 => TaskRule::Close,
        4 => TaskRule::Send,
        5 => TaskRule::Create,
        6 => TaskRule::Listener,
        _ => TaskRule::Unknown,
    }
}

fn opener(number: u8) -> Opener {
    match number {
        1 => Opener::Local,
        2 => Opener::Remote,
        _ => Opener::Unknown,
    }
}

fn state(number: u8) -> Option<SocketState> {
    Some(match number {
        1 => SocketState::Established,
        2 => SocketState::SynSent,
        3 | 12 => SocketState::SynRecv,
        4 => SocketState::FinWait1,
        5 => SocketState::FinWait2,
        6 => SocketState::TimeWait,
        7 => SocketState::Close,
        8 => SocketState::CloseWait,
        9 => SocketState::LastAck,
        10 => SocketState::Listen,
        11 => SocketState::Closing,
        64 => SocketState::UdpConnected,
        65 => SocketState::UdpUnconnected,
        _ => return None,
    })
}

fn end(number: u8, error: u16) -> Option<End> {
    Some(match number {
        0 => return None,
        1 => End::Closed,
        2 => End::ResetLocal,
        3 => End::ResetRemote,
        4 => End::Refused,
        5 => End::TimedOut,
        _ => End::Error(error.into()),
    })
}

impl RawTcp {
    fn metrics(&self) -> TcpMetrics {
        let srtt_us = self.srtt_eighths >> 3;
        let rttvar_us = self.mdev_quarters >> 2;
        let no_sample = self.srtt_eighths == 0 && rttvar_us == NO_DEVIATION_US;
        // tcp_compute_delivery_rate of net/ipv4/tcp.c.
        let delivery_rate = (u64::from(self.rate_delivered) * u64::from(self.mss))
            .saturating_mul(1_000_000)
            .checked_div(self.rate_interval_us.into())
            .unwrap_or(0);
        TcpMetrics {
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            bytes_retransmitted: self.bytes_retransmitted,
            segments_sent: self.segments_sent.into(),
            segments_received: self.segments_received.into(),
            retransmits: self.retransmits,
            lost: self.lost,
            srtt_us,
            rttvar_us: if no_sample { 0 } else { rttvar_us },
            // The kernel begins with all ones.
            min_rtt_us: if self.min_rtt_us == u32::MAX {
                0
            } else {
                self.min_rtt_us
            },
            cwnd: self.cwnd,
            mss: self.mss,
            delivery_rate,
        }
    }
}

impl RawRecord {
    /// Whether the file tables say better than what is known who the owner is.
    pub fn wants_file(&self) -> bool {
        self.rule >= RULE_FILE
    }

    /// The owner is who has it open.
    pub fn owned_by_file(&mut self, task: &RawTask) {
        self.task = *task;
        self.rule = RULE_FILE;
    }

    /// As an update; none if the record makes no sense.
    pub fn update(&self, clock: Clock) -> Option<SocketUpdate> {
        let protocol = protocol(self.protocol)?;
        let state = state(self.state)?;
        let listening = state == SocketState::Listen;
        let has_remote = self.remote_port != 0 && !listening;
        Some(SocketUpdate {
            id: self.id,
            protocol,
            state,
            netns: self.netns,
            local: SocketAddr::new(address(self.local), self.local_port),
            remote: has_remote.then(|| SocketAddr::new(address(self.remote), self.remote_port)),
            opener: opener(self.opener),
            task: self.task.task(),
            task_rule: rule(self.rule),
            start_ns: clock.unix(self.start_ns),
            established_ns: clock.unix(self.established_ns),
            now_ns: clock.unix(self.now_ns),
            end: end(self.end, self.error),
            tcp: (protocol == Protocol::Tcp && !listening).then(|| self.tcp.metrics()),
            backlog: listening.then_some((self.backlog, self.backlog_max)),
        })
    }
}

/// A pair as an update; none if it makes no sense, or was made but never added to.
pub(super) fn pair(key: &PairKey, sums: &PairSums, clock: Clock) -> Option<PairUpdate> {
    if sums.connections == 0 {
        return None;
    }
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let least = |complement: u64| if complement == 0 { 0 } else { !complement };
    Some(PairUpdate {
        protocol: protocol(key.protocol)?,
        netns: key.netns,
        local: address(key.local),
        remote: address(key.remote),
        service_port: key.service_port,
        opener: opener(key.opener),
        task: sums.task.task(),
        task_rule: rule(key.rule),
        connections: sums.connections,
        failed: sums.failed,
        reset: sums.reset,
        duration_ns: sums.duration_ns,
        tcp: TcpMetrics {
            bytes_sent: sums.bytes_sent,
            bytes_received: sums.bytes_received,
            bytes_retransmitted: sums.bytes_retransmitted,
            segments_sent: sums.segments_sent,
            segments_received: sums.segments_received,
            retransmits: narrow(sums.retransmits),
            ..TcpMetrics::default()
        },
        rtt: RttSum {
            count: sums.rtt_count,
            sum_us: sums.rtt_sum_us,
            min_us: narrow(least(sums.rtt_min_us_complement)),
            max_us: narrow(sums.rtt_max_us),
            histogram: sums.rtt_histogram,
        },
        first_ns: clock.unix(least(sums.first_ns_complement)),
        last_ns: clock.unix(sums.last_ns),
    })
}
