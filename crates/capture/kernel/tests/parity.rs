//! The kernel programs and the user-space path count the same packets the same way: both are fed
//! with every packet of the corpus and with many that were damaged at random, and every entry and
//! every counter is compared. Each program of the ladder that this kernel takes has its turn.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    net::{IpAddr, Ipv6Addr},
    os::{
        fd::{AsRawFd as _, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    sync::Arc,
    time::Duration,
};

use skua_flow::{AddressSet, CapturePoint, Cause, Counters, FlowUpdate, Mark, Prefix, TableConfig};
use skua_kernel::{
    Direction,
    flow::{Addresses, FlowTable, FlowTableConfig, LinkKind, Rung},
    monotonic_ns,
};
use skua_packet::{Frame, LinkType};
use skua_testkit::{Random, corpus, lab::kernel, packet::Packet};

const SEED: u64 = 0x0123_4567_89ab_cdef;
/// Test runs take place on loopback of the namespace.
const LOOPBACK: u32 = 1;
/// A test run takes a frame of at most one page with its head room.
const LONGEST: usize = 3_000;
/// And none without a whole Ethernet header.
const SHORTEST: usize = 14;
/// Enough for every capture; a drain walks through the whole table.
const ENTRIES: usize = 20_000;

/// In an emulated machine everything takes ten times as long: fewer packets, rarer comparisons.
fn emulated() -> bool {
    std::env::var_os("SKUA_KERNEL_MATRIX").is_some()
}

/// Packets taken of a capture.
fn packets_at_most() -> usize {
    if emulated() { 100 } else { 20_000 }
}

/// Captures between comparisons.
fn captures_at_once() -> usize {
    if emulated() { 20 } else { 1 }
}

/// `struct __sk_buff` (linux/bpf.h) as words, and the places of two fields.
const SK_BUFF_WORDS: usize = 48;
const GSO_SEGS: usize = 164 / 4;
const GSO_SIZE: usize = 176 / 4;

fn run(program: BorrowedFd<'_>, packet: &[u8], gso: Option<(u32, u32)>) -> Result<(), String> {
    run_times(program, packet, gso, 1)
}

fn run_times(
    program: BorrowedFd<'_>,
    packet: &[u8],
    gso: Option<(u32, u32)>,
    times: u32,
) -> Result<(), String> {
    let mut context = [0u32; SK_BUFF_WORDS];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        repeat: times as _,
        ..Default::default()
    };
    if let Some((segments, size)) = gso {
        context[GSO_SEGS] = segments;
        context[GSO_SIZE] = size;
        options.ctx_in = (&raw const context).cast();
        options.ctx_size_in = size_of_val(&context) as u32;
    }
    // SAFETY: all pointers are valid for their lengths during the call.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(-error).to_string()),
    }
}

/// What two runs must agree on: all but times.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    key: skua_flow::FlowKey,
    sent: [(u64, u64); 2],
    lo_first: bool,
    tunnel_id: u32,
    parent: u64,
    flags: [u8; 2],
    /// Retransmitted or out of order: which of both is a matter of time.
    late: [u32; 2],
    zero_window: [u32; 2],
    handshake: (bool, bool),
    lo_opened: Option<bool>,
    /// Of these only whether they are known.
    known: [bool; 7],
    syn_ttl: [u8; 2],
    skipped: ([u32; 2], [u64; 2]),
    macs: [[u8; 6]; 2],
    inner_tags: [u16; 2],
    labels: [Option<u32>; 2],
    fragments: u64,
    carries: u8,
}

