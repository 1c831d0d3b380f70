//! Whose socket: the hard cases.

use std::{
    io::Write as _,
    net::TcpStream,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use skua_socket::{End, Opener, SocketState, TaskRule};
use skua_testkit::process::Process;

use crate::lab::*;

/// accept(2) without a wish to know who called: no hook of control groups sees it.
fn accept_unnamed(listener: &std::net::TcpListener) -> TcpStream {
    // SAFETY: null pointers are allowed; a new descriptor that nobody else owns.
    unsafe {
        let socket = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        );
        assert!(socket >= 0);
        OwnedFd::from_raw_fd(socket).into()
    }
}

/// Whether the programs see every accept, not only those that ask for the address.
fn sees_every_accept(watch: &Watch) -> bool {
    watch
        .tracer
        .hooks()
        .iter()
        .any(|h| h.capability == "accept" && h.state == skua_socket::HookState::Active)
}

#[test]
fn a_thread_connects_and_another_sends_and_closes() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let listener = net.inside(|| listen("127.0.0.1"));
    let (client, server) = net.inside(|| {
        std::thread::Builder::new()
            .name("other-thread".into())
            .spawn({
                let listener = listener.try_clone().unwrap();
                move || connect(&listener)
            })
            .unwrap()
            .join()
            .unwrap()
    });
    std::thread::spawn(move || {
        (&client).write_all(b"x").unwrap();
        drop((client, server));
    })
    .join()
    .unwrap();
    let (opened, accepted) = watch.both_ends();
    assert_me(&opened.task);
    assert_me(&accepted.task);
}

#[test]
fn a_process_of_a_few_milliseconds() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let listener = net.inside(|| listen("127.0.0.1"));
    let port = listener.local_addr().unwrap().port();
    let child = net
        .command("/bin/bash")
        .args(["-c", &format!("echo hello >/dev/tcp/127.0.0.1/{port}")])
        .spawn()
        .unwrap();
    let pid = child.id();
    let (mut server, _) = listener.accept().unwrap();
    assert_eq!(read_all(&mut server), 6);
    { child }.wait().unwrap();
    drop(server);
    let (opened, _) = watch.both_ends();
    assert_eq!(opened.task.pid, pid);
    assert_eq!(text(&opened.task.exe), "bash");
    assert_eq!(text(&opened.task.comm), "bash");
    assert_eq!(opened.task_rule, TaskRule::Connect);
    assert_eq!(opened.tcp.unwrap().bytes_sent, 6);
    assert!(opened.task.start_ns > 0 && opened.task.cgroup > 0);
}

#[test]
fn accepted_without_a_name_is_known_at_close() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let listener = net.inside(|| listen("127.0.0.1"));
    let client = net.inside(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let server = accept_unnamed(&listener);
    drop((server, client));
    let (_, accepted) = watch.both_ends();
    let expected = match sees_every_accept(&watch) {
        true => TaskRule::Accept,
        false => TaskRule::Close,
    };
    assert_eq!(accepted.task_rule, expected);
    assert_me(&accepted.task);
}

/// Workers that each accept one connection from a listener made before they were, echo one byte,
/// say `pid peer-port`, and close when told.
const PRE_FORKED: &str = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], os.getpid())
workers = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        if sys.argv[1] == 'named':
            connection, _ = listener.accept()
        else:
            import ctypes
            descriptor = ctypes.CDLL(None).accept(listener.fileno(), None, None)
            connection = socket.socket(fileno=descriptor)
        connection.send(connection.recv(1))
        connection.recv(1)
        connection.close()
        os._exit(0)
    workers.append(pid)
print(*workers)
for pid in workers:
    os.waitpid(pid, 0)
";

