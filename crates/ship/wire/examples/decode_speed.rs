//! Records per CPU second of decoding alone: `cargo run --release -p skua-wire --example
//! decode_speed`. Prints the best of several runs.

use std::{hint::black_box, net::SocketAddr};

use skua_wire::{
    netflow::{Decoder, v5},
    sflow::{self, DataSource, FlowHead, Header, Port, RawHeader, Record, Sample, Writer},
};

const DATAGRAMS: u32 = 100_000;
const SAMPLES: u32 = 6;
const V5_RECORDS: u16 = 30;
const IPFIX_RECORDS: usize = 24;

/// CPU time of this thread in ns: others use this machine, too.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().map(str::parse);
    ns.and_then(Result::ok).unwrap_or_default()
}

/// Prints the rate of the best of seven runs, each of which returns how many records it read.
fn print(what: &str, mut run: impl FnMut() -> u64) {
    let best = (0..7)
        .map(|_| {
            let begin = cpu_ns();
            let records = run();
            (cpu_ns() - begin) as f64 / records as f64
        })
        .fold(f64::MAX, f64::min);
    println!(
        "{what:10} {best:6.1} ns per record, {:11.0} records per CPU second",
        1e9 / best
    );
}

fn sflow_datagram() -> Vec<u8> {
    let header = Header {
        agent: [10, 0, 0, 1].into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: 1,
    };
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, &header);
    for sequence in 0..SAMPLES {
        let head = FlowHead {
            sequence,
            source: DataSource { class: 0, index: 3 },
            rate: 1_000,
            input: Port::interface(3),
            output: Port::interface(4),
            ..FlowHead::default()
        };
        writer.flow_sample(&head, |records| {
            records.raw_header(&RawHeader {
                protocol: 1,
                frame_length: 1_418,
                stripped: 4,
                header: &[7; 128],
            });
        });
    }
    out
}

fn sflow_records(datagram: &[u8]) -> u64 {
    let mut records = 0;
    for _ in 0..DATAGRAMS {
        let Ok(read) = sflow::decode(black_box(datagram)) else {
            continue;
        };
        for sample in read.samples().flatten() {
            if let Sample::Flow(sample) = sample {
                for record in sample.records().flatten() {
                    if let Record::RawHeader(raw) = record {
                        records += u64::from(black_box(raw.wire_len()) > 0);
                    }
                }
            }
        }
    }
    records
}

fn v5_datagram() -> Vec<u8> {
    let mut out = Vec::new();
    let header = v5::Header {
        count: V5_RECORDS,
        uptime_ms: 10_000,
        unix_secs: 1_763_700_000,
        ..v5::Header::default()
    };
    header.encode(&mut out);
    for number in 0..V5_RECORDS {
        let record = v5::Record {
            source: [10, 0, 0, 1],
            source_port: number,
            packets: 10,
            octets: 9_000,
            ..v5::Record::default()
        };
        record.encode(&mut out);
    }
    out
}

fn ipfix_datagram(template: bool) -> Vec<u8> {
    let fields: [u16; 24] = [
        8, 4, 12, 4, 7, 2, 11, 2, 4, 1, 6, 1, 10, 4, 14, 4, 2, 8, 1, 8, 152, 8, 153, 8,
    ];
    let words = |words: &[u16]| -> Vec<u8> { words.iter().flat_map(|w| w.to_be_bytes()).collect() };
    let mut sets = Vec::new();
    if template {
        sets.extend(words(&[2, 56, 256, 12]));
        sets.extend(words(&fields));
    }
    let records = vec![1_u8; 54 * IPFIX_RECORDS];
    sets.extend(words(&[256, 4 + records.len() as u16]));
    sets.extend(records);
    let mut out = words(&[10, 16 + sets.len() as u16, 0x691f, 0xf260, 0, 0, 0, 7]);
    out.extend(sets);
    out
}

fn main() {
    let from: SocketAddr = ([10, 0, 0, 1], 2055).into();
    let datagram = sflow_datagram();
    print("sFlow", || sflow_records(&datagram));
    let mut decoder = Decoder::default();
    decoder.decode(from, &ipfix_datagram(true), 1, &mut |_, _| {});
    for (what, datagram) in [
        ("NetFlow 5", v5_datagram()),
        ("IPFIX", ipfix_datagram(false)),
    ] {
        print(what, || {
            let mut bytes = 0;
            let mut flows = 0;
            for _ in 0..DATAGRAMS {
                let outcome = decoder.decode(from, black_box(&datagram), 1, &mut |flow, _| {
                    bytes += black_box(flow).bytes[0];
                });
                flows += outcome.flows;
            }
            black_box(bytes);
            flows
        });
    }
}
