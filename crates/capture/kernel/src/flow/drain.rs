//! Draining: taking the counters of every live entry, and ending those that are over, exactly.
//!
//! Programs add to counters while the drain exchanges them for 0, both atomically, so that no
//! packet is lost or counted twice. An entry that ends is first made invisible (`SLOT_DYING`);
//! after a grace period no program can still hold it, its last counters are taken and its slot
//! becomes free.
//!
//! Connections of one key are reported in order. When ports are reused, the program sends the entry's
//! counters to a ring and starts the entry again. A drain therefore reads the clock, then the ring, and
//! reports only entries that began before that: their predecessors were in the ring, or ended with an
//! earlier drain. Younger entries wait for the next drain.

use skua_record::TcpCounters;
use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

use skua_flow::{
    Carries, Counters, Directions, EndReason, FlowUpdate, LinkUpdate, PointTraffic, TcpUpdate,
};

use super::{
    FlowTable,
    eviction::{Moment, QuietCensus},
    layout::{
        COLD_LABEL, COLD_MAC, COLD_MS, COLD_RST_BY_HI, COLD_TAG_SHIFT, COUNTED_ANEW, ColdSlot,
        Ended, PROBES, SEEN_HI_OPENED, SEEN_LO_FIRST, SEEN_LO_INGRESS, SEEN_LO_OPENED,
        SENT_CARRY_BYTES, SENT_CARRY_PACKETS, SENT_PACKETS_SHIFT, SLOT_BUSY, SLOT_DYING,
        SLOT_EMPTY, SLOT_LIVE, SLOT_TOMB, Slot,
    },
};
use crate::{KernelError, clock, mapping::Window, ticks::Ticks};

/// Slots mapped at a time: 2 MiB of slots and 6 MiB of what few packets touch, so that resident memory does not grow with the
/// table.
const WINDOW: usize = 32_768;

/// More tombstones than one in so many slots are worth clearing.
const MANY_TOMBS: usize = 16;

/// Bits of `reason` kept with the index of a dying slot.
const REASON_SHIFT: u32 = 30;
const INDEX_MASK: u32 = (1 << REASON_SHIFT) - 1;
const REASONS: [EndReason; 4] = [
    EndReason::Closed,
    EndReason::Idle,
    EndReason::Evicted,
    EndReason::Shutdown,
];

/// IP protocol number.
const TCP: u8 = 6;
const TCP_FIN: u32 = 0x01;
const TCP_RST: u32 = 0x04;

/// What a drain did.
#[derive(Clone, Debug, Default)]
pub struct DrainStats {
    /// Live entries found.
    pub live: u64,
    /// Updates handed out.
    pub updates: u64,
    /// Entries ended.
    pub ended: u64,
    /// Whether the table was under pressure.
    pub pressure: bool,
    /// Differences by (namespace, interface index).
    pub traffic: HashMap<(u16, u32), PointTraffic>,
}

/// Which entries end.
#[derive(Clone, Copy)]
struct Ageing {
    now: u64,
    ticks: Ticks,
    idle: u64,
    closed: u64,
    /// Why those older than `idle` end.
    idle_reason: EndReason,
    all: Option<EndReason>,
}

impl Ageing {
    fn verdict(&self, slot: &Slot) -> Option<EndReason> {
        if let Some(reason) = self.all {
            return Some(reason);
        }
        let quiet = self
            .now
            .saturating_sub(self.ticks.begin_ns(slot.last.load(Relaxed), self.now));
        if quiet >= self.idle {
            return Some(self.idle_reason);
        }
        let flags = slot.seen.load(Relaxed);
        let both_fin = TCP_FIN | TCP_FIN << 8;
        let closed = flags & (TCP_RST | TCP_RST << 8) != 0 || flags & both_fin == both_fin;
        (closed && quiet >= self.closed).then_some(EndReason::Closed)
    }
}

/// What was taken of what a side sent.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Drained {
    packets: i64,
    bytes: i64,
    /// It was counted after the ports were used again.
    after_reuse: bool,
}

