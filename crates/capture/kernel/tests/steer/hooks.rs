//! The steering program on interfaces: packets go where they should by each hook that the kernel has, and
//! go their usual way the moment that the target is down.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::LinkKind,
    steer::{ActionResult, Steering, Target, attach},
};
use skua_steer::Order;
use skua_testkit::lab::Net;

use crate::frames::{can_steer, detector};

/// A sender behind `gp0` of the host, and a pod behind `pb0`.
struct Host {
    _sender: Net,
    host: Net,
    pod: Net,
    out: UdpSocket,
    arrives: UdpSocket,
    sent: u32,
}

impl Host {
    fn new() -> Self {
        let (sender, host, pod) = (Net::with_ipv6(), Net::with_ipv6(), Net::with_ipv6());
        for (near, far, net, last) in [("gp0", "g0", &sender, 1), ("pb0", "vb0", &pod, 3)] {
            host.pair(near, net, &format!("{far} address 02:00:00:00:00:0{last}"));
            net.ip(&format!("addr add 10.1.0.{last}/24 dev {far}"));
        }
        sender.ip("neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev g0 nud permanent");
        let out = sender.inside(|| UdpSocket::bind("10.1.0.1:0").unwrap());
        let arrives = pod.inside(|| UdpSocket::bind("0.0.0.0:9001").unwrap());
        arrives
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self {
            _sender: sender,
            host,
            pod,
            out,
            arrives,
            sent: 0,
        }
    }

    /// Sends so many, each far from the one before.
    fn send(&mut self, count: u32) {
        for _ in 0..count {
            self.sent += 1;
            let payload = [&[0, 1][..], (self.sent % 2).to_string().as_bytes()].concat();
            self.out.send_to(&payload, "10.1.0.2:9000").unwrap();
        }
    }

    /// Receives so many in the pod.
    fn receive(&self, count: u32) {
        for _ in 0..count {
            let mut payload = [0; 64];
            let length = self.arrives.recv(&mut payload).expect("a steered packet");
            assert_eq!((length, payload[1]), (3, 1));
        }
    }

    fn target(&self, steering: &Steering) -> Target {
        let ifindex = self.host.ifindex("pb0");
        let finder = steering
            .finder()
            .expect("programs see targets where there is BTF");
        let target = Target {
            ifindex,
            peer: true,
            destination: [2, 0, 0, 0, 0, 3],
            source: [2; 6],
            veth: true,
            device: self.host.inside(|| finder.find(ifindex, true)).unwrap(),
        };
        assert!(target.device.is_known());
        target
    }
}

/// Waits until so many packets have been seen, and says what happened to those that fired.
fn results(steering: &Steering, matched: u32) -> (u64, u64) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let counts = steering.counts().unwrap();
        if counts.matched >= u64::from(matched) {
            assert_eq!(counts.matched, u64::from(matched));
            return (
                counts.results[&ActionResult::Acted],
                counts.results[&ActionResult::NoTarget],
            );
        }
        assert!(Instant::now() < end, "{counts:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn has_tcx() -> bool {
    skua_kernel::flow::prove(HookKind::Tcx).name() != "unsupported"
}

const ALWAYS: &str = "preset: ewma-64\nmatch: udp dst port 9000\nring: 1\nsmoothing: 0\n\
    threshold: {shift: 63}\nwatchdog: {when_lost: stay}\n\
    action: {redirect: {to: pb0, address: 10.1.0.3, port: 9001}}\n";

#[test]
fn each_hook_steers_and_stops_when_the_target_is_down() {
    if !can_steer() {
        return;
    }
    for hook in [HookKind::Tcx, HookKind::Clsact] {
        if hook == HookKind::Tcx && !has_tcx() {
            eprintln!("left out: no tcx in this kernel");
            continue;
        }
        let mut host = Host::new();
        let steering = Steering::load(&detector(ALWAYS), LinkKind::Ethernet).unwrap();
        let target = host.target(&steering);
        steering.set_target(Some(&target)).unwrap();
        let gp0 = host.host.ifindex("gp0");
        let program = steering.program().unwrap();
        let attachment = host
            .host
            .inside(|| Attachment::new(program, gp0, Direction::Ingress, hook))
            .unwrap();
        // The first fills the ring.
        host.send(21);
        host.receive(20);
        assert_eq!(results(&steering, 21), (20, 0), "{}", hook.name());
        // Nobody notifies the program.
        host.pod.ip("link set vb0 down");
        host.send(20);
        assert_eq!(results(&steering, 41), (20, 20), "{}", hook.name());
        host.pod.ip("link set vb0 up");
        host.send(20);
        host.receive(20);
        assert_eq!(results(&steering, 61), (40, 20), "{}", hook.name());
        host.host.ip("link del pb0");
        host.send(20);
        assert_eq!(results(&steering, 81), (40, 40), "{}", hook.name());
        drop(attachment);
        host.send(5);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(results(&steering, 81), (40, 40), "it is detached");
    }
}

#[test]
fn the_best_hook_that_there_is_is_taken() {
    if !can_steer() {
        return;
    }
    let host = Host::new();
    let steering = Steering::load(&detector(ALWAYS), LinkKind::Ethernet).unwrap();
    let (program, gp0) = (steering.program().unwrap(), host.host.ifindex("gp0"));
    for order in [Order::Last, Order::First] {
        let attached = host.host.inside(|| attach(program, order, gp0)).unwrap();
        let best = match has_tcx() {
            true => HookKind::Tcx,
            false => HookKind::Clsact,
        };
        assert_eq!(attached.kind(), best);
    }
}
