//! Commands to a running switch, as `ovs-appctl` gives them: JSON-RPC over a socket of its process.

use crate::{
    ClientConfig, Error, Limits, Target,
    session::{Inbox, Stream},
};
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// For connecting and for the answer: the switch does nothing else meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of an answer.
const MOST: usize = 8 << 20;

/// Where a switch takes commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlSocket {
    /// A socket.
    File(PathBuf),
    /// The folder in which the process makes its socket, `ovs-vswitchd.PID.ctl`.
    Folder(PathBuf),
}

impl ControlSocket {
    /// What the switch answers to a command.
    pub(crate) fn ask(&self, command: &str, arguments: &[&str]) -> Result<String, Error> {
        let stream = Arc::new(self.open()?);
        let limits = Limits {
            message: MOST,
            message_time: PATIENCE,
            patience: PATIENCE,
            ..Limits::default()
        };
        let config = ClientConfig {
            probe_interval: PATIENCE,
            limits,
            ..ClientConfig::new(Target::default())
        };
        let mut inbox = Inbox::new(stream.clone(), &config)?;
        inbox.expect(Some("answer of ovs-vswitchd"));
        stream.send(&json!({"id": 0, "method": command, "params": arguments}))?;
        let (message, _) = inbox.next()?;
        let text = |raw: Option<Box<serde_json::value::RawValue>>| {
            raw.and_then(|raw| serde_json::from_str::<Option<String>>(raw.get()).ok()?)
        };
        if let Some(error) = text(message.error) {
            return Err(Error::Command {
                command: command.to_owned(),
                error: first_line(&error),
            });
        }
        text(message.result).ok_or_else(|| Error::Protocol("an answer without a text".to_owned()))
    }

    fn open(&self) -> Result<Stream, Error> {
        let folder = match self {
            Self::File(path) => return Stream::open(&Target::Unix(path.clone()), PATIENCE),
            Self::Folder(folder) => folder,
        };
        // A process that ended without cleaning up has left its socket.
        let mut failed = None;
        for path in sockets(folder).unwrap_or_default() {
            match Stream::open(&Target::Unix(path), PATIENCE) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| {
            Error::Request(format!(
                "no socket of ovs-vswitchd, ovs-vswitchd.PID.ctl, in {}: set ovs.control",
                folder.display()
            ))
        }))
    }
}

/// The sockets of processes of this name, the newest first.
fn sockets(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| {
            name.strip_prefix("ovs-vswitchd.")?
                .strip_suffix(".ctl")?
                .parse::<u32>()
                .ok()
        });
        if pid.is_some()
            && let Ok(about) = entry.metadata()
        {
            let made = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((made, entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().rev().map(|(_, path)| path).collect())
}

/// The beginning of what a server says, for a message of one line.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}
