//! Checks with sockets of our own that the kernel reports sockets and their ends.

use crate::Error;
use crate::netlink::{DestroyMonitor, DiagSocket};
use crate::record::Family;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use skua_socket::{HookState, HookStatus, Protocol};
use std::collections::HashSet;
use std::time::{Duration, Instant};

pub(crate) const EXISTING: &str = "existing";
pub(crate) const CLOSE: &str = "close";
pub(crate) const DUMP: &str = "sock_diag dump";
pub(crate) const GROUPS: &str = "sock_diag destroy groups";
/// How long the kernel may take to report the end of our own sockets.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was shown.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    pub dump: HookStatus,
    pub destroyed: HookStatus,
}

impl Default for Proof {
    fn default() -> Self {
        let status = |capability, hook: &str| HookStatus {
            capability,
            hook: hook.to_owned(),
            state: HookState::Unsupported,
            reason: "no namespace can be watched".to_owned(),
        };
        Self {
            dump: status(EXISTING, DUMP),
            destroyed: status(CLOSE, GROUPS),
        }
    }
}

/// Makes sockets of our own in the calling thread's namespace, finds them in a dump and closes them.
pub(crate) fn prove(
    query: &mut DiagSocket,
    monitor: Result<&mut DestroyMonitor, &mut Error>,
) -> Proof {
    let mut proof = Proof::default();
    set(&mut proof.dump, prove_dump(query));
    set(
        &mut proof.destroyed,
        match monitor {
            Ok(monitor) => prove_destroyed(monitor),
            Err(error) => (HookState::Unsupported, error.to_string()),
        },
    );
    proof
}

fn set(status: &mut HookStatus, (state, reason): (HookState, String)) {
    status.state = state;
    status.reason = reason;
}

fn prove_dump(query: &mut DiagSocket) -> (HookState, String) {
    let listening = match std::net::TcpListener::bind("0.0.0.0:0") {
        Ok(listening) => listening,
        Err(error) => return (HookState::Silent, format!("no socket of our own: {error}")),
    };
    let Ok(cookie) = sockopt::socket_cookie(&listening) else {
        return (HookState::Unsupported, "sockets have no cookies".to_owned());
    };
    let mut found = false;
    let dumped = query.dump(Protocol::Tcp, Family::V4, &mut |record| {
        found |= record.cookie == cookie && record.info.is_some();
    });
    match dumped {
        Err(error) => (HookState::Unsupported, error.to_string()),
        Ok(()) if found => (HookState::Active, String::new()),
        Ok(()) => (HookState::Silent, "own socket is not shown".to_owned()),
    }
}

fn prove_destroyed(monitor: &mut DestroyMonitor) -> (HookState, String) {
    let mut waited_for = HashSet::new();
    for kind in [SocketType::STREAM, SocketType::DGRAM] {
        let own = socket(AddressFamily::INET, kind, None);
        if let Some(cookie) = own.ok().and_then(|own| sockopt::socket_cookie(&own).ok()) {
            waited_for.insert(cookie);
        }
    }
    if waited_for.is_empty() {
        return (HookState::Silent, "no socket of our own".to_owned());
    }
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let step = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let mut descriptors = [PollFd::new(monitor, PollFlags::IN)];
        // An interrupted wait is only a shorter one.
        let _ = poll(&mut descriptors, Some(&step));
        let heard = monitor.read(&mut |record| {
            waited_for.remove(&record.cookie);
        });
        if let Err(error) = heard {
            return (HookState::Unsupported, error.to_string());
        }
        if waited_for.is_empty() {
            return (HookState::Active, String::new());
        }
    }
    if !monitor.missing.is_empty() {
        return (HookState::Unsupported, monitor.missing.join("; "));
    }
    let reason = "the end of own sockets is not reported".to_owned();
    (HookState::Silent, reason)
}
