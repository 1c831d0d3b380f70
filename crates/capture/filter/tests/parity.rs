//! The kernel's verdict, user space's verdict and libpcap's own are the same on each packet.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;

use libbpf_sys::{BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_SOCKET_FILTER, BPF_PROG_TYPE_XDP};
use pcap::{BpfProgram, Capture, Linktype};
use skua_filter::{Context, Epilogue, Filter, Instruction, LinkType, translate};
use skua_testkit::lab::{kernel, root_tests};
use support::expressions::{self, ETHERNET, RAW_IP};
use support::kernel::{Program, rounds, tag_from_priority};
use support::packets;
use support::rng::Rng;

const ACCEPT: u32 = 7;
const REJECT: u32 = 3;

/// An expression in all its forms.
struct Subject {
    name: String,
    filter: Filter,
    /// libpcap's own interpreter; not for programs that it did not compile.
    oracle: Option<BpfProgram>,
    classifier: Program,
    direct: Program,
    socket_filter: Program,
    /// From kernel 5.18 on.
    xdp: Option<Program>,
    verdicts: BTreeSet<bool>,
}

impl Subject {
    fn compile(expression: &str, link: LinkType) -> Result<Self, String> {
        let filter = Filter::compile(expression, link).map_err(|error| error.to_string())?;
        let dlt = if link == LinkType::Ethernet { 1 } else { 12 };
        let oracle = Capture::dead(Linktype(dlt))
            .unwrap()
            .compile(expression, true)
            .unwrap();
        Ok(Self::load(expression.to_owned(), filter, Some(oracle)))
    }

    fn load(name: String, filter: Filter, oracle: Option<BpfProgram>) -> Self {
        let epilogue = Epilogue::verdicts(ACCEPT as i32, REJECT as i32);
        let skb = translate(&filter, Context::Skb, &epilogue).unwrap();
        let xdp = translate(&filter, Context::Xdp, &epilogue).unwrap();
        let tc = translate(&filter, Context::Tc, &epilogue).unwrap();
        let classifier = [tag_from_priority(), skb.clone()].concat();
        let direct = [tag_from_priority(), tc].concat();
        Subject {
            classifier: Program::load(BPF_PROG_TYPE_SCHED_CLS, &classifier),
            direct: Program::load(BPF_PROG_TYPE_SCHED_CLS, &direct),
            socket_filter: Program::load(BPF_PROG_TYPE_SOCKET_FILTER, &skb),
            xdp: (kernel() >= (5, 18)).then(|| Program::load(BPF_PROG_TYPE_XDP, &xdp)),
            verdicts: BTreeSet::new(),
            name,
            filter,
            oracle,
        }
    }

    /// The verdict in user space, after comparing it with libpcap's.
    fn expected(&mut self, packet: &[u8]) -> bool {
        let verdict = self.filter.matches(packet);
        // libpcap's protochain does not come back from some packets with AH headers.
        let endless = self.name.contains("protochain") && packet.contains(&51);
        if let (Some(oracle), false) = (&self.oracle, endless) {
            assert_eq!(
                verdict,
                oracle.filter(packet),
                "user space (left) and libpcap on '{}'\n{packet:02x?}",
                self.name
            );
        }
        self.verdicts.insert(verdict);
        verdict
    }

    /// Looks for a packet with the verdict that did not come up yet: some expressions are choosy.
    fn check_rare(&mut self, rng: &mut Rng, generate: fn(&mut Rng) -> Vec<u8>) {
        for _ in 0..200_000 {
            if self.verdicts.len() == 2 {
                return;
            }
            let packet = generate(rng);
            if !self.verdicts.contains(&self.filter.matches(&packet)) {
                self.check(&packet);
            }
        }
        panic!("'{}' always gives the same", self.name);
    }

    fn check(&mut self, packet: &[u8]) {
        let expected = self.expected(packet);
        if takes_as_classifier(packet) {
            self.agree("classifier", self.classifier.run(packet), expected, packet);
            self.agree(
                "direct classifier",
                self.direct.run(packet),
                expected,
                packet,
            );
        }
        if let Some(xdp) = &self.xdp {
            self.agree("XDP", xdp.run(packet), expected, packet);
        }
        // A test run takes 14 bytes away before a socket filter sees the packet.
        let shifted = [&[0; 14], packet].concat();
        self.agree(
            "socket filter",
            self.socket_filter.run(&shifted),
            expected,
            packet,
        );
    }

    /// The frame, cut shorter than a classifier can ever see it.
    fn check_short(&mut self, packet: &[u8]) {
        let expected = self.expected(packet);
        let shifted = [&[0; 14], packet].concat();
        self.agree(
            "socket filter",
            self.socket_filter.run(&shifted),
            expected,
            packet,
        );
    }

