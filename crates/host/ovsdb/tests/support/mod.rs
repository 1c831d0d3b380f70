//! An Open vSwitch of our own: database, switch and network namespace, all gone at the end.

#![allow(dead_code)] // Each test file uses a part of it.

use serde_json::Value;
use skua_link::{Namespace, NamespaceId};
use skua_ovsdb::{ClientConfig, Target};
use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command, which must succeed, and gives back what it prints.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error} (see packaging/needs)"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{program} {arguments:?}: {err}");
    out.into_owned()
}

/// Waits for something to become true.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A network namespace that goes with its value.
pub struct NetNs {
    pub name: String,
}

impl NetNs {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ov-{}-{number}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let ns = Self { name };
        for set in ["all", "default"] {
            let setting = format!("net.ipv6.conf.{set}.disable_ipv6=1");
            ns.exec(&["sysctl", "-qw", &setting]);
        }
        ns.ip(&["link", "set", "lo", "up"]);
        ns
    }

    pub fn ip(&self, arguments: &[&str]) -> String {
        run("ip", &[&["-n", &self.name], arguments].concat())
    }

    pub fn exec(&self, arguments: &[&str]) -> String {
        run("ip", &[&["netns", "exec", &self.name], arguments].concat())
    }

    /// A process in it that ends with this one.
    pub fn spawn(&self, arguments: &[&str], log: &Path) -> Child {
        let log = || File::create(log).expect("a log");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.name])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn();
        child.unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    pub fn inode(&self) -> u64 {
        self.path().metadata().expect("a namespace").ino()
    }

    pub fn open(&self) -> Namespace {
        let file = File::open(self.path()).expect("a namespace");
        let metadata = file.metadata().expect("a namespace");
        Namespace {
            number: 1,
            name: self.name.clone(),
            id: NamespaceId {
                device: metadata.dev(),
                inode: metadata.ino(),
            },
            file: file.into(),
        }
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

pub struct Ovs {
    server: Option<Child>,
    switch: Option<Child>,
    pub ns: NetNs,
    pub dir: tempfile::TempDir,
}

impl Ovs {
    /// Both processes run, and there is nothing in the database.
    pub fn new() -> Self {
        let mut ovs = Self::without_switch();
        let target = ovs.target().to_string();
        let (ctl, log) = (ovs.file("switch.ctl"), ovs.path("switch.log"));
        let control = format!("--unixctl={ctl}");
        let arguments = ["ovs-vswitchd", &target, &control, "--no-chdir"];
        ovs.switch = Some(ovs.ns.spawn(&arguments, &log));
        // It answers only when it has read the database.
        ovs.vsctl(&["set", "Open_vSwitch", ".", "external_ids:ready=1"]);
        ovs.vsctl(&["remove", "Open_vSwitch", ".", "external_ids", "ready"]);
        ovs
    }

    /// Only the database runs.
    pub fn without_switch() -> Self {
        let mut ovs = Self {
            server: None,
            switch: None,
            ns: NetNs::new(),
            dir: tempfile::tempdir().expect("a folder"),
        };
        ovs.new_database();
        ovs.start_server();
        ovs
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).to_str().expect("a path").to_owned()
    }

    pub fn new_database(&self) {
        let _ = std::fs::remove_file(self.path("conf.db"));
        run("ovsdb-tool", &["create", &self.file("conf.db"), SCHEMA]);
    }

    pub fn start_server(&mut self) {
        let _ = std::fs::remove_file(self.path("db.sock"));
        let remote = format!("--remote=punix:{}", self.file("db.sock"));
        let control = format!("--unixctl={}", self.file("server.ctl"));
        let lock = self.path(".conf.db.~lock~");
        let _ = std::fs::remove_file(lock);
        let database = self.file("conf.db");
        let arguments = ["ovsdb-server", &database, &remote, &control, "--no-chdir"];
        self.server = Some(self.ns.spawn(&arguments, &self.path("server.log")));
        let socket = self.path("db.sock");
        // It is there before somebody listens at it.
        eventually("the database listens", || {
            UnixStream::connect(&socket).is_ok()
        });
        self.vsctl_no_wait(&["init"]);
    }

    /// As by `kill -9`.
    pub fn kill_server(&mut self) {
        kill(&mut self.server);
    }

    pub fn target(&self) -> Target {
        Target::Unix(self.path("db.sock"))
    }

    /// Settings of a client that is quick to try again.
    pub fn client(&self) -> ClientConfig {
        ClientConfig {
            backoff: Duration::from_millis(20),
            backoff_max: Duration::from_millis(200),
            ..ClientConfig::new(self.target())
        }
    }

    /// Returns when the switch has done it.
    pub fn vsctl(&self, arguments: &[&str]) -> String {
        let database = format!("--db={}", self.target());
        run(
            "ovs-vsctl",
            &[&["--timeout=30", &database], arguments].concat(),
        )
    }

    pub fn vsctl_no_wait(&self, arguments: &[&str]) -> String {
        self.vsctl(&[&["--no-wait"], arguments].concat())
    }

    pub fn add_bridge(&self, name: &str) {
        self.vsctl(&[
            "add-br",
            name,
            "--",
            "set",
            "bridge",
            name,
            "datapath_type=netdev",
        ]);
    }

    /// The rows of a table, by identifier, each with these columns (none: all), as texts.
    pub fn list(&self, table: &str, columns: &[&str]) -> BTreeMap<String, BTreeMap<String, Value>> {
        let wanted = format!("--columns=_uuid,{}", columns.join(","));
        let mut arguments = vec!["--format=json"];
        if !columns.is_empty() {
            arguments.push(&wanted);
        }
        arguments.extend(["list", table]);
        let text = self.vsctl_no_wait(&arguments);
        // Nothing at all is printed of an empty table by some versions.
        let table: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(headings) = table["headings"].as_array() else {
            return BTreeMap::new();
        };
        let rows = table["data"].as_array().expect("rows").iter();
        rows.map(|row| {
            let cells = row.as_array().expect("a row").iter().cloned();
            let names = headings
                .iter()
                .map(|name| name.as_str().expect("a name").to_owned());
            let mut row: BTreeMap<_, _> = names.zip(cells).collect();
            let id = row.remove("_uuid").expect("an identifier");
            (id[1].as_str().expect("an identifier").to_owned(), row)
        })
        .collect()
    }
}

pub fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        kill(&mut self.switch);
        kill(&mut self.server);
    }
}

/// The elements of a set, or the one value, as the protocol writes them.
pub fn set(value: &Value) -> Vec<Value> {
    match value.as_array().map(Vec::as_slice) {
        Some([kind, items]) if kind == "set" => items.as_array().expect("a set").clone(),
        _ => vec![value.clone()],
    }
}

/// Identifiers that a column refers to.
pub fn ids(value: &Value) -> Vec<String> {
    let ids = set(value);
    ids.iter()
        .map(|id| id[1].as_str().expect("an identifier").to_owned())
        .collect()
}

/// The pairs of a map.
pub fn map(value: &Value) -> BTreeMap<String, Value> {
    let pairs = value[1].as_array().expect("a map").iter();
    pairs
        .map(|pair| {
            (
                pair[0].as_str().expect("a text").to_owned(),
                pair[1].clone(),
            )
        })
        .collect()
}
