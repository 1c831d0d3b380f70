//! `skua top` on a real pseudo-terminal, of a real `skua run`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsFd as _, OwnedFd},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};
use skua_testkit::access::{TOKEN, tokens};

/// Long enough for the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn skua() -> Command {
    let mut command = Command::new(skua_testkit::program!());
    command
        .env("SKUA_HISTORY_DIRECTORY", "")
        .env("SKUA_API_TOKENS", tokens())
        .env("SKUA_API_SOCKET", "")
        .env("SKUA_TOKEN", TOKEN)
        .env_remove("NO_COLOR")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm-256color");
    command
}

/// A `skua run` on loopback.
struct Run {
    child: Child,
    address: String,
}

impl Run {
    fn start(listen: &str) -> Self {
        let mut command = skua();
        command.args(["run", "--interface", "lo", "--listen", listen]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut greeting = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut greeting).unwrap();
        let (_, rest) = greeting.split_once("http://").expect("a greeting");
        let address = rest.split('/').next().unwrap().to_owned();
        Self { child, address }
    }

    fn end(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Gone already when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A terminal with a `skua top`.
struct Terminal {
    child: Child,
    keys: File,
    /// Its other side, kept open so that its settings can be looked at.
    line: OwnedFd,
    before: String,
    parser: Arc<Mutex<vt100::Parser>>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        Self::start_in(".", arguments)
    }

    /// The same in a folder.
    fn start_in(folder: &str, arguments: &[&str]) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let line = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        tcsetwinsize(&keys, size(24, 80)).unwrap();
        let before = settings(&line);
        // With a session of its own, so that it hears of changes of size.
        let top = skua();
        let mut command = Command::new("setsid");
        command.args(["--ctty", skua_testkit::program!(), "top"]);
        for (name, value) in top.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let end = || Stdio::from(line.try_clone().unwrap());
        let command = command
            .args(arguments)
            .current_dir(folder)
            .stdin(end())
            .stdout(end())
            .stderr(end());
        let child = command.spawn().unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(24, 80, 0)));
        let keys = File::from(keys);
        let (mut output, screen) = (keys.try_clone().unwrap(), parser.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                screen.lock().unwrap().process(&bytes[..read]);
            }
        });
        Self {
            child,
            keys,
            line: line.into(),
            before,
            parser,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn screen(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    fn resize(&self, rows: u16, columns: u16) {
        let mut parser = self.parser.lock().unwrap();
        parser.screen_mut().set_size(rows, columns);
        tcsetwinsize(self.keys.as_fd(), size(rows, columns)).unwrap();
    }

    #[track_caller]
    fn wait_for(&self, what: &str, shown: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if shown(&screen) {
                return screen;
            }
            assert!(begin.elapsed() < PATIENCE, "{what} is not on:\n{screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn shows(&self, text: &str) -> String {
        self.wait_for(text, |screen| screen.contains(text))
    }

    /// How it ended; it has given back the terminal as it was.
    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "still there:\n{}",
                self.screen()
            );
            thread::sleep(Duration::from_millis(50));
        };
        self.wait_for("the screen before", |_| {
            let parser = self.parser.lock().unwrap();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        });
        assert_eq!(settings(&self.line), self.before);
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Gone already when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(line: &impl std::os::fd::AsFd) -> String {
    format!("{:?}", tcgetattr(line).unwrap())
}

/// Somebody who sends datagrams over loopback, as long as it is there.
struct Traffic {
    port: u16,
    over: Arc<AtomicBool>,
}

impl Traffic {
    fn start() -> Self {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        thread::spawn(move || {
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            sender.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let _ = sender.send(&[7; 1000]);
                thread::sleep(Duration::from_millis(20));
            }
            drop(receiver);
        });
        Self { port, over }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A click at a place that counts from 1, as xterm's SGR mode reports it.
fn click(column: usize, row: usize) -> String {
    format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m")
}

#[test]
fn flows_are_filtered_summed_up_and_written_by_keys_and_clicks() {
    let traffic = Traffic::start();
    let ours = format!("127.0.0.1:{}", traffic.port);
    let run = Run::start("127.0.0.1:0");
    let folder = skua_testkit::scratch::directory("top");
    let mut top = Terminal::start_in(folder.path(), &["--analyzer", &run.address]);
    top.shows("TOP PROCESSES");
    // The second view in the first line.
    top.press(&click(14, 1));
    top.shows("without ended");
    // Tab completes the key.
    top.press("/por\t");
    top.shows("filter: port:");
    top.press(&format!("{} packets>0\r", traffic.port));
    let filtered = top.wait_for("the filtered flow", |screen| {
        screen.contains("row 1 of 1") && screen.contains(&ours)
    });
    assert!(filtered.contains("filter: port:"), "{filtered}");
    // What is wrong with a key is said.
    top.press("/\x15proces:x\r");
    top.shows("did you mean `process`?");
    top.press(&format!("/\x15port:{}\r", traffic.port));
    top.shows(&ours);
    let line = |screen: &str| {
        screen
            .lines()
            .position(|line| line.contains(&ours))
            .unwrap()
            + 1
    };
    let row = line(&top.screen());
    top.press(&click(5, row));
    top.shows("details");
    top.shows("b.port");
    top.press("J");
    top.shows("details as JSON");
    top.press("q");
    top.shows("without ended");
    // The first column is of processes.
    assert!(top.shows(&ours).contains("PROCESSES"));
    top.press("C ");
    top.shows("[ ] PROCESSES");
    top.press("q");
    top.wait_for("no processes", |screen| {
        !screen.contains("PROCESSES") && screen.contains(&ours)
    });
    top.press("xX");
    top.shows("written to skua-flows-");
    top.press("b");
    top.shows("summed up by process");
    top.wait_for("sums", |screen| {
        screen.contains("NAME") && screen.contains("row 1 of")
    });
    // By service, container, country, autonomous system, and not at all.
    top.press("bbbbb");
    top.shows(&ours);
    top.press("e");
    top.wait_for("ended ones, too", |screen| {
        !screen.contains("without ended")
    });
    top.press("q");
    assert!(top.ended().success());
    let written = |kind: &str| -> Vec<String> {
        let names = std::fs::read_dir(folder.path()).unwrap();
        let paths = names.map(|entry| entry.unwrap().path());
        let ours = paths.filter(|path| path.extension().is_some_and(|e| e == kind));
        ours.map(|path| std::fs::read_to_string(path).unwrap())
            .collect()
    };
    let [json, csv] = [written("json"), written("csv")];
    assert_eq!((json.len(), csv.len()), (1, 1));
    let record: serde_json::Value = serde_json::from_str(json[0].trim()).unwrap();
    assert_eq!(record["b"]["port"], traffic.port);
    assert!(csv[0].starts_with("PROTO,FROM,TO,RATE,"), "{}", csv[0]);
    assert!(csv[0].contains(&ours), "{}", csv[0]);
    run.end();
}

#[test]
fn all_views_of_a_running_skua() {
    let traffic = Traffic::start();
    let ours = format!("127.0.0.1:{}", traffic.port);
    let run = Run::start("127.0.0.1:0");
    let address = run.address.clone();
    let mut top = Terminal::start(&["--analyzer", &address]);
    top.shows("TOP PROCESSES");
    top.shows("packets/s");
    top.press("2");
    top.shows("by rate ↓");
    // A filter is the server's, and so is what is wrong with it.
    top.press("/udp prt\r");
    top.shows("syntax error");
    top.press(&format!("/\x15udp port {}\r", traffic.port));
    let screen = top.wait_for("our flow alone", |screen| {
        screen.contains("row 1 of 1") && screen.contains(&ours)
    });
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    top.press("\r");
    top.shows("community_id");
    top.press("\x1b");
    // Read together with the next key it would be another one: Alt and that key.
    top.wait_for("no details", |screen| !screen.contains("community_id"));
    // Larger, more columns fit.
    top.resize(60, 200);
    top.shows("COMMUNITY ID");
    top.resize(24, 80);
    top.wait_for("fewer columns", |screen| {
        screen.contains(&ours) && !screen.contains("COMMUNITY ID")
    });
    // What is made is shown first, and there then.
    top.press("c");
    top.shows("make a capture?");
    top.press("\r");
    top.shows("made; `skua capture list` shows it");
    let list = skua()
        .args([
            "capture",
            "list",
            "--output",
            "json",
            "--analyzer",
            &address,
        ])
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains(&format!("port {}", traffic.port)), "{list}");
    assert!(list.contains("\"Name\":\"top\""), "{list}");
    top.press("3/listen\r");
    top.shows("filter: listen");
    top.press("4");
    top.shows("SERVICE");
    top.press("5");
    top.shows("IN TOTAL");
    top.press("6");
    top.wait_for("the host's interfaces", |screen| screen.contains("─▸ lo "));
    top.press("7");
    top.shows("TIME");
    top.press("1");
    top.shows("TOP FLOWS");
    // Gone, and there again.
    run.end();
    top.shows("unreachable, trying again");
    top.shows("TOP FLOWS");
    let run = Run::start(&address);
    top.shows("answers again");
    top.press("q");
    assert!(top.ended().success());
    run.end();
}

#[test]
fn a_key_pressed_while_the_window_changes_is_heard() {
    let run = Run::start("127.0.0.1:0");
    let mut top = Terminal::start(&["--analyzer", &run.address]);
    top.shows("TOP PROCESSES");
    for _ in 0..50 {
        top.resize(30, 100);
        top.press("5");
        top.shows("IN TOTAL");
        top.resize(24, 80);
        top.press("1");
        top.shows("TOP FLOWS");
    }
    top.press("q");
    assert!(top.ended().success());
    run.end();
}

#[test]
fn without_anybody_it_captures_itself_and_a_signal_ends_it() {
    let traffic = Traffic::start();
    let mut top = Terminal::start(&["--interface", "lo", "--ascii", "--color", "never"]);
    top.shows("TOP FLOWS");
    top.press("2");
    top.shows(&format!("127.0.0.1:{}", traffic.port));
    let screen = top.screen();
    assert!(screen.is_ascii(), "{screen}");
    let pid = Pid::from_child(&top.child);
    kill_process(pid, Signal::TERM).unwrap();
    assert!(top.ended().success());
    let mut top = Terminal::start(&["--analyzer", "127.0.0.1:1"]);
    // What it writes last may still be on its way when it has ended.
    top.shows("nothing answers at 127.0.0.1:1");
    assert!(!top.ended().success());
}
