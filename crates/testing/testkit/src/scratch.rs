//! Files of tests, of which each has its own name.

use std::{
    io::Write as _,
    ops::Deref,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A path that is removed when dropped, with what is in it.
pub struct Scratch(PathBuf);

impl Deref for Scratch {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}

/// A path without other users.
pub fn scratch(name: &str) -> Scratch {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = format!("sv-{}-{number}-{name}", std::process::id());
    Scratch(std::env::temp_dir().join(file))
}

/// An empty directory.
pub fn directory(name: &str) -> Scratch {
    let directory = scratch(name);
    let made = std::fs::create_dir(&directory);
    assert!(made.is_ok(), "{}: {made:?}", directory.display());
    directory
}

impl Scratch {
    /// The path as text.
    pub fn path(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// A file that only its owner may read.
pub fn secret(name: &str, text: &str) -> Scratch {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = scratch(name);
    let made = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&file)
        .and_then(|mut made| made.write_all(text.as_bytes()));
    assert!(made.is_ok(), "{}: {made:?}", file.display());
    file
}
