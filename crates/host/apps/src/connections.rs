//! TCP connections, until what is said in them is known not to be for us.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
};

use crate::{
    Stream,
    dns::{self, Framing, Message},
    tls::{ClientHello, Handshake},
};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;

/// Bytes of a direction until which it must be clear whether it is DNS.
const MOST_UNDECIDED: usize = 1024;

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// Namespace and interface: at each the connection is read by itself.
    pub point: (u16, u32),
    pub seq: u32,
    pub flags: u8,
    pub payload: &'a [u8],
    /// Bytes of the payload that were not captured.
    pub missing: u32,
}

/// Both ends, the lesser first, and where.
type Key = (SocketAddr, SocketAddr, (u16, u32));

/// What is said.
#[derive(Debug, Default)]
enum Said {
    /// Not clear yet.
    #[default]
    Undecided,
    Dns,
    Tls,
    /// Nothing that is read here.
    Other,
}

#[derive(Debug, Default)]
struct Direction {
    stream: Stream,
    framing: Framing,
    handshake: Handshake,
    fin: bool,
}

#[derive(Debug, Default)]
struct Connection {
    serial: u64,
    said: Said,
    directions: [Direction; 2],
}

/// What a direction said.
pub(crate) enum Spoken<'a> {
    /// A message of DNS.
    Dns(&'a [u8]),
    /// A client's first message of TLS.
    Hello(ClientHello),
}

/// Connections that are remembered.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    known: HashMap<Key, Box<Connection>>,
    order: VecDeque<(Key, u64)>,
    serial: u64,
    pub evicted: u64,
    pub conflicts: u64,
    pub gaps: u64,
}

impl Connections {
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            known: HashMap::new(),
            order: VecDeque::new(),
            serial: 0,
            evicted: 0,
            conflicts: 0,
            gaps: 0,
        }
    }

    /// Takes a segment, and hands out what it completes.
    pub fn segment(&mut self, segment: &Segment<'_>, out: &mut dyn FnMut(Spoken<'_>)) {
        let from_first = segment.from <= segment.to;
        let key = match from_first {
            true => (segment.from, segment.to, segment.point),
            false => (segment.to, segment.from, segment.point),
        };
        let opens = segment.flags & (SYN | RST | FIN) == SYN;
        let carries = !segment.payload.is_empty() || segment.missing > 0;
        // The ports may be used again.
        if opens && self.known.get(&key).is_some_and(|c| c.is_over()) {
            self.known.remove(&key);
        }
        if !self.known.contains_key(&key) {
            if segment.flags & RST != 0 || !opens && !carries {
                return;
            }
            self.insert(key);
        }
        let Some(connection) = self.known.get_mut(&key) else {
            return;
        };
        if segment.flags & RST != 0 {
            self.known.remove(&key);
            return;
        }
        let direction = &mut connection.directions[usize::from(!from_first)];
        direction.fin |= segment.flags & FIN != 0;
        if segment.flags & SYN != 0 {
            direction.stream.begin(segment.seq);
        }
        if carries && !matches!(connection.said, Said::Other) {
            let seq = segment
                .seq
                .wrapping_add(u32::from(segment.flags & SYN != 0));
            let before = (direction.stream.conflicts, direction.stream.has_given_up());
            read(connection, !from_first, segment, seq, out);
            let stream = &connection.directions[usize::from(!from_first)].stream;
            self.conflicts += stream.conflicts - before.0;
            self.gaps += u64::from(stream.has_given_up() && !before.1);
        }
    }

    fn insert(&mut self, key: Key) {
        self.serial += 1;
        let serial = self.serial;
        let connection = Connection {
            serial,
            ..Connection::default()
        };
        self.known.insert(key, Box::new(connection));
        self.order.push_back((key, serial));
        while self.known.len() > self.most || self.order.len() > self.most * 2 {
            let Some((oldest, serial)) = self.order.pop_front() else {
                return;
            };
            if self.known.get(&oldest).is_some_and(|c| c.serial == serial) {
                self.evicted += u64::from(self.known[&oldest].was_read());
                self.known.remove(&oldest);
            }
        }
    }
}

impl Connection {
    fn is_over(&self) -> bool {
        self.directions.iter().all(|direction| direction.fin)
    }

    /// Whether something more may have been said that is read.
    fn was_read(&self) -> bool {
        matches!(self.said, Said::Dns) && !self.is_over()
    }

    fn is_other(&mut self) {
        self.said = Said::Other;
        // What was kept is of no use any more.
        for direction in &mut self.directions {
            direction.framing = Framing::default();
            direction.handshake = Handshake::default();
            direction.stream = Stream::default();
        }
    }
}

fn read(
    connection: &mut Connection,
    second: bool,
    segment: &Segment<'_>,
    seq: u32,
    out: &mut dyn FnMut(Spoken<'_>),
) {
    let ports = [segment.from.port(), segment.to.port()];
    let Connection {
        said, directions, ..
    } = connection;
    let Direction {
        stream,
        framing,
        handshake,
        ..
    } = &mut directions[usize::from(second)];
    let mut other = false;
    stream.segment(seq, segment.payload, segment.missing, &mut |bytes| {
        let begins = matches!(said, Said::Undecided) && framing.is_empty();
        if begins && !ports.into_iter().any(dns::is_port) && Handshake::may_begin(bytes) {
            *said = Said::Tls;
        }
        match said {
            Said::Tls => {
                other |= handshake.feed(bytes, &mut |hello| out(Spoken::Hello(hello)));
            }
            Said::Other => {}
            Said::Dns | Said::Undecided => framing.feed(bytes, &mut |message| {
                if matches!(said, Said::Undecided) && !other {
                    let read = Message::read(message);
                    match read.is_some_and(|read| dns::is_message(&read, ports)) {
                        true => *said = Said::Dns,
                        false => other = true,
                    }
                }
                if matches!(said, Said::Dns) {
                    out(Spoken::Dns(message));
                }
            }),
        }
    });
    other |= matches!(said, Said::Undecided)
        && !ports.into_iter().any(dns::is_port)
        && (framing.rest().len() > MOST_UNDECIDED || !may_be_dns(framing.rest()));
    if other {
        connection.is_other();
    }
}

/// Whether a message can still be one of DNS by its first octets: the opcode of a query, the reserved bit, one question.
fn may_be_dns(message: &[u8]) -> bool {
    let fits = |at: usize, mask: u8, value: u8| message.get(at).is_none_or(|b| b & mask == value);
    fits(2, 0x78, 0) && fits(3, 0x40, 0) && fits(4, 0xff, 0) && fits(5, 0xff, 1)
}
