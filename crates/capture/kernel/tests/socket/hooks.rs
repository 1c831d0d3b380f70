//! Which hooks serve on this kernel, and the table that older ones need.

use skua_kernel::socket::{Rung, SocketTracer, SocketTracerConfig};
use skua_socket::{HookState, HookStatus, SocketState};

use crate::lab::*;

/// The table of docs/kernels.md is what this prints (`--nocapture`).
#[test]
fn every_capability_is_proven_on_some_hook() {
    let net = Net::with_ipv6();
    let watch = Watch::new(&[&net]);
    let hooks = watch.tracer.hooks();
    println!("rung: {}", watch.tracer.describe());
    for hook in &hooks {
        println!(
            "hook: {} | {} | {:?} | {}",
            hook.capability, hook.hook, hook.state, hook.reason
        );
        assert_eq!(hook.state == HookState::Active, hook.reason.is_empty());
    }
    assert_complete(&hooks);
}

fn assert_complete(hooks: &[HookStatus]) {
    for capability in [
        "tcp state",
        "open sockets",
        "udp connect",
        "udp send",
        "close",
    ] {
        assert!(
            hooks
                .iter()
                .any(|h| h.capability == capability && h.state == HookState::Active),
            "{capability}: {hooks:#?}"
        );
    }
}

/// The rungs of older kernels work on newer ones, too, as long as these have kprobes: there the
/// functions have changed their names, which is where such a rung breaks.
#[test]
fn lower_rungs_hold() {
    for rung in [Rung::HashRing, Rung::HashPerf] {
        match SocketTracer::with_rungs(&[rung], SocketTracerConfig::default()) {
            Ok(tracer) => {
                let hooks = tracer.hooks();
                assert_complete(&hooks);
                let udp = hooks
                    .iter()
                    .find(|h| h.capability == "udp connect" && h.state == HookState::Active);
                println!("{rung:?}: {}", udp.unwrap().hook);
            }
            Err(error) => {
                println!("{rung:?}: {error}");
                // Before 5.8 there are no ring buffers; this machine may have no kprobes.
                let alone = std::env::var_os("SKUA_KERNEL_MATRIX").is_some();
                assert!(!alone || rung == Rung::HashRing, "{error}");
            }
        }
    }
}

#[test]
fn sockets_without_room_are_counted_once() {
    const CONNECTIONS: usize = 200;
    let net = Net::with_ipv6();
    let mut watch = Watch::with(
        &[&net],
        SocketTracerConfig {
            max_sockets: 256,
            ..Default::default()
        },
    );
    if !watch.tracer.describe().contains("hash table") {
        println!("this kernel keeps what is known in the sockets");
        return;
    }
    let listener = net.inside(|| listen("127.0.0.1"));
    let open: Vec<_> = net.inside(|| (0..CONNECTIONS).map(|_| connect(&listener)).collect());
    drop((open, listener));
    let ended = watch.ended(200);
    let lost = watch.tracer.losses().table_full as usize;
    assert!(lost > 0);
    assert_eq!(ended.len() + lost, 2 * CONNECTIONS + 1);
    let listening = ended.iter().filter(|u| u.state == SocketState::Listen);
    assert_eq!(listening.count(), 1);
}
