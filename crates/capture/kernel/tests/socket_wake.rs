//! When the ring of ended sockets wakes its reader. Alone in its file, for the ring takes the
//! connections of other tests, too.
#![allow(unsafe_code, clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with the other tests")]
#[path = "socket/lab.rs"]
mod lab;

use lab::{Net, Watch, connect, listen};

#[test]
fn wakes_only_for_a_quarter_of_the_ring() {
    let net = Net::with_ipv6();
    let mut watch = Watch::with(
        &[&net],
        skua_kernel::socket::SocketTracerConfig {
            ring_bytes: 64 << 10,
            ..Default::default()
        },
    );
    let readable = |watch: &Watch| {
        let mut poll = libc::pollfd {
            fd: std::os::fd::AsRawFd::as_raw_fd(&watch.tracer.wake().unwrap()),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    };
    let listener = net.inside(|| listen("127.0.0.1"));
    let some = |count| {
        net.inside(|| {
            for _ in 0..count {
                drop(connect(&listener));
            }
        });
    };
    let mut taken = 0;
    for _ in 0..3 {
        // 20 ends are far from a quarter (16 KiB), unless others of this host make many.
        some(10);
        // Perf events count what a CPU wrote since the call before, drained or not.
        let by_quarters = !watch.tracer.describe().contains("perf events");
        assert!(!by_quarters || !readable(&watch), "woken early");
        some(40);
        assert!(readable(&watch), "not woken");
        taken += watch.connections(1).len();
        assert!(!readable(&watch), "woken after the drain");
    }
    assert_eq!(taken, 300);
    // More than it holds: counted.
    some(200);
    let kept = watch.connections(1).len();
    let losses = watch.tracer.losses();
    assert!(kept < 400);
    assert!(kept as u64 + losses.ring_full >= 400, "{kept} {losses:?}");
}
