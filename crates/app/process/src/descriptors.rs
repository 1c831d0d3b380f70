//! The limit on file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors for watching all network namespaces: several sockets for each, of at most
/// 4,096.
pub const ALL_NAMESPACES: u64 = 32_768;

/// Raises the limit to this number, as far as permitted.
pub fn make_room(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let most = limit.maximum.map_or(wanted, |most| most.max(wanted));
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|_| most),
    };
    // Beyond the hard limit root only, and not in every container.
    let within = Rlimit {
        current: Some(limit.maximum.map_or(wanted, |most| most.min(wanted))),
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_err()
        && let Err(error) = setrlimit(Resource::Nofile, within)
    {
        tracing::debug!("out of file descriptors: {error}");
    }
}
