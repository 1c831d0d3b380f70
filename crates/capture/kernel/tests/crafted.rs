//! Keys that are made to fall on one another find room as others do.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::os::fd::AsRawFd as _;

use skua_flow::Cause;
use skua_kernel::{
    Direction,
    flow::{FlowTable, FlowTableConfig, LinkKind, Rung},
};

/// Test runs take place on loopback of the namespace.
const LOOPBACK: u32 = 1;

/// UDP between two IPv6 addresses of which both halves vary alike, in their top bits (as the
/// program reads them) and 32 bits below.
fn frame(number: u16) -> Vec<u8> {
    let mut frame = vec![0; 70];
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[18..20].copy_from_slice(&16u16.to_be_bytes());
    frame[20] = 17;
    for (address, byte) in [22, 38].into_iter().zip(number.to_le_bytes()) {
        for half in [address, address + 8] {
            frame[half + 3] = byte;
            frame[half + 7] = byte;
        }
        frame[address + 8] = 0x20;
    }
    // So that the source is `lo`.
    frame[22] = 0x10;
    frame[38] = 0x20;
    frame[54..58].copy_from_slice(&[0, 7, 0, 7]);
    frame
}

#[test]
fn sixty_five_thousand_crafted_keys_find_room_in_a_table_for_as_many() {
    // In an emulated machine everything takes ten times as long.
    let few = std::env::var_os("SKUA_KERNEL_MATRIX").is_some();
    for rung in [Rung::TcSwap, Rung::TcLock, Rung::Xdp] {
        let config = FlowTableConfig {
            max_entries: 70_000,
            ..FlowTableConfig::default()
        };
        let Ok(mut table) = FlowTable::with_rungs(&[rung], config) else {
            println!("{rung:?} is not taken here");
            continue;
        };
        table.add_point(0, LOOPBACK).unwrap();
        let program = table.program(0, Direction::Ingress, LinkKind::Ethernet);
        let program = program.unwrap().unwrap().try_clone_to_owned().unwrap();
        let numbers = (0..=u16::MAX).step_by(if few { 8 } else { 1 });
        let mut fed = 0;
        for number in numbers {
            let frame = frame(number);
            let mut options = libbpf_sys::bpf_test_run_opts {
                sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
                data_in: frame.as_ptr().cast(),
                data_size_in: frame.len() as u32,
                repeat: 1,
                ..Default::default()
            };
            // SAFETY: the frame and the options outlive the call.
            let error =
                unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
            assert_eq!(error, 0);
            fed += 1;
        }
        let counters = table.point_counters(0, LOOPBACK).unwrap().unwrap();
        let full = counters[0][Cause::TableFullUdp as usize].packets;
        let mut packets = 0;
        table
            .finish(|update| packets += update.lo_sent.packets + update.hi_sent.packets)
            .unwrap();
        assert_eq!((packets, full), (fed, 0), "{rung:?}");
    }
}
