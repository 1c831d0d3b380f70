//! Many short connections. Alone in its process: one that a test beside it starts would have all our sockets
//! from its fork until its exec, and of several that hold a socket the one that started last counts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod host;

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpStream},
};

use host::{Host, payload, send};
use rustix::net::{AddressFamily, SocketType, connect};
use skua_socket::{End, Opener, SocketUpdate};
use skua_testkit::lab::root_tests;

/// Connects from an address of this number's own, for ports are used again soon.
fn connect_from(number: usize, to: SocketAddr) -> TcpStream {
    let [.., high, low] = number.to_be_bytes();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let from = SocketAddr::from(([127, 1, high, low], 0));
    rustix::net::bind(&socket, &from).unwrap();
    connect(&socket, &to).unwrap();
    socket.into()
}

#[test]
fn each_short_connection_ends_exactly_once() {
    if !root_tests() {
        return;
    }
    const CONNECTIONS: usize = 3000;
    let mut host = Host::new();
    let listener = host.listener("127.0.0.1:0");
    host.open();
    let mut sent = HashMap::new();
    let (net, probe) = (&host.net, &mut host.probe);
    let mut ended: Vec<SocketUpdate> = Vec::new();
    for number in 0..CONNECTIONS {
        let address = listener.local_addr().unwrap();
        let client = net.inside(|| connect_from(number, address));
        let server = listener.accept().unwrap().0;
        send(&client, &server, number % 500);
        send(&server, &client, number % 300);
        sent.insert(client.local_addr().unwrap(), number as u64);
        if number % 2 == 0 {
            drop(client);
            drop(server);
        } else {
            drop(server);
            drop(client);
        }
        if number % 100 == 0 {
            // Some are seen by looks, most are not.
            probe.open(&mut |update| ended.extend(update.end.map(|_| *update)));
        }
    }
    ended.extend(host.ended(2 * CONNECTIONS - ended.len()));
    assert_eq!(ended.len(), 2 * CONNECTIONS);
    assert_eq!(host.probe.losses(), Default::default());
    let mut nobodys = 0;
    for update in &ended {
        let is_client = update.remote.unwrap() == listener.local_addr().unwrap();
        let client = if is_client {
            update.local
        } else {
            update.remote.unwrap()
        };
        let number = sent[&client];
        let (there, back) = (number % 500, number % 300);
        assert_eq!(update.end, Some(End::Closed), "{update:?}");
        let opener = if is_client {
            Opener::Local
        } else {
            Opener::Remote
        };
        assert_eq!(update.opener, opener, "{update:?}");
        let (sent, received) = if is_client {
            (there, back)
        } else {
            (back, there)
        };
        assert_eq!(payload(update).0, sent, "{update:?}");
        // The side that closes first may give its socket up before the other's FIN comes: then
        // one byte too much is taken off (docs/sockets.md, section 6).
        let counted = payload(update).1;
        assert!(counted == received || counted + 1 == received, "{update:?}");
        if !is_client {
            // A look for owners has little time: on a busy machine it may end without one.
            match update.task.pid {
                0 => nobodys += 1,
                pid => assert_eq!(pid, std::process::id(), "{update:?}"),
            }
        }
    }
    assert!(nobodys <= CONNECTIONS / 4, "{nobodys} without an owner");
    let ids: std::collections::HashSet<u64> = ended.iter().map(|update| update.id).collect();
    assert_eq!(ids.len(), 2 * CONNECTIONS);
}
