//! Packets that a snap length cut: `len` is the length on the wire. libpcap's own verdicts come from
//! reading a file.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::Write;

use pcap::Capture;
use skua_filter::{Filter, LinkType};
use support::packets;
use support::rng::Rng;

/// A pcap file (libpcap's `pcap-savefile(5)`) of packets cut to the snap length; each packet's
/// number is its time in seconds.
fn file(packets: &[Vec<u8>], snap_length: usize) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_ne_bytes());
    file.extend([2_u16, 4].map(u16::to_ne_bytes).concat());
    file.extend([0, 0, snap_length as u32, 1].map(u32::to_ne_bytes).concat());
    for (number, packet) in packets.iter().enumerate() {
        let captured = packet.len().min(snap_length);
        let header = [number as u32, 0, captured as u32, packet.len() as u32];
        file.extend(header.map(u32::to_ne_bytes).concat());
        file.extend(&packet[..captured]);
    }
    file
}

#[test]
fn cut_packets_have_libpcaps_verdict() {
    const SNAP_LENGTH: usize = 64;
    let mut rng = Rng::new(40_000);
    let packets: Vec<_> = (0..3_000).map(|_| packets::ethernet(&mut rng)).collect();
    let path = std::env::temp_dir().join(format!("skua-filter-{}.pcap", std::process::id()));
    std::fs::File::create(&path)
        .unwrap()
        .write_all(&file(&packets, SNAP_LENGTH))
        .unwrap();
    for expression in [
        "greater 100",
        "less 64",
        "len % 2 = 1 and ip",
        "len - 14 >= ip[2:2]",
        "ether[len - 40] > 128",
        "tcp[20:4] = 0x47455420",
        "ether[60:4] > 0x80000000",
        "ether[61:4] > 0x80000000",
    ] {
        let filter = Filter::compile(expression, LinkType::Ethernet).unwrap();
        let mut capture = Capture::from_file(&path).unwrap();
        capture.filter(expression, true).unwrap();
        let mut theirs = vec![false; packets.len()];
        while let Ok(packet) = capture.next_packet() {
            theirs[packet.header.ts.tv_sec as usize] = true;
        }
        for (packet, theirs) in packets.iter().zip(theirs) {
            let captured = &packet[..packet.len().min(SNAP_LENGTH)];
            let ours = filter.matches_captured(captured, packet.len() as u32);
            assert_eq!(ours, theirs, "'{expression}' on {packet:02x?}");
        }
    }
    std::fs::remove_file(&path).unwrap();
}
