//! Windows of time and the sums in them.

use std::collections::{BTreeMap, hash_map::Entry};

use crate::{
    HashMap,
    conversation::{Added, BEGUN, BYTES, ENDED, PACKETS, RESET, RETRANSMITTED, Settled},
    counts::Sum,
    key::{Key, Oriented, Rule},
};

/// Ports of clients in a line at most.
pub const PORTS: usize = 16;
/// Agents that are told apart in a line.
const AGENTS: usize = 4;

/// Sums of a key in a window. Of pairs the client's is first.
#[derive(Clone, Debug)]
pub(crate) struct KeySums {
    pub(crate) rule: Rule,
    pub(crate) sent: [Sum; 2],
    pub(crate) retransmitted: [u64; 2],
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) reset: u64,
    pub(crate) records: u64,
    pub(crate) samples: u64,
    /// Conversations that a second host told of.
    pub(crate) joined: u64,
    /// What one host counted and the other did not.
    pub(crate) apart: [Sum; 2],
    pub(crate) rtt_count: u64,
    pub(crate) rtt_sum_ns: u64,
    pub(crate) rtt_min_ns: u64,
    pub(crate) rtt_max_ns: u64,
    ports: [u16; PORTS],
    ports_known: u8,
    pub(crate) ports_beyond: u64,
    agents: [u32; AGENTS],
    pub(crate) agents_known: u8,
}

impl KeySums {
    fn new() -> Self {
        Self {
            rule: Rule::Unknown,
            sent: [Sum::default(); 2],
            retransmitted: [0; 2],
            begun: 0,
            ended: 0,
            reset: 0,
            records: 0,
            samples: 0,
            joined: 0,
            apart: [Sum::default(); 2],
            rtt_count: 0,
            rtt_sum_ns: 0,
            rtt_min_ns: 0,
            rtt_max_ns: 0,
            ports: [0; PORTS],
            ports_known: 0,
            ports_beyond: 0,
            agents: [0; AGENTS],
            agents_known: 0,
        }
    }

    /// Ports of clients, as many as there is room for.
    pub(crate) fn ports(&self) -> &[u16] {
        self.ports
            .get(..self.ports_known.into())
            .unwrap_or_default()
    }

    fn note_port(&mut self, port: u16) {
        if port == 0 || self.ports().contains(&port) {
            return;
        }
        match self.ports.get_mut(usize::from(self.ports_known)) {
            Some(place) => {
                *place = port;
                self.ports_known += 1;
            }
            None => self.ports_beyond += 1,
        }
    }

    fn note_agent(&mut self, agent: u32) {
        let known = usize::from(self.agents_known);
        if !self.agents.iter().take(known).any(|one| *one == agent)
            && let Some(place) = self.agents.get_mut(known)
        {
            *place = agent;
            self.agents_known += 1;
        }
    }

    fn note_rtt(&mut self, ns: u64) {
        if ns == 0 {
            return;
        }
        self.rtt_min_ns = match self.rtt_count {
            0 => ns,
            _ => self.rtt_min_ns.min(ns),
        };
        self.rtt_count += 1;
        self.rtt_sum_ns = self.rtt_sum_ns.saturating_add(ns);
        self.rtt_max_ns = self.rtt_max_ns.max(ns);
    }

    fn add(&mut self, added: &Added, port: u16, stream: u32) {
        self.records += 1;
        self.note_agent(stream);
        self.rule = self.rule.min(added.rule);
        let more = &added.conversation;
        for side in 0..2 {
            let place = if added.client_first { side } else { 1 - side };
            self.sent[side].add(more[PACKETS + place], more[BYTES + place]);
            let again = &mut self.retransmitted[side];
            *again = again.saturating_add(more[RETRANSMITTED + place]);
        }
        self.add_apart(&added.apart, added.client_first);
        self.begun += more[BEGUN];
        self.ended += more[ENDED];
        self.reset += more[RESET];
        self.note_rtt(added.rtt_ns);
        self.joined += u64::from(added.joined);
        if added.new_in_window {
            self.note_port(port);
        }
    }

