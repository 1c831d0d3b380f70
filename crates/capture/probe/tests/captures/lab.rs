//! Probes on threads of their own beside the laboratory of the `skua` command's tests.

#[path = "../../../../app/skua/tests/live/lab/frame.rs"]
#[allow(dead_code, reason = "not all of it is wanted here")]
pub mod frame;
#[path = "../../../../app/skua/tests/live/lab/packet.rs"]
#[allow(dead_code, reason = "not all of it is wanted here")]
pub mod packet;

use std::{
    collections::BTreeMap,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::mpsc,
    thread::JoinHandle,
    time::Duration,
};

pub use frame::Flow;
pub use packet::{SendMode, Sender, Sent};
use rustix::thread::{CpuSet, sched_setaffinity};
use skua_flow::{Counters as Counted, FlowKey};
use skua_kernel::{HookKind, flow::FlowTableConfig};
use skua_probe::{
    Account, LivePoints, Packets, PacketsConfig, PointId, PointSet, Probe, ProbeError, Wake,
    ebpf::{EbpfConfig, EbpfProbe},
    file::CaptureFile,
    userspace::{Capture, UserspaceConfig, UserspaceProbe},
};
pub use skua_testkit::{
    lab as net,
    lab::{Net, root_tests, wait_for},
    process::Tcpdump,
    wire::{Counters, Sum, Wire},
};

/// Longer than anything takes here, also in an emulated machine.
pub const PATIENCE: Duration = Duration::from_secs(900);

/// A way to capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Hook(HookKind),
    User(Capture),
}

impl Kind {
    pub const TCX: Self = Self::Hook(HookKind::Tcx);
    pub const CLSACT: Self = Self::Hook(HookKind::Clsact);
    pub const SOCKET: Self = Self::Hook(HookKind::Socket);
    pub const XDP: Self = Self::Hook(HookKind::Xdp);
    pub const AFPACKET: Self = Self::User(Capture::Afpacket);
    pub const PCAP: Self = Self::User(Capture::Pcap);

    /// Those that several probes may use on one interface, and that see both directions.
    pub const SHARED: [Self; 5] = [
        Self::TCX,
        Self::CLSACT,
        Self::SOCKET,
        Self::AFPACKET,
        Self::PCAP,
    ];

    /// Those of some that this kernel has; prints which it has not.
    pub fn here(kinds: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let kernel = net::kernel();
        let there = |kind: &Self| {
            let since = match kind {
                Self::Hook(HookKind::Tcx) => (6, 6),
                Self::Hook(HookKind::Clsact) => (5, 8),
                Self::Hook(HookKind::Socket) => (5, 12),
                Self::Hook(HookKind::Xdp | HookKind::XdpGeneric) => (5, 18),
                Self::User(_) => (0, 0),
            };
            if kernel < since {
                eprintln!("{kind:?} is not in this kernel {kernel:?}");
            }
            kernel >= since
        };
        kinds.into_iter().filter(there).collect()
    }

    /// Whether it knows the directions of packets.
    pub fn has_directions(self) -> bool {
        self != Self::PCAP
    }
}

/// What a probe is to do.
#[derive(Clone)]
pub struct Wanted {
    pub kind: Kind,
    /// Capture points; none: the interface `x0` of the namespace that it starts in.
    pub points: Option<LivePoints>,
    pub packets: Option<PacketsConfig>,
    pub table: FlowTableConfig,
    pub scan_interval: Duration,
}

impl Wanted {
    pub fn points(kind: Kind, points: &[PointId]) -> Self {
        let points: PointSet = points.iter().copied().collect();
        Self {
            points: Some(LivePoints::new(points).unwrap()),
            ..Self::default_probe(kind)
        }
    }

    /// As `skua run` has it.
    pub fn default_probe(kind: Kind) -> Self {
        Self {
            kind,
            points: None,
            packets: None,
            table: FlowTableConfig {
                max_entries: 65_536,
                ..FlowTableConfig::default()
            },
            scan_interval: Duration::from_millis(100),
        }
    }

    pub fn filter(mut self, filter: &str) -> Self {
        self.table.filter = filter.to_owned();
        self
    }

    pub fn packets(self, packets: PacketsConfig) -> Self {
        Self {
            packets: Some(packets),
            ..self
        }
    }

    pub fn start(&self) -> Result<Box<dyn Probe>, ProbeError> {
        let interfaces = vec!["x0".to_owned()];
        let (points, packets) = (self.points.clone(), self.packets);
        let (table, scan_interval) = (self.table.clone(), self.scan_interval);
        Ok(match self.kind {
            Kind::Hook(hook) => Box::new(EbpfProbe::start(EbpfConfig {
                hooks: vec![hook],
                interfaces,
                points,
                packets,
                table,
                scan_interval,
                ..EbpfConfig::default()
            })?),
            Kind::User(capture) => Box::new(UserspaceProbe::start(UserspaceConfig {
                capture,
                interfaces,
                points,
                packets,
                table,
                scan_interval,
                ..UserspaceConfig::default()
            })?),
        })
    }
}

