//! The best source of sockets that works here.

use skua_config::{
    Config,
    sockets::{Mode, Sockets as SocketSettings, btf},
};
use skua_probe::{
    SocketProbe,
    socket::{SocketTracer, SocketTracerConfig, diag::DiagProbe},
};

use skua_socket::SocketStoreConfig;
use skua_state::sockets::Sockets;
use std::ops::RangeInclusive;

use crate::rights;

/// A probe with what its sockets are put into.
pub struct Started {
    pub probe: Box<dyn SocketProbe>,
    pub state: Sockets,
}

/// Starts a probe for sockets. None when that is not wanted, or when nothing works: all else goes on.
pub fn start(config: &Config) -> Option<Started> {
    if !config.sockets.enabled {
        return None;
    }
    let (probe, fallback) = match programs(config) {
        Ok(probe) => (probe, String::new()),
        Err(reason) => match DiagProbe::start() {
            Ok(probe) => {
                tracing::warn!(
                    "no socket programs in the kernel ({reason}); sockets are looked at by \
                     sock_diag instead: short ones may be missed"
                );
                (Box::new(probe) as Box<dyn SocketProbe>, reason)
            }
            Err(error) => {
                tracing::warn!(
                    "sockets are not watched: no socket programs in the kernel ({reason}), and no \
                     sock_diag ({error})"
                );
                return None;
            }
        },
    };
    let state = Sockets::new(store(&config.sockets, &fallback), &*probe, fallback);
    Some(Started { probe, state })
}

/// The socket programs in the kernel.
fn programs(config: &Config) -> Result<Box<dyn SocketProbe>, String> {
    let sockets = &config.sockets;
    let started = SocketTracer::start(SocketTracerConfig {
        aggregate: sockets.mode == Mode::Aggregate,
        udp_sends: sockets.udp_sends,
        max_sockets: sockets.max_sockets,
        btf: btf(&config.agent.btf),
        ..SocketTracerConfig::default()
    });
    match started {
        Ok(tracer) => Ok(Box::new(tracer)),
        Err(error) => Err(match rights::missing(rights::held())[..] {
            [] => error.to_string(),
            ref missing => format!("{} missing", missing.join(", ")),
        }),
    }
}

/// Settings of the store.
fn store(settings: &SocketSettings, fallback: &str) -> SocketStoreConfig {
    SocketStoreConfig {
        max_sockets: settings.max_sockets as usize,
        history: usize::try_from(settings.history).unwrap_or(usize::MAX),
        // A sum of what the kernel sums up needs a probe that can ask for that.
        aggregate: fallback.is_empty() && settings.mode == Mode::Aggregate,
        ephemeral: ephemeral_ports(),
    }
}

/// Ports that the host gives to those who call, of our own namespace.
fn ephemeral_ports() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    text.ok()
        .and_then(|text| {
            let mut ports = text.split_whitespace().map(str::parse);
            Some(ports.next()?.ok()?..=ports.next()?.ok()?)
        })
        .unwrap_or_else(|| SocketStoreConfig::default().ephemeral)
}