fn entry(update: &FlowUpdate) -> Entry {
    let pair = |c: Counters| (c.packets, c.bytes);
    Entry {
        key: update.key,
        sent: [pair(update.lo_sent), pair(update.hi_sent)],
        lo_first: update.lo_first,
        tunnel_id: update.tunnel_id,
        parent: update.parent,
        flags: update.tcp.flags,
        late: [0, 1]
            .map(|i| update.tcp.counters.retransmitted[i] + update.tcp.counters.out_of_order[i]),
        zero_window: update.tcp.counters.zero_window,
        handshake: (update.tcp.server_rtt_ns > 0, update.tcp.client_rtt_ns > 0),
        lo_opened: update.tcp.lo_opened,
        known: {
            let times = [update.tcp.syn_ns, update.tcp.fin_ns, update.tcp.rst_ns];
            let mut known = [false; 7];
            for (known, time) in known.iter_mut().zip(times.as_flattened()) {
                *known = *time > 0;
            }
            known[6] = update.tcp.reply_ns > 0;
            known
        },
        syn_ttl: update.tcp.syn_ttl,
        skipped: (update.tcp.skipped, update.tcp.skipped_bytes),
        macs: update.link.macs,
        inner_tags: update.link.inner_tags,
        labels: update.link.labels,
        fragments: update.fragments,
        carries: update.carries.0,
    }
}

/// Since when tables can share their programs: a program can read the namespace of a packet.
const SHARES_PROGRAMS: (u32, u32) = (6, 2);

struct Both {
    kernel: FlowTable,
    /// How the kernel's address set is changed; none: it can have none.
    addresses: Option<Addresses>,
    user: skua_flow::FlowTable,
    tunnels: bool,
    rung: Rung,
    link: LinkKind,
    fed: u64,
    /// The test was stopped for so long while it fed a packet that each table may have looked at another one.
    unsure: bool,
    /// The present period of looks, and CLOCK_MONOTONIC when the first packet in it came.
    period: (u64, u64),
}

/// User space looks at the first packet of a flow in each 2^33 ns of its clock.
const LOOK_SHIFT: u32 = 33;

/// Longest that the kernel and user space may take to count one packet.
const TIME_TO_FEED: Duration = Duration::from_secs(1);

/// Longer than a tick of the kernel.
const TICK: Duration = Duration::from_millis(10);

impl Both {
    fn new(rung: Rung, link: LinkKind, tunnels: bool) -> Self {
        Self::with_addresses(rung, link, tunnels, 0)
    }

    /// Both can have address sets of so many prefixes.
    fn with_addresses(rung: Rung, link: LinkKind, tunnels: bool, max_addresses: u32) -> Self {
        Self::with(rung, link, tunnels, max_addresses, false)
    }

    /// With the programs that captures share.
    fn sharing(link: LinkKind, tunnels: bool) -> Self {
        Self::with(Rung::TcSwap, link, tunnels, 0, true)
    }

    fn with(
        rung: Rung,
        link: LinkKind,
        tunnels: bool,
        max_addresses: u32,
        share_programs: bool,
    ) -> Self {
        let config = FlowTableConfig {
            max_entries: ENTRIES as u32,
            tunnels,
            hash_seed: SEED,
            max_addresses,
            share_programs,
            ..FlowTableConfig::default()
        };
        let mut kernel =
            FlowTable::with_rungs(&[rung], config).expect("this kernel takes the rung");
        if share_programs {
            assert_eq!(kernel.shares_programs(), Some(true));
            // Test runs take place in it.
            let inode = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
            kernel.add_namespace(0, inode).unwrap();
        }
        kernel.add_point(0, LOOPBACK).unwrap();
        let user = skua_flow::FlowTable::new(&TableConfig {
            max_entries: ENTRIES,
            idle_timeout: None,
            tunnels,
            seed: SEED,
        });
        Self {
            addresses: kernel.addresses().unwrap(),
            kernel,
            user,
            tunnels,
            rung,
            link,
            fed: 0,
            unsure: false,
            period: (0, 0),
        }
    }

    fn link_type(&self) -> LinkType {
        match self.link {
            LinkKind::Ethernet => LinkType::Ethernet,
            LinkKind::Ip => LinkType::RawIp,
        }
    }

