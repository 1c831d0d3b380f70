//! Real virtual devices of DPDK, in one process without huge pages.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used)]

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use skua_dpdk::{Error, Port, PortStats, Queue, Settings};

/// Packets of a queue until `wanted` have come, or none for long.
fn receive(queue: &mut Queue, wanted: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let end = Instant::now() + Duration::from_secs(10);
    while all.len() < wanted && Instant::now() < end {
        let burst = queue.receive();
        assert_eq!(burst.packets().count(), burst.len());
        all.extend(burst.packets().map(|packet| {
            assert_eq!(packet.length as usize, packet.data.len());
            packet.data.to_vec()
        }));
    }
    all
}

/// Frames of all lengths from the shortest to longer than one buffer, each with other bytes.
fn frames() -> Vec<Vec<u8>> {
    let lengths = [60, 61, 1_514, 2_048, 2_049, 4_100, 9_000];
    let frame = |length: usize| (0..length).map(|i| (i * 7 + length) as u8).collect();
    lengths.into_iter().cycle().take(100).map(frame).collect()
}

fn file(name: &str, frames: &[Vec<u8>]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("skua-dpdk-{}-{name}.pcap", std::process::id()));
    let dead = pcap::Capture::dead(pcap::Linktype::ETHERNET).unwrap();
    let mut file = dead.savefile(&path).unwrap();
    for frame in frames {
        let header = pcap::PacketHeader {
            ts: libc::timeval {
                tv_sec: 1,
                tv_usec: 0,
            },
            caplen: frame.len() as u32,
            len: frame.len() as u32,
        };
        file.write(&pcap::Packet::new(&header, frame));
    }
    file.flush().unwrap();
    path
}

#[test]
fn a_file_comes_as_it_is_and_again_and_what_is_no_device_is_said() {
    let settings = Settings::default();
    let sent = frames();
    let path = file("all", &sent);
    let device = format!("net_pcap0,rx_pcap={}", path.display());
    for _ in 0..3 {
        let (port, mut queues) = Port::open(&settings, &device).unwrap();
        let info = port.info().unwrap();
        assert_eq!(
            (port.name(), &*info.name, info.removed),
            ("net_pcap0", "net_pcap0", false)
        );
        assert_eq!(queues.len(), 1);
        assert!(matches!(
            Port::open(&settings, &device),
            Err(Error::Busy(_))
        ));
        // Not from the thread that opened it.
        let thread = std::thread::spawn(move || {
            let polling = queues[0].register_thread();
            let got = receive(&mut queues[0], 100);
            drop(polling);
            (got, queues)
        });
        let (got, queues) = thread.join().unwrap();
        assert_eq!(got, sent);
        let stats = port.stats().unwrap();
        let bytes: usize = sent.iter().map(Vec::len).sum();
        let all = PortStats {
            packets: 100,
            bytes: bytes as u64,
            ..PortStats::default()
        };
        assert_eq!(stats, all);
        // The port is there as long as a queue is.
        drop(port);
        assert!(matches!(
            Port::open(&settings, &device),
            Err(Error::Busy(_))
        ));
        drop(queues);
    }
    std::fs::remove_file(path).unwrap();
    for (wrong, words) in [
        ("net_pcap0,rx_pcap=/nowhere/x.pcap", "net_pcap0"),
        ("net_af_packet0,iface=nowhere0", "net_af_packet0"),
        ("no_such_driver0", "no_such_driver0"),
        ("/etc/passwd", "is no device"),
    ] {
        let error = Port::open(&settings, wrong).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
    // After all that, as at first.
    let (port, mut queues) = Port::open(&settings, "net_null0,size=70").unwrap();
    assert_eq!(receive(&mut queues[0], 64)[0].len(), 70);
    assert!(port.stats().unwrap().packets >= 64);
}
