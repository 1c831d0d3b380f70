//! Why connections end.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd as _,
    time::{Duration, Instant},
};

use skua_kernel::socket::SocketTracerConfig;
use skua_socket::{End, Opener, SocketState, SocketUpdate, TaskRule};

use crate::lab::*;

#[test]
fn refused() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    for address in ["127.0.0.1:9", "[::1]:9"] {
        let error = net.inside(|| TcpStream::connect(address).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let [update] = watch.ended(1)[..] else {
            panic!()
        };
        assert_eq!(update.end, Some(End::Refused));
        assert_eq!(update.state, SocketState::SynSent);
        assert_eq!(update.remote, Some(address.parse().unwrap()));
        assert_eq!(update.local.ip(), update.remote.unwrap().ip());
        assert!(update.local.port() > 1024);
        assert_eq!(update.established_ns, 0);
        assert!(update.start_ns > 0 && update.start_ns < update.now_ns);
        assert_eq!(
            (update.opener, update.task_rule),
            (Opener::Local, TaskRule::Connect)
        );
        assert_eq!(update.tcp.unwrap().bytes_sent, 0);
        assert_me(&update.task);
    }
}

#[test]
fn timed_out() {
    let (near, _far) = pair();
    near.sysctl("ipv4/tcp_syn_retries", "1");
    // Somebody who is not there, but whose link-layer address is known.
    near.ip("neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev veth0");
    let mut watch = Watch::new(&[&near]);
    let error = near.inside(|| TcpStream::connect("192.0.2.77:80").unwrap_err());
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let [update] = watch.ended(1)[..] else {
        panic!()
    };
    assert_eq!(update.end, Some(End::TimedOut));
    let tcp = update.tcp.unwrap();
    assert!(tcp.retransmits > 0);
    assert_eq!(tcp.segments_sent, u64::from(tcp.retransmits) + 1);
    // One second at least before the first retransmission.
    assert!(update.now_ns - update.start_ns > 1_000_000_000);
}

#[test]
fn data_times_out() {
    let (near, far) = pair();
    let mut watch = Watch::new(&[&near]);
    let listener = far.inside(|| listen("192.0.2.2"));
    let (mut client, _server) = near.inside(|| connect(&listener));
    set_option(&client, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &500u32);
    near.ip("link set veth0 down");
    near.ip("link set veth0 up");
    near.ip("neigh replace 192.0.2.2 lladdr 02:00:00:00:00:77 dev veth0");
    client.write_all(b"hello?").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let [update] = watch.ended(1)[..] else {
        panic!()
    };
    assert_eq!(update.end, Some(End::TimedOut));
    assert_eq!(update.state, SocketState::Established);
    assert!(update.tcp.unwrap().retransmits > 0);
    assert_eq!(update.tcp.unwrap().bytes_sent, 0);
}

#[test]
fn unreachable() {
    let (near, _far) = pair();
    let mut watch = Watch::new(&[&near]);
    // Nobody answers ARP: after three attempts the host is unreachable.
    near.sysctl("ipv4/neigh/veth0/retrans_time_ms", "50");
    let error = near.inside(|| TcpStream::connect("192.0.2.66:80").unwrap_err());
    assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH));
    let [update] = watch.ended(1)[..] else {
        panic!()
    };
    assert_eq!(update.end, Some(End::Error(libc::EHOSTUNREACH)));
}

#[test]
fn no_free_port() {
    let net = Net::with_ipv6();
    let listener = net.inside(|| listen("127.0.0.1"));
    let mut watch = Watch::new(&[&net]);
    net.sysctl("ipv4/ip_local_port_range", "40000 40000");
    let kept = net.inside(|| connect(&listener));
    let error = net.inside(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap_err());
    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    let [update] = watch.ended(1)[..] else {
        panic!()
    };
    assert_eq!(update.end, Some(End::Error(libc::EADDRNOTAVAIL)));
    drop(kept);
}

#[test]
fn given_up_while_connecting() {
    let (near, _far) = pair();
    near.ip("neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev veth0");
    let mut watch = Watch::new(&[&near]);
    let address = "192.0.2.77:80".parse().unwrap();
    near.inside(|| TcpStream::connect_timeout(&address, Duration::from_millis(50)).unwrap_err());
    let [update] = watch.ended(1)[..] else {
        panic!()
    };
    assert_eq!(update.end, Some(End::Closed));
    assert_eq!(
        (update.state, update.established_ns),
        (SocketState::SynSent, 0)
    );
}

/// End, bytes sent, bytes received.
type Brief = (Option<End>, u64, u64);

