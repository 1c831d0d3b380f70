//! Copies of flows, made a page at a time under the lock of the state; sums and texts are made of the copies, when the
//! lock is released. Only to find the places of flows filters and orders are asked under the lock.

use std::{borrow::Cow, sync::Arc};

use skua_flow::{
    ConversationOwner, Finding, FlowLine, FlowRecord, Found, Query, Rate, Rates, View,
};
use skua_socket::Owner;

use crate::{
    filter::FlowFilter,
    place::{FlowPlace, interface_at},
    state::{Shared, State},
};

/// Records that are copied under one lock at most, with those of the same conversations at other points.
pub const PAGE: usize = 256;

/// A flow as it was at a moment.
pub struct FlowCopy {
    /// The record.
    pub record: FlowRecord,
    /// How many points it is merged of.
    points: u32,
    /// What both sides send.
    rates: Rates,
    /// Where it was captured.
    pub place: Arc<FlowPlace>,
    /// Owners of the sockets of `lo` and `hi`.
    pub owners: [Option<Arc<Owner>>; 2],
}

impl FlowCopy {
    /// Copies the record at a place of a state.
    pub fn at(state: &State, found: Found, record: &FlowRecord) -> Self {
        Self {
            rates: state.store.rates(found),
            ..Self::of(state, record)
        }
    }

    /// Copies a record of a state, without its rates.
    pub fn of(state: &State, record: &FlowRecord) -> Self {
        let sockets = state.sockets.as_ref();
        Self {
            record: *record,
            points: 1,
            rates: Rates::default(),
            place: state.place_of(record).clone(),
            owners: sockets.map_or_else(Default::default, |s| s.keep_owners(record.owners)),
        }
    }

    /// The conversation of which these are the points, if a query asks for it.
    pub fn merged(query: &Query<FlowFilter>, points: &mut [Self]) -> Option<Self> {
        let matching = points.iter().enumerate();
        let matching = matching.filter(|(_, point)| query.filter.has_point_copy(point));
        let (at, merged) = query.merge_matching(matching.map(|(at, point)| (at, &point.record)))?;
        let owners = [0, 1].map(|side| {
            let number = merged.record.owners[side];
            let known = points.iter().find(|p| p.record.owners[side] == number);
            known.and_then(|point| point.owners[side].clone())
        });
        let mut rates = Rates::default();
        for point in points.iter().filter(|p| query.filter.has_point_copy(p)) {
            rates.raise(point.rates);
        }
        let merged = Self {
            record: merged.record,
            points: merged.points,
            rates,
            place: points[at].place.clone(),
            owners,
        };
        query.filter.has_copy(&merged).then_some(merged)
    }

    /// What records show of both sides.
    pub fn parties(&self) -> [ConversationOwner<'_>; 2] {
        self.owners.each_ref().map(|owner| {
            let owner = owner.as_deref();
            owner
                .map(skua_socket::conversation_owner)
                .unwrap_or_default()
        })
    }

    /// Its rate.
    pub fn rate(&self) -> Rate {
        self.rates.total()
    }

    /// Name of the interface, its index when it has none.
    pub fn interface(&self) -> Cow<'_, str> {
        interface_at(&self.place, &self.record)
    }

    /// Ready to be written; `interface` is its [`interface`](Self::interface).
    pub fn line<'a>(&'a self, interface: &'a str) -> FlowLine<'a> {
        FlowLine {
            points: self.points,
            rate: self.rate(),
            owners: self.parties(),
            ..self.record.line(interface)
        }
    }
}

/// Copies of the records of some conversations.
struct Page<T> {
    copies: Vec<T>,
    /// Where in `copies` those of each conversation end.
    ends: Vec<usize>,
}

impl<T> Page<T> {
    fn new() -> Self {
        Self {
            copies: Vec::with_capacity(PAGE),
            ends: Vec::with_capacity(PAGE),
        }
    }

    fn push(&mut self, points: impl Iterator<Item = T>) {
        self.copies.extend(points);
        self.ends.push(self.copies.len());
    }

    fn drain(&mut self, each: &mut impl FnMut(&mut [T])) {
        let mut begin = 0;
        for end in self.ends.drain(..) {
            if let Some(points) = self.copies.get_mut(begin..end).filter(|p| !p.is_empty()) {
                each(points);
            }
            begin = end;
        }
        self.copies.clear();
    }
}

