//! TCP: handshakes, late segments, windows, closing, port reuse.

use super::{Entry, Trace};
use crate::flag::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
use crate::layer::Tcp;
use crate::packet::Packet;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "tcp_handshake",
        about: "handshake, data both ways, FIN from both sides",
        make: handshake,
    },
    Entry {
        name: "tcp_ipv6",
        about: "the same over IPv6",
        make: ipv6,
    },
    Entry {
        name: "tcp_retransmitted",
        about: "SYN, SYN+ACK, data and FIN sent again, also overlapping more data",
        make: retransmitted,
    },
    Entry {
        name: "tcp_out_of_order",
        about: "a gap filled within 1 ms, and one filled after 10 ms",
        make: out_of_order,
    },
    Entry {
        name: "tcp_zero_window",
        about: "zero windows, probes and the update; zero window on SYN and RST",
        make: zero_window,
    },
    Entry {
        name: "tcp_keep_alive",
        about: "keep-alives without and with one byte, and their answers",
        make: keep_alive,
    },
    Entry {
        name: "tcp_reset",
        about: "refused, reset by each side, reset in the middle",
        make: reset,
    },
    Entry {
        name: "tcp_reuse_after_fin",
        about: "same ports again: a new SYN after FIN from both sides",
        make: reuse_after_fin,
    },
    Entry {
        name: "tcp_reuse_after_reset",
        about: "same ports again: a new SYN after RST, three times",
        make: reuse_after_reset,
    },
    Entry {
        name: "tcp_reuse_half_closed",
        about: "same ports again after FIN from one side only: the same entry",
        make: reuse_half_closed,
    },
    Entry {
        name: "tcp_syn_again",
        about: "a new SYN with another sequence number on an open connection: the same entry",
        make: syn_again,
    },
    Entry {
        name: "tcp_simultaneous_open",
        about: "SYN from both sides",
        make: simultaneous_open,
    },
    Entry {
        name: "tcp_midstream",
        about: "no handshake seen; only one direction seen; first packet from the server",
        make: midstream,
    },
    Entry {
        name: "tcp_wrap",
        about: "sequence numbers that wrap around",
        make: wrap,
    },
    Entry {
        name: "tcp_options",
        about: "all usual options, 40 bytes of them, an option of length 0",
        make: options,
    },
    Entry {
        name: "tcp_flags",
        about: "scans: no flags, all flags, SYN+FIN, SYN+RST, FIN alone, ECN set-up",
        make: flags,
    },
    Entry {
        name: "tcp_syn_data",
        about: "data in the SYN (fast open), FIN with data",
        make: syn_data,
    },
];

/// Address family of a connection.
#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

/// One connection whose client is station 1 and whose server is station 2.
struct Connection<'a> {
    t: &'a mut Trace,
    family: Family,
    port: u16,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
    options: Vec<u8>,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl<'a> Connection<'a> {
    fn new(t: &'a mut Trace, port: u16) -> Self {
        Self {
            t,
            family: Family::V4,
            port,
            next: [1000, 9_000_000],
            options: Vec::new(),
        }
    }

    /// A segment that starts at `sequence`, sent by `side`.
    fn at(&mut self, side: usize, sequence: u32, flags: u8, window: u16, payload: usize) {
        let (source, destination) = match side {
            CLIENT => (self.port, 80),
            _ => (80, self.port),
        };
        let link = Packet::new().ethernet(side as u8 + 1, 2 - side as u8);
        let packet = match (self.family, side) {
            (Family::V4, CLIENT) => link.ipv4("10.0.0.1", "10.0.0.2"),
            (Family::V4, _) => link.ipv4("10.0.0.2", "10.0.0.1"),
            (Family::V6, CLIENT) => link.ipv6("fd00::1", "fd00::2"),
            (Family::V6, _) => link.ipv6("fd00::2", "fd00::1"),
        };
        let acknowledgement = match flags & ACK {
            0 => 0,
            _ => self.next[1 - side],
        };
        self.t.push(
            packet
                .layer(Tcp {
                    source,
                    destination,
                    sequence,
                    acknowledgement,
                    flags,
                    window,
                    options: self.options.clone(),
                    offset_words: None,
                })
                .zeros(payload),
        );
    }

    /// The next segment in order.
    fn send(&mut self, side: usize, flags: u8, payload: usize) {
        let sequence = self.next[side];
        let phantom = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.at(side, sequence, flags, 64_240, payload);
        self.next[side] = sequence.wrapping_add(payload as u32 + phantom);
    }

    /// A segment that was sent `back` bytes ago.
    fn again(&mut self, side: usize, back: u32, flags: u8, payload: usize) {
        let sequence = self.next[side].wrapping_sub(back);
        self.at(side, sequence, flags, 64_240, payload);
    }

    fn open(&mut self) {
        self.send(CLIENT, SYN, 0);
        self.t.wait(20_000_000);
        self.send(SERVER, SYN | ACK, 0);
        self.t.wait(300_000);
        self.send(CLIENT, ACK, 0);
    }

    fn exchange(&mut self) {
        self.send(CLIENT, PSH | ACK, 200);
        self.send(SERVER, ACK, 0);
        for _ in 0..3 {
            self.send(SERVER, ACK, 1448);
        }
        self.send(CLIENT, ACK, 0);
    }

    fn close(&mut self) {
        self.send(CLIENT, FIN | ACK, 0);
        self.send(SERVER, FIN | ACK, 0);
        self.send(CLIENT, ACK, 0);
    }
}

