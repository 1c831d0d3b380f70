//! A host with two pods, and values that are sent through it.

use std::{
    net::UdpSocket,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value;

use crate::lab::{Net, Skua, skua, wait_for};

/// Sequence numbers that a pod has received.
pub struct Pod {
    pub net: Net,
    got: Arc<Mutex<Vec<u64>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pod {
    pub fn new() -> Self {
        Self {
            net: Net::new(),
            got: Arc::default(),
            stop: Arc::default(),
            thread: None,
        }
    }

    /// Receives on a port from now on.
    pub fn listen(&mut self, port: u16) {
        let socket = self
            .net
            .inside(|| UdpSocket::bind(("0.0.0.0", port)).unwrap());
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let (got, stop) = (self.got.clone(), self.stop.clone());
        self.thread = Some(std::thread::spawn(move || {
            let mut buffer = [0; 256];
            while !stop.load(Ordering::Relaxed) {
                let Ok(length) = socket.recv(&mut buffer) else {
                    continue;
                };
                let text = std::str::from_utf8(&buffer[2..length]).unwrap();
                let number = text.split(';').nth(1).unwrap().parse().unwrap();
                got.lock().unwrap().push(number);
            }
        }));
    }

    pub fn count(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    /// What came, in order of the numbers; then nothing has come.
    pub fn take(&self) -> Vec<u64> {
        let mut all = std::mem::take(&mut *self.got.lock().unwrap());
        all.sort_unstable();
        all
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A sender behind `gp0`, pod A behind `pa0`, which a bridge joins, and pod B behind `pb0`.
pub struct Host {
    pub sender: Net,
    pub host: Net,
    pub a: Pod,
    pub b: Pod,
    socket: Option<UdpSocket>,
    pub sent: u64,
    files: Vec<PathBuf>,
}

impl Drop for Host {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = match file.is_dir() {
                true => std::fs::remove_dir_all(file),
                false => std::fs::remove_file(file),
            };
        }
    }
}

const A: &str = "10.1.0.2:9000";

impl Host {
    pub fn new() -> Self {
        let mut host = Self {
            sender: Net::new(),
            host: Net::new(),
            a: Pod::new(),
            b: Pod::new(),
            socket: None,
            sent: 0,
            files: Vec::new(),
        };
        let net = &host.host;
        net.ip("link add br0 type bridge");
        net.ip("link set br0 up");
        for (near, far, peer, address) in [
            ("gp0", "g0", &host.sender, "10.1.0.1"),
            ("pa0", "va0", &host.a.net, "10.1.0.2"),
            ("pb0", "vb0", &host.b.net, "10.1.0.3"),
        ] {
            host.pair(near, far, peer, address);
        }
        for port in ["gp0", "pa0"] {
            net.ip(&format!("link set {port} master br0"));
        }
        // Nobody asks for addresses, so that only the test's packets are counted.
        host.sender
            .ip("neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev g0 nud permanent");
        host.a.listen(9000);
        host.b.listen(9001);
        host.socket = Some(
            host.sender
                .inside(|| UdpSocket::bind("10.1.0.1:0").unwrap()),
        );
        host
    }

    pub fn pair(&self, near: &str, far: &str, peer: &Net, address: &str) {
        let last = address.rsplit('.').next().unwrap();
        self.host.ip(&format!(
            "link add {near} type veth peer name {far} address 02:00:00:00:00:0{last} netns {}",
            peer.name
        ));
        peer.ip(&format!("addr add {address}/24 dev {far}"));
        peer.ip(&format!("link set {far} up"));
        self.host.ip(&format!("link set {near} up"));
    }

    /// Sends a value of a channel; the packet's number.
    pub fn send(&mut self, channel: u16, value: f64) -> u64 {
        let number = self.sent;
        let text = format!("{value};{number}");
        let payload = [&channel.to_be_bytes()[..], text.as_bytes()].concat();
        self.socket.as_ref().unwrap().send_to(&payload, A).unwrap();
        self.sent += 1;
        // No queue on the way may fill up.
        if self.sent.is_multiple_of(50) {
            self.arrived();
        }
        number
    }

    /// Waits until everything has arrived somewhere that was sent since the pods were emptied.
    pub fn arrived(&self) {
        let (mut before, mut same) = (usize::MAX, 0);
        wait_for("end of the traffic", || {
            let now = self.a.count() + self.b.count();
            same = if now == before { same + 1 } else { 0 };
            before = now;
            // Twenty milliseconds each: long enough for what can still come.
            (same >= 2).then_some(())
        });
    }

    /// Takes what came, and checks that all numbers came, each once.
    pub fn all_once(&self, numbers: std::ops::Range<u64>) -> (Vec<u64>, Vec<u64>) {
        self.arrived();
        let (a, b) = (self.a.take(), self.b.take());
        let mut all = [a.as_slice(), b.as_slice()].concat();
        all.sort_unstable();
        assert_eq!(all, numbers.collect::<Vec<_>>(), "each once");
        (a, b)
    }

    /// Sends twenty values, each far from the one before; how many came to each pod.
    pub fn round(&mut self) -> (usize, usize) {
        let before = self.sent;
        for value in 0..20u32 {
            self.send(1, f64::from(value % 2 + 5));
        }
        let (a, b) = self.all_once(before..before + 20);
        (a.len(), b.len())
    }

    /// A folder that is removed with the rest.
    pub fn folder(&mut self, name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("{}-{name}", self.host.name));
        std::fs::create_dir(&path).unwrap();
        self.files.push(path.clone());
        path
    }

    pub fn file(&mut self, name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("{}-{name}", self.host.name));
        std::fs::write(&path, text).unwrap();
        let name = path.to_str().unwrap().to_owned();
        self.files.push(path);
        name
    }

    pub fn ask(&self, skua: &Skua, args: &[&str]) -> Result<String, String> {
        let output = skua::command(&self.host)
            .args(args)
            .env("SKUA_ANALYZER", &skua.address)
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    /// Ends what a killed process has left; in this namespace there is none to ask.
    pub fn release(&self) -> String {
        let output = skua::output(&self.host, "steer release");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn apply(&mut self, skua: &Skua, detector: &str) -> String {
        let file = self.file("detector.yaml", detector);
        self.ask(skua, &["steer", "apply", &file]).unwrap()
    }

    pub fn show(&self, skua: &Skua) -> Value {
        let text = self.ask(skua, &["steer", "show", "jumps"]).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    pub fn wait_state(&self, skua: &Skua, state: &str) -> Value {
        wait_for(state, || {
            let view = self.show(skua);
            (view["State"] == state).then_some(view)
        })
    }

    pub fn result(&self, skua: &Skua, name: &str) -> u64 {
        self.show(skua)["Counts"]["Results"][name].as_u64().unwrap()
    }
}

pub const JUMPS: &str = "\
name: jumps
preset: ewma-64
interface: gp0
match: udp dst port 9000
action:
  redirect: {to: pb0, address: 10.1.0.3, port: 9001}
";

/// Every packet behind the first fires.
pub const ALWAYS: &str = "\
name: jumps
preset: ewma-64
interface: gp0
match: udp dst port 9000
ring: 1
smoothing: 0
threshold: {shift: 63}
watchdog: {after: 500ms}
action:
  redirect: {to: pb0, address: 10.1.0.3, port: 9001}
";
