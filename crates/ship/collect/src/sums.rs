//! Sums of a key in a window.

use crate::{
    conversation::{
        Added, BEGUN, BYTES, ENDED, Moved, PACKETS, REFUSED, RESET, RETRANSMITTED, Sums, TIMED_OUT,
    },
    counts::Sum,
    key::Rule,
    sketch::Sketch,
};

/// Ports of clients in a line at most.
pub const PORTS: usize = 16;
/// Agents that are distinguished in a line.
pub(crate) const AGENTS: usize = 4;

/// Times of connections, µs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) sum_ns: u64,
    pub(crate) count: u32,
    pub(crate) min_us: u32,
    pub(crate) max_us: u32,
}

impl Times {
    const NONE: Self = Self {
        sum_ns: 0,
        count: 0,
        min_us: 0,
        max_us: 0,
    };

    fn note(&mut self, ns: u64) {
        let us = u32::try_from(ns / 1_000).unwrap_or(u32::MAX);
        self.min_us = match self.count {
            0 => us,
            _ => self.min_us.min(us),
        };
        self.max_us = self.max_us.max(us);
        self.count = self.count.saturating_add(1);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    fn remove(&mut self, ns: u64) {
        self.count = self.count.saturating_sub(1);
        self.sum_ns = self.sum_ns.saturating_sub(ns);
        if self.count == 0 {
            *self = Self::NONE;
        }
    }
}

/// Sums of a key in a window: what each record and sample changes. With its key it is in two lines of the
/// processor's cache. Of pairs the client's is first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct KeySums {
    pub(crate) sent: [Sum; 2],
    pub(crate) records: u32,
    pub(crate) samples: u32,
    pub(crate) rule: Rule,
    ports_known: u8,
    pub(crate) agents_known: u8,
    /// The first; others are among the details.
    agent: u32,
    ports: [u16; PORTS],
}

/// The rest of the sums of a key, which sampled packets mostly do not need. Of pairs the client's is first.
#[derive(Clone, Debug)]
pub(crate) struct Details {
    /// From the second on.
    agents: [u32; AGENTS - 1],
    pub(crate) ports_beyond: u32,
    pub(crate) begun: u32,
    pub(crate) ended: u32,
    pub(crate) reset: u32,
    pub(crate) refused: u32,
    pub(crate) timed_out: u32,
    /// Conversations that a second host reported.
    pub(crate) joined: u32,
    pub(crate) retransmitted: [u64; 2],
    pub(crate) handshake: Times,
    pub(crate) rtt: Times,
    pub(crate) sketch: Sketch,
    /// What one host counted and the other did not.
    pub(crate) apart: [Sum; 2],
}

impl Details {
    /// Of a key that has none.
    pub(crate) const NONE: Self = Self {
        agents: [0; AGENTS - 1],
        ports_beyond: 0,
        begun: 0,
        ended: 0,
        reset: 0,
        refused: 0,
        timed_out: 0,
        joined: 0,
        retransmitted: [0; 2],
        handshake: Times::NONE,
        rtt: Times::NONE,
        sketch: Sketch::EMPTY,
        apart: [Sum::NONE; 2],
    };

    /// Counters by their index among the sums of a conversation.
    fn counters(&mut self) -> [(&mut u32, usize); 5] {
        [
            (&mut self.begun, BEGUN),
            (&mut self.ended, ENDED),
            (&mut self.reset, RESET),
            (&mut self.refused, REFUSED),
            (&mut self.timed_out, TIMED_OUT),
        ]
    }

    fn add(&mut self, more: &Sums, client_first: bool) {
        let retransmitted = self.retransmitted.iter_mut();
        for (sum, index) in retransmitted.zip(sides(client_first)) {
            *sum = sum.saturating_add(more[RETRANSMITTED + index]);
        }
        for (sum, index) in self.counters() {
            *sum = sum.saturating_add(narrow(more[index]));
        }
    }

    fn add_apart(&mut self, apart: &[u64; 4], client_first: bool) {
        for (sum, index) in self.apart.iter_mut().zip(sides(client_first)) {
            sum.add(apart[PACKETS + index], apart[BYTES + index]);
        }
    }

    fn note_rtt(&mut self, handshake_ns: u64, rtt_ns: u64) {
        if handshake_ns > 0 {
            self.handshake.note(handshake_ns);
        }
        if rtt_ns > 0 {
            self.rtt.note(rtt_ns);
            self.sketch.add(micros(rtt_ns), 1);
        }
    }
}

impl KeySums {
    pub(crate) fn new() -> Self {
        Self {
            sent: [Sum::NONE; 2],
            records: 0,
            samples: 0,
            rule: Rule::Unknown,
            ports_known: 0,
            agents_known: 0,
            agent: 0,
            ports: [0; PORTS],
        }
    }

    /// Clients' ports, up to the limit.
    pub(crate) fn ports(&self) -> &[u16] {
        self.ports
            .get(..self.ports_known.into())
            .unwrap_or_default()
    }
}

/// All sums of a key, to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct All<'a> {
    pub(crate) key: &'a KeySums,
    pub(crate) details: &'a Details,
}

impl All<'_> {
    /// Whether all counts have moved to another key.
    pub(crate) fn is_empty(&self) -> bool {
        self.key.records == 0 && self.key.samples == 0 && self.details.apart == [Sum::NONE; 2]
    }

    /// Streams of the agents that reported it, as far as they are distinguished.
    pub(crate) fn agents(&self) -> impl Iterator<Item = u32> {
        let all = std::iter::once(self.key.agent).chain(self.details.agents);
        all.take(self.key.agents_known.into())
    }
}