/// Ends of both sides, of a connection on which `result` was done.
fn ends_of(result: impl FnOnce(TcpStream, TcpStream) + Send) -> (Brief, Brief) {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    net.inside(|| {
        let listener = listen("127.0.0.1");
        let (client, server) = connect(&listener);
        result(client, server);
    });
    let (opened, accepted) = watch.both_ends();
    let brief = |u: skua_socket::SocketUpdate| {
        let tcp = u.tcp.unwrap();
        (u.end, tcp.bytes_sent, tcp.bytes_received)
    };
    (brief(opened), brief(accepted))
}

const LOCAL: Option<End> = Some(End::ResetLocal);
const REMOTE: Option<End> = Some(End::ResetRemote);
const CLOSED: Option<End> = Some(End::Closed);

#[test]
fn reset_by_the_client() {
    let ends = ends_of(|mut client, mut server| {
        client.write_all(&[1; 500]).unwrap();
        read_some(&mut server, 500);
        close_with_reset(client);
        assert_eq!(
            server.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    });
    assert_eq!(ends, ((LOCAL, 500, 0), (REMOTE, 0, 500)));
}

#[test]
fn reset_by_the_server() {
    let ends = ends_of(|mut client, mut server| {
        client.write_all(&[1; 500]).unwrap();
        read_some(&mut server, 500);
        server.write_all(&[1; 50]).unwrap();
        read_some(&mut client, 50);
        close_with_reset(server);
        assert_eq!(
            client.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    });
    assert_eq!(ends, ((REMOTE, 500, 50), (LOCAL, 50, 500)));
}

#[test]
fn closed_with_unread_data_is_a_reset() {
    let ends = ends_of(|mut client, mut server| {
        client.write_all(&[1; 500]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
        drop(server);
        assert_eq!(
            client.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    });
    assert_eq!(ends, ((REMOTE, 500, 0), (LOCAL, 0, 500)));
}

#[test]
fn half_closed_with_unread_data_is_a_reset() {
    let ends = ends_of(|mut client, mut server| {
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), 0);
        client.write_all(&[1; 500]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
        drop(server);
        // The next segment meets what is left of the socket.
        let _ = client.write_all(&[1; 10]);
        std::thread::sleep(Duration::from_millis(50));
    });
    assert_eq!(ends.1, (LOCAL, 0, 500));
    assert_eq!(ends.0, (REMOTE, 500, 0));
}

#[test]
fn data_for_a_closed_process_is_answered_by_a_reset() {
    let (near, far) = pair();
    let mut watch = Watch::new(&[&near, &far]);
    let listener = far.inside(|| listen("192.0.2.2"));
    let (mut client, server) = near.inside(|| connect(&listener));
    // FIN and data meet on their way.
    near.ip("link set veth0 down");
    drop(server);
    client.write_all(&[1; 100]).unwrap();
    near.ip("link set veth0 up");
    near.ip("addr replace 2001:db8::1/64 dev veth0 nodad");
    // After a while data are sent again. What a FIN makes of a reset is EPIPE.
    let deadline = Instant::now() + PATIENCE;
    while client.take_error().unwrap().is_none() {
        assert!(Instant::now() < deadline, "no reset");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(client);
    let (opened, accepted) = watch.both_ends();
    assert_eq!(accepted.end, LOCAL, "{accepted:#?}");
    assert_eq!(opened.end, REMOTE, "{opened:#?}");
}

#[test]
fn both_reset_or_disconnect() {
    let ends = ends_of(|client, server| {
        disconnect(&client);
        std::thread::sleep(Duration::from_millis(20));
        drop((client, server));
    });
    assert_eq!(ends, ((LOCAL, 0, 0), (REMOTE, 0, 0)));
}

#[test]
fn a_socket_that_connects_again_is_a_new_one() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let address = net.inside(|| {
        let listener = listen("127.0.0.1");
        let socket = tcp_socket();
        for bytes in [100, 200] {
            with_address(libc::connect, &socket, listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            // SAFETY: plain bytes.
            let sent =
                unsafe { libc::send(socket.as_raw_fd(), [0u8; 200].as_ptr().cast(), bytes, 0) };
            assert_eq!(sent, bytes as isize);
            read_some(
                &mut TcpStream::from(std::os::fd::OwnedFd::from(server.try_clone().unwrap())),
                bytes,
            );
            disconnect(&socket);
            drop(server);
        }
        // And to nobody.
        let address = listener.local_addr().unwrap();
        drop(listener);
        with_address(libc::connect, &socket, address).unwrap_err();
        address
    });
    let mut ends = watch.connections(6);
    ends.retain(|u| u.opener == Opener::Local);
    assert_eq!(ends.len(), 3, "{ends:#?}");
    let brief: Vec<_> = ends
        .iter()
        .map(|u| (u.end, u.tcp.unwrap().bytes_sent))
        .collect();
    assert_eq!(brief, [(LOCAL, 100), (LOCAL, 200), (Some(End::Refused), 0)]);
    assert!(ends.iter().all(|u| u.remote == Some(address)));
    assert!(ends[0].id != ends[1].id && ends[1].id != ends[2].id && ends[0].id != ends[2].id);
}

#[test]
fn simultaneous_open() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    // A socket that connects to itself opens from both sides.
    net.inside(|| {
        let socket = tcp_socket();
        let address = "127.0.0.1:5000".parse().unwrap();
        with_address(libc::bind, &socket, address).unwrap();
        with_address(libc::connect, &socket, address).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.write_all(&[1; 321]).unwrap();
        read_some(&mut stream, 321);
    });
    let [update] = watch.connections(1)[..] else {
        panic!()
    };
    assert_eq!(update.opener, Opener::Local);
    assert_eq!(update.end, CLOSED);
    let tcp = update.tcp.unwrap();
    assert_eq!((tcp.bytes_sent, tcp.bytes_received), (321, 321));
    assert_eq!(Some(update.local), update.remote);
}

#[test]
fn fast_open() {
    let net = Net::with_ipv6();
    net.sysctl("ipv4/tcp_fastopen", "3");
    let mut watch = Watch::new(&[&net]);
    let sizes: [usize; 2] = [40, 60];
    net.inside(|| {
        let listener = listen("127.0.0.1");
        set_option(&listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &16i32);
        for bytes in sizes {
            // The first one only fetches the cookie.
            let socket = tcp_socket();
            set_option(
                &socket,
                libc::IPPROTO_TCP,
                libc::TCP_FASTOPEN_CONNECT,
                &1i32,
            );
            with_address(libc::connect, &socket, listener.local_addr().unwrap()).unwrap();
            let mut client = TcpStream::from(socket);
            client.write_all(&vec![1; bytes]).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            read_some(&mut server, bytes);
            server.write_all(&[1; 10]).unwrap();
            read_some(&mut client, 10);
            drop(client);
            assert_eq!(read_all(&mut server), 0);
        }
    });
    let ends = watch.connections(4);
    assert_eq!(ends.len(), 4);
    for bytes in sizes.map(|b| b as u64) {
        let count = |opener, sent, received| {
            ends.iter()
                .filter(|u| {
                    let tcp = u.tcp.unwrap();
                    u.opener == opener
                        && (tcp.bytes_sent, tcp.bytes_received) == (sent, received)
                        && u.end == CLOSED
                        && u.established_ns > 0
                })
                .count()
        };
        assert_eq!(count(Opener::Local, bytes, 10), 1, "{ends:#?}");
        assert_eq!(count(Opener::Remote, 10, bytes), 1, "{ends:#?}");
    }
    assert!(
        ends.iter()
            .all(|u| matches!(u.task_rule, TaskRule::Connect | TaskRule::Accept))
    );
}

#[test]
fn what_never_got_through_the_listener_is_no_record() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    net.inside(|| {
        let listener = listen("127.0.0.1");
        let clients: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
            .collect();
        // Closing it resets those that wait for accept.
        drop(listener);
        std::thread::sleep(Duration::from_millis(50));
        drop(clients);
    });
    let ends = watch.ended(7);
    let of = |opener, end| {
        ends.iter()
            .filter(|u| u.opener == opener && u.end == end && u.tcp.is_some())
            .count()
    };
    assert_eq!(of(Opener::Local, REMOTE), 3, "{ends:#?}");
    assert_eq!(of(Opener::Remote, LOCAL), 3, "{ends:#?}");
    assert_eq!(ends.len(), 7);
    assert!(
        ends.iter()
            .filter(|u| u.opener == Opener::Remote)
            .all(|u| u.task_rule == TaskRule::Listener)
    );
}

/// What does not fit in the ring is counted, and what does is there.
#[test]
fn a_full_ring_is_counted() {
    const ENDS: u16 = 1000;
    let net = Net::with_ipv6();
    let mut watch = Watch::with(
        &[&net],
        SocketTracerConfig {
            ring_bytes: 0, // the least that there is
            ..SocketTracerConfig::default()
        },
    );
    let before = watch.tracer.losses().ring_full;
    net.inside(|| {
        for port in 1..=ENDS {
            TcpStream::connect(("127.0.0.1", port)).unwrap_err();
        }
    });
    // None is kept when sockets of others on this host have filled the ring.
    let kept = watch.ended(0).len() as u64;
    let lost = watch.tracer.losses().ring_full - before;
    let most = (64 << 10) / size_of::<SocketUpdate>() as u64;
    assert!(kept < u64::from(ENDS), "{kept}");
    // Others of this host lose some, too.
    assert!(kept + lost >= u64::from(ENDS), "{kept} {lost}");
    assert!(lost > u64::from(ENDS) - 2 * most, "{kept} {lost}");
    // From now on there is room again, between the sockets of others.
    let deadline = Instant::now() + PATIENCE;
    while watch.ended(0).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", watch.tracer.losses());
        net.inside(|| TcpStream::connect(("127.0.0.1", 1)).unwrap_err());
    }
}
