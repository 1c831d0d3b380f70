//! The capture-file reader gives back what was written, and says what is wrong with damaged files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Read;

use skua_file::{CaptureFile, FileError};
use skua_testkit::{Capture, Outcome, corpus, damaged, named};

/// Hands out one byte more with each call, so that every record crosses a read.
struct Dribble<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.step = self.step % 61 + 1;
        let n = self.step.min(self.bytes.len()).min(buffer.len());
        buffer[..n].copy_from_slice(&self.bytes[..n]);
        self.bytes = &self.bytes[n..];
        Ok(n)
    }
}

fn compare(capture: &Capture, mut file: CaptureFile<impl Read>) {
    for (i, record) in capture.records.iter().enumerate() {
        let interface = &capture.interfaces[record.interface];
        let fcs = usize::from(interface.fcs_bytes);
        let wire_len = record.wire_length - fcs as u32;
        let data = &record.data[..record.data.len().min(wire_len as usize)];
        let packet = file.next_packet().unwrap().unwrap();
        assert_eq!(packet.timestamp_ns, record.timestamp_ns, "{i}");
        assert_eq!(packet.data, data, "{i}");
        assert_eq!(packet.wire_len, wire_len, "{i}");
        let index = packet.interface as usize;
        let found = &file.interfaces()[index];
        assert_eq!(found.link_type, interface.link_type.0, "{i}");
        assert_eq!(found.name.as_deref(), interface.name.as_deref(), "{i}");
    }
    assert_eq!(file.next_packet().unwrap(), None);
    assert_eq!(file.cut_off(), None);
    assert_eq!(file.offset(), capture.bytes().len() as u64);
}

/// A packet that owns its bytes.
type Owned = (u32, u64, Vec<u8>, u32);

fn owned(packet: &skua_file::Packet<'_>) -> Owned {
    (
        packet.interface,
        packet.timestamp_ns,
        packet.data.to_vec(),
        packet.wire_len,
    )
}

/// What a file holds, how it ends, and whether anything was cut off, read one by one or in batches.
fn contents(
    bytes: impl Read,
    batch: Option<usize>,
) -> (Vec<Owned>, Result<(), String>, Option<u64>) {
    let mut packets = Vec::new();
    let mut file = match CaptureFile::new("x", bytes) {
        Ok(file) => file,
        Err(error) => return (packets, Err(error.to_string()), None),
    };
    let end = loop {
        let before = packets.len();
        let more = match batch {
            None => file
                .next_packet()
                .map(|p| packets.extend(p.as_ref().map(owned))),
            Some(max) => file.next_batch(max).map(|found| {
                packets.extend(found.into_iter().flatten().map(|p| owned(&p)));
                assert!(packets.len() - before <= max);
            }),
        };
        match more {
            Ok(()) if packets.len() == before => break Ok(()),
            Ok(()) => {}
            Err(error) => break Err(error.to_string()),
        }
    };
    (packets, end, file.cut_off().map(|cut| cut.offset))
}

#[test]
fn batches_hold_the_same_packets_and_end_the_same_way() {
    let files = corpus()
        .map(|entry| entry.capture().bytes())
        .chain(damaged().into_iter().map(|file| file.bytes));
    for bytes in files {
        let one_by_one = contents(&bytes[..], None);
        for max in [1, 2, 16, usize::MAX] {
            assert_eq!(contents(&bytes[..], Some(max)), one_by_one);
        }
        let dribble = Dribble {
            bytes: &bytes,
            step: 0,
        };
        assert_eq!(contents(dribble, Some(16)), one_by_one);
    }
    // Batches are worth their name.
    let bytes = named("mixed").unwrap().bytes();
    let mut file = CaptureFile::new("x", &bytes[..]).unwrap();
    assert_eq!(file.next_batch(64).unwrap().unwrap().len(), 64);
}

#[test]
fn every_capture_comes_back() {
    for entry in corpus() {
        let capture = entry.capture();
        let bytes = capture.bytes();
        compare(&capture, CaptureFile::new(entry.name, &bytes[..]).unwrap());
        let dribble = Dribble {
            bytes: &bytes,
            step: 0,
        };
        compare(&capture, CaptureFile::new(entry.name, dribble).unwrap());
    }
}

#[test]
fn sections_share_interfaces_of_one_name() {
    let bytes = named("pcapng_sections").unwrap().bytes();
    let mut file = CaptureFile::new("x", &bytes[..]).unwrap();
    let mut seen = Vec::new();
    while let Some(packet) = file.next_packet().unwrap() {
        seen.push(packet.interface);
    }
    assert_eq!(seen, [0, 0, 0, 0, 0, 0, 2, 2, 2]);
    let names: Vec<_> = file
        .interfaces()
        .iter()
        .map(|interface| interface.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["eth0", "tun0", "eth9"]);
}

