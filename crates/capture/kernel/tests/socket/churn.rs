//! Many short connections between several processes: each exactly once, or in a counter of losses.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use skua_kernel::socket::SocketTracerConfig;
use skua_socket::{End, Opener, SocketState, SocketUpdate, TaskRule};
use skua_testkit::process::Process;

use crate::lab::*;

/// Connections of the ordinary test run; SKUA_TEST_CONNECTIONS changes it.
const CONNECTIONS: usize = 10_000;
/// In an emulated machine.
const CONNECTIONS_OF_A_GUEST: usize = 500;
const CLIENTS: usize = 3;
const WORKERS: usize = 2;

/// What a connection carries, by its client's port; the scripts have the same rules. Who closes
/// first: 0 the client, 1 the server, 2 the client with a RST, 3 both after a half close.
struct Plan {
    to_server: u64,
    to_client: u64,
    closing: u16,
}

impl Plan {
    fn of(port: u16) -> Self {
        let (closing, port) = (port % 4, u64::from(port));
        Self {
            to_server: 1 + port * 7 % 3000,
            // Shows that it was accepted before the RST.
            to_client: if closing == 2 { 1 } else { port * 13 % 2000 },
            closing,
        }
    }
}

const RULES: &str = "
import fcntl, os, select, socket, struct, sys, termios
def plan(port):
    return 1 + port * 7 % 3000, 1 if port % 4 == 2 else port * 13 % 2000, port % 4
def read(connection, count):
    while count:
        count -= len(connection.recv(count))
";

/// Workers that share a listener; when told to end, each says `pid connections bytes`.
const SERVER: &str = "
def work(listener, stop):
    served = total = 0
    while True:
        readable, _, _ = select.select([listener, stop], [], [])
        if listener not in readable:
            return served, total
        try:
            connection, (_, port) = listener.accept()
        except BlockingIOError:
            continue
        connection.setblocking(True)
        to_server, to_client, closing = plan(port)
        read(connection, to_server)
        if to_client:
            connection.sendall(bytes(to_client))
        if closing != 1:
            try:
                assert connection.recv(1) == b''
            except ConnectionResetError:
                assert closing == 2
        connection.close()
        served += 1
        total += to_server
listener = socket.create_server(('127.0.0.1', 0), backlog=4096)
listener.setblocking(False)
stop, ending = os.pipe()
workers = []
for _ in range(int(sys.argv[1])):
    result, output = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ending)
        served, total = work(listener, stop)
        os.write(output, b'%d %d %d\\n' % (os.getpid(), served, total))
        os._exit(0)
    os.close(output)
    workers.append((pid, result))
print(listener.getsockname()[1])
listener.close()
sys.stdin.readline()
os.close(ending)
for pid, result in workers:
    print(os.read(result, 99).decode().strip())
    os.waitpid(pid, 0)
";

/// Opens connections one after the other, from an address of its own.
const CLIENT: &str = "
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
IP_BIND_ADDRESS_NO_PORT = 24
total = 0
for _ in range(count):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    connection.bind((address, 0))
    connection.connect(('127.0.0.1', port))
    to_server, to_client, closing = plan(connection.getsockname()[1])
    connection.sendall(bytes(to_server))
    if closing == 3:
        connection.shutdown(socket.SHUT_WR)
    read(connection, to_client)
    if closing == 1:
        assert connection.recv(1) == b''
    elif closing == 2:
        # Both sides have acknowledged what they have.
        connection.setsockopt(socket.SOL_TCP, socket.TCP_QUICKACK, 1)
        while struct.unpack('i', fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
            pass
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    connection.close()
    total += to_server
print(count, total)
";

/// What processes did: pid -> connections, bytes to the server.
type Did = HashMap<u32, (usize, u64)>;

/// The load; `meanwhile` is called until it is over.
fn run(net: &Net, connections: usize, mut meanwhile: impl FnMut()) -> (Did, Did) {
    net.sysctl("ipv4/ip_local_port_range", "1024 65535");
    // Where TIME-WAIT does not fit, the last FIN is answered by a RST.
    net.sysctl("ipv4/tcp_max_tw_buckets", "1000000");
    let mut server = Process::python(net, &format!("{RULES}{SERVER}"), &[&WORKERS.to_string()]);
    let port = server.numbers()[0];
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let count = connections / CLIENTS + usize::from(number < connections % CLIENTS);
            let address = format!("127.0.1.{}", number + 1);
            let arguments = [&*address, &port.to_string(), &count.to_string()];
            Process::python(net, &format!("{RULES}{CLIENT}"), &arguments)
        })
        .collect();
    while clients.iter_mut().any(|c| c.is_running()) {
        meanwhile();
        std::thread::sleep(Duration::from_millis(5));
    }
    let opened = clients
        .into_iter()
        .map(|mut client| {
            let said = client.numbers();
            let pid = client.id();
            client.wait();
            (pid, (said[0] as usize, said[1].into()))
        })
        .collect();
    server.write_line("end");
    let accepted = (0..WORKERS)
        .map(|_| {
            let said = server.numbers();
            (said[0], (said[1] as usize, said[2].into()))
        })
        .collect();
    server.wait();
    (opened, accepted)
}

fn connections() -> usize {
    let ordinary = match std::env::var_os("SKUA_KERNEL_MATRIX") {
        Some(_) => CONNECTIONS_OF_A_GUEST,
        None => CONNECTIONS,
    };
    std::env::var("SKUA_TEST_CONNECTIONS").map_or(ordinary, |n| n.parse().unwrap())
}

