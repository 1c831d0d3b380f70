//! Network namespaces, and a tracer that is asked for their sockets only.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use skua_kernel::socket::{SocketTracer, SocketTracerConfig};
use skua_socket::{Opener, PairUpdate, SocketState, SocketUpdate, Task};
pub use skua_testkit::lab::Net;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// Two namespaces joined by a veth pair, with addresses .1 and .2.
pub fn pair() -> (Net, Net) {
    let (a, b) = (Net::with_ipv6(), Net::with_ipv6());
    a.pair("veth0", &b, "veth0");
    for (net, host) in [(&a, 1), (&b, 2)] {
        net.ip(&format!("addr add 192.0.2.{host}/24 dev veth0"));
        net.ip(&format!("addr add 2001:db8::{host}/64 dev veth0 nodad"));
    }
    // Before that, IPv6 answers nobody.
    a.wait_up("veth0");
    b.wait_up("veth0");
    (a, b)
}

/// A namespace as records name it.
pub fn number(net: &Net) -> u32 {
    net.inode() as u32
}

/// A tracer of some namespaces.
pub struct Watch {
    pub tracer: SocketTracer,
    nets: Vec<u32>,
}

impl Watch {
    pub fn new(nets: &[&Net]) -> Self {
        Self::with(nets, SocketTracerConfig::default())
    }

    pub fn with(nets: &[&Net], config: SocketTracerConfig) -> Self {
        skua_kernel::capture_libbpf_log();
        Self {
            tracer: SocketTracer::start(config).unwrap(),
            nets: nets.iter().map(|net| number(net)).collect(),
        }
    }

    /// What ended, when it is at least `count` sockets; a moment more shows that none comes twice.
    pub fn ended(&mut self, count: usize) -> Vec<SocketUpdate> {
        let mut updates = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while updates.len() < count {
            self.read_ended(&mut updates);
            assert!(
                Instant::now() < deadline,
                "only {} of {count}: {updates:#?}, {:?}",
                updates.len(),
                self.tracer.losses()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        self.read_ended(&mut updates);
        updates
    }

    pub fn read_ended(&mut self, updates: &mut Vec<SocketUpdate>) {
        self.tracer
            .ended(&mut |update| {
                if self.nets.contains(&update.netns) {
                    updates.push(*update);
                }
            })
            .unwrap();
    }

    /// What ended, TCP connections only.
    pub fn connections(&mut self, count: usize) -> Vec<SocketUpdate> {
        let mut updates = self.ended(count);
        updates.retain(|u| u.tcp.is_some());
        updates
    }

    /// The two ends of the one connection that there was: opener, other side.
    pub fn both_ends(&mut self) -> (SocketUpdate, SocketUpdate) {
        let ends = self.connections(2);
        assert_eq!(ends.len(), 2, "{ends:#?}");
        let local = ends.iter().find(|u| u.opener == Opener::Local).unwrap();
        let remote = ends.iter().find(|u| u.opener == Opener::Remote).unwrap();
        (*local, *remote)
    }

    /// What is open now.
    pub fn open(&mut self) -> Vec<SocketUpdate> {
        let mut updates = Vec::new();
        self.tracer
            .open(&mut |update| {
                if self.nets.contains(&update.netns) {
                    updates.push(*update);
                }
            })
            .unwrap();
        updates
    }

    /// The one open socket in a state.
    pub fn open_one(&mut self, state: SocketState) -> SocketUpdate {
        let mut updates = self.open();
        updates.retain(|u| u.state == state);
        assert_eq!(updates.len(), 1, "{updates:#?}");
        updates[0]
    }

    pub fn pairs(&mut self) -> Vec<PairUpdate> {
        let mut updates = Vec::new();
        self.tracer
            .pairs(&mut |update| {
                if self.nets.contains(&update.netns) {
                    updates.push(*update);
                }
            })
            .unwrap();
        updates
    }
}

/// An established connection, server's side accepted.
pub fn connect(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

pub fn listen(address: &str) -> TcpListener {
    TcpListener::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap()
}

/// Sends, says that this is all, and reads what the other side sends until its end.
pub fn send_and_finish(stream: &mut TcpStream, bytes: usize) {
    stream.write_all(&vec![7; bytes]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Reads to the end.
pub fn read_all(stream: &mut TcpStream) -> usize {
    let mut sink = Vec::new();
    stream.read_to_end(&mut sink).unwrap()
}

/// Reads exactly so much.
pub fn read_some(stream: &mut TcpStream, bytes: usize) {
    stream.read_exact(&mut vec![0; bytes]).unwrap();
}

/// Lets close send a RST.
pub fn close_with_reset(stream: TcpStream) {
    set_option(
        &stream,
        libc::SOL_SOCKET,
        libc::SO_LINGER,
        &libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    );
}

pub fn set_option<T>(socket: &impl std::os::fd::AsRawFd, level: i32, name: i32, value: &T) {
    // SAFETY: value is as long as said.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            size_of::<T>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A new TCP socket, not connected.
pub fn tcp_socket() -> OwnedFd {
    // SAFETY: no pointers; a new descriptor that nobody else owns.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        OwnedFd::from_raw_fd(socket)
    }
}

fn ipv4(address: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(address) = address else {
        panic!("{address} is not IPv4");
    };
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// connect, bind and the like with an IPv4 address.
pub fn with_address(
    call: unsafe extern "C" fn(i32, *const libc::sockaddr, libc::socklen_t) -> i32,
    socket: &OwnedFd,
    address: SocketAddr,
) -> std::io::Result<()> {
    let address = ipv4(address);
    // SAFETY: a whole sockaddr_in.
    let result = unsafe {
        call(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as u32,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Ends the association of a socket: connect to AF_UNSPEC.
pub fn disconnect(socket: &impl std::os::fd::AsRawFd) {
    let address = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as u16,
        sa_data: [0; 14],
    };
    // SAFETY: a whole sockaddr.
    let result = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            &raw const address,
            size_of::<libc::sockaddr>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim_end_matches('\0')
}

/// Asserts that a task is this process.
#[track_caller]
pub fn assert_me(task: &Task) {
    assert_eq!(task.pid, std::process::id());
    assert_eq!(task.uid, 0);
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(text(&task.comm), comm.trim());
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let exe = exe.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(text(&task.exe), &exe[..exe.len().min(32)]);
    // Field 22 in clock ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks: u64 = after_name
        .split_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(task.start_ns / 10_000_000, ticks);
}
