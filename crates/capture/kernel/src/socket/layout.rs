//! The structs of `bpf/socket/socket.h` in our own terms.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use skua_socket::{
    End, Opener, PairUpdate, Protocol, RttSum, SocketState, SocketUpdate, Task, TaskRule,
    TcpMetrics,
};

use crate::bindings::socket as c;
pub(super) use crate::{
    bindings::socket::{
        CgroupMade, Look as RawDumped, LookControl as DumpControl, PairKey, PairSums,
        SocketRecord as RawRecord, SocketSettings as Settings, SocketTask as RawTask,
        SocketTcp as RawTcp,
    },
    plain::Plain,
};

/// Mean deviation that the kernel begins with.
const NO_DEVIATION_US: u32 = 250_000;

/// Converts times of CLOCK_MONOTONIC to wall-clock time: the ns to add.
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

fn address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

fn protocol(number: u8) -> Option<Protocol> {
    [Protocol::Tcp, Protocol::Udp]
        .into_iter()
        .find(|p| p.number() == number)
}

fn rule(number: u8) -> TaskRule {
    match number.into() {
        c::RULE_ACCEPT => TaskRule::Accept,
        c::RULE_CONNECT => TaskRule::Connect,
        c::RULE_FILE => TaskRule::File,
        c::RULE_CLOSE => TaskRule::Close,
        c::RULE_SEND => TaskRule::Send,
        c::RULE_CREATE => TaskRule::Create,
        c::RULE_LISTENER => TaskRule::Listener,
        _ => TaskRule::Unknown,
    }
}

fn opener(number: u8) -> Opener {
    match number.into() {
        c::OPENER_LOCAL => Opener::Local,
        c::OPENER_REMOTE => Opener::Remote,
        _ => Opener::Unknown,
    }
}

fn state(number: u8) -> Option<SocketState> {
    Some(match number.into() {
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
        c::STATE_UDP_CONNECTED => SocketState::UdpConnected,
        c::STATE_UDP_UNCONNECTED => SocketState::UdpUnconnected,
        _ => return None,
    })
}

fn end(number: u8, error: u16) -> Option<End> {
    Some(match number.into() {
        c::END_NONE => return None,
        c::END_CLOSED => End::Closed,
        c::END_RESET_LOCAL => End::ResetLocal,
        c::END_RESET_REMOTE => End::ResetRemote,
        c::END_REFUSED => End::Refused,
        c::END_TIMED_OUT => End::TimedOut,
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
    /// Whether the file tables are a better source for the owner than the present one.
    pub fn wants_file(&self) -> bool {
        u32::from(self.rule) >= c::RULE_FILE
    }

    /// Sets the owner to the task that has the socket open.
    pub fn owned_by_file(&mut self, task: &RawTask) {
        self.task = *task;
        self.rule = c::RULE_FILE as u8;
    }

    /// As an update; none if the record makes no sense.
    pub(super) fn update(&self, clock: Clock) -> Option<SocketUpdate> {
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
