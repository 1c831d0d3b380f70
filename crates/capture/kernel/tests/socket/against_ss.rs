//! What a look shows, against what iproute2's `ss` does, for sockets in all states.

use std::{
    collections::HashMap,
    io::Write as _,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd as _, OwnedFd},
    process::Stdio,
    time::{Duration, Instant},
};

use skua_socket::{SocketState, SocketUpdate};
use skua_testkit::process::Process;

use crate::lab::*;

/// A socket as `ss` prints it: its numbers by name, as text.
#[derive(Debug)]
struct Shown {
    state: SocketState,
    queues: (u32, u32),
    local: SocketAddr,
    remote: Option<SocketAddr>,
    pids: Vec<u32>,
    numbers: HashMap<String, String>,
}

impl Shown {
    fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).map_or(0, |v| v.parse().unwrap())
    }

    /// Of a value `a/b` in milliseconds both parts, µs.
    fn micros(&self, name: &str) -> Vec<u32> {
        let values = self.numbers.get(name).map_or("0/0", |v| v);
        let micros = |v: &str| (v.parse::<f64>().unwrap() * 1000.0).round() as u32;
        values.split('/').map(micros).collect()
    }
}

fn address(text: &str) -> Option<SocketAddr> {
    let text = text
        .split_once('%')
        .map_or(text.to_owned(), |(host, rest)| {
            format!("{host}{}", &rest[rest.find(':').unwrap()..])
        });
    text.parse().ok()
}

fn state(name: &str) -> Option<SocketState> {
    Some(match name {
        "ESTAB" => SocketState::Established,
        "SYN-SENT" => SocketState::SynSent,
        "FIN-WAIT-1" => SocketState::FinWait1,
        "FIN-WAIT-2" => SocketState::FinWait2,
        "CLOSE-WAIT" => SocketState::CloseWait,
        "LAST-ACK" => SocketState::LastAck,
        "LISTEN" => SocketState::Listen,
        "CLOSING" => SocketState::Closing,
        // Not whole sockets: without numbers, and no records.
        "SYN-RECV" | "TIME-WAIT" => return None,
        other => panic!("{other}"),
    })
}

/// A socket in all lists: namespace and addresses. Cookies are not known to all kernels' programs.
type Key = (u32, SocketAddr, Option<SocketAddr>);

