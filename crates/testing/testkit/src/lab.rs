//! A laboratory of network namespaces, made with iproute2. Needs root.
//!
//! A namespace goes with its value. Those of a test program that was killed go when the next one makes its first.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    fs::File,
    io::Write as _,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

/// Names of all namespaces begin so; then come the process that made them and a number.
const PREFIX: &str = "sk-";
const FOLDER: &str = "/run/netns";

/// Whether tests that need root shall run. Without rights they fail, on purpose: they are only left
/// out when SKUA_NO_ROOT_TESTS=1 says so.
pub fn root_tests() -> bool {
    let wanted = std::env::var_os("SKUA_NO_ROOT_TESTS").is_none_or(|value| value != "1");
    if !wanted {
        eprintln!("left out: SKUA_NO_ROOT_TESTS=1");
    }
    wanted
}

/// Version of the running kernel: 6 and 12 of `6.12.9-amd64`.
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.trim().parse());
    (
        numbers.next().unwrap().unwrap(),
        numbers.next().unwrap().unwrap(),
    )
}

/// Polls until something is there; fails when it does not come in a minute, which is far more than
/// any machine needs.
#[track_caller]
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < patience, "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Polls until something is so; otherwise as [`wait_for`].
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Runs a program to its end, fails with its words when it fails, and gives back its output.
#[track_caller]
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

/// Runs `work` on a thread inside the network namespace of a file.
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

/// Removes the namespaces of test programs that are gone.
fn sweep() {
    for entry in Path::new(FOLDER).read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let process = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|id| {
            id == std::process::id() || !Path::new(&format!("/proc/{id}")).exists()
        }) {
            // Another test program may remove it meanwhile.
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// A network namespace that lives as long as this value.
#[derive(Debug)]
pub struct Net {
    /// As `ip netns` lists it.
    pub name: String,
}

impl Net {
    /// Names of this process's namespaces begin so. Those of before are removed first.
    pub fn prefix() -> String {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        format!("{PREFIX}{}-", std::process::id())
    }

    /// One as the kernel makes it.
    pub fn bare() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", Self::prefix());
        run(Command::new("ip").args(["netns", "add", &name]));
        Self { name }
    }

    /// One whose loopback is up.
    pub fn with_ipv6() -> Self {
        let net = Self::bare();
        net.ip("link set lo up");
        net
    }

    /// One whose loopback is up, without IPv6: nobody but the test sends.
    #[allow(clippy::new_without_default, reason = "it is no value")]
    pub fn new() -> Self {
        let net = Self::bare();
        net.inside(|| {
            for conf in ["all", "default"] {
                let path = format!("/proc/sys/net/ipv6/conf/{conf}/disable_ipv6");
                std::fs::write(path, "1").unwrap();
            }
        });
        net.ip("link set lo up");
        net
    }

    /// Where the namespace is to be found.
    pub fn path(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }

    /// The namespace itself.
    pub fn file(&self) -> File {
        File::open(self.path()).unwrap()
    }

    /// Its number, as records have it.
    pub fn inode(&self) -> u64 {
        self.file().metadata().unwrap().ino()
    }

    /// Runs `ip -n NAME ARGS…`, the arguments split at spaces.
    #[track_caller]
    pub fn ip(&self, args: &str) -> String {
        run(Command::new("ip")
            .args(["-n", &self.name])
            .args(args.split_whitespace()))
    }

    /// Runs many commands of `ip`, one a line.
    #[track_caller]
    pub fn ip_batch(&self, lines: &str) {
        let mut ip = Command::new("ip")
            .args(["-n", &self.name, "-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = ip.stdin.take().unwrap();
        input.write_all(lines.as_bytes()).unwrap();
        drop(input);
        assert!(ip.wait().unwrap().success());
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
    #[track_caller]
    pub fn exec(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap();
        run(self.command(program).args(words))
    }

    /// Runs `work` on a thread inside. Sockets that it opens stay in this namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.path(), work)
    }

    /// Moves the calling thread inside, for good.
    pub fn enter(&self) {
        move_into_link_name_space(self.file().as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
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
    #[track_caller]
    pub fn link(&self, interface: &str) -> Value {
        let text = self.ip(&format!("-j -s link show dev {interface}"));
        let list: Value = serde_json::from_str(&text).unwrap();
        list[0].clone()
    }

    /// The number of an interface.
    #[track_caller]
    pub fn ifindex(&self, interface: &str) -> u32 {
        let index = self.link(interface)["ifindex"].as_u64().unwrap();
        index.try_into().unwrap()
    }

    /// Waits until the kernel has noticed that an interface of a pair is up. Before that, IPv6 answers nobody.
    pub fn wait_up(&self, interface: &str) {
        wait_until(&format!("carrier of {interface}"), || {
            self.link(interface)["operstate"] == "UP"
        });
    }

    /// Joins two namespaces by a veth pair, both ends up, the first one's MAC 02:00:00:00:0a:01, the second one's
    /// 02:00:00:00:0b:01, the MTU 9000.
    #[track_caller]
    pub fn veth(&self, interface: &str, peer: &Self, peer_interface: &str) {
        self.pair(
            &format!("{interface} address 02:00:00:00:0a:01 mtu 9000"),
            peer,
            &format!("{peer_interface} address 02:00:00:00:0b:01 mtu 9000"),
        );
    }

    /// The same with names and options as `ip link add` has them, like `va mtu 9000`.
    #[track_caller]
    pub fn pair(&self, end: &str, peer: &Self, peer_end: &str) {
        let name = |end: &str| end.split(' ').next().unwrap_or_default().to_owned();
        self.ip(&format!(
            "link add {end} type veth peer name {peer_end} netns {}",
            peer.name
        ));
        self.ip(&format!("link set {} up", name(end)));
        peer.ip(&format!("link set {} up", name(peer_end)));
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
