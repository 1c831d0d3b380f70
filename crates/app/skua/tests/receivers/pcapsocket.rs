//! Streams of packets, from tools and from hostile senders.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpStream, UdpSocket},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use skua_probe::receive::{PcapSocketConfig, PcapSocketProbe, ReceiveCause};
use skua_testkit::{
    corpus,
    lab::{Net, root_tests, run},
    named,
};

use crate::collected::{Collected, Folder, collect, replay, sides};

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn start(change: impl FnOnce(&mut PcapSocketConfig)) -> PcapSocketProbe {
    let mut config = PcapSocketConfig::at(loopback());
    change(&mut config);
    PcapSocketProbe::start(config).unwrap()
}

/// Everything of so many streams that have ended.
fn collect_streams(probe: PcapSocketProbe, streams: u64) -> Collected {
    collect(probe, |account, _| {
        account.received.datagrams == streams && account.received.exporters == 0
    })
}

#[test]
fn a_stream_of_any_capture_is_as_its_replay() {
    let folder = Folder::new("pcapsocket-corpus");
    let names = [
        "mixed",
        "tcp_handshake",
        "pcapng_interfaces",
        "pcapng_sections",
        "pcap_big_endian_ns",
    ];
    for entry in corpus().filter(|entry| names.contains(&entry.name)) {
        let capture = entry.capture();
        let bytes = capture.bytes();
        let truth = replay(&folder.file(&capture.file_name(), &bytes));
        let probe = start(|_| {});
        let mut socket = TcpStream::connect(probe.address()).unwrap();
        // In pieces that have nothing to do with records.
        for piece in bytes.chunks(999) {
            socket.write_all(piece).unwrap();
        }
        drop(socket);
        // Not drained before the end: what the capture's own clock calls idle would end.
        while probe.received().records < capture.records.len() as u64 {
            thread::sleep(Duration::from_millis(1));
        }
        let collected = collect_streams(probe, 1);
        assert_eq!(sides(&collected.records), sides(&truth), "{}", entry.name);
        assert_eq!(collected.records.len(), truth.len(), "{}", entry.name);
        let received = &collected.account.received;
        assert_eq!(received.records, capture.records.len() as u64);
        assert_eq!(received.bytes, bytes.len() as u64);
        assert_eq!(received.causes().count(), 0, "{received:?}");
        assert_eq!(collected.account.seen().packets, received.records);
    }
}