/// Room also for what others on this host do meanwhile.
fn roomy() -> SocketTracerConfig {
    SocketTracerConfig {
        ring_bytes: 64 << 20,
        ..Default::default()
    }
}

/// Each record against what its connection was to carry; sums by process.
fn check(updates: &[SocketUpdate]) -> (Did, Did) {
    let (mut opened, mut accepted) = (Did::new(), Did::new());
    for update in updates {
        let tcp = update.tcp.unwrap();
        let (port, did, rules, reset) = match update.opener {
            Opener::Local => (
                update.local.port(),
                &mut opened,
                &[TaskRule::Connect][..],
                End::ResetLocal,
            ),
            Opener::Remote => (
                update.remote.unwrap().port(),
                &mut accepted,
                &[TaskRule::Accept][..],
                End::ResetRemote,
            ),
            Opener::Unknown => panic!("{update:#?}"),
        };
        let plan = Plan::of(port);
        let carried = match update.opener {
            Opener::Local => (tcp.bytes_sent, tcp.bytes_received),
            _ => (tcp.bytes_received, tcp.bytes_sent),
        };
        // From another CPU a RST may overtake the acknowledgement of what the server sent.
        let overtaken = plan.closing == 2 && carried == (plan.to_server, 0);
        if !(overtaken && update.opener == Opener::Remote) {
            assert_eq!(carried, (plan.to_server, plan.to_client), "{update:#?}");
        }
        let end = if plan.closing == 2 {
            reset
        } else {
            End::Closed
        };
        assert_eq!(update.end, Some(end), "{update:#?}");
        assert!(rules.contains(&update.task_rule), "{update:#?}");
        let sums = did.entry(update.task.pid).or_default();
        sums.0 += 1;
        sums.1 += plan.to_server;
    }
    (opened, accepted)
}

#[test]
fn each_connection_of_several_processes_is_there_exactly_once() {
    let net = Net::with_ipv6();
    let count = connections();
    let mut watch = Watch::with(&[&net], roomy());
    let mut updates = Vec::new();
    let did = run(&net, count, || watch.read_ended(&mut updates));
    let deadline = Instant::now() + PATIENCE;
    while updates.len() < 2 * count && Instant::now() < deadline {
        watch.read_ended(&mut updates);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    watch.read_ended(&mut updates);
    assert_eq!(watch.tracer.losses(), Default::default());
    updates.retain(|u| u.state != SocketState::Listen);
    assert_eq!(updates.len(), 2 * count);
    let ids: HashSet<_> = updates.iter().map(|u| u.id).collect();
    assert_eq!(ids.len(), updates.len());
    assert_eq!(check(&updates), did);
}

/// ns since the Unix epoch, as records have it.
fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos() as u64
}

#[test]
fn what_finds_no_room_in_the_ring_is_counted() {
    /// Clocks are converted at the moment of a drain.
    const BLUR_NS: u64 = 1_000_000;
    let count = connections().min(2000);
    let net = Net::with_ipv6();
    let mut small = Watch::with(
        &[&net],
        SocketTracerConfig {
            ring_bytes: 64 << 10,
            ..Default::default()
        },
    );
    // Sees the sockets of others, too, which fill the small ring alike.
    let mut large = Watch::with(&[&net], roomy());
    run(&net, 500, || {});
    let lost = small.tracer.losses();
    assert!(lost.ring_full > 0, "the ring is not full yet: {lost:?}");
    // From here on nothing finds room.
    let begin = now_ns();
    let before = small.tracer.losses();
    let begun = now_ns();
    let did = run(&net, count, || {});
    std::thread::sleep(Duration::from_millis(100));
    let end = now_ns();
    let after = small.tracer.losses();
    let ended = now_ns();
    let mut all = Vec::new();
    large.tracer.ended(&mut |u| all.push(*u)).unwrap();
    assert_eq!(large.tracer.losses(), Default::default());

    let lost = (after.ring_full - before.ring_full) as usize;
    let within = |from: u64, to: u64| {
        let those = all.iter().filter(|u| (from..=to).contains(&u.now_ns));
        those.count()
    };
    let least = within(begun + BLUR_NS, end - BLUR_NS);
    let most = within(begin - BLUR_NS, ended + BLUR_NS);
    println!("{lost} lost; {least} to {most} sockets ended, {count} connections of ours");
    assert!((least..=most).contains(&lost));
    assert_eq!((after.table_full, after.pairs_full), (0, 0));

    let ours = |u: &SocketUpdate| u.netns == number(&net) && u.state != SocketState::Listen;
    let mut second = all.clone();
    second.retain(|u| ours(u) && u.now_ns >= begin - BLUR_NS);
    assert_eq!(second.len(), 2 * count);
    assert_eq!(check(&second), did);
    // What was there before it was full is there still, and whole.
    let mut kept = Vec::new();
    small.read_ended(&mut kept);
    kept.retain(ours);
    assert!(kept.len() < 1000);
    check(&kept);
    // On the lower rungs each tracer has numbers of its own for sockets.
    let same = |k: &SocketUpdate, u: &SocketUpdate| (u.local, u.remote) == (k.local, k.remote);
    assert!(kept.iter().all(|k| all.iter().any(|u| same(k, u))));
}
