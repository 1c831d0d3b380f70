//! Captures on this host: each has probes, with a thread and a store of their own.

use skua_config::Config;
use skua_control::capture::{
    Capture, CaptureRunner, CaptureType, NodePoint, PointState as CaptureState, Running,
};
use skua_kernel::flow::FlowTableConfig;
use skua_probe::{
    LivePoints, PacketsConfig, PointId, PointSet, PointState,
    ebpf::{EbpfConfig, EbpfProbe},
    userspace::{self, UserspaceConfig, UserspaceProbe},
};
use skua_state::{Observers, captures::CaptureSets};
use skua_topology::SharedGraph;
use std::time::Duration;

use crate::captures::{
    by_node::ByNode,
    dpdk::{self, PortCapture},
    each::{Each, Opened},
    ovs::Switch,
    receive::{self, InputFormat, Receiver},
    target::Target,
    worker::Part,
};

/// Longest part of a packet that can be kept.
const WHOLE_PACKET: u32 = 65_536;

/// Starts captures on this host.
#[derive(Clone)]
pub struct LocalRunner {
    /// Settings that captures have in common.
    pub config: Config,
    /// Where captures are to be found that run.
    pub sets: CaptureSets,
    /// Where their interfaces are nodes.
    pub graph: SharedGraph,
    /// Observers of their drains.
    pub observers: Observers,
    /// Open vSwitch of this host.
    pub switch: Switch,
}

/// A capture on interfaces.
struct Capturing {
    points: LivePoints,
    part: Part,
}

impl LocalRunner {
    /// Settings of a capture's flow table.
    pub fn table(&self, capture: &Capture, seed: u64) -> FlowTableConfig {
        let config = &self.config;
        FlowTableConfig {
            max_entries: config.captures.max_entries,
            sampling: capture.sampling_rate,
            tunnels: config.flow.tunnels,
            idle_timeout: config.flow.idle_timeout,
            closed_timeout: config.flow.closed_timeout,
            hash_seed: seed,
            filter: capture.bpf_filter.clone(),
            ..FlowTableConfig::default()
        }
    }

    /// Which packets a capture keeps, or sends to its target.
    pub fn packets(capture: &Capture) -> Option<PacketsConfig> {
        let bytes = match capture.header_size {
            0 => WHOLE_PACKET,
            bytes => bytes.min(WHOLE_PACKET),
        };
        // What is wrong with a target was said when the capture was made.
        let target = Target::of(capture).ok().flatten();
        let sends = target.is_some_and(|target| target.wants_packets());
        (capture.raw_packet_limit != 0 || sends).then(|| PacketsConfig {
            first: u8::try_from(capture.raw_packet_limit).unwrap_or(0),
            bytes,
            ..PacketsConfig::default()
        })
    }

    /// Time between drains of a capture.
    pub fn scan_interval(capture: &Capture) -> Duration {
        Duration::from_secs(capture.polling_interval.max(1).into())
    }

