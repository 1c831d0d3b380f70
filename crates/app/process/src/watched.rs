//! Values from files, which are read again after a change.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// Files are checked at most once in this time, and only on access.
const AGE: Duration = Duration::from_secs(1);

/// Bytes of a secret file at most.
const LONGEST_SECRET: u64 = 16 << 20;

/// A file's identity and state: device, inode, size, time of change in ns.
type Stamp = (u64, u64, u64, i128);

type Load<T> = Box<dyn Fn() -> anyhow::Result<T> + Send + Sync>;

/// A value read from files. It checks for changes on access, so that no timer is needed; files that
/// cannot be read leave the value unchanged.
pub struct Watched<T> {
    what: &'static str,
    files: Vec<PathBuf>,
    load: Load<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
}

impl<T> Watched<T> {
    /// Reads the files for the first time. `what` is the key that names them.
    pub fn new(
        what: &'static str,
        files: Vec<PathBuf>,
        load: impl Fn() -> anyhow::Result<T> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        // Before reading: a change meanwhile is then noticed later.
        let stamps = stamps(&files);
        let value = Arc::new(load().context(what)?);
        Ok(Self {
            what,
            files,
            load: Box::new(load),
            state: Mutex::new(State {
                value,
                stamps,
                looked: Instant::now(),
            }),
        })
    }

    /// The value as of at most a second ago.
    pub fn get(&self) -> Arc<T> {
        self.load(false)
    }

    /// Reads the files again, changed or not.
    pub fn reload(&self) {
        self.load(true);
    }

    fn load(&self, anyway: bool) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !anyway && state.looked.elapsed() < AGE {
            return state.value.clone();
        }
        state.looked = Instant::now();
        let stamps = stamps(&self.files);
        if anyway || stamps != state.stamps {
            state.stamps = stamps;
            match (self.load)() {
                Ok(value) => {
                    state.value = Arc::new(value);
                    tracing::info!("{} read again", self.what);
                }
                Err(error) => tracing::warn!(
                    "{}: {error:#}; what was read before stays in force",
                    self.what
                ),
            }
        }
        state.value.clone()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |file: &PathBuf| {
        let data = std::fs::metadata(file).ok()?;
        let time = i128::from(data.mtime()) * 1_000_000_000 + i128::from(data.mtime_nsec());
        Some((data.dev(), data.ino(), data.size(), time))
    };
    files.iter().map(stamp).collect()
}

/// Reads a file that others must not be able to read or change.
pub fn read_secret(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let cannot = || format!("cannot read {name}");
    let mut opened = File::open(file).with_context(cannot)?;
    // Of the open file: the name may point to another file by now.
    let mode = opened.metadata().with_context(cannot)?.mode();
    if mode & 0o027 != 0 {
        bail!(
            "{name} is open to others (mode {:o}): chmod 600 {name}",
            mode & 0o777
        );
    }
    let mut text = String::new();
    opened
        .by_ref()
        .take(LONGEST_SECRET)
        .read_to_string(&mut text)
        .with_context(cannot)?;
    if opened.read(&mut [0]).with_context(cannot)? > 0 {
        bail!("{name} has more than {} MiB", LONGEST_SECRET >> 20);
    }
    Ok(text)
}

/// A secret in a file, - for standard input; without the end of the line.
pub fn read_secret_line(file: &Path) -> anyhow::Result<String> {
    /// Longer than any password or token.
    const LONGEST: u64 = 4_096;
    let name = file.display();
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().take(LONGEST).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(file)
            .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
            .with_context(|| format!("cannot read {name}"))?;
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains('\n') {
        bail!("{name} must have one line");
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_leaves_the_value() {
        let file = skua_testkit::scratch::scratch("watched");
        std::fs::write(&file, "1").unwrap();
        let path = file.to_path_buf();
        let watched = Watched::new("number", vec![path.clone()], move || {
            Ok(std::fs::read_to_string(&path)?.parse::<u32>()?)
        })
        .unwrap();
        assert_eq!(*watched.get(), 1);
        for (text, value) in [("2", 2), ("two", 2), ("3", 3)] {
            std::fs::write(&file, text).unwrap();
            watched.reload();
            assert_eq!(*watched.get(), value);
        }
    }

    #[test]
    fn a_secret_is_checked_as_it_was_opened() {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        let (name, open) = (
            skua_testkit::scratch::scratch("link"),
            skua_testkit::scratch::scratch("open"),
        );
        let secret = skua_testkit::scratch::secret("closed", "secret");
        std::fs::write(&open, "open").unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
        // The name alternates between both files, as an attacker would do.
        let over = std::sync::atomic::AtomicBool::new(false);
        let turn = |target: &Path| {
            let fresh = name.with_extension("new");
            std::os::unix::fs::symlink(target, &fresh).unwrap();
            std::fs::rename(&fresh, &name).unwrap();
        };
        turn(&secret);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    turn(&open);
                    turn(&secret);
                }
            });
            let read = (0..20_000).find_map(|_| read_secret(&name).ok().filter(|t| t == "open"));
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(read, None, "a file that is open to others was read");
        });
        // A name that becomes a pipe must not block forever either: reading ends.
        let long = skua_testkit::scratch::scratch("long");
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&long)
            .unwrap();
        file.set_len(LONGEST_SECRET + 1).unwrap();
        assert!(read_secret(&long).is_err());
    }

    #[test]
    fn files_that_others_may_read_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = skua_testkit::scratch::scratch("secret");
        std::fs::write(&file, "x").unwrap();
        for (mode, fine) in [(0o600, true), (0o640, true), (0o604, false), (0o660, false)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_secret(&file).is_ok(), fine, "{mode:o}");
        }
    }
}
