//! A host of its own with a probe, for the tests of ends.

// Each test uses another part of it.
#![allow(dead_code)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use skua_link::Namespace;
use skua_sockdiag::SockDiag;
use skua_socket::SocketUpdate;
use skua_testkit::lab::Net;

/// A namespace with loopback up, and a probe in it.
pub struct Host {
    pub namespace: Namespace,
    pub probe: SockDiag,
    pub net: Net,
}

impl Host {
    pub fn new() -> Self {
        let net = Net::with_ipv6();
        let namespace = net.inside(Namespace::own).unwrap();
        let probe = SockDiag::start(std::iter::once(&namespace)).unwrap();
        Self {
            namespace,
            probe,
            net,
        }
    }

    pub fn listener(&self, address: &str) -> TcpListener {
        self.net.inside(|| TcpListener::bind(address).unwrap())
    }

    /// A connection with both ends: the client's, the server's.
    pub fn pair(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let address = listener.local_addr().unwrap();
        let client = self.net.inside(|| TcpStream::connect(address).unwrap());
        (client, listener.accept().unwrap().0)
    }

    pub fn open(&mut self) -> Vec<SocketUpdate> {
        let mut all = Vec::new();
        self.probe.open(&mut |update| all.push(*update));
        all
    }

    /// Our socket at this address. Another test may just be starting a program: until that has replaced the copy of us, the
    /// copy holds the socket, too, and as it began last it is named.
    pub fn open_here(&mut self, local: SocketAddr) -> SocketUpdate {
        let begin = Instant::now();
        loop {
            let open = self.open();
            let ours = by_local(&open, local);
            if ours.task.pid == std::process::id() || begin.elapsed() > Duration::from_secs(20) {
                return *ours;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until so many sockets have ended; the kernel reports it from a work queue.
    pub fn ended(&mut self, count: usize) -> Vec<SocketUpdate> {
        let mut all = Vec::new();
        let begin = Instant::now();
        while all.len() < count && begin.elapsed() < Duration::from_secs(20) {
            self.probe.ended(&mut |update| all.push(*update));
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(all.len() >= count, "{} of {count} ended", all.len());
        all
    }
}

pub fn by_local(all: &[SocketUpdate], local: SocketAddr) -> &SocketUpdate {
    let mut found = all.iter().filter(|update| update.local == local);
    let first = found.next().unwrap_or_else(|| panic!("{local}: {all:?}"));
    assert!(found.next().is_none(), "{local} twice: {all:?}");
    first
}

pub fn send(from: &TcpStream, to: &TcpStream, bytes: usize) {
    let mut buffer = vec![7; bytes];
    (&*from).write_all(&buffer).unwrap();
    (&*to).read_exact(&mut buffer).unwrap();
}

/// Bytes sent and received.
pub fn payload(update: &SocketUpdate) -> (u64, u64) {
    let tcp = update.tcp.unwrap();
    (tcp.bytes_sent, tcp.bytes_received)
}
