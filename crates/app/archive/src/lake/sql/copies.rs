//! Files of lakes that are no directory of this host, copied to where the engine can read them.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, bail};
use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use skua_lake::{Lake, Stored};
use skua_output as output;

/// How names of the directories begin, in the directory for temporary files.
const BEGIN: &str = ".skua-sql-";
/// Names that are tried: there are as many questions at once at most.
const NAMES: u32 = 1_000;

/// A directory with copies; it goes when this is dropped, and that of a process that was killed when the next one
/// begins.
pub struct Copies {
    directory: PathBuf,
    /// Paths of what is there.
    here: HashSet<String>,
    /// Held as long as the copies are needed.
    _lock: File,
}

impl Copies {
    /// An empty one.
    pub fn open() -> anyhow::Result<Self> {
        let above = std::env::temp_dir();
        Self::below(&above).with_context(|| {
            format!(
                "files of the lake cannot be copied to {} (TMPDIR)",
                above.display()
            )
        })
    }

    fn below(above: &Path) -> io::Result<Self> {
        remove_left(above)?;
        for number in 0..NAMES {
            let directory = above.join(format!("{BEGIN}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Who begins at the same time may have taken it for one that was left.
            if let Some(lock) = locked(&directory)
                && directory.exists()
            {
                return Ok(Self {
                    directory,
                    here: HashSet::new(),
                    _lock: lock,
                });
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Copies files that are not here yet, under their own paths; others go.
    ///
    /// # Errors
    ///
    /// When they have more bytes than `most`, before anything is copied; when storage fails; when the end is over.
    pub fn bring<'a>(
        &mut self,
        lake: &Lake,
        files: impl Iterator<Item = &'a Stored> + Clone,
        most: u64,
        end: Instant,
    ) -> anyhow::Result<()> {
        let bytes: u64 = files.clone().map(|file| file.size).sum();
        if bytes > most {
            bail!(
                "SQL reads copies of the files, and these have {}, of {} that may be copied: ask for a shorter time \
                 (--since, --until), allow more (--copy), or ask `skua flows --since`, which copies nothing",
                output::bytes(bytes),
                output::bytes(most)
            );
        }
        let wanted: HashSet<&str> = files.clone().map(|file| &*file.path).collect();
        let directory = &self.directory;
        self.here.retain(|path| {
            // What cannot be removed goes with the directory.
            wanted.contains(&**path) || fs::remove_file(directory.join(path)).is_err()
        });
        for file in files {
            if self.here.contains(&file.path) {
                continue;
            }
            let to = directory.join(&file.path);
            if Instant::now() >= end {
                bail!(
                    "the files of the lake were not copied in time: ask for a shorter time (--since, --until), or \
                     wait longer (--timeout)"
                );
            }
            if let Some(above) = to.parent() {
                fs::create_dir_all(above)
                    .with_context(|| format!("cannot make {}", above.display()))?;
            }
            let bytes = lake.read(file)?;
            fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
            self.here.insert(file.path.clone());
        }
        Ok(())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::warn!(%error, "{} stays", self.directory.display());
        }
    }
}

/// A lock that ends with its process, however that ends; none when another process has it.
fn locked(directory: &Path) -> Option<File> {
    let file = File::open(directory).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Removes directories of this user that processes left which were killed.
fn remove_left(above: &Path) -> io::Result<()> {
    for entry in fs::read_dir(above)? {
        let entry = entry?;
        let ours = entry.file_name().to_string_lossy().starts_with(BEGIN);
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let own = |metadata: fs::Metadata| metadata.uid() == geteuid().as_raw();
        if entry.metadata().is_ok_and(own)
            && let Some(_lock) = locked(&entry.path())
        {
            // Another process may be at it: then it goes anyway.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn copies_are_bounded_and_go_when_they_are_not_needed() {
        let above = std::env::temp_dir().join(format!("skua-copies-{}", std::process::id()));
        let files = ["flows/a", "flows/b"].map(|path| Stored {
            path: path.into(),
            size: 5,
        });
        fs::create_dir_all(above.join("lake/flows")).unwrap();
        for file in &files {
            fs::write(above.join("lake").join(&file.path), "12345").unwrap();
        }
        let place = above.join("lake").display().to_string();
        let lake = Lake::open(&place.parse().unwrap()).unwrap();
        let left = above.join(format!("{BEGIN}1-0"));
        fs::create_dir(&left).unwrap();
        let (mut one, two) = (
            Copies::below(&above).unwrap(),
            Copies::below(&above).unwrap(),
        );
        assert!(!left.exists(), "what was left is still there");
        assert_ne!(one.directory(), two.directory());
        let late = Instant::now();
        let end = late + Duration::from_secs(3_600);
        let error = one.bring(&lake, files.iter(), 9, end).unwrap_err();
        assert!(error.to_string().contains("--copy"), "{error}");
        let error = one.bring(&lake, files.iter(), 10, late).unwrap_err();
        assert!(error.to_string().contains("in time"), "{error}");
        one.bring(&lake, files.iter(), 10, end).unwrap();
        // What is there is not copied again.
        one.bring(&lake, files.iter(), 10, late).unwrap();
        assert_eq!(fs::read(one.directory().join("flows/b")).unwrap(), b"12345");
        // What is wanted no more goes.
        one.bring(&lake, files[..1].iter(), 10, late).unwrap();
        assert!(!one.directory().join("flows/b").exists());
        let directory = one.directory().to_owned();
        drop(one);
        assert!(!directory.exists() && two.directory().exists());
        drop(two);
        fs::remove_dir_all(above).unwrap();
    }
}
