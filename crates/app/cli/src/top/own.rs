//! A `skua run` inside this process, if none runs.

use std::{
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, TrySendError, sync_channel},
    },
    time::Duration,
};

use anyhow::Context as _;
use skua_client::Client;
use skua_config as config;
use skua_config::{Config, arguments::AnalyzerArguments};
use skua_daemon as daemon;

use crate::top::{Input, Sender, TopArguments};

/// Time limit for detaching the capture.
const PATIENCE: Duration = Duration::from_secs(5);

/// The capture of this process.
pub struct OwnCapture {
    /// The API's address.
    pub analyzer: AnalyzerArguments,
    /// A note for the user.
    pub note: String,
    /// Signals its end.
    ended: Receiver<()>,
    /// Where it answers.
    _folder: PrivateDirectory,
}

/// Starts to capture here if no `skua run` is found, or an interface is given.
pub fn analyzer(arguments: &TopArguments, sender: &Sender) -> anyhow::Result<Option<OwnCapture>> {
    let asked = &arguments.analyzer;
    let capture = &arguments.capture;
    if capture.interface.is_empty() && Client::connect(asked)?.is_some() {
        return Ok(None);
    }
    let config = Config::load(capture.config.as_deref())?.with_arguments(capture)?;
    let folder = PrivateDirectory::new()?;
    let config = read_only_config(config, &folder.0.join("skua.sock"));
    let (begun, begins) = sync_channel(1);
    let (sender, failed) = (sender.clone(), begun.clone());
    let (over, ended) = sync_channel(1);
    let work = move || {
        let done = daemon::within(config, |url| {
            // This fails only if the receiver has timed out.
            let _ = begun.send(Ok(url.to_owned()));
        });
        let _ = over.send(());
        // Reports to the caller that waits for the start, or else on the screen.
        if let Err(TrySendError::Full(done) | TrySendError::Disconnected(done)) =
            failed.try_send(done.map(|()| String::new()))
        {
            let _ = sender.send(Input::End(done.map(drop)));
        }
    };
    std::thread::Builder::new().name("run".into()).spawn(work)?;
    eprintln!("skua: starting to watch this host");
    let url = begins.recv().context("the capture did not start")??;
    let note = match capture.interface.is_empty() {
        true => format!("no `skua run` answers at {}: watching here", asked.address),
        false => "watching here".to_owned(),
    };
    let analyzer = AnalyzerArguments {
        address: url,
        token_file: None,
        username: None,
        password_file: None,
        ca_cert: None,
        client_cert: None,
        client_key: None,
    };
    Ok(Some(OwnCapture {
        analyzer,
        note,
        ended,
        _folder: folder,
    }))
}

/// The configuration without actions and storage: a viewer changes nothing.
fn read_only_config(mut config: Config, socket: &Path) -> Config {
    config.history.directory.clear();
    config.export = Default::default();
    config.alerts = Default::default();
    config.steer = Default::default();
    config.taps.clear();
    // Only this process may connect: over a private socket.
    config.api.listen.clear();
    config.api.others = config::Others::None;
    config.api.socket = socket.display().to_string();
    config
}

/// A folder that only we can access.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    fn new() -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = std::env::temp_dir().join(format!("skua-top-{}", uuid::Uuid::new_v4()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a signal has ended our own capture: a second one would end the process at once.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Records that our own capture handles the signal to end.
pub fn note_signal() {
    ENDING.store(true, Ordering::Release);
}

impl Drop for OwnCapture {
    /// Has the capture detach and end.
    fn drop(&mut self) {
        if !ENDING.load(Ordering::Acquire) {
            // Like Ctrl-C; if this fails, the capture ends with the process.
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
        }
        // A capture that is not over then ends with the process.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}