    /// The frame with this tag outside of it, against the frame with the tag inside.
    fn check_tagged(&mut self, frame: &[u8], tag: (u16, u16)) {
        if !takes_as_classifier(frame) {
            return;
        }
        let (addresses, rest) = frame.split_at(12);
        let whole = [addresses, &tag.0.to_be_bytes(), &tag.1.to_be_bytes(), rest].concat();
        let expected = self.expected(&whole);
        let verdict = self.classifier.run_tagged(frame, tag);
        self.agree("classifier with a stripped tag", verdict, expected, &whole);
        let verdict = self.direct.run_tagged(frame, tag);
        self.agree(
            "direct classifier with a stripped tag",
            verdict,
            expected,
            &whole,
        );
    }

    fn agree(&self, what: &str, verdict: u32, expected: bool, packet: &[u8]) {
        let expected = if expected { ACCEPT } else { REJECT };
        assert_eq!(
            verdict,
            expected,
            "{what} (left) and user space on '{}'\n{packet:02x?}\n{:?}",
            self.name,
            self.filter.instructions()
        );
    }
}

/// A test run refuses frames in which the IP header that the EtherType announces is cut off (kernel
/// 6.18).
fn takes_as_classifier(frame: &[u8]) -> bool {
    match frame[12..14] {
        [0x08, 0x00] => frame.len() >= 34,
        [0x86, 0xdd] => frame.len() >= 54,
        _ => true,
    }
}

/// Some thousands of packets for each expression, in frames and with stripped tags.
#[test]
fn manual_expressions() {
    if !root_tests() {
        return;
    }
    let mut longest = (0, String::new());
    for (index, expression) in ETHERNET.iter().enumerate() {
        let mut subject = Subject::compile(expression, LinkType::Ethernet).unwrap();
        let mut rng = Rng::new(index as u64);
        for _ in 0..rounds(2_000) {
            subject.check(&packets::ethernet(&mut rng));
            let frame = packets::ethernet(&mut rng);
            subject.check_tagged(&frame, packets::stripped_tag(&mut rng));
        }
        for _ in 0..rounds(200) {
            let frame = packets::ethernet(&mut rng);
            subject.check_short(&frame[..1 + rng.below(packets::SHORTEST)]);
        }
        subject.check_rare(&mut rng, packets::ethernet);
        longest = longest.max((subject.direct.verified_instructions(), subject.name));
    }
    println!(
        "{} expressions; most verifier work: {longest:?}",
        ETHERNET.len()
    );
}

#[test]
fn expressions_without_link_header() {
    if !root_tests() {
        return;
    }
    for (index, expression) in RAW_IP.iter().enumerate() {
        let mut subject = Subject::compile(expression, LinkType::RawIp).unwrap();
        let mut rng = Rng::new(1_000 + index as u64);
        for _ in 0..rounds(2_000) {
            subject.check(&packets::raw_ip(&mut rng));
        }
        subject.check_rare(&mut rng, packets::raw_ip);
    }
}

#[test]
fn long_lists() {
    if !root_tests() {
        return;
    }
    for count in [50, 100, 120] {
        let mut subject = Subject::compile(&expressions::ports(count), LinkType::Ethernet).unwrap();
        let mut rng = Rng::new(2_000 + u64::from(count));
        for _ in 0..rounds(2_000) {
            subject.check(&packets::ethernet(&mut rng));
            let frame = packets::ethernet(&mut rng);
            subject.check_tagged(&frame, packets::stripped_tag(&mut rng));
        }
        println!(
            "{count} ports: {} classic instructions, {} walked by the verifier",
            subject.filter.instructions().len(),
            subject.direct.verified_instructions()
        );
    }
}

/// Programs whose verdict does not depend on the packet: one of the epilogues is led to by nothing.
#[test]
fn constant_verdicts() {
    if !root_tests() {
        return;
    }
    let ret = |k| Instruction {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    };
    let load = |k| Instruction {
        code: 0x20,
        jt: 0,
        jf: 0,
        k,
    };
    for program in [
        vec![ret(1)],
        vec![ret(0)],
        vec![load(u32::MAX - 0x20_0001), ret(1)],
    ] {
        let filter = Filter::from_instructions(&program, LinkType::Ethernet).unwrap();
        let mut subject = Subject::load(format!("{program:?}"), filter, None);
        subject.check(&[0; 60]);
        subject.check_tagged(&[0; 60], (0x8100, 1));
    }
    let mut subject = Subject::compile("", LinkType::Ethernet).unwrap();
    subject.check(&[0; 60]);
    assert!(subject.verdicts.contains(&true));
}

