//! Data sets that arrived before their template: held for a short time, within a number of bytes.

use std::collections::VecDeque;

use super::Clock;

/// A set without a template.
pub(super) struct Held<K> {
    pub(super) session: K,
    pub(super) template: u16,
    pub(super) clock: Clock,
    /// When it arrived, ns since the Unix epoch.
    pub(super) received_ns: u64,
    /// Where its records began in the datagram.
    pub(super) at: usize,
    pub(super) bytes: Box<[u8]>,
}

/// Sets in order of arrival.
pub(super) struct Hold<K> {
    sets: VecDeque<Held<K>>,
    bytes: usize,
    most_bytes: usize,
    most_ns: u64,
}

/// Memory of each set besides its bytes.
const OVERHEAD: usize = 128;

impl<K: PartialEq> Hold<K> {
    pub(super) fn new(most_bytes: usize, most_ns: u64) -> Self {
        Self {
            sets: VecDeque::new(),
            bytes: 0,
            most_bytes,
            most_ns,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    fn size(bytes: &[u8]) -> usize {
        bytes.len() + OVERHEAD
    }

    /// Holds a set; sets beyond the limit are passed to `lose`, oldest first.
    pub(super) fn put(&mut self, held: Held<K>, mut lose: impl FnMut(&Held<K>)) {
        let size = Self::size(&held.bytes);
        if size > self.most_bytes {
            lose(&held);
            return;
        }
        while self.bytes + size > self.most_bytes {
            let Some(oldest) = self.pop() else { break };
            lose(&oldest);
        }
        self.bytes += size;
        self.sets.push_back(held);
    }

    fn pop(&mut self) -> Option<Held<K>> {
        let held = self.sets.pop_front()?;
        self.bytes -= Self::size(&held.bytes);
        Some(held)
    }

    /// Passes sets that were held too long to `lose`.
    pub(super) fn expire(&mut self, now_ns: u64, mut lose: impl FnMut(&Held<K>)) {
        while self
            .sets
            .front()
            .is_some_and(|held| now_ns.saturating_sub(held.received_ns) > self.most_ns)
        {
            if let Some(held) = self.pop() {
                lose(&held);
            }
        }
    }

    /// Removes and returns the sets that wait for a template.
    pub(super) fn release(&mut self, session: &K, template: u16) -> Vec<Held<K>> {
        let wanted = |held: &Held<K>| held.template == template && held.session == *session;
        if !self.sets.iter().any(wanted) {
            return Vec::new();
        }
        let (found, kept) = std::mem::take(&mut self.sets)
            .into_iter()
            .partition::<Vec<_>, _>(|held| wanted(held));
        self.sets = kept.into();
        self.bytes -= found
            .iter()
            .map(|held| Self::size(&held.bytes))
            .sum::<usize>();
        found
    }
}
