//! Things that people make by the API and that last: captures, alerts and the like.
//!
//! They are kept in a file, one for each kind, so that they are there again after a restart.

use crate::state_file::StateFile;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

/// Something with an identifier that people can make, read and delete.
pub trait Resource: Clone + Serialize + DeserializeOwned + Send {
    /// What it is called in messages.
    const KIND: &'static str;
    /// Its identifier; nil until it is added.
    fn id(&self) -> Uuid;
    /// Gives it one.
    fn set_id(&mut self, id: Uuid);
    /// When it ends by itself, ms since the Unix epoch.
    fn ends_at(&self) -> Option<i64> {
        None
    }
    /// Whether it is there again after a restart.
    fn is_kept(&self) -> bool {
        true
    }
    /// Whether both do the same, so that one of them is too many.
    fn is_same(&self, other: &Self) -> bool;
}

/// Why something cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// There is one that does the same.
    #[error("there is such a {kind} already: {id}")]
    Duplicate {
        /// What it is.
        kind: &'static str,
        /// Which.
        id: Uuid,
    },
    /// There is none.
    #[error("there is no {kind} {id}")]
    Unknown {
        /// What it would be.
        kind: &'static str,
        /// What was asked for.
        id: String,
    },
    /// There are as many as there may be.
    #[error("there are {0} already, which is the most")]
    TooMany(usize),
    /// A file or thread that is needed cannot be had.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
}

/// Resources of a kind.
pub struct Resources<T> {
    items: Mutex<BTreeMap<Uuid, T>>,
    limit: usize,
    file: Option<StateFile>,
}

impl<T: Resource> Resources<T> {
    /// As they were kept in `file`, at most `limit`. A file that cannot be used is set aside.
    #[must_use]
    pub fn open(file: Option<&Path>, limit: usize) -> Self {
        let file = file.map(StateFile::new);
        let kept = file.as_ref().map(|file| file.read::<T>(T::KIND, limit));
        let kept = kept.into_iter().flatten();
        Self {
            items: Mutex::new(kept.map(|item| (item.id(), item)).collect()),
            limit,
            file,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, T>> {
        // Nothing panics half-way through a change.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes them down; a warning names what cannot be written, which lives on until the end of the process.
    fn keep(&self, items: &BTreeMap<Uuid, T>) {
        let Some(file) = &self.file else { return };
        let all: Vec<&T> = items.values().filter(|item| item.is_kept()).collect();
        if let Err(error) = file.write(&all) {
            let path = file.path().display();
            tracing::warn!(%error, %path, "{}s cannot be kept over a restart", T::KIND);
        }
    }

    /// Adds one, and gives it an identifier.
    pub fn add(&self, mut item: T) -> Result<T, ResourceError> {
        let mut items = self.lock();
        if let Some(same) = items.values().find(|other| item.is_same(other)) {
            return Err(ResourceError::Duplicate {
                kind: T::KIND,
                id: same.id(),
            });
        }
        if items.len() >= self.limit {
            return Err(ResourceError::TooMany(self.limit));
        }
        item.set_id(Uuid::new_v4());
        items.insert(item.id(), item.clone());
        self.keep(&items);
        Ok(item)
    }

    /// Puts all of these in, each in the place of the one with its identifier; none when there would
    /// be too many.
    pub fn put_all(&self, new: Vec<T>) -> Result<(), ResourceError> {
        let mut items = self.lock();
        let more = new.iter().filter(|item| !items.contains_key(&item.id()));
        if items.len() + more.count() > self.limit {
            return Err(ResourceError::TooMany(self.limit));
        }
        items.extend(new.into_iter().map(|item| (item.id(), item)));
        self.keep(&items);
        Ok(())
    }

    /// Puts another in the place of one.
    pub fn replace(&self, item: T) -> Result<(), ResourceError> {
        let mut items = self.lock();
        let Some(place) = items.get_mut(&item.id()) else {
            return Err(unknown::<T>(&item.id().to_string()));
        };
        *place = item;
        self.keep(&items);
        Ok(())
    }

    /// The one with an identifier.
    pub fn get(&self, id: &str) -> Result<T, ResourceError> {
        let item = Uuid::parse_str(id)
            .ok()
            .and_then(|id| self.lock().get(&id).cloned());
        item.ok_or_else(|| unknown::<T>(id))
    }

    /// Takes one away.
    pub fn remove(&self, id: &str) -> Result<T, ResourceError> {
        let mut items = self.lock();
        let item = Uuid::parse_str(id).ok().and_then(|id| items.remove(&id));
        let item = item.ok_or_else(|| unknown::<T>(id))?;
        self.keep(&items);
        Ok(item)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// All of them.
    pub fn all(&self) -> Vec<T> {
        self.lock().values().cloned().collect()
    }

    /// Takes away those whose time is over; when the next is, ms since the Unix epoch.
    pub fn expire(&self, now: i64) -> (Vec<T>, Option<i64>) {
        let mut items = self.lock();
        let over = |item: &T| item.ends_at().is_some_and(|end| end <= now);
        let gone: Vec<T> = items.values().filter(|item| over(item)).cloned().collect();
        if !gone.is_empty() {
            items.retain(|_, item| !over(item));
            self.keep(&items);
        }
        (gone, items.values().filter_map(T::ends_at).min())
    }
}

fn unknown<T: Resource>(id: &str) -> ResourceError {
    ResourceError::Unknown {
        kind: T::KIND,
        // Whatever was in the path of a request.
        id: id.chars().filter(|c| !c.is_control()).take(64).collect(),
    }
}
