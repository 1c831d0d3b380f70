//! A real Kafka broker for a test, by `tests/kafka/broker`.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

/// A message, as it lies in a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Key; empty without.
    pub key: Vec<u8>,
    /// Payload; empty without.
    pub payload: Vec<u8>,
}

/// A broker with a folder of its own; dropping it ends the broker and removes the folder.
#[derive(Debug)]
pub struct Broker {
    folder: PathBuf,
    port: u16,
}

static SHARED: Mutex<Weak<Broker>> = Mutex::new(Weak::new());
static NEXT: AtomicU16 = AtomicU16::new(0);

/// Three free ports, of which this is the first; below those that the kernel hands out.
fn free_ports() -> u16 {
    let begin = (std::process::id() % 3_000) as u16 * 3;
    loop {
        let port = 20_000 + (begin + NEXT.fetch_add(3, Relaxed)) % 10_000;
        let free = |offset: u16| TcpListener::bind(("127.0.0.1", port + offset)).is_ok();
        if (0..3).all(free) {
            return port;
        }
    }
}

impl Broker {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start() -> Self {
        let port = free_ports();
        let name = format!("skua-broker-{}-{port}", std::process::id());
        let broker = Self {
            folder: std::env::temp_dir().join(name),
            port,
        };
        broker.start_again();
        broker
    }

    /// One that all tests of a process share that want one at the same time.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broker) = shared.upgrade() {
            return broker;
        }
        let broker = Arc::new(Self::start());
        *shared = Arc::downgrade(&broker);
        broker
    }

    fn command(&self, arguments: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/kafka/broker");
        let status = Command::new(script)
            .args(arguments)
            .env("SKUA_BROKER", self.address())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        assert!(
            status.as_ref().is_ok_and(|status| status.success()),
            "tests/kafka/broker {arguments:?}: {status:?}"
        );
    }

    fn folder_text(&self) -> &str {
        self.folder.to_str().unwrap_or_default()
    }

    /// Starts it again, with what it had.
    pub fn start_again(&self) {
        self.command(&["start", self.folder_text(), &self.port.to_string()]);
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.command(&["kill", self.folder_text()]);
    }

    /// Makes a topic; options like `max.message.bytes=100`.
    pub fn topic(&self, name: &str, partitions: u32, options: &[&str]) {
        let partitions = partitions.to_string();
        let mut arguments = vec!["topic", name, &partitions];
        arguments.extend(options);
        self.command(&arguments);
    }

    /// Where it is for everyone.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it is for users by TLS.
    pub fn tls_address(&self) -> String {
        format!("localhost:{}", self.port + 1)
    }

    /// Its certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// All that is in a topic, read by kcat.
    ///
    /// # Panics
    ///
    /// If kcat cannot read it.
    pub fn read(&self, topic: &str) -> Vec<Message> {
        let output = Command::new("kcat")
            .args(["-C", "-q", "-e", "-o", "beginning", "-f", "%K %S %k%s"])
            .args(["-b", &self.address(), "-t", topic])
            .output();
        let Ok(output) = output else {
            panic!("kcat cannot be run: packaging/needs tests");
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kcat: {said}");
        let mut rest = output.stdout.as_slice();
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let [key, payload] = [length(&mut rest), length(&mut rest)];
            let (key, after) = rest.split_at(key);
            let (payload, after) = after.split_at(payload);
            rest = after;
            messages.push(Message {
                key: key.to_vec(),
                payload: payload.to_vec(),
            });
        }
        messages
    }
}

/// A number and a space; -1 stands for none.
fn length(rest: &mut &[u8]) -> usize {
    let Some(space) = rest.iter().position(|byte| *byte == b' ') else {
        panic!("kcat's output ends within a number");
    };
    let (number, after) = rest.split_at(space);
    *rest = after.get(1..).unwrap_or_default();
    let number = std::str::from_utf8(number).unwrap_or_default();
    match number.parse::<i64>() {
        Ok(length) => usize::try_from(length).unwrap_or(0),
        Err(error) => panic!("kcat's output is no number: {number:?}: {error}"),
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.command(&["remove", self.folder_text()]);
    }
}
