//! File formats: interfaces, clocks, byte orders, sections, odd blocks.

use super::{Entry, Trace};
use crate::capture::{Block, ByteOrder, Extra, Format, Interface, LinkType, Section};
use crate::packet::Packet;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "pcap_big_endian_us",
        about: "pcap, big endian, µs",
        make: |t| pcap(t, Format::PcapMicroseconds(ByteOrder::Big)),
    },
    Entry {
        name: "pcap_little_endian_us",
        about: "pcap, little endian, µs",
        make: |t| pcap(t, Format::PcapMicroseconds(ByteOrder::Little)),
    },
    Entry {
        name: "pcap_big_endian_ns",
        about: "pcap, big endian, ns",
        make: |t| pcap(t, Format::PcapNanoseconds(ByteOrder::Big)),
    },
    Entry {
        name: "pcap_modified",
        about: "pcap with Kuznetzov's longer record headers",
        make: |t| pcap(t, Format::PcapModified(ByteOrder::Little)),
    },
    Entry {
        name: "pcap_fcs",
        about: "pcap whose header says that packets end with four bytes of FCS",
        make: pcap_fcs,
    },
    Entry {
        name: "times_backwards",
        about: "packets whose times go backwards: start and end are the least and the greatest",
        make: times_backwards,
    },
    Entry {
        name: "pcapng_interfaces",
        about: "three interfaces with other clocks, names and link types; packets with options",
        make: pcapng_interfaces,
    },
    Entry {
        name: "pcapng_big_endian",
        about: "the same in big endian",
        make: pcapng_big_endian,
    },
    Entry {
        name: "pcapng_resolutions",
        about: "if_tsresol of s, ms, µs, ns, ps, 2^-10, 2^-20, 2^-30; if_tsoffset both ways",
        make: pcapng_resolutions,
    },
    Entry {
        name: "pcapng_simple",
        about: "simple packet blocks: no time, cut to the interface's snap length",
        make: pcapng_simple,
    },
    Entry {
        name: "pcapng_obsolete",
        about: "obsolete packet blocks between enhanced ones",
        make: pcapng_obsolete,
    },
    Entry {
        name: "pcapng_odd_blocks",
        about: "name resolution, statistics, custom, journal, secrets, unknown and empty blocks",
        make: pcapng_odd_blocks,
    },
    Entry {
        name: "pcapng_sections",
        about: "three sections, the middle one big endian, each with its own interfaces",
        make: pcapng_sections,
    },
    Entry {
        name: "pcapng_fcs",
        about: "if_fcslen: the last four bytes are no part of the packet",
        make: pcapng_fcs,
    },
];

/// A short conversation, `n` bytes larger each time.
fn talk(t: &mut Trace, n: usize) {
    let there = Packet::new().ethernet(1, 2).ipv4("10.0.0.1", "10.0.0.2");
    t.push(there.udp(40_000, 7).zeros(20 + n));
    let back = Packet::new().ethernet(2, 1).ipv4("10.0.0.2", "10.0.0.1");
    t.push(back.udp(7, 40_000).zeros(21 + n));
    let tcp = Packet::new().ethernet(1, 2).ipv6("fd00::1", "fd00::2");
    t.push(tcp.tcp(40_000, 80, 0x18).zeros(19 + n));
}

/// Sets the interface of the packets from `first` on.
fn on(t: &mut Trace, first: usize, interface: usize) {
    for record in &mut t.capture.records[first..] {
        record.interface = interface;
    }
}

fn pcap(t: &mut Trace, format: Format) {
    t.capture.format = format;
    t.wait(999_998_999);
    for n in 0..4 {
        talk(t, n);
    }
}

fn with_fcs(t: &mut Trace) {
    t.capture.interfaces[0].fcs_bytes = 4;
    for n in 0..3 {
        talk(t, n);
    }
    for record in &mut t.capture.records {
        record.data.extend_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
        record.wire_length += 4;
    }
}

fn pcap_fcs(t: &mut Trace) {
    with_fcs(t);
}

fn pcapng_fcs(t: &mut Trace) {
    t.capture.format = Format::PcapNg;
    with_fcs(t);
}

fn times_backwards(t: &mut Trace) {
    for n in 0..4 {
        talk(t, n);
    }
    let times: Vec<u64> = t.capture.records.iter().map(|r| r.timestamp_ns).collect();
    for (record, time) in t.capture.records.iter_mut().zip(times.iter().rev()) {
        record.timestamp_ns = *time;
    }
    let last = t.capture.records.len() - 1;
    t.capture.records.swap(last, last / 2);
}