/// Reads all conversations: of each of their records `copy` takes what `each` gets, together with those of other points,
/// when the lock is released.
pub fn read_flows<T>(
    shared: &Shared,
    view: View,
    copy: impl Fn(&State, Found, &FlowRecord) -> T,
    mut each: impl FnMut(&mut [T]),
) {
    let mut page = Page::new();
    let mut from = Some(0);
    while let Some(place) = from {
        let state = shared.read();
        for points in state.store.page(place, PAGE as u32, view) {
            page.push(points.map(|(found, record)| copy(&state, found, record)));
        }
        from = state.store.after(place, PAGE as u32);
        drop(state);
        page.drain(&mut each);
    }
}

/// Copies conversations that were found before, as they are now, some at a time.
pub fn read_found(
    shared: &Shared,
    view: View,
    found: &[Found],
    mut each: impl FnMut(&mut [FlowCopy]),
) {
    let mut page = Page::new();
    for some in found.chunks(PAGE) {
        let state = shared.read();
        for found in some {
            let points = state.store.at(*found, view);
            page.push(points.map(|(found, record)| FlowCopy::at(&state, found, record)));
        }
        drop(state);
        page.drain(&mut each);
    }
}

/// Where the conversations are that a query asks for, and how many there are, those beyond its limit included. The
/// filter is asked under the lock, a page at a time: to copy each record costs more.
pub fn find_flows(shared: &Shared, query: &Query<FlowFilter>) -> (Vec<Found>, usize) {
    let mut finding = Finding::new(query.sort, query.limit);
    let mut from = Some(0);
    while let Some(place) = from {
        let state = shared.read();
        let store = &state.store;
        let here = query.having(|record: &FlowRecord| query.filter.has_point(&state, record));
        let wanted = |merged: &FlowRecord, rates: &dyn Fn() -> Rates| {
            query.filter.has(&state, merged, rates)
        };
        for points in store.page(place, PAGE as u32, query.view) {
            finding.add_wanted(&here, points, wanted, |found| store.rates(found));
        }
        from = store.after(place, PAGE as u32);
    }
    finding.sorted()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, os::unix::net::UnixStream};

    use skua_flow::{Counters, FlowKey, FlowUpdate, SortBy};

    use super::*;

    /// A state with so many flows.
    fn shared(flows: u16) -> Shared {
        let mut state = State::new(64 << 20, 100_000, 1, 1);
        state.begin_drain();
        for flow in 0..flows {
            state.apply(&FlowUpdate {
                key: FlowKey {
                    lo_port: flow.to_be_bytes(),
                    kind: 1,
                    ..FlowKey::default()
                },
                lo_sent: Counters {
                    packets: 1,
                    bytes: 60 + u64::from(flow),
                },
                ..FlowUpdate::default()
            });
        }
        Shared::new(state, UnixStream::pair().unwrap().1)
    }

    #[test]
    fn a_reader_holds_the_state_for_a_page_of_records_and_for_nothing_that_it_does_with_them() {
        let shared = shared(3 * PAGE as u16 + 1);
        let (copied, most, all) = (Cell::new(0), Cell::new(0), Cell::new(0));
        read_flows(
            &shared,
            View::Points,
            |state, found, record| {
                copied.set(copied.get() + 1);
                most.set(copied.get().max(most.get()));
                FlowCopy::at(state, found, record)
            },
            |points| {
                if copied.replace(0) > 0 {
                    assert!(shared.is_free());
                }
                all.set(all.get() + points[0].record.total().packets);
            },
        );
        assert_eq!((most.get(), all.get()), (PAGE, 3 * PAGE as u64 + 1));
        let query = Query {
            sort: SortBy::Bytes,
            limit: 2,
            ..Query::all()
        }
        .having(FlowFilter {
            packets: Some(Box::new(|record| record.key.lo_port[1] != 1)),
            ..FlowFilter::default()
        });
        let (found, all) = find_flows(&shared, &query);
        assert_eq!(all, 3 * PAGE + 1 - 3);
        let mut bytes = Vec::new();
        read_found(&shared, query.view, &found, |points| {
            assert!(shared.is_free());
            bytes.push(
                FlowCopy::merged(&query, points)
                    .unwrap()
                    .record
                    .total()
                    .bytes,
            );
        });
        let last = 60 + 3 * PAGE as u64;
        assert_eq!(bytes, [last, last - 1]);
    }
}
