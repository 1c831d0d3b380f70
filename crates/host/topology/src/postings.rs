//! Which elements had a value, and when.

use crate::window::{Span, Window};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
};

/// Slots of elements of which something is or was true.
// Most have neither a second element nor a past: there are very many of these, so they are small.
#[allow(clippy::box_collection)]
#[derive(Default)]
pub(crate) struct Postings {
    live: Live,
    /// By end, so that old ones are removed from the front, and those that ended before a moment are
    /// skipped in one step.
    past: Option<Box<VecDeque<(u32, Span)>>>,
}

/// Most indexed values belong to one element.
#[allow(clippy::box_collection)]
#[derive(Default)]
enum Live {
    #[default]
    None,
    One(u32, u64),
    Many(Box<BTreeMap<u32, u64>>),
}

impl Postings {
    pub fn open(&mut self, slot: u32, since: u64) {
        match &mut self.live {
            Live::None => self.live = Live::One(slot, since),
            Live::One(other, begun) => {
                let both = BTreeMap::from([(*other, *begun), (slot, since)]);
                self.live = Live::Many(Box::new(both));
            }
            Live::Many(all) => {
                all.insert(slot, since);
            }
        }
    }

    pub fn close(&mut self, slot: u32, until: u64) {
        let since = match &mut self.live {
            Live::One(one, since) if *one == slot => {
                let since = *since;
                self.live = Live::None;
                since
            }
            Live::Many(all) => {
                let Some(since) = all.remove(&slot) else {
                    return;
                };
                if let (1, Some((&slot, &since))) = (all.len(), all.first_key_value()) {
                    self.live = Live::One(slot, since);
                }
                since
            }
            _ => return,
        };
        let past = self.past.get_or_insert_default();
        past.push_back((slot, Span { since, until }));
    }

    /// Forgets what ended up to the event `floor`.
    pub fn forget(&mut self, floor: u64) {
        let Some(past) = &mut self.past else {
            return;
        };
        while past.front().is_some_and(|(_, span)| span.until <= floor) {
            past.pop_front();
        }
        if past.is_empty() {
            self.past = None;
        } else if past.len() < past.capacity() / 8 {
            past.shrink_to(past.len() * 2);
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self.live, Live::None) && self.past.is_none()
    }

    /// At most how many a window has.
    pub fn len(&self) -> usize {
        let live = match &self.live {
            Live::None => 0,
            Live::One(..) => 1,
            Live::Many(all) => all.len(),
        };
        live + self.past.as_ref().map_or(0, |past| past.len())
    }

    /// Slots from `from` on, in order; one that is there in several spans comes several times.
    pub fn visit(
        &self,
        window: Window,
        from: u32,
        visit: &mut dyn FnMut(u32, Span) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut past: Vec<(u32, Span)> = Vec::new();
        if let Some(all) = &self.past {
            let first = all.partition_point(|(_, span)| span.until <= window.lo);
            let rest = all.range(first..);
            past.extend(rest.filter(|(slot, span)| *slot >= from && window.includes(*span)));
            past.sort_unstable_by_key(|(slot, span)| (*slot, span.since));
        }
        let mut past = past.into_iter().peekable();
        let mut live = |slot: u32, since: u64| {
            while let Some((slot, span)) = past.next_if(|(before, _)| *before <= slot) {
                visit(slot, span)?;
            }
            let span = Span {
                since,
                until: Span::OPEN,
            };
            match slot >= from && window.includes(span) {
                true => visit(slot, span),
                false => ControlFlow::Continue(()),
            }
        };
        match &self.live {
            Live::None => {}
            Live::One(slot, since) => live(*slot, *since)?,
            Live::Many(all) => {
                for (slot, since) in all.range(from..) {
                    live(*slot, *since)?;
                }
            }
        }
        past.try_for_each(|(slot, span)| visit(slot, span))
    }
}
