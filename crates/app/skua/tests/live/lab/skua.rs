//! The command under test.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skua_testkit::access::{BEARER, let_in};

use super::{Net, Sum, wait_for};

/// The API drains for an answer only when the last drain is older than a tenth of a second.
const AGE: Duration = Duration::from_millis(550);

/// Tests that do not say otherwise keep no history: it is this machine's.
pub const NO_HISTORY: (&str, &str) = ("SKUA_HISTORY_DIRECTORY", "");

/// A `skua` that will run inside a namespace, untouched by this machine's configuration.
pub fn command(net: &Net) -> Command {
    let mut command = net.command(skua_testkit::program!());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SKUA_") {
            command.env_remove(name);
        }
    }
    command
        .env("SKUA_CONFIG", "/dev/null")
        .env(NO_HISTORY.0, NO_HISTORY.1);
    let_in(&mut command);
    command
}

fn run_arguments<'a>(command: &'a mut Command, args: &str) -> &'a mut Command {
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(args.split_whitespace())
}

/// Runs `skua ARGS…` to its end, the arguments split at spaces.
pub fn output(net: &Net, args: &str) -> Output {
    command(net)
        .args(args.split_whitespace())
        .output()
        .unwrap_or_else(|e| panic!("skua {args}: {e}"))
}

/// Hides all network namespaces of this machine but the own and those that are named, and runs a
/// program there: `--all-netns` is to meet the test's namespaces only, whatever else goes on.
const HIDE: &str = r#"
    set -e
    rooms=$1; shift
    mount --make-rprivate /
    mount -t proc proc /proc
    fds=()
    for room in $rooms; do exec {fd}<"/run/netns/$room"; fds+=("$fd"); done
    mount -t tmpfs tmpfs /run/netns
    for room in $rooms; do
        fd=${fds[0]}; fds=("${fds[@]:1}")
        touch "/run/netns/$room"
        mount --no-canonicalize --bind "/proc/self/fd/$fd" "/run/netns/$room"
        exec {fd}<&-
    done
    exec "$@"
"#;

/// A running `skua run` or `skua flows`.
pub struct Skua {
    child: Child,
    /// The child itself, or what it runs in a PID namespace.
    pid: u32,
    net: String,
    /// Where it listens; nothing for `skua flows`.
    pub address: String,
    out: Option<BufReader<ChildStdout>>,
    err: Option<JoinHandle<String>>,
}

impl Skua {
    /// `skua run ARGS…`, when it says that it watches.
    pub fn run(net: &Net, args: &str) -> Self {
        let mut skua = Self::start(net, run_arguments(&mut command(net), args));
        skua.wait_ready();
        skua
    }

    /// A `skua run` that was put together elsewhere, when it says that it watches.
    pub fn run_command(net: &Net, command: &mut Command) -> Self {
        if command
            .get_envs()
            .all(|(name, _)| name != "SKUA_API_TOKENS")
        {
            let_in(command);
        }
        let mut skua = Self::start(net, command);
        skua.wait_ready();
        skua
    }

    /// `skua run --all-netns ARGS…` for which the machine has no namespaces but these.
    pub fn run_among(net: &Net, rooms: &[&Net], args: &str) -> Self {
        Self::run_among_with(net, rooms, args, &[])
    }

    /// Likewise with variables.
    pub fn run_among_with(
        net: &Net,
        rooms: &[&Net],
        args: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let names: Vec<_> = rooms.iter().map(|room| room.name.as_str()).collect();
        let mut hidden = net.command("unshare");
        hidden
            .args(["--mount", "--pid", "--fork", "--kill-child", "--"])
            .args(["bash", "-c", HIDE, "hide", &names.join(" ")])
            .arg(skua_testkit::program!())
            .env("SKUA_CONFIG", "/dev/null")
            .env(NO_HISTORY.0, NO_HISTORY.1)
            .envs(variables.iter().copied());
        let_in(&mut hidden);
        let mut skua = Self::start(net, run_arguments(&mut hidden, args).arg("--all-netns"));
        skua.wait_ready();
        let outer = skua.pid;
        let inner = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"));
        skua.pid = inner.unwrap().trim().parse().unwrap();
        skua
    }

    /// Shows a further namespace to a `skua` of [`Self::run_among`].
    pub fn show(&self, room: &Net) {
        self.change_rooms(
            &format!(
                "touch /run/netns/{0} && mount --no-canonicalize --bind /proc/self/fd/0 /run/netns/{0}",
                room.name
            ),
            Stdio::from(std::fs::File::open(room.path()).unwrap()),
        );
    }

    /// Takes a namespace away again.
    pub fn hide(&self, room: &Net) {
        self.change_rooms(
            &format!(
                "umount --lazy /run/netns/{0} && rm /run/netns/{0}",
                room.name
            ),
            Stdio::null(),
        );
    }

    fn change_rooms(&self, script: &str, stdin: Stdio) {
        skua_testkit::lab::run(
            Command::new("nsenter")
                .arg(format!("--mount=/proc/{}/ns/mnt", self.pid))
                .arg(format!("--pid=/proc/{}/ns/pid", self.pid))
                .args(["--", "sh", "-c", script])
                .stdin(stdin),
        );
    }

    fn wait_ready(&mut self) {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        let Some((_, rest)) = line.split_once("http://") else {
            panic!("skua run: {line:?}, {}", self.end().1);
        };
        self.address = rest.split('/').next().unwrap().to_owned();
    }

