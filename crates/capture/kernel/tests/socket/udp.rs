//! UDP sockets.

use std::net::UdpSocket;

use skua_socket::{End, Opener, Protocol, SocketState, TaskRule};

use crate::lab::*;

fn bind(address: &str) -> UdpSocket {
    UdpSocket::bind((address.parse::<std::net::IpAddr>().unwrap(), 0)).unwrap()
}

#[test]
fn connected() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    for address in ["127.0.0.1", "::1"] {
        let (socket, local, remote) = net.inside(|| {
            let remote = bind(address).local_addr().unwrap();
            let socket = bind(address);
            socket.connect(remote).unwrap();
            let local = socket.local_addr().unwrap();
            (socket, local, remote)
        });
        let open = watch.open_one(SocketState::UdpConnected);
        drop(socket);
        let [ended] = watch.ended(1)[..] else {
            panic!()
        };
        for update in [open, ended] {
            assert_eq!(update.protocol, Protocol::Udp);
            assert_eq!((update.local, update.remote), (local, Some(remote)));
            assert_eq!(
                (update.opener, update.task_rule),
                (Opener::Local, TaskRule::Connect)
            );
            assert_eq!(update.tcp, None);
            assert_me(&update.task);
            assert!(update.start_ns > 0);
        }
        assert_eq!((open.end, ended.end), (None, Some(End::Closed)));
        assert_eq!(open.id, ended.id);
    }
}

#[test]
fn first_send_without_connect() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    for address in ["127.0.0.1", "::1"] {
        let (socket, first) = net.inside(|| {
            let first = bind(address).local_addr().unwrap();
            let second = bind(address).local_addr().unwrap();
            let socket = bind(address);
            for _ in 0..3 {
                socket.send_to(b"x", first).unwrap();
                socket.send_to(b"x", second).unwrap();
            }
            (socket, first)
        });
        let local = socket.local_addr().unwrap();
        let open = watch.open_one(SocketState::UdpUnconnected);
        drop(socket);
        let [ended] = watch.ended(1)[..] else {
            panic!()
        };
        for update in [open, ended] {
            assert_eq!(update.state, SocketState::UdpUnconnected);
            assert_eq!((update.local, update.remote), (local, Some(first)));
            assert_eq!(update.opener, Opener::Local);
            assert_me(&update.task);
        }
        // Who has it open goes before who sent first.
        assert_eq!(open.task_rule, TaskRule::File);
    }
    // Nobody looked meanwhile.
    net.inside(|| {
        let to = bind("127.0.0.1").local_addr().unwrap();
        bind("127.0.0.1").send_to(b"x", to).unwrap();
    });
    let [ended] = watch.ended(1)[..] else {
        panic!()
    };
    assert_eq!(ended.task_rule, TaskRule::Close);
}

#[test]
fn a_server_that_answers_opened_nothing() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let client = net.inside(|| {
        let server = UdpSocket::bind("127.0.0.1:5353").unwrap();
        let client = bind("127.0.0.1");
        client.connect(server.local_addr().unwrap()).unwrap();
        client.send(b"?").unwrap();
        let (_, peer) = server.recv_from(&mut [0]).unwrap();
        server.send_to(b"!", peer).unwrap();
        client.local_addr().unwrap()
    });
    let ended = watch.ended(2);
    assert_eq!(ended.len(), 2);
    let server = ended.iter().find(|u| u.local.port() == 5353).unwrap();
    assert_eq!(
        (server.opener, server.remote),
        (Opener::Unknown, Some(client))
    );
}

#[test]
fn bound_only_and_older_than_the_tracer() {
    let net = Net::with_ipv6();
    let socket = net.inside(|| bind("127.0.0.1"));
    let mut watch = Watch::new(&[&net]);
    // Not bound, never used: no record.
    let _idle = net.inside(tcp_socket);
    let update = watch.open_one(SocketState::UdpUnconnected);
    assert_eq!(watch.open().len(), 1);
    assert_eq!(
        (update.local, update.remote),
        (socket.local_addr().unwrap(), None)
    );
    assert_eq!((update.task_rule, update.start_ns), (TaskRule::File, 0));
    assert_me(&update.task);
    drop(socket);
    let [ended] = watch.ended(1)[..] else {
        panic!()
    };
    assert_eq!((ended.id, ended.end), (update.id, Some(End::Closed)));
}

#[test]
fn sends_are_not_watched_unless_wanted() {
    let net = Net::with_ipv6();
    let mut watch = Watch::with(
        &[&net],
        skua_kernel::socket::SocketTracerConfig {
            udp_sends: false,
            ..Default::default()
        },
    );
    net.inside(|| {
        let to = bind("127.0.0.1");
        bind("127.0.0.1")
            .send_to(b"x", to.local_addr().unwrap())
            .unwrap();
        bind("127.0.0.1").connect(to.local_addr().unwrap()).unwrap();
    });
    let ended = watch.ended(1);
    assert_eq!(ended.len(), 1, "{ended:#?}");
    assert_eq!(ended[0].state, SocketState::UdpConnected);
}
