//! The same sockets as `ss` shows, with the same numbers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use skua_sockdiag::SockDiag;
use skua_socket::{Opener, Protocol, SocketState, SocketUpdate};
use skua_testkit::lab::{Net, root_tests};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A line of `ss -tianepOH`.
struct Line {
    state: SocketState,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    queues: (u32, u32),
    cookie: u64,
    pids: Vec<u32>,
    fields: HashMap<String, String>,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let state = match *words.first()? {
            "ESTAB" => SocketState::Established,
            "SYN-SENT" => SocketState::SynSent,
            "FIN-WAIT-1" => SocketState::FinWait1,
            "FIN-WAIT-2" => SocketState::FinWait2,
            "CLOSE-WAIT" => SocketState::CloseWait,
            "LAST-ACK" => SocketState::LastAck,
            "CLOSING" => SocketState::Closing,
            "LISTEN" => SocketState::Listen,
            _ => return None,
        };
        let mut fields = HashMap::new();
        for pair in words.windows(2) {
            if let Some((name, value)) = pair[0].split_once(':') {
                fields.insert(name.to_owned(), value.to_owned());
            } else {
                fields.insert(pair[0].to_owned(), pair[1].to_owned());
            }
        }
        let pids = line.split("pid=").skip(1);
        let number = |text: &str| text.split(',').next().unwrap().parse().unwrap();
        Some(Self {
            state,
            local: address(words[3]).unwrap(),
            remote: address(words[4]),
            queues: (words[1].parse().unwrap(), words[2].parse().unwrap()),
            cookie: u64::from_str_radix(fields.get("sk")?, 16).unwrap(),
            pids: pids.map(number).collect(),
            fields,
        })
    }

    fn number(&self, name: &str) -> u64 {
        self.fields
            .get(name)
            .map_or(0, |value| value.parse().unwrap())
    }

    /// Milliseconds with up to three digits after the point, in µs.
    fn micros(&self, name: &str, place: usize) -> u32 {
        self.fields.get(name).map_or(0, |value| {
            let value = value.split('/').nth(place).unwrap();
            (value.parse::<f64>().unwrap() * 1000.0).round() as u32
        })
    }
}

fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.rsplit_once(':')?;
    let ip: IpAddr = match ip.trim_matches(['[', ']']) {
        "*" => "::".parse().unwrap(),
        ip => ip.parse().unwrap(),
    };
    Some(SocketAddr::new(ip.to_canonical(), port.parse().ok()?))
}