/// As Skydive takes them: what is older than a time is moved to now, with all that is between packets.
#[test]
fn an_old_stream_begins_now_where_that_is_wanted() {
    let folder = Folder::new("pcapsocket-old");
    let entry = corpus()
        .find(|entry| entry.name == "tcp_handshake")
        .unwrap();
    let capture = entry.capture();
    let bytes = capture.bytes();
    let truth = replay(&folder.file(&capture.file_name(), &bytes));
    // To the second, as records write it.
    let now = || {
        run(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S"]))
            .trim()
            .to_owned()
    };
    for (oldest, moved) in [(3_600, true), (u64::MAX, false)] {
        let probe = start(|config| config.oldest = Some(Duration::from_secs(oldest)));
        let begin = now();
        let mut socket = TcpStream::connect(probe.address()).unwrap();
        socket.write_all(&bytes).unwrap();
        drop(socket);
        let records = collect_streams(probe, 1).records;
        let starts = texts(&records, "start");
        if moved {
            let first = &starts[0][..begin.len()];
            assert!((&*begin..=&now()).contains(&first), "{starts:?} {begin}");
        } else {
            assert_eq!(starts, texts(&truth, "start"));
        }
        assert_eq!(texts(&records, "duration"), texts(&truth, "duration"));
        assert_eq!(sides(&records), sides(&truth));
    }
}

/// What records have under a name, in order.
fn texts(records: &[Value], name: &str) -> Vec<String> {
    let texts = records.iter().map(|record| match &record[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let mut texts: Vec<_> = texts.collect();
    texts.sort_unstable();
    texts
}

#[test]
fn tcpdump_through_netcat() {
    let folder = Folder::new("pcapsocket-tcpdump");
    let capture = named("mixed_plain").unwrap();
    let file = folder.file("mixed.pcap", &capture.bytes());
    let probe = start(|_| {});
    let mut tcpdump = Command::new("tcpdump")
        .args(["-n", "--nano", "-w", "-", "-r"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let netcat = Command::new("nc")
        .args(["-N", "127.0.0.1", &probe.address().port().to_string()])
        .stdin(tcpdump.stdout.take().unwrap())
        .status()
        .unwrap();
    assert!(netcat.success() && tcpdump.wait().unwrap().success());
    let collected = collect_streams(probe, 1);
    assert_eq!(sides(&collected.records), sides(&replay(&file)));
}

#[test]
fn dumpcap_live_as_pcapng() {
    if !root_tests() {
        return;
    }
    const PACKETS: u64 = 200;
    let net = Net::with_ipv6();
    let probe = net.inside(|| start(|_| {}));
    let command = format!(
        "dumpcap -q -i lo -f 'udp port 9000' -c {PACKETS} -w - 2>/dev/null | nc -N 127.0.0.1 {}",
        probe.address().port()
    );
    let mut capture = net.command("sh").args(["-c", &command]).spawn().unwrap();
    let sender = net.inside(|| UdpSocket::bind("127.0.0.1:40000").unwrap());
    let sink = net.inside(|| UdpSocket::bind("127.0.0.1:9000").unwrap());
    // It ends when it has seen so many; when it begins it does not say.
    while capture.try_wait().unwrap().is_none() {
        let _ = sender.send_to(&[0; 100], sink.local_addr().unwrap());
        thread::sleep(Duration::from_millis(2));
    }
    let collected = collect_streams(probe, 1);
    let [record] = &collected.records[..] else {
        panic!("{:?}", collected.records);
    };
    assert_eq!(record["ab"]["packets"], PACKETS);
    assert_eq!(record["ab"]["bytes"], PACKETS * 142);
    assert!(
        record["interface"].as_str().unwrap().ends_with(" lo"),
        "{record}"
    );
}

#[test]
fn more_connections_than_places_wait() {
    const CLIENTS: u64 = 12;
    let capture = named("mixed_plain").unwrap();
    let bytes = capture.bytes();
    let probe = start(|config| config.max_connections = 3);
    let address = probe.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let bytes = bytes.clone();
            thread::spawn(move || {
                TcpStream::connect(address)
                    .unwrap()
                    .write_all(&bytes)
                    .unwrap()
            })
        })
        .collect();
    let collected = collect(probe, |account, _| {
        assert!(account.received.exporters <= 3);
        account.received.datagrams == CLIENTS && account.received.exporters == 0
    });
    for client in clients {
        client.join().unwrap();
    }
    let packets = CLIENTS * capture.records.len() as u64;
    assert_eq!(collected.account.received.records, packets);
    assert_eq!(collected.account.seen().packets, packets);
}

#[test]
fn hostile_streams_are_counted_and_hold_nobody_up() {
    let capture = named("tcp_handshake").unwrap();
    let bytes = capture.bytes();
    let probe = start(|config| {
        config.header_timeout = Duration::from_millis(200);
        config.max_connections = 4;
    });
    let address = probe.address();
    let connect = || TcpStream::connect(address).unwrap();
    // Says nothing; says half a head.
    let silent = connect();
    let mut half = connect();
    half.write_all(&bytes[..10]).unwrap();
    // No capture at all, and one that breaks off within a record.
    let mut garbage = connect();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    connect().write_all(&bytes[..bytes.len() - 3]).unwrap();
    connect().write_all(&bytes).unwrap();
    let collected = collect_streams(probe, 5);
    let received = &collected.account.received;
    assert_eq!(
        received.of(ReceiveCause::ConnectionLimit),
        2,
        "{received:?}"
    );
    assert_eq!(received.of(ReceiveCause::DecodeError), 2, "{received:?}");
    assert_eq!(received.records, 2 * capture.records.len() as u64 - 1);
    drop((silent, half, garbage));
}

#[test]
fn senders_not_allowed_are_not_heard() {
    let probe = start(|config| config.allow = vec!["192.0.2.0/24".parse().unwrap()]);
    let mut socket = TcpStream::connect(probe.address()).unwrap();
    let _ = socket.write_all(&named("tcp_handshake").unwrap().bytes());
    let collected = collect(probe, |account, _| {
        account.received.of(ReceiveCause::NotAllowed) == 1
    });
    assert_eq!(collected.account.received.of(ReceiveCause::NotAllowed), 1);
    assert_eq!(collected.records, [] as [serde_json::Value; 0]);
}
