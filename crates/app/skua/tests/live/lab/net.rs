//! Network namespaces and veth pairs, made with iproute2 and removed when dropped.

use std::{
    fs::File,
    os::fd::AsFd as _,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use super::{PREFIX, Sum, wait_for};

/// A network namespace that lives as long as this value. Its loopback is up, IPv6 is off so that
/// nobody but the test sends.
pub struct Net {
    pub name: String,
}

/// Counters of an interface as `ip -s link` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    pub rx: Sum,
    pub tx: Sum,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
}

impl std::ops::Sub for Counters {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            rx: self.rx - other.rx,
            tx: self.tx - other.tx,
            rx_dropped: self.rx_dropped - other.rx_dropped,
            tx_dropped: self.tx_dropped - other.tx_dropped,
        }
    }
}

impl Net {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let net = Self {
            name: format!("{PREFIX}-{}-{number}", std::process::id()),
        };
        run(Command::new("ip").args(["netns", "add", &net.name]));
        for conf in ["all", "default"] {
            net.sysctl(&format!("ipv6/conf/{conf}/disable_ipv6"), "1");
        }
        net.ip("link set lo up");
        net
    }

    /// Where the namespace is to be found.
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// Runs `ip -n NAME ARGS…`, the arguments split at spaces.
    pub fn ip(&self, args: &str) -> String {
        run(Command::new("ip")
            .args(["-n", &self.name])
            .args(args.split_whitespace()))
    }

    /// A program that is going to run inside. `nsenter` leaves /sys as it is, and the process is
    /// the program's own.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.path()))
            .args(["--", program]);
        command
    }

    /// Runs a program inside, its arguments split at spaces.
    pub fn exec(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap();
        run(self.command(program).args(words))
    }

    /// Runs `work` on a thread inside. Sockets that it opens stay in this namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.path(), work)
    }

    /// Sets a value below /proc/sys/net.
    pub fn sysctl(&self, path: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/net/{path}"), value))
            .unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Turns offloads off or on, like `tso off gso off`.
    pub fn ethtool(&self, interface: &str, features: &str) {
        self.exec(&format!("ethtool -K {interface} {features}"));
    }

    /// What `ip -s link` says of an interface.
    pub fn link(&self, interface: &str) -> Value {
        let text = self.ip(&format!("-j -s link show dev {interface}"));
        let list: Value = serde_json::from_str(&text).unwrap();
        list[0].clone()
    }

    pub fn ifindex(&self, interface: &str) -> u32 {
        self.link(interface)["ifindex"].as_u64().unwrap() as u32
    }

    pub fn counters(&self, interface: &str) -> Counters {
        let link = self.link(interface);
        let (rx, tx) = (&link["stats64"]["rx"], &link["stats64"]["tx"]);
        Counters {
            rx: Sum::of(rx),
            tx: Sum::of(tx),
            rx_dropped: rx["dropped"].as_u64().unwrap(),
            tx_dropped: tx["dropped"].as_u64().unwrap(),
        }
    }

    /// The counters once they have stopped to change.
    pub fn settled_counters(&self, interface: &str) -> Counters {
        let mut before = self.counters(interface);
        wait_for("end of the traffic", || {
            std::thread::sleep(std::time::Duration::from_millis(60));
            let now = self.counters(interface);
            (std::mem::replace(&mut before, now) == now).then_some(now)
        })
    }

    /// Joins two namespaces by a veth pair, both ends up. The MACs end in the same byte, the first
    /// one's is 02:00:00:00:0a:xx, the second one's 02:00:00:00:0b:xx.
    pub fn veth(&self, interface: &str, peer: &Self, peer_interface: &str) {
        self.ip(&format!(
            "link add {interface} address 02:00:00:00:0a:01 mtu 9000 type veth peer name \
             {peer_interface} address 02:00:00:00:0b:01 mtu 9000 netns {}",
            peer.name
        ));
        self.ip(&format!("link set {interface} up"));
        peer.ip(&format!("link set {peer_interface} up"));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // A test may have deleted it itself.
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

/// Two namespaces and a wire: `g0` where traffic is made, `x0` where it is watched.
pub struct Wire {
    pub far: Net,
    pub near: Net,
}

impl Wire {
    pub fn new() -> Self {
        let wire = Self {
            far: Net::new(),
            near: Net::new(),
        };
        wire.far.veth("g0", &wire.near, "x0");
        wire
    }

    /// Gives both ends addresses, 10.7.0.1 to `g0` and 10.7.0.2 to `x0`, and tells them each
    /// other's MAC so that nobody asks.
    pub fn with_addresses(self) -> Self {
        self.far.ip("addr add 10.7.0.1/24 dev g0");
        self.near.ip("addr add 10.7.0.2/24 dev x0");
        self.far
            .ip("neigh add 10.7.0.2 lladdr 02:00:00:00:0b:01 dev g0 nud permanent");
        self.near
            .ip("neigh add 10.7.0.1 lladdr 02:00:00:00:0a:01 dev x0 nud permanent");
        self
    }
}

/// Runs `work` on a thread inside the namespace of a file.
pub fn inside<T: Send>(path: &str, work: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let file = File::open(path).unwrap();
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            })
            .join()
    });
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a program to its end, fails with its words when it fails, and gives back its output.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
