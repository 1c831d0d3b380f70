//! Whatever comes: nothing is lost that is not counted, and the ways of feeding agree.

use super::{packets::*, *};
use crate::{Batch, FlowKey, FlowStore, StoreLimits};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What happens to a table.
#[derive(Clone, Debug)]
enum Step {
    Packet {
        data: Vec<u8>,
        stripped_vlan: Option<u16>,
        segments: u16,
        extra: u16,
        point: u32,
    },
    Drain,
    Wait(u64),
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let host = 1..4u8;
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, FIN | ACK, RST, 0]);
    let ip = prop_oneof![
        (host.clone(), host.clone(), 0..3u16, 0..3u16).prop_map(|(a, b, s, d)| ipv4(
            a,
            b,
            17,
            &udp(s, d, b"data")
        )),
        (host.clone(), host.clone(), flags, 0..9u32).prop_map(|(a, b, flags, seq)| ipv4(
            a,
            b,
            6,
            &tcp(1, 2, flags, seq, b"data")
        )),
        (host.clone(), host.clone(), 0..20u8, 0..2u16).prop_map(|(a, b, kind, id)| ipv4(
            a,
            b,
            1,
            &icmp(kind, 0, id)
        )),
        (
            host.clone(),
            host.clone(),
            prop::sample::select(vec![0x2000, 1, 0x2001]),
            0..3u16
        )
            .prop_map(|(a, b, f, id)| ipv4_fragment(a, b, 17, f, id, &udp(1, 2, b""))),
    ];
    let plain = prop_oneof![
        4 => ip.prop_map(|ip| ethernet(0x0800, &ip)),
        1 => (host.clone(), host.clone()).prop_map(|(a, b)| ethernet(0x86dd, &ipv6(a, b, 58, &icmp(128, 0, 1)))),
        1 => (host.clone(), host.clone(), 0..3u16).prop_map(|(a, b, port)| ethernet(0x86dd, &ipv6(a, b, 17, &udp(port, 1, b"data")))),
        1 => (host.clone(), host, 0..9u32).prop_map(|(a, b, seq)| ethernet(0x86dd, &ipv6(a, b, 6, &tcp(1, 2, ACK, seq, b"data")))),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    (
        plain,
        prop::bool::weighted(0.3),
        prop::option::weighted(0.1, 0..80usize),
    )
        .prop_map(|(frame, inside, cut)| {
            let mut frame = if inside { vxlan(3, &frame) } else { frame };
            frame.truncate(cut.unwrap_or(usize::MAX));
            frame
        })
}

fn step() -> impl Strategy<Value = Step> {
    let packet = (
        frame(),
        prop::option::weighted(0.1, any::<u16>()),
        prop_oneof![6 => Just(1u16), 1 => any::<u16>()],
        any::<u16>(),
        1..3u32,
    );
    prop_oneof![
        20 => packet.prop_map(|(data, stripped_vlan, segments, extra, point)| Step::Packet {
            data, stripped_vlan, segments, extra, point,
        }),
        1 => Just(Step::Drain),
        1 => (0..20u64).prop_map(Step::Wait),
    ]
}

/// Sums of updates.
#[derive(Default, PartialEq, Debug)]
struct Sums {
    outside: Counters,
    inside: Counters,
    flows: BTreeMap<(FlowKey, u64), (Counters, Counters)>,
    /// All of them, whole.
    updates: Vec<FlowUpdate>,
}

impl Sums {
    fn add(&mut self, update: &FlowUpdate) {
        self.updates.push(*update);
        let both = update.lo_sent + update.hi_sent;
        match update.key.tunnel() {
            None => self.outside += both,
            Some(_) => self.inside += both,
        }
        // Entries with one key differ by their beginning.
        let flow = self.flows.entry((update.key, update.first_ns)).or_default();
        flow.0 += update.lo_sent;
        flow.1 += update.hi_sent;
    }
}

struct Run {
    table: FlowTable,
    store: FlowStore,
    sums: Sums,
    fed: Counters,
    captured: Counters,
}

/// How packets are handed in.
#[derive(Clone, Copy)]
enum Feed {
    Single,
    /// As slices of so many.
    Slices(usize),
    /// One by one into a batch that is flushed after so many.
    Batch(usize),
}

impl Feed {
    fn size(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Slices(size) | Self::Batch(size) => size,
        }
    }
}

