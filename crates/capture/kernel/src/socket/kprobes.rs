//! Attaches the rung of kernels without socket storage: the kernel function of each probe.

use skua_socket::{HookState, HookStatus};

use super::{
    SocketTracerConfig,
    object::Attached,
    proof::{ACCEPT, CLOSE, UDP_CONNECT, UDP_SEND},
};
use crate::KernelError;

/// A program and the function at whose begin, or return, it runs.
struct Probe {
    program: &'static str,
    function: &'static str,
    at_return: bool,
}

const fn begin(program: &'static str, function: &'static str) -> Probe {
    Probe {
        program,
        function,
        at_return: false,
    }
}

const fn end(program: &'static str, function: &'static str) -> Probe {
    Probe {
        program,
        function,
        at_return: true,
    }
}

/// A capability with alternative sets of probes; the first that attaches completely is used.
struct Capability {
    name: &'static str,
    alternatives: &'static [&'static [Probe]],
}

const ALWAYS: &[Capability] = &[
    Capability {
        name: ACCEPT,
        alternatives: &[
            &[begin("socket_grafted", "security_sock_graft")],
            &[end("socket_accept", "inet_csk_accept")],
        ],
    },
    Capability {
        name: UDP_CONNECT,
        alternatives: &[
            // Since 6.18 the functions of older kernels exist but are never called.
            &[
                begin("socket_udp_connect", "udp_connect"),
                end("socket_udp_connected", "udp_connect"),
                begin("socket_udp_connect", "udpv6_connect"),
                end("socket_udp_connected", "udpv6_connect"),
            ],
            &[
                begin("socket_udp_connect", "ip4_datagram_connect"),
                end("socket_udp_connected", "ip4_datagram_connect"),
                begin("socket_udp_connect", "ip6_datagram_connect"),
                end("socket_udp_connected", "ip6_datagram_connect"),
            ],
        ],
    },
    Capability {
        name: CLOSE,
        alternatives: &[&[
            begin("socket_tcp_close", "tcp_close"),
            begin("socket_tcp_shutdown", "tcp_shutdown"),
            begin("socket_udp_destroy", "udp_destroy_sock"),
            begin("socket_udp_destroy", "udpv6_destroy_sock"),
        ]],
    },
];

const SENDS: Capability = Capability {
    name: UDP_SEND,
    alternatives: &[&[
        begin("socket_udp_send", "udp_sendmsg"),
        begin("socket_udp_send", "udpv6_sendmsg"),
    ]],
};

/// Without these there are no snapshots of open sockets.
const SNAPSHOTS: [Probe; 2] = [
    begin("socket_looked", "sock_diag_save_cookie"),
    begin("socket_owner", "proc_tgid_stat"),
];

/// Attaches the probes. Hooks that did are silent until they are proven.
pub(super) fn attach(
    main: &mut Attached,
    config: &SocketTracerConfig,
) -> Result<Vec<HookStatus>, KernelError> {
    let mut hooks = Vec::new();
    let sends = config.udp_sends.then_some(&SENDS);
    for capability in ALWAYS.iter().chain(sends) {
        for probes in capability.alternatives {
            let attached = attach_all(main, probes);
            let (state, reason) = match &attached {
                Ok(()) => (HookState::Silent, String::new()),
                Err(error) => (HookState::Unsupported, error.to_string()),
            };
            hooks.push(HookStatus {
                capability: capability.name,
                hook: describe(probes),
                state,
                reason,
            });
            if attached.is_ok() {
                break;
            }
        }
    }
    attach_all(main, &SNAPSHOTS)?;
    Ok(hooks)
}

/// All of its probes, or none.
fn attach_all(main: &mut Attached, probes: &[Probe]) -> Result<(), KernelError> {
    let before = main.links();
    for probe in probes {
        if let Err(error) = main.attach_probe(probe.program, probe.function, probe.at_return) {
            main.detach_from(before);
            return Err(error);
        }
    }
    Ok(())
}

fn describe(probes: &[Probe]) -> String {
    let mut names: Vec<&str> = probes.iter().map(|p| p.function).collect();
    names.dedup();
    let kind = match probes {
        [probe] if probe.at_return => "kretprobe",
        _ => "kprobe",
    };
    format!("{kind}/{}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{super::object::PROBED_LATER, *};

    #[test]
    fn hooks_are_named_by_their_functions() {
        let names: Vec<_> = ALWAYS
            .iter()
            .flat_map(|c| c.alternatives)
            .map(|w| describe(w))
            .collect();
        assert_eq!(names[1], "kretprobe/inet_csk_accept");
        assert_eq!(names[2], "kprobe/udp_connect, udpv6_connect");
    }

    #[test]
    fn what_is_attached_here_is_not_attached_by_its_section() {
        for probe in ALWAYS
            .iter()
            .chain([&SENDS])
            .flat_map(|c| c.alternatives)
            .flat_map(|w| w.iter())
            .chain(&SNAPSHOTS)
        {
            assert!(PROBED_LATER.contains(&probe.program), "{}", probe.program);
        }
    }
}