impl Drained {
    /// `sent` and `carried` as in `bpf/flow/flow.h`; `last` when nothing comes after this.
    fn of(sent: &AtomicU64, carried: &AtomicU32, last: bool) -> Self {
        // Load first: an exchange would dirty the cache line of every quiet flow. What is still carried comes with the
        // next packet, or at the end.
        if !last && sent.load(Relaxed) == 0 {
            return Self::default();
        }
        // A program moves a part to `carried` after it has left `sent`: in this order none is taken twice.
        let carried = take(carried);
        let mut drained = Self::read(sent.swap(0, SeqCst));
        drained.packets +=
            i64::from(carried & 0xffff) * (SENT_CARRY_PACKETS >> SENT_PACKETS_SHIFT) as i64;
        drained.bytes += i64::from(carried >> 16) * SENT_CARRY_BYTES as i64;
        // A program that cannot exchange took the same (`count_anew` of bpf/flow/table.h), or `carried` comes later:
        // what comes next makes up for it.
        if !last && (drained.packets < 0 || drained.bytes < 0) {
            drained.give_back(sent);
        }
        drained
    }

    fn read(sent: u64) -> Self {
        const BYTES: u32 = u64::BITS - SENT_PACKETS_SHIFT;
        let bytes = (sent << BYTES) as i64 >> BYTES;
        let packets = (sent as i64).wrapping_sub(bytes) >> SENT_PACKETS_SHIFT;
        // Packets are far fewer than the mark: they are carried before.
        let after_reuse = packets >= (COUNTED_ANEW >> SENT_PACKETS_SHIFT) as i64 / 2;
        let mark = if after_reuse {
            COUNTED_ANEW >> SENT_PACKETS_SHIFT
        } else {
            0
        };
        Self {
            packets: packets - mark as i64,
            bytes,
            after_reuse,
        }
    }

    /// For the next drain.
    fn give_back(&mut self, sent: &AtomicU64) {
        let packets = (self.packets as u64) << SENT_PACKETS_SHIFT;
        sent.fetch_add(packets.wrapping_add(self.bytes as u64), AcqRel);
        (self.packets, self.bytes) = (0, 0);
    }
}

/// What was taken of an entry: sent by lo, and by hi.
struct DrainedCounters([Drained; 2]);

impl DrainedCounters {
    fn of(slot: &Slot, cold: &ColdSlot, last: bool) -> Self {
        Self([0, 1].map(|side| Drained::of(&slot.sent[side], &cold.carried[side], last)))
    }

    fn is_empty(&self) -> bool {
        self.0
            .iter()
            .all(|drained| (drained.packets, drained.bytes) == (0, 0))
    }

    /// The ports were reused before all was read: the counters of the new connection go back, for the next
    /// drain.
    fn give_back_newer(&mut self, slot: &Slot) {
        for (drained, sent) in self.0.iter_mut().zip(&slot.sent) {
            if drained.after_reuse {
                drained.give_back(sent);
            }
        }
    }

    fn sums(&self) -> [Counters; 2] {
        self.0.map(|drained| Counters {
            packets: drained.packets.max(0) as u64,
            bytes: drained.bytes.max(0) as u64,
        })
    }
}

/// Makes an entry that began at `began` invisible to the programs. False if it is not as it was: when ports were used
/// again since then, the connection that began is not over.
fn make_dying(slot: &Slot, state: u32, began: u64) -> bool {
    let made = slot
        .state
        .compare_exchange(state, SLOT_DYING, AcqRel, Relaxed)
        .is_ok();
    if made && slot.first.load(SeqCst) != began {
        slot.state.store(state, Release);
        return false;
    }
    made
}

fn drain_pair(pair: &[std::sync::atomic::AtomicU32; 2]) -> [u32; 2] {
    pair.each_ref().map(|v| {
        if v.load(Relaxed) == 0 {
            0
        } else {
            v.swap(0, AcqRel)
        }
    })
}

impl FlowTable {
    /// Hands out what was counted since the last drain and ends entries that are over.
    pub fn drain(&mut self, sink: impl FnMut(&FlowUpdate)) -> Result<DrainStats, KernelError> {
        self.ticks = self.ticks.refined();
        let begun = self.moment();
        let idle = self.config.idle_timeout.as_nanos() as u64;
        let mut ageing = Ageing {
            now: begun.ns,
            ticks: self.ticks,
            idle,
            closed: self.config.closed_timeout.as_nanos() as u64,
            idle_reason: EndReason::Idle,
            all: None,
        };
        let evict = match self.eviction.begin(begun) {
            true => self.quiet_cutoff(begun.ns)?,
            false => None,
        };
        if let Some(cutoff) = evict {
            ageing.idle = cutoff.min(idle);
            ageing.idle_reason = EndReason::Evicted;
        }
        let mut stats = self.sweep(ageing, sink)?;
        stats.pressure = evict.is_some();
        self.eviction.end(self.moment());
        self.set_wakeup();
        Ok(stats)
    }

