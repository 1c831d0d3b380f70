//! Netlink sockets: one that lists sockets, one that receives their ends.

use crate::record::{self, Family, Record, SOCK_DIAG_BY_FAMILY};
use crate::{Error, account};
use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};
use skua_link::{Namespace, check_error, messages};
use skua_socket::{Opener, Protocol, SocketState, TcpMetrics};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The kernel writes dumps in datagrams of up to 32 KiB; a notification is smaller.
const BUFFER: usize = 64 << 10;
/// Room for notifications until they are read, bytes as the kernel counts them (about 1.3 KiB
/// each). Only what waits takes memory.
const QUEUE: usize = 32 << 20;
/// Notifications that one [`DestroyMonitor::read`] takes at most, so that a flood cannot hold it.
const READ_AT_MOST: usize = 1 << 17;
/// MSG_TRUNC of recv(2), the same on all architectures.
const MSG_TRUNC: i32 = 0x20;
const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

/// Multicast groups (`enum sknetlink_groups`, linux/sock_diag.h): sockets that are destroyed.
const GROUPS: [(u32, &str); 4] = [
    (1, "SKNLGRP_INET_TCP_DESTROY"),
    (2, "SKNLGRP_INET_UDP_DESTROY"),
    (3, "SKNLGRP_INET6_TCP_DESTROY"),
    (4, "SKNLGRP_INET6_UDP_DESTROY"),
];