fn handshake(t: &mut Trace) {
    for port in 40_000..40_003 {
        let mut c = Connection::new(t, port);
        c.open();
        c.exchange();
        c.close();
    }
    // The server closes first.
    let mut c = Connection::new(t, 40_003);
    c.open();
    c.exchange();
    c.send(SERVER, FIN | ACK, 0);
    c.send(CLIENT, FIN | ACK, 0);
    c.send(SERVER, ACK, 0);
}

fn ipv6(t: &mut Trace) {
    for port in 40_000..40_003 {
        let mut c = Connection::new(t, port);
        c.family = Family::V6;
        c.open();
        c.exchange();
        c.close();
    }
}

fn retransmitted(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.send(CLIENT, SYN, 0);
    c.t.wait(1_000_000_000);
    c.again(CLIENT, 1, SYN, 0);
    c.send(SERVER, SYN | ACK, 0);
    c.t.wait(200_000_000);
    c.again(SERVER, 1, SYN | ACK, 0);
    c.send(CLIENT, ACK, 0);
    c.send(CLIENT, PSH | ACK, 500);
    c.t.wait(200_000_000);
    c.again(CLIENT, 500, PSH | ACK, 500);
    // Part of it again, and again with more behind it.
    c.again(CLIENT, 200, PSH | ACK, 200);
    c.again(CLIENT, 100, PSH | ACK, 300);
    c.next[CLIENT] += 200;
    c.send(SERVER, ACK, 1000);
    c.send(CLIENT, FIN | ACK, 0);
    c.t.wait(200_000_000);
    c.again(CLIENT, 1, FIN | ACK, 0);
    c.send(SERVER, FIN | ACK, 0);
    c.send(CLIENT, ACK, 0);
}

fn out_of_order(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.open();
    for wait in [0, 10_000_000] {
        let start = c.next[SERVER];
        c.at(SERVER, start, ACK, 500, 100);
        c.at(SERVER, start + 200, ACK, 500, 100);
        c.t.wait(wait);
        c.at(SERVER, start + 100, ACK, 500, 100);
        c.next[SERVER] += 300;
        c.send(CLIENT, ACK, 0);
    }
    // Reversed entirely.
    let start = c.next[CLIENT];
    for i in (0..5).rev() {
        c.at(CLIENT, start + 100 * i, ACK, 500, 100);
    }
    c.next[CLIENT] += 500;
    c.close();
}

fn zero_window(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.open();
    c.send(SERVER, ACK, 1448);
    for _ in 0..2 {
        let sequence = c.next[CLIENT];
        c.at(CLIENT, sequence, ACK, 0, 0);
        c.send(SERVER, ACK, 1);
    }
    c.send(CLIENT, ACK, 0);
    let sequence = c.next[CLIENT];
    c.at(CLIENT, sequence, RST, 0, 0);
    let mut c = Connection::new(t, 40_001);
    c.at(CLIENT, 1, SYN, 0, 0);
    c.at(SERVER, 1, RST | ACK, 0, 0);
}

