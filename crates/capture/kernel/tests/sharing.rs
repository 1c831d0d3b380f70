//! Tables of captures that share their programs. One test, since it counts the programs of this process.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

use skua_flow::Cause;
use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind, PacketConfig},
};
use skua_testkit::lab::{Net, kernel, root_tests};
use std::{collections::BTreeSet, net::UdpSocket, os::fd::AsFd as _};

/// A program that the verifier took longer for than for any entrance or filter.
const LARGE: u64 = 1_000;
const PORT: u16 = 9_000;

/// Numbers of the large programs of which this process has a descriptor.
fn large_programs() -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        if let (Some(id), Some(verified)) = (field("prog_id:"), field("verified_insns:"))
            && verified > LARGE
        {
            found.insert(id);
        }
    }
    found
}

/// A capture of loopback in a namespace that it knows as `number`.
struct Capture {
    table: FlowTable,
    attachments: Vec<Attachment>,
}

impl Capture {
    fn start(net: &Net, number: u16, config: FlowTableConfig) -> Self {
        let config = FlowTableConfig {
            max_entries: 1_000,
            hash_seed: 7,
            share_programs: true,
            ..config
        };
        let mut table = FlowTable::new(HookKind::Tcx, config).unwrap();
        assert_eq!(table.shares_programs(), Some(true));
        table.add_namespace(number, net.inode()).unwrap();
        table.add_point(number, 1).unwrap();
        let mut attachments = Vec::new();
        for direction in [Direction::Ingress, Direction::Egress] {
            let program = table.program(number, direction, LinkKind::Ethernet);
            let program = program.unwrap().unwrap();
            let attach = || Attachment::new(program.as_fd(), 1, direction, HookKind::Tcx).unwrap();
            attachments.push(net.inside(attach));
        }
        Self { table, attachments }
    }

    /// Ends it: packets of the flow to `PORT`, and those that the filter left out, both directions together.
    fn end(mut self, number: u16) -> (u64, u64) {
        drop(self.attachments);
        let mut counted = 0;
        self.table
            .finish(|update| {
                assert_eq!(update.key.netns, number);
                assert_eq!(update.key.ifindex, 1);
                counted += update.lo_sent.packets + update.hi_sent.packets;
            })
            .unwrap();
        let counters = self.table.point_counters(number, 1).unwrap().unwrap();
        let left = counters.map(|causes| causes[Cause::Filtered as usize].packets);
        (counted, left.iter().sum())
    }
}

fn send(net: &Net, datagrams: usize) {
    net.inside(|| {
        let receiver = UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..datagrams {
            sender.send_to(b"skua", ("127.0.0.1", PORT)).unwrap();
            receiver.recv(&mut [0; 16]).unwrap();
        }
    });
}

#[test]
fn many_captures_have_one_set_of_programs_and_each_its_own_counts() {
    if !root_tests() {
        return;
    }
    if kernel() < (6, 6) {
        println!("this kernel has no tcx");
        return;
    }
    skua_kernel::capture_libbpf_log();
    let (one, other) = (Net::new(), Net::new());
    let net = |at: u16| if at.is_multiple_of(2) { &one } else { &other };
    let plain = FlowTableConfig::default;
    let before = large_programs();
    let loaded = || large_programs().difference(&before).count();

    let captures: Vec<Capture> = (0..10)
        .map(|at| {
            let capture = Capture::start(net(at), 100 + at, plain());
            // One for each direction, whatever the number of captures.
            assert_eq!(loaded(), 2, "after capture {at}");
            capture
        })
        .collect();
    // Of the first one only, before the others' packets: nothing of one table is in another.
    send(&one, 3);
    let mut captures = captures.into_iter().enumerate();
    for (at, capture) in captures.by_ref().take(4) {
        let sent = if at.is_multiple_of(2) { 6 } else { 0 };
        assert_eq!(capture.end(100 + at as u16), (sent, 0), "capture {at}");
    }
    send(&other, 5);
    for (at, capture) in captures {
        let sent = if at.is_multiple_of(2) { 6 } else { 10 };
        assert_eq!(capture.end(100 + at as u16), (sent, 0), "capture {at}");
    }
    // They stay for the next capture.
    assert_eq!(loaded(), 2);

    // Each filter is a program of its own, but those behind it are the same.
    let filter = |text: &str| FlowTableConfig {
        filter: text.into(),
        ..plain()
    };
    let captures = [
        ("udp dst port 9000", (6, 0)),
        ("tcp", (0, 6)),
        ("", (6, 0)),
        ("udp", (6, 0)),
    ]
    .map(|(text, expected)| (Capture::start(&one, 7, filter(text)), text, expected));
    // What counts, and what does not match, for each direction; and those of before.
    assert_eq!(loaded(), 6);
    send(&one, 3);
    for (capture, text, expected) in captures {
        assert_eq!(capture.end(7), expected, "{text}");
    }

    // Other settings are constants of other programs.
    let keeps = FlowTableConfig {
        packets: Some(PacketConfig {
            first: 2,
            ..PacketConfig::default()
        }),
        ..plain()
    };
    let captures = [0, 1].map(|_| Capture::start(&one, 9, keeps.clone()));
    assert_eq!(loaded(), 8);
    send(&one, 3);
    for capture in captures {
        let mut ring = capture.table.packets().unwrap().unwrap();
        let mut kept = 0;
        ring.drain(&mut |packet| {
            assert_eq!(packet.key.netns, 9);
            kept += 1;
        })
        .unwrap();
        // Both directions of loopback are one flow, whose first two packets are kept.
        assert_eq!(kept, 2);
        assert_eq!(capture.end(9), (6, 0));
    }
}