fn pre_forked(how: &str) {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let mut script = Process::python(&net, PRE_FORKED, &[how]);
    let [port, master] = script.numbers()[..] else {
        panic!()
    };
    let workers = script.numbers();
    let mut clients: Vec<_> = (0..2)
        .map(|_| net.inside(|| TcpStream::connect(("127.0.0.1", port as u16)).unwrap()))
        .collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        read_some(client, 1);
    }
    let named = how == "named" || sees_every_accept(&watch);
    let expected = if named {
        TaskRule::Accept
    } else {
        TaskRule::File
    };
    let mut open = watch.open();
    open.retain(|u| u.opener == Opener::Remote);
    assert_eq!(open.len(), 2);
    assert!(open.iter().all(|u| u.task_rule == expected), "{open:#?}");
    let listening = watch.open_one(SocketState::Listen);
    assert_eq!(
        (listening.task.pid, listening.task_rule),
        (master, TaskRule::Connect)
    );
    drop(clients);
    let mut ended = watch.connections(4);
    ended.retain(|u| u.opener == Opener::Remote);
    let mut pids: Vec<_> = ended.iter().map(|u| u.task.pid).collect();
    pids.sort_unstable();
    let mut workers = workers;
    workers.sort_unstable();
    assert_eq!(pids, workers);
    assert!(ended.iter().all(|u| u.task_rule == expected), "{ended:#?}");
    script.wait();
}

#[test]
fn pre_forked_workers_accept() {
    pre_forked("named");
}

#[test]
fn pre_forked_workers_accept_without_a_name() {
    pre_forked("unnamed");
}

/// Accepts, and passes the connection to a child that was there before.
const PASSING: &str = "
import ctypes, os, socket, sys
ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    ours.close()
    _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
    connection = socket.socket(fileno=descriptors[0])
    theirs.send(b'x')
    connection.recv(1)
    connection.close()
    os._exit(0)
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], os.getpid(), child)
descriptor = ctypes.CDLL(None).accept(listener.fileno(), None, None)
socket.send_fds(ours, [b'x'], [descriptor])
os.close(descriptor)
ours.recv(1)
print('passed')
os.waitpid(child, 0)
";

#[test]
fn a_descriptor_is_passed_to_another_process() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let mut script = Process::python(&net, PASSING, &[]);
    let [port, parent, child] = script.numbers()[..] else {
        panic!()
    };
    let client = net.inside(|| TcpStream::connect(("127.0.0.1", port as u16)).unwrap());
    assert_eq!(script.line(), "passed");
    let mut open = watch.open();
    open.retain(|u| u.opener == Opener::Remote);
    assert_eq!(open.len(), 1);
    // By the contract accept goes before the file table.
    let expected = match sees_every_accept(&watch) {
        true => (parent, TaskRule::Accept),
        false => (child, TaskRule::File),
    };
    assert_eq!((open[0].task.pid, open[0].task_rule), expected);
    drop(client);
    let (_, accepted) = watch.both_ends();
    assert_eq!((accepted.task.pid, accepted.task_rule), expected);
    script.wait();
}

/// Has a socket, and starts a program: the child of vfork(2) has a copy of the descriptor until it
/// executes, which it does not before somebody opens the pipe.
const SPAWNING: &str = "
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
print(os.getpid())
child = os.posix_spawn('/bin/true', ['true'], {},
    file_actions=[(os.POSIX_SPAWN_OPEN, 99, sys.argv[1], os.O_RDONLY, 0)])
os.waitpid(child, 0)
";

#[test]
fn a_program_that_is_being_started_has_no_sockets_of_its_parent() {
    let net = Net::with_ipv6();
    let pipe = std::env::temp_dir().join(format!("{}-pipe", net.name));
    let pipe = pipe.to_str().unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, 0o600.into()).unwrap();
    let mut script = Process::python(&net, SPAWNING, &[pipe]);
    let parent = script.numbers()[0];
    let children = format!("/proc/{parent}/task/{parent}/children");
    while std::fs::read_to_string(&children).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let mut watch = Watch::new(&[&net]);
    let update = watch.open_one(SocketState::UdpUnconnected);
    std::fs::write(pipe, "").unwrap();
    script.wait();
    std::fs::remove_file(pipe).unwrap();
    assert_eq!(
        (update.task.pid, update.task_rule),
        (parent, TaskRule::File)
    );
}

/// Has a connection; then a child has it, too, and then only the child.
const INHERITING: &str = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
connection = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
connection.send(b'12345')
server.recv(5)
server.send(b'123')
connection.recv(3)
print(os.getpid())
sys.stdin.readline()
waiting, leaving = os.pipe()
child = os.fork()
if child == 0:
    os.close(leaving)
    os.read(waiting, 1)
    os._exit(0)
