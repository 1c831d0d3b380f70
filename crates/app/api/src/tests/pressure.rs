//! Clients that are slow, many or greedy.

use std::{
    io::{Read as _, Write as _},
    sync::{Condvar, OnceLock},
    thread,
    time::Instant,
};

use axum::routing::get;
use serde_json::json;
use skua_topology::{Map, Node};

use skua_server::fair::FairLimits;

use crate::tests::*;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn hundreds_of_half_open_and_slow_connections_keep_nobody_out() {
    let running = Running::start(
        "",
        Limits {
            headers: LONG,
            ..Limits::default()
        },
        Router::new(),
    );
    let mut held = Vec::new();
    for n in 0..500 {
        let mut stream = running.connect();
        // Half of them send requests again and again.
        if n % 2 == 0 {
            write!(
                stream,
                "GET /api/summary HTTP/1.1\r\nHost: {}\r\n",
                running.address
            )
            .unwrap();
        }
        held.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(running.get("/api/summary").status, 200);
    }
    // More than the limit: the oldest waiting ones are closed.
    for _ in 0..100 {
        let mut stream = running.connect();
        write!(stream, "GET / HTTP/1.1\r\nX: ").unwrap();
        held.push(stream);
    }
    for stream in &mut held[500..] {
        write!(stream, "a").unwrap();
    }
    for _ in 0..20 {
        assert_eq!(running.get("/api/summary").status, 200);
    }
    assert!(running.connections.count() <= Limits::default().connections);
    // The first is closed, the last is not.
    assert!(matches!(held[0].read(&mut [0]), Ok(0) | Err(_)));
    let mut last = held.pop().unwrap();
    let rest = format!(
        "\r\nHost: localhost\r\nX-Auth-Token: {}\r\nConnection: close\r\n\r\n",
        running.bearer
    );
    last.write_all(rest.as_bytes()).unwrap();
    assert_eq!(Reply::read(last).status, 200);
}

#[test]
fn a_request_that_panics_ends_with_500_and_is_counted_and_others_go_on() {
    let faulty = Router::new()
        .route("/task", get(async || -> String { panic!("on purpose") }))
        .route(
            "/work",
            get(async || skua_server::blocking::<String>(|| panic!("on purpose")).await),
        );
    let running = Running::start("", Limits::default(), faulty);
    let before = skua_process::panics::requests();
    for path in ["/task", "/work", "/task", "/work"] {
        assert_eq!(running.get(path).status, 500, "{path}");
        assert_eq!(running.get("/api/summary").status, 200);
    }
    let metrics = running.get("/metrics").body;
    let line = |line: &&str| line.starts_with("skua_request_panics_total ");
    let line = metrics.lines().find(line).unwrap();
    let counted: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(counted >= before + 4, "{line}");
}

/// Resident memory of this process, in MiB: now, and at most.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() >> 10
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// Undoes the chunked coding; fails where the end is missing.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
}

#[test]
fn an_answer_of_many_flows_is_sent_while_it_is_written() {
    const FLOWS: u32 = 20_000;
    let running = Running::plain();
    running.drain(sockets::updates(FLOWS, 1));
    let body = json!({"GremlinQuery": "G.Flows()"}).to_string();
    let (before, _) = resident();
    let begin = Instant::now();
    let reply = running.ask(
        "POST /api/topology\r\nContent-Type: application/json",
        &body,
    );
    let took = begin.elapsed();
    assert_eq!(reply.status, 200, "{}", reply.head);
    let bytes = reply.body.len() >> 20;
    let (after, most) = resident();
    println!("{took:?}, {bytes} MiB; resident before {before}, after {after}, at most {most} MiB");
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    let flows: Value = serde_json::from_str(&unchunked(&reply.body)).unwrap();
    assert_eq!(flows.as_array().unwrap().len(), FLOWS as usize);
}

/// An expression that libpcap compiles slowly.
fn slow_filter(first: u16) -> String {
    let ports: Vec<String> = (0..120).map(|n| (first + n * 7).to_string()).collect();
    format!("/api/flows?filter=port+{}", ports.join("+or+"))
}