fn run(steps: &[Step], max_entries: usize, records: usize, tunnels: bool, feed: Feed) -> Run {
    let mut run = Run {
        table: table_with(|config| {
            config.max_entries = max_entries;
            config.tunnels = tunnels;
        }),
        store: FlowStore::new(
            StoreLimits {
                records,
                ..StoreLimits::default()
            },
            0x5eed,
            1,
        ),
        sums: Sums::default(),
        fed: Counters::default(),
        captured: Counters::default(),
    };
    let mut now_ns = NOON;
    let mut waiting = Vec::new();
    for step in steps {
        now_ns += 1;
        match step {
            Step::Packet {
                data,
                stripped_vlan,
                segments,
                extra,
                point,
            } => {
                let frame = Frame {
                    data,
                    wire_len: data.len() as u32 + u32::from(*extra),
                    link: LinkType::Ethernet,
                    stripped_vlan: *stripped_vlan,
                    segments: *segments,
                };
                run.fed.packets += u64::from((*segments).max(1));
                run.captured += counted(1, frame.wire_len.into());
                waiting.push(Captured {
                    point: CapturePoint {
                        ifindex: *point,
                        ..ETH0
                    },
                    frame,
                    now_ns,
                });
                if waiting.len() == feed.size() {
                    run.feed(&mut waiting, feed);
                }
            }
            Step::Drain => {
                run.feed(&mut waiting, feed);
                let (store, sums) = (&mut run.store, &mut run.sums);
                store.begin_drain(now_ns);
                run.table.drain(now_ns, |update| {
                    sums.add(update);
                    store.apply(update);
                });
            }
            Step::Wait(seconds) => now_ns += seconds * S,
        }
    }
    run.feed(&mut waiting, feed);
    let (store, sums) = (&mut run.store, &mut run.sums);
    store.begin_drain(now_ns);
    run.table.finish(|update| {
        sums.add(update);
        store.apply(update);
    });
    run
}

impl Run {
    fn feed(&mut self, waiting: &mut Vec<Captured<'_>>, feed: Feed) {
        match feed {
            Feed::Single => {
                for packet in waiting.iter() {
                    self.table
                        .packet(packet.point, &packet.frame, packet.now_ns);
                }
            }
            Feed::Slices(_) => self.table.packets(waiting),
            Feed::Batch(_) => {
                let mut batch = Batch::default();
                for packet in waiting.iter() {
                    batch.push(&mut self.table, *packet);
                }
                batch.flush(&mut self.table);
            }
        }
        waiting.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_is_lost_that_is_not_counted(
        steps in prop::collection::vec(step(), 0..120),
        max_entries in prop_oneof![Just(1000usize), 0..12usize],
        records in prop_oneof![Just(1000usize), 1..12usize],
        tunnels: bool,
        batch in 1..40usize,
    ) {
        let one = run(&steps, max_entries, records, tunnels, Feed::Single);
        let counters = points(&one.table);
        let all = one.sums.outside + counters.lost();
        prop_assert_eq!(all.packets, one.fed.packets);
        // What is on the wire is what was captured and what the notes say.
        let notes = counters[Cause::Segmented] + counted(0, counters[Cause::TagBytes].bytes);
        prop_assert_eq!(all.packets, one.captured.packets + notes.packets);
        prop_assert_eq!(all.bytes, one.captured.bytes + notes.bytes);
        prop_assert!(one.table.is_empty());

        // The history has the same sums, in records that are kept and in those that had to go.
        let summary = one.store.summary();
        prop_assert_eq!(summary.counted, one.sums.outside);
        prop_assert_eq!(summary.inside_tunnels, one.sums.inside);
        let kept = one.store.iter().fold(Counters::default(), |sum, r| sum + r.total());
        prop_assert_eq!(
            kept + summary.evicted_counted,
            one.sums.outside + one.sums.inside
        );
        prop_assert_eq!(summary.flows, summary.active + summary.ended + summary.evicted);
        prop_assert!(summary.active + summary.ended <= records as u64);
        if summary.evicted == 0 {
            prop_assert_eq!(summary.active, 0, "all have ended");
        }

        // Batches make the same flows, the short way and the long one.
        for feed in [Feed::Slices(batch), Feed::Batch(batch)] {
            let many = run(&steps, max_entries, records, tunnels, feed);
            prop_assert_eq!(&many.sums, &one.sums);
            prop_assert_eq!(points(&many.table), counters);
        }
    }

    /// A packet and its mirror image are in one flow, as its two directions.
    #[test]
    fn order_is_canonical(
        a: [u8; 4], b: [u8; 4], a_port: u16, b_port: u16, proto in prop::sample::select(vec![6, 17, 1, 50]),
    ) {
        let packet = |src: [u8; 4], dst: [u8; 4], src_port, dst_port, reply: bool| {
            let payload = match proto {
                6 => tcp(src_port, dst_port, ACK, 1, b""),
                17 => udp(src_port, dst_port, b""),
                _ => icmp(if reply { 0 } else { 8 }, 0, a_port),
            };
            let mut ip = ipv4(0, 0, proto, &payload);
            ip[12..16].copy_from_slice(&src);
            ip[16..20].copy_from_slice(&dst);
            ethernet(0x0800, &ip)
        };
        let there = only(&[packet(a, b, a_port, b_port, false)]);
        let back = only(&[packet(b, a, b_port, a_port, true)]);
        prop_assert_eq!(there.key, back.key);
        prop_assert!((there.key.lo, there.key.lo_port) <= (there.key.hi, there.key.hi_port));
        let same_ends = a == b && (a_port == b_port || matches!(proto, 1 | 50));
        prop_assert_eq!(there.lo_first != back.lo_first, !same_ends);
    }
}
