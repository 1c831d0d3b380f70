//! Proving the hooks: that programs load and attach does not show that they ever run. So this process talks
//! to itself in a network namespace of its own and checks what the programs recorded.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::{fd::AsRawFd as _, linux::fs::MetadataExt as _},
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use skua_socket::{
    End, HookState, HookStatus, Opener, PairUpdate, Protocol, SocketState, SocketUpdate, TaskRule,
};

use super::{Rung, SocketTracer, SocketTracerConfig};
use crate::{KernelError, private_network};

/// A hook and what it is for.
pub(super) struct Hook {
    pub capability: &'static str,
    pub hook: &'static str,
}

pub(super) const UDP_CONNECT: &str = "udp connect";
pub(super) const UDP_SEND: &str = "udp send";
pub(super) const CLOSE: &str = "close";
const ACCEPT_NAMED: &str = "accept with address";
pub(super) const ACCEPT: &str = "accept";
const PATHS: &str = "control group paths";

pub(super) const CGROUP_HOOKS: &[Hook] = &[
    Hook {
        capability: UDP_CONNECT,
        hook: "cgroup/connect4, connect6",
    },
    Hook {
        capability: UDP_SEND,
        hook: "cgroup/sendmsg4, sendmsg6",
    },
    Hook {
        capability: CLOSE,
        hook: "cgroup/sock_release",
    },
    Hook {
        capability: ACCEPT_NAMED,
        hook: "cgroup/getpeername4, getpeername6",
    },
];
pub(super) const ACCEPT_HOOKS: &[Hook] = &[Hook {
    capability: ACCEPT,
    hook: "fexit/inet_csk_accept",
}];
const PATH_HOOKS: &[Hook] = &[Hook {
    capability: PATHS,
    hook: "tp_btf/cgroup_mkdir",
}];
const PATH_HOOKS_WITHOUT_TASKS: &[Hook] = &[Hook {
    capability: PATHS,
    hook: "raw_tp/cgroup_mkdir",
}];

/// The hooks that report paths of control groups on a rung.
pub(super) fn path_hooks(rung: Rung) -> &'static [Hook] {
    match rung {
        Rung::Btf => PATH_HOOKS,
        Rung::HashRing | Rung::HashPerf => PATH_HOOKS_WITHOUT_TASKS,
    }
}

const PATIENCE: Duration = Duration::from_secs(2);
/// What each connection carries from the client.
const MESSAGE: &[u8] = b"skua";
const CONNECTIONS: u64 = 2;

/// What was seen of the exchange.
#[derive(Default, Debug)]
struct Observed {
    opened: u64,
    bytes: u64,
    refused: u64,
    accepted_ended: u64,
    accepted: u64,
    udp_connected: u64,
    udp_sent: u64,
    listeners_open: u64,
    listeners_ended: u64,
}

impl Observed {
    /// Whether TCP's part was seen whole.
    fn tcp(&self) -> bool {
        self.opened == CONNECTIONS
            && self.bytes == CONNECTIONS * MESSAGE.len() as u64
            && self.refused == 1
            && self.accepted_ended == CONNECTIONS
    }

    fn complete(&self, config: &SocketTracerConfig, tracer: &SocketTracer) -> bool {
        let hooked = |capability| {
            tracer
                .hooks
                .iter()
                .any(|h| h.capability == capability && h.state == HookState::Silent)
        };
        self.tcp()
            && self.listeners_ended == 1
            && (!hooked(UDP_CONNECT) || self.udp_connected == 1)
            && (!hooked(UDP_SEND) || !config.udp_sends || self.udp_sent == 1)
    }

    fn ended(&mut self, update: &SocketUpdate) {
        match (update.protocol, update.state, update.opener) {
            (Protocol::Tcp, SocketState::Listen, _) => self.listeners_ended += 1,
            (Protocol::Tcp, _, Opener::Local) if update.end == Some(End::Refused) => {
                self.refused += 1;
            }
            (Protocol::Tcp, _, Opener::Local) => {
                self.opened += 1;
                self.bytes += update.tcp.map_or(0, |t| t.bytes_sent);
            }
            (Protocol::Tcp, _, _) => {
                self.accepted_ended += 1;
                self.accepted += u64::from(update.task_rule == TaskRule::Accept);
            }
            (Protocol::Udp, SocketState::UdpConnected, _) => self.udp_connected += 1,
            (Protocol::Udp, _, _) => self.udp_sent += u64::from(update.remote.is_some()),
        }
    }

