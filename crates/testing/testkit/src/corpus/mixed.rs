//! Random mixed traffic, the same on every run.

use super::{Entry, Trace};
use crate::layer::{Arp, Ipv4, Tcp};
use crate::packet::{Packet, mac};
use crate::random::Random;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "mixed",
        about: "10,000 packets of all kinds between a few hundred endpoints",
        make: |t| traffic(t, 10_000, 1, true),
    },
    Entry {
        name: "mixed_plain",
        about: "2,000 packets of all kinds without tunnels",
        make: |t| traffic(t, 2_000, 3, false),
    },
    Entry {
        name: "mixed_snap_96",
        about: "2,000 packets of all kinds cut to 96 bytes",
        make: |t| {
            traffic(t, 2_000, 2, true);
            for record in &mut t.capture.records {
                record.data.truncate(96);
            }
        },
    },
];

fn traffic(t: &mut Trace, packets: usize, seed: u64, tunnels: bool) {
    let mut random = Random::new(seed);
    while t.capture.records.len() < packets {
        let (client, server) = (1 + random.below(30) as u8, 100 + random.below(10) as u8);
        let reply = random.one_in(2);
        let port = 40_000 + random.below(8) as u16;
        let service = *random.pick(&[9, 19, 80, 8080, 9999]);
        let length = match random.below(4) {
            0 => 0,
            1 => random.below(100) as usize,
            2 => 1400,
            _ => random.below(1400) as usize,
        };
        let (from, to) = if reply {
            (server, client)
        } else {
            (client, server)
        };
        let (source, destination) = if reply {
            (service, port)
        } else {
            (port, service)
        };
        let mut link = Packet::new().ethernet(from, to);
        match random.below(10) {
            0 => link = link.vlan(10 + random.below(3) as u16),
            1 => link = link.tag(0x88a8, 300).vlan(20),
            _ => {}
        }
        if tunnels && random.one_in(20) {
            link = tunnel(link, &mut random);
        }
        let v4 = random.below(3) != 0;
        let ip = |packet: Packet| match v4 {
            true => packet.ipv4(&format!("10.0.0.{from}"), &format!("10.0.0.{to}")),
            false => packet.ipv6(&format!("fd00::{from:x}"), &format!("fd00::{to:x}")),
        };
        let packet = match random.below(16) {
            0..5 => ip(link)
                .layer(Tcp {
                    source,
                    destination,
                    sequence: random.bits() as u32,
                    acknowledgement: random.bits() as u32,
                    // No SYN: what is a new connection is for the captures about TCP.
                    flags: *random.pick(&[0x10, 0x18, 0x11]),
                    ..Tcp::default()
                })
                .zeros(length),
            5..10 => ip(link).udp(source, destination).zeros(length),
            10 if v4 => {
                let kind = if reply { 0 } else { 8 };
                ip(link).icmp(kind, 0, port, 1).zeros(length)
            }
            10 => {
                let kind = if reply { 129 } else { 128 };
                ip(link).icmpv6(kind, 0, port, 1).zeros(length)
            }
            11 => ip(link).esp(u32::from(port), 1).zeros(length),
            // A COOKIE ACK chunk: without a whole chunk tshark leaves the packet out of its table.
            12 => ip(link)
                .sctp(source, destination, 1)
                .payload(&[11, 0, 0, 4]),
            13 => ip(link).udplite(source, destination).zeros(length),
            14 => {
                let more = random.one_in(2);
                let header = Ipv4::between(&format!("10.0.0.{from}"), &format!("10.0.0.{to}"))
                    .fragment(random.below(50) as u16, 17, 0, more);
                link.layer(header).udp(source, destination).zeros(length)
            }
            _ => Packet::new().ethernet(from, 255).layer(Arp {
                operation: 1,
                sender: (mac(from), [10, 0, 0, from]),
                target: ([0; 6], [10, 0, 0, to]),
            }),
        };
        t.padded(packet);
        t.wait(random.below(5_000_000));
    }
}

/// One level of some tunnel between two gateways.
fn tunnel(link: Packet, random: &mut Random) -> Packet {
    let outer = link.ipv4("192.0.2.1", "192.0.2.2");
    match random.below(4) {
        0 => outer.vxlan(random.below(4) as u32).ethernet(11, 12),
        1 => outer.geneve(random.below(4) as u32).ethernet(11, 12),
        2 => outer.gre(),
        _ => outer,
    }
}
