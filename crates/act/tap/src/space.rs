//! Network namespaces by the names that people give them.

use std::{collections::BTreeSet, os::unix::fs::MetadataExt as _, path::Path};

use skua_link::{NAMED, Namespace, Namespaces};

use crate::{Space, TapError};

/// The namespaces that a tap uses, held open.
pub(crate) struct Spaces(Namespaces);

impl Spaces {
    pub fn new() -> Result<Self, TapError> {
        Ok(Self(Namespaces::selected()?))
    }

    /// Inode number of a namespace.
    pub fn inode(&self, space: &Space) -> Result<u64, TapError> {
        let path = match space {
            Space::Own => return Ok(self.own()),
            // A name with a slash would lead out of the directory.
            Space::Named(name) if name.contains('/') || name.starts_with('.') => {
                return Err(TapError::NoNamespace(space.to_string()));
            }
            Space::Named(name) => Path::new(NAMED).join(name),
            Space::Process(pid) => format!("/proc/{pid}/ns/net").into(),
        };
        let metadata = std::fs::metadata(path);
        let metadata = metadata.map_err(|_| TapError::NoNamespace(space.to_string()))?;
        Ok(metadata.ino())
    }

    fn own(&self) -> u64 {
        self.0.list().first().map_or(0, |own| own.id.inode)
    }

    /// Holds exactly these namespaces open; closes those that no longer exist.
    pub fn hold(&mut self, wanted: &BTreeSet<u64>) -> Result<(), TapError> {
        self.0.select(wanted.clone())?;
        Ok(())
    }

    /// A namespace that is held open.
    pub fn get(&self, inode: u64) -> Result<&Namespace, TapError> {
        let found = self.0.list().iter().find(|space| space.id.inode == inode);
        found.ok_or_else(|| TapError::NoNamespace(format!("with inode number {inode}")))
    }
}
