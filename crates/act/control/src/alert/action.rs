//! What is done when an alert fires: a POST to a web server, a line in a file, a command.

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, fcntl_setfl, fstat, open, openat2},
    process::{Pid, Signal, kill_process_group},
};
use std::{
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};
use ureq::{
    Agent,
    tls::{RootCerts, TlsConfig},
};

/// Largest file of events in bytes; what is moved away makes room.
const MAX_FILE: i64 = 64 << 20;

/// Bytes of a command's output that are kept for the log.
const MAX_OUTPUT: u64 = 4 << 10;

/// Time between two checks whether a command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What actions may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionSettings {
    /// Whether commands may be run.
    pub commands: bool,
    /// The directory below which files may be written; none: no files.
    pub directory: Option<PathBuf>,
    /// Time for a web server to answer, and for a command to end.
    pub timeout: Duration,
    /// How often a web server is tried.
    pub attempts: u32,
    /// Time before the second attempt; it doubles with each.
    pub backoff: Duration,
    /// Commands at a time.
    pub commands_at_once: usize,
}

impl Default for ActionSettings {
    /// No commands, no files, 10 s, five attempts after 1, 2, 4 and 8 s, four commands at a time.
    fn default() -> Self {
        Self {
            commands: false,
            directory: None,
            timeout: Duration::from_secs(10),
            attempts: 5,
            backoff: Duration::from_secs(1),
            commands_at_once: 4,
        }
    }
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Nothing: only subscribers get the event.
    None,
    /// POST to a web server.
    Webhook(String),
    /// A line in a file, its path relative to the directory.
    File { directory: PathBuf, path: PathBuf },
    /// A program with its arguments.
    Command(Vec<String>),
}

/// Why an action failed, and whether it may go better later.
pub(super) struct Failure {
    pub text: String,
    pub again: bool,
}

fn for_good(error: impl std::fmt::Display) -> Failure {
    Failure {
        text: error.to_string(),
        again: false,
    }
}

impl Action {
    /// Reads an action, and whether it is allowed.
    pub fn parse(text: &str, settings: &ActionSettings) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::None);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return match text.parse::<ureq::http::Uri>() {
                Ok(uri) if uri.host().is_some_and(|host| !host.is_empty()) => {
                    Ok(Self::Webhook(text.into()))
                }
                Ok(_) => Err(format!("Action: {text} names no host")),
                Err(error) => Err(format!("Action: {text}: {error}")),
            };
        }
        if let Some(line) = text.strip_prefix("command:") {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            return match (words.is_empty(), settings.commands) {
                (true, _) => Err("Action: which command?".into()),
                (_, false) => Err(no_commands()),
                (_, true) => Ok(Self::Command(words)),
            };
        }
        let Some(path) = text.strip_prefix("file://").map(Path::new) else {
            return Err(format!(
                "Action: \"{text}\" is neither http://…, https://…, file:///… nor command:…"
            ));
        };
        // Skydive runs what such an address names.
        if is_executable(path) {
            return match (settings.commands, path.to_str()) {
                (true, Some(path)) => Ok(Self::Command(vec![path.into()])),
                (true, None) => Err("Action: the path is not UTF-8".into()),
                (false, _) => Err(no_commands()),
            };
        }
        let Some(directory) = &settings.directory else {
            return Err(
                "Action: files may be written only below alerts.directory, which is not set".into(),
            );
        };
        let inside = path.strip_prefix(directory).ok();
        let inside = inside.filter(|inside| {
            let mut parts = inside.components();
            inside.file_name().is_some()
                && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
        });
        match inside {
            Some(inside) => Ok(Self::File {
                directory: directory.clone(),
                path: inside.into(),
            }),
            None => Err(format!(
                "Action: {} is not below {} (alerts.directory)",
                path.display(),
                directory.display()
            )),
        }
    }

    /// Carries it out once. `ended` says whether the alert is gone meanwhile.
    pub fn carry_out(
        &self,
        event: &[u8],
        settings: &ActionSettings,
        ended: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        match self {
            Self::None => Ok(()),
            Self::Webhook(address) => post(address, event, settings.timeout),
            Self::File { directory, path } => append(directory, path, event),
            Self::Command(words) => run(words, event, settings.timeout, ended),
        }
    }
}

