//! Interfaces of network namespaces.

use crate::InjectError;
use skua_link::{Namespace, Namespaces};

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// Inode number of its network namespace.
    pub netns_inode: u64,
    /// Index of the interface there.
    pub ifindex: u32,
    /// Its name, for messages.
    pub name: String,
    /// Whether frames start with an Ethernet header (also on loopback).
    pub ethernet: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
}

impl Point {
    /// Runs `work` in its network namespace.
    pub(crate) fn enter<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, InjectError> + Send,
    ) -> Result<T, InjectError> {
        let inode = self.netns_inode;
        let own = Namespace::own()?;
        if own.id.inode == inode {
            return own.enter(work)?;
        }
        let all = Namespaces::discover(true)?;
        let found = all.list().iter().find(|space| space.id.inode == inode);
        let space = found.ok_or(InjectError::NoNamespace(self.netns_inode))?;
        space.enter(work)?
    }
}
