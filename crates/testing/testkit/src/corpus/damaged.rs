//! Capture files that are damaged, cut off or of a kind without support here.

use super::named;
use crate::capture::{ByteOrder, Capture, Format, LinkType, block};

/// What a reader must do with a damaged file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// This many packets, then one error that says this, at this byte offset.
    Error {
        /// Packets before the error.
        packets: usize,
        /// Offset of the record or block at fault.
        offset: u64,
        /// Part of the message.
        says: &'static str,
        /// Packets behind it that can be read all the same.
        beyond: usize,
    },
    /// This many packets, then the end with a warning at this byte offset.
    Warning {
        /// Packets before the end.
        packets: usize,
        /// Offset of the record or block that is cut off.
        offset: u64,
    },
    /// All of these packets and no error.
    Fine {
        /// Packets in the file.
        packets: usize,
    },
}

/// A file and what must come of it.
#[derive(Clone, Debug)]
pub struct Damaged {
    /// File name.
    pub name: &'static str,
    /// Contents.
    pub bytes: Vec<u8>,
    /// What a reader must do.
    pub outcome: Outcome,
}

fn error(packets: usize, offset: u64, says: &'static str) -> Outcome {
    Outcome::Error {
        packets,
        offset,
        says,
        beyond: 0,
    }
}

/// One packet, then an error, and packets behind it.
fn error_before(beyond: usize, at: u64, text: &'static str) -> Outcome {
    Outcome::Error {
        packets: 1,
        offset: at,
        says: text,
        beyond,
    }
}

/// Twelve packets as pcap and as pcapng.
fn whole(format: Format) -> Capture {
    let mut capture = named("pcap_big_endian_ns").unwrap_or_else(|| Capture::new("missing"));
    capture.format = format;
    capture
}

const PCAP: Format = Format::PcapNanoseconds(ByteOrder::Little);

fn patched(mut bytes: Vec<u8>, offset: usize, with: &[u8]) -> Vec<u8> {
    bytes[offset..offset + with.len()].copy_from_slice(with);
    bytes
}

fn cut(mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
    bytes.truncate(length);
    bytes
}