#[test]
fn random_expressions() {
    if !root_tests() {
        return;
    }
    let (mut compiled, mut both) = (0, 0_u64);
    for stream in 0..rounds(600) {
        let mut rng = Rng::new(10_000 + stream);
        let expression = expressions::random(&mut rng, 3);
        // Many are contradictions, which libpcap refuses.
        let Ok(mut subject) = Subject::compile(&expression, LinkType::Ethernet) else {
            continue;
        };
        for _ in 0..300 {
            subject.check(&packets::ethernet(&mut rng));
            let frame = packets::ethernet(&mut rng);
            subject.check_tagged(&frame, packets::stripped_tag(&mut rng));
        }
        compiled += 1;
        both += u64::from(subject.verdicts.len() == 2);
    }
    println!("{compiled} random expressions, {both} of them with both verdicts");
    assert!(
        compiled > rounds(300) && both > rounds(200),
        "{compiled} {both}"
    );
}

/// Every opcode with odd operands, also those that libpcap never makes: classic programs at random,
/// against the interpreter in user space.
#[test]
fn random_programs() {
    if !root_tests() {
        return;
    }
    let mut both = 0_u64;
    for stream in 0..rounds(1_500) {
        let mut rng = Rng::new(20_000 + stream);
        let program = random_program(&mut rng);
        let link = rng.pick(&[LinkType::Ethernet, LinkType::Ethernet, LinkType::RawIp]);
        let filter = Filter::from_instructions(&program, link).unwrap();
        let mut subject = Subject::load(format!("{link:?} program {stream}"), filter, None);
        for _ in 0..60 {
            subject.check(&packets::ethernet(&mut rng));
            if link == LinkType::Ethernet {
                let frame = packets::ethernet(&mut rng);
                subject.check_tagged(&frame, packets::stripped_tag(&mut rng));
            }
        }
        both += u64::from(subject.verdicts.len() == 2);
    }
    assert!(
        both > rounds(200),
        "only {both} programs with both verdicts"
    );
}

fn random_program(rng: &mut Rng) -> Vec<Instruction> {
    const CODES: [u16; 43] = [
        0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x80, 0x00, 0x60, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03,
        0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x94, 0xa4, 0x0c, 0x1c, 0x2c, 0x3c, 0x4c,
        0x5c, 0x6c, 0x7c, 0x9c, 0xac, 0x84, 0x07, 0x87, 0x15, 0x25, 0x35, 0x45, 0x05,
    ];
    let length = 4 + rng.below(24);
    let mut program = Vec::new();
    for at in 0..length {
        let left = length - at;
        let mut code = rng.pick(&CODES);
        if matches!(code, 0x15 | 0x25 | 0x35 | 0x45) && rng.one_in(3) {
            code |= 0x08;
        }
        let (small, any) = (rng.below(70) as u32, rng.next() as u32);
        let k = match code {
            0x60 | 0x61 | 0x02 | 0x03 => small % 16,
            0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0xb1 => rng.pick(&[
                small,
                small,
                small,
                small % 18,
                12,
                95,
                97,
                120,
                0x7fff_ffff,
            ]),
            0x05 => rng.below(left) as u32,
            0x34 | 0x94 => 1 + small,
            0x64 | 0x74 => small % 40,
            _ => rng.pick(&[small, 0, 1, u32::MAX, 0x8000_0000, any]),
        };
        let (jt, jf) = (rng.below(left) as u8, rng.below(left) as u8);
        program.push(Instruction { code, jt, jf, k });
    }
    let (a, constant) = (0x16, 0x06);
    let last = rng.pick(&[(a, 0), (a, 0), (constant, 0), (constant, 1)]);
    program.push(Instruction {
        code: last.0,
        jt: 0,
        jf: 0,
        k: last.1,
    });
    program
}

/// `ip6 protochain` jumps backwards: as often as is allowed, and once more.
#[test]
fn header_chains_have_a_limit() {
    if !root_tests() {
        return;
    }
    let chain = |headers: usize| {
        let mut packet = vec![0_u8; 54];
        packet[12..14].copy_from_slice(&[0x86, 0xdd]);
        packet[14] = 0x60;
        packet[20] = if headers > 0 { 60 } else { 6 };
        for index in 0..headers {
            let next = if index + 1 < headers { 60 } else { 6 };
            packet.extend([next, 0, 0, 0, 0, 0, 0, 0]);
        }
        packet.extend([0; 20]);
        packet
    };
    let limit = skua_filter::MAX_BACKWARD_JUMPS as usize;
    let filter = Filter::compile("ip6 protochain 6", LinkType::Ethernet).unwrap();
    assert!(filter.matches(&chain(0)) && filter.matches(&chain(limit)));
    assert!(!filter.matches(&chain(limit + 1)));
    let mut subject = Subject::load("protochain".to_owned(), filter, None);
    for headers in [0, 1, limit, limit + 1, limit + 2] {
        subject.check(&chain(headers));
    }
    println!(
        "verifier: {} instructions",
        subject.direct.verified_instructions()
    );
}
