//! How connections end, and that each ends once, against real sockets in namespaces of our own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod host;

use host::{Host, by_local, payload, send};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use skua_sockdiag::SockDiag;
use skua_socket::{End, HookState, Opener, Protocol, SocketState, TaskRule};
use skua_testkit::lab::{root_tests, wait_for};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

#[test]
fn an_orderly_end_is_reported_with_payload_bytes_alone() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    assert!(
        host.probe
            .describe()
            .iter()
            .all(|status| status.state == HookState::Active),
        "{:?}",
        host.probe.describe()
    );
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = host.listener(address);
        for looked_at in [true, false] {
            let (client, server) = host.pair(&listener);
            send(&client, &server, 1000);
            send(&server, &client, 300);
            let local = client.local_addr().unwrap();
            if looked_at {
                let ours = host.open_here(local);
                assert_eq!(payload(&ours), (1000, 300));
                assert_eq!(ours.state, SocketState::Established);
                assert_eq!(ours.opener, Opener::Local);
                assert_eq!(ours.task.pid, std::process::id());
                assert_eq!(ours.task_rule, TaskRule::File);
                assert_eq!(ours.netns, host.net.inode() as u32);
            }
            drop(client);
            // Reads the end, so that the server closes after the client.
            assert_eq!((&server).read(&mut [0; 10]).unwrap(), 0);
            drop(server);
            let ended = host.ended(2);
            let ours = by_local(&ended, local);
            assert_eq!(ours.end, Some(End::Closed));
            assert_eq!(ours.opener, Opener::Local);
            assert_eq!(payload(ours), (1000, 300));
            assert_eq!(ours.task.pid == std::process::id(), looked_at);
            let theirs = by_local(&ended, listener.local_addr().unwrap());
            assert_eq!(theirs.remote, Some(local));
            assert_eq!(theirs.end, Some(End::Closed));
            assert_eq!(payload(theirs), (300, 1000));
            assert_eq!(theirs.opener, Opener::Remote);
            assert!(host.open().iter().all(|update| update.remote.is_none()));
        }
    }
    assert_eq!(host.probe.unrecorded(), 0);
}

#[test]
fn resets_are_reported_with_their_side() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let listener = host.listener("127.0.0.1:0");
    host.open();
    let at = listener.local_addr().unwrap();

    // Closing with unread data sends a RST.
    let (client, server) = host.pair(&listener);
    (&client).write_all(&[1; 100]).unwrap();
    server.peek(&mut [0; 100]).unwrap();
    drop(server);
    let theirs = *by_local(&host.ended(1), at);
    assert_eq!(theirs.end, Some(End::ResetLocal));
    assert_eq!(payload(&theirs), (0, 100));
    let local = client.local_addr().unwrap();
    drop(client);
    let ours = *by_local(&host.ended(1), local);
    assert_eq!(ours.end, Some(End::ResetRemote));
    assert_eq!(payload(&ours), (100, 0));

    // Without lingering the kernel clears the numbers: those of the last poll remain.
    let (client, server) = host.pair(&listener);
    send(&client, &server, 50);
    let local = client.local_addr().unwrap();
    host.open();
    sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    let ours = *by_local(&host.ended(1), local);
    assert_eq!(ours.end, Some(End::ResetLocal));
    assert_eq!(payload(&ours), (50, 0));
    assert_eq!(ours.task.pid, std::process::id());
    drop(server);
    let theirs = *by_local(&host.ended(1), at);
    assert_eq!(theirs.end, Some(End::ResetRemote));
    assert_eq!(payload(&theirs), (0, 50));

    // And if no look saw it, it is counted.
    let (client, server) = host.pair(&listener);
    sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    drop(server);
    host.ended(1);
    assert_eq!(host.probe.unrecorded(), 1);
}

/// An attempt that does not block.
fn attempt(host: &Host, to: SocketAddr) -> OwnedFd {
    host.net.inside(|| {
        let family = match to.ip() {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        assert_eq!(connect(&socket, &to), Err(Errno::INPROGRESS));
        socket
    })
}

#[test]
fn failed_attempts_are_reported() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    host.open();
    let refused = attempt(&host, "127.0.0.1:9".parse().unwrap());
    drop(refused);
    let ended = host.ended(1);
    assert_eq!(ended[0].end, Some(End::Refused));
    assert_eq!(ended[0].opener, Opener::Local);
    assert_eq!(ended[0].state, SocketState::SynSent);
    assert_eq!(ended[0].established_ns, 0);
    assert_eq!(payload(&ended[0]), (0, 0));

    // A listening socket whose queue is full does not answer.
    let (busy, full) = host.net.inside(|| {
        let busy = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&busy, &any).unwrap();
        rustix::net::listen(&busy, 0).unwrap();
        let full = SocketAddr::try_from(rustix::net::getsockname(&busy).unwrap()).unwrap();
        (busy, full)
    });
    let _queued = host.net.inside(|| TcpStream::connect(full).unwrap());
    let waiting = attempt(&host, full);
    let open = host.open();
    let trying: Vec<_> = open
        .iter()
        .filter(|update| update.state == SocketState::SynSent)
        .collect();
    assert_eq!(trying.len(), 1);
    assert_eq!(trying[0].opener, Opener::Local);
    assert_eq!(trying[0].remote, Some(full));
    drop(waiting);
    // Given up by this side.
    assert_eq!(host.ended(1)[0].end, Some(End::Closed));

    host.net.exec("sysctl -qw net.ipv4.tcp_syn_retries=1");
    let mut host = Host {
        probe: SockDiag::start(std::iter::once(&host.namespace)).unwrap(),
        ..host
    };
    let late = attempt(&host, full);
    while sockopt::socket_error(&late).unwrap().is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(late);
    let ended = host.ended(1);
    assert_eq!(ended[0].end, Some(End::TimedOut));
    assert!(ended[0].tcp.unwrap().retransmits >= 1);
    drop(busy);
}

