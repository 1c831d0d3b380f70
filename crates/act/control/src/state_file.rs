//! The files in which resources outlive a restart: `captures.json`, `taps.json` and the like.
//!
//! A file that cannot be used never stops the start: the host is watched all the same. The file is set
//! aside under another name, so that nothing in it is lost, and a warning names it.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// The version of the files' format.
const VERSION: u64 = 1;
/// A file larger than this is not read: the limits on resources keep it far smaller.
const MAX_BYTES: u64 = 64 << 20;

/// What a file holds, before its items are read one by one.
#[derive(serde::Deserialize)]
struct Contents {
    items: Vec<Box<RawValue>>,
}

/// A file of resources of one kind.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// The file at `path`, which need not be there.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The items of the file, at most `limit`; none when the file is not there. What cannot be used is
    /// set aside: the whole file, or a copy of it when some of its items can be used.
    pub fn read<T: Serialize + DeserializeOwned>(&self, kind: &str, limit: usize) -> Vec<T> {
        let path = self.path.display();
        let contents = match self.contents() {
            Ok(None) => return Vec::new(),
            Ok(Some(contents)) => contents,
            Err(error) => {
                match self.free_name().and_then(|to| {
                    fs::rename(&self.path, &to)?;
                    Ok(to)
                }) {
                    Ok(to) => tracing::warn!(
                        "{path} cannot be used: {error}; it was renamed to {}, and Skua starts \
                         without its {kind}s",
                        to.display()
                    ),
                    Err(why) => tracing::warn!(
                        "{path} cannot be used: {error}; Skua starts without its {kind}s, and the \
                         file cannot be renamed: {why}"
                    ),
                }
                return Vec::new();
            }
        };
        let mut items = Vec::new();
        let mut refused = None;
        for (number, item) in contents.items.iter().enumerate() {
            if items.len() >= limit {
                refused.get_or_insert(format!("more than {limit} {kind}s"));
                break;
            }
            match serde_json::from_str(item.get()) {
                Ok(item) => items.push(item),
                Err(error) => {
                    refused.get_or_insert(format!("{kind} {}: {error}", number + 1));
                }
            }
        }
        if let Some(why) = refused {
            let lost = contents.items.len() - items.len();
            match self.free_name().and_then(|to| {
                fs::copy(&self.path, &to)?;
                // Or the next start would make one more copy.
                self.write(&items)?;
                Ok(to)
            }) {
                Ok(to) => tracing::warn!(
                    "{path}: {lost} {kind}s cannot be used ({why}); a copy of the file is {}",
                    to.display()
                ),
                Err(error) => tracing::warn!(
                    "{path}: {lost} {kind}s cannot be used ({why}), and they cannot be set \
                     aside: {error}"
                ),
            }
        }
        items
    }

    fn contents(&self) -> io::Result<Option<Contents>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(found) if !found.is_file() => return Err(io::Error::other("it is no file")),
            Ok(found) if found.len() > MAX_BYTES => {
                return Err(io::Error::other(format!(
                    "it is larger than {MAX_BYTES} bytes"
                )));
            }
            Ok(_) => {}
        }
        let text = fs::read(&self.path)?;
        if text.is_empty() {
            return Err(io::Error::other("it is empty"));
        }
        // The version first: what a newer version has beside it need not be known.
        #[derive(serde::Deserialize)]
        struct Versioned {
            version: u64,
        }
        let Versioned { version } = serde_json::from_slice(&text)?;
        if version > VERSION {
            return Err(io::Error::other(format!(
                "it was written by a newer version of Skua (format {version}, this one knows {VERSION})"
            )));
        }
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// A name beside the file that nothing has: `captures.json.unusable-1`.
    fn free_name(&self) -> io::Result<PathBuf> {
        for number in 1..1000 {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".unusable-{number}"));
            let name = PathBuf::from(name);
            if name.symlink_metadata().is_err() {
                return Ok(name);
            }
        }
        Err(io::Error::other("there are 999 files set aside already"))
    }

    /// Writes the items in place of what the file held, readable by its owner only. Who reads the file
    /// meanwhile sees the one or the other, never a part.
    pub fn write<T: Serialize>(&self, items: &[T]) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        // One that an earlier process left may have other rights.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        let contents = serde_json::json!({"version": VERSION, "items": items});
        file.write_all(&serde_json::to_vec_pretty(&contents)?)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(text: Option<&str>) -> (tempfile::TempDir, StateFile) {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("captures.json");
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        (room, StateFile::new(&path))
    }

    fn names(room: &tempfile::TempDir) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(room.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_written_is_read_again_and_only_its_owner_may() {
        let (room, file) = file(None);
        assert_eq!(file.read::<u32>("capture", 10), [0; 0]);
        // Left by a process that was killed, with rights of its umask.
        fs::write(room.path().join("captures.new"), "half").unwrap();
        file.write(&[1, 2, 3]).unwrap();
        assert_eq!(file.read::<u32>("capture", 10), [1, 2, 3]);
        assert_eq!(names(&room), ["captures.json"]);
        let rights = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(rights & 0o777, 0o600);
    }

    #[test]
    fn an_unusable_file_is_set_aside_whole() {
        for text in [
            "",
            "{",
            "\0\0\0\0",
            "[]",
            "null",
            r#"{"version": 2, "items": [1]}"#,
            r#"{"version": 1}"#,
            r#"{"version": 1, "items": {}}"#,
            r#"{"version": -1, "items": []}"#,
        ] {
            let (room, file) = file(Some(text));
            assert_eq!(file.read::<u32>("capture", 10), [0; 0], "{text}");
            assert_eq!(names(&room), ["captures.json.unusable-1"], "{text}");
            let kept = fs::read_to_string(room.path().join("captures.json.unusable-1")).unwrap();
            assert_eq!(kept, text);
            // The second does not take the place of the first.
            fs::write(&file.path, "again").unwrap();
            assert_eq!(file.read::<u32>("capture", 10), [0; 0]);
            assert_eq!(
                names(&room),
                ["captures.json.unusable-1", "captures.json.unusable-2"]
            );
        }
    }

    #[test]
    fn items_that_can_be_used_are_used_and_the_others_are_in_a_copy() {
        let text = r#"{"version": 1, "items": [1, "two", 3, {"four": 4}]}"#;
        let (room, file) = file(Some(text));
        assert_eq!(file.read::<u32>("capture", 10), [1, 3]);
        assert_eq!(names(&room), ["captures.json", "captures.json.unusable-1"]);
        let kept = fs::read_to_string(room.path().join("captures.json.unusable-1")).unwrap();
        assert_eq!(kept, text);
        // The next start has nothing more to set aside.
        assert_eq!(file.read::<u32>("capture", 10), [1, 3]);
        assert_eq!(names(&room).len(), 2);
    }

    #[test]
    fn more_than_the_limit_are_in_a_copy() {
        let (room, file) = file(Some(r#"{"version": 1, "items": [1, 2, 3]}"#));
        assert_eq!(file.read::<u32>("capture", 2), [1, 2]);
        assert_eq!(names(&room), ["captures.json", "captures.json.unusable-1"]);
    }

    #[test]
    fn a_folder_in_its_place_does_not_stop_the_start() {
        let (room, file) = file(None);
        fs::create_dir(&file.path).unwrap();
        assert_eq!(file.read::<u32>("capture", 2), [0; 0]);
        assert_eq!(names(&room), ["captures.json.unusable-1"]);
    }
}