    fn pair(&mut self, update: &PairUpdate) {
        match (update.protocol, update.opener) {
            (Protocol::Tcp, Opener::Local) => {
                self.refused += update.failed;
                self.opened += update.connections - update.failed;
                self.bytes += update.tcp.bytes_sent;
            }
            (Protocol::Tcp, _) => {
                self.accepted_ended += update.connections;
                if update.task_rule == TaskRule::Accept {
                    self.accepted += update.connections;
                }
            }
            (Protocol::Udp, _) if update.task_rule == TaskRule::Connect => {
                self.udp_connected += update.connections;
            }
            (Protocol::Udp, _) => self.udp_sent += update.connections,
        }
    }
}

/// The tracer with its hooks' states, if it saw TCP's states.
pub(super) fn prove(
    mut tracer: SocketTracer,
    config: &SocketTracerConfig,
) -> Result<SocketTracer, KernelError> {
    let mut attempts = 3;
    loop {
        let losses = tracer.losses();
        let observed = observe(&mut tracer, config)?;
        attempts -= 1;
        // Others of this host may have filled what ours should go to.
        if observed.complete(config, &tracer) || tracer.losses() == losses || attempts == 0 {
            judge(&mut tracer, config, &observed)?;
            return Ok(tracer);
        }
    }
}