fn pcapng_interfaces(t: &mut Trace) {
    t.capture.format = Format::PcapNg;
    t.capture.options = true;
    t.capture.interfaces = vec![
        Interface::new(Some("eth0"), LinkType::ETHERNET),
        Interface {
            resolution: None,
            ..Interface::new(Some("eth1"), LinkType::ETHERNET)
        },
        Interface::new(Some("tun0"), LinkType::RAW),
    ];
    for n in 0..4 {
        let first = t.capture.records.len();
        talk(t, n);
        on(t, first, n % 2);
        let first = t.capture.records.len();
        t.push(
            Packet::new()
                .ipv4("10.8.0.1", "10.8.0.2")
                .udp(40_000, 7)
                .zeros(n),
        );
        on(t, first, 2);
    }
}

fn pcapng_big_endian(t: &mut Trace) {
    pcapng_interfaces(t);
    t.capture.sections[0].order = ByteOrder::Big;
}

fn pcapng_resolutions(t: &mut Trace) {
    t.capture.format = Format::PcapNg;
    let clocks = [
        (0, None),
        (3, None),
        (6, None),
        (9, None),
        (9, Some(1_700_000_000)),
        (6, Some(-3600)),
        // 2^-10 s and so on.
        (0x80 | 10, None),
        (0x80 | 20, None),
        (0x80 | 30, None),
        (0x80 | 30, Some(1_795_000_000)),
        // Picoseconds since an offset, for they would not fit into 64 bits since 1970.
        (12, Some(1_795_255_000)),
    ];
    t.capture.interfaces = clocks
        .iter()
        .enumerate()
        .map(|(i, (resolution, offset))| Interface {
            resolution: Some(*resolution),
            offset_seconds: *offset,
            ..Interface::new(Some(&format!("if{i}")), LinkType::ETHERNET)
        })
        .collect();
    for i in 0..clocks.len() {
        let first = t.capture.records.len();
        talk(t, i);
        t.wait(1_234_567_891);
        talk(t, i);
        on(t, first, i);
    }
}

fn pcapng_simple(t: &mut Trace) {
    t.capture.format = Format::PcapNg;
    t.capture.interfaces[0].snap_length = 80;
    for n in 0..3 {
        talk(t, 10 * n);
    }
    for record in &mut t.capture.records {
        record.block = Block::Simple;
        record.data.truncate(80);
    }
}

fn pcapng_obsolete(t: &mut Trace) {
    t.capture.format = Format::PcapNg;
    for n in 0..4 {
        talk(t, n);
    }
    for record in t.capture.records.iter_mut().step_by(2) {
        record.block = Block::Obsolete;
    }
}

fn pcapng_odd_blocks(t: &mut Trace) {
    t.capture.format = Format::PcapNg;
    t.capture.options = true;
    for n in 0..4 {
        talk(t, n);
    }
    let name_resolution = [1, 0, 8, 0, 10, 0, 0, 1, b'a', b'b', b'c', 0, 0, 0, 0, 0];
    let mut statistics = vec![0; 12];
    statistics.extend_from_slice(&[4, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut secrets = b"KSLT".to_vec();
    secrets.extend_from_slice(&[4, 0, 0, 0, b'#', b' ', b'x', b'\n']);
    let journal = b"__REALTIME_TIMESTAMP=1795255200000000\nMESSAGE=x\n\0\0\0".to_vec();
    let extras: [(usize, u32, Vec<u8>); 9] = [
        (0, 4, name_resolution.to_vec()),
        (1, 5, statistics),
        // Custom blocks: private enterprise number 32473 is for examples, RFC 5612.
        (2, 0x0bad, vec![0xd9, 0x7e, 0, 0, 1, 2, 3, 4]),
        (3, 0x4000_0bad, vec![0xd9, 0x7e, 0, 0]),
        (4, 9, journal),
        (5, 10, secrets),
        (6, 0x0000_7777, vec![0xff; 70_000]),
        (6, 0x8000_0001, Vec::new()),
        (12, 5, vec![0; 12]),
    ];
    t.capture.extras = extras
        .into_iter()
        .map(|(before, kind, mut body)| {
            body.resize(body.len().next_multiple_of(4), 0);
            Extra { before, kind, body }
        })
        .collect();
}

fn pcapng_sections(t: &mut Trace) {
    t.capture.format = Format::PcapNg;
    t.capture.interfaces = vec![
        Interface::new(Some("eth0"), LinkType::ETHERNET),
        Interface::new(Some("tun0"), LinkType::RAW),
        Interface {
            resolution: Some(6),
            ..Interface::new(Some("eth0"), LinkType::ETHERNET)
        },
        Interface::new(Some("eth9"), LinkType::ETHERNET),
    ];
    let mut sections = Vec::new();
    for (order, first_interface) in [
        (ByteOrder::Little, 0),
        (ByteOrder::Big, 2),
        (ByteOrder::Little, 3),
    ] {
        let first_record = t.capture.records.len();
        sections.push(Section {
            order,
            first_record,
            first_interface,
        });
        talk(t, first_interface);
        on(t, first_record, first_interface);
    }
    t.capture.sections = sections;
}