    fn moment(&self) -> Moment {
        Moment {
            ns: clock::monotonic_ns(),
            live: self.live(),
            wanted: self.wanted(),
        }
    }

    /// Entries that were quiet for at least this long must be evicted; none: no entry must.
    fn quiet_cutoff(&mut self, now: u64) -> Result<Option<u64>, KernelError> {
        let mut census = QuietCensus::new();
        let mut returned = 0;
        let ticks = self.ticks;
        let count = self.slots();
        for first in (0..count).step_by(WINDOW) {
            let slots = self.map_slots(first, WINDOW.min(count - first))?;
            for slot in slots.elements() {
                if slot.state.load(Acquire) & SLOT_LIVE != 0 {
                    census.add(now.saturating_sub(ticks.begin_ns(slot.last.load(Relaxed), now)));
                    returned += u64::from(
                        self.eviction.is_new(slot.first.load(Relaxed))
                            && self.eviction.was_evicted(slot.hash()),
                    );
                }
            }
        }
        let excess = self.eviction.excess(returned);
        Ok((excess > 0).then(|| census.cutoff(excess)))
    }

    /// The last drain: every entry ends. To be called after all programs are detached; waits until
    /// none still runs.
    pub fn finish(&mut self, sink: impl FnMut(&FlowUpdate)) -> Result<DrainStats, KernelError> {
        self.grace.wait()?;
        self.ticks = self.ticks.refined();
        let ageing = Ageing {
            now: clock::monotonic_ns(),
            ticks: self.ticks,
            idle: u64::MAX,
            closed: u64::MAX,
            idle_reason: EndReason::Shutdown,
            all: Some(EndReason::Shutdown),
        };
        self.sweep(ageing, sink)
    }

    fn sweep(
        &mut self,
        ageing: Ageing,
        mut sink: impl FnMut(&FlowUpdate),
    ) -> Result<DrainStats, KernelError> {
        let mut stats = DrainStats::default();
        let mut dying = std::mem::take(&mut self.dying);
        dying.clear();
        let offset = clock::unix_offset_ns();
        let count = self.slots();
        // Before the ring is read.
        let begun = clock::monotonic_ns();
        let mut out = Output {
            stats: &mut stats,
            sink: &mut sink,
            offset,
            begun,
            ticks: ageing.ticks,
        };

        self.drain_ended(&mut out)?;
        let last_window = (count - 1) / WINDOW;
        // Backwards: a tombstone before an empty slot is no longer needed, nor one that no probe sequence
        // of the entries behind it crosses. To know the latter pays only with many tombstones.
        let mut next_empty = true;
        let gathered = self.tombs > count / MANY_TOMBS;
        let mut tombs = 0;
        let mut begin = usize::MAX;
        for window in (0..=last_window).rev() {
            let first = window * WINDOW;
            let length = WINDOW.min(count - first);
            let slots = self.map_slots(first, length)?;
            // Mapping costs more than reading: only for windows that have entries.
            let mut cold: Option<Window<ColdSlot>> = None;
            for (i, slot) in slots.elements().iter().enumerate().rev() {
                let state = slot.state.load(Acquire);
                if state == SLOT_EMPTY {
                    next_empty = true;
                    continue;
                }
                if state == SLOT_TOMB {
                    next_empty = (next_empty || gathered && first + i < begin)
                        && slot
                            .state
                            .compare_exchange(SLOT_TOMB, SLOT_EMPTY, AcqRel, Relaxed)
                            .is_ok();
                    tombs += usize::from(!next_empty);
                    continue;
                }
                next_empty = false;
                if state == SLOT_BUSY {
                    // Its key is not written yet: the earliest slot at which its probing may begin.
                    begin = begin.min((first + i).saturating_sub(PROBES as usize - 1));
                    continue;
                }
                if gathered {
                    begin = begin.min(self.probe_start(slot));
                }
                out.stats.live += 1;
                let began = slot.first.load(Acquire);
                if began >= begun {
                    continue;
                }
                let reason = match state {
                    SLOT_DYING => Some(EndReason::Evicted),
                    _ => ageing.verdict(slot),
                };
                match reason {
                    Some(reason) if make_dying(slot, state, began) => {
                        let code = REASONS.iter().position(|r| *r == reason).unwrap_or(0) as u32;
                        dying.push((first + i) as u32 | code << REASON_SHIFT);
                    }
                    _ => {
                        // Mapped for those that sent something.
                        if slot.sent.iter().all(|sent| sent.load(Relaxed) == 0) {
                            continue;
                        }
                        let cold = match &cold {
                            Some(cold) => cold,
                            None => cold.insert(self.map_cold(first, length)?),
                        };
                        out.drain_entry(slot, &cold.elements()[i], began, None);
                    }
                }
            }
        }
        if !dying.is_empty() {
            self.grace.wait()?;
            // The ports of one may have been reused just before it was made invisible.
            self.drain_ended(&mut out)?;
            self.bury(&dying, &mut out)?;
        }
        self.tombs = tombs;
        self.dying = dying;
        if self.dying.capacity() > 4 * self.dying.len().max(1024) {
            self.dying = Vec::new();
        }
        Ok(stats)
    }