    /// Feeds both with a packet. `gso` is (segments, payload per segment).
    fn feed(&mut self, packet: &[u8], gso: Option<(u32, u32)>) {
        if packet.len() < SHORTEST || packet.len() > LONGEST {
            return;
        }
        let now = self.now_within_a_look_period();
        let program = self
            .kernel
            .program(0, Direction::Ingress, self.link)
            .unwrap()
            .expect("a program");
        match run(program, packet, gso) {
            Ok(()) => {}
            // The kernel itself refuses to make some damaged packets.
            Err(reason) => {
                assert!(reason.contains("Invalid argument"), "{reason}");
                return;
            }
        }
        self.fed += 1;
        let frame = Frame {
            data: packet,
            wire_len: packet.len() as u32,
            link: self.link_type(),
            stripped_vlan: None,
            segments: gso.map_or(1, |(segments, _)| segments as u16),
        };
        let point = CapturePoint {
            ifindex: LOOPBACK,
            ..CapturePoint::default()
        };
        self.user.packet(point, &frame, now);
        self.unsure |= self.kernel.look_period(monotonic_ns()) != self.period.0;
    }

    /// A time for user space in the period of looks in which the kernel counts a packet now: both are to look at the same
    /// packets.
    fn now_within_a_look_period(&mut self) -> u64 {
        loop {
            let now = monotonic_ns();
            let before = self.kernel.look_period(now - TICK.as_nanos() as u64);
            if before
                == self
                    .kernel
                    .look_period(now + TIME_TO_FEED.as_nanos() as u64)
            {
                if self.period.0 != before {
                    self.period = (before, now);
                }
                return (before << LOOK_SHIFT) + (now - self.period.1);
            }
            std::thread::sleep(TICK);
        }
    }

    fn set_addresses(&mut self, set: AddressSet) {
        let set = Arc::new(set);
        self.addresses.as_mut().unwrap().set(&set).unwrap();
        self.user.set_addresses(set);
    }

    /// Packets that the address set left out, in user space.
    fn left_out(&self) -> u64 {
        let sets = self.user.points().map(|(_, c)| c[Cause::AddressSet]);
        sets.map(|sum| sum.packets).sum()
    }

    /// Compares and empties both.
    fn compare(&mut self, what: &str) {
        let mut kernel = Vec::new();
        self.kernel
            .finish(|update| kernel.push(entry(update)))
            .unwrap();
        let mut user = Vec::new();
        self.user.finish(|update| user.push(entry(update)));
        kernel.sort();
        user.sort();
        if std::mem::take(&mut self.unsure) {
            println!("{what}: not compared, as the test was stopped for {TIME_TO_FEED:?}");
            return;
        }
        let only = |a: &[Entry], b: &[Entry]| -> Vec<String> {
            a.iter()
                .filter(|e| !b.contains(e))
                .map(|e| format!("{e:?}"))
                .collect()
        };
        let (in_kernel, in_user) = (only(&kernel, &user), only(&user, &kernel));
        assert!(
            in_kernel.is_empty() && in_user.is_empty(),
            "{what}, {:?}, tunnels {}:\n only in the kernel:\n  {}\n only in user space:\n  {}",
            self.rung,
            self.tunnels,
            in_kernel.join("\n  "),
            in_user.join("\n  ")
        );
    }

    /// Compares the counters of section 5.
    fn compare_causes(&self) {
        let [ingress, _] = self.kernel.point_counters(0, LOOPBACK).unwrap().unwrap();
        let mut user = [Counters::default(); Cause::ALL.len()];
        for (_, counters) in self.user.points() {
            for (cause, sum) in counters.iter() {
                user[cause as usize] += sum;
            }
        }
        for cause in Cause::ALL {
            assert_eq!(
                ingress[cause as usize],
                user[cause as usize],
                "{}, {:?}, tunnels {}",
                cause.name(),
                self.rung,
                self.tunnels
            );
        }
    }
}