fn no_commands() -> String {
    "Action: commands are not allowed here (alerts.commands)".into()
}

fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn post(address: &str, event: &[u8], timeout: Duration) -> Result<(), Failure> {
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::PlatformVerifier)
        .build();
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .tls_config(tls)
        .build()
        .into();
    let answer = agent
        .post(address)
        .header("Content-Type", "application/json")
        .header("Connection", "close")
        .send(event);
    let status = match answer {
        Ok(answer) => answer.status(),
        Err(error) => {
            return Err(Failure {
                text: error.to_string(),
                again: true,
            });
        }
    };
    if status.is_success() {
        return Ok(());
    }
    Err(Failure {
        text: format!("it answers {status}"),
        // What is wrong with the request stays so, but for "later" and "too many".
        again: status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429),
    })
}

fn append(directory: &Path, path: &Path, event: &[u8]) -> Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = open(directory, flags, Mode::empty())
        .map_err(|error| for_good(format!("{}: {error}", directory.display())))?;
    let failed = |error: rustix::io::Errno| for_good(format!("{}: {error}", path.display()));
    let file = openat2(
        &base,
        path,
        // A pipe without a reader is an error, no wait.
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::RUSR | Mode::WUSR,
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(for_good(format!("{}: no regular file", path.display())));
    }
    if stat.st_size >= MAX_FILE {
        return Err(for_good(format!(
            "{}: it has {} bytes, which is the most; move it away",
            path.display(),
            stat.st_size
        )));
    }
    fcntl_setfl(&file, OFlags::APPEND).map_err(failed)?;
    let mut line = event.to_vec();
    line.push(b'\n');
    // In one piece, so that lines of several writers do not mix.
    std::fs::File::from(file).write_all(&line).map_err(for_good)
}

/// A process with all that it has started. Dropping it kills them.
struct Group {
    child: Child,
    over: bool,
}

impl Group {
    /// Kills what is left and says how the first ended.
    fn finish(&mut self) -> std::io::Result<ExitStatus> {
        // The first has not been waited for before this, so its number cannot be another's.
        if !self.over {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.over = true;
        }
        self.child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

fn run(
    words: &[String],
    event: &[u8],
    timeout: Duration,
    ended: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(for_good("no command"));
    };
    let end = Instant::now() + timeout;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| for_good(format!("{program}: {error}")))?;
    let mut group = Group { child, over: false };
    let (stdin, stdout) = (group.child.stdin.take(), group.child.stdout.take());
    // Whoever neither reads nor writes must not stop us: both ends are served by threads, which end
    // with the processes.
    let event = event.to_vec();
    let feed = std::thread::Builder::new().name("alert-stdin".into());
    let fed = feed.spawn(move || {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(&event);
        }
    });
    let listen = std::thread::Builder::new().name("alert-stdout".into());
    let heard = listen.spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stdout) = stdout {
            let _ = stdout.by_ref().take(MAX_OUTPUT).read_to_end(&mut text);
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        }
        text
    });
    drop(fed.map_err(for_good)?);
    let heard = heard.map_err(for_good)?;
    let status = loop {
        // Not waited for by its number, which must stay its own until its group is killed.
        match has_ended(&group.child) {
            true => break true,
            false if Instant::now() >= end || ended() => break false,
            false => std::thread::sleep(LOOK),
        }
    };
    let exit = group.finish().map_err(for_good)?;
    // Its output ends with it, but for what has left its group.
    let quiet = Instant::now() + Duration::from_secs(1);
    while !heard.is_finished() && Instant::now() < quiet {
        std::thread::sleep(LOOK);
    }
    let output = match heard.is_finished() {
        true => heard.join().unwrap_or_default(),
        false => Vec::new(),
    };
    let output = String::from_utf8_lossy(&output);
    tracing::debug!(program, %exit, output = output.trim(), "an alert's command has ended");
    match (status, exit.success()) {
        (true, true) => Ok(()),
        (true, false) => Err(for_good(format!("{program}: {exit}"))),
        (false, _) => Err(for_good(format!(
            "{program}: it took longer than {}",
            humantime::format_duration(timeout)
        ))),
    }
}

