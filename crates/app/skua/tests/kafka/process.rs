//! A collector as a process.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{JoinHandle, spawn},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::wait_for;

/// A collector, and what it has said so far.
pub struct Collector {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<()>>,
    said: Arc<Mutex<String>>,
    /// Where it listens.
    pub address: SocketAddr,
}

fn gather(mut from: impl std::io::Read + Send + 'static) -> JoinHandle<String> {
    spawn(move || {
        let mut all = String::new();
        from.read_to_string(&mut all).unwrap();
        all
    })
}

impl Collector {
    /// One that was put together elsewhere, when it listens.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (theirs, mut lines) = (said.clone(), BufReader::new(child.stderr.take().unwrap()));
        let err = spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap() > 0 {
                theirs.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let mut collector = Self {
            out: Some(gather(child.stdout.take().unwrap())),
            err: Some(err),
            child,
            said,
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        collector.wait_said("; Ctrl-C ends");
        let said = collector.said();
        let (_, after) = said
            .split_once("collects sFlow, NetFlow and IPFIX at ")
            .unwrap();
        collector.address = after.split(';').next().unwrap().parse().unwrap();
        collector
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn wait_said(&self, what: &str) {
        wait_for(what, || self.said().contains(what).then_some(()));
    }

    /// Its standard output until it ends.
    fn end(&mut self) -> String {
        let out = self.out.take().unwrap().join().unwrap();
        self.err.take().unwrap().join().unwrap();
        out
    }

    /// Ctrl-C: its standard output and its summary.
    pub fn stop(mut self) -> (String, Value) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let out = self.end();
        assert!(self.child.wait().unwrap().success(), "{}", self.said());
        let said = self.said();
        let summary = serde_json::from_str(said.lines().last().unwrap());
        (out, summary.unwrap_or_else(|e| panic!("{e}: {said}")))
    }

    /// `kill -9`: its standard output.
    pub fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.end()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
