//! What one packet costs in the flow program, by the kernel's own test run: without packets for user
//! space, with them where nobody wants this one, and sent. Needs root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    os::{
        fd::{AsRawFd as _, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    sync::atomic::{AtomicBool, Ordering},
};

use skua_kernel::{
    Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind, PacketConfig},
};

/// Runs of the program in one measurement, and measurements of which the least counts.
const REPEAT: i32 = 400_000;
const ROUNDS: usize = 9;

fn frame(size: usize) -> Vec<u8> {
    let mut frame = vec![0; size];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&((size - 14) as u16).to_be_bytes());
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..38].copy_from_slice(&[1, 2, 3, 4]);
    frame
}

/// ns for one packet.
fn run(program: BorrowedFd<'_>, frame: &[u8]) -> u32 {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: REPEAT,
        ..Default::default()
    };
    let once = || {
        // SAFETY: the frame and the options outlive the call.
        let error =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
        assert_eq!(error, 0);
        options.duration
    };
    std::iter::repeat_with(once).take(ROUNDS).min().unwrap()
}

fn measure(name: &str, netns: u16, packets: Option<PacketConfig>, live: bool) {
    measure_table(name, netns, packets, live, false);
}

fn measure_table(
    name: &str,
    netns: u16,
    packets: Option<PacketConfig>,
    live: bool,
    share_programs: bool,
) {
    let config = FlowTableConfig {
        share_programs,
        max_entries: 1000,
        packets,
        ..FlowTableConfig::default()
    };
    let mut table = FlowTable::new(HookKind::Tcx, config).unwrap();
    // The test run takes place in this one, whatever its number.
    let inode = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    table.add_namespace(netns, inode).unwrap();
    table.add_point(netns, 1).unwrap();
    let mut ring = table.packets().unwrap();
    if let Some(ring) = &mut ring {
        ring.set_live(live).unwrap();
    }
    let program = table.program(netns, Direction::Ingress, LinkKind::Ethernet);
    let program = program.unwrap().unwrap().try_clone_to_owned().unwrap();
    let stop = AtomicBool::new(false);
    let (mut costs, mut read) = (Vec::new(), 0u64);
    std::thread::scope(|scope| {
        if let (Some(ring), true) = (&mut ring, live) {
            let (stop, read) = (&stop, &mut read);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    ring.drain(&mut |_| *read += 1).unwrap();
                }
            });
        }
        use std::os::fd::AsFd as _;
        for size in [64, 1514] {
            costs.push(run(program.as_fd(), &frame(size)));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(table.live(), 1);
    let lost =
        table.point_counters(netns, 1).unwrap().unwrap()[0][skua_flow::Cause::LiveLost as usize];
    println!(
        "{name:44} {:5} ns {:5} ns   read {read}, lost {}",
        costs[0], costs[1], lost.packets
    );
}

fn main() {
    skua_kernel::capture_libbpf_log();
    println!("{:44} {:>8} {:>8}", "", "64 B", "1514 B");
    let packets = |first, bytes| {
        Some(PacketConfig {
            first,
            bytes,
            ring_bytes: 64 << 20,
            ..PacketConfig::default()
        })
    };
    let heads = Some(PacketConfig {
        heads: 50_000,
        head_segments: 4,
        bytes: 16_384,
        ..PacketConfig::default()
    });
    measure("no packets", 0, None, false);
    measure("packets, nobody wants any", 0, packets(0, 256), false);
    measure("heads, this one is not wanted any more", 0, heads, false);
    measure(
        "packets, the first 10 were sent",
        0,
        packets(10, 256),
        false,
    );
    measure("packets, all sent, 256 bytes", 0, packets(0, 256), true);
    measure("packets, all sent, whole", 0, packets(0, 65_536), true);
    measure("no packets, programs of further namespaces", 1, None, false);
    measure_table("no packets, programs of captures", 1, None, false, true);
    measure("no packets", 0, None, false);
    measure("no packets, programs of further namespaces", 1, None, false);
    measure_table("no packets, programs of captures", 1, None, false, true);
}
