//! Every connection exactly once, with exact bytes.

use std::{
    collections::HashSet,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    thread,
};

use skua_socket::{End, Opener, SocketState, SocketUpdate, TaskRule};

use crate::lab::*;

/// What one connection carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Carried {
    client: SocketAddr,
    server: SocketAddr,
    to_server: usize,
    to_client: usize,
}

/// Who closes first.
#[derive(Clone, Copy)]
enum Order {
    Client,
    Server,
    Both,
    HalfClose,
}

const ORDERS: [Order; 4] = [Order::Client, Order::Server, Order::Both, Order::HalfClose];

fn carry(mut client: TcpStream, mut server: TcpStream, number: usize) -> Carried {
    let (to_server, to_client) = ((number % 7) * 1000 + 1, (number % 5) * 700);
    let addresses = [client.local_addr(), client.peer_addr()].map(Result::unwrap);
    match ORDERS[number % 4] {
        Order::Client => {
            client.write_all(&vec![1; to_server]).unwrap();
            server.write_all(&vec![2; to_client]).unwrap();
            read_some(&mut server, to_server);
            read_some(&mut client, to_client);
            drop(client);
            assert_eq!(read_all(&mut server), 0);
        }
        Order::Server => {
            client.write_all(&vec![1; to_server]).unwrap();
            server.write_all(&vec![2; to_client]).unwrap();
            read_some(&mut server, to_server);
            read_some(&mut client, to_client);
            drop(server);
            assert_eq!(read_all(&mut client), 0);
        }
        Order::Both => {
            client.write_all(&vec![1; to_server]).unwrap();
            server.write_all(&vec![2; to_client]).unwrap();
            read_some(&mut server, to_server);
            read_some(&mut client, to_client);
            let other = thread::spawn(move || drop(server));
            drop(client);
            other.join().unwrap();
        }
        Order::HalfClose => {
            send_and_finish(&mut client, to_server);
            assert_eq!(read_all(&mut server), to_server);
            send_and_finish(&mut server, to_client);
            assert_eq!(read_all(&mut client), to_client);
        }
    }
    Carried {
        client: addresses[0],
        server: addresses[1],
        to_server,
        to_client,
    }
}

fn check(updates: &[SocketUpdate], carried: &[Carried], loopback: bool) {
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    let mut unseen = 0;
    for update in updates {
        let tcp = update.tcp.unwrap();
        let remote = update.remote.unwrap();
        let bytes = (tcp.bytes_sent as usize, tcp.bytes_received as usize);
        match update.opener {
            Opener::Local => {
                clients.push((update.local, remote, bytes));
                assert_eq!(update.task_rule, TaskRule::Connect);
            }
            Opener::Remote => {
                servers.push((remote, update.local, (bytes.1, bytes.0)));
                assert_eq!(update.task_rule, TaskRule::Accept);
            }
            Opener::Unknown => panic!("{update:#?}"),
        }
        assert_eq!(update.end, Some(End::Closed), "{update:#?}");
        assert_me(&update.task);
        assert!(update.start_ns > 0 && update.start_ns <= update.now_ns);
        if update.established_ns == 0 {
            unseen += 1;
        } else {
            assert!(update.start_ns <= update.established_ns);
            assert!(update.established_ns <= update.now_ns);
        }
        assert!(tcp.segments_sent >= 2 && tcp.segments_received >= 2);
        assert!(!loopback || tcp.srtt_us > 0 || bytes.0 == 0, "{update:#?}");
        assert!(tcp.mss > 500 && tcp.cwnd > 0);
    }
    // Events that a tracing program missed cost no more than a time, and are rare.
    assert!(unseen * 50 <= updates.len(), "{unseen}");
    // A port may serve twice, so this is about how often each comes.
    let mut expected: Vec<_> = carried
        .iter()
        .map(|c| (c.client, c.server, (c.to_server, c.to_client)))
        .collect();
    expected.sort_unstable();
    clients.sort_unstable();
    servers.sort_unstable();
    assert!(clients == expected, "{clients:?}\n{expected:?}");
    assert!(servers == expected, "{servers:?}\n{expected:?}");
    let ids: HashSet<_> = updates.iter().map(|u| u.id).collect();
    assert_eq!(ids.len(), updates.len());
}

