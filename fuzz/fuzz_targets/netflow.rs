//! Any datagrams of NetFlow and IPFIX, one after the other: nothing panics, errors point into the
//! datagram, and what is kept stays within its limits. A collector counts all of it somewhere.

#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use skua_collect::{Collector, CollectorConfig};
use skua_wire::netflow::{Decoder, Limits};

/// Bytes that the fuzzer takes to tell datagrams apart.
const BOUNDARY: [u8; 2] = [0xfe, 0xed];

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        sessions: 8,
        templates: 8,
        fields: 64,
        all_fields: 256,
        held_bytes: 4_096,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(limits);
    let mut collector = Collector::new(&CollectorConfig::default());
    let from: SocketAddr = ([192, 0, 2, 1], 2055).into();
    let (mut now, mut held, mut given_up) = (1_763_700_000_000_000_000, 0, 0);
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == BOUNDARY);
        let datagram = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(&[], |end| &rest[end + 2..]);
        let mut flows = 0;
        let outcome = decoder.decode(from, datagram, now, &mut |flow, section| {
            assert!(flow.first_ns <= flow.last_ns && flow.sampling >= 1);
            assert!(section.is_none_or(|section| section.bytes.len() <= 65_535));
            flows += 1;
        });
        assert_eq!(flows, outcome.flows);
        if let Some(error) = outcome.error {
            assert!(error.at <= datagram.len(), "{error}");
        }
        collector.datagram(from, datagram, now);
        held += outcome.held.sets;
        given_up += outcome.no_template.sets;
        assert!(decoder.sessions() <= 8);
        assert!(decoder.held() as u64 <= held);
        now += 7_000_000_000;
    }
    given_up += decoder.give_up().sets;
    assert!(given_up <= held);
    assert_eq!(decoder.held(), 0);
    collector.finish(now, &mut |_| {});
    let sums = collector.summary();
    let parts = [sums.counted, sums.elsewhere, sums.late, sums.keys_full];
    let packets = parts
        .iter()
        .fold(0u64, |all, sum| all.saturating_add(sum.packets));
    assert_eq!(packets, sums.got.packets);
});