/// Rungs that this kernel takes. The first is never missing.
fn rungs() -> Vec<Rung> {
    let all = [Rung::TcSwap, Rung::TcLock, Rung::Xdp];
    let taken: Vec<Rung> = all
        .into_iter()
        .filter(|rung| {
            FlowTable::with_rungs(
                &[*rung],
                FlowTableConfig {
                    max_entries: 64,
                    ..FlowTableConfig::default()
                },
            )
            .inspect_err(|error| println!("{rung:?} is not taken here: {error}"))
            .is_ok()
        })
        .collect();
    let old = kernel() == (5, 4);
    assert_eq!(taken.contains(&Rung::TcLock), !old, "{taken:?}");
    taken
}

fn links(rung: Rung) -> &'static [LinkKind] {
    if rung == Rung::Xdp {
        &[LinkKind::Ethernet]
    } else {
        &[LinkKind::Ethernet, LinkKind::Ip]
    }
}

#[test]
fn the_corpus_gives_the_same_flows() {
    for rung in rungs() {
        for link in links(rung) {
            for tunnels in [false, true] {
                feed_corpus(Both::new(rung, *link, tunnels));
            }
        }
    }
    if kernel() >= SHARES_PROGRAMS {
        for link in links(Rung::TcSwap) {
            feed_corpus(Both::sharing(*link, true));
        }
    }
}

fn feed_corpus(mut both: Both) {
    for (i, entry) in corpus().enumerate() {
        let capture = entry.capture();
        for record in capture.records.iter().take(packets_at_most()) {
            let linktype = capture.interfaces[record.interface].link_type.0;
            let fits = match both.link {
                LinkKind::Ethernet => linktype == 1,
                LinkKind::Ip => matches!(linktype, 101 | 228 | 229),
            };
            if fits {
                both.feed(&record.data, None);
            }
        }
        if i % captures_at_once() == 0 {
            both.compare(entry.name);
        }
    }
    both.compare("the last captures");
    both.compare_causes();
    assert!(both.fed > 10, "{}", both.fed);
}

#[test]
fn damaged_packets_give_the_same_flows() {
    let packets: Vec<Vec<u8>> = corpus()
        .flat_map(|entry| {
            let capture = entry.capture();
            let ethernet = capture.interfaces.iter().all(|i| i.link_type.0 == 1);
            // The mixed captures have what the others have.
            let take = if ethernet { 200 } else { 0 };
            capture
                .records
                .into_iter()
                .take(take)
                .map(|r| r.data)
                .collect::<Vec<_>>()
        })
        .collect();
    let mut random = Random::new(7);
    for rung in rungs() {
        for tunnels in [false, true] {
            let mut both = Both::new(rung, LinkKind::Ethernet, tunnels);
            for round in 0..if emulated() { 2 } else { 20 } {
                for _ in 0..300 {
                    let mut packet = random.pick(&packets).clone();
                    let changes = if packet.is_empty() {
                        0
                    } else {
                        random.below(6)
                    };
                    for _ in 0..changes {
                        // Mostly in the headers.
                        let end = if random.one_in(4) {
                            packet.len()
                        } else {
                            packet.len().min(80)
                        };
                        let place = random.below(end as u64) as usize;
                        packet[place] = random.bits() as u8;
                    }
                    if random.one_in(5) && !packet.is_empty() {
                        packet.truncate(random.below(packet.len() as u64 + 1) as usize);
                    }
                    both.feed(&packet, None);
                }
                both.compare(&format!("round {round}"));
            }
            both.compare_causes();
        }
    }
}