    fn add_apart(&mut self, apart: &[u64; 4], client_first: bool) {
        for side in 0..2 {
            let place = if client_first { side } else { 1 - side };
            self.apart[side].add(apart[PACKETS + place], apart[BYTES + place]);
        }
    }
}

type Window = HashMap<Key, KeySums>;

/// Windows that are open.
#[derive(Debug)]
pub(crate) struct Windows {
    length: u64,
    wait: u64,
    most_keys: usize,
    open: BTreeMap<u64, Window>,
    keys: usize,
    /// Windows that began before are closed.
    closed_until: u64,
}

/// Whether something was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Counted,
    Late,
    KeysFull,
}

impl Windows {
    pub(crate) fn new(length: u64, wait: u64, most_keys: usize) -> Self {
        Self {
            length: length.max(1),
            wait,
            most_keys,
            open: BTreeMap::new(),
            keys: 0,
            closed_until: 0,
        }
    }

    /// Beginning of the window of a moment.
    pub(crate) fn of(&self, ns: u64) -> u64 {
        ns - ns % self.length
    }

    fn sums(&mut self, window: u64, key: Key) -> Result<&mut KeySums, Fate> {
        if window < self.closed_until {
            return Err(Fate::Late);
        }
        match self.open.entry(window).or_default().entry(key) {
            Entry::Occupied(sums) => Ok(sums.into_mut()),
            Entry::Vacant(_) if self.keys >= self.most_keys => Err(Fate::KeysFull),
            Entry::Vacant(place) => {
                self.keys += 1;
                Ok(place.insert(KeySums::new()))
            }
        }
    }

    /// Adds what a record added.
    pub(crate) fn add(&mut self, window: u64, added: &Added, port: u16, stream: u32) -> Fate {
        match self.sums(window, added.key) {
            Ok(sums) => {
                sums.add(added, port, stream);
                Fate::Counted
            }
            Err(fate) => fate,
        }
    }

    /// Adds a sampled packet that stands for `packets`.
    pub(crate) fn add_sample(
        &mut self,
        window: u64,
        packet: (&Oriented, Rule),
        packets: u64,
        bytes: u64,
        stream: u32,
    ) -> Fate {
        let (oriented, rule) = packet;
        match self.sums(window, oriented.key) {
            Ok(sums) => {
                sums.samples += 1;
                sums.note_agent(stream);
                sums.rule = sums.rule.min(rule);
                let side = usize::from(!oriented.client_first);
                sums.sent[side].add(packets, bytes);
                sums.note_port(oriented.client_port);
                Fate::Counted
            }
            Err(fate) => fate,
        }
    }

    /// Adds differences between hosts.
    pub(crate) fn settle(&mut self, window: u64, settled: &Settled) {
        if let Ok(sums) = self.sums(window.max(self.closed_until), settled.key) {
            sums.add_apart(&settled.apart, settled.client_first);
        }
    }

    /// When the next window can be closed, if one is open.
    pub(crate) fn next_close(&self) -> Option<u64> {
        let first = self.open.keys().next()?;
        Some(first.saturating_add(self.length).saturating_add(self.wait))
    }

    /// Closes windows that nobody has to wait for any more; `all`: all of them.
    pub(crate) fn close(&mut self, now: u64, all: bool, each: &mut dyn FnMut(u64, &Key, &KeySums)) {
        while self.next_close().is_some_and(|at| all || at <= now)
            && let Some((window, sums)) = self.open.pop_first()
        {
            self.keys -= sums.len();
            self.closed_until = self.closed_until.max(window.saturating_add(self.length));
            for (key, sums) in &sums {
                each(window, key, sums);
            }
        }
        // Also windows that nobody told of.
        let over = now.saturating_sub(self.wait);
        self.closed_until = self.closed_until.max(over - over % self.length);
    }
}