#[test]
fn each_of_2000_short_connections_is_there_exactly_once() {
    const THREADS: usize = 4;
    const EACH: usize = 500;
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let carried: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let net = &net;
                scope.spawn(move || {
                    net.enter();
                    let listener = listen("127.0.0.1");
                    (0..EACH)
                        .map(|number| {
                            let (client, server) = connect(&listener);
                            carry(client, server, number + t)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    let mut updates = watch.ended(2 * THREADS * EACH + THREADS);
    let listeners = updates
        .iter()
        .filter(|u| u.state == SocketState::Listen)
        .count();
    assert_eq!(listeners, THREADS);
    updates.retain(|u| u.state != SocketState::Listen);
    check(&updates, &carried, true);
    assert_eq!(watch.tracer.losses(), Default::default());
    assert!(watch.open().is_empty());
}

#[test]
fn bytes_are_exact_over_veth_and_both_families() {
    let (near, far) = pair();
    let mut watch = Watch::new(&[&near, &far]);
    for address in ["192.0.2.2", "2001:db8::2"] {
        let listener = far.inside(|| listen(address));
        let carried: Vec<_> = (0..20)
            .map(|number| {
                let (client, server) = near.inside(|| connect(&listener));
                carry(client, server, number)
            })
            .collect();
        drop(listener);
        let updates = watch.ended(41);
        let (listeners, updates): (Vec<_>, Vec<_>) = updates
            .into_iter()
            .partition(|u| u.state == SocketState::Listen);
        check(&updates, &carried, false);
        assert_eq!(listeners.len(), 1);
        for update in updates {
            let inside = match update.opener {
                Opener::Local => &near,
                _ => &far,
            };
            assert_eq!(update.netns, number(inside));
            assert_eq!(update.local.is_ipv6(), address.contains(':'));
        }
    }
}

#[test]
fn bulk_is_counted_to_the_byte() {
    const BYTES: usize = 30 << 20;
    let (near, far) = pair();
    let mut watch = Watch::new(&[&near, &far]);
    let listener = far.inside(|| listen("192.0.2.2"));
    let (mut client, mut server) = near.inside(|| connect(&listener));
    let reader = thread::spawn(move || read_all(&mut server));
    send_and_finish(&mut client, BYTES);
    assert_eq!(reader.join().unwrap(), BYTES);
    drop(client);
    let (opened, accepted) = watch.both_ends();
    let (opened, accepted) = (opened.tcp.unwrap(), accepted.tcp.unwrap());
    assert_eq!(
        (opened.bytes_sent, opened.bytes_received),
        (BYTES as u64, 0)
    );
    assert_eq!(
        (accepted.bytes_sent, accepted.bytes_received),
        (0, BYTES as u64)
    );
    assert!(opened.segments_sent > 100 && opened.delivery_rate > 0);
    assert!(opened.srtt_us > 0 && opened.min_rtt_us > 0 && opened.min_rtt_us < 1_000_000);
}

#[test]
fn a_look_shows_connections_and_listeners() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let listener = net.inside(|| listen("127.0.0.1"));
    let (mut client, mut server) = net.inside(|| connect(&listener));
    client.write_all(&[1; 1234]).unwrap();
    read_some(&mut server, 1234);
    server.write_all(&[1; 77]).unwrap();
    read_some(&mut client, 77);
    let waiting = net.inside(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    // Until the last acknowledgement came.
    thread::sleep(std::time::Duration::from_millis(100));

    let listening = watch.open_one(SocketState::Listen);
    assert_eq!(listening.local, listener.local_addr().unwrap());
    assert_eq!((listening.remote, listening.end), (None, None));
    assert_eq!(listening.backlog.unwrap().0, 1);
    assert!(listening.backlog.unwrap().1 > 1);
    assert_eq!(listening.task_rule, TaskRule::Connect);
    assert_me(&listening.task);

    let open = watch.open();
    // Three ends of two connections have an owner; the one that waits for accept has a file, too,
    // only when it was accepted.
    let client_seen = open
        .iter()
        .find(|u| u.local == client.local_addr().unwrap())
        .unwrap();
    let server_seen = open
        .iter()
        .find(|u| u.remote == Some(client.local_addr().unwrap()))
        .unwrap();
    let [sent, received] = [client_seen, server_seen].map(|u| u.tcp.unwrap());
    assert_eq!((sent.bytes_sent, sent.bytes_received), (1234, 77));
    assert_eq!((received.bytes_sent, received.bytes_received), (77, 1234));
    assert_eq!(client_seen.state, SocketState::Established);
    assert_eq!(server_seen.remote, Some(client.local_addr().unwrap()));
    let unaccepted = open
        .iter()
        .find(|u| u.remote == Some(waiting.local_addr().unwrap()))
        .unwrap();
    assert_eq!(unaccepted.task_rule, TaskRule::Listener);
    assert_eq!(open.len(), 5);

    // The same ids at the end.
    let ids = [client_seen.id, server_seen.id];
    drop((client, server));
    let ended = watch.connections(2);
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|u| ids.contains(&u.id)));
}
