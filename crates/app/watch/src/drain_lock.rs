//! A lock that readers share, and in which a drain goes before all readers that have not begun.

use std::{
    ops::{Deref, DerefMut},
    sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// See the module. What `RwLock` does with readers that come while a writer waits is not specified.
pub struct DrainLock<T> {
    /// Drains that wait or are under way.
    drains: Mutex<usize>,
    no_drain: Condvar,
    value: RwLock<T>,
}

/// The value, for a drain.
pub struct DrainGuard<'a, T> {
    // Released before readers are let in.
    value: RwLockWriteGuard<'a, T>,
    _gate: Gate<'a, T>,
}

/// Keeps readers out.
struct Gate<'a, T>(&'a DrainLock<T>);

impl<T> DrainLock<T> {
    pub fn new(value: T) -> Self {
        Self {
            drains: Mutex::new(0),
            no_drain: Condvar::new(),
            value: RwLock::new(value),
        }
    }

    fn drains(&self) -> MutexGuard<'_, usize> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, to read it: after the drains that wait or are under way.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let waiting = self
            .no_drain
            .wait_while(self.drains(), |drains| *drains > 0);
        // Held until the value is, so that no drain comes between.
        let _drains = waiting.unwrap_or_else(PoisonError::into_inner);
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, to change something small that is no drain.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.value.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value for a drain: after those who read it now.
    pub fn drain(&self) -> DrainGuard<'_, T> {
        *self.drains() += 1;
        let gate = Gate(self);
        DrainGuard {
            value: self.write(),
            _gate: gate,
        }
    }

    /// Whether nobody has the value.
    #[cfg(test)]
    pub fn is_free(&self) -> bool {
        self.value.try_write().is_ok()
    }
}

impl<T> Drop for Gate<'_, T> {
    fn drop(&mut self) {
        *self.0.drains() -= 1;
        self.0.no_drain.notify_all();
    }
}

impl<T> Deref for DrainGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for DrainGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn a_drain_that_waits_goes_before_all_who_read_later() {
        let lock = DrainLock::new(());
        let reader = lock.read();
        let (lock, (order, done)) = (&lock, mpsc::channel());
        thread::scope(|scope| {
            let at_drain = order.clone();
            scope.spawn(move || {
                let _value = lock.drain();
                at_drain.send("drain").unwrap();
            });
            while *lock.drains() == 0 {
                thread::yield_now();
            }
            for _ in 0..4 {
                let at_reader = order.clone();
                scope.spawn(move || {
                    let _value = lock.read();
                    at_reader.send("reader").unwrap();
                });
            }
            drop((reader, order));
            let order: Vec<_> = done.iter().collect();
            assert_eq!(order, ["drain", "reader", "reader", "reader", "reader"]);
        });
    }

    #[test]
    fn readers_share_the_value_and_are_let_in_after_a_drain() {
        let lock = DrainLock::new(0);
        *lock.drain() += 1;
        let (one, other) = (lock.read(), lock.read());
        assert_eq!((*one, *other, lock.is_free()), (1, 1, false));
        drop((one, other));
        *lock.write() += 1;
        assert_eq!(*lock.read(), 2);
        assert!(lock.is_free());
    }
}