    /// On interfaces.
    fn interfaces(&self, capture: &Capture) -> anyhow::Result<Capturing> {
        let points = LivePoints::new(PointSet::new())?;
        let (table, packets) = (self.table(capture, 0), Self::packets(capture));
        let scan_interval = Self::scan_interval(capture);
        let theirs = Some(points.clone());
        let in_user_space = match capture.r#type {
            CaptureType::Afpacket => Some(userspace::Capture::Afpacket),
            CaptureType::Pcap => Some(userspace::Capture::Pcap),
            _ => None,
        };
        let (part, ()) = match in_user_space {
            Some(kind) => Part::start(self, capture, None, move |hash_seed| {
                let probe = UserspaceProbe::start(UserspaceConfig {
                    capture: kind,
                    points: theirs,
                    packets,
                    table: FlowTableConfig { hash_seed, ..table },
                    scan_interval,
                    ..UserspaceConfig::default()
                })?;
                Ok((probe, ()))
            })?,
            None => Part::start(self, capture, None, move |hash_seed| {
                let probe = EbpfProbe::start(EbpfConfig {
                    points: theirs,
                    packets,
                    table: FlowTableConfig { hash_seed, ..table },
                    scan_interval,
                    ..EbpfConfig::default()
                })?;
                Ok((probe, ()))
            })?,
        };
        Ok(Capturing { points, part })
    }

    fn begin(&self, capture: &Capture) -> anyhow::Result<Box<dyn Running>> {
        let (runner, of) = (self.clone(), capture.clone());
        if let Some(format) = InputFormat::of(capture.r#type) {
            let listen = receive::listen(capture).map_err(anyhow::Error::msg)?;
            let each = Each::start(Box::new(move |point| {
                let receiver = Receiver::start(&runner, &of, point, format, listen)?;
                Ok(Box::new(receiver) as Box<dyn Opened>)
            }))?;
            return Ok(Box::new(each));
        }
        match capture.r#type {
            CaptureType::Auto => Ok(Box::new(ByNode::new(self, capture))),
            CaptureType::Dpdk => {
                let open = move |point: &NodePoint| {
                    let port = PortCapture::start(&runner, &of, point)?;
                    Ok(Box::new(port) as Box<dyn Opened>)
                };
                Ok(Box::new(Each::start(Box::new(open))?))
            }
            CaptureType::OvsMirror | CaptureType::OvsSflow | CaptureType::OvsNetflow => {
                let open = move |point: &NodePoint| runner.switch.open(&runner, &of, point);
                Ok(Box::new(Each::start(Box::new(open))?))
            }
            _ => Ok(Box::new(self.interfaces(capture)?)),
        }
    }
}

fn id(point: &NodePoint) -> PointId {
    PointId {
        netns: point.netns_inode.into(),
        ifindex: point.ifindex,
    }
}

impl Running for Capturing {
    fn set_points(&mut self, points: &[NodePoint]) {
        self.points.replace(points.iter().map(id).collect());
    }

    fn state(&self, point: &NodePoint) -> CaptureState {
        if self.part.has_ended() {
            return CaptureState::Refused("the capture ended; the log says why".into());
        }
        match self.points.state(id(point)) {
            Some(PointState::Active) => CaptureState::Active,
            Some(state @ (PointState::Refused(_) | PointState::Gone)) => {
                CaptureState::Refused(state.reason().into())
            }
            Some(PointState::Waiting(_)) | None => CaptureState::Pending,
        }
    }
}

/// What is asked of a type that it cannot do.
fn misfit(capture: &Capture) -> Option<&'static str> {
    use CaptureType as T;
    let kind = capture.r#type;
    let exported = matches!(kind, T::Sflow | T::Netflow | T::OvsSflow | T::OvsNetflow);
    let listens = exported || kind == T::PcapSocket;
    let chooses = !exported || kind == T::OvsSflow;
    if matches!(kind, T::Netflow | T::OvsNetflow) && !capture.bpf_filter.is_empty() {
        return Some("BPFFilter: no packets come, only what others have counted");
    }
    if !chooses && capture.sampling_rate != 1 {
        return Some("SamplingRate: who sends chooses it");
    }
    if listens && capture.raw_packet_limit != 0 {
        return Some("RawPacketLimit: no packets are kept");
    }
    if !listens && (capture.port != 0 || !capture.listen.is_empty()) {
        return Some("Port, Listen: nothing is listened to");
    }
    None
}

impl CaptureRunner for LocalRunner {
    fn check(&self, capture: &Capture) -> Result<(), String> {
        let kind = capture.r#type.name();
        if capture.r#type == CaptureType::Dpdk {
            dpdk::check()?;
        }
        Target::of(capture)?;
        if let Some(why) = misfit(capture) {
            return Err(format!("captures of type {kind}: {why}"));
        }
        receive::listen(capture).map(drop)
    }

    fn start(&self, capture: &Capture) -> Result<Box<dyn Running>, String> {
        self.begin(capture)
            .map_err(|error| skua_output::one_line(&error))
    }
}
