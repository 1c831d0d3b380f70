//! Copies of flows. They are made a page at a time, which is all that happens under the lock of the state; filters,
//! orders, sums and texts are made of the copies, when the lock is released.

use std::{borrow::Cow, sync::Arc};

use skua_analyzer::FlowPlace;
use skua_flow::{Finding, FlowLine, FlowRecord, Found, Party, Query, Rate};
use skua_socket::Owner;

use crate::state::{Shared, State, interface_at};

/// Records that are copied under one lock at most.
pub const PAGE: usize = 256;

/// A flow as it was at a moment.
pub struct FlowCopy {
    /// The record.
    pub record: FlowRecord,
    /// Its rate over the last interval.
    pub rate: Rate,
    /// Where it was captured.
    pub place: Arc<FlowPlace>,
    /// Whose the sockets of `lo` and `hi` are.
    pub owners: [Option<Arc<Owner>>; 2],
}

impl FlowCopy {
    /// Copies a record of a state.
    pub fn of(state: &State, record: &FlowRecord) -> Self {
        let sockets = state.sockets.as_ref();
        Self {
            record: *record,
            rate: state.store.rate(record),
            place: state.place_of(record).clone(),
            owners: sockets.map_or_else(Default::default, |s| s.keep_owners(record.owners)),
        }
    }

    /// What records show of both sides.
    pub fn parties(&self) -> [Party<'_>; 2] {
        self.owners
            .each_ref()
            .map(|owner| owner.as_deref().map(skua_socket::party).unwrap_or_default())
    }

    /// Name of the interface, its index when it has none.
    pub fn interface(&self) -> Cow<'_, str> {
        interface_at(&self.place, &self.record)
    }

    /// Ready to be written; `interface` is its [`interface`](Self::interface).
    pub fn line<'a>(&'a self, interface: &'a str) -> FlowLine<'a> {
        FlowLine {
            rate: self.rate,
            parties: self.parties(),
            ..self.record.line(interface)
        }
    }
}

/// Reads all flows: of each, `copy` takes what `each` gets when the lock is released.
pub fn read_flows<T>(
    shared: &Shared,
    copy: impl Fn(&State, Found, &FlowRecord) -> T,
    mut each: impl FnMut(T),
) {
    let mut page = Vec::with_capacity(PAGE);
    let mut from = Some(0);
    while let Some(place) = from {
        let state = shared.read();
        let records = state.store.page(place, PAGE as u32);
        page.extend(records.map(|(found, record)| copy(&state, found, record)));
        from = state.store.after(place, PAGE as u32);
        drop(state);
        page.drain(..).for_each(&mut each);
    }
}

/// Where the records are that a query asks for.
pub fn find_flows<F: Fn(&FlowRecord) -> bool>(shared: &Shared, query: &Query<F>) -> Vec<Found> {
    let mut finding = Finding::new(query.sort, query.limit);
    read_flows(
        shared,
        |state, found, record| (found, *record, state.store.drained_ns()),
        |(found, record, drained_ns)| {
            if (query.filter)(&record) {
                finding.add(found, &record, drained_ns);
            }
        },
    );
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
            |state, _, record| {
                copied.set(copied.get() + 1);
                most.set(copied.get().max(most.get()));
                FlowCopy::of(state, record)
            },
            |flow| {
                if copied.replace(0) > 0 {
                    assert!(shared.is_free());
                }
                all.set(all.get() + flow.record.total().packets);
            },
        );
        assert_eq!((most.get(), all.get()), (PAGE, 3 * PAGE as u64 + 1));
        let query = Query {
            filter: |record: &FlowRecord| record.key.lo_port[1] != 0 || shared.is_free(),
            sort: SortBy::Bytes,
            limit: 2,
        };
        let found = find_flows(&shared, &query);
        let state = shared.read();
        let bytes = found
            .iter()
            .map(|at| state.store.at(*at).unwrap().total().bytes);
        let last = 60 + 3 * PAGE as u64;
        assert_eq!(bytes.collect::<Vec<_>>(), [last, last - 1]);
    }
}