/// All damaged files.
pub fn damaged() -> Vec<Damaged> {
    let mut all = Vec::new();
    let mut add = |name, bytes, outcome| {
        all.push(Damaged {
            name,
            bytes,
            outcome,
        });
    };
    let pcap = whole(PCAP).bytes();
    let records = whole(PCAP).records.len();
    let second = 24 + 16 + whole(PCAP).records[0].data.len();
    let last = pcap.len() - 16 - whole(PCAP).records[records - 1].data.len();

    add("empty.pcap", Vec::new(), error(0, 0, "empty"));
    add(
        "text.pcap",
        b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec(),
        error(0, 0, "neither"),
    );
    add(
        "gzip.pcap",
        vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0, 0],
        error(0, 0, "gzip"),
    );
    add(
        "three_bytes.pcap",
        pcap[..3].to_vec(),
        error(0, 0, "too short"),
    );
    add(
        "header_cut.pcap",
        pcap[..23].to_vec(),
        error(0, 0, "cut off"),
    );
    add(
        "header_only.pcap",
        pcap[..24].to_vec(),
        Outcome::Fine { packets: 0 },
    );
    add(
        "version_1.pcap",
        patched(pcap.clone(), 4, &[1, 0]),
        error(0, 4, "version 1.4"),
    );
    add(
        "record_header_cut.pcap",
        cut(pcap.clone(), last + 15),
        Outcome::Warning {
            packets: records - 1,
            offset: last as u64,
        },
    );
    add(
        "record_cut.pcap",
        cut(pcap.clone(), pcap.len() - 1),
        Outcome::Warning {
            packets: records - 1,
            offset: last as u64,
        },
    );
    add(
        "record_no_bytes.pcap",
        cut(pcap.clone(), last + 16),
        Outcome::Warning {
            packets: records - 1,
            offset: last as u64,
        },
    );
    add(
        "record_huge.pcap",
        patched(pcap.clone(), second + 8, &[0xff; 4]),
        error(1, second as u64, "4294967295"),
    );
    let mut usb = whole(PCAP);
    usb.interfaces[0].link_type = LinkType(189);
    add(
        "link_type_usb.pcap",
        usb.bytes(),
        error(0, 20, "link type 189"),
    );
    usb.interfaces[0].link_type = LinkType(192);
    add(
        "link_type_ppi.pcap",
        usb.bytes(),
        error(0, 20, "link type 192"),
    );

    let ng = whole(Format::PcapNg).bytes();
    // Section header: 24 bytes, an option of 4 + 12, the end of options 4, the length 4.
    let section = u32::from_le_bytes([ng[4], ng[5], ng[6], ng[7]]) as usize;
    let interface = u32::from_le_bytes([
        ng[section + 4],
        ng[section + 5],
        ng[section + 6],
        ng[section + 7],
    ]) as usize;
    let first = section + interface;
    let length = |offset: usize| {
        u32::from_le_bytes([
            ng[offset + 4],
            ng[offset + 5],
            ng[offset + 6],
            ng[offset + 7],
        ]) as usize
    };
    let second = first + length(first);
    let mut last = first;
    while last + length(last) < ng.len() {
        last += length(last);
    }
    add(
        "section_cut.pcapng",
        cut(ng.clone(), 20),
        error(0, 0, "cut off"),
    );
    add(
        "section_only.pcapng",
        cut(ng.clone(), section),
        Outcome::Fine { packets: 0 },
    );
    add(
        "byte_order.pcapng",
        patched(ng.clone(), 8, &[1, 2, 3, 4]),
        error(0, 0, "byte-order magic"),
    );
    add(
        "version_9.pcapng",
        patched(ng.clone(), 12, &[9, 0]),
        error(0, 0, "version 9.0"),
    );
    add(
        "interface_cut.pcapng",
        cut(ng.clone(), section + 10),
        Outcome::Warning {
            packets: 0,
            offset: section as u64,
        },
    );
    add(
        "block_cut.pcapng",
        cut(ng.clone(), ng.len() - 1),
        Outcome::Warning {
            packets: records - 1,
            offset: last as u64,
        },
    );
    add(
        "block_header_cut.pcapng",
        cut(ng.clone(), last + 7),
        Outcome::Warning {
            packets: records - 1,
            offset: last as u64,
        },
    );
    add(
        "block_length_0.pcapng",
        patched(ng.clone(), second + 4, &[0; 4]),
        error_before(records - 2, second as u64, "block of 0 bytes"),
    );
    add(
        "block_length_odd.pcapng",
        patched(ng.clone(), second + 4, &[33, 0, 0, 0]),
        error_before(records - 2, second as u64, "block of 33 bytes"),
    );
    add(
        "block_length_huge.pcapng",
        patched(ng.clone(), second + 4, &[0xfc, 0xff, 0xff, 0xff]),
        error_before(records - 2, second as u64, "4294967292"),
    );
    add(
        "block_lengths_differ.pcapng",
        patched(ng.clone(), first + length(first) - 4, &[1, 0, 0, 0]),
        error(0, first as u64, "differ"),
    );
    add(
        "captured_beyond_block.pcapng",
        patched(ng.clone(), second + 20, &[0xff, 0xff, 0, 0]),
        error_before(records - 2, second as u64, "65535"),
    );
    add(
        "unknown_interface.pcapng",
        patched(ng.clone(), second + 8, &[7, 0, 0, 0]),
        error_before(records - 2, second as u64, "interface 7"),
    );
    // An interface without options, then only a broken option: it is the option that is ignored.
    let mut broken_option = ng[..section].to_vec();
    block(
        &mut broken_option,
        ByteOrder::Little,
        1,
        &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0xff, 0xff],
    );
    broken_option.extend_from_slice(&ng[first..]);
    add(
        "option_beyond_block.pcapng",
        broken_option,
        error(0, section as u64, "option"),
    );
    let mut unknown_last = ng.clone();
    unknown_last.extend_from_slice(&0x7777u32.to_le_bytes());
    unknown_last.extend_from_slice(&0xffff_fff0u32.to_le_bytes());
    unknown_last.extend_from_slice(&[0; 100]);
    add(
        "unknown_block_cut.pcapng",
        unknown_last,
        Outcome::Warning {
            packets: records,
            offset: ng.len() as u64,
        },
    );
    let mut usb = whole(Format::PcapNg);
    usb.interfaces[0].link_type = LinkType(189);
    add(
        "link_type_usb.pcapng",
        usb.bytes(),
        error(0, first as u64, "link type 189"),
    );
    all
}
