//! The address set of a running probe, which can be changed at any time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skua_flow::{AddressCounts, AddressSet, Mark, Prefix};

use crate::ProbeError;

/// Brings a set into force.
type Apply = Box<dyn FnMut(&Arc<AddressSet>) -> Result<(), ProbeError> + Send>;

/// The set that is in force, and how to change it. Clones are the same set.
#[derive(Clone)]
pub struct LiveAddresses(Arc<Inner>);

struct Inner {
    most: u32,
    /// Replaced at the end of a change.
    set: Mutex<Arc<AddressSet>>,
    /// Locked during a whole change, which may take a second. Readers of the set, such as a drain, must not
    /// wait for that: they lock `set` alone.
    apply: Mutex<Apply>,
}

/// What a change did, in prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressChange {
    /// New ones.
    pub added: u64,
    /// Those that had the other mark before.
    pub changed: u64,
    /// Removed prefixes.
    pub removed: u64,
}

/// A change of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressEdit<'a> {
    /// Put these in; those that are there get this mark.
    Add(&'a [(Prefix, Mark)]),
    /// Take these out; those that are not there are none.
    Remove(&'a [Prefix]),
    /// Have these and no others.
    Replace(&'a [(Prefix, Mark)]),
}

impl LiveAddresses {
    /// A set with at most `most` prefixes. `apply` applies one to the probe; after it returns, no packet is
    /// judged by the previous set.
    pub fn new(
        most: u32,
        apply: impl FnMut(&Arc<AddressSet>) -> Result<(), ProbeError> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            most,
            set: Mutex::default(),
            apply: Mutex::new(Box::new(apply)),
        }))
    }

    /// The set that is in force.
    pub fn set(&self) -> Arc<AddressSet> {
        Arc::clone(&lock(&self.0.set))
    }

    /// How many prefixes it has.
    pub fn counts(&self) -> AddressCounts {
        self.set().counts()
    }

    /// How many prefixes it may have (`flow.addresses.max_entries`).
    pub fn max_entries(&self) -> u32 {
        self.0.most
    }

    /// Changes the set, as a whole: each packet is judged by the set before or by the set after.
    ///
    /// # Errors
    ///
    /// When it would have too many prefixes, or the kernel refuses. Then nothing has changed.
    pub fn edit(&self, edit: AddressEdit<'_>) -> Result<AddressChange, ProbeError> {
        let mut apply = lock(&self.0.apply);
        let (set, change) = edited(&self.set(), edit);
        let most = self.0.most;
        if set.len() > most as usize {
            let requested = set.len();
            return Err(ProbeError::TooManyAddresses { requested, most });
        }
        if change != AddressChange::default() {
            let set = Arc::new(set);
            apply(&set)?;
            *lock(&self.0.set) = set;
        }
        Ok(change)
    }
}

/// The locks guard values that are only replaced as a whole, never left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn edited(before: &AddressSet, edit: AddressEdit<'_>) -> (AddressSet, AddressChange) {
    let mut set = match edit {
        AddressEdit::Replace(_) => AddressSet::default(),
        _ => before.clone(),
    };
    match edit {
        AddressEdit::Remove(prefixes) => {
            for prefix in prefixes {
                set.remove(*prefix);
            }
        }
        AddressEdit::Add(marks) | AddressEdit::Replace(marks) => {
            for (prefix, mark) in marks {
                set.insert(*prefix, *mark);
            }
        }
    }
    let mut change = AddressChange::default();
    for (prefix, mark) in set.iter() {
        match before.get(prefix) {
            None => change.added += 1,
            Some(other) if other != mark => change.changed += 1,
            Some(_) => {}
        }
    }
    let stayed = set.len() as u64 - change.added;
    change.removed = before.len() as u64 - stayed;
    (set, change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(texts: &[&str], mark: Mark) -> Vec<(Prefix, Mark)> {
        texts.iter().map(|t| (t.parse().unwrap(), mark)).collect()
    }

    fn change(added: u64, changed: u64, removed: u64) -> AddressChange {
        AddressChange {
            added,
            changed,
            removed,
        }
    }

    #[test]
    fn edits_tell_what_they_did() {
        let applied = Arc::new(Mutex::new(0));
        let count = Arc::clone(&applied);
        let live = LiveAddresses::new(3, move |_| {
            *count.lock().unwrap() += 1;
            Ok(())
        });
        let two = marks(&["10.0.0.0/8", "fd00::/8"], Mark::Include);
        assert_eq!(live.edit(AddressEdit::Add(&two)).unwrap(), change(2, 0, 0));
        assert_eq!(live.edit(AddressEdit::Add(&two)).unwrap(), change(0, 0, 0));
        assert_eq!(*applied.lock().unwrap(), 1, "nothing to bring into force");
        let other = marks(&["10.0.0.0/8", "192.0.2.0/24"], Mark::Exclude);
        assert_eq!(
            live.edit(AddressEdit::Replace(&other)).unwrap(),
            change(1, 1, 1)
        );
        let gone = ["192.0.2.0/24", "::/0"].map(|t| t.parse().unwrap());
        assert_eq!(
            live.edit(AddressEdit::Remove(&gone)).unwrap(),
            change(0, 0, 1)
        );
        let counts = AddressCounts {
            include: 0,
            exclude: 1,
        };
        assert_eq!(live.counts(), counts);
    }

    #[test]
    fn what_does_not_fit_or_is_refused_changes_nothing() {
        let live = LiveAddresses::new(2, |_| Err(ProbeError::NoAddresses));
        let three = marks(&["10.0.0.0/8", "fd00::/8", "::/0"], Mark::Include);
        let error = live.edit(AddressEdit::Add(&three)).unwrap_err();
        assert!(error.to_string().contains("flow.addresses.max_entries"));
        assert!(live.edit(AddressEdit::Add(&three[..1])).is_err());
        assert!(live.set().is_empty());
    }
}