/// Whether a child has ended, without taking its number away.
fn has_ended(child: &Child) -> bool {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_child(child)), options);
    status.is_ok_and(|status| status.is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::Permissions;

    fn settings(directory: &Path) -> ActionSettings {
        ActionSettings {
            commands: true,
            directory: Some(directory.into()),
            ..ActionSettings::default()
        }
    }

    fn never() -> bool {
        false
    }

    #[test]
    fn only_what_is_allowed_is_an_action() {
        let room = tempfile::tempdir().unwrap();
        let script = room.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        let script = format!("file://{}", script.display());
        let closed = ActionSettings::default();
        let open = settings(room.path());
        assert_eq!(Action::parse("", &closed), Ok(Action::None));
        for address in ["http://127.0.0.1:1/x", "https://example.org"] {
            let hook = Action::Webhook(address.into());
            assert_eq!(Action::parse(address, &closed), Ok(hook));
        }
        for wrong in [
            "http://",
            "ftp://x",
            "true",
            "/bin/true",
            "file:/etc/x",
            "http://a b/",
        ] {
            assert!(Action::parse(wrong, &open).is_err(), "{wrong}");
        }
        let command = Action::Command(vec!["logger".into(), "-t".into(), "x".into()]);
        assert_eq!(Action::parse("command:logger -t x", &open), Ok(command));
        assert!(Action::parse("command: ", &open).is_err());
        assert!(matches!(
            Action::parse(&script, &open),
            Ok(Action::Command(_))
        ));
        for forbidden in ["command:true", &script, "file:///tmp/x"] {
            assert!(Action::parse(forbidden, &closed).is_err(), "{forbidden}");
        }
        let below = |path: &str| format!("file://{}/{path}", room.path().display());
        assert!(matches!(
            Action::parse(&below("sub/events.json"), &open),
            Ok(Action::File { .. })
        ));
        for outside in [
            below("../x"),
            below("a/../../x"),
            below(""),
            "file:///etc/x".into(),
        ] {
            assert!(Action::parse(&outside, &open).is_err(), "{outside}");
        }
    }

    #[test]
    fn lines_are_added_to_files_below_the_directory_only() {
        let room = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let done = append(room.path(), Path::new(path), b"{}");
            done.map_err(|failure| failure.text)
        };
        write("events").unwrap();
        write("events").unwrap();
        let path = room.path().join("events");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n{}\n");
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), room.path().join("link")).unwrap();
        assert!(write("link").is_err());
        assert!(write("../x").is_err());
        assert!(write("missing/x").is_err());
        let pipe = room.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(write("pipe").is_err());
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(MAX_FILE as u64)
            .unwrap();
        assert!(write("events").unwrap_err().contains("move it away"));
        assert_eq!(elsewhere.as_file().metadata().unwrap().len(), 0);
    }

    fn command(words: &[&str], timeout: Duration) -> Result<(), String> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        run(&words, b"{\"a\":1}", timeout, &never).map_err(|failure| failure.text)
    }

    #[test]
    fn commands_get_the_event_and_their_failure_is_told() {
        let room = tempfile::tempdir().unwrap();
        let out = room.path().join("out");
        let long = Duration::from_secs(60);
        let script = format!("cat > {}", out.display());
        command(&["sh", "-c", &script], long).unwrap();
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "{\"a\":1}");
        assert!(
            command(&["false"], long)
                .unwrap_err()
                .contains("exit status: 1")
        );
        assert!(command(&["/no/such/program"], long).is_err());
        // Much output, and input that it does not read.
        command(&["sh", "-c", "head -c 10000000 /dev/zero"], long).unwrap();
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_what_it_started() {
        let room = tempfile::tempdir().unwrap();
        let pids = room.path().join("pids");
        let script = format!("sleep 1000 & echo $! $$ > {}; wait", pids.display());
        let short = Duration::from_millis(300);
        let error = command(&["sh", "-c", &script], short).unwrap_err();
        assert!(error.contains("longer than 300ms"), "{error}");
        for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
            // Killed, and at most waiting to be reaped.
            let gone = (0..500).any(|_| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
                let gone = stat.map_or(true, |stat| stat.contains(") Z"));
                if !gone {
                    std::thread::sleep(Duration::from_millis(10));
                }
                gone
            });
            assert!(gone, "{pid} lives");
        }
    }
}
