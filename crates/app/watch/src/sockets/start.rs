//! The best source of sockets that works here.

use skua_config::{
    Config,
    sockets::{Mode, btf},
};
use skua_probe::{
    SocketProbe,
    socket::{SocketTracer, SocketTracerConfig, diag::DiagProbe},
};

use crate::{
    rights,
    sockets::{Sockets, Started},
};

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
    let state = Sockets::new(&config.sockets, &*probe, fallback);
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
