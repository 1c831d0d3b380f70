//! The programs for further network namespaces. All share them where a program can read the namespace of a
//! packet (6.2); else each has its own, so there cannot be many ([`crate::budget`]).

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
};

use libbpf_rs::{MapCore as _, MapFlags};

use super::{FlowObject, LinkKind};
use crate::KernelError;

/// What a program is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Serves {
    /// Our own namespace.
    Ours,
    /// All further namespaces.
    Further,
    /// A further namespace, by its number.
    One(u16),
    /// All namespaces, also ours: programs that tables share.
    All,
}

/// Places of the array before the map of namespaces: `NAMESPACE_PLACES` of `bpf/flow/netns.h`.
const PLACES: u32 = 4096;

/// The last namespace with which the shared programs are tried to be loaded, of the first, second, fourth, and so on.
const MOST_ATTEMPTS: u32 = 64;

/// The programs.
#[derive(Default)]
pub(super) struct Further {
    shared: Option<FlowObject>,
    /// Namespaces that wanted the shared programs while there were none.
    missed: u32,
    /// Inodes of the namespaces that the shared programs know, by number.
    inodes: HashMap<u16, u32>,
    /// Programs for interfaces of one kind in one namespace, by its number.
    single: HashMap<(u16, LinkKind), FlowObject>,
}

impl Further {
    /// Adds a namespace. `load` loads the shared programs.
    pub(super) fn add(
        &mut self,
        number: u16,
        inode: u64,
        load: impl FnOnce() -> Result<Option<FlowObject>, KernelError>,
    ) -> Result<(), KernelError> {
        if self.shared.is_none() {
            self.missed = self.missed.saturating_add(1);
            // A kernel without the feature refuses quickly; a shortage may be over, so it is tried again.
            if self.missed.is_power_of_two() && self.missed <= MOST_ATTEMPTS {
                self.shared = load().unwrap_or_else(|error| {
                    tracing::warn!(%error, "a network namespace gets programs of its own: at most 240 do");
                    None
                });
            }
        }
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        // Inodes of namespaces have 32 bits.
        let inode = inode as u32;
        if self.inodes.get(&number) == Some(&inode) {
            return Ok(());
        }
        set(shared, inode, u32::from(number))?;
        self.inodes.insert(number, inode);
        Ok(())
    }

    /// Forgets a namespace.
    pub(super) fn remove(&mut self, number: u16) {
        self.single.retain(|(netns, _), _| *netns != number);
        let (Some(inode), Some(shared)) = (self.inodes.remove(&number), &self.shared) else {
            return;
        };
        // A newer namespace, announced later, may have this inode now.
        if self.inodes.values().all(|other| *other != inode) {
            // A missing entry is as good as a deleted one.
            let _ = unset(shared, inode);
        }
    }

    /// Whether they are shared; none before the first namespace.
    pub(super) fn shares(&self) -> Option<bool> {
        match &self.shared {
            Some(_) => Some(true),
            None => (self.missed > 0).then_some(false),
        }
    }

    /// The programs for a kind of link in a namespace. `load` loads those for it alone.
    pub(super) fn object(
        &mut self,
        number: u16,
        link: LinkKind,
        load: impl FnOnce() -> Result<FlowObject, KernelError>,
    ) -> Result<(&FlowObject, Serves), KernelError> {
        if let Some(shared) = &self.shared {
            return Ok((shared, Serves::Further));
        }
        let object = match self.single.entry((number, link)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(load()?),
        };
        Ok((object, Serves::One(number)))
    }
}

/// Adds a namespace to the programs' map.
fn set(shared: &FlowObject, inode: u32, number: u32) -> Result<(), KernelError> {
    let entry = [inode.to_ne_bytes(), number.to_ne_bytes()].concat();
    let [inode, number] = [inode, number].map(u32::to_ne_bytes);
    let all = shared.map("namespaces")?;
    all.update(&inode, &number, MapFlags::ANY).map_err(failed)?;
    // One that is there stays: programs read it without a lock.
    let places = shared.map("namespace_places")?;
    let there = places
        .lookup(&place(inode), MapFlags::ANY)
        .map_err(failed)?;
    if there.is_some_and(|entry| entry.iter().any(|byte| *byte != 0)) {
        return Ok(());
    }
    places
        .update(&place(inode), &entry, MapFlags::ANY)
        .map_err(failed)
}

/// Has the programs forget a namespace.
fn unset(shared: &FlowObject, inode: u32) -> Result<(), KernelError> {
    let inode = inode.to_ne_bytes();
    let places = shared.map("namespace_places")?;
    let there = places
        .lookup(&place(inode), MapFlags::ANY)
        .map_err(failed)?;
    if there.is_some_and(|entry| entry.starts_with(&inode)) {
        places
            .update(&place(inode), &[0; 8], MapFlags::ANY)
            .map_err(failed)?;
    }
    shared.map("namespaces")?.delete(&inode).map_err(failed)
}

fn place(inode: [u8; 4]) -> [u8; 4] {
    (u32::from_ne_bytes(inode) % PLACES).to_ne_bytes()
}

fn failed(error: libbpf_rs::Error) -> KernelError {
    KernelError::System {
        what: "cannot add a network namespace to the programs' map",
        source: io::Error::other(error),
    }
}
