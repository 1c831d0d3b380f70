//! The queue of blocks to write.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A block to write.
pub struct Waiting {
    pub payload: Vec<u8>,
    pub rows: u32,
    /// Least and greatest time in ms.
    pub span: (i64, i64),
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Blocks queued, and blocks finished.
    queued: u64,
    done: u64,
    closed: bool,
}

/// A queue with a limit in bytes.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most_bytes: usize,
}

impl Queue {
    pub fn new(most_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            most_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, most);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Adds a block; returns it if the queue is full.
    pub fn push(&self, block: Waiting) -> Result<(), Waiting> {
        let mut state = self.lock();
        if state.bytes + block.payload.len() > self.most_bytes {
            return Err(block);
        }
        state.bytes += block.payload.len();
        state.queued += 1;
        state.waiting.push_back(block);
        self.changed.notify_all();
        Ok(())
    }

    /// The next block; none when the queue is closed and empty.
    pub fn pop(&self) -> Option<Waiting> {
        let mut state = self.lock();
        loop {
            if let Some(block) = state.waiting.pop_front() {
                state.bytes -= block.payload.len();
                return Some(block);
            }
            if state.closed {
                return None;
            }
            state = self.wait(state, Duration::from_secs(3_600));
        }
    }

    /// Reports that a block is finished.
    pub fn done(&self) {
        self.lock().done += 1;
        self.changed.notify_all();
    }

    /// Waits until all blocks queued so far are finished; whether they are.
    pub fn flush(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        let target = state.queued;
        while state.done < target {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.wait(state, left);
        }
        true
    }

    /// Refuses further blocks.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Blocks and bytes that wait.
    pub fn len(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.bytes)
    }
}