/// Reads to the end: packets, then the error if any, then the warning's line and offset if any.
fn outcome(name: &str, bytes: &[u8]) -> (usize, Option<FileError>, Option<(u64, String)>) {
    let mut file = match CaptureFile::new(name, bytes) {
        Ok(file) => file,
        Err(error) => return (0, Some(error), None),
    };
    let mut packets = 0;
    let error = loop {
        match file.next_packet() {
            Ok(Some(_)) => packets += 1,
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    // After the end it stays ended.
    assert!(matches!(file.next_packet(), Ok(None)), "{name}");
    let warning = file.cut_off().map(|cut| (cut.offset, cut.to_string()));
    (packets, error, warning)
}

#[test]
fn damaged_files() {
    for file in damaged() {
        let (packets, error, warning) = outcome(file.name, &file.bytes);
        let name = file.name;
        match file.outcome {
            Outcome::Fine { packets: expected } => {
                assert_eq!(packets, expected, "{name}");
                assert!(error.is_none() && warning.is_none(), "{name}: {error:?}");
            }
            Outcome::Warning {
                packets: expected,
                offset,
            } => {
                assert_eq!(packets, expected, "{name}");
                assert!(error.is_none(), "{name}: {error:?}");
                let (at, line) = warning.expect(name);
                assert_eq!(at, offset, "{name}");
                assert!(
                    line.starts_with(&format!("{name}: byte {offset}: ")),
                    "{line}"
                );
            }
            Outcome::Error {
                packets: expected,
                offset,
                says,
                beyond,
            } => {
                assert_eq!(packets, expected, "{name}");
                if packets > 0 {
                    assert_eq!(read_on(&file.bytes).0.len(), packets + beyond, "{name}");
                }
                let line = error.expect(name).to_string();
                assert!(
                    line.starts_with(&format!("{name}: byte {offset}: ")),
                    "{line}"
                );
                assert!(line.contains(says), "{line} does not contain {says}");
                assert!(!line.contains('\n'), "{line}");
            }
        }
    }
}

#[test]
fn cut_anywhere_keeps_what_came_before() {
    for name in ["pcap_modified", "pcapng_odd_blocks", "pcapng_sections"] {
        let capture = named(name).unwrap();
        let bytes = capture.bytes();
        let mut least = 0;
        // The unknown block of 70,000 bytes need not be cut at each of them.
        for length in (28..bytes.len()).filter(|n| n % 89 == 0 || bytes.len() - n < 2000) {
            let (packets, error, _) = outcome(name, &bytes[..length]);
            if let Some(error) = error {
                // Only the first header cannot be done without.
                assert!(packets == 0 && length < 60, "{length}: {error}");
            }
            assert!(packets >= least, "{length}");
            least = packets;
        }
        assert_eq!(
            least,
            capture.records.len() - usize::from(name != "pcapng_odd_blocks")
        );
    }
}

#[test]
fn a_missing_file_is_one_line() {
    let error = CaptureFile::open("no/such/file.pcap".as_ref()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no/such/file.pcap: No such file or directory (os error 2)"
    );
}

#[test]
fn files_of_old_versions_have_their_lengths_in_either_order() {
    // Length in the file, and on the wire.
    let records = [(14_u32, 14_u32), (14, 1500), (20, 60)];
    let file = |minor: u16, swapped: &dyn Fn(usize) -> bool| {
        let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        for half in [2, minor] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [0_u32, 0, 65_535, 1] {
            bytes.extend(word.to_le_bytes());
        }
        for (number, (captured, original)) in records.into_iter().enumerate() {
            let lengths = match swapped(number) {
                false => [captured, original],
                true => [original, captured],
            };
            for word in [[1_000, 7], lengths].concat() {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(vec![0xaa; captured as usize]);
        }
        bytes
    };
    for minor in 0..=4 {
        let orders: &[fn(usize) -> bool] = match minor {
            0..=2 => &[|_| true],
            3 => &[|_| true, |_| false, |number| number % 2 == 0],
            _ => &[|_| false],
        };
        for order in orders {
            let bytes = file(minor, order);
            let mut reader = CaptureFile::new("old", &bytes[..]).unwrap();
            let mut read = Vec::new();
            while let Some(packets) = reader.next_batch(16).unwrap() {
                read.extend(packets.map(|packet| (packet.data.len() as u32, packet.wire_len)));
            }
            assert_eq!(read, records, "2.{minor}");
            assert!(reader.cut_off().is_none());
        }
    }
}

/// Offsets, types and lengths of the blocks of a little-endian pcapng.
fn blocks(bytes: &[u8]) -> Vec<(usize, u32, usize)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut blocks) = (0, Vec::new());
    while at < bytes.len() {
        let length = word(at + 4) as usize;
        blocks.push((at, word(at), length));
        at += length;
    }
    blocks
}

/// Bytes from a block to the next one of a type that is known: others are not taken for blocks behind damage.
fn to_next(blocks: &[(usize, u32, usize)], from: usize, end: usize) -> u64 {
    let known = |kind: u32| (1..=6).contains(&kind) || kind == 0x0a0d_0d0a;
    let mut later = blocks.iter().filter(|(at, ..)| *at > from);
    let next = later.find(|(_, kind, _)| known(*kind));
    (next.map_or(end, |(at, ..)| *at) - from) as u64
}

/// All that can be read, and how many bytes were stepped over.
fn read_on(bytes: &[u8]) -> (Vec<Owned>, u64) {
    let mut file = CaptureFile::new("x", bytes).unwrap();
    let (mut packets, mut skipped) = (Vec::new(), 0);
    loop {
        let ended = match file.next_packet() {
            Ok(Some(packet)) => {
                packets.push(owned(&packet));
                continue;
            }
            Ok(None) => true,
            Err(_) => false,
        };
        if ended && file.cut_off().is_none() {
            return (packets, skipped);
        }
        match file.resume().unwrap() {
            Some(bytes) => skipped += bytes,
            None => return (packets, skipped),
        }
    }
}

#[test]
fn a_damaged_block_of_pcapng_costs_its_packet_alone() {
    let bytes = named("pcapng_odd_blocks").unwrap().bytes();
    let (all, nothing) = read_on(&bytes);
    assert_eq!(nothing, 0);
    const PACKET: u32 = 6;
    let blocks = blocks(&bytes);
    let packets = blocks.iter().filter(|(_, kind, _)| *kind == PACKET);
    let packets: Vec<_> = packets.collect();
    assert!(packets.len() > 10);
    for (number, (at, _, length)) in packets.iter().enumerate() {
        // Lengths at both ends, the interface, and the packet's length.
        for (place, value) in [
            (4, 0),
            (4, 13),
            (4, *length as u32 + 4),
            (4, 0xffff_fff0),
            (length - 4, 7),
            (8, 1_000),
            (20, 0xffff),
        ] {
            let mut damaged = bytes.clone();
            let place = at + place;
            damaged[place..place + 4].copy_from_slice(&u32::to_le_bytes(value));
            let (found, skipped) = read_on(&damaged);
            assert_eq!(found.len(), all.len() - 1, "{number} {place} {value}");
            let mut left = all.iter();
            assert!(found.iter().all(|packet| left.any(|one| one == packet)));
            let gap = to_next(&blocks, *at, bytes.len());
            assert_eq!(skipped, gap, "{number} {place} {value}");
        }
    }
}

#[test]
fn bytes_that_are_missing_or_too_many_cost_what_they_touch() {
    let bytes = named("pcapng_odd_blocks").unwrap().bytes();
    let (all, _) = read_on(&bytes);
    let blocks = blocks(&bytes);
    let packets = blocks.iter().filter(|(_, kind, _)| *kind == 6);
    for (at, ..) in packets.skip(1) {
        // In odd places: nothing after that is where it was.
        let mut less = bytes.clone();
        less.drain(at + 9..at + 12);
        let mut more = bytes.clone();
        more.splice(at + 9..at + 9, [7; 5]);
        for damaged in [less, more] {
            let (found, skipped) = read_on(&damaged);
            let mut left = all.iter();
            assert!(found.iter().all(|packet| left.any(|one| one == packet)));
            assert_eq!(found.len(), all.len() - 1, "{at}");
            let gap = to_next(&blocks, *at, bytes.len());
            assert!(skipped.abs_diff(gap) <= 5, "{at} {skipped}");
        }
    }
    // pcap has nothing to go by.
    let mut pcap = named("pcap_modified").unwrap().bytes();
    let middle = pcap.len() / 2;
    pcap.truncate(middle);
    let mut file = CaptureFile::new("x", &pcap[..]).unwrap();
    while let Ok(Some(_)) = file.next_packet() {}
    assert_eq!(file.resume().unwrap(), None);
}
