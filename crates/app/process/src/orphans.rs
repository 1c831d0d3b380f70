//! The hidden subcommand that detaches classifiers of a killed `skua`.

use std::{
    io,
    os::fd::AsFd as _,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Serves the process at the other end of standard input until it ends.
pub fn detach_when_orphaned() -> anyhow::Result<()> {
    // What ends the other process (Ctrl-C, the service manager) is not to end this one.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    // Fails only for the leader of a process group, which needs no new session.
    let _ = rustix::process::setsid();
    // A name that explains the second `skua` in lists of processes.
    let _ = rustix::thread::set_name(c"skua-orphans");
    let left = skua_kernel::orphans::serve(io::stdin().as_fd())
        .context("this is a part of `skua run`, not to be used alone")?;
    if left > 0 {
        tracing::info!(left, "detached classifiers of a process that has ended");
    }
    Ok(())
}
