//! The rows that matter here, as they are now.

use crate::{Change, Database, Error, Watcher};
use std::{
    collections::HashSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use uuid::Uuid;

#[derive(Default)]
struct WatchState {
    rows: Database,
    connected: bool,
    /// Mirrors and exporters of ours that should be there.
    expected: HashSet<(&'static str, Uuid)>,
}

/// The rows, with a signal of their changes.
pub(super) struct Watch {
    state: Mutex<WatchState>,
    changed: Condvar,
    limit: usize,
}

impl Watch {
    /// Rows may take `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the rows as they are now; none while there is no connection.
    pub fn read<T>(&self, reader: impl FnOnce(&Database) -> T) -> Option<T> {
        let state = self.lock();
        state.connected.then(|| reader(&state.rows))
    }

    /// Waits until something is so, and says whether it came to be in time.
    pub fn wait(&self, patience: Duration, so: impl Fn(&Database) -> bool) -> bool {
        let not_yet = |state: &mut WatchState| !(state.connected && so(&state.rows));
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), patience, not_yet);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// From now on the removal of this row is logged.
    pub fn expect(&self, table: &'static str, id: Uuid) {
        self.lock().expected.insert((table, id));
    }

    /// This row may go.
    pub fn release(&self, table: &'static str, id: Uuid) {
        self.lock().expected.remove(&(table, id));
    }

    fn apply(&self, changes: Vec<Change>, all: bool) -> Result<(), Error> {
        let mut state = self.lock();
        if all {
            state.rows = Database::default();
            state.connected = true;
        }
        for change in changes {
            state.rows.apply(change, self.limit)?;
        }
        let WatchState { rows, expected, .. } = &mut *state;
        expected.retain(|(table, id)| {
            let there = rows.row(table, *id).is_some();
            if !there {
                tracing::warn!(
                    target: "ovsdb",
                    "another client removed our {table} {id} from Open vSwitch"
                );
            }
            there
        });
        drop(state);
        self.changed.notify_all();
        Ok(())
    }
}

/// Brings the database's changes.
pub(super) struct Feed(pub Arc<Watch>);

impl Watcher for Feed {
    fn begin(&mut self, rows: Vec<Change>) -> Result<(), Error> {
        self.0.apply(rows, true)
    }

    fn change(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        self.0.apply(changes, false)
    }

    fn end(&mut self, _: &Error) {
        self.0.lock().connected = false;
        self.0.changed.notify_all();
    }
}
