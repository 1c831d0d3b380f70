//! Datagrams that wait to be sent.

use skua_collect::Offered;
use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Datagrams in a batch at most.
pub const BURST: usize = 32;

/// Why datagrams did not get away.
#[derive(Debug, Default)]
pub struct Losses {
    /// The queue was full.
    pub queue_full: AtomicU64,
    /// Nobody was there (ICMP port unreachable).
    pub refused: AtomicU64,
    /// The host was unreachable: no route, or no answer to ARP (ICMP host or network unreachable).
    pub unreachable: AtomicU64,
    /// No answer came to what was sent, and the collector is gone.
    pub unanswered: AtomicU64,
    /// The socket's buffer was full.
    pub would_block: AtomicU64,
    /// Anything else that the kernel said.
    pub failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Datagrams {
    waiting: VecDeque<Vec<u8>>,
    /// Buffers that were sent, to be used again.
    free: Vec<Vec<u8>>,
    closed: bool,
}

/// A queue that has a limit.
#[derive(Debug)]
pub struct Queue {
    datagrams: Mutex<Datagrams>,
    more: Condvar,
    most: AtomicUsize,
    /// Datagrams that were sent.
    pub sent: AtomicU64,
    /// Those that were not.
    pub losses: Losses,
    /// Times that it was found that the collector is gone.
    pub gone: AtomicU64,
}

/// What [`Queue::next_batch`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// A batch.
    Batch,
    /// Nothing came in time.
    Nothing,
    /// Nothing, and nothing will come.
    Closed,
}

impl Queue {
    /// A queue of at most so many datagrams.
    pub fn new(most: usize) -> Self {
        Self {
            datagrams: Mutex::default(),
            more: Condvar::new(),
            most: AtomicUsize::new(most),
            sent: AtomicU64::new(0),
            losses: Losses::default(),
            gone: AtomicU64::new(0),
        }
    }

    /// Changes how many datagrams it has at most.
    pub fn limit(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Datagrams> {
        // Nothing panics half-way through a change.
        self.datagrams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a datagram, unless the queue is full.
    pub fn offer(&self, bytes: &[u8]) -> Offered {
        let mut datagrams = self.lock();
        if datagrams.waiting.len() >= self.most.load(Relaxed) {
            self.losses.queue_full.fetch_add(1, Relaxed);
            return Offered::Refused;
        }
        let mut buffer = datagrams.free.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        datagrams.waiting.push_back(buffer);
        drop(datagrams);
        self.more.notify_one();
        Offered::Queued
    }

    /// Times that nobody was there.
    pub fn refusals(&self) -> u64 {
        let losses = [&self.losses.refused, &self.losses.unreachable, &self.gone];
        losses.iter().map(|times| times.load(Relaxed)).sum()
    }

    /// Datagrams that wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    /// Fills a batch, whose buffers from before are used again, with what waits; when that is nothing it waits
    /// for so long, or until something comes.
    pub fn next_batch(&self, batch: &mut Vec<Vec<u8>>, wait: Option<Duration>) -> Next {
        let mut datagrams = self.lock();
        datagrams.free.append(batch);
        while datagrams.waiting.is_empty() {
            if datagrams.closed {
                return Next::Closed;
            }
            // A burst's buffers need not be kept until the next one.
            datagrams.free.truncate(BURST);
            datagrams.free.shrink_to_fit();
            datagrams.waiting.shrink_to(BURST);
            datagrams = match wait {
                None => self
                    .more
                    .wait(datagrams)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let (datagrams, timeout) = self
                        .more
                        .wait_timeout(datagrams, wait)
                        .unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() && datagrams.waiting.is_empty() && !datagrams.closed {
                        return Next::Nothing;
                    }
                    datagrams
                }
            };
        }
        let count = datagrams.waiting.len().min(BURST);
        batch.extend(datagrams.waiting.drain(..count));
        Next::Batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_limit_is_counted_and_the_rest_is_in_the_batch() {
        let queue = Queue::new(2);
        let offered = [b"one", b"two", b"six"].map(|bytes| queue.offer(bytes));
        assert_eq!(
            offered,
            [Offered::Queued, Offered::Queued, Offered::Refused]
        );
        assert_eq!(queue.waiting(), 2);
        // Another share of the memory.
        queue.limit(3);
        assert_eq!(queue.offer(b"ten"), Offered::Queued);
        queue.close();
        let mut batch = Vec::new();
        assert_eq!(queue.next_batch(&mut batch, None), Next::Batch);
        assert_eq!(batch, [b"one", b"two", b"ten"]);
        assert_eq!(queue.next_batch(&mut batch, None), Next::Closed);
        assert_eq!(queue.losses.queue_full.load(Relaxed), 1);
    }

    #[test]
    fn nothing_is_waited_for_as_long_as_is_said() {
        let queue = Queue::new(2);
        let wait = Some(Duration::from_millis(1));
        assert_eq!(queue.next_batch(&mut Vec::new(), wait), Next::Nothing);
    }
}