#[test]
fn filters_that_compile_slowly_delay_no_other_request() {
    let running = Running::plain();
    let mut slow = Vec::new();
    for n in 0..4 {
        let mut stream = running.connect();
        let head = format!("GET {}", slow_filter(1_000 + n));
        let request = running.request(&head, "");
        stream.write_all(request.as_bytes()).unwrap();
        slow.push(stream);
    }
    for _ in 0..3 {
        assert_eq!(running.get("/health").status, 200);
    }
    let waiting = slow.iter().filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        let answered = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        !answered
    });
    assert!(
        waiting.count() > 0,
        "health is answered while filters are compiled"
    );
    for stream in slow {
        assert_eq!(Reply::read(stream).status, 200);
    }
}

#[test]
fn a_filter_with_a_name_is_refused_without_a_dns_query() {
    let running = Running::plain();
    let reply = running.get("/api/flows?filter=host+example.com");
    assert_eq!(reply.status, 400);
    let text = "names of hosts and networks are not resolved: give the address of 'example.com'";
    assert!(reply.body.contains(text), "{}", reply.body);
    let reply =
        running.get(&slow_filter(1).replace("port+1+", &format!("port+1{}+", "+or+2".repeat(300))));
    assert_eq!(reply.status, 400);
    assert!(
        reply.body.contains("the expression is too long"),
        "{}",
        reply.body
    );
}

#[test]
fn a_silent_client_is_disconnected() {
    let running = Running::start(
        "",
        Limits {
            headers: SHORT,
            ..Limits::default()
        },
        Router::new(),
    );
    let mut silent = running.connect();
    let mut slow = running.connect();
    write!(slow, "GET / HTTP/1.1\r\nHost: ").unwrap();
    // Idle after an answer.
    let mut idle = running.connect();
    write!(idle, "GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    for stream in [&mut silent, &mut slow, &mut idle] {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    wait_for("end of all", || {
        (running.connections.count() == 0).then_some(())
    });
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let running = Running::start(
        "",
        Limits {
            body: SHORT,
            ..Limits::default()
        },
        Router::new(),
    );
    for path in ["/api/topology", "/api/addresses", "/login"] {
        let mut stream = running.connect();
        let head = format!("POST {path}\r\nContent-Type: application/json\r\nContent-Length: 100");
        stream
            .write_all(running.request(&head, "").as_bytes())
            .unwrap();
        stream.write_all(b"{\"Gremlin").unwrap();
        let reply = Reply::read(stream);
        assert_eq!(reply.status, 408, "{reply:?}");
    }
}

fn big_graph(running: &Running) {
    let mut graph = running.graph.write();
    let text = "x".repeat(10_000);
    for n in 0..4_000 {
        let metadata = Map::from([("Name", text.as_str().into())]);
        graph
            .add_node(Node::new(&n.to_string(), "here", metadata), 1)
            .unwrap();
    }
}

#[test]
fn an_answer_that_no_client_reads_is_cancelled() {
    let running = Running::start(
        "",
        Limits {
            reading: SHORT,
            ..Limits::default()
        },
        Router::new(),
    );
    big_graph(&running);
    let mut deaf = running.connect();
    deaf.write_all(running.request("GET /api/topology", "").as_bytes())
        .unwrap();
    // Its first bytes are here, so it is being written.
    deaf.read_exact(&mut [0; 100]).unwrap();
    wait_for("end of the connection", || {
        (running.connections.count() == 0).then_some(())
    });
    // A client that reads gets all of it.
    let reply = running.get("/api/topology");
    let whole = unchunked(&reply.body);
    assert!(whole.len() > 40_000_000 && whole.ends_with("]\n"));
}

