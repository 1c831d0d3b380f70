//! Any bytes as sFlow datagrams: nothing panics, errors point into the datagram, and what is read
//! and written again is read as the same. A collector that takes them twice keeps its sums right.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_collect::{Collector, CollectorConfig};
use skua_wire::sflow::{self, Record, Sample, Writer};

/// A moment.
const NOW: u64 = 1_800_000_000_000_000_000;

/// All that comes is counted somewhere.
fn collect(bytes: &[u8]) {
    let mut collector = Collector::new(&CollectorConfig::default());
    for now in [NOW, NOW + 1_000_000_000] {
        collector.datagram(std::net::IpAddr::from([10, 0, 0, 1]), bytes, now);
    }
    let mut lines = 0;
    collector.finish(NOW + 2_000_000_000, &mut |_| lines += 1);
    let sums = collector.summary();
    assert_eq!(sums.lines, lines);
    assert_eq!(sums.conversations, 0);
    let parts = [sums.counted, sums.elsewhere, sums.late, sums.keys_full];
    let packets = parts
        .iter()
        .fold(0u64, |all, sum| all.saturating_add(sum.packets));
    assert_eq!(packets, sums.got.packets);
}

fuzz_target!(|bytes: &[u8]| {
    collect(bytes);
    let datagram = match sflow::decode(bytes) {
        Ok(datagram) => datagram,
        Err(error) => {
            assert!(error.at <= bytes.len());
            return;
        }
    };
    let mut written = Vec::new();
    let mut writer = Writer::new(&mut written, &datagram.header);
    let mut heads = Vec::new();
    for sample in datagram.samples() {
        match sample {
            Ok(Sample::Flow(sample)) => {
                heads.push(sample.head);
                writer.flow_sample(&sample.head, |records| {
                    for record in sample.records().map_while(Result::ok) {
                        match record {
                            Record::RawHeader(raw) => {
                                assert!(raw.wire_len() <= raw.frame_length);
                                records.raw_header(&raw);
                            }
                            Record::Ethernet(frame) => records.ethernet(&frame),
                            Record::Ip(ip) => records.ip(&ip),
                            Record::Switch(switch) => records.switch(&switch),
                            Record::Router(router) => records.router(&router),
                            Record::Timestamp(ns) => records.timestamp(ns),
                            Record::Socket(socket) => records.socket(&socket),
                            Record::TcpInfo(info) => records.tcp_info(&info),
                            Record::Conversation(told) => records.conversation(&told),
                            Record::ConversationTcp(tcp) => records.conversation_tcp(&tcp),
                            Record::Reverse => records.reverse(),
                            Record::Names(names) => {
                                let all: Result<Vec<_>, _> = names.definitions().collect();
                                records.names(names.sides, &all.unwrap_or_default());
                            }
                            Record::SocketTcp(tcp) => records.socket_tcp(&tcp),
                            Record::Other { tag, body } => records.other(tag, body),
                        }
                    }
                });
            }
            Ok(Sample::Counters(sample)) => {
                assert!(sample.records().count() <= bytes.len());
            }
            Ok(Sample::Other { .. }) => {}
            Err(error) => assert!(error.at <= bytes.len()),
        }
    }
    let again = sflow::decode(&written).expect("what was written");
    assert_eq!(again.header, datagram.header);
    let found: Vec<_> = again
        .samples()
        .map(|sample| match sample {
            Ok(Sample::Flow(sample)) => {
                assert!(sample.records().all(|record| record.is_ok()));
                sample.head
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, heads);
});