    /// The slot at which the programs start to probe, as in `find_slot` of bpf/flow/table.h.
    fn probe_start(&self, slot: &Slot) -> usize {
        (((slot.hash() >> 32) * u64::from(self.settings.slot_count)) >> 32) as usize
    }

    /// Hands out the connections that were sent because their ports were used again, all of those
    /// for which a program had taken a place in the ring before this call.
    fn drain_ended(&mut self, out: &mut Output<'_>) -> Result<(), KernelError> {
        let mut report = |message: &[u8]| {
            if let Some(ended) = Ended::read(message) {
                let first_ns = ended.slot.first.load(Relaxed);
                out.drain_entry(&ended.slot, &ended.cold, first_ns, Some(EndReason::Closed));
                out.stats.ended += 1;
            }
        };
        self.ended.drain(&mut report)?;
        // What a program still writes holds up all behind it.
        if self.ended.has_messages() {
            self.grace.wait()?;
            self.ended.drain(&mut report)?;
        }
        self.set_ended_wakeup();
        Ok(())
    }

    /// Sets the level at which programs wake us: half of the ring of ended connections.
    pub(super) fn set_ended_wakeup(&self) {
        let control = &self.control.elements()[0];
        let ring = u64::from(super::ended_ring_size(self.config.max_entries));
        let half = ring / (2 * size_of::<Ended>() as u64);
        let wake_at = control.ended.load(Acquire) + half;
        control.ended_wake_at.store(wake_at, Release);
    }

    /// Drains the last counters of the dying entries and frees their slots.
    fn bury(&mut self, dying: &[u32], out: &mut Output<'_>) -> Result<(), KernelError> {
        let count = self.slots();
        let mut at = 0;
        while at < dying.len() {
            let window = (dying[at] & INDEX_MASK) as usize / WINDOW;
            let first = window * WINDOW;
            let length = WINDOW.min(count - first);
            let (slots, cold) = (
                self.map_slots(first, length)?,
                self.map_cold(first, length)?,
            );
            let (slots, cold) = (slots.elements(), cold.elements());
            let begin = at;
            while at < dying.len() && (dying[at] & INDEX_MASK) as usize / WINDOW == window {
                let i = (dying[at] & INDEX_MASK) as usize - first;
                let reason = REASONS[(dying[at] >> REASON_SHIFT) as usize];
                let first_ns = slots[i].first.load(Acquire);
                out.drain_entry(&slots[i], &cold[i], first_ns, Some(reason));
                if reason == EndReason::Evicted {
                    self.eviction.evicted(slots[i].hash());
                }
                clear(&cold[i]);
                // The slot after the window's last counts as taken: then a tombstone stays.
                let next_free = slots
                    .get(i + 1)
                    .is_some_and(|next| next.state.load(Acquire) == SLOT_EMPTY);
                slots[i]
                    .state
                    .store(if next_free { SLOT_EMPTY } else { SLOT_TOMB }, Release);
                at += 1;
            }
            let control = &self.control.elements()[0];
            control.freed.fetch_add((at - begin) as u64, AcqRel);
            out.stats.ended += (at - begin) as u64;
        }
        Ok(())
    }