/// All TCP sockets of the namespace, but those that are no whole sockets.
fn shown(net: &Net) -> HashMap<Key, Shown> {
    let output = net
        .command("ss")
        .args(["--no-header", "-tinpOea"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let sockets = text.lines().filter_map(show);
    sockets
        .map(|shown| ((number(net), shown.local, shown.remote), shown))
        .collect()
}

fn show(line: &str) -> Option<Shown> {
    let mut words = line.split_whitespace();
    let state = state(words.next()?)?;
    let queues = [words.next()?, words.next()?].map(|v| v.parse().unwrap());
    let (local, remote) = (address(words.next()?)?, address(words.next()?));
    let (mut pids, mut before) = (Vec::new(), "");
    let mut numbers = HashMap::<String, String>::new();
    for word in words {
        if let Some(users) = word.strip_prefix("users:") {
            let of = users.split("pid=").skip(1);
            pids.extend(of.map(|v| v.split(',').next().unwrap().parse::<u32>().unwrap()));
        } else if before == "delivery_rate" {
            numbers.insert(before.into(), word.trim_end_matches("bps").to_owned());
        } else if let Some((name, value)) = word.split_once(':') {
            numbers.insert(name.into(), value.into());
        }
        before = word;
    }
    Some(Shown {
        state,
        queues: (queues[0], queues[1]),
        local,
        remote,
        pids,
        numbers,
    })
}

/// What differs, by name, beside what `ss` has; none if all is the same.
fn differences(ours: &SocketUpdate, ss: &Shown, opened_here: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut same = |what: &str, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
        let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
        if ours != theirs {
            found.push(format!("{what}: {ours}, ss has {theirs}"));
        }
    };
    same("state", &ours.state, &ss.state);
    same("local", &ours.local, &ss.local);
    // An orphan is nobody's any more; we remember whose it was.
    if !ss.pids.is_empty() {
        same("process", &vec![ours.task.pid], &ss.pids);
    }
    if ss.state == SocketState::Listen {
        same("backlog", &ours.backlog, &Some(ss.queues));
        return found;
    }
    same("remote", &ours.remote, &ss.remote);
    let tcp = ours.tcp.unwrap();
    // docs/sockets.md, section 2.
    let syn = opened_here && ss.state != SocketState::SynSent;
    let fin_acknowledged = ss.state == SocketState::FinWait2;
    let fin_received = matches!(
        ss.state,
        SocketState::CloseWait | SocketState::LastAck | SocketState::Closing
    );
    let acknowledged = ss.number("bytes_acked") - u64::from(syn) - u64::from(fin_acknowledged);
    let received = ss.number("bytes_received") - u64::from(fin_received);
    same("bytes sent", &tcp.bytes_sent, &acknowledged);
    same("bytes received", &tcp.bytes_received, &received);
    let sent_again = ss.number("bytes_retrans");
    same("bytes again", &tcp.bytes_retransmitted, &sent_again);
    same("segments out", &tcp.segments_sent, &ss.number("segs_out"));
    same("segments in", &tcp.segments_received, &ss.number("segs_in"));
    same("rtt", &[tcp.srtt_us, tcp.rttvar_us], &ss.micros("rtt"));
    same("min rtt", &tcp.min_rtt_us, &ss.micros("minrtt")[0]);
    same("cwnd", &u64::from(tcp.cwnd), &ss.number("cwnd"));
    same("mss", &u64::from(tcp.mss), &ss.number("mss"));
    same("lost", &u64::from(tcp.lost), &ss.number("lost"));
    let again = ss.numbers.get("retrans").map_or("0", |v| v);
    let again = again.rsplit('/').next().unwrap().parse::<u32>().unwrap();
    same("retransmits", &tcp.retransmits, &again);
    // In bits there.
    let rate = ss.number("delivery_rate") / 8;
    same("delivery rate", &tcp.delivery_rate, &rate);
    found
}

/// Connections from one process, one for each of the numbers of bytes on its command line, which
/// stay open until a line comes.
const OTHERS: &str = "
import socket, sys
connections = [socket.create_connection(('192.0.2.1', int(sys.argv[1]))) for _ in sys.argv[2:]]
for connection, count in zip(connections, sys.argv[2:]):
    connection.sendall(bytes(int(count)))
print('ready')
sys.stdin.readline()
";

/// Connections of one kind.
fn several(count: usize, listener: &TcpListener, from: &Net) -> Vec<(TcpStream, TcpStream)> {
    let address = listener.local_addr().unwrap();
    let clients = from.inside(|| {
        let connect = |_| TcpStream::connect(address).unwrap();
        (0..count).map(connect).collect::<Vec<_>>()
    });
    let accepted = clients.into_iter().map(|client| {
        let (server, _) = listener.accept().unwrap();
        (client, server)
    });
    accepted.collect()
}

/// A request that nobody answers.
fn unanswered(net: &Net, to: SocketAddr) -> OwnedFd {
    net.inside(|| {
        let socket = tcp_socket();
        // SAFETY: no pointers; the descriptor is ours.
        unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        with_address(libc::connect, &socket, to).unwrap_err();
        socket
    })
}

#[test]
fn a_look_equals_what_ss_shows() {
    let (a, b) = pair();
    let mut watch = Watch::new(&[&a, &b]);
    let here = a.inside(|| listen("192.0.2.1"));
    let there = b.inside(|| listen("192.0.2.2"));
    let local = a.inside(|| listen("127.0.0.1"));
    let _idle: Vec<_> = (0..5).map(|_| a.inside(|| listen("::1"))).collect();

    // Data both ways, on loopback, over veth, of other processes; some half closed.
    let mut open = several(60, &local, &a);
    open.extend(several(60, &there, &a));
    for (number, (client, server)) in open.iter_mut().enumerate() {
        client.write_all(&vec![1; number * 500 + 1]).unwrap();
        read_some(server, number * 500 + 1);
        server.write_all(&vec![2; number * 90]).unwrap();
        read_some(client, number * 90);
        match number % 6 {
            4 => client.shutdown(Shutdown::Write).unwrap(),
            5 => server.shutdown(Shutdown::Write).unwrap(),
            _ => {}
        }
    }
    let sizes: Vec<_> = (0..20).map(|n| (n * 3000 + 1).to_string()).collect();
    let port = here.local_addr().unwrap().port().to_string();
    let arguments: Vec<_> = std::iter::once(&*port)
        .chain(sizes.iter().map(String::as_str))
        .collect();
    let mut scripts: Vec<_> = (0..3)
        .map(|_| Process::python(&b, OTHERS, &arguments))
        .collect();
    let mut taken = Vec::new();
    for _ in 0..3 * sizes.len() {
        taken.push(here.accept().unwrap().0);
    }
    for script in &mut scripts {
        assert_eq!(script.line(), "ready");
    }
    for (number, server) in taken.iter_mut().enumerate() {
        if number % 2 == 0 {
            server.write_all(&[3; 700]).unwrap();
        }
    }

    // From here on nothing of ours arrives in b: a FIN that nobody acknowledges.
    let fin_wait = several(5, &there, &a);
    let closing = several(5, &there, &a);
    let last_ack = several(5, &there, &a);
    let sending = several(5, &there, &a);
    for (_, server) in &last_ack {
        server.shutdown(Shutdown::Write).unwrap();
    }
    let waiting = several(3, &there, &a);
    std::thread::sleep(Duration::from_millis(300));
    a.ip("neigh replace 192.0.2.2 lladdr 02:00:00:00:00:99 dev veth0 nud permanent");
    for (client, _) in fin_wait.iter().chain(&closing).chain(&last_ack) {
        client.shutdown(Shutdown::Write).unwrap();
    }
    for (_, server) in &closing {
        server.shutdown(Shutdown::Write).unwrap();
    }
    for (client, _) in &sending {
        (&*client).write_all(&[4; 5000]).unwrap();
    }
    // Closed by their process, too.
    drop(waiting);
    let asking: Vec<_> = (0..5)
        .map(|_| unanswered(&a, there.local_addr().unwrap()))
        .collect();
    std::thread::sleep(Duration::from_secs(1));

    let states = compare(&mut watch, &[&a, &b]);
    for (wanted, count) in [
        (SocketState::Established, 150),
        (SocketState::Listen, 8),
        (SocketState::SynSent, 5),
        (SocketState::FinWait1, 5),
        (SocketState::FinWait2, 30),
        (SocketState::CloseWait, 30),
        (SocketState::LastAck, 5),
        (SocketState::Closing, 5),
    ] {
        let there_are = states.get(&wanted).copied().unwrap_or_default();
        assert!(there_are >= count, "{wanted:?}: {there_are}");
    }
    for mut script in scripts {
        script.write_line("end");
        script.wait();
    }
    drop((open, taken, fin_wait, closing, last_ack, sending, asking));
}

/// Compares until each socket was the same once: timers may go between two looks. How many there
/// are in each state.
pub fn compare(watch: &mut Watch, nets: &[&Net]) -> HashMap<SocketState, usize> {
    let mut states = HashMap::new();
    let mut left: Option<HashMap<Key, Vec<String>>> = None;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = watch.open();
        let ss: HashMap<_, _> = nets.iter().flat_map(|net| shown(net)).collect();
        let mut now = HashMap::new();
        states.clear();
        for update in &before {
            let key = (update.netns, update.local, update.remote);
            let Some(shown) = ss.get(&key) else {
                now.insert(key, vec![format!("ss has it not: {update:?}")]);
                continue;
            };
            *states.entry(update.state).or_default() += 1;
            let opened = update.opener == skua_socket::Opener::Local;
            now.insert(key, differences(update, shown, opened));
        }
        for (key, shown) in &ss {
            let missing = || vec![format!("only ss has it: {shown:?}")];
            now.entry(*key).or_insert_with(missing);
        }
        // What differed at each comparison so far.
        let differing = now.into_iter().filter(|(key, what)| {
            !what.is_empty() && left.as_ref().is_none_or(|left| left.contains_key(key))
        });
        let differing: HashMap<_, _> = differing.collect();
        if differing.is_empty() {
            return states;
        }
        assert!(Instant::now() < deadline, "{differing:#?}");
        left = Some(differing);
        std::thread::sleep(Duration::from_millis(200));
    }
}