print(child)
sys.stdin.readline()
connection.close()
server.close()
listener.close()
print('closed')
sys.stdin.readline()
os.close(leaving)
os.waitpid(child, 0)
";

#[test]
fn older_than_the_tracer() {
    let net = Net::with_ipv6();
    let mut script = Process::python(&net, INHERITING, &[]);
    let parent = script.numbers()[0];
    let mut watch = Watch::new(&[&net]);
    let listening = watch.open_one(SocketState::Listen);
    assert_eq!(
        (listening.task.pid, listening.task_rule),
        (parent, TaskRule::File)
    );
    assert_eq!(listening.start_ns, 0);
    let open = watch.open();
    assert_eq!(open.len(), 3);
    let connection = |opener| {
        let mut found = open
            .iter()
            .filter(|u| u.opener == opener && u.tcp.is_some());
        let update = *found.next().unwrap();
        assert!(found.next().is_none(), "{open:#?}");
        assert_eq!(
            (update.task.pid, update.task_rule),
            (parent, TaskRule::File)
        );
        assert_eq!((update.start_ns, update.established_ns), (0, 0));
        let tcp = update.tcp.unwrap();
        (tcp.bytes_sent, tcp.bytes_received)
    };
    // Also who opened is seen, for the SYN of an active open is counted.
    assert_eq!(connection(Opener::Local), (5, 3));
    assert_eq!(connection(Opener::Remote), (3, 5));
    // A child that inherited started last.
    script.write_line("fork");
    let child = script.numbers()[0];
    let open = watch.open();
    assert!(open.iter().all(|u| u.task.pid == child), "{open:#?}");
    script.write_line("close");
    assert_eq!(script.line(), "closed");
    script.write_line("exit");
    script.wait();
    let ended = watch.ended(3);
    assert_eq!(ended.len(), 3);
    for update in ended {
        assert_eq!(update.end, Some(End::Closed), "{update:#?}");
        assert_eq!(update.task_rule, TaskRule::File, "{update:#?}");
        if let Some(tcp) = update.tcp {
            assert_eq!(tcp.bytes_sent + tcp.bytes_received, 8);
        }
    }
}

#[test]
fn ipv4_in_an_ipv6_socket_is_ipv4() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    net.inside(|| {
        let listener = listen("::");
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop((listener.accept().unwrap(), client));
    });
    let (opened, accepted) = watch.both_ends();
    assert!(accepted.local.is_ipv4() && accepted.remote.unwrap().is_ipv4());
    assert_eq!(Some(opened.local), accepted.remote);
    assert_eq!(opened.remote, Some(accepted.local));
    assert_eq!(accepted.task_rule, TaskRule::Accept);
}

/// Two listeners on one port, in processes of their own.
const REUSE_PORT: &str = "
import os, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(('127.0.0.1', 7777))
listener.listen()
print(os.getpid())
connection, _ = listener.accept()
connection.recv(1)
connection.close()
sys.stdin.readline()
";

#[test]
fn listeners_that_share_a_port() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let mut scripts = [
        Process::python(&net, REUSE_PORT, &[]),
        Process::python(&net, REUSE_PORT, &[]),
    ];
    let pids = [scripts[0].numbers()[0], scripts[1].numbers()[0]];
    let mut open = watch.open();
    open.retain(|u| u.state == SocketState::Listen);
    let mut owners: Vec<_> = open.iter().map(|u| u.task.pid).collect();
    owners.sort_unstable();
    let mut sorted = pids;
    sorted.sort_unstable();
    assert_eq!(owners, sorted);
    // Until both have one: the kernel spreads by the caller's port.
    let mut seen = std::collections::HashSet::new();
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(net.inside(|| TcpStream::connect("127.0.0.1:7777").unwrap()));
        std::thread::sleep(std::time::Duration::from_millis(2));
        let open = watch.open();
        seen.extend(
            open.iter()
                .filter(|u| u.task_rule == TaskRule::Accept)
                .map(|u| u.task.pid),
        );
        if seen.len() == 2 {
            return;
        }
    }
    panic!("{seen:?} of {pids:?}");
}