    fn map_slots(&self, first: usize, count: usize) -> Result<Window<Slot>, KernelError> {
        Window::map(self.first.map("slots")?.as_fd(), first, count)
    }

    fn map_cold(&self, first: usize, count: usize) -> Result<Window<ColdSlot>, KernelError> {
        Window::map(self.first.map("cold_slots")?.as_fd(), first, count)
    }

    /// Sets the level at which programs wake us to evict entries.
    pub(super) fn set_wakeup(&self) {
        let control = &self.control.elements()[0];
        control.wake_at.store(self.eviction.call(), Release);
    }
}

/// What the next entry in the place does not write when it begins.
fn clear(cold: &ColdSlot) {
    cold.parent.store(0, Relaxed);
    cold.tunnel_id.store(0, Relaxed);
    cold.syn.store(0, Relaxed);
    cold.synack.store(0, Relaxed);
    cold.ack.store(0, Relaxed);
    cold.no_syn.store(0, Relaxed);
    cold.carries.store(0, Relaxed);
    cold.rst_after.store(0, Relaxed);
    for side in 0..2 {
        cold.gap_us[side].store(0, Relaxed);
        cold.ttl[side].store(0, Relaxed);
        cold.link[side].store(0, Relaxed);
        cold.pair[side].store(0, Relaxed);
        cold.label[side].store(0, Relaxed);
        cold.fin_after[side].store(0, Relaxed);
    }
}

struct Output<'a> {
    stats: &'a mut DrainStats,
    sink: &'a mut dyn FnMut(&FlowUpdate),
    offset: i64,
    /// The monotonic clock when the drain began.
    begun: u64,
    ticks: Ticks,
}

impl Output<'_> {
    /// Drains the counters of an entry that began at `first_ns`, and hands out the difference, if there is
    /// one or the entry ends.
    fn drain_entry(&mut self, slot: &Slot, cold: &ColdSlot, first_ns: u64, end: Option<EndReason>) {
        let mut drained = DrainedCounters::of(slot, cold, end.is_some());
        if drained.is_empty() && end.is_none() {
            return;
        }
        let seen = slot.seen.load(Relaxed);
        let last_tick = slot.last.load(Relaxed);
        let mut last_ns = self.ticks.begin_ns(last_tick, self.begun).max(first_ns);
        let mut current = true;
        // The ports may have been reused since `first` was read above.
        if slot.first.load(SeqCst) != first_ns {
            current = false;
            drained.give_back_newer(slot);
            if drained.is_empty() {
                return;
            }
            // The other details of the previous connection are in the ring.
            last_ns = first_ns;
        }
        let [lo_sent, hi_sent] = drained.sums();
        let key = super::layout::key(cold.key.each_ref().map(|w| w.load(Relaxed)));
        let wall = |ns: u64| ns.saturating_add_signed(self.offset);
        let update = FlowUpdate {
            key,
            lo_sent,
            hi_sent,
            lo_first: seen & SEEN_LO_FIRST != 0,
            first_ns: wall(first_ns),
            last_ns: wall(last_ns),
            tunnel_id: cold.tunnel_id.load(Relaxed),
            parent: cold.parent.load(Relaxed),
            tcp: match current {
                true if key.proto == TCP => take_tcp(cold, seen, wall(first_ns), &wall),
                true => take_query(cold, seen),
                false => TcpUpdate::default(),
            },
            link: match current {
                true => take_link(cold),
                false => LinkUpdate::default(),
            },
            fragments: match current {
                true => take(&cold.fragmented).into(),
                false => 0,
            },
            carries: Carries(if current {
                cold.carries.load(Relaxed)
            } else {
                0
            }),
            sampling: 0,
            end,
            directions: Directions((seen / SEEN_LO_INGRESS) as u8 & 0x0f),
        };
        if key.tunnel().is_none() {
            self.count_traffic(&update);
        }
        self.stats.updates += 1;
        (self.sink)(&update);
    }

    fn count_traffic(&mut self, update: &FlowUpdate) {
        let key = &update.key;
        let point = self
            .stats
            .traffic
            .entry((key.netns, key.ifindex))
            .or_default();
        for (lo, sent) in [(true, update.lo_sent), (false, update.hi_sent)] {
            let (ingress, egress) = update.directions.of(lo);
            point.add(ingress, egress, sent);
        }
    }
}

