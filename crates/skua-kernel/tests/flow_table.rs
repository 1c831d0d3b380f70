//! The flow table on a real interface.
#![allow(unsafe_code, clippy::unwrap_used)]

use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind, Proof},
};

/// The oldest kernel whose maps the flow table needs (ring buffer). Before it, user space counts.
const OLDEST: (u32, u32) = (5, 8);

#[test]
fn counts_datagrams_on_loopback() {
    if kernel() < OLDEST {
        println!("no flow table in this kernel");
        return;
    }
    skua_kernel::capture_libbpf_log();
    let mut table = FlowTable::new(
        HookKind::Clsact,
        FlowTableConfig {
            max_entries: 1000,
            ..Default::default()
        },
    )
    .unwrap();
    println!(
        "rung: {}; {:?}",
        table.rung().describe(),
        table.map_memory()
    );
    table.add_point(0, 1).unwrap();
    let program = table
        .program(0, Direction::Ingress, LinkKind::Ethernet)
        .unwrap()
        .unwrap();
    let attachment = Attachment::new(program, 1, Direction::Ingress, HookKind::Clsact).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    socket.send(b"hello").unwrap();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    other
        .send_to(b"hello", socket.local_addr().unwrap())
        .unwrap();
    drop(attachment);
    let mut updates = Vec::new();
    let stats = table.finish(|u| updates.push(*u)).unwrap();
    println!("{stats:?} {updates:#?}");
    assert_eq!(table.live(), 0);
    assert!(updates.len() >= 2);
}

/// (major, minor) of the running kernel.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map(|n| n.trim().parse().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn every_hook_of_this_kernel_counts_what_passes_it() {
    let hooks = [
        (HookKind::Tcx, (6, 6)),
        (HookKind::Clsact, (5, 8)),
        (HookKind::Socket, (5, 12)),
        (HookKind::Xdp, (5, 18)),
    ];
    for (hook, since) in hooks {
        let proof = skua_kernel::flow::prove(hook);
        println!("{}: {proof:?}", hook.name());
        if kernel() >= since {
            assert_eq!(proof, Proof::Active, "{}", hook.name());
        } else {
            assert_eq!(proof.name(), "unsupported", "{}: {proof:?}", hook.name());
        }
    }
}
