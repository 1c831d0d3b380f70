//! Programs on real hooks: frames over a veth pair, whose receiving side moves VLAN tags out of the
//! frame; and what follows a verdict: counting, tail calls.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::{Duration, Instant};

use libbpf_sys::{
    BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PROG_ARRAY, BPF_PROG_TYPE_SCHED_CLS,
    BPF_PROG_TYPE_SOCKET_FILTER,
};
use skua_filter::insn::*;
use skua_filter::{Context, Epilogue, Filter, Insn, LinkType, translate};
use skua_testkit::lab::{Net, root_tests};
use support::kernel::Program;
use support::network::{Array, PacketSocket, attach_ingress};
use support::packets;
use support::rng::Rng;

/// Adds one to a counter and passes the packet on.
fn count(counters: &Array, index: u32) -> Vec<Insn> {
    const BPF_MAP_LOOKUP_ELEM: i32 = 1;
    const TC_ACT_OK: u32 = 0;
    let mut insns = vec![Insn::store_imm(Width::Word, R10, -4, index as i32)];
    insns.extend(Insn::load_map_fd(R1, counters.fd()));
    insns.extend([
        Insn::mov_reg(R2, R10),
        Insn::alu64_imm(AluOp::Add, R2, -4),
        Insn::call(BPF_MAP_LOOKUP_ELEM),
        Insn::jump64_imm(JumpOp::Eq, R0, 0, 3),
        Insn::load(Width::Double, R1, R0, 0),
        Insn::alu64_imm(AluOp::Add, R1, 1),
        Insn::store_reg(Width::Double, R0, 0, R1),
        Insn::mov_imm(R0, TC_ACT_OK),
        Insn::exit(),
    ]);
    insns
}

/// True if the kernel moves the frame's outer tag into the socket buffer on receipt.
fn is_stripped(frame: &[u8]) -> bool {
    matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8])
}

#[test]
fn tags_that_the_kernel_stripped() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    net.ip("link add flt-a type veth peer name flt-b");
    for end in ["flt-a", "flt-b"] {
        net.ip(&format!("link set {end} up"));
    }
    let [sender, receiver] = ["flt-a", "flt-b"].map(|end| net.ifindex(end) as i32);
    net.enter();
    let sender = PacketSocket::open(sender);
    let expressions = [
        "vlan",
        "vlan 100 and tcp",
        "vlan and vlan 200",
        "vlan and ip6",
        "ip or arp",
        "ether[12:2] = 0x8100",
        "ether[14:2] & 0xfff = 300",
        "ether[11:4] & 0xff = 100",
        "ether[len & 0x1f:4] & 0x10000 != 0",
        "len % 2 = 0",
    ];
    let counters = Array::new(BPF_MAP_TYPE_ARRAY, 8, 2);
    let (mut stripped, mut accepted_stripped) = (0, 0);
    for (index, expression) in expressions.iter().enumerate() {
        let filter = Filter::compile(expression, LinkType::Ethernet).unwrap();
        let counting = Epilogue {
            accept: count(&counters, 1),
            reject: count(&counters, 0),
        };
        let classifier = translate(&filter, Context::Tc, &counting).unwrap();
        let classifier = Program::load(BPF_PROG_TYPE_SCHED_CLS, &classifier);
        let attached = attach_ingress(receiver, &classifier);
        let whole = translate(&filter, Context::Skb, &Epilogue::verdicts(0xffff, 0)).unwrap();
        let socket = PacketSocket::open(receiver);
        socket.attach(&Program::load(BPF_PROG_TYPE_SOCKET_FILTER, &whole));
        while socket.receive().is_some() {}

        let mut rng = Rng::new(30_000 + index as u64);
        for _ in 0..200 {
            let mut frame = packets::ethernet(&mut rng);
            // Shorter ones the kernel drops when it looks for the tag.
            frame.resize(frame.len().clamp(60, 1400), 0);
            let expected = filter.matches(&frame);
            let before = (counters.counter(1), counters.counter(0));
            sender.send(&frame);
            let until = Instant::now() + Duration::from_secs(5);
            let mut after = before;
            while after == before && Instant::now() < until {
                after = (counters.counter(1), counters.counter(0));
            }
            let counted = (after.0 - before.0, after.1 - before.1);
            let wanted = if expected { (1, 0) } else { (0, 1) };
            assert_eq!(
                counted, wanted,
                "classifier on '{expression}'\n{frame:02x?}"
            );

            // Packet sockets come before classifiers: its verdict has fallen too.
            let received = socket.receive();
            assert_eq!(
                received.is_some(),
                expected,
                "socket filter on '{expression}'\n{frame:02x?}"
            );
            if is_stripped(&frame) {
                stripped += 1;
                if let Some(received) = received {
                    accepted_stripped += 1;
                    assert_eq!(received.len(), frame.len() - 4, "the tag was not stripped");
                }
            }
        }
        drop(attached);
    }
    println!("{stripped} frames with stripped tags, {accepted_stripped} of them accepted");
    assert!(accepted_stripped > 50 && stripped - accepted_stripped > 50);
}

#[test]
fn tail_call_after_a_match() {
    if !root_tests() {
        return;
    }
    let next = Program::load(
        BPF_PROG_TYPE_SCHED_CLS,
        &[Insn::mov_imm(R0, 42), Insn::exit()],
    );
    let programs = Array::new(BPF_MAP_TYPE_PROG_ARRAY, 4, 4);
    let filter = Filter::compile("ether dst ff:ff:ff:ff:ff:ff", LinkType::Ethernet).unwrap();
    let epilogue = Epilogue::tail_call(programs.fd(), 3, 5, -1);
    let insns = translate(&filter, Context::Tc, &epilogue).unwrap();
    let program = Program::load(BPF_PROG_TYPE_SCHED_CLS, &insns);
    let mut frame = [0xff; 60];
    assert_eq!(program.run(&frame), 5, "no program in the array");
    programs.set_program(3, &next).unwrap();
    assert_eq!(program.run(&frame), 42);
    frame[0] = 0;
    assert_eq!(program.run(&frame), u32::MAX);
}
