//! Writes seeds for the fuzzers: `cargo run -p skua-wire --example wire_seeds -- DIR` makes
//! `DIR/sflow` and `DIR/netflow`.

use std::{path::Path, process::ExitCode};

use skua_wire::{
    netflow::v5,
    sflow::{
        AgentReport, Conversation, ConversationTcp, CountersHead, EthernetFrame, FlowHead, Header,
        InterfaceCounters, IpPacket, Name, Port, RawHeader, SocketTcp, Writer,
    },
};

fn sflow() -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header {
        agent: [10, 0, 0, 1].into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: 1,
    };
    let mut writer = Writer::new(&mut out, &header);
    let head = FlowHead {
        rate: 10,
        input: Port::interface(1),
        ..FlowHead::default()
    };
    writer.flow_sample(&head, |records| {
        records.raw_header(&RawHeader {
            protocol: 1,
            frame_length: 64,
            stripped: 4,
            header: &[0; 60],
        });
        records.ethernet(&EthernetFrame::default());
    });
    let expanded = FlowHead {
        input: Port::interface(u32::MAX),
        ..head
    };
    writer.flow_sample(&expanded, |_| {});
    writer.counters_sample(&CountersHead::default(), |records| {
        records.agent(&AgentReport::default());
    });
    writer.flow_sample(&head, |records| {
        records.ip(&IpPacket {
            length: 100,
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            source_port: 40_000,
            destination_port: 443,
            tcp_flags: 2,
            tos: 0,
        });
        records.conversation(&Conversation::default());
        records.conversation_tcp(&ConversationTcp::default());
        let name = Name {
            process: "nginx",
            unit: "nginx.service",
            ..Name::default()
        };
        records.names([1, 2], &[(1, name), (2, name)]);
        records.socket_tcp(&SocketTcp::default());
        records.timestamp(1);
    });
    writer.counters_sample(&CountersHead::default(), |records| {
        records.interface(&InterfaceCounters::default());
    });
    out
}

/// A template with fields of fixed and variable length, a company's and a reverse one; data.
fn ipfix() -> Vec<u8> {
    let words: [u16; 34] = [
        10, 68, 0, 1, 0, 0, 0, 7, 2, 40, 256, 6, 8, 4, 1, 8, 152, 8, 0x8001, 4, 0, 29_305, 0x8009,
        0xffff, 0, 9, 82, 0xffff, 256, 12, 0x0a00, 1, 0, 0,
    ];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn v9() -> Vec<u8> {
    let words: [u16; 30] = [
        9, 2, 0, 5, 0, 1, 0, 1, 0, 1, 0, 20, 256, 3, 8, 4, 22, 4, 34, 4, 256, 16, 0x0a00, 1, 0, 2,
        0, 9, 0, 0,
    ];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn v5() -> Vec<u8> {
    let mut out = Vec::new();
    v5::Header {
        count: 1,
        ..v5::Header::default()
    }
    .encode(&mut out);
    v5::Record::default().encode(&mut out);
    out
}

fn write(directory: &Path) -> std::io::Result<()> {
    let (one, other) = (directory.join("sflow"), directory.join("netflow"));
    std::fs::create_dir_all(&one)?;
    std::fs::create_dir_all(&other)?;
    std::fs::write(one.join("all"), sflow())?;
    let both = [v9(), ipfix()].join(&[0xfe, 0xed][..]);
    for (name, bytes) in [
        ("v5", v5()),
        ("v9", v9()),
        ("ipfix", ipfix()),
        ("both", both),
    ] {
        std::fs::write(other.join(name), bytes)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: wire_seeds DIR");
        return ExitCode::from(2);
    };
    match write(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", Path::new(&directory).display());
            ExitCode::FAILURE
        }
    }
}
