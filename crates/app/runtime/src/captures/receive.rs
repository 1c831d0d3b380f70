//! Captures of what others send: packets over TCP, sFlow, NetFlow and IPFIX.

use skua_control::capture::{Capture, CaptureType, NodePoint, PointState};
use skua_probe::receive::{
    NetflowProbe, PcapSocketConfig, PcapSocketProbe, ReceiverConfig, SflowProbe,
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::captures::{counters::NotedCounters, each::Opened, run::LocalRunner, worker::Part};

/// A stream that begins with an older packet is a file that is replayed, not what is captured elsewhere.
const OLDEST: Duration = Duration::from_secs(3600);

/// What is received.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum InputFormat {
    /// Capture files over TCP.
    Packets,
    /// sFlow.
    Sflow,
    /// NetFlow and IPFIX.
    Netflow,
}

impl InputFormat {
    /// What a type of capture receives itself, if it is one that does.
    pub fn of(kind: CaptureType) -> Option<Self> {
        match kind {
            CaptureType::PcapSocket => Some(Self::Packets),
            CaptureType::Sflow => Some(Self::Sflow),
            CaptureType::Netflow => Some(Self::Netflow),
            _ => None,
        }
    }
}

/// Where a capture is to listen: loopback unless an address is given.
pub fn listen(capture: &Capture) -> Result<SocketAddr, String> {
    let address = match capture.listen.trim() {
        "" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        text => text
            .parse()
            .map_err(|_| format!("Listen: \"{text}\" is no IP address, like 192.0.2.1"))?,
    };
    Ok(SocketAddr::new(address, capture.port))
}

/// A receiver for a node.
pub struct Receiver {
    part: Part,
    address: SocketAddr,
    _counters: Option<NotedCounters>,
}

impl Receiver {
    /// Listens.
    pub fn start(
        runner: &LocalRunner,
        capture: &Capture,
        point: &NodePoint,
        format: InputFormat,
        listen: SocketAddr,
    ) -> anyhow::Result<Self> {
        let node = Some(&*point.tid);
        let scan_interval = LocalRunner::scan_interval(capture);
        let (runner_too, of) = (runner.clone(), capture.clone());
        let table = move |seed| runner_too.table(&of, seed);
        let datagrams = move |seed| ReceiverConfig {
            table: table(seed),
            scan_interval,
            ..ReceiverConfig::at(listen)
        };
        let (part, (address, counters)) = match format {
            InputFormat::Packets => Part::start(runner, capture, node, move |seed| {
                let probe = PcapSocketProbe::start(PcapSocketConfig {
                    table: datagrams(seed).table,
                    scan_interval,
                    oldest: Some(OLDEST),
                    ..PcapSocketConfig::at(listen)
                })?;
                let address = probe.address();
                Ok((probe, (address, None)))
            })?,
            InputFormat::Sflow => Part::start(runner, capture, node, move |seed| {
                let probe = SflowProbe::start(datagrams(seed))?;
                let more = (probe.address(), Some(probe.counters()));
                Ok((probe, more))
            })?,
            InputFormat::Netflow => Part::start(runner, capture, node, move |seed| {
                let probe = NetflowProbe::start(datagrams(seed))?;
                let address = probe.address();
                Ok((probe, (address, None)))
            })?,
        };
        let note =
            |counters| NotedCounters::start(runner.graph.clone(), point.node.clone(), counters);
        Ok(Self {
            part,
            address,
            _counters: counters.map(note).transpose()?,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Opened for Receiver {
    fn state(&self) -> PointState {
        match self.part.has_ended() {
            true => PointState::Refused("the receiver ended; the log says why".into()),
            false => PointState::Active,
        }
    }

    fn listens_at(&self) -> Option<SocketAddr> {
        Some(self.address)
    }
}