/// A socket that children do not inherit.
fn tcp_socket(flags: SocketFlags) -> OwnedFd {
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

fn compare(line: &Line, ours: &SocketUpdate) {
    let both = format!("{ours:?}\n{:?}", line.fields);
    assert_eq!(ours.state, line.state, "{both}");
    assert_eq!(ours.local, line.local, "{both}");
    assert_eq!(ours.remote, line.remote, "{both}");
    if line.pids.is_empty() {
        assert_ne!(ours.task_rule, skua_socket::TaskRule::File, "{both}");
    } else {
        assert!(line.pids.contains(&ours.task.pid), "{both}");
        // Test process first, then its children: the last one started last.
        assert_eq!(ours.task.pid, *line.pids.iter().max().unwrap(), "{both}");
    }
    if line.state == SocketState::Listen {
        assert_eq!(ours.backlog, Some(line.queues), "{both}");
        assert_eq!(ours.tcp, None);
        return;
    }
    let tcp = ours.tcp.unwrap();
    assert_eq!(tcp.srtt_us, line.micros("rtt", 0), "{both}");
    assert_eq!(tcp.rttvar_us, line.micros("rtt", 1), "{both}");
    assert_eq!(tcp.min_rtt_us, line.micros("minrtt", 0), "{both}");
    assert_eq!(u64::from(tcp.cwnd), line.number("cwnd"), "{both}");
    assert_eq!(u64::from(tcp.mss), line.number("mss"), "{both}");
    assert_eq!(u64::from(tcp.lost), line.number("lost"), "{both}");
    assert_eq!(tcp.segments_sent, line.number("segs_out"), "{both}");
    assert_eq!(tcp.segments_received, line.number("segs_in"), "{both}");
    assert_eq!(tcp.bytes_retransmitted, line.number("bytes_retrans"));
    let retransmits = line.fields.get("retrans").map_or(0, |value| {
        value.split_once('/').unwrap().1.parse::<u32>().unwrap()
    });
    assert_eq!(tcp.retransmits, retransmits, "{both}");
    // All that was sent is acknowledged: the payload is known without any deduction.
    let payload = line.number("bytes_sent") - line.number("bytes_retrans");
    if line.number("unacked") == 0 {
        assert_eq!(tcp.bytes_sent, payload, "{both}");
        let fin = u64::from(line.state == SocketState::FinWait2);
        let syn = u64::from(ours.opener == Opener::Local);
        assert_eq!(line.number("bytes_acked"), payload + fin + syn, "{both}");
    }
    let fin = u64::from(line.state == SocketState::CloseWait);
    assert_eq!(
        tcp.bytes_received + fin,
        line.number("bytes_received"),
        "{both}"
    );
    let rate = line.fields.get("delivery_rate").map_or(0, |value| {
        value.trim_end_matches("bps").parse::<u64>().unwrap() / 8
    });
    assert_eq!(tcp.delivery_rate, rate, "{both}");
}

#[test]
fn hundreds_of_sockets_are_as_ss_shows_them() {
    if !root_tests() {
        return;
    }
    let net = Net::with_ipv6();
    let namespace = net.inside(skua_link::Namespace::own).unwrap();
    let mut probe = SockDiag::start(std::iter::once(&namespace)).unwrap();

    let connect = |to: SocketAddr| net.inside(|| TcpStream::connect(to).unwrap());
    let mut kept = Vec::new();
    let mut listeners = Vec::new();
    // IPv4, IPv6, and IPv4 in IPv6.
    for (address, to) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
    ] {
        let listener = net.inside(|| TcpListener::bind(address).unwrap());
        let port = listener.local_addr().unwrap().port();
        for number in 0..60 {
            let client = connect(SocketAddr::new(to.parse().unwrap(), port));
            let (server, _) = listener.accept().unwrap();
            let mut buffer = vec![1; 1 + number * 997];
            for _ in 0..1 + number % 4 {
                (&client).write_all(&buffer).unwrap();
                (&server).read_exact(&mut buffer).unwrap();
                (&server).write_all(&buffer[..number]).unwrap();
                (&client).read_exact(&mut buffer[..number]).unwrap();
            }
            match number % 5 {
                0 => client.shutdown(Shutdown::Write).unwrap(),
                1 => server.shutdown(Shutdown::Write).unwrap(),
                _ => {}
            }
            kept.push((client, server));
        }
        listeners.push(listener);
    }
    // A listening socket whose queue is full: attempts are repeated, and nobody has accepted.
    let full = net.inside(|| {
        let full = tcp_socket(SocketFlags::CLOEXEC);
        bind(&full, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        listen(&full, 0).unwrap();
        full
    });
    let to = SocketAddr::try_from(getsockname(&full).unwrap()).unwrap();
    let waits = net.inside(|| {
        let attempt = || {
            let socket = tcp_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            let _ = rustix::net::connect(&socket, &to);
            socket
        };
        std::array::from_fn::<_, 4, _>(|_| attempt())
    });
    // Another process holds some of them, too.
    let mut children: Vec<_> = kept
        .iter()
        .step_by(20)
        .map(|(client, _)| {
            let held = OwnedFd::from(client.try_clone().unwrap());
            let mut command = Command::new("sleep");
            command.arg("100").stdin(Stdio::from(held));
            command.spawn().unwrap()
        })
        .collect();
    // Delayed acknowledgements, and the first repetition of attempts.
    std::thread::sleep(Duration::from_millis(1500));

    // Between two lists of ours that agree nothing has changed.
    let open = |probe: &mut SockDiag| {
        let mut all = HashMap::new();
        probe.open(&mut |update| {
            if update.protocol == Protocol::Tcp {
                all.insert(update.id, *update);
            }
        });
        all
    };
    let still = |all: &HashMap<u64, SocketUpdate>| {
        let key = |update: &SocketUpdate| (update.state, update.tcp, update.task.pid);
        let mut all: Vec<_> = all.values().map(|u| (u.id, key(u))).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    };
    let compared = (0..20).find_map(|_| {
        let before = open(&mut probe);
        let text = net.exec("ss -tianepOH");
        let after = open(&mut probe);
        (still(&before) == still(&after)).then_some((text, after))
    });
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (text, ours) = compared.expect("the sockets never kept still");
    let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
    assert!(lines.len() > 360, "{}", lines.len());
    for line in &lines {
        let found = ours.get(&line.cookie);
        compare(line, found.unwrap_or_else(|| panic!("{}", line.local)));
    }
    assert_eq!(lines.len(), ours.len(), "{text}");
    let retransmits = |update: &&SocketUpdate| update.tcp.is_some_and(|tcp| tcp.retransmits > 0);
    assert!(ours.values().filter(retransmits).count() > 0);
    for state in [
        SocketState::SynSent,
        SocketState::FinWait2,
        SocketState::CloseWait,
    ] {
        assert!(ours.values().any(|update| update.state == state));
    }
    drop((waits, full, listeners, kept));
}
