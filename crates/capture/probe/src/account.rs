//! What was seen, counted in flows, and left out or lost, by capture point and cause.

use std::collections::BTreeMap;

use skua_flow::{AddressCounts, Cause, Counters};
use skua_kernel::flow::{CauseCounters, PointTraffic};
use skua_link::LinkStats;

use crate::{Wake, receive::Received, watch::thread_cpu_ns};

/// One interface as a capture point.
#[derive(Clone, Debug, Default)]
pub struct PointAccount {
    /// Interface name.
    pub interface: String,
    /// Name of its network namespace, empty for our own.
    pub netns: String,
    /// Inode number of its network namespace.
    pub netns_inode: u64,
    /// The hook, like `tcx`.
    pub hook: &'static str,
    /// Whether it is attached now.
    pub attached: bool,
    /// Packets and bytes in flows, without those inside tunnels.
    pub flows: PointTraffic,
    /// Received packets by cause.
    pub ingress: CauseCounters,
    /// Sent packets by cause.
    pub egress: CauseCounters,
    /// What the interface's own counters grew by since it was attached.
    pub interface_counters: LinkStats,
}

impl PointAccount {
    /// Packets and bytes that are in flows.
    pub fn in_flows(&self) -> Counters {
        let mut sum = self.flows.ingress;
        sum += self.flows.egress;
        sum += self.flows.mixed;
        sum
    }

    /// Both directions by cause, causes of nothing left out.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, &'static str, Counters)> + '_ {
        Cause::ALL.into_iter().filter_map(|cause| {
            let sum = self.ingress[cause as usize] + self.egress[cause as usize];
            (sum != Counters::default()).then_some((cause, cause.name(), sum))
        })
    }
}

/// How a cause counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CauseKind {
    /// The packets are in no flow, against our will.
    Lost,
    /// The packets are in no flow because the user wanted so.
    LeftOut,
    /// The packets are in flows; this is additional information.
    Note,
}

/// How a cause counts.
pub fn cause_kind(cause: Cause) -> CauseKind {
    match cause {
        Cause::TableFullTcp
        | Cause::TableFullUdp
        | Cause::TableFullIcmp
        | Cause::TableFullOther
        | Cause::Truncated
        | Cause::NoDecode
        | Cause::RingFull
        | Cause::NoBuffer
        | Cause::DeviceError => CauseKind::Lost,
        Cause::Filtered | Cause::AddressSet | Cause::SampledOut | Cause::Own => CauseKind::LeftOut,
        Cause::Malformed
        | Cause::Segmented
        | Cause::TagBytes
        | Cause::ChildFull
        | Cause::RawLost
        | Cause::LiveLost
        | Cause::HeadLimit
        | Cause::HeadLost
        | Cause::ReuseMerged => CauseKind::Note,
    }
}

/// The whole account of a probe.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// By (namespace number, interface index).
    pub points: BTreeMap<(u16, u32), PointAccount>,
    /// Sum of the capture points that have left.
    pub removed: PointAccount,
    /// Entries made in the flow table since the start.
    pub inserted: u64,
    /// Live entries now.
    pub live: u64,
    /// Entries that the table may hold.
    pub max_entries: u64,
    /// Drains, and how many of them because the table filled up.
    pub drains: u64,
    /// Drains because the table filled up.
    pub pressed_drains: u64,
    /// CPU time that draining took, ns.
    pub drain_ns: u64,
    /// Updates handed out.
    pub updates: u64,
    /// Interfaces that are not watched, because there would be too many programs in the kernel.
    pub not_watched: u64,
    /// Prefixes in the address set.
    pub addresses: AddressCounts,
    /// What a receiver got from others, and lost before it could become a flow.
    pub received: Received,
}

impl Account {
    /// Counts a drain, which `wake` was for, and which began when the thread's CPU time was `started_ns`.
    pub(crate) fn drained(&mut self, wake: Wake, started_ns: u64) {
        self.drains += 1;
        self.pressed_drains += u64::from(wake == Wake::Pressure);
        self.drain_ns += thread_cpu_ns() - started_ns;
    }
}

impl Account {
    /// All points, including those that have left.
    pub fn all_points(&self) -> impl Iterator<Item = &PointAccount> {
        self.points.values().chain([&self.removed])
    }

    /// Packets and bytes in flows, without those inside tunnels.
    pub fn in_flows(&self) -> Counters {
        let mut sum = Counters::default();
        for point in self.all_points() {
            sum += point.in_flows();
        }
        sum
    }

    /// Sums by cause over all points, those of nothing left out.
    pub fn causes(&self) -> Vec<(Cause, &'static str, Counters)> {
        Cause::ALL
            .into_iter()
            .filter_map(|cause| {
                let mut sum = Counters::default();
                for point in self.all_points() {
                    sum += point.ingress[cause as usize] + point.egress[cause as usize];
                }
                (sum != Counters::default()).then_some((cause, cause.name(), sum))
            })
            .collect()
    }

    /// Packets and bytes that passed the hooks: in flows, lost, and left out.
    pub fn seen(&self) -> Counters {
        let mut sum = self.in_flows();
        for (cause, _, counters) in self.causes() {
            if cause_kind(cause) != CauseKind::Note {
                sum += counters;
            }
        }
        sum
    }

    /// Packets and bytes lost.
    pub fn lost(&self) -> Counters {
        let mut sum = Counters::default();
        for (cause, _, counters) in self.causes() {
            if cause_kind(cause) == CauseKind::Lost {
                sum += counters;
            }
        }
        sum
    }
}

/// Adds what one point counted to another, for example to the sum of those that have left.
pub(crate) fn add_point(sum: &mut PointAccount, point: &PointAccount) {
    sum.flows += point.flows;
    for i in 0..point.ingress.len() {
        sum.ingress[i] += point.ingress[i];
        sum.egress[i] += point.egress[i];
    }
}
