//! Where else a capture goes: copies for collectors and analysers that are not ours.

mod netflow;

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context as _;
use serde_json::{Value, json};
use skua_analyzer::capture::Capture;
use skua_flow::FlowUpdate;

use netflow::Exporter;

/// The highest sampling rate that NetFlow 5 can tell.
const MOST_SAMPLING: u32 = 0x3fff;

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Flows, as NetFlow version 5 over UDP.
    Netflow5,
}

/// A target as a capture has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    kind: Kind,
    /// Host and port.
    address: String,
}

impl Target {
    /// The target of a capture, if it has one, or what is wrong with it.
    pub fn of(capture: &Capture) -> Result<Option<Self>, String> {
        let (address, kind) = (capture.target.trim(), capture.target_type.trim());
        if address.is_empty() && kind.is_empty() {
            return Ok(None);
        }
        let kind = match &*kind.to_ascii_lowercase() {
            "netflowv5" => Kind::Netflow5,
            "erspanv1" => {
                return Err(
                    "TargetType ERSPANv1: copies of packets are not built; NetFlowV5 sends flows"
                        .into(),
                );
            }
            "" => return Err("TargetType is missing: NetFlowV5".into()),
            _ => {
                return Err(format!(
                    "TargetType: \"{kind}\" is none; there is NetFlowV5"
                ));
            }
        };
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
                "SamplingRate: NetFlow 5 tells rates up to {MOST_SAMPLING}"
            ));
        }
        Ok(Some(Self {
            kind,
            address: address.to_owned(),
        }))
    }

    fn resolve(&self) -> anyhow::Result<SocketAddr> {
        let found = self.address.to_socket_addrs();
        let found = found
            .with_context(|| format!("Target {}", self.address))?
            .next();
        found.with_context(|| format!("Target {}: no such host", self.address))
    }
}

/// What became of what was to be sent.
#[derive(Default)]
pub struct Sent {
    /// Datagrams that were sent.
    pub datagrams: AtomicU64,
    /// Records in them.
    pub records: AtomicU64,
    /// Records that could not be sent, or that the collector's host refused (which is told of a datagram
    /// when the next one is sent).
    pub failed: AtomicU64,
    /// Flows that the protocol has no room for.
    pub left_out: AtomicU64,
}

impl Sent {
    /// For the status.
    pub fn status(&self) -> Value {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        json!({
            "datagrams": read(&self.datagrams),
            "records": read(&self.records),
            "lost": {"send_failed": read(&self.failed)},
            "left_out": {"not_ipv4": read(&self.left_out)},
        })
    }
}

/// What is sent of a capture's drains.
pub struct Sending {
    exporter: Exporter,
}

impl Sending {
    /// Of a capture, if it has a target.
    pub fn start(capture: &Capture) -> anyhow::Result<Option<Self>> {
        let Some(target) = Target::of(capture).map_err(anyhow::Error::msg)? else {
            return Ok(None);
        };
        let to = target.resolve()?;
        let exporter = match target.kind {
            Kind::Netflow5 => Exporter::start(to, capture.sampling_rate),
        };
        let exporter = exporter.with_context(|| format!("Target {to}"))?;
        Ok(Some(Self { exporter }))
    }

    /// What became of it so far, and becomes of it.
    pub fn sent(&self) -> Arc<Sent> {
        self.exporter.sent()
    }

    /// Takes what a drain says of a flow.
    pub fn take(&mut self, update: &FlowUpdate) {
        self.exporter.take(update);
    }

    /// The drain is over.
    pub fn end_drain(&mut self) {
        self.exporter.end_drain();
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
        for (address, kind, words) in [
            ("192.0.2.1:2055", "", "TargetType is missing"),
            ("192.0.2.1:2055", "IPFIX", "NetFlowV5"),
            ("192.0.2.1", "ERSPANv1", "ERSPANv1"),
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