/// Lists the sockets of one network namespace: that in which it was opened. It needs no rights. While it is
/// open it keeps its namespace alive.
#[derive(Debug)]
pub struct DiagSocket {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl DiagSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            socket: open_socket()?,
            buffer: Vec::with_capacity(BUFFER),
            sequence: 0,
        })
    }

    /// Opens a socket in `namespace`; it stays there.
    pub fn open_in(namespace: &Namespace) -> Result<Self, Error> {
        namespace.enter(Self::open)?
    }

    /// All sockets of a protocol and family. Sockets that come or go meanwhile may be missing or
    /// be there twice. TCP: without those in TIME-WAIT or CLOSE and without connections of which
    /// only the SYN has come.
    pub fn dump(
        &mut self,
        protocol: Protocol,
        family: Family,
        sink: &mut dyn FnMut(&Record),
    ) -> Result<(), Error> {
        const ACTION: &str = "reading sockets";
        self.sequence = self.sequence.wrapping_add(1);
        let request = record::request(protocol, family, self.sequence);
        self.socket
            .send_to(&request, &SocketAddr::new(0, 0), 0)
            .map_err(Error::netlink("asking for sockets"))?;
        loop {
            self.buffer.clear();
            // MSG_TRUNC: the true length is returned, so that a cut is noticed.
            let received = self.socket.recv_from(&mut self.buffer, MSG_TRUNC);
            let length = match received {
                Ok((length, _)) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::netlink(ACTION)(e)),
            };
            if length > self.buffer.len() {
                return Err(Error::Decode(format!("{length} bytes at once")));
            }
            for message in messages(&self.buffer) {
                let message = message?;
                if message.sequence_number() != self.sequence {
                    // The rest of an answer that an earlier error left unread.
                    continue;
                }
                match message.message_type() {
                    NLMSG_DONE => return done(message.payload(), ACTION),
                    NLMSG_ERROR => return Ok(check_error(message.payload(), ACTION)?),
                    SOCK_DIAG_BY_FAMILY => {
                        let record = record::decode(message.payload(), Some(protocol));
                        if let Some(record) = record.filter(|record| !is_request(record)) {
                            sink(&record);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// All TCP and UDP sockets of both families; what this kernel does not have is left out.
    pub fn dump_all(&mut self, sink: &mut dyn FnMut(&Record)) -> Result<(), Error> {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for family in [Family::V4, Family::V6] {
                match self.dump(protocol, family, sink) {
                    Err(error) if error.is_unknown_family() => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// TCP's metrics of all connections, by socket cookie: for probes that know the rest. `opener` gives
    /// the opener; where it does not know, the numbers decide, see [`account::opener_of_open`].
    pub fn tcp_metrics(
        &mut self,
        opener: &mut dyn FnMut(u64) -> Opener,
        sink: &mut dyn FnMut(u64, SocketState, &TcpMetrics),
    ) -> Result<(), Error> {
        for family in [Family::V4, Family::V6] {
            let result = self.dump(Protocol::Tcp, family, &mut |record| {
                let mut opener = opener(record.cookie);
                if opener == Opener::Unknown {
                    opener = account::opener_of_open(record).0;
                }
                if let Some(metrics) = account::metrics_of_open(record, opener) {
                    sink(record.cookie, record.state, &metrics);
                }
            });
            match result {
                Err(error) if error.is_unknown_family() => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// A connection of which only the SYN has come is no socket yet: the kernel reports only its addresses.
fn is_request(record: &Record) -> bool {
    record.state == SocketState::SynRecv && record.info.is_none()
}

/// What a [`DestroyMonitor`] read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Heard {
    /// The kernel had to drop notifications.
    pub overrun: bool,
    /// Messages that could not be read.
    pub unreadable: u64,
}

/// Hears of sockets of one network namespace that are destroyed, with their last numbers.
#[derive(Debug)]
pub(crate) struct DestroyMonitor {
    socket: Socket,
    buffer: Vec<u8>,
    port: u32,
    namespace: Option<Namespace>,
    /// Groups that the kernel refused, with its answer.
    pub missing: Vec<String>,
}

impl DestroyMonitor {
    /// Opens a monitor in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        let mut socket = open_socket()?;
        // A larger queue than the system's limit needs CAP_NET_ADMIN; without it the limit will
        // do, for lost notifications are counted.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE).is_err() {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, QUEUE)
                .map_err(|e| Error::netlink("setting the queue's size")(e.into()))?;
        }
        socket
            .set_non_blocking(true)
            .map_err(Error::netlink("setting non-blocking"))?;
        let address = socket.bind_auto().map_err(Error::netlink("binding"))?;
        let mut missing = Vec::new();
        for (group, name) in GROUPS {
            if let Err(error) = socket.add_membership(group) {
                missing.push(format!("{name}: {error}"));
            }
        }
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(BUFFER),
            port: address.port_number(),
            namespace: Namespace::own().ok(),
            missing,
        })
    }

    /// Reads the queued notifications, without waiting. After a flood some may be left: the descriptor is
    /// then still readable.
    pub fn read(&mut self, sink: &mut dyn FnMut(&Record)) -> Result<Heard, Error> {
        let mut heard = Heard::default();
        for _ in 0..READ_AT_MOST {
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer, MSG_TRUNC) {
                Ok((length, sender)) => {
                    // Port 0 is the kernel; others are not believed.
                    if sender.port_number() != 0 {
                        continue;
                    }
                    if length > self.buffer.len() {
                        heard.unreadable += 1;
                    } else {
                        heard.add(read_destroyed(&self.buffer, sink));
                    }
                }
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => heard.overrun = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::netlink("reading ended sockets")(e)),
            }
        }
        Ok(heard)
    }

    /// Notifications that the kernel dropped since this was opened. Only the table of netlink
    /// sockets in the monitor's namespace says it.
    pub fn dropped(&self) -> Option<u64> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/netlink").ok();
        let table = self.namespace.as_ref()?.enter(read).ok()??;
        drops_in(&table, self.port)
    }
}

impl AsFd for DestroyMonitor {
    /// Descriptor that becomes readable when there are notifications.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Heard {
    fn add(&mut self, other: Self) {
        self.overrun |= other.overrun;
        self.unreadable += other.unreadable;
    }
}

/// Decodes one datagram of notifications.
pub(crate) fn read_destroyed(datagram: &[u8], sink: &mut dyn FnMut(&Record)) -> Heard {
    let mut heard = Heard::default();
    for message in messages(datagram) {
        let Ok(message) = message else {
            heard.unreadable += 1;
            break;
        };
        match message.message_type() {
            NLMSG_OVERRUN => heard.overrun = true,
            SOCK_DIAG_BY_FAMILY => match record::decode(message.payload(), None) {
                Some(record) => sink(&record),
                None => heard.unreadable += 1,
            },
            _ => {}
        }
    }
    heard
}

/// Column `Drops` of the line of `/proc/net/netlink` with this protocol and port.
fn drops_in(table: &str, port: u32) -> Option<u64> {
    let heading: Vec<&str> = table.lines().next()?.split_whitespace().collect();
    let column = |name| heading.iter().position(|heading| *heading == name);
    let (protocol, pid, drops) = (column("Eth")?, column("Pid")?, column("Drops")?);
    table.lines().skip(1).find_map(|line| {
        let field = |at| line.split_whitespace().nth(at);
        let ours =
            field(protocol)?.parse() == Ok(NETLINK_SOCK_DIAG) && field(pid)?.parse() == Ok(port);
        ours.then(|| field(drops)?.parse().ok())?
    })
}

fn open_socket() -> Result<Socket, Error> {
    Socket::new(NETLINK_SOCK_DIAG).map_err(Error::netlink("opening a socket"))
}

/// NLMSG_DONE ends a dump and carries its error, 0 or a negative errno.
fn done(payload: &[u8], action: &'static str) -> Result<(), Error> {
    match payload.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(code) if code < 0 => Err(Error::netlink(action)(io::Error::from_raw_os_error(
            code.saturating_neg(),
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    /// Messages as this kernel writes them: one of each kind of socket.
    fn samples() -> Vec<Vec<u8>> {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let _connection = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port()));
        let _udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let query = DiagSocket::open().unwrap();
        let mut samples = Vec::new();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for family in [Family::V4, Family::V6] {
                let request = record::request(protocol, family, 1);
                let to = SocketAddr::new(0, 0);
                query.socket.send_to(&request, &to, 0).unwrap();
                let mut done = false;
                while !done {
                    let (datagram, _) = query.socket.recv_from_full().unwrap();
                    done = messages(&datagram)
                        .any(|message| message.unwrap().message_type() == NLMSG_DONE);
                    samples.push(datagram);
                }
            }
        }
        samples
    }

    /// What a dump and a monitor make of a datagram.
    fn read_all(datagram: &[u8]) -> usize {
        let mut count = 0;
        read_destroyed(datagram, &mut |_| count += 1);
        for message in messages(datagram).map_while(Result::ok) {
            for protocol in [None, Some(Protocol::Tcp), Some(Protocol::Udp)] {
                if let Some(record) = record::decode(message.payload(), protocol) {
                    let (opener, _) = account::opener_of_open(&record);
                    let _ = account::metrics_of_open(&record, opener);
                    if let Some(info) = &record.info {
                        let _ = account::ended(&record, info, account::Before::default());
                    }
                    count += 1;
                }
            }
            let _ = done(message.payload(), "");
            let _ = check_error(message.payload(), "");
        }
        count
    }

    #[test]
    fn cut_messages_never_panic() {
        for sample in samples() {
            let whole = read_all(&sample);
            for cut in 0..sample.len().min(4000) {
                assert!(read_all(&sample[..cut]) <= whole);
                // The length in the header says that there is more in it than there is.
                let mut short = sample[..cut].to_vec();
                if let Some(length) = short.first_chunk_mut::<4>() {
                    *length = (cut as u32).to_ne_bytes();
                }
                read_all(&short);
            }
        }
    }

    #[test]
    fn the_column_of_drops_is_found() {
        let table = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
                     0000000000000000 0   42         00000000 0        0        0     2        7        1\n\
                     0000000000000000 4   42         0000000f 0        0        0     2        1234     2\n\
                     short\n";
        assert_eq!(drops_in(table, 42), Some(1234));
        assert_eq!(drops_in(table, 43), None);
        assert_eq!(drops_in("", 42), None);
    }

    #[test]
    fn what_the_kernel_drops_is_counted_exactly() {
        const SOCKETS: usize = 20_000;
        let mut monitor = DestroyMonitor::open().unwrap();
        // As small as the kernel allows.
        rustix::net::sockopt::set_socket_recv_buffer_size(&monitor.socket, 4096).unwrap();
        let mut made = std::collections::HashSet::new();
        for _ in 0..SOCKETS {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            made.insert(rustix::net::sockopt::socket_cookie(&socket).unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        let mut heard = 0;
        let mut read = || monitor.read(&mut |_| heard += 1).unwrap();
        assert!(read().overrun);
        read();
        // Sockets of other processes in this namespace may end, too.
        let dropped = monitor.dropped().unwrap() as usize;
        assert!(dropped > 0);
        assert!(heard + dropped >= SOCKETS, "{heard} + {dropped}");
        assert!(heard + dropped < SOCKETS + 1000, "{heard} + {dropped}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            read_all(&bytes);
            let mut message = vec![0; 16];
            message[..4].copy_from_slice(&(16 + bytes.len() as u32).to_ne_bytes());
            message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            message.extend_from_slice(&bytes);
            read_all(&message);
            let _ = crate::tcp_info::TcpInfo::parse(&bytes);
        }

        #[test]
        fn changed_messages_are_read_without_panic(
            changes in prop::collection::vec((0_usize..3000, any::<u8>()), 1..20),
            cut in 0_usize..3000,
        ) {
            thread_local! {
                static SAMPLES: Vec<Vec<u8>> = samples();
            }
            SAMPLES.with(|samples| for sample in samples {
                let mut changed = sample.clone();
                for (at, byte) in &changes {
                    let at = at % changed.len();
                    changed[at] = *byte;
                }
                changed.truncate(cut.max(1));
                read_all(&changed);
            });
        }
    }
}