/// What a flow was counted with.
#[derive(Clone, Copy, Default, Debug)]
pub struct FlowTotals {
    pub sum: Counted,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// What a probe saw.
#[derive(Default, Debug)]
pub struct Seen {
    pub flows: BTreeMap<FlowKey, FlowTotals>,
    pub account: Account,
}

impl Seen {
    pub fn add(&mut self, update: &skua_flow::FlowUpdate) {
        let kept = self.flows.entry(update.key).or_insert(FlowTotals {
            first_ns: u64::MAX,
            ..FlowTotals::default()
        });
        kept.sum += update.lo_sent + update.hi_sent;
        kept.first_ns = kept.first_ns.min(update.first_ns);
        kept.last_ns = kept.last_ns.max(update.last_ns);
    }

    pub fn in_flows(&self) -> Sum {
        sum(self.account.in_flows())
    }

    pub fn seen(&self) -> Sum {
        sum(self.account.seen())
    }

    pub fn cause(&self, name: &str) -> Sum {
        let causes = self.account.causes();
        let found = causes.iter().find(|(_, n, _)| *n == name);
        found.map_or(Sum::ZERO, |(.., counters)| sum(*counters))
    }

    /// Received and sent packets in flows.
    pub fn directions(&self) -> (Sum, Sum) {
        let mut sums = (Sum::ZERO, Sum::ZERO);
        for point in self.account.all_points() {
            assert_eq!(point.flows.mixed, Counted::default());
            sums.0 += sum(point.flows.ingress);
            sums.1 += sum(point.flows.egress);
        }
        sums
    }

    /// The sums of flows are those of the points.
    pub fn check(&self) {
        let mut all = Sum::ZERO;
        for kept in self.flows.values() {
            all += sum(kept.sum);
        }
        assert_eq!(all, self.in_flows());
        assert_eq!(sum(self.account.lost()), Sum::ZERO, "{:?}", self.account);
    }
}

pub fn sum(counters: Counted) -> Sum {
    Sum::new(counters.packets, counters.bytes)
}

/// A probe at work on a thread of its own.
pub struct Running {
    pub points: Option<LivePoints>,
    pub packets: Option<Packets>,
    end: Option<UnixStream>,
    thread: Option<JoinHandle<Seen>>,
}

impl Running {
    /// Starts a probe in our own namespace.
    pub fn start(wanted: &Wanted) -> Self {
        Self::start_in(None, wanted)
    }

    /// Starts a probe in a namespace, or in our own.
    pub fn start_in(net: Option<&Net>, wanted: &Wanted) -> Self {
        skua_kernel::capture_libbpf_log();
        let (end, caller) = UnixStream::pair().unwrap();
        let (started, handles) = mpsc::channel();
        let wanted = wanted.clone();
        let path = net.map(Net::path);
        let thread = std::thread::spawn(move || match path {
            Some(path) => net::inside(&path, || run(&wanted, &caller, &started)),
            None => run(&wanted, &caller, &started),
        });
        let (points, packets) = handles.recv_timeout(PATIENCE).expect("the probe starts");
        Self {
            points,
            packets,
            end: Some(end),
            thread: Some(thread),
        }
    }

    pub fn points(&self) -> &LivePoints {
        self.points.as_ref().unwrap()
    }

    pub fn packets(&self) -> &Packets {
        self.packets.as_ref().unwrap()
    }

    /// All changes of points are in force.
    pub fn settle(&self) {
        assert!(self.points().settle(PATIENCE));
    }

    pub fn stop(mut self) -> Seen {
        self.end = None;
        let seen = self.thread.take().unwrap().join().unwrap();
        seen.check();
        seen
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Handles = (Option<LivePoints>, Option<Packets>);

fn run(wanted: &Wanted, caller: &UnixStream, started: &mpsc::Sender<Handles>) -> Seen {
    let mut probe = wanted.start().unwrap();
    started.send((probe.points(), probe.packets())).unwrap();
    let mut seen = Seen::default();
    loop {
        match probe.wait(Some(caller.as_fd()), None).unwrap() {
            Wake::Caller => break,
            wake => probe.drain(wake, &mut |update| seen.add(update)).unwrap(),
        }
    }
    probe.finish(&mut |update| seen.add(update)).unwrap();
    seen.account = probe.account();
    seen
}

/// The point of an interface.
pub fn point(net: &Net, interface: &str) -> PointId {
    PointId {
        netns: net.inode(),
        ifindex: net.ifindex(interface),
    }
}

/// Keeps the calling thread on one CPU, so that packets stay in order.
pub fn stay_on_one_cpu() {
    let mut cpus = CpuSet::new();
    cpus.set(0);
    sched_setaffinity(None, &cpus).unwrap();
}

/// Ends a capture; the packets that it saw, and their lengths on the wire.
pub fn captured(mut tcpdump: Tcpdump) -> Vec<(Vec<u8>, u32)> {
    tcpdump.stop();
    let mut file = CaptureFile::open(tcpdump.file()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = file.next_packet().unwrap() {
        packets.push((packet.data.to_vec(), packet.wire_len));
    }
    packets
}
