//! An Open vSwitch of our own: database, switch and network namespace, all gone at the end.

#![allow(dead_code)] // Each test file uses a part of it.

use serde_json::Value;
use skua_link::Namespace;
use skua_ovsdb::{ClientConfig, Target};
use skua_testkit::{
    lab::{Net, run, wait_until},
    process::Process,
};
use std::{
    collections::BTreeMap, fs::File, os::unix::net::UnixStream, path::PathBuf, process::Command,
    time::Duration,
};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The namespace as the library knows it.
pub fn opened(net: &Net) -> Namespace {
    net.inside(Namespace::own).unwrap()
}

/// A program in a namespace that ends with this one, however this one ends.
pub fn command(net: &Net, program: &str) -> Command {
    let mut command = net.command("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

pub struct Ovs {
    server: Option<Process>,
    switch: Option<Process>,
    pub ns: Net,
    pub dir: tempfile::TempDir,
}

impl Ovs {
    /// Both processes run, and there is nothing in the database.
    pub fn new() -> Self {
        let mut ovs = Self::without_switch();
        let target = ovs.target().to_string();
        let control = format!("--unixctl={}", ovs.file("switch.ctl"));
        ovs.switch = Some(ovs.start("ovs-vswitchd", &[&target, &control], "switch.log"));
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
            ns: Net::new(),
            dir: tempfile::tempdir().expect("a folder"),
        };
        ovs.new_database();
        ovs.start_server();
        ovs
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn file(&self, name: &str) -> String {
        self.path(name).to_str().expect("a path").to_owned()
    }

    pub fn new_database(&self) {
        let _ = std::fs::remove_file(self.path("conf.db"));
        run(Command::new("ovsdb-tool").args(["create", &self.file("conf.db"), SCHEMA]));
    }

    pub fn start(&self, program: &str, arguments: &[&str], log: &str) -> Process {
        let log = File::create(self.path(log)).expect("a log");
        let mut command = command(&self.ns, program);
        // Where it makes the sockets of bridges.
        command.env("OVS_RUNDIR", self.dir.path());
        command.env("OVN_RUNDIR", self.dir.path());
        Process::start(command.args(arguments).arg("--no-chdir").stderr(log))
    }

    pub fn start_server(&mut self) {
        let _ = std::fs::remove_file(self.path("db.sock"));
        let remote = format!("--remote=punix:{}", self.file("db.sock"));
        let control = format!("--unixctl={}", self.file("server.ctl"));
        let lock = self.path(".conf.db.~lock~");
        let _ = std::fs::remove_file(lock);
        let database = self.file("conf.db");
        let arguments = [database.as_str(), &remote, &control];
        self.server = Some(self.start("ovsdb-server", &arguments, "server.log"));
        let socket = self.path("db.sock");
        // It is there before somebody listens at it.
        wait_until("database", || UnixStream::connect(&socket).is_ok());
        self.vsctl_no_wait(&["init"]);
    }

    /// As by `kill -9`.
    pub fn kill_server(&mut self) {
        self.server = None;
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
        run(Command::new("ovs-vsctl")
            .args(["--timeout=30", &database])
            .args(arguments))
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
