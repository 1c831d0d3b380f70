//! The flow table on a real interface.
#![allow(unsafe_code)]

use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind},
};

#[test]
fn counts_a_ping_on_loopback() {
    skua_kernel::capture_libbpf_log();
    let mut table = FlowTable::new(
        HookKind::Tcx,
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
    let attachment = Attachment::new(program, 1, Direction::Ingress, HookKind::Tcx).unwrap();
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

#[test]
fn every_hook_of_this_kernel_counts_what_passes_it() {
    for hook in [
        HookKind::Tcx,
        HookKind::Clsact,
        HookKind::Socket,
        HookKind::Xdp,
    ] {
        let proof = skua_kernel::flow::prove(hook);
        println!("{}: {proof:?}", hook.name());
        assert_eq!(proof, skua_kernel::flow::Proof::Active, "{}", hook.name());
    }
}