/// Runs an exchange and records what the programs report of it.
fn observe(
    tracer: &mut SocketTracer,
    config: &SocketTracerConfig,
) -> Result<Observed, KernelError> {
    let (to_us, from_exchange) = channel();
    let (to_exchange, from_us) = channel();
    let mut observed = Observed::default();
    std::thread::scope(|scope| {
        // Dropped when something fails here: else the exchange would wait for ever.
        let to_exchange = to_exchange;
        let exchange = std::thread::Builder::new()
            .name("proof".into())
            .spawn_scoped(scope, move || exchange(&to_us, &from_us))
            .map_err(|source| KernelError::System {
                what: "cannot start a thread to talk to ourselves",
                source,
            })?;
        // The thread ends without a word when it fails; its result says why. The namespace is kept
        // until the end, for its number would be used again.
        let (netns, _kept) = from_exchange.recv().unwrap_or_default();
        // The number may have been another's before.
        drain(tracer, 0, &mut Observed::default())?;
        tracer.open(&mut |update| {
            if update.netns == netns && update.state == SocketState::Listen {
                observed.listeners_open += 1;
            }
        })?;
        let _ = to_exchange.send(());
        while !exchange.is_finished() {
            drain(tracer, netns, &mut observed)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        match exchange.join() {
            Ok(result) => result?,
            Err(_) => {
                return Err(KernelError::System {
                    what: "cannot talk to ourselves",
                    source: io::Error::other("the thread died"),
                });
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            drain(tracer, netns, &mut observed)?;
            if observed.complete(config, tracer) || Instant::now() > deadline {
                return Ok(observed);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}

/// Drains the ended sockets; those of other namespaces are kept for the first drains.
fn drain(
    tracer: &mut SocketTracer,
    netns: u32,
    observed: &mut Observed,
) -> Result<(), KernelError> {
    let mut early = std::mem::take(&mut tracer.early);
    tracer.ended(&mut |update| {
        if update.netns == netns {
            observed.ended(update);
        } else {
            early.push(*update);
        }
    })?;
    tracer.early = early;
    let mut early_pairs = std::mem::take(&mut tracer.early_pairs);
    tracer.pairs(&mut |update| {
        if update.netns == netns {
            observed.pair(update);
        } else {
            early_pairs.push(*update);
        }
    })?;
    tracer.early_pairs = early_pairs;
    Ok(())
}

/// Sets each hook's state by the observation.
fn judge(
    tracer: &mut SocketTracer,
    config: &SocketTracerConfig,
    observed: &Observed,
) -> Result<(), KernelError> {
    if !observed.tcp() {
        return Err(KernelError::System {
            what: "the socket programs are attached, but silent",
            source: io::Error::other(format!("of our own exchange they saw {observed:?}")),
        });
    }
    for hook in &mut tracer.hooks {
        if hook.state != HookState::Silent {
            continue;
        }
        let worked = match hook.capability {
            UDP_CONNECT => observed.udp_connected == 1,
            UDP_SEND if !config.udp_sends => {
                hook.state = HookState::NotNeeded;
                hook.reason = "switched off".into();
                continue;
            }
            UDP_SEND => observed.udp_sent >= 1,
            CLOSE => observed.udp_connected + observed.udp_sent >= 1,
            ACCEPT_NAMED => observed.accepted >= 1,
            ACCEPT => observed.accepted == CONNECTIONS,
            // To make a control group for the proof would be seen by others.
            PATHS => true,
            _ => false,
        };
        if worked {
            hook.state = HookState::Active;
        } else {
            hook.reason = "attached, but saw nothing of our own exchange".into();
        }
    }
    let open = observed.listeners_open == 1;
    tracer.hooks.insert(
        0,
        HookStatus {
            capability: "tcp state",
            hook: tracer.rung.hook().into(),
            state: HookState::Active,
            reason: String::new(),
        },
    );
    tracer.hooks.insert(
        1,
        HookStatus {
            capability: "open sockets",
            hook: tracer.rung.snapshot_hooks().into(),
            state: if open {
                HookState::Active
            } else {
                HookState::Silent
            },
            reason: if open {
                String::new()
            } else {
                "it did not show our own listening socket".into()
            },
        },
    );
    Ok(())
}

/// The number of the exchange's namespace, and what keeps it from being used again.
type Ready = (u32, Option<File>);

/// Runs the exchange; sends its namespace when a snapshot can be taken, and continues after that.
fn exchange(ready: &Sender<Ready>, polled: &Receiver<()>) -> Result<(), KernelError> {
    private_network::enter()?;
    talk(ready, polled).map_err(|source| KernelError::System {
        what: "cannot talk to ourselves",
        source,
    })
}

fn talk(ready: &Sender<Ready>, polled: &Receiver<()>) -> io::Result<()> {
    let netns = File::open("/proc/thread-self/ns/net")?;
    let number = netns.metadata()?.st_ino() as u32;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let _ = ready.send((number, Some(netns)));
    let _ = polled.recv();

    let mut client = TcpStream::connect_timeout(&address, PATIENCE)?;
    let (mut server, _) = listener.accept()?;
    converse(&mut client, &mut server)?;
    drop((client, server));

    // Other hooks cover servers that do not request the address.
    let mut client = TcpStream::connect_timeout(&address, PATIENCE)?;
    let mut server = accept_unnamed(&listener)?;
    converse(&mut client, &mut server)?;
    drop((client, server));
    // To drop it is not enough: a process that another thread starts just now has it, too, until it
    // runs its program.
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both)?;
    drop(listener);

    let refused = TcpStream::connect_timeout(&address, PATIENCE);
    if refused.is_ok() {
        return Err(io::Error::other("another process is in our own namespace"));
    }

    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let connected = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    connected.connect(receiver.local_addr()?)?;
    connected.send(MESSAGE)?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sender.send_to(MESSAGE, receiver.local_addr()?)?;
    Ok(())
}

fn converse(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    server.set_read_timeout(Some(PATIENCE))?;
    client.write_all(MESSAGE)?;
    server.read_exact(&mut [0; MESSAGE.len()])
}

fn accept_unnamed(listener: &TcpListener) -> io::Result<TcpStream> {
    use std::os::fd::{FromRawFd as _, OwnedFd};

    // SAFETY: accept takes null pointers for an address that nobody wants.
    let socket = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        )
    };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) }.into())
}
