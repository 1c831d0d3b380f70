//! Sums of a key in a window.

use crate::{
    conversation::{
        Added, BEGUN, BYTES, ENDED, Moved, PACKETS, REFUSED, RESET, RETRANSMITTED, TIMED_OUT,
    },
    counts::Sum,
    key::Rule,
    sketch::Sketch,
};

/// Ports of clients in a line at most.
pub const PORTS: usize = 16;
/// Agents that are told apart in a line.
const AGENTS: usize = 4;

/// Times of connections, µs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) sum_ns: u64,
    pub(crate) count: u32,
    pub(crate) min_us: u32,
    pub(crate) max_us: u32,
}

impl Times {
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

    fn take_back(&mut self, ns: u64) {
        self.count = self.count.saturating_sub(1);
        self.sum_ns = self.sum_ns.saturating_sub(ns);
        if self.count == 0 {
            *self = Self::default();
        }
    }
}

/// Sums of a key in a window. Of pairs the client's is first.
#[derive(Clone, Debug)]
pub(crate) struct KeySums {
    pub(crate) rule: Rule,
    pub(crate) sent: [Sum; 2],
    pub(crate) retransmitted: [u64; 2],
    pub(crate) begun: u32,
    pub(crate) ended: u32,
    pub(crate) reset: u32,
    pub(crate) refused: u32,
    pub(crate) timed_out: u32,
    pub(crate) records: u32,
    pub(crate) samples: u32,
    /// Conversations that a second host told of.
    pub(crate) joined: u32,
    /// What one host counted and the other did not.
    pub(crate) apart: [Sum; 2],
    pub(crate) handshake: Times,
    pub(crate) rtt: Times,
    pub(crate) sketch: Sketch,
    ports: [u16; PORTS],
    ports_known: u8,
    pub(crate) agents_known: u8,
    pub(crate) ports_beyond: u32,
    agents: [u32; AGENTS],
}

impl KeySums {
    pub(crate) fn new() -> Self {
        Self {
            rule: Rule::Unknown,
            sent: [Sum::default(); 2],
            retransmitted: [0; 2],
            begun: 0,
            ended: 0,
            reset: 0,
            refused: 0,
            timed_out: 0,
            records: 0,
            samples: 0,
            joined: 0,
            apart: [Sum::default(); 2],
            handshake: Times::default(),
            rtt: Times::default(),
            sketch: Sketch::default(),
            ports: [0; PORTS],
            ports_known: 0,
            agents_known: 0,
            ports_beyond: 0,
            agents: [0; AGENTS],
        }
    }

    /// Whether everything that was counted here has gone to another key.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0 && self.samples == 0 && self.apart == [Sum::default(); 2]
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
            None => self.ports_beyond = self.ports_beyond.saturating_add(1),
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

    fn note_rtt(&mut self, handshake_ns: u64, rtt_ns: u64) {
        if handshake_ns > 0 {
            self.handshake.note(handshake_ns);
        }
        if rtt_ns > 0 {
            self.rtt.note(rtt_ns);
            self.sketch.add(micros(rtt_ns), 1);
        }
    }

    pub(crate) fn add(&mut self, added: &Added, port: u16, stream: u32) {
        self.records = self.records.saturating_add(1);
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
        for (sum, place) in [
            (&mut self.begun, BEGUN),
            (&mut self.ended, ENDED),
            (&mut self.reset, RESET),
            (&mut self.refused, REFUSED),
            (&mut self.timed_out, TIMED_OUT),
        ] {
            *sum = sum.saturating_add(narrow(more[place]));
        }
        self.note_rtt(added.handshake_ns, added.rtt_ns);
        self.joined = self.joined.saturating_add(added.joined.into());
        if added.new_in_window {
            self.note_port(port);
        }
    }

    /// Adds a sampled packet that stands for more.
    pub(crate) fn add_sample(&mut self, rule: Rule, side: usize, sum: Sum, port: u16, stream: u32) {
        self.samples = self.samples.saturating_add(1);
        self.note_agent(stream);
        self.rule = self.rule.min(rule);
        self.sent[side].add(sum.packets, sum.bytes);
        self.note_port(port);
    }

    pub(crate) fn add_apart(&mut self, apart: &[u64; 4], client_first: bool) {
        for side in 0..2 {
            let place = if client_first { side } else { 1 - side };
            self.apart[side].add(apart[PACKETS + place], apart[BYTES + place]);
        }
    }

    /// Gives away what a conversation has brought.
    pub(crate) fn give(&mut self, moved: &Moved) {
        let less = |sum: &mut u64, by: u64| *sum = sum.saturating_sub(by);
        for side in 0..2 {
            let place = if moved.from_client_first {
                side
            } else {
                1 - side
            };
            less(&mut self.sent[side].packets, moved.sums[PACKETS + place]);
            less(&mut self.sent[side].bytes, moved.sums[BYTES + place]);
            less(
                &mut self.retransmitted[side],
                moved.sums[RETRANSMITTED + place],
            );
        }
        for (sum, by) in [
            (&mut self.begun, narrow(moved.sums[BEGUN])),
            (&mut self.ended, narrow(moved.sums[ENDED])),
            (&mut self.reset, narrow(moved.sums[RESET])),
            (&mut self.refused, narrow(moved.sums[REFUSED])),
            (&mut self.timed_out, narrow(moved.sums[TIMED_OUT])),
            (&mut self.records, moved.records),
        ] {
            *sum = sum.saturating_sub(by);
        }
        if moved.handshake_ns > 0 {
            self.handshake.take_back(moved.handshake_ns);
        }
        if moved.rtt_ns > 0 {
            self.rtt.take_back(moved.rtt_ns);
            self.sketch.remove(micros(moved.rtt_ns));
        }
    }

    /// Takes what another key has given away.
    pub(crate) fn take(&mut self, moved: &Moved, port: u16, stream: u32) {
        for side in 0..2 {
            let place = if moved.to_client_first {
                side
            } else {
                1 - side
            };
            self.sent[side].add(moved.sums[PACKETS + place], moved.sums[BYTES + place]);
            let again = &mut self.retransmitted[side];
            *again = again.saturating_add(moved.sums[RETRANSMITTED + place]);
        }
        for (sum, more) in [
            (&mut self.begun, narrow(moved.sums[BEGUN])),
            (&mut self.ended, narrow(moved.sums[ENDED])),
            (&mut self.reset, narrow(moved.sums[RESET])),
            (&mut self.refused, narrow(moved.sums[REFUSED])),
            (&mut self.timed_out, narrow(moved.sums[TIMED_OUT])),
            (&mut self.records, moved.records),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.rule = self.rule.min(moved.rule);
        self.note_agent(stream);
        self.note_agent(moved.stream);
        self.note_rtt(moved.handshake_ns, moved.rtt_ns);
        self.note_port(port);
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn micros(ns: u64) -> u32 {
    narrow(ns / 1_000)
}
