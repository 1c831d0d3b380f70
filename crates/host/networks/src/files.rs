//! Reads the files, and again when they have changed. A file that cannot be used is one warning, and what was read of it
//! before stays in force; the other files do not suffer.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{Database, Networks, Ranges, Services, install};

/// Bytes of a file at most.
const LARGEST: u64 = 1 << 30;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .file.display())]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub reason: String,
}

/// Which files there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// In the MMDB format.
    pub databases: Vec<PathBuf>,
    /// CSV or JSON of prefixes and names.
    pub ranges: Vec<PathBuf>,
    /// In the format of services(5); none: no names of ports.
    pub services: Option<PathBuf>,
}

/// What tells a changed file: size, time of change, and which file it is.
type Stamp = Option<(u64, SystemTime, u64)>;

fn stamp(file: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let data = std::fs::metadata(file).ok()?;
    Some((data.len(), data.modified().ok()?, data.ino()))
}

/// A file, and what was read of it.
struct Followed<T> {
    file: PathBuf,
    stamp: Stamp,
    content: Option<Arc<T>>,
}

impl<T> Followed<T> {
    fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            stamp: None,
            content: None,
        }
    }

    /// Reads the file if it has changed; returns whether it was read and can be used.
    fn read(&mut self, first: bool, parse: impl FnOnce(Vec<u8>) -> Result<T, String>) -> bool {
        // Before reading: a change meanwhile is noticed the next time.
        let stamp = stamp(&self.file);
        if !first && stamp == self.stamp {
            return false;
        }
        self.stamp = stamp;
        let read = contents(&self.file)
            .and_then(parse)
            .map_err(|reason| FileError {
                file: self.file.clone(),
                reason,
            });
        match read {
            Ok(content) => {
                self.content = Some(Arc::new(content));
                if !first {
                    tracing::info!("networks: {} was read again", self.file.display());
                }
                true
            }
            Err(error) => {
                let before = match self.content {
                    Some(_) => "what was read of it before stays in force",
                    None => "records have nothing of it",
                };
                tracing::warn!("networks: {error}; {before}");
                false
            }
        }
    }
}

fn contents(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(|error| error.to_string())?;
    let read = opened.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    match bytes.len() as u64 > LARGEST {
        true => Err(format!("larger than {} MiB", LARGEST >> 20)),
        false => Ok(bytes),
    }
}

/// All files.
pub(crate) struct All {
    databases: Vec<Followed<Database>>,
    ranges: Vec<Followed<Ranges>>,
    services: Option<Followed<Services>>,
}

impl All {
    pub fn new(files: &Files) -> Self {
        Self {
            databases: files.databases.iter().map(|f| Followed::new(f)).collect(),
            ranges: files.ranges.iter().map(|f| Followed::new(f)).collect(),
            services: files.services.as_deref().map(Followed::new),
        }
    }

    /// Reads what has changed, the `first` time everything; returns whether anything was read.
    pub fn read(&mut self, first: bool) -> bool {
        let mut any = false;
        for file in &mut self.databases {
            any |= file.read(first, Database::new);
        }
        for file in &mut self.ranges {
            any |= file.read(first, |bytes| Ranges::parse(&bytes));
        }
        if let Some(file) = &mut self.services {
            any |= file.read(first, |bytes| Ok(Services::parse(&bytes)));
        }
        any
    }

    /// What was read.
    pub fn networks(&self) -> Networks {
        fn known<T>(files: &[Followed<T>]) -> Vec<Arc<T>> {
            files
                .iter()
                .filter_map(|file| file.content.clone())
                .collect()
        }
        let services = self.services.as_ref();
        Networks {
            databases: known(&self.databases),
            ranges: known(&self.ranges),
            services: services
                .and_then(|file| file.content.clone())
                .unwrap_or_default(),
        }
    }
}

/// How often the files are looked at.
const PAUSE: Duration = Duration::from_secs(5);
/// What the thread that follows files looks for: whoever follows other files replaces it, and the thread ends.
static FOLLOWED: Mutex<Option<Arc<()>>> = Mutex::new(None);

/// Reads the files, and has them read again when they have changed, as long as the process runs. What cannot be used is a
/// warning.
pub fn follow(files: &Files) {
    let mut all = All::new(files);
    all.read(true);
    install(all.networks());
    let followed = Arc::new(());
    let mine = Arc::downgrade(&followed);
    *FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner) = Some(followed);
    if files.databases.is_empty() && files.ranges.is_empty() {
        // Names of ports are not worth a thread.
        return;
    }
    let watch = move || {
        while mine.strong_count() > 0 {
            std::thread::sleep(PAUSE);
            if mine.strong_count() > 0 && all.read(false) {
                install(all.networks());
            }
        }
    };
    let started = std::thread::Builder::new()
        .name("networks".into())
        .spawn(watch);
    if let Err(error) = started {
        tracing::warn!(%error, "networks: files that change will not be read again");
    }
}