#[test]
fn udp_and_listening_sockets_end() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let listener = host.listener("[::]:0");
    let (connected, free) = host.net.inside(|| {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(free.local_addr().unwrap()).unwrap();
        (connected, free)
    });
    let at = listener.local_addr().unwrap();
    let (_waits, _accepted) = {
        let to = SocketAddr::new("127.0.0.1".parse().unwrap(), at.port());
        let first = host.net.inside(|| TcpStream::connect(to).unwrap());
        let accepted = listener.accept().unwrap().0;
        // Nobody accepts the second.
        let second = host.net.inside(|| TcpStream::connect(to).unwrap());
        ((first, second), accepted)
    };
    let open = host.open();
    let listening = by_local(&open, at);
    assert_eq!(listening.state, SocketState::Listen);
    assert_eq!(listening.backlog, Some((1, 128)));
    assert_eq!((listening.remote, listening.tcp), (None, None));
    let not_accepted = open.iter().find(|u| u.task_rule == TaskRule::Listener);
    let not_accepted = not_accepted.unwrap();
    assert_eq!(not_accepted.task.pid, std::process::id());
    assert_eq!(not_accepted.opener, Opener::Remote);
    assert!(not_accepted.local.is_ipv4(), "IPv4 in an IPv6 socket");

    let local = |socket: &UdpSocket| socket.local_addr().unwrap();
    let (a, b) = (local(&connected), local(&free));
    assert_eq!(by_local(&open, a).state, SocketState::UdpConnected);
    assert_eq!(by_local(&open, a).remote, Some(b));
    assert_eq!(by_local(&open, b).state, SocketState::UdpUnconnected);
    assert_eq!(by_local(&open, b).remote, None);
    assert_eq!(by_local(&open, b).protocol, Protocol::Udp);
    drop((connected, free));
    let ended = host.ended(2);
    for local in [a, b] {
        assert_eq!(by_local(&ended, local).end, Some(End::Closed));
        assert_eq!(by_local(&ended, local).task.pid, std::process::id());
    }
}

#[test]
fn a_socket_that_is_kept_after_its_end_vanishes_once() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let listener = host.listener("127.0.0.1:0");
    let (client, server) = host.pair(&listener);
    send(&client, &server, 10);
    let local = client.local_addr().unwrap();
    host.open();
    sockopt::set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
    drop(server);
    // The client's socket is in CLOSE now, but not closed: it is shown no more, yet not destroyed.
    let mut ends = Vec::new();
    for _ in 0..4 {
        let looked = host.open();
        ends.extend(
            looked
                .iter()
                .filter(|update| update.local == local && update.end.is_some())
                .copied(),
        );
    }
    drop(client);
    std::thread::sleep(Duration::from_millis(300));
    host.probe.ended(&mut |update| ends.push(*update));
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!(ends[0].end, Some(End::Vanished));
    assert_eq!(payload(&ends[0]), (10, 0));
}

#[test]
fn a_socket_that_connects_again_is_a_new_one() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let (first, second) = (host.listener("127.0.0.1:0"), host.listener("127.0.0.1:0"));
    let (client, _server) = host.pair(&first);
    let (one, two) = (first.local_addr().unwrap(), second.local_addr().unwrap());
    let before = host.open();
    let before = before.iter().find(|u| u.remote == Some(one)).unwrap();
    rustix::net::connect_unspec(&client).unwrap();
    connect(&client, &two).unwrap();
    let _accepted = second.accept().unwrap();
    let looked = host.open();
    let old = looked.iter().find(|u| u.remote == Some(one)).unwrap();
    assert_eq!((old.id, old.end), (before.id, Some(End::Vanished)));
    let new = looked.iter().find(|u| u.remote == Some(two)).unwrap();
    assert_ne!(new.id, before.id);
    assert_eq!(new.end, None);
    // A child that another test starts holds all sockets until it executes its program.
    let id = new.id;
    wait_for("the owner", || {
        let open = host.open();
        let new = open.iter().find(|u| u.id == id).unwrap();
        (new.task.pid == std::process::id()).then_some(())
    });
}

#[test]
fn namespaces_come_and_go() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let other = Host::new();
    let here = host.listener("127.0.0.1:0").local_addr().unwrap();
    let kept = (host.listener("127.0.0.1:0"), other.listener("127.0.0.1:0"));
    let both = [&host.namespace, &other.namespace];
    host.probe.set_namespaces(both.into_iter());
    let mut seen: Vec<u32> = host.open().iter().map(|update| update.netns).collect();
    seen.sort_unstable();
    let mut all = [host.net.inode() as u32, other.net.inode() as u32];
    all.sort_unstable();
    assert_eq!(seen, all, "{here} is closed");
    assert_eq!(host.probe.wake().len(), 2);
    host.probe.set_namespaces(std::iter::once(&other.namespace));
    let seen: Vec<u32> = host.open().iter().map(|update| update.netns).collect();
    assert_eq!(seen, [other.net.inode() as u32]);
    drop(kept);
}