/// What was counted since the last drain.
fn take(counter: &AtomicU32) -> u32 {
    match counter.load(Relaxed) {
        0 => 0,
        _ => counter.swap(0, AcqRel),
    }
}

fn take_link(cold: &ColdSlot) -> LinkUpdate {
    let link = cold.link.each_ref().map(|word| word.load(Relaxed));
    let label = |label: &AtomicU32| {
        let label = label.load(Relaxed);
        (label & COLD_LABEL != 0).then_some(label & !COLD_LABEL)
    };
    LinkUpdate {
        macs: link.map(|word| {
            let [a, b, c, d, e, f, ..] = (word & COLD_MAC).to_le_bytes();
            [a, b, c, d, e, f]
        }),
        moved: take(&cold.moved),
        inner_tags: link.map(|word| (word >> COLD_TAG_SHIFT) as u16),
        labels: cold.label.each_ref().map(label),
    }
}

/// `wall` makes times of the monotonic clock times since the Unix epoch, of which `first_ns` is one.
fn take_tcp(cold: &ColdSlot, seen: u32, first_ns: u64, wall: &dyn Fn(u64) -> u64) -> TcpUpdate {
    let (syn, synack) = (cold.syn.load(Relaxed), cold.synack.load(Relaxed));
    let (no_syn, ack) = (cold.no_syn.load(Relaxed) != 0, cold.ack.load(Relaxed));
    let after_first = |after: u32| match after & (COLD_MS - 1) {
        0 => 0,
        units if after & COLD_MS != 0 => first_ns + u64::from(units - 1) * 1_000_000,
        units => first_ns + u64::from(units - 1) * 1_000,
    };
    let opened = opener(seen);
    let mut syn_ns = [0; 2];
    if let (Some(lo), true) = (opened, syn != 0) {
        let side = usize::from(!lo);
        if no_syn {
            syn_ns[1 - side] = wall(syn);
        } else {
            syn_ns[side] = wall(syn);
            if synack != 0 {
                syn_ns[1 - side] = wall(syn + u64::from(synack));
            }
        }
    }
    let mut rst_ns = [0; 2];
    let rst = cold.rst_after.load(Relaxed);
    rst_ns[usize::from(rst & COLD_RST_BY_HI != 0)] = after_first(rst & !COLD_RST_BY_HI);
    TcpUpdate {
        flags: [seen as u8, (seen >> 8) as u8],
        counters: TcpCounters {
            retransmitted: drain_pair(&cold.retransmitted),
            out_of_order: drain_pair(&cold.out_of_order),
            zero_window: drain_pair(&cold.zero_window),
        },
        skipped: drain_pair(&cold.skipped),
        skipped_bytes: drain_pair(&cold.skipped_bytes).map(u64::from),
        server_rtt_ns: if no_syn { 0 } else { synack.into() },
        client_rtt_ns: if synack == 0 { 0 } else { ack.into() },
        reply_ns: if synack == 0 { ack.into() } else { 0 },
        lo_opened: opened,
        syn_ttl: cold.ttl.each_ref().map(|ttl| ttl.load(Relaxed)),
        syn_ns,
        fin_ns: cold
            .fin_after
            .each_ref()
            .map(|after| after_first(after.load(Relaxed))),
        rst_ns,
    }
}

/// ICMP queries have an opener, echo also the time until its reply, and nothing else of TCP.
fn take_query(cold: &ColdSlot, seen: u32) -> TcpUpdate {
    TcpUpdate {
        reply_ns: cold.synack.load(Relaxed).into(),
        lo_opened: opener(seen),
        ..TcpUpdate::default()
    }
}

fn opener(seen: u32) -> Option<bool> {
    match (seen & SEEN_LO_OPENED != 0, seen & SEEN_HI_OPENED != 0) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests;
