//! Flows that agents have sent, as queries see them.

use skua_flow::{FlowRecord, FlowStore, StoreLimits};
use skua_query::RawPacket;
use skua_sources::{FlowSet, FlowView, Wanted};
use skua_state::FlowPlace;
use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    analyzer::parties::Parties,
    protocol::{Flows, Party},
};

/// Bytes of an interface beside its names.
const PLACE: usize = size_of::<((u16, u32), Arc<FlowPlace>)>() + size_of::<FlowPlace>() + 32;

struct Inner {
    store: FlowStore,
    places: HashMap<(u16, u32), Arc<FlowPlace>>,
    /// Bytes that interfaces take, and at most.
    place_bytes: usize,
    most_place_bytes: usize,
    nowhere: Arc<FlowPlace>,
    parties: Parties,
}

/// The flows of a capture on another host.
pub struct RemoteFlows {
    place: FlowPlace,
    began: Instant,
    inner: Mutex<Inner>,
}

impl RemoteFlows {
    /// None yet, and so many bytes of memory: a quarter for who owns sockets, an eighth for interfaces, the rest for
    /// flows.
    pub fn new(host: &str, capture: &str, memory: usize) -> Self {
        let place = FlowPlace {
            host: host.into(),
            capture: capture.into(),
            ..FlowPlace::default()
        };
        let limits = StoreLimits {
            records: usize::MAX >> 16,
            bytes: memory - memory / 4 - memory / 8,
        };
        Self {
            inner: Mutex::new(Inner {
                store: FlowStore::new(limits, skua_process::host::secret_seed(), 1),
                places: HashMap::new(),
                nowhere: Arc::new(place.clone()),
                place_bytes: 0,
                most_place_bytes: memory / 8,
                parties: Parties::new(memory / 4),
            }),
            place,
            began: Instant::now(),
        }
    }

    /// When the first of them came.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// What there is, and what did not fit.
    pub fn sums(&self) -> RemoteSums {
        let inner = self.lock();
        let sums = inner.store.summary();
        RemoteSums {
            flows: sums.active + sums.ended,
            evicted: sums.evicted,
            forgotten_owners: inner.parties.forgotten(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic half-way leaves whole records.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the flows of a message into the store.
    pub fn put(&self, flows: Flows) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for place in flows.places {
            inner.put_place(
                (place.netns, place.ifindex),
                FlowPlace {
                    interface: place.interface,
                    node: place.node,
                    since_ns: place.since_ns,
                    ..self.place.clone()
                },
            );
        }
        let Inner { store, parties, .. } = inner;
        // Numbers of a message are its own.
        let numbers = parties.numbers_of(flows.parties, flows.records.len(), |used| {
            let mut flows = 0;
            for record in store.iter() {
                flows += 1;
                for owner in record.owners.into_iter().flatten() {
                    used.note(owner, record.end.is_none());
                }
            }
            flows
        });
        for mut record in flows.records {
            record.owners = record.owners.map(|owner| {
                let place = owner?.get() as usize - 1;
                numbers.get(place).copied().flatten()
            });
            store.put(record);
        }
    }
}

impl Inner {
    /// Keeps the names of an interface. Of more than there is room for those are let go that no flow has; one
    /// that does not fit even so has no name.
    fn put_place(&mut self, key: (u16, u32), place: FlowPlace) {
        let bytes = |place: &FlowPlace| PLACE + place.interface.len() + place.node.len();
        let new = bytes(&place);
        if let Some(known) = self.places.get_mut(&key) {
            if **known != place {
                self.place_bytes = self.place_bytes - bytes(known) + new;
                *known = Arc::new(place);
            }
            return;
        }
        if self.place_bytes + new > self.most_place_bytes {
            let records = self.store.iter();
            let used: HashSet<_> = records.map(|r| (r.key.netns, r.key.ifindex)).collect();
            self.places.retain(|key, _| used.contains(key));
            self.place_bytes = self.places.values().map(|place| bytes(place)).sum();
        }
        if self.place_bytes + new <= self.most_place_bytes {
            self.places.insert(key, Arc::new(place));
            self.place_bytes += new;
        }
    }
}

/// What is kept of an agent's capture.
#[derive(Clone, Copy, Default)]
pub struct RemoteSums {
    /// Flows.
    pub flows: u64,
    /// Flows that left for lack of room.
    pub evicted: u64,
    /// Owners of sockets that left, or did not come in, for lack of room.
    pub forgotten_owners: u64,
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
                let party = owner.and_then(|number| inner.parties.get(number));
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
