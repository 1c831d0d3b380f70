//! Runs the socket tracer alone until SIGINT, for benchmarks: says with a JSON line when it is
//! ready, and with another what it took.
//!
//! `socket_trace [--aggregate] [--interval MS] [--look MS] [--ring BYTES] [--pairs N]`
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    os::fd::{AsFd as _, FromRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_kernel::socket::{SocketTracer, SocketTracerConfig};

/// Sums over all that was taken.
#[derive(Default)]
struct Taken {
    ended: u64,
    pairs: u64,
    paired: u64,
    bytes: u64,
    drains: u64,
    looks: u64,
    looked_at: u64,
}

impl Taken {
    fn drain(&mut self, tracer: &mut SocketTracer) {
        self.drains += 1;
        tracer
            .ended(&mut |update| {
                self.ended += 1;
                self.bytes += update.tcp.map_or(0, |tcp| tcp.bytes_sent);
            })
            .unwrap();
        tracer
            .pairs(&mut |pair| {
                self.pairs += 1;
                self.paired += pair.connections;
                self.bytes += pair.tcp.bytes_sent;
            })
            .unwrap();
        tracer.cgroups(&mut |_, _| {});
    }

    fn poll(&mut self, tracer: &mut SocketTracer) {
        self.looks += 1;
        tracer.open(&mut |_| self.looked_at += 1).unwrap();
    }
}

/// Readable when the process is to end.
fn interrupted() -> OwnedFd {
    // SAFETY: the set is initialised by sigemptyset before use; sigprocmask and signalfd only read
    // it; the descriptor is new and nobody else's.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

fn main() {
    skua_kernel::capture_libbpf_log();
    let mut config = SocketTracerConfig::default();
    let mut interval = Duration::from_secs(1);
    let mut look = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || -> u32 {
            let value = arguments.next().expect("an option wants a number");
            value.parse().expect("a number")
        };
        match name.as_str() {
            "--aggregate" => config.aggregate = true,
            "--interval" => interval = Duration::from_millis(number().into()),
            "--look" => look = Some(Duration::from_millis(number().into())),
            "--ring" => config.ring_bytes = number(),
            "--pairs" => config.max_pairs = number(),
            _ => panic!("unknown option {name}"),
        }
    }
    let ending = interrupted();
    let mut tracer = SocketTracer::start(config).unwrap();
    println!("{{\"ready\":true,\"rung\":\"{}\"}}", tracer.describe());

    let mut taken = Taken::default();
    let (mut drain_at, mut look_at) = (Instant::now() + interval, Instant::now());
    loop {
        let mut wait = drain_at.saturating_duration_since(Instant::now());
        if look.is_some() {
            wait = wait.min(look_at.saturating_duration_since(Instant::now()));
        }
        let wait = Timespec::try_from(wait).unwrap();
        let wake = tracer.wake();
        let mut events = vec![PollFd::from_borrowed_fd(ending.as_fd(), PollFlags::IN)];
        events.extend(wake.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let woken = poll(&mut events, Some(&wait)).unwrap_or(0) > 0;
        let ended = !events[0].revents().is_empty();
        drop(events);
        if woken || Instant::now() >= drain_at {
            taken.drain(&mut tracer);
            drain_at = Instant::now() + interval;
        }
        if let Some(every) = look
            && Instant::now() >= look_at
        {
            taken.poll(&mut tracer);
            look_at = Instant::now() + every;
        }
        if ended {
            break;
        }
    }
    let Taken {
        ended,
        pairs,
        paired,
        bytes,
        drains,
        looks,
        looked_at,
    } = taken;
    let losses: Vec<_> = tracer
        .losses()
        .by_cause()
        .map(|(cause, count)| format!("\"{cause}\":{count}"))
        .into();
    println!(
        "{{\"ended\":{ended},\"pairs\":{pairs},\"paired\":{paired},\"bytes\":{bytes},\
         \"drains\":{drains},\"looks\":{looks},\"looked_at\":{looked_at},\"losses\":{{{}}}}}",
        losses.join(",")
    );
}
