//! A lock that a few readers share, and in which a drain goes before all readers that have not begun.
//!
//! A reader that loses its processor while it has the value holds up a drain for as long as others run. So no more
//! readers are let in than half of the processors: of two, one, and that one is the next to run when the others wait.

use std::{
    ops::{Deref, DerefMut},
    sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread::available_parallelism,
};

/// See the module. What `RwLock` does with readers that come while a writer waits is not specified.
pub struct DrainLock<T> {
    users: Mutex<Users>,
    /// The most readers at a time.
    limit: usize,
    /// A reader may go on.
    free: Condvar,
    value: RwLock<T>,
}

/// How many there are.
#[derive(Default)]
struct Users {
    /// Drains that wait or are under way.
    drains: usize,
    /// Readers that were let in.
    readers: usize,
}

/// The value, to read it.
pub struct ReadGuard<'a, T> {
    // Released before the next reader is let in.
    value: RwLockReadGuard<'a, T>,
    _reader: Reader<'a, T>,
}

/// The value, for a drain.
pub struct DrainGuard<'a, T> {
    // Released before readers are let in.
    value: RwLockWriteGuard<'a, T>,
    _gate: Gate<'a, T>,
}

/// One of the readers.
struct Reader<'a, T>(&'a DrainLock<T>);

/// Keeps readers out.
struct Gate<'a, T>(&'a DrainLock<T>);

impl<T> DrainLock<T> {
    pub fn new(value: T) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self::with_limit(value, (processors / 2).max(1))
    }

    /// With so many readers at a time.
    fn with_limit(value: T, limit: usize) -> Self {
        Self {
            users: Mutex::default(),
            limit,
            free: Condvar::new(),
            value: RwLock::new(value),
        }
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, to read it: after the drains that wait or are under way, and when one of the other readers has done.
    /// A thread that has it must not lock it again.
    pub fn read(&self) -> ReadGuard<'_, T> {
        let waiting = self.free.wait_while(self.users(), |users| {
            users.drains > 0 || users.readers >= self.limit
        });
        waiting.unwrap_or_else(PoisonError::into_inner).readers += 1;
        let reader = Reader(self);
        ReadGuard {
            value: self.value.read().unwrap_or_else(PoisonError::into_inner),
            _reader: reader,
        }
    }

    /// The value, to change something small that is no drain.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.value.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value for a drain: after those who read it now.
    pub fn drain(&self) -> DrainGuard<'_, T> {
        self.users().drains += 1;
        let gate = Gate(self);
        DrainGuard {
            value: self.write(),
            _gate: gate,
        }
    }

    /// Whether it is free.
    #[cfg(test)]
    pub fn is_free(&self) -> bool {
        self.value.try_write().is_ok()
    }
}

impl<T> Drop for Reader<'_, T> {
    fn drop(&mut self) {
        self.0.users().readers -= 1;
        self.0.free.notify_one();
    }
}

impl<T> Drop for Gate<'_, T> {
    fn drop(&mut self) {
        self.0.users().drains -= 1;
        self.0.free.notify_all();
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
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
        let lock = DrainLock::with_limit((), 4);
        let reader = lock.read();
        let (lock, (order, done)) = (&lock, mpsc::channel());
        thread::scope(|scope| {
            let at_drain = order.clone();
            scope.spawn(move || {
                let _value = lock.drain();
                at_drain.send("drain").unwrap();
            });
            while lock.users().drains == 0 {
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
        let lock = DrainLock::with_limit(0, 2);
        *lock.drain() += 1;
        let (one, other) = (lock.read(), lock.read());
        assert_eq!((*one, *other, lock.is_free()), (1, 1, false));
        drop((one, other));
        *lock.write() += 1;
        assert_eq!(*lock.read(), 2);
        assert!(lock.is_free());
    }

    #[test]
    fn no_more_readers_are_let_in_than_may_be() {
        let (lock, (entered, order)) = (DrainLock::with_limit((), 1), mpsc::channel());
        let reader = lock.read();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _value = lock.read();
                entered.send("second").unwrap();
            });
            // A drain waits for the first reader only.
            let drain = scope.spawn(|| {
                let _value = lock.drain();
                entered.send("drain").unwrap();
            });
            while lock.users().drains == 0 {
                thread::yield_now();
            }
            assert_eq!(lock.users().readers, 1);
            drop(reader);
            drain.join().unwrap();
            second.join().unwrap();
        });
        drop(entered);
        assert_eq!(order.iter().collect::<Vec<_>>(), ["drain", "second"]);
    }
}
