//! Which flows are wanted: by their packets, and by conditions on what is known of them.

use skua_condition::{Conditions, SideField, Subject};
use skua_flow::{FlowRecord, Rates};

use crate::{copies::FlowCopy, place::interface_at, state::State};

/// Whether a packet of a conversation would match.
type Packets = Box<dyn Fn(&FlowRecord) -> bool + Send + Sync>;

/// Which flows are wanted.
#[derive(Default)]
pub struct FlowFilter {
    /// By their packets; none for all.
    pub packets: Option<Packets>,
    /// By what is known of them.
    pub conditions: Conditions,
}

impl FlowFilter {
    /// Whether a record of a state counts as a point of its conversation.
    pub fn has_point(&self, state: &State, record: &FlowRecord) -> bool {
        self.packets.as_ref().is_none_or(|matches| matches(record))
            && (!self.conditions.select_points()
                || in_state(state, record, &Rates::default, |subject| {
                    self.conditions.hold_at(subject)
                }))
    }

    /// Whether a conversation is wanted, merged of the points that count.
    pub fn has(&self, state: &State, merged: &FlowRecord, rates: &dyn Fn() -> Rates) -> bool {
        !self.conditions.select_conversations()
            || in_state(state, merged, rates, |subject| {
                self.conditions.hold(subject)
            })
    }

    /// As [`has_point`](Self::has_point), of a copy.
    pub fn has_point_copy(&self, copy: &FlowCopy) -> bool {
        self.packets
            .as_ref()
            .is_none_or(|matches| matches(&copy.record))
            && (!self.conditions.select_points()
                || of_copy(copy, |subject| self.conditions.hold_at(subject)))
    }

    /// As [`has`](Self::has), of a copy.
    pub fn has_copy(&self, copy: &FlowCopy) -> bool {
        !self.conditions.select_conversations()
            || of_copy(copy, |subject| self.conditions.hold(subject))
    }

    /// The same for sums by what `lo` or `hi` has: what is asked of that must hold of the side that is summed up.
    pub fn has_side(&self, copy: &FlowCopy, lo: bool, by: SideField) -> bool {
        let a = lo == copy.record.lo_first;
        !self.conditions.select_conversations()
            || of_copy(copy, |subject| self.conditions.hold_for(subject, a, by))
    }
}

fn in_state<T>(
    state: &State,
    record: &FlowRecord,
    rates: &dyn Fn() -> Rates,
    read: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    let interface = interface_at(state.place_of(record), record);
    let sockets = state.sockets.as_ref();
    let owner = record.service.and_then(|service| {
        let number = record.owners[usize::from(!service.lo)];
        sockets?.owner_of_flow(number)
    });
    let line = skua_flow::FlowLine {
        rate: rates().total(),
        owners: sockets.map_or_else(Default::default, |sockets| sockets.parties(record)),
        ..record.line(&interface)
    };
    read(&Subject {
        line: &line,
        service: owner.map_or("", |owner| owner.service()),
    })
}

fn of_copy<T>(copy: &FlowCopy, read: impl FnOnce(&Subject<'_>) -> T) -> T {
    let interface = copy.interface();
    let line = copy.line(&interface);
    let owner = copy
        .record
        .service
        .and_then(|service| copy.owners[usize::from(!service.lo)].as_ref());
    read(&Subject {
        line: &line,
        service: owner.map_or("", |owner| owner.service()),
    })
}
