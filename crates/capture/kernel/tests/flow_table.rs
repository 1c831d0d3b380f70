//! The flow table on a real interface.
#![allow(unsafe_code, clippy::unwrap_used)]

use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind, PacketConfig, Proof, Rung},
};
use skua_testkit::lab::kernel;

/// The oldest kernel whose maps the flow table needs (ring buffer). Before it, user space counts.
const OLDEST: (u32, u32) = (5, 8);

/// One test counts the programs of the process while it loads some.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn counts_datagrams_on_loopback() {
    let _alone = alone();
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

#[test]
fn every_hook_of_this_kernel_counts_what_passes_it() {
    let _alone = alone();
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

/// The first packets of each flow come with their bytes, all of them while somebody watches.
#[test]
fn packets_come_with_their_bytes() {
    let _alone = alone();
    skua_kernel::capture_libbpf_log();
    let hooks = [
        (HookKind::Tcx, (6, 6)),
        (HookKind::Clsact, (5, 8)),
        (HookKind::Socket, (5, 12)),
        (HookKind::Xdp, (5, 18)),
    ];
    for (hook, since) in hooks {
        if kernel() < since {
            println!("no {} in this kernel", hook.name());
            continue;
        }
        let config = FlowTableConfig {
            max_entries: 1000,
            packets: Some(PacketConfig {
                first: 2,
                bytes: 3000,
                ..PacketConfig::default()
            }),
            ..Default::default()
        };
        let mut table = FlowTable::new(hook, config).unwrap();
        let mut ring = table.packets().unwrap().unwrap();
        table.add_point(0, 1).unwrap();
        let program = table.program(0, Direction::Ingress, LinkKind::Ethernet);
        let program = program.unwrap().unwrap();
        let attachment = Attachment::new(program, 1, Direction::Ingress, hook).unwrap();
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let ports = [&sender, &receiver].map(|s| s.local_addr().unwrap().port().to_be_bytes());
        // Headers take 42 bytes: just below, at and above what the ring has room for.
        let sizes = [1, 86, 87, 470, 471, 2006, 2007, 4000];
        let send = || {
            for size in sizes {
                let payload = vec![size as u8; size];
                sender
                    .send_to(&payload, receiver.local_addr().unwrap())
                    .unwrap();
                receiver.recv(&mut [0; 5000]).unwrap();
            }
        };
        let mut read = || {
            let mut packets = Vec::new();
            ring.drain(&mut |packet| {
                // Others use loopback, too.
                if packet.data.get(34..36) == Some(&ports[0]) {
                    assert_eq!(packet.data[36..38], ports[1]);
                    assert_eq!((packet.key.ifindex, packet.key.proto), (1, 17));
                    let whole = packet.length as usize;
                    assert_eq!(packet.data.len(), whole.min(3000));
                    assert!(packet.data[42..].iter().all(|b| *b == (whole - 42) as u8));
                    packets.push((packet.index, packet.live, whole - 42));
                }
            })
            .unwrap();
            packets
        };
        send();
        table.wait_for_programs().unwrap();
        assert_eq!(
            read(),
            [(Some(1), false, 1), (Some(2), false, 86)],
            "{hook:?}"
        );
        ring.set_live(true).unwrap();
        send();
        let live = read_live(&mut ring, &ports);
        assert_eq!(live, sizes, "{hook:?}");
        ring.set_live(false).unwrap();
        send();
        drop(attachment);
        table.wait_for_programs().unwrap();
        assert_eq!(read_live(&mut ring, &ports), [0; 0], "{hook:?}");
    }
}

/// Messages of DNS come whole, up to a limit for each second and CPU, beyond which they are counted; of others the first one
/// of each side, and no more than its beginning.
#[test]
fn heads_come_up_to_a_limit_and_the_others_are_counted() {
    skua_kernel::capture_libbpf_log();
    // Where nobody else says anything.
    let net = skua_testkit::lab::Net::new();
    net.ip("link set lo up");
    net.inside(heads_of_every_hook);
}

fn heads_of_every_hook() {
    use skua_flow::Cause;
    let hooks = [
        (HookKind::Tcx, (6, 6)),
        (HookKind::Clsact, (5, 8)),
        (HookKind::Socket, (5, 12)),
        (HookKind::Xdp, (5, 18)),
    ];
    for (hook, since) in hooks {
        if kernel() < since {
            println!("no {} in this kernel", hook.name());
            continue;
        }
        let config = FlowTableConfig {
            max_entries: 1000,
            // Of what tells a message from others nothing may be lost in a tunnel or an address set.
            tunnels: true,
            max_addresses: 16,
            packets: Some(PacketConfig {
                heads: 10,
                head_segments: 4,
                bytes: 16_384,
                ..PacketConfig::default()
            }),
            ..Default::default()
        };
        let mut table = FlowTable::new(hook, config).unwrap();
        let mut ring = table.packets().unwrap().unwrap();
        table.add_point(0, 1).unwrap();
        let program = table.program(0, Direction::Ingress, LinkKind::Ethernet);
        let program = program.unwrap().unwrap();
        let attachment = Attachment::new(program, 1, Direction::Ingress, hook).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = sender.local_addr().unwrap().port().to_be_bytes();
        // Nobody listens; what comes back by ICMP says nothing.
        for (port, size) in [(5355, 1200), (5356, 6000)].repeat(200) {
            let _ = sender.send_to(&vec![7; size], ("127.0.0.1", port));
        }
        drop(attachment);
        table.wait_for_programs().unwrap();
        let mut heads = 0;
        let (mut first, mut others) = (0, 0);
        ring.drain(&mut |packet| {
            assert!(packet.head && !packet.live && packet.index.is_none());
            let port = packet.data.get(36..38).map(|port| [port[0], port[1]]);
            let own = packet.data.get(34..36) == Some(&own);
            if own && port == Some(5355u16.to_be_bytes()) {
                assert_eq!(packet.data.len(), 42 + 1200, "{hook:?}");
                heads += 1;
            } else if own {
                assert_eq!(packet.data.len(), 4096, "{hook:?}");
                first += 1;
            } else {
                others += 1;
            }
        })
        .unwrap();
        let [ingress, _] = table.point_counters(0, 1).unwrap().unwrap();
        let omitted = ingress[Cause::HeadLimit as usize].packets;
        assert!(heads >= 5, "{hook:?}: {heads}");
        // The second packet of all is within the limit.
        assert_eq!(first, 1, "{hook:?}");
        assert_eq!(heads + first + others + omitted, 201, "{hook:?}");
        assert_eq!(ingress[Cause::HeadLost as usize].packets, 0);
    }
}

fn read_live(ring: &mut skua_kernel::flow::PacketRing, ports: &[[u8; 2]; 2]) -> Vec<usize> {
    let mut sizes = Vec::new();
    ring.drain(&mut |packet| {
        if packet.data.get(34..36) == Some(&ports[0]) {
            assert!(packet.live && packet.index.is_none());
            sizes.push(packet.length as usize - 42);
        }
    })
    .unwrap();
    sizes
}

/// Programs of further namespaces are shared since 6.2, by a rung that has such; else each namespace has some.
#[test]
fn packets_of_a_further_namespace_have_its_number() {
    let _alone = alone();
    use std::os::{fd::AsFd as _, unix::fs::MetadataExt as _};
    if kernel() < OLDEST {
        println!("no flow table in this kernel");
        return;
    }
    skua_kernel::capture_libbpf_log();
    let rungs = [
        (Rung::TcSwap, (5, 12), (6, 2)),
        (Rung::TcLock, OLDEST, (u32::MAX, 0)),
    ];
    let cases = rungs
        .into_iter()
        .flat_map(|rung| ["", "udp"].map(|filter| (rung, filter)));
    for ((rung, since, shared_since), filter) in cases {
        if kernel() < since {
            println!("not in this kernel: {}", rung.describe());
            continue;
        }
        let config = FlowTableConfig {
            max_entries: 1000,
            filter: filter.into(),
            ..Default::default()
        };
        let mut table = FlowTable::with_rungs(&[rung], config).unwrap();
        assert_eq!(table.shares_programs(), None);
        // This test's own, whatever number it is said to have.
        let inode = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let shares = kernel() >= shared_since;
        // Two on one place of the array before the map: the first one is found there, the other in the map alone.
        let mut all = [(8, inode + 4096), (7, inode), (9, inode + 1)];
        if filter.is_empty() {
            all.swap(0, 1);
        }
        for (number, inode) in all {
            table.add_namespace(number, inode).unwrap();
            table.add_point(number, 1).unwrap();
            assert_eq!(table.shares_programs(), Some(shares), "{rung:?}");
        }
        let before = skua_kernel::loaded_programs();
        let kind = LinkKind::Ethernet;
        table.program(9, Direction::Ingress, kind).unwrap().unwrap();
        let loaded = skua_kernel::loaded_programs();
        assert_eq!(loaded == before, shares && filter.is_empty());
        let program = table.program(7, Direction::Ingress, kind).unwrap().unwrap();
        let program = program.try_clone_to_owned().unwrap();
        assert_eq!(skua_kernel::loaded_programs() == loaded, shares);
        let hook = HookKind::Clsact;
        let attachment = Attachment::new(program.as_fd(), 1, Direction::Ingress, hook).unwrap();
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        let send = |packets: u32| {
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..packets {
                sender.send_to(b"hello", ("127.0.0.1", port)).unwrap();
            }
        };
        send(3);
        let mut found = Vec::new();
        let mut drain = |table: &mut FlowTable| {
            table
                .drain(&mut |update: &skua_flow::FlowUpdate| {
                    let key = update.key;
                    if [key.lo_port, key.hi_port].contains(&port.to_be_bytes()) {
                        let packets = update.lo_sent.packets + update.hi_sent.packets;
                        found.push((key.netns, packets));
                    }
                })
                .unwrap();
            std::mem::take(&mut found)
        };
        assert_eq!(drain(&mut table), [(7, 3)], "{rung:?} {filter:?}");
        table.remove_namespace(8);
        send(2);
        assert_eq!(drain(&mut table), [(7, 2)], "{rung:?} {filter:?}");
        if shares {
            // Programs that know no number count for no interface.
            table.remove_namespace(7);
            send(4);
            assert_eq!(drain(&mut table), []);
            let [ingress, _] = table.unattributed_counters().unwrap();
            assert!(ingress[skua_flow::Cause::NoDecode as usize].packets >= 4);
        }
        drop(attachment);
    }
}
