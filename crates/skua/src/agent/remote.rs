//! Flows that agents told of, as queries see them.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use skua_analyzer::{FlowPlace, FlowSet, FlowView, Wanted};
use skua_flow::{FlowRecord, FlowStore, StoreLimits};
use skua_query::RawPacket;

use super::protocol::{Flows, Party};

/// Interfaces and owners that are remembered of an agent's capture.
const NAMES: usize = 262_144;

struct Inner {
    store: FlowStore,
    places: HashMap<(u16, u32), Arc<FlowPlace>>,
    nowhere: Arc<FlowPlace>,
    parties: Vec<Party>,
    numbers: HashMap<Party, u32>,
}

/// The flows of a capture on another host.
pub struct RemoteFlows {
    place: FlowPlace,
    began: Instant,
    inner: Mutex<Inner>,
}

impl RemoteFlows {
    /// None yet.
    pub fn new(host: &str, capture: &str, memory: usize) -> Self {
        let place = FlowPlace {
            host: host.into(),
            capture: capture.into(),
            ..FlowPlace::default()
        };
        let limits = StoreLimits {
            records: usize::MAX >> 16,
            bytes: memory,
        };
        Self {
            inner: Mutex::new(Inner {
                store: FlowStore::new(limits, crate::session::secret_seed(), 1),
                places: HashMap::new(),
                nowhere: Arc::new(place.clone()),
                parties: Vec::new(),
                numbers: HashMap::new(),
            }),
            place,
            began: Instant::now(),
        }
    }

    /// When the first of them came.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// How many there are, and how many left for lack of room.
    pub fn sums(&self) -> (u64, u64) {
        let sums = self.lock().store.summary();
        (sums.active + sums.ended, sums.evicted)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic half-way leaves whole records.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what an agent told.
    pub fn take(&self, flows: Flows) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for place in flows.places {
            let key = (place.netns, place.ifindex);
            if inner.places.len() >= NAMES && !inner.places.contains_key(&key) {
                continue;
            }
            let full = FlowPlace {
                interface: place.interface,
                node: place.node,
                ..self.place.clone()
            };
            inner.places.insert(key, Arc::new(full));
        }
        // Numbers of a message are its own.
        let known: Vec<_> = flows
            .parties
            .into_iter()
            .map(|party| {
                if let Some(number) = inner.numbers.get(&party) {
                    return super::protocol::number(*number as usize);
                }
                if inner.parties.len() >= NAMES {
                    return None;
                }
                let number = inner.parties.len();
                inner.parties.push(party.clone());
                inner.numbers.insert(party, number as u32);
                super::protocol::number(number)
            })
            .collect();
        for mut record in flows.records {
            record.owners = record.owners.map(|owner| {
                let place = owner?.get() as usize - 1;
                known.get(place).copied().flatten()
            });
            inner.store.put(record);
        }
    }
}

impl FlowSet for RemoteFlows {
    fn scan(
        &self,
        from: u32,
        places: u32,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32> {
        let inner = self.lock();
        wanted.scan(&inner.store, from, places, &mut |record| {
            let place = inner.places.get(&(record.key.netns, record.key.ifindex));
            let parties = record.owners.map(|owner| {
                let party = owner.and_then(|number| inner.parties.get(number.get() as usize - 1));
                party.map(Party::show).unwrap_or_default()
            });
            visit(&FlowView {
                record,
                place: place.unwrap_or(&inner.nowhere),
                parties,
                raw_packets: 0,
            })
        })
    }

    fn owns(&self, place: &FlowPlace) -> bool {
        place.host == self.place.host && place.capture == self.place.capture
    }

    fn raw_packets(&self, _: &FlowRecord) -> Vec<RawPacket> {
        Vec::new()
    }
}
