//! The API over TLS, set up by the commands of docs/api.md, asked by the commands of `skua`. Needs
//! root, for `skua run` does.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use skua_testkit::lab::{root_tests, wait_for};

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn documentation() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/api.md");
    std::fs::read_to_string(path).unwrap()
}

/// The commands of the documentation under a heading.
fn commands(heading: &str) -> String {
    let text = documentation();
    let (_, chapter) = text.split_once(&format!("\n### {heading}\n")).unwrap();
    let (_, block) = chapter.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sv-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// Runs commands of the documentation here.
    fn shell(&self, script: &str) {
        let skua = Path::new(skua_testkit::program!()).parent().unwrap();
        let path = format!("{}:{}", skua.display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(&self.0)
            .env("PATH", path)
            .env("SKUA_CONFIG", "/dev/null")
            .env("SKUA_HISTORY_DIRECTORY", "")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}");
    }

    fn skua(&self, args: &[&str]) -> Output {
        Command::new(skua_testkit::program!())
            .args(args)
            .current_dir(&self.0)
            .env("SKUA_CONFIG", "/dev/null")
            .env("SKUA_HISTORY_DIRECTORY", "")
            .env("SKUA_API_SOCKET", "")
            .env_remove("SKUA_TOKEN")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn refusal(&self, args: &[&str]) -> String {
        let output = self.skua(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
        text
    }
}

/// A `skua run`, ended when dropped.
struct Run {
    child: Child,
    url: String,
    errors: Option<JoinHandle<String>>,
}

impl Run {
    fn start(folder: &Folder, config: &str) -> Self {
        folder.write("skua.yaml", config);
        let mut child = Command::new(skua_testkit::program!())
            .args([
                "run",
                "--interface",
                "lo",
                "--max-entries",
                "1000",
                "--config",
                "skua.yaml",
            ])
            .current_dir(&folder.0)
            .env("SKUA_API_SOCKET", "")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            text
        });
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let mut run = Self {
            child,
            url: String::new(),
            errors: Some(errors),
        };
        let Some((_, rest)) = line.split_once("; see `skua flows`, ") else {
            panic!("{line:?}: {}", run.stop());
        };
        run.url = rest.split_once("/ and").unwrap().0.to_owned();
        run
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it; what it said on standard error.
    fn stop(&mut self) -> String {
        self.signal(Signal::TERM);
        self.child.wait().unwrap();
        self.errors.take().unwrap().join().unwrap()
    }

    fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.errors.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

const CONFIG: &str = "\
api:
  listen: 0.0.0.0:0
  names: [localhost, skua.example]
  tls: {certificate: server.crt, key: server.key, client_ca: ca.crt}
  users: users
  tokens: tokens
";

#[test]
fn set_up_as_documented_each_way_in_works() {
    if !root_tests() {
        return;
    }
    let folder = Folder::new("tls");
    folder.shell(&commands("Certificates").replace("$(hostname)", "localhost"));
    folder.write("password", "open sesame\n");
    folder.shell(
        "skua user add alice --role admin --password-file password --file users
         skua user add agent7 --role admin --certificate --file users
         skua token create grafana --file tokens > token
         chmod 600 token",
    );
    folder.shell(&commands("Client certificates"));
    let mut run = Run::start(&folder, CONFIG);
    let url = format!("https://localhost:{}", run.port());
    let ask = |more: &[&str]| {
        let mut args = vec![
            "flows",
            "--output",
            "json",
            "--analyzer",
            &url,
            "--ca-cert",
            "ca.crt",
        ];
        args.extend(more);
        folder.skua(&args)
    };
    let ways: [&[&str]; 3] = [
        &["--token-file", "token"],
        &["--username", "alice", "--password-file", "password"],
        &["--client-cert", "agent7.crt", "--client-key", "agent7.key"],
    ];
    for way in ways {
        let output = ask(way);
        assert!(output.status.success(), "{way:?}: {output:?}");
    }
    let errors = |more: &[&str]| String::from_utf8(ask(more).stderr).unwrap();
    assert!(errors(&[]).contains("needs a user and password or a token"));
    folder.write("wrong", "wrong");
    let text = errors(&["--username", "alice", "--password-file", "wrong"]);
    assert!(text.contains("wrong user, password or token"), "{text}");
    // What each may do.
    let change = |way: &[&str]| {
        let mut args = vec![
            "addresses",
            "add",
            "--exclude",
            "10.9.8.7",
            "--analyzer",
            &url,
        ];
        args.extend(["--ca-cert", "ca.crt"]);
        args.extend(way);
        folder.skua(&args)
    };
    for way in &ways[1..] {
        assert!(change(way).status.success(), "{:?}", change(way));
    }
    let refused = String::from_utf8(change(ways[0]).stderr).unwrap();
    assert!(refused.contains("admin"), "{refused}");
    // Who does not know the CA does not ask, and nobody gets a password in the clear.
    let text = folder.refusal(&["query", "G", "--analyzer", &url, "--token-file", "token"]);
    assert!(text.contains("does not answer"), "{text}");
    // Another certificate, taken over while it runs.
    folder.shell(&commands("Certificates").replace("$(hostname)", "localhost"));
    run.signal(Signal::HUP);
    wait_for("new certificate", || {
        ask(ways[0]).status.success().then_some(())
    });
    let said = run.stop();
    for secret in ["sesame", "skua_", "argon2"] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let folder = Folder::new("missing");
    let refusal = |config: &str| {
        folder.write("skua.yaml", config);
        folder.refusal(&["run", "--interface", "lo", "--config", "skua.yaml"])
    };
    let text = refusal("api: {listen: '0.0.0.0:0'}");
    for key in ["api.tls.certificate", "api.tls.key", "api.users"] {
        assert!(text.contains(key), "{text}");
    }
    let text = refusal("api: {tls: {certificate: none.crt, key: none.key}}");
    assert!(
        text.contains("api.tls") && text.contains("none.crt"),
        "{text}"
    );
    let text = refusal("api: {users: none}");
    assert!(
        text.contains("api.users") && text.contains("none"),
        "{text}"
    );
}

#[test]
fn users_and_tokens_are_made_listed_and_removed() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("people");
    folder.write("password", "x");
    folder.shell(
        "skua user add bob --password-file password --file users
         skua user add alice --role admin --certificate --file users
         skua token create a --role admin --ends 30d --file tokens > token",
    );
    for file in ["users", "tokens"] {
        let mode = std::fs::metadata(folder.path(file))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let token = std::fs::read_to_string(folder.path("token")).unwrap();
    let kept = std::fs::read_to_string(folder.path("tokens")).unwrap();
    assert!(token.starts_with("skua_") && !kept.contains(token.trim()));
    let list = |what: &str, file: &str| {
        let output = folder.skua(&[what, "list", "--file", file]);
        String::from_utf8(output.stdout).unwrap()
    };
    let users = list("user", "users");
    let rows: Vec<Vec<_>> = users
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[1..],
        [
            vec!["bob", "read", "argon2"],
            vec!["alice", "admin", "certificate"]
        ]
    );
    assert!(list("token", "tokens").contains("a     admin  20"));
    folder.shell("skua user remove bob --file users; skua token revoke a --file tokens");
    assert_eq!(list("user", "users").lines().count(), 2);
    assert_eq!(list("token", "tokens").lines().count(), 1);
    let text = folder.refusal(&["user", "remove", "bob", "--file", "users"]);
    assert!(text.contains("there is no user \"bob\""), "{text}");
    let text = folder.refusal(&["user", "list"]);
    assert!(
        text.contains("api.users") && text.contains("--file"),
        "{text}"
    );
}