/// All sums of a key, to be changed.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    pub(crate) key: &'a mut KeySums,
    /// Details of this key and its neighbours; those that were never needed may not be there.
    pub(crate) details: &'a mut Vec<Details>,
    /// Which are its.
    pub(crate) index: usize,
    /// How many there may be.
    pub(crate) room: usize,
}

impl Changing<'_> {
    fn details(&mut self) -> &mut Details {
        if self.details.len() <= self.index {
            if self.details.capacity() == 0 {
                self.details.reserve_exact(self.room);
            }
            self.details.resize(self.index + 1, Details::NONE);
        }
        &mut self.details[self.index]
    }

    fn note_port(&mut self, port: u16) {
        if port == 0 || self.key.ports().contains(&port) {
            return;
        }
        match self.key.ports.get_mut(usize::from(self.key.ports_known)) {
            Some(index) => {
                *index = port;
                self.key.ports_known += 1;
            }
            None => {
                let beyond = &mut self.details().ports_beyond;
                *beyond = beyond.saturating_add(1);
            }
        }
    }

    fn note_agent(&mut self, agent: u32) {
        match self.key.agents_known {
            0 => {
                self.key.agent = agent;
                self.key.agents_known = 1;
            }
            _ if self.key.agent == agent => {}
            known => {
                let others = usize::from(known) - 1;
                let details = self.details();
                if details.agents.iter().take(others).any(|one| *one == agent) {
                    return;
                }
                if let Some(index) = details.agents.get_mut(others) {
                    *index = agent;
                    self.key.agents_known += 1;
                }
            }
        }
    }

    pub(crate) fn add(&mut self, added: &Added, port: u16, stream: u32) {
        self.note_agent(stream);
        let more = &added.conversation;
        let key = &mut *self.key;
        key.records = key.records.saturating_add(1);
        key.rule = key.rule.min(added.rule);
        for (sum, index) in key.sent.iter_mut().zip(sides(added.client_first)) {
            sum.add(more[PACKETS + index], more[BYTES + index]);
        }
        let details = self.details();
        details.add(more, added.client_first);
        details.add_apart(&added.apart, added.client_first);
        details.note_rtt(added.handshake_ns, added.rtt_ns);
        details.joined = details.joined.saturating_add(added.joined.into());
        if added.new_in_window {
            self.note_port(port);
        }
    }

    /// Adds a sampled packet, which represents more.
    pub(crate) fn add_sample(&mut self, rule: Rule, side: usize, sum: Sum, port: u16, stream: u32) {
        self.note_agent(stream);
        let key = &mut *self.key;
        key.samples = key.samples.saturating_add(1);
        key.rule = key.rule.min(rule);
        key.sent[side].add(sum.packets, sum.bytes);
        self.note_port(port);
    }

    pub(crate) fn add_apart(&mut self, apart: &[u64; 4], client_first: bool) {
        self.details().add_apart(apart, client_first);
    }

    /// Subtracts the sums that move to another key.
    pub(crate) fn give(&mut self, moved: &Moved) {
        let less = |sum: &mut u64, by: u64| *sum = sum.saturating_sub(by);
        let key = &mut *self.key;
        key.records = key.records.saturating_sub(moved.records);
        for (sum, index) in key.sent.iter_mut().zip(sides(moved.from_client_first)) {
            less(&mut sum.packets, moved.sums[PACKETS + index]);
            less(&mut sum.bytes, moved.sums[BYTES + index]);
        }
        let details = self.details();
        let retransmitted = details.retransmitted.iter_mut();
        for (sum, index) in retransmitted.zip(sides(moved.from_client_first)) {
            less(sum, moved.sums[RETRANSMITTED + index]);
        }
        for (sum, index) in details.counters() {
            *sum = sum.saturating_sub(narrow(moved.sums[index]));
        }
        details.joined = details.joined.saturating_sub(moved.joined.into());
        if moved.handshake_ns > 0 {
            details.handshake.remove(moved.handshake_ns);
        }
        if moved.rtt_ns > 0 {
            details.rtt.remove(moved.rtt_ns);
            details.sketch.remove(micros(moved.rtt_ns));
        }
    }

    /// Adds the sums that another key has given up.
    pub(crate) fn add_moved(&mut self, moved: &Moved, port: u16, stream: u32) {
        let key = &mut *self.key;
        key.records = key.records.saturating_add(moved.records);
        key.rule = key.rule.min(moved.rule);
        for (sum, index) in key.sent.iter_mut().zip(sides(moved.to_client_first)) {
            sum.add(moved.sums[PACKETS + index], moved.sums[BYTES + index]);
        }
        self.note_agent(stream);
        self.note_agent(moved.stream);
        let details = self.details();
        details.add(&moved.sums, moved.to_client_first);
        details.note_rtt(moved.handshake_ns, moved.rtt_ns);
        details.joined = details.joined.saturating_add(moved.joined.into());
        self.note_port(port);
    }
}

/// Where among the sums of a conversation those of the client and of the server are.
fn sides(client_first: bool) -> [usize; 2] {
    match client_first {
        true => [0, 1],
        false => [1, 0],
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn micros(ns: u64) -> u32 {
    narrow(ns / 1_000)
}
