//! Servers that are no servers: whatever they send, the client stays bounded and tries again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use skua_ovsdb::{
    Change, Client, ClientConfig, Error, Limits, Monitored, OvsConfig, OvsTopology, Target, Watcher,
};
use skua_topology::{Config, Graph, SharedGraph};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

const MESSAGE: usize = 256 << 10;
const ID: &str = "00000000-0000-0000-0000-000000000001";

fn config(target: Target) -> ClientConfig {
    ClientConfig {
        probe_interval: Duration::from_secs(1),
        backoff: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        limits: Limits {
            message: MESSAGE,
            memory: 1 << 20,
            answer: 16 << 10,
            message_time: Duration::from_secs(3),
            patience: Duration::from_secs(3),
        },
        ..ClientConfig::new(target)
    }
}

/// Notes how connections end.
#[derive(Clone)]
struct Ends(Sender<String>);

impl Watcher for Ends {
    fn begin(&mut self, rows: Vec<Change>) -> Result<(), Error> {
        let _ = self.0.send(format!("{} rows", rows.len()));
        Ok(())
    }

    fn change(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        let _ = self.0.send(format!("{} changes", changes.len()));
        Ok(())
    }

    fn end(&mut self, why: &Error) {
        let _ = self.0.send(why.to_string());
    }
}

/// A server that lets `act` deal with each connection.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new(act: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("db.sock")).unwrap();
        let act = Arc::new(act);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let act = act.clone();
                thread::spawn(move || act(stream));
            }
        });
        Self { dir }
    }

    fn target(&self) -> Target {
        Target::Unix(self.dir.path().join("db.sock"))
    }

    fn client(&self) -> (Client, Receiver<String>) {
        let (sender, receiver) = channel();
        let monitored = vec![Monitored::new("Bridge", &["name"])];
        let client = Client::start(config(self.target()), monitored, Ends(sender)).unwrap();
        (client, receiver)
    }
}

fn requests(stream: &UnixStream) -> impl Iterator<Item = Value> + use<> {
    let stream = stream.try_clone().unwrap();
    serde_json::Deserializer::from_reader(stream)
        .into_iter()
        .map_while(Result::ok)
}

fn send(mut stream: &UnixStream, message: &Value) -> bool {
    stream.write_all(message.to_string().as_bytes()).is_ok()
}

/// Does all as it should until the client has its (no) rows.
fn welcome(stream: &UnixStream) {
    for request in requests(stream) {
        let result = match request["method"].as_str() {
            Some("get_schema") => json!({"tables": {"Bridge": {"columns": {"name": {}}}}}),
            Some("monitor") => json!({}),
            _ => continue,
        };
        send(
            stream,
            &json!({"id": request["id"], "error": null, "result": result}),
        );
        if request["method"] == "monitor" {
            return;
        }
    }
}

/// The first end that the client tells whose connection came as far as having its rows.
fn end_after_welcome(act: impl Fn(&UnixStream) + Send + Sync + 'static) -> String {
    let fake = Fake::new(move |stream| {
        welcome(&stream);
        act(&stream);
        // The client hangs up.
        requests(&stream).for_each(drop);
    });
    let (client, ends) = fake.client();
    let next = || ends.recv_timeout(Duration::from_secs(20)).expect("an end");
    assert_eq!(next(), "0 rows");
    let end = next();
    assert_eq!(next(), "0 rows", "after {end:?} it comes back");
    drop(client);
    end
}

#[track_caller]
fn assert_ends(end: &str, expected: &str) {
    assert!(end.contains(expected), "{end:?}");
}

