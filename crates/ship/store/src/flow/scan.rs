//! Queries of the history of flows.

use super::{
    FlowHistory, FlowId, FlowLookup, StoredFlow,
    block::{Rows, Scratch, Tables},
};
use crate::log::{DamageNotes, FrameAt, Part};
use hashbrown::{HashMap, HashSet};
use skua_flow::{Counters, Interval};
use std::{
    net::{IpAddr, Ipv4Addr},
    ops::ControlFlow,
    sync::Arc,
};

/// The requested time, ns since the Unix epoch.
#[derive(Clone, Copy)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    fn ms(self) -> (i64, i64) {
        ((self.from / 1_000_000) as i64, (self.to / 1_000_000) as i64)
    }
}

/// An address in the form of keys.
fn key_address(ip: IpAddr) -> [u8; 16] {
    let mapped = |ip: Ipv4Addr| ip.to_ipv6_mapped().octets();
    match ip {
        IpAddr::V4(ip) => mapped(ip),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl FlowLookup<'_> {
    fn may_be_in(&self, tables: &Tables<'_>) -> bool {
        match self {
            Self::All | Self::Key(_) => true,
            Self::Captured => (0..tables.contexts())
                .filter_map(|at| tables.context(at))
                .any(|context| !context.capture.is_empty()),
            Self::Node(tid) => tables.has_node(tid),
            Self::Address(ip) => tables.has_address(&key_address(*ip)),
        }
    }

    /// The key and the flow of a row, if it matches; an error if the row is invalid.
    fn read_row<'a>(&self, rows: &Rows<'a, '_>, at: usize) -> Result<Option<StoredFlow<'a>>, ()> {
        let key = rows.key(at).ok_or(())?;
        let wanted = match self {
            Self::All => true,
            Self::Key(wanted) => wanted(&key),
            Self::Address(ip) => [&key.lo, &key.hi].iter().any(|a| key.ip(a) == Some(*ip)),
            Self::Captured => {
                let context = rows.tables().context(rows.context_number(at));
                !context.ok_or(())?.capture.is_empty()
            }
            Self::Node(tid) => {
                let context = rows.tables().context(rows.context_number(at));
                context.ok_or(())?.node_tid == *tid
            }
        };
        if !wanted {
            return Ok(None);
        }
        rows.flow(at, key).map(Some).ok_or(())
    }
}

/// Flows that were shown already.
#[derive(Default)]
struct Seen {
    /// Numbers of hosts and captures.
    contexts: HashMap<(Arc<str>, Arc<str>), u32>,
    flows: HashSet<(u32, u64, u64)>,
}

impl Seen {
    /// The number of each context of a block.
    fn numbers(&mut self, tables: &Tables<'_>, into: &mut Vec<u32>) {
        into.clear();
        for context in (0..tables.contexts()).filter_map(|at| tables.context(at)) {
            let next = self.contexts.len() as u32;
            let key = (context.host.into(), context.capture.into());
            into.push(*self.contexts.entry(key).or_insert(next));
        }
    }
}

impl FlowHistory {
    /// What may have something of a time, oldest first.
    fn parts(&self, span: Span) -> (Vec<Part>, Arc<DamageNotes>) {
        let log = self.shared.flows();
        let (from, to) = span.ms();
        (log.parts(from, to), log.notes())
    }

    /// Visits each flow that was active in the time from `from_ns` to `to_ns` (ns since the Unix epoch),
    /// once, with its counters up to `to_ns`, to the precision of drains: counts of a drain after `to_ns`,
    /// of packets up to a time after it, are left out, except of flows without earlier counts
    /// ([`StoredFlow::ahead`]). TCP details are then still those of that later drain.
    ///
    /// Late changes come first. Memory grows with the number of flows visited, 24 bytes each, not with the
    /// bytes read. Damaged parts are skipped and counted ([`crate::LogStats::damage`]).
    pub fn scan(
        &self,
        from_ns: u64,
        to_ns: u64,
        lookup: FlowLookup<'_>,
        visit: &mut dyn FnMut(&StoredFlow<'_>) -> ControlFlow<()>,
    ) {
        let span = Span {
            from: from_ns,
            to: to_ns,
        };
        let (parts, notes) = self.parts(span);
        let mut shown = Seen::default();
        let (mut bytes, mut scratch, mut numbers) = Default::default();
        for part in parts.iter().rev() {
            let frames = part.frames(&mut bytes, &notes);
            for placed in frames.iter().rev() {
                let end = self.with_rows(
                    (part, *placed, &bytes),
                    &notes,
                    &mut scratch,
                    &mut |tables| lookup.may_be_in(tables),
                    &mut |rows| {
                        shown.numbers(rows.tables(), &mut numbers);
                        scan_rows(rows, span, &lookup, (&mut shown, &numbers), visit)
                    },
                );
                if end.is_break() {
                    return;
                }
            }
        }
    }

    /// Visits the changes of a flow with packets in the time from `from_ns` to `to_ns`, oldest first:
    /// those whose span overlaps it, unchanged. [`StoredFlow::since_ns`], the record's `last_ns` and
    /// [`StoredFlow::added`] are a slice of its metrics.
    pub fn changes(
        &self,
        flow: &FlowId,
        from_ns: u64,
        to_ns: u64,
        visit: &mut dyn FnMut(&StoredFlow<'_>) -> ControlFlow<()>,
    ) {
        let span = Span {
            from: from_ns.max(flow.first_ns),
            to: to_ns,
        };
        let (parts, notes) = self.parts(span);
        let (mut bytes, mut scratch) = Default::default();
        for part in &parts {
            for placed in part.frames(&mut bytes, &notes) {
                let end = self.with_rows(
                    (part, placed, &bytes),
                    &notes,
                    &mut scratch,
                    &mut |tables| tables.has_capture(&flow.host, &flow.capture),
                    &mut |rows| changes_in_rows(rows, span, flow, visit),
                );
                if end.is_break() {
                    return;
                }
            }
        }
    }

    /// Unpacks a frame; damage is recorded.
    fn with_rows(
        &self,
        (part, placed, bytes): (&Part, FrameAt, &[u8]),
        notes: &DamageNotes,
        scratch: &mut Scratch,
        wanted: &mut dyn FnMut(&Tables<'_>) -> bool,
        each: &mut dyn FnMut(&Rows<'_, '_>) -> Result<ControlFlow<()>, ()>,
    ) -> ControlFlow<()> {
        if placed.header.kind != Some(crate::log::frame::Kind::Flows) {
            return ControlFlow::Continue(());
        }
        let Some(payload) = part.payload(bytes, placed, notes) else {
            return ControlFlow::Continue(());
        };
        let Some(tables) = Tables::read(&payload) else {
            part.note(placed, notes);
            return ControlFlow::Continue(());
        };
        if !wanted(&tables) {
            return ControlFlow::Continue(());
        }
        let end = tables.rows(scratch).ok_or(()).and_then(|rows| each(&rows));
        end.unwrap_or_else(|()| {
            part.note(placed, notes);
            ControlFlow::Continue(())
        })
    }
}

/// The sum before `added`.
fn less(sum: Counters, added: Counters) -> Counters {
    Counters::new(
        sum.packets.wrapping_sub(added.packets),
        sum.bytes.wrapping_sub(added.bytes),
    )
}

fn scan_rows(
    rows: &Rows<'_, '_>,
    span: Span,
    lookup: &FlowLookup<'_>,
    (shown, numbers): (&mut Seen, &[u32]),
    visit: &mut dyn FnMut(&StoredFlow<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ()> {
    for at in (0..rows.len()).rev() {
        if rows.since(at) > span.to || rows.last(at) < span.from {
            continue;
        }
        let context = *numbers.get(rows.context_number(at)).ok_or(())?;
        let key = (context, rows.id(at), rows.serial(at));
        if shown.flows.contains(&key) {
            continue;
        }
        let Some(mut flow) = lookup.read_row(rows, at)? else {
            continue;
        };
        shown.flows.insert(key);
        let record = &mut flow.record;
        if record.last_ns > span.to && record.updated_ns > span.to {
            let [lo, hi] = [
                less(record.lo_sent, flow.added[0]),
                less(record.hi_sent, flow.added[1]),
            ];
            if lo.is_zero() && hi.is_zero() {
                flow.ahead = true;
            } else {
                (record.lo_sent, record.hi_sent) = (lo, hi);
                record.last_ns = flow.since_ns;
                record.end = None;
                record.interval = Interval::default();
                flow.added = [Counters::default(); 2];
            }
        }
        if visit(&flow).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn changes_in_rows(
    rows: &Rows<'_, '_>,
    span: Span,
    flow: &FlowId,
    visit: &mut dyn FnMut(&StoredFlow<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ()> {
    for at in 0..rows.len() {
        let in_time = rows.since(at) <= span.to && rows.last(at) >= span.from;
        let same = rows.id(at) == flow.id && rows.serial(at) == flow.serial;
        if !in_time || !same {
            continue;
        }
        let context = rows.tables().context(rows.context_number(at)).ok_or(())?;
        if (context.host, context.capture) != (&*flow.host, &*flow.capture) {
            continue;
        }
        let key = rows.key(at).ok_or(())?;
        if visit(&rows.flow(at, key).ok_or(())?).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
