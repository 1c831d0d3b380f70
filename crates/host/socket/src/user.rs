//! Names of users, from `/etc/passwd`.
//!
//! Not by the C library: what it is set up to ask (LDAP, SSSD) may take long, and a statically linked
//! program must not load its plug-ins.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::text::shown;

/// Most that is read of the file.
const MOST: u64 = 4 * 1024 * 1024;
/// Most users that are kept.
const USERS: usize = 65_536;
/// Longest name, characters.
const NAME: usize = 64;

/// Users of the host.
#[derive(Debug)]
pub(crate) struct Users {
    path: PathBuf,
    /// Inode, time of change and size of the file when it was read.
    version: Option<(u64, i64, i64, u64)>,
    names: HashMap<u32, String>,
}

impl Users {
    pub(crate) fn new(path: &Path) -> Self {
        let mut users = Self {
            path: path.to_owned(),
            version: None,
            names: HashMap::new(),
        };
        users.refresh();
        users
    }

    /// Reads the file again if it changed; whether it did.
    pub(crate) fn refresh(&mut self) -> bool {
        let Ok(file) = fs::File::open(&self.path) else {
            return false;
        };
        let version = file
            .metadata()
            .ok()
            .map(|of| (of.ino(), of.mtime(), of.mtime_nsec(), of.size()));
        if version.is_none() || version == self.version {
            return false;
        }
        let mut text = Vec::new();
        if file.take(MOST).read_to_end(&mut text).is_err() {
            return false;
        }
        self.version = version;
        self.names = parse(&text);
        true
    }

    pub(crate) fn name(&self, uid: u32) -> Option<&str> {
        self.names.get(&uid).map(String::as_str)
    }
}

fn parse(text: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b':');
        let (Some(name), Some(_), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let uid = std::str::from_utf8(uid)
            .ok()
            .and_then(|uid| uid.parse().ok());
        let Some(uid) = uid else { continue };
        if !name.is_empty() && !name.starts_with(b"#") && names.len() < USERS {
            // Of several names for one user the first counts, as in getpwuid(3).
            names.entry(uid).or_insert_with(|| shown(name, NAME));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_file() {
        let names = parse(
            b"root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/root:/bin/sh\n# no:x:7:\n\
              broken\n:x:8:\nwww-data:x:33:33::/var/www:\nbad:x:-1:\nbig:x:4294967296:\n\x1b[2J:x:9:",
        );
        assert_eq!(names.len(), 3);
        assert_eq!(names[&0], "root");
        assert_eq!(names[&33], "www-data");
        assert_eq!(names[&9], r"\x1b[2J");
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwd");
        let mut users = Users::new(&path);
        assert_eq!(users.name(5), None);
        fs::write(&path, "five:x:5:5::/:\n").unwrap();
        assert!(users.refresh());
        assert_eq!(users.name(5), Some("five"));
        assert!(!users.refresh());
    }
}
