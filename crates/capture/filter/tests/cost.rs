//! Prints what filters cost per packet. A measurement, so it is not run with the other tests:
//!
//! `cargo test --release -p skua-filter --test cost -- --ignored --nocapture`
#![allow(clippy::unwrap_used)]

mod support;

use std::hint::black_box;
use std::time::Instant;

use libbpf_sys::{BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP};
use skua_filter::insn::{Insn, R0};
use skua_filter::{Context, Epilogue, Filter, LinkType, translate};
use skua_testkit::lab::root_tests;
use support::expressions::ports;
use support::kernel::Program;

const REPEAT: i32 = 2_000_000;

/// An IPv4 TCP frame of 114 bytes to this port.
fn frame(port: u16) -> Vec<u8> {
    let mut frame = vec![0_u8; 114];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 100, 0, 0, 0x40, 0, 64, 6]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..38].copy_from_slice(&[0xc0, 0, (port >> 8) as u8, port as u8]);
    frame[46] = 0x50;
    frame
}

/// The least of five runs: nanoseconds, without what others on the machine take.
fn nanoseconds(program: &Program, packet: &[u8]) -> u128 {
    (0..5)
        .map(|_| program.time(packet, REPEAT).as_nanos())
        .min()
        .unwrap()
}

fn user_nanoseconds(filter: &Filter, packet: &[u8]) -> u128 {
    const TIMES: u32 = 100_000;
    let start = Instant::now();
    for _ in 0..TIMES {
        black_box(filter.matches(black_box(packet)));
    }
    start.elapsed().as_nanos() / u128::from(TIMES)
}

#[test]
#[ignore = "a measurement"]
fn cost_table() {
    if !root_tests() {
        return;
    }
    let verdict = [Insn::mov_imm(R0, 0), Insn::exit()];
    let empty = Program::load(BPF_PROG_TYPE_SCHED_CLS, &verdict);
    let empty_xdp = Program::load(BPF_PROG_TYPE_XDP, &verdict);
    let (match_443, miss) = (frame(443), frame(9));
    println!(
        "| filter | classic | eBPF | verified | tc match | tc miss | helpers | XDP | user space |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    println!(
        "| (empty program) | – | 2 | 2 | {} | {} | – | {} | – |",
        nanoseconds(&empty, &match_443),
        nanoseconds(&empty, &miss),
        nanoseconds(&empty_xdp, &match_443)
    );
    for (name, expression) in [
        ("`ip`", "ip".to_owned()),
        ("`tcp port 443`", "tcp port 443".to_owned()),
        (
            "`vlan and tcp port 443`",
            "vlan and tcp port 443".to_owned(),
        ),
        ("`tcp port` and 50 more ports", ports(50)),
    ] {
        let filter = Filter::compile(&expression, LinkType::Ethernet).unwrap();
        let epilogue = Epilogue::verdicts(0, 0);
        let tc = translate(&filter, Context::Tc, &epilogue).unwrap();
        let skb = translate(&filter, Context::Skb, &epilogue).unwrap();
        let xdp = translate(&filter, Context::Xdp, &epilogue).unwrap();
        let classifier = Program::load(BPF_PROG_TYPE_SCHED_CLS, &tc);
        let helpers = Program::load(BPF_PROG_TYPE_SCHED_CLS, &skb);
        let xdp = Program::load(BPF_PROG_TYPE_XDP, &xdp);
        let user = (0..20)
            .map(|_| user_nanoseconds(&filter, &match_443))
            .min()
            .unwrap();
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {user} |",
            filter.instructions().len(),
            tc.len(),
            classifier.verified_instructions(),
            nanoseconds(&classifier, &match_443),
            nanoseconds(&classifier, &miss),
            nanoseconds(&helpers, &match_443),
            nanoseconds(&xdp, &match_443),
        );
    }
}