/// Work that waits for a signal.
#[derive(Default)]
struct Barrier {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Barrier {
    fn wait(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[test]
fn queries_of_one_client_are_not_in_the_way_of_others() {
    static BARRIER: OnceLock<Barrier> = OnceLock::new();
    let barrier = BARRIER.get_or_init(Barrier::default);
    let slow = get(|| {
        skua_server::blocking(|| {
            barrier.wait();
            Ok(skua_server::answer::Answer::of(&json!("late")))
        })
    });
    let limits = Limits {
        work: FairLimits {
            patience: LONG,
            ..Limits::default().work
        },
        ..Limits::default()
    };
    let running = Arc::new(Running::start(
        "",
        limits,
        Router::new().route("/slow", slow),
    ));
    let greedy: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = running.connect_from([127, 0, 0, 2]);
            stream
                .write_all(running.request("GET /slow", "").as_bytes())
                .unwrap();
            thread::spawn(move || Reply::read(stream))
        })
        .collect();
    let most = limits.work.running_of_one + limits.work.waiting_of_one;
    wait_for("refusals", || {
        let refused = greedy.iter().filter(|t| t.is_finished()).count();
        (refused == 100 - most).then_some(())
    });
    for _ in 0..20 {
        let other = format!("GET /api/summary\r\nX-Auth-Token: {}", running.other);
        assert_eq!(running.ask(&other, "").status, 200);
    }
    // The greedy client gets a Retry-After, and cheap requests are still answered.
    let own = || running.connect_from([127, 0, 0, 2]);
    let refused = running.ask_over(own(), "GET /api/summary", "");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(running.ask_over(own(), "GET /api", "").status, 200);
    barrier.open();
    let replies: Vec<_> = greedy
        .into_iter()
        .map(|t| t.join().unwrap().status)
        .collect();
    assert_eq!(replies.iter().filter(|s| **s == 200).count(), most);
    assert_eq!(replies.iter().filter(|s| **s == 503).count(), 100 - most);
}

#[test]
fn too_much_is_refused() {
    let running = Running::plain();
    let json = "Content-Type: application/json";
    let long = format!("{{\"GremlinQuery\": \"{}\"}}", "G".repeat(600 << 10));
    let reply = running.ask(&format!("POST /api/topology\r\n{json}"), &long);
    assert_eq!(reply.status, 413, "{reply:?}");
    let mut stream = running.connect();
    let mut head = running.request("GET /", "").trim_end().to_owned();
    head += &format!("\r\nX: {}\r\n\r\n", "y".repeat(64 << 10));
    // The answer may arrive before all is sent.
    let _ = stream.write_all(head.as_bytes());
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    assert_eq!(running.get("/api").status, 200);
}

#[test]
fn health_says_so_when_requests_get_503() {
    let barrier = Arc::new(Barrier::default());
    let waiting = barrier.clone();
    let slow = get(move || {
        let barrier = waiting.clone();
        skua_server::blocking(move || {
            barrier.wait();
            Ok(skua_server::answer::Answer::of(&json!("late")))
        })
    });
    let limits = Limits {
        work: FairLimits {
            running: 2,
            running_of_one: 2,
            patience: SHORT,
            ..Limits::default().work
        },
        ..Limits::default()
    };
    let running = Arc::new(Running::start(
        "",
        limits,
        Router::new().route("/slow", slow),
    ));
    let health = || ["/health", "/ready"].map(|path| running.get(path).status);
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = running.connect();
            let request = running.request("GET /slow", "");
            stream.write_all(request.as_bytes()).unwrap();
            thread::spawn(move || Reply::read(stream).status)
        })
        .collect();
    wait_for("a refusal", || {
        (running.get("/api/summary").status == 503).then_some(())
    });
    wait_for("the same from health", || {
        (health() == [503, 503]).then_some(())
    });
    let reply = running.get("/health");
    assert!(
        reply.body.contains("no work has ended for"),
        "{}",
        reply.body
    );
    assert_eq!(running.get("/api/summary").status, 503);
    barrier.open();
    for held in held {
        assert_eq!(held.join().unwrap(), 200);
    }
    assert_eq!(running.get("/api/summary").status, 200);
    assert_eq!(health(), [200, 200]);
}
