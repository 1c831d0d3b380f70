//! Where else a capture goes: copies for collectors and analysers that are not ours.

mod erspan;
mod netflow;

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    sync::Arc,
};

use anyhow::Context as _;
use skua_control::capture::{Capture, CaptureType};
use skua_flow::FlowUpdate;
use skua_probe::Packets;
use skua_state::captures::Sent;

use erspan::Copier;
use netflow::Exporter;

/// The highest sampling rate that NetFlow 5 can carry.
const MOST_SAMPLING: u32 = 0x3fff;

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Flows, as NetFlow version 5 over UDP.
    Netflow5,
    /// Packets, as ERSPAN type II over GRE, with a session.
    Erspan1(u16),
}

/// A target as a capture has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    kind: Kind,
    /// Host, and port if there is one.
    address: String,
}

impl Target {
    /// The target of a capture, if it has one, or what is wrong with it.
    pub fn of(capture: &Capture) -> Result<Option<Self>, String> {
        let (address, kind) = (capture.target.trim(), capture.target_type.trim());
        if address.is_empty() && kind.is_empty() {
            return Ok(None);
        }
        match &*kind.to_ascii_lowercase() {
            "netflowv5" => Self::netflow(address, capture).map(Some),
            "erspanv1" => Self::erspan(address, capture).map(Some),
            "" => Err("TargetType is missing: NetFlowV5 or ERSPANv1".into()),
            _ => Err(format!(
                "TargetType: \"{kind}\" is none; there are NetFlowV5 and ERSPANv1"
            )),
        }
    }

    fn netflow(address: &str, capture: &Capture) -> Result<Self, String> {
        let port = address
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        if !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) {
            return Err(format!(
                "Target: \"{address}\" is no address with a port, like 192.0.2.1:2055"
            ));
        }
        if capture.sampling_rate > MOST_SAMPLING {
            return Err(format!(
                "SamplingRate: NetFlow 5 has rates up to {MOST_SAMPLING}"
            ));
        }
        Ok(Self {
            kind: Kind::Netflow5,
            address: address.to_owned(),
        })
    }

    fn erspan(address: &str, capture: &Capture) -> Result<Self, String> {
        use CaptureType as T;
        let kind = capture.r#type;
        if !matches!(
            kind,
            T::Auto | T::Ebpf | T::Afpacket | T::Pcap | T::OvsMirror | T::Dpdk
        ) {
            return Err(format!(
                "TargetType: captures of type {} have no packets to copy",
                kind.name()
            ));
        }
        // Skydive's addresses have a port, which GRE has not.
        let address = match address.parse::<SocketAddr>() {
            Ok(socket) => &*socket.ip().to_string(),
            Err(_) => address,
        };
        let (host, session) = address.split_once('/').unwrap_or((address, "0"));
        let session = session.parse().ok().filter(|s| *s <= erspan::MOST_SESSION);
        match session {
            // GRE has no ports: a name is resolved with any.
            Some(session) if !host.is_empty() && (host, 0).to_socket_addrs().is_ok() => Ok(Self {
                kind: Kind::Erspan1(session),
                address: host.to_owned(),
            }),
            _ => Err(format!(
                "Target: \"{address}\" is no host, like 192.0.2.1, or host and session, up to {}, like \
                 192.0.2.1/5",
                erspan::MOST_SESSION
            )),
        }
    }

    /// Whether the capture's packets are needed.
    pub fn wants_packets(&self) -> bool {
        matches!(self.kind, Kind::Erspan1(_))
    }

    fn resolve(&self) -> anyhow::Result<SocketAddr> {
        let found = match self.wants_packets() {
            true => (&*self.address, 0).to_socket_addrs(),
            false => self.address.to_socket_addrs(),
        };
        let found = found
            .with_context(|| format!("Target {}", self.address))?
            .next();
        found.with_context(|| format!("Target {}: no such host", self.address))
    }
}

/// What is sent of a capture.
pub enum Sending {
    /// What its drains say.
    Flows(Exporter),
    /// Its packets, by a thread of their own.
    Packets(Copier),
}

impl Sending {
    /// Of a capture, if it has a target.
    pub fn start(capture: &Capture, packets: Option<&Packets>) -> anyhow::Result<Option<Self>> {
        let Some(target) = Target::of(capture).map_err(anyhow::Error::msg)? else {
            return Ok(None);
        };
        let to = target.resolve()?;
        let sending = match target.kind {
            Kind::Netflow5 => Exporter::start(to, capture.sampling_rate)
                .map(Self::Flows)
                .map_err(anyhow::Error::from),
            Kind::Erspan1(session) => packets
                .context("no packets are to be had")
                .and_then(|packets| Copier::start(to, session, packets))
                .map(Self::Packets),
        };
        sending
            .with_context(|| format!("Target {}", target.address))
            .map(Some)
    }

    /// What happened to it so far, counted on.
    pub fn sent(&self) -> Arc<Sent> {
        match self {
            Self::Flows(exporter) => exporter.sent(),
            Self::Packets(copier) => copier.sent(),
        }
    }

    /// Sends what a drain has added to a flow.
    pub fn send_flow(&mut self, update: &FlowUpdate) {
        if let Self::Flows(exporter) = self {
            exporter.send_flow(update);
        }
    }

    /// The drain is over.
    pub fn end_drain(&mut self) {
        if let Self::Flows(exporter) = self {
            exporter.end_drain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_sent_is_said() {
        let of = |target: &str, kind: &str| {
            Target::of(&Capture {
                target: target.into(),
                target_type: kind.into(),
                ..Capture::default()
            })
        };
        assert_eq!(of("", ""), Ok(None));
        let target = of("localhost:2055", "NetFlowV5").unwrap().unwrap();
        assert_eq!(target.resolve().unwrap().port(), 2055);
        assert!(of("[::1]:2055", "netflowv5").unwrap().is_some());
        let copies = of("192.0.2.1/5", "erspanv1").unwrap().unwrap();
        assert!(copies.wants_packets());
        assert_eq!(copies.resolve().unwrap().ip().to_string(), "192.0.2.1");
        // As Skydive has it; ERSPAN has no ports.
        let copies = of("192.0.2.1:47", "ERSPANv1").unwrap().unwrap();
        assert_eq!(copies.resolve().unwrap().ip().to_string(), "192.0.2.1");
        for (address, kind, words) in [
            ("192.0.2.1:2055", "", "TargetType is missing"),
            ("192.0.2.1:2055", "IPFIX", "NetFlowV5"),
            ("192.0.2.1", "ERSPANv2", "ERSPANv1"),
            ("192.0.2.1/1024", "ERSPANv1", "session"),
            ("192.0.2.1/x", "ERSPANv1", "session"),
            ("", "ERSPANv1", "no host"),
            ("192.0.2.1", "NetFlowV5", "with a port"),
            ("192.0.2.1:0", "NetFlowV5", "with a port"),
            (":2055", "NetFlowV5", "with a port"),
            ("", "NetFlowV5", "with a port"),
        ] {
            let error = of(address, kind).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let rare = Capture {
            sampling_rate: 20_000,
            target: "192.0.2.1:1".into(),
            target_type: "NetFlowV5".into(),
            ..Capture::default()
        };
        assert!(Target::of(&rare).unwrap_err().contains("SamplingRate"));
    }
}
