//! Programs that run beside a test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::Net;

/// A running program; killed when dropped.
pub struct Process {
    child: Child,
    lines: BufReader<Box<dyn Read + Send>>,
}

impl Process {
    /// Starts a program. What it prints is read here, its input comes from here.
    pub fn start(command: &mut Command) -> Self {
        let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let lines = BufReader::new(Box::new(child.stdout.take().unwrap()) as _);
        Self { child, lines }
    }

    /// Starts a program of which the messages are read here: its standard error. Input and output are as the command
    /// says.
    pub fn with_messages(command: &mut Command) -> Self {
        let mut child = spawn(command.stderr(Stdio::piped()));
        let lines = BufReader::new(Box::new(child.stderr.take().unwrap()) as _);
        Self { child, lines }
    }

    /// Starts a script of Python in a namespace.
    pub fn python(net: &Net, script: &str, arguments: &[&str]) -> Self {
        let mut command = net.command("/usr/bin/python3");
        Self::start(command.args(["-u", "-c", script]).args(arguments))
    }

    /// Waits for its first line, by which it says that it is ready.
    #[track_caller]
    pub fn ready(mut self) -> Self {
        self.line();
        self
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it prints, when that is a pipe and not read here.
    pub fn output(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// Its process ID, also inside a namespace: `nsenter` becomes the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line, without its end.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.lines.read_line(&mut line).unwrap();
        assert!(length > 0, "the program ended");
        line.trim().to_owned()
    }

    /// The next line as numbers.
    #[track_caller]
    pub fn numbers(&mut self) -> Vec<u32> {
        let line = self.line();
        line.split_whitespace()
            .map(|n| n.parse().unwrap_or_else(|_| panic!("{line:?}")))
            .collect()
    }

    /// The next line with these words.
    #[track_caller]
    pub fn wait_for_line(&mut self, words: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Everything that has not been read, until the program closes its end.
    pub fn rest(&mut self) -> String {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        text
    }

    /// Writes a line to its input.
    pub fn write_line(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends it a signal, unless it has ended, and waits for its end, whatever that is.
    pub fn end(&mut self, signal: Signal) {
        if self.is_running() {
            self.signal(signal);
        }
        self.child.wait().unwrap();
    }

    /// Closes its input and waits for its end, which must be a success.
    #[track_caller]
    pub fn wait(mut self) {
        self.child.stdin = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.rest());
    }
}

fn spawn(command: &mut Command) -> Child {
    let child = command.spawn();
    child.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A control group below the root of the unified hierarchy, else of version 1's `pids`: what a
/// container is as far as its sockets go.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes one.
    pub fn new(path: &str) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounted = |wanted: fn(&str, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let (place, kind) = line.split_once(" - ")?;
                let mut kind = kind.split(' ');
                wanted(kind.next()?, kind.nth(1)?).then(|| place.split(' ').nth(4))?
            })
        };
        let root = mounted(|kind, _| kind == "cgroup2")
            .or_else(|| mounted(|_, options| options.split(',').any(|name| name == "pids")))
            .expect("control groups are mounted");
        let group = Path::new(root).join(path);
        std::fs::create_dir(&group).unwrap();
        Self(group)
    }

    /// Puts a process into it.
    pub fn add(&self, process: &Process) {
        std::fs::write(self.0.join("cgroup.procs"), process.id().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes may not be gone quite yet.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A tcpdump that writes the packets of an interface to a file.
pub struct Tcpdump {
    process: Process,
    file: PathBuf,
}

impl Tcpdump {
    /// Returns when it captures. Further arguments are options and the filter.
    pub fn start(net: &Net, interface: &str, arguments: &[&str]) -> Self {
        let name = format!("{}-{interface}.pcap", net.name);
        let file = std::env::temp_dir().join(name);
        let mut command = net.command("tcpdump");
        command
            .args(["-i", interface, "-s", "0", "-U", "-B", "65536"])
            .args(["-Z", "root", "-w"])
            .arg(&file)
            .args(arguments);
        let mut process = Process::with_messages(&mut command);
        process.wait_for_line("listening on");
        Self { process, file }
    }

    /// Where the packets are.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// How many packets it has read, and how many its socket has got. It says both at this signal.
    fn counts(&mut self) -> Vec<u64> {
        self.process.signal(Signal::USR1);
        let line = self.process.wait_for_line("captured");
        let numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        numbers.take(2).collect()
    }

    /// Ends it when it has read all that came, of which nothing may be lost. The file stays as long as the value.
    #[track_caller]
    pub fn stop(&mut self) {
        // Its ring hands a block over when it is full or some time old; what it has not read then is lost.
        let end = Instant::now() + Duration::from_secs(20);
        let mut before = Vec::new();
        loop {
            let now = self.counts();
            if (now == before && now[0] == now[1]) || Instant::now() > end {
                break;
            }
            before = now;
            std::thread::sleep(Duration::from_millis(300));
        }
        self.process.signal(Signal::INT);
        let messages = self.process.rest();
        assert!(self.process.child.wait().unwrap().success(), "{messages}");
        assert!(
            messages.contains("\n0 packets dropped by kernel"),
            "{messages}"
        );
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}