fn keep_alive(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.open();
    c.send(CLIENT, PSH | ACK, 10);
    c.send(SERVER, ACK, 0);
    for payload in [0, 1] {
        c.t.wait(10_000_000_000);
        c.again(CLIENT, 1, ACK, payload);
        c.send(SERVER, ACK, 0);
        c.again(SERVER, 1, ACK, payload);
        c.send(CLIENT, ACK, 0);
    }
    c.close();
}

fn reset(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.send(CLIENT, SYN, 0);
    c.send(SERVER, RST | ACK, 0);
    for (port, side) in [(40_001, CLIENT), (40_002, SERVER)] {
        let mut c = Connection::new(t, port);
        c.open();
        c.exchange();
        c.send(side, RST | ACK, 0);
        c.send(1 - side, ACK, 100);
    }
}

fn reuse_after_fin(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.open();
    c.exchange();
    c.close();
    c.t.wait(1_000_000_000);
    c.next = [5_000_000, 77];
    c.open();
    c.exchange();
    c.close();
}

fn reuse_after_reset(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    for i in 0..4 {
        c.next = [1000 + 1_000_000 * i, 0];
        c.send(CLIENT, SYN, 0);
        c.send(SERVER, RST | ACK, 0);
    }
}

fn reuse_half_closed(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.open();
    c.send(CLIENT, FIN | ACK, 0);
    c.send(SERVER, ACK, 0);
    c.next = [5_000_000, 77];
    c.open();
    c.exchange();
}

fn syn_again(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.open();
    c.exchange();
    c.next = [50_000_000, 77_000_000];
    c.open();
    c.exchange();
    c.close();
}

fn simultaneous_open(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.send(CLIENT, SYN, 0);
    c.send(SERVER, SYN, 0);
    c.again(CLIENT, 1, SYN | ACK, 0);
    c.again(SERVER, 1, SYN | ACK, 0);
    c.send(CLIENT, ACK, 10);
    c.send(SERVER, ACK, 10);
}

fn midstream(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.exchange();
    let mut c = Connection::new(t, 40_001);
    for _ in 0..3 {
        c.send(SERVER, ACK, 1448);
    }
    // The SYN was missed, the SYN+ACK seen.
    let mut c = Connection::new(t, 40_002);
    c.send(SERVER, SYN | ACK, 0);
    c.send(CLIENT, ACK, 0);
    c.exchange();
}

fn wrap(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.next = [u32::MAX - 300, u32::MAX];
    c.open();
    for _ in 0..4 {
        c.send(CLIENT, ACK, 100);
    }
    c.again(CLIENT, 400, ACK, 100);
    c.send(SERVER, ACK, 100);
    c.close();
}

fn options(t: &mut Trace) {
    let usual = vec![
        2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    let mut sack = vec![1, 1, 5, 34];
    sack.resize(36, 9);
    let full = vec![1; 40];
    let zero_length = vec![8, 0, 1, 1];
    let beyond = vec![2, 255, 0, 0];
    for (i, options) in [usual, sack, full, zero_length, beyond]
        .into_iter()
        .enumerate()
    {
        let mut c = Connection::new(t, 40_000 + i as u16);
        c.options = options;
        c.open();
        c.exchange();
        c.close();
    }
}

fn flags(t: &mut Trace) {
    let all = FIN | SYN | RST | PSH | ACK | URG | ECE | CWR;
    let mut c = Connection::new(t, 40_000);
    for flags in [0, FIN, FIN | PSH | URG, all, SYN | FIN, SYN | RST, URG] {
        c.port += 1;
        c.at(CLIENT, 1000, flags, 1024, 0);
    }
    let mut c = Connection::new(t, 41_000);
    c.send(CLIENT, SYN | ECE | CWR, 0);
    c.send(SERVER, SYN | ACK | ECE, 0);
    c.send(CLIENT, ACK, 0);
    c.send(CLIENT, ACK | CWR, 100);
    c.send(SERVER, ACK | ECE, 0);
}

fn syn_data(t: &mut Trace) {
    let mut c = Connection::new(t, 40_000);
    c.send(CLIENT, SYN, 120);
    c.send(SERVER, SYN | ACK, 300);
    c.send(CLIENT, FIN | ACK, 50);
    c.send(SERVER, FIN | ACK, 70);
    c.send(CLIENT, ACK, 0);
}