    /// Starts any `skua`.
    pub fn start(net: &Net, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = child.stderr.take().unwrap();
        Self {
            out: child.stdout.take().map(BufReader::new),
            err: Some(std::thread::spawn(move || {
                let mut text = String::new();
                err.read_to_string(&mut text).unwrap();
                text
            })),
            pid: child.id(),
            child,
            net: net.path(),
            address: String::new(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid as i32).unwrap(), signal).unwrap();
    }

    /// Halts it; its programs in the kernel go on.
    pub fn halt(&self) {
        self.signal(Signal::STOP);
        wait_for("halt", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            let (_, rest) = stat.rsplit_once(") ").unwrap();
            rest.starts_with('T').then_some(())
        });
    }

    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks the API.
    pub fn get(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        skua_testkit::lab::inside(&self.net, || {
            ureq::get(url)
                .header("Authorization", BEARER)
                .call()
                .unwrap()
                .body_mut()
                .with_config()
                .limit(1 << 30)
                .read_to_string()
                .unwrap()
        })
    }

    /// Sums that may be as old as [`AGE`].
    pub fn summary(&self) -> Report {
        Report(serde_json::from_str(&self.get("/api/summary")).unwrap())
    }

    /// All conversations, with everything that was sent before the call.
    pub fn flows(&self) -> Vec<Value> {
        std::thread::sleep(AGE);
        parse_lines(&self.get("/api/flows?by=point"))
    }

    /// Sums with everything that was sent before the call.
    pub fn fresh_summary(&self) -> Report {
        std::thread::sleep(AGE);
        self.summary()
    }

    /// Waits until an interface is attached.
    pub fn wait_attached(&self, interface: &str) {
        wait_for(&format!("attachment to {interface}"), || {
            let report = self.summary();
            let there = report
                .find(interface)
                .is_some_and(|i| i["attached"] == true);
            there.then_some(())
        });
    }

    /// Ctrl-C; gives back the summary after having checked that it is consistent in itself.
    pub fn stop(self) -> Report {
        self.stop_with_output().0
    }

    /// Ctrl-C; the summary and what was printed since the first line.
    pub fn stop_with_output(self) -> (Report, String) {
        self.signal(Signal::INT);
        self.ended()
    }

    /// Ctrl-C; the summary and what was said on standard error.
    pub fn stop_with_errors(self) -> (Report, String) {
        self.signal(Signal::INT);
        let (report, _, err) = self.finished();
        (report, err)
    }

    /// Waits for its end; the summary and what was printed since the first line.
    pub fn ended(self) -> (Report, String) {
        let (report, out, _) = self.finished();
        (report, out)
    }

    fn finished(mut self) -> (Report, String, String) {
        let (out, err) = self.end();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {err}");
        let last = err.lines().last().unwrap_or_default();
        let report = Report(serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {err}")));
        report.check();
        (report, out, err)
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end of its output.
    fn end(&mut self) -> (String, String) {
        let mut text = String::new();
        let out = self.out.take();
        // One may be the full pipe that the other waits for: the threads read both.
        out.unwrap().read_to_string(&mut text).unwrap();
        (text, self.err.take().unwrap().join().unwrap())
    }
}

impl Drop for Skua {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// JSON objects, one a line.
pub fn parse_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// Packets and bytes of conversations, both ways.
pub fn sum_of<'a>(flows: impl IntoIterator<Item = &'a Value>) -> Sum {
    flows
        .into_iter()
        .map(|flow| Sum::of(&flow["ab"]) + Sum::of(&flow["ba"]))
        .sum()
}

/// What `--summary json` prints and /api/summary answers.
#[derive(Clone, Debug)]
pub struct Report(pub Value);

impl Report {
    pub fn seen(&self) -> Sum {
        Sum::of(&self.0["seen"])
    }

    pub fn in_flows(&self) -> Sum {
        Sum::of(&self.0["in_flows"])
    }

    /// Lost by a cause.
    pub fn lost(&self, cause: &str) -> Sum {
        Sum::of(&self.0["lost"][cause])
    }

    /// Lost by any cause.
    pub fn all_lost(&self) -> Sum {
        total(&self.0["lost"])
    }

    /// Left out as configured, by a cause.
    pub fn left_out(&self, cause: &str) -> Sum {
        Sum::of(&self.0["left_out"][cause])
    }

    pub fn note(&self, name: &str) -> Sum {
        Sum::of(&self.0["notes"][name])
    }

    pub fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap()
    }

    /// An interface by name.
    pub fn find(&self, interface: &str) -> Option<&Value> {
        self.0["interfaces"]
            .as_array()
            .unwrap()
            .iter()
            .find(|i| i["interface"] == interface)
    }

    /// An interface by name, which must be there.
    pub fn interface(&self, interface: &str) -> &Value {
        self.find(interface)
            .unwrap_or_else(|| panic!("no {interface} in {}", self.0))
    }

    /// (received, sent) in flows of an interface.
    pub fn directions(&self, interface: &str) -> (Sum, Sum) {
        let interface = self.interface(interface);
        (
            Sum::of(&interface["ingress"]),
            Sum::of(&interface["egress"]),
        )
    }

    /// What every summary must hold.
    fn check(&self) {
        assert_eq!(
            self.seen(),
            self.in_flows() + self.all_lost() + total(&self.0["left_out"]),
            "{}",
            self.0
        );
        for interface in self.0["interfaces"].as_array().unwrap() {
            assert_eq!(
                Sum::of(&interface["in_flows"]),
                Sum::of(&interface["ingress"])
                    + Sum::of(&interface["egress"])
                    + Sum::of(&interface["mixed"]),
                "{interface}"
            );
        }
    }
}

fn total(causes: &Value) -> Sum {
    causes.as_object().unwrap().values().map(Sum::of).sum()
}
