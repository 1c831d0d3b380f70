//! Lines to publish.

use std::{
    net::{IpAddr, Ipv4Addr},
    thread::sleep,
    time::{Duration, Instant},
};

use skua_collect::{Between, Exporters, Line, Ports, Rtt, Sent, Sketch, Sum, Times};
use skua_kafka::{Cause, Producer, Target};

/// Round-trip times as a line has them.
pub fn times(all: &[u32]) -> Times<'static> {
    let mut classes = Sketch::default();
    for us in all {
        classes.add(*us, 1);
    }
    Times {
        sums: Rtt {
            count: all.len() as u64,
            sum_us: all.iter().copied().map(u64::from).sum(),
            min_us: all.iter().copied().min().unwrap_or(0).into(),
            max_us: all.iter().copied().max().unwrap_or(0).into(),
        },
        classes: Box::leak(Box::new(classes)),
    }
}

/// A line of which every number is another one; those of different `number` have different clients.
pub fn line(number: u32) -> Line<'static> {
    let sum = |packets| Sum {
        packets,
        bytes: packets * 1_000,
    };
    Line {
        window: 1_800_000_000_000_000_000,
        seconds: 10.0,
        protocol: 6,
        client: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)),
        server: match number % 2 {
            0 => [192, 0, 2, 1].into(),
            _ => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
        },
        client_service: "curl",
        server_service: "web.service",
        port: 443,
        service_by: "kernel",
        client_sent: sum(9),
        server_sent: sum(10),
        retransmitted: Sent {
            client: 13,
            server: 14,
        },
        begun: 15,
        ended: 16,
        reset: 17,
        refused: 32,
        timed_out: 33,
        rtt: times(&[100, 100, 1_600]),
        handshake: Rtt {
            count: 18,
            sum_us: 19,
            min_us: 20,
            max_us: 21,
        },
        client_ports: Ports {
            list: &[50_001, 50_002],
            beyond: 23,
        },
        records: 24,
        samples: 25,
        agents: 3,
        exporters: Exporters::default(),
        joined: 27,
        between_hosts: Between {
            client_sent: sum(28),
            server_sent: sum(30),
        },
    }
}

/// Who publishes there.
pub fn producer(name: &str) -> Producer {
    let target: Target = name.parse().unwrap();
    Producer::open(&target).unwrap()
}

/// What was lost by a cause.
pub fn lost(producer: &Producer, cause: Cause) -> u64 {
    let lost = producer.lost();
    let found = lost.iter().find(|(one, _)| *one == cause);
    found.map_or(0, |(_, lines)| *lines)
}

/// Waits for something, three minutes at most.
pub fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !there() {
        assert!(begin.elapsed() < Duration::from_secs(180), "no {what}");
        sleep(Duration::from_millis(20));
    }
}