#[test]
fn what_is_no_message_ends_the_connection() {
    let cases: [(&[u8], &str); 8] = [
        (b"garbage", "protocol"),
        (b"\xff\xfe\x00", "protocol"),
        (b"{\"id\":1,\"id\":1}", "protocol"),
        (b"{\"method\":7}", "protocol"),
        (
            b"{\"method\":\"update\",\"id\":null,\"params\":{}}",
            "protocol",
        ),
        (
            b"{\"method\":\"update\",\"params\":[1,{\"Port\":{}}]}",
            "protocol",
        ),
        (
            b"{\"method\":\"update\",\"params\":[1,{\"Bridge\":{\"x\":{}}}]}",
            "protocol",
        ),
        (b"{\"method\":\"update\"}", "protocol"),
    ];
    for (bytes, expected) in cases {
        let end = end_after_welcome(move |mut stream| {
            let _ = stream.write_all(bytes);
        });
        assert_ends(&end, expected);
    }
    let deep = "[".repeat(10_000);
    let row = format!(
        "{{\"method\":\"update\",\"params\":[1,{{\"Bridge\":{{\"{ID}\":{{\"new\":{{\"name\":{deep}"
    );
    let end = end_after_welcome(move |mut stream| {
        let _ = stream.write_all(row.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
    });
    assert_ends(&end, "closed");
    let close = "]".repeat(10_000);
    let whole = format!(
        "{{\"method\":\"update\",\"params\":[1,{{\"Bridge\":{{\"{ID}\":{{\"new\":{{\"name\":{deep}{close}}}}}}}}}]}}"
    );
    let end = end_after_welcome(move |mut stream| {
        let _ = stream.write_all(whole.as_bytes());
    });
    assert_ends(&end, "protocol");
}

/// Bytes that a server gets rid of that sends without end.
fn endless(first: &'static [u8], part: &'static [u8]) -> (String, u64) {
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let end = end_after_welcome(move |mut stream| {
        if count.load(Ordering::Relaxed) > 0 {
            return;
        }
        let part = part.repeat(1_000);
        let mut send = |bytes: &[u8]| match stream.write(bytes) {
            Ok(length) => count.fetch_add(length as u64, Ordering::Relaxed) < 1 << 30,
            Err(_) => false,
        };
        if send(first) {
            while send(&part) {}
        }
    });
    (end, sent.load(Ordering::Relaxed))
}

#[test]
fn endless_messages_end_at_the_limit() {
    // What was sent and not read lies in the socket's buffers.
    let most = (MESSAGE + (64 << 10) + (1 << 20)) as u64;
    let cases: [(&[u8], &[u8]); 5] = [
        (b"{\"x\":\"", b"xxxx"),
        (b"{\"params\":", b"["),
        (b"", b" "),
        (b"{\"params\":[", b"0,"),
        (
            b"{\"method\":\"update\",\"params\":[1,{\"Bridge\":{",
            b"\"x\":{},",
        ),
    ];
    for (first, part) in cases {
        let (end, sent) = endless(first, part);
        assert_ends(&end, "a message is over the limit of 262144 bytes");
        assert!(sent <= most, "{sent} bytes");
    }
}

#[test]
fn many_rows_end_at_the_limit() {
    // Each message is small enough, and so is each row: together they are too much.
    let fake = Fake::new(|stream| {
        welcome(&stream);
        for part in 0_u128.. {
            let id = |n| uuid::Uuid::from_u128(part * 1_000 + n).to_string();
            let row = |n| (id(n), json!({"new": {"name": "x".repeat(100)}}));
            let rows: serde_json::Map<_, _> = (0..1_000).map(row).collect();
            let params = json!([1, {"Bridge": rows}]);
            if !send(&stream, &json!({"method": "update", "params": params})) {
                return;
            }
        }
    });
    let graph: SharedGraph = Graph::new(Config::default()).into();
    let mut settings = OvsConfig::new(fake.target(), "h");
    settings.client = config(fake.target());
    let topology = OvsTopology::start(settings, graph.clone()).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while topology.counters().client.disconnections < 2 {
        assert!(Instant::now() < end, "{:?}", topology.counters());
        assert!(topology.counters().bytes <= 1 << 20);
        thread::sleep(Duration::from_millis(10));
    }
    assert!(graph.read().stats().nodes < 10_000);
    drop(topology);

    // All at the beginning.
    let fake = Fake::new(|stream| {
        for request in requests(&stream) {
            let columns = json!({"name": {}});
            let result = match request["method"].as_str() {
                Some("get_schema") => json!({"tables": {"Bridge": {"columns": columns}}}),
                Some("monitor") => {
                    let row = |n| (uuid::Uuid::from_u128(n).to_string(), json!({"new": {}}));
                    let rows: serde_json::Map<_, _> = (0..1_000).map(row).collect();
                    json!({ "Bridge": rows })
                }
                _ => continue,
            };
            send(
                &stream,
                &json!({"id": request["id"], "error": null, "result": result}),
            );
        }
    });
    let mut settings = OvsConfig::new(fake.target(), "h");
    settings.client = config(fake.target());
    settings.client.limits.memory = 100_000;
    let topology = OvsTopology::start(settings, graph).unwrap();
    while topology.counters().client.attempts < 3 {
        assert!(Instant::now() < end, "{:?}", topology.counters());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(topology.counters().client.connections, 0);
    assert!(!topology.counters().connected);
    drop(topology);

    // All in one update.
    let end = end_after_welcome(|stream| {
        // Columns without a name take little in a message and more in memory.
        let columns = ('a'..='h').map(|column| (column.to_string(), json!(1)));
        let columns: serde_json::Map<_, _> = columns.collect();
        let row = |n| {
            (
                uuid::Uuid::from_u128(n).to_string(),
                json!({"new": columns}),
            )
        };
        let rows: serde_json::Map<_, _> = (0..2_000).map(row).collect();
        let params = json!([1, {"Bridge": rows}]);
        send(stream, &json!({"method": "update", "params": params}));
    });
    assert_ends(&end, "an update is over the limit of 1048576 bytes");
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let fake = Fake::new(|stream| requests(&stream).for_each(drop));
    let (client, _ends) = fake.client();
    let end = Instant::now() + Duration::from_secs(20);
    while client.counters().attempts < 3 {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(10));
    }
    let why = client
        .wait_connected(Duration::from_millis(10))
        .unwrap_err();
    assert!(why.to_string().contains("no answer to an echo"), "{why}");
    assert!(client.transact(vec![]).is_err());
}

#[test]
fn a_server_that_only_answers_echoes_is_given_up() {
    let echoes = Arc::new(AtomicU64::new(0));
    let count = echoes.clone();
    let fake = Fake::new(move |stream| {
        send(
            &stream,
            &json!({"id": "mine", "method": "echo", "params": ["a", {"b": 1}]}),
        );
        for request in requests(&stream) {
            if request["method"] == "echo" {
                send(
                    &stream,
                    &json!({"id": request["id"], "error": null, "result": []}),
                );
            }
            if request["id"] == "mine" {
                assert_eq!(request["result"], json!(["a", {"b": 1}]));
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let (client, _ends) = fake.client();
    let why = client.wait_connected(Duration::from_secs(8)).unwrap_err();
    assert!(why.to_string().contains("no schema within 3 s"), "{why}");
    assert!(echoes.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_message_must_end_in_time_and_what_we_send_must_be_read() {
    let end = end_after_welcome(|mut stream| {
        let _ = stream.write_all(b"{\"x\":\"");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_ends(&end, "no end of a message within 3 s");

    // It does not read: what we write has nowhere to go.
    let end = end_after_welcome(|stream| {
        let echo = json!({"id": "x".repeat(900), "method": "echo", "params": ["y".repeat(60_000)]});
        while send(stream, &echo) {}
    });
    assert_ends(&end, "sending");
}

#[test]
fn requests_are_answered_or_refused_and_answers_nobody_waits_for_are_counted() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let heard = answers.clone();
    let fake = Fake::new(move |stream| {
        welcome(&stream);
        send(&stream, &json!({"id": 5, "method": "steal", "params": []}));
        send(
            &stream,
            &json!({"id": null, "method": "locked", "params": ["x"]}),
        );
        send(
            &stream,
            &json!({"id": 123_456, "result": {}, "error": null}),
        );
        send(
            &stream,
            &json!({"id": {"a": []}, "result": {}, "error": null}),
        );
        for request in requests(&stream) {
            match request["method"].as_str() {
                Some("transact") => {
                    let result = match request["params"][1]["n"].as_u64() {
                        Some(0) => json!([{"count": 1}]),
                        Some(1) => json!([{"error": "constraint violation", "details": "no"}]),
                        Some(2) => json!("x".repeat(20 << 10)),
                        Some(3) => json!(7),
                        _ => continue,
                    };
                    send(
                        &stream,
                        &json!({"id": request["id"], "error": null, "result": result}),
                    );
                }
                Some("echo") => {
                    send(&stream, &json!({"id": "echo", "error": null, "result": []}));
                }
                _ => heard.lock().unwrap().push(request),
            }
        }
    });
    let (client, _ends) = fake.client();
    client.wait_connected(Duration::from_secs(20)).unwrap();
    let transact = |n: u64| client.transact(vec![json!({ "n": n })]);
    assert_eq!(transact(0).unwrap(), [json!({"count": 1})]);
    let error = |n| transact(n).unwrap_err().to_string();
    assert_eq!(error(1), "OVSDB: refused: constraint violation (no)");
    assert_eq!(
        error(2),
        "OVSDB: an answer is over the limit of 16384 bytes"
    );
    assert!(error(3).contains("protocol"));
    assert_eq!(error(4), "OVSDB: no answer within 3 s");
    assert_eq!(client.counters().unknown, 4);
    assert_eq!(client.counters().disconnections, 0);
    let refused = json!({"id": 5, "result": null, "error": "unknown method"});
    assert_eq!(*answers.lock().unwrap(), [refused]);
}

#[test]
fn a_server_that_is_not_there_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("db.sock");
    let (sender, _ends) = channel();
    let monitored = || vec![Monitored::new("Bridge", &["name"])];
    let target = Target::Unix(socket.clone());
    let client = Client::start(config(target), monitored(), Ends(sender)).unwrap();
    let why = client
        .wait_connected(Duration::from_millis(100))
        .unwrap_err();
    assert!(why.to_string().contains("No such file"), "{why}");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            welcome(&stream);
            requests(&stream).for_each(drop);
        }
    });
    client.wait_connected(Duration::from_secs(20)).unwrap();
    drop(client);

    // One whose queue of connections is full.
    let socket = dir.path().join("full.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&socket).unwrap();
    let (sender, _ends) = channel();
    let target = Target::Unix(socket.clone());
    let client = Client::start(config(target), monitored(), Ends(sender)).unwrap();
    let why = client.wait_connected(Duration::from_secs(8)).unwrap_err();
    assert!(why.to_string().contains("connecting"), "{why}");
}

#[test]
fn tcp_is_as_good() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut stream: TcpStream = listener.accept().unwrap().0;
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).unwrap();
        let request: Value = serde_json::from_slice(&buffer[..length]).unwrap();
        let schema = json!({"tables": {}});
        let answer = json!({"id": request["id"], "result": schema, "error": null}).to_string();
        // In two parts, with space around.
        let (a, b) = answer.split_at(10);
        for part in [" \n", a, b, "\t "] {
            stream.write_all(part.as_bytes()).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        let length = stream.read(&mut buffer).unwrap();
        let request: Value = serde_json::from_slice(&buffer[..length]).unwrap();
        assert_eq!(request["params"][2], json!({}));
        let answer = json!({"id": request["id"], "result": {}, "error": null}).to_string();
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = stream.read(&mut buffer);
    });
    let (sender, ends) = channel();
    let monitored = vec![Monitored::new("Bridge", &["name"])];
    let client = Client::start(config(target), monitored, Ends(sender)).unwrap();
    client.wait_connected(Duration::from_secs(20)).unwrap();
    assert_eq!(ends.recv().unwrap(), "0 rows");
}