#[test]
fn super_packets_count_as_their_segments() {
    for rung in rungs() {
        if rung == Rung::Xdp {
            continue;
        }
        for tunnels in [false, true] {
            let mut both = Both::new(rung, LinkKind::Ethernet, tunnels);
            for (i, entry) in corpus().enumerate() {
                let capture = entry.capture();
                if capture.interfaces[0].link_type.0 != 1 {
                    continue;
                }
                for record in capture.records.iter().take(packets_at_most().min(200)) {
                    both.feed(&record.data, Some((3, 100)));
                }
                if i % captures_at_once() == 0 {
                    both.compare(entry.name);
                }
            }
            both.compare("the last captures");
            both.compare_causes();
            assert!(both.fed > 10);
        }
    }
}

/// Prefixes at most in a set.
const PREFIXES: u32 = 40;

/// Addresses of the outer levels of a capture's packets.
fn addresses_in(packets: &[&[u8]], link: LinkType) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for data in packets {
        let frame = Frame {
            link,
            ..Frame::ethernet(data)
        };
        let Ok(decoded) = skua_packet::decode(&frame, skua_packet::Options::default()) else {
            continue;
        };
        let level = decoded.outer;
        for octets in [level.src, level.dst] {
            match level.network {
                skua_packet::Network::None => {}
                skua_packet::Network::V4 => found.push(Ipv6Addr::from(octets).to_canonical()),
                skua_packet::Network::V6 => found.push(Ipv6Addr::from(octets).into()),
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A set about some of the addresses: hosts, short prefixes, one in another.
fn random_set(random: &mut Random, addresses: &[IpAddr]) -> AddressSet {
    let mut set = AddressSet::default();
    let marks: &[Mark] = match random.below(4) {
        0 => &[Mark::Include],
        1 => &[Mark::Exclude],
        _ => &[Mark::Include, Mark::Exclude],
    };
    let many = random.one_in(3);
    let most = random.below(if many { PREFIXES.into() } else { 6 }) + 1;
    for _ in 0..most {
        let address = *random.pick(addresses);
        let bits: u64 = if address.is_ipv4() { 32 } else { 128 };
        let length = match random.below(4) {
            0 => bits,
            1 => bits - random.below(9),
            _ => random.below(bits + 1),
        };
        let prefix = Prefix::holding(address, length as u8).unwrap();
        set.insert(prefix, *random.pick(marks));
    }
    set
}

#[test]
fn address_sets_leave_out_the_same_packets() {
    let mut random = Random::new(31);
    let (mut fed, mut left_out) = (0, 0);
    for rung in rungs() {
        for link in links(rung) {
            for tunnels in [false, true] {
                let mut both = Both::with_addresses(rung, *link, tunnels, PREFIXES);
                for (i, entry) in corpus().enumerate() {
                    let capture = entry.capture();
                    let packets: Vec<&[u8]> = capture
                        .records
                        .iter()
                        .filter(|record| {
                            let number = capture.interfaces[record.interface].link_type.0;
                            match link {
                                LinkKind::Ethernet => number == 1,
                                LinkKind::Ip => matches!(number, 101 | 228 | 229),
                            }
                        })
                        .map(|record| record.data.as_slice())
                        .take(packets_at_most().min(300))
                        .collect();
                    let addresses = addresses_in(&packets, both.link_type());
                    if addresses.is_empty() && !random.one_in(3) {
                        continue;
                    }
                    let set = match addresses.is_empty() || random.one_in(10) {
                        // Now and then there is none.
                        true => AddressSet::default(),
                        false => random_set(&mut random, &addresses),
                    };
                    both.set_addresses(set);
                    for packet in &packets {
                        both.feed(packet, None);
                        if random.one_in(8) && *link == LinkKind::Ethernet && rung != Rung::Xdp {
                            both.feed(packet, Some((3, 100)));
                        }
                    }
                    if i % captures_at_once() == 0 {
                        both.compare(entry.name);
                    }
                }
                both.compare("the last captures");
                both.compare_causes();
                assert!(both.fed > 10, "{}", both.fed);
                fed += both.fed;
                left_out += both.left_out();
            }
        }
    }
    // Of few packets alone it may be that none is left out.
    assert!(left_out > fed / 10, "{fed} {left_out}");
}

/// The number of changes of addresses that both tables count of the only flow.
fn moved(both: &mut Both) -> [u32; 2] {
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    both.kernel.finish(|update| kernel.push(*update)).unwrap();
    both.user.finish(|update| user.push(*update));
    assert_eq!((kernel.len(), user.len()), (1, 1), "{kernel:?} {user:?}");
    assert_eq!(kernel[0].link.macs, user[0].link.macs);
    [kernel[0].link.moved, user[0].link.moved]
}

#[test]
fn changes_of_addresses_count_alike() {
    let segment = |from: u8, to: u8, flags: u8| {
        let packet = Packet::new().ethernet(from, to);
        let packet = packet.ipv4("10.0.0.1", "10.0.0.2").tcp(40_000, 80, flags);
        packet.build()
    };
    let answer = |from: u8, to: u8| {
        let packet = Packet::new().ethernet(from, to);
        let packet = packet.ipv4("10.0.0.2", "10.0.0.1").tcp(80, 40_000, 0x12);
        packet.build()
    };
    for rung in rungs() {
        let mut both = Both::new(rung, LinkKind::Ethernet, false);
        both.feed(&segment(1, 2, 0x02), None);
        // From another router than the question went to.
        both.feed(&answer(3, 1), None);
        // A first ACK is looked at.
        both.feed(&segment(1, 4, 0x10), None);
        // And a first PSH.
        both.feed(&segment(1, 4, 0x18), None);
        assert_eq!(moved(&mut both), [1, 1], "{rung:?}");
    }
}

#[test]
fn packets_are_looked_at_again_after_a_while() {
    /// Longer than a period of looks.
    const WHILE: Duration = Duration::from_millis(8_700);
    let packet = |from: u8| {
        let packet = Packet::new().ethernet(from, 2);
        let packet = packet.ipv4("10.0.0.1", "10.0.0.2").udp(40_000, 7);
        packet.zeros(8).build()
    };
    for rung in rungs().into_iter().take(1) {
        let mut both = Both::new(rung, LinkKind::Ethernet, false);
        both.feed(&packet(1), None);
        std::thread::sleep(WHILE);
        both.feed(&packet(3), None);
        assert_eq!(moved(&mut both), [1, 1], "{rung:?}");
    }
}

#[test]
fn more_is_counted_between_two_drains_than_fits_beside_each_other() {
    const SEGMENTS: u32 = 65_000;
    let times = if emulated() { 90_000 } else { 100_000 };
    let packet = Packet::new().ethernet(1, 2);
    let packet = packet.ipv4("10.0.0.1", "10.0.0.2").tcp(40_000, 80, 0x10);
    let packet = packet.zeros(100).build();
    let headers = packet.len() as u64 - 100;
    for rung in rungs() {
        // XDP sees no super-packets.
        if rung == Rung::Xdp {
            continue;
        }
        let mut both = Both::new(rung, LinkKind::Ethernet, false);
        let program = both
            .kernel
            .program(0, Direction::Ingress, LinkKind::Ethernet);
        let program = program.unwrap().expect("a program");
        run_times(program, &packet, Some((SEGMENTS, 1)), times).unwrap();
        let mut sums = Vec::new();
        let mut add = |update: &FlowUpdate| sums.push(update.lo_sent);
        both.kernel.drain(&mut add).unwrap();
        both.kernel.finish(&mut add).unwrap();
        let segments = u64::from(SEGMENTS);
        let each = packet.len() as u64 + (segments - 1) * headers;
        // Nothing is added at the end.
        sums.retain(|sum| *sum != Counters::default());
        let expected = Counters {
            packets: u64::from(times) * segments,
            bytes: u64::from(times) * each,
        };
        assert!(expected.packets > 1 << 23 && expected.bytes > 1 << 38);
        assert_eq!(sums, [expected], "{rung:?}");
    }
}
