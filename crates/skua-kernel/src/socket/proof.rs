//! Proving the hooks: that programs load and attach does not show that they ever run. So we talk to
//! ourselves in a network namespace of our own and look what of it was seen.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::{fd::AsRawFd as _, linux::fs::MetadataExt as _},
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use skua_socket::{End, HookState, HookStatus, Opener, Protocol, SocketState, TaskRule};

use super::{SocketTracer, SocketTracerConfig};
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
pub(super) const PATH_HOOKS: &[Hook] = &[Hook {
    capability: PATHS,
    hook: "tp_btf/cgroup_mkdir",
}];

const PATIENCE: Duration = Duration::from_secs(2);
/// What each connection carries from the client.
const MESSAGE: &[u8] = b"skua";
const CONNECTIONS: u64 = 2;

/// What was seen of the exchange.
#[derive(Default, Debug)]
struct Seen {
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

impl Seen {
    fn complete(&self, config: &SocketTracerConfig, sees_udp: bool) -> bool {
        self.opened == CONNECTIONS
            && self.bytes == CONNECTIONS * MESSAGE.len() as u64
            && self.refused == 1
            && self.accepted_ended == CONNECTIONS
            && self.listeners_ended == 1
            && (!sees_udp || (self.udp_connected == 1 && self.udp_sent >= config.udp_sends.into()))
    }
}

/// The tracer with its hooks' states, if it saw TCP's states.
pub(super) fn prove(
    mut tracer: SocketTracer,
    config: &SocketTracerConfig,
) -> Result<SocketTracer, KernelError> {
    let (to_us, from_exchange) = channel();
    let (to_exchange, from_us) = channel();
    let (seen, netns) = std::thread::scope(|scope| {
        let exchange = std::thread::Builder::new()
            .name("proof".into())
            .spawn_scoped(scope, move || exchange(&to_us, &from_us))
            .map_err(|source| KernelError::System {
                what: "cannot start a thread to talk to ourselves",
                source,
            })?;
        let mut seen = Seen::default();
        // The thread ends without a word when it fails; its result says why.
        let netns = from_exchange.recv().unwrap_or(0);
        tracer.open(&mut |update| {
            if update.netns == netns && update.state == SocketState::Listen {
                seen.listeners_open += 1;
            }
        })?;
        let _ = to_exchange.send(());
        match exchange.join() {
            Ok(result) => result?,
            Err(_) => {
                return Err(KernelError::System {
                    what: "cannot talk to ourselves",
                    source: io::Error::other("the thread died"),
                });
            }
        }
        Ok((seen, netns))
    })?;
    let seen = gather(&mut tracer, config, seen, netns)?;
    judge(&mut tracer, config, &seen)?;
    Ok(tracer)
}

/// Takes what ended; what is not ours is kept for the first drains.
fn gather(
    tracer: &mut SocketTracer,
    config: &SocketTracerConfig,
    mut seen: Seen,
    netns: u32,
) -> Result<Seen, KernelError> {
    let sees_udp = tracer
        .hooks
        .iter()
        .any(|h| h.capability == UDP_CONNECT && h.state != HookState::Unsupported);
    let deadline = Instant::now() + PATIENCE;
    let (mut early, mut early_pairs) = (Vec::new(), Vec::new());
    loop {
        tracer.ended(&mut |update| {
            if update.netns != netns {
                early.push(*update);
                return;
            }
            match (update.protocol, update.state, update.opener) {
                (Protocol::Tcp, SocketState::Listen, _) => seen.listeners_ended += 1,
                (Protocol::Tcp, _, Opener::Local) if update.end == Some(End::Refused) => {
                    seen.refused += 1;
                }
                (Protocol::Tcp, _, Opener::Local) => {
                    seen.opened += 1;
                    seen.bytes += update.tcp.map_or(0, |t| t.bytes_sent);
                }
                (Protocol::Tcp, _, _) => {
                    seen.accepted_ended += 1;
                    seen.accepted += u64::from(update.task_rule == TaskRule::Accept);
                }
                (Protocol::Udp, SocketState::UdpConnected, _) => seen.udp_connected += 1,
                (Protocol::Udp, _, _) => seen.udp_sent += u64::from(update.remote.is_some()),
            }
        })?;
        tracer.pairs(&mut |update| {
            if update.netns != netns {
                early_pairs.push(*update);
                return;
            }
            match (update.protocol, update.opener) {
                (Protocol::Tcp, Opener::Local) => {
                    seen.refused += update.failed;
                    seen.opened += update.connections - update.failed;
                    seen.bytes += update.tcp.bytes_sent;
                }
                (Protocol::Tcp, _) => {
                    seen.accepted_ended += update.connections;
                    if update.task_rule == TaskRule::Accept {
                        seen.accepted += update.connections;
                    }
                }
                (Protocol::Udp, _) if update.task_rule == TaskRule::Connect => {
                    seen.udp_connected += update.connections;
                }
                (Protocol::Udp, _) => seen.udp_sent += update.connections,
            }
        })?;
        if seen.complete(config, sees_udp) || Instant::now() > deadline {
            tracer.early = early;
            tracer.early_pairs = early_pairs;
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says of each hook how it did.
fn judge(
    tracer: &mut SocketTracer,
    config: &SocketTracerConfig,
    seen: &Seen,
) -> Result<(), KernelError> {
    let tcp = seen.opened == CONNECTIONS
        && seen.bytes == CONNECTIONS * MESSAGE.len() as u64
        && seen.refused == 1
        && seen.accepted_ended == CONNECTIONS;
    if !tcp {
        return Err(KernelError::System {
            what: "the socket programs are attached, but silent",
            source: io::Error::other(format!("of our own exchange they saw {seen:?}")),
        });
    }
    for hook in &mut tracer.hooks {
        if hook.state != HookState::Silent {
            continue;
        }
        let worked = match hook.capability {
            UDP_CONNECT => seen.udp_connected == 1,
            UDP_SEND if !config.udp_sends => {
                hook.state = HookState::NotNeeded;
                hook.reason = "switched off".into();
                continue;
            }
            UDP_SEND => seen.udp_sent >= 1,
            CLOSE => seen.udp_connected + seen.udp_sent >= 1,
            ACCEPT_NAMED => seen.accepted >= 1,
            ACCEPT => seen.accepted == CONNECTIONS,
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
    let open = seen.listeners_open == 1;
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
            hook: tracer.rung.look().into(),
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

/// Talks; tells its namespace when there is something to look at, and goes on when that was done.
fn exchange(ready: &Sender<u32>, looked: &Receiver<()>) -> Result<(), KernelError> {
    private_network::enter()?;
    talk(ready, looked).map_err(|source| KernelError::System {
        what: "cannot talk to ourselves",
        source,
    })
}

fn talk(ready: &Sender<u32>, looked: &Receiver<()>) -> io::Result<()> {
    let netns = std::fs::metadata("/proc/thread-self/ns/net")?.st_ino();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let _ = ready.send(netns as u32);
    let _ = looked.recv();

    let mut client = TcpStream::connect_timeout(&address, PATIENCE)?;
    let (mut server, _) = listener.accept()?;
    converse(&mut client, &mut server)?;
    drop((client, server));

    // Servers that do not ask for the address are seen by other hooks.
    let mut client = TcpStream::connect_timeout(&address, PATIENCE)?;
    let mut server = accept_unnamed(&listener)?;
    converse(&mut client, &mut server)?;
    drop((client, server, listener));

    let refused = TcpStream::connect_timeout(&address, PATIENCE);
    if refused.is_ok() {
        return Err(io::Error::other("somebody else is in our own namespace"));
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