/// Bit of ids of version 1.
const CGROUP_V1: u64 = skua_socket::Task::CGROUP_V1;

#[test]
fn a_control_group_that_comes_and_goes() {
    match cgroup_root(|kind, _| kind == "cgroup2") {
        Some(root) => control_group(&root, 0),
        None => println!("the unified hierarchy is not mounted"),
    }
}

/// Both hierarchies number their groups from 1 on: only the bit distinguishes them.
#[test]
fn a_control_group_of_version_1_is_told_apart() {
    let pids = |kind: &str, options: &str| {
        kind == "cgroup" && options.split(',').any(|option| option == "pids")
    };
    match cgroup_root(pids) {
        Some(root) => control_group(&root, CGROUP_V1),
        None => println!("version 1's hierarchy of pids is not mounted"),
    }
}

/// A process connects from a new group below `root`, which is gone before anybody asks.
fn control_group(root: &std::path::Path, version: u64) {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let name = format!("ks-{}-{}", std::process::id(), version >> 63);
    let path = root.join(&name);
    std::fs::create_dir(&path).unwrap();
    let inode = std::os::linux::fs::MetadataExt::st_ino(&std::fs::metadata(&path).unwrap());
    let listener = net.inside(|| listen("127.0.0.1"));
    let port = listener.local_addr().unwrap().port();
    let line = format!(
        "echo $$ >{}/cgroup.procs && echo hi >/dev/tcp/127.0.0.1/{port}",
        path.display()
    );
    let status = net
        .command("/bin/bash")
        .args(["-c", &line])
        .status()
        .unwrap();
    drop(listener.accept().unwrap());
    std::fs::remove_dir(&path).unwrap();
    assert!(status.success());
    let (opened, _) = watch.both_ends();
    assert_eq!(opened.task.cgroup, inode | version);
    let mut paths = Vec::new();
    watch
        .tracer
        .cgroups(&mut |id, path| paths.push((id, path.to_vec())));
    assert!(
        paths.contains(&(inode | version, format!("/{name}").into_bytes())),
        "{paths:?}"
    );
}

/// Where the first hierarchy is mounted whose kind and options are wanted.
fn cgroup_root(wanted: impl Fn(&str, &str) -> bool) -> Option<std::path::PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            wanted(kind.next()?, kind.nth(1)?).then(|| place.split(' ').nth(4))?
        })
        .map(Into::into)
}

#[test]
fn a_child_of_ours_is_told_apart_by_its_start() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let listener = net.inside(|| listen("127.0.0.1"));
    let port = listener.local_addr().unwrap().port();
    for _ in 0..2 {
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        assert!(
            net.command("/bin/bash")
                .args(["-c", &line])
                .status()
                .unwrap()
                .success()
        );
        drop(listener.accept().unwrap());
    }
    let mut ended = watch.connections(4);
    ended.retain(|u| u.opener == Opener::Local);
    assert_eq!(ended.len(), 2);
    assert_ne!(ended[0].task.pid, ended[1].task.pid);
    assert!(ended[0].task.start_ns < ended[1].task.start_ns);
}

/// The kernel gives the number again when it has come around; here the test makes it do so.
#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let net = Net::with_ipv6();
    let mut watch = Watch::new(&[&net]);
    let listener = net.inside(|| listen("127.0.0.1"));
    let port = listener.local_addr().unwrap().port();
    let call = || {
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let mut child = net.command("/bin/bash");
        let mut child = child.args(["-c", &line]).spawn().unwrap();
        assert!(child.wait().unwrap().success());
        drop(listener.accept().unwrap());
        child.id()
    };
    let first = call();
    let mut calls = 1;
    // Others of this machine start processes, too, and may be first.
    let again = (0..200).any(|_| {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (first - 1).to_string()).unwrap();
        calls += 1;
        call() == first
    });
    if !again {
        println!("the pid was never had again");
        return;
    }
    let mut ended = watch.connections(2 * calls);
    ended.retain(|u| u.opener == Opener::Local && u.task.pid == first);
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert_ne!(ended[0].task.start_ns, ended[1].task.start_ns);
}
