//! Flows that are to go to the analyzer: they wait here until it has confirmed them.

use skua_flow::{FlowRecord, Once};
use skua_process::host::unix_ns;
use skua_sources::SHOWN;
use skua_state::{Shared, State};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::protocol::{Flows, InterfaceRef, Party, RECORDS, number};

/// Flows that wait, bytes; beyond, the oldest go and are counted.
const WAITING: usize = 32 << 20;

/// Places of a store that are read under one lock when all flows are sent.
const SCAN: u32 = 512;

/// A message.
struct Waiting {
    number: u64,
    bytes: Arc<[u8]>,
    updates: u64,
}

#[derive(Default)]
struct Queue {
    /// Those that were sent and not confirmed, then those to be sent.
    messages: VecDeque<Waiting>,
    /// How many were sent.
    sent: usize,
    bytes: usize,
    /// Number of the last one.
    last: u64,
    lost: u64,
}

/// All of them.
pub struct Outbox {
    /// Where the sockets are.
    always: Shared,
    queue: Mutex<Queue>,
    more: Notify,
    limit: usize,
}

/// How full it is and what was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutboxSums {
    /// Bytes that wait to be sent or confirmed.
    pub bytes: usize,
    /// Updates of flows that went for lack of room.
    pub lost: u64,
}

/// Records as messages, with their interfaces and owners.
struct Packing<'a> {
    state: &'a State,
    sockets: Option<&'a State>,
    flows: Flows,
    places: BTreeMap<(u16, u32), InterfaceRef>,
    parties: HashMap<Party, usize>,
}

impl<'a> Packing<'a> {
    fn new(
        capture: Option<Uuid>,
        known: bool,
        state: &'a State,
        sockets: Option<&'a State>,
    ) -> Self {
        Self {
            state,
            sockets,
            flows: Flows {
                number: 0,
                known,
                capture: capture.map(|id| id.to_string()).unwrap_or_default().into(),
                places: Vec::new(),
                parties: Vec::new(),
                records: Vec::new(),
                once: Vec::new(),
            },
            places: BTreeMap::new(),
            parties: HashMap::new(),
        }
    }

    /// Numbers of owners as this message has them.
    fn owners(&mut self, record: &FlowRecord) -> [Option<std::num::NonZeroU32>; 2] {
        let none = [None, None];
        let (owners, of) = match (&self.state.sockets, self.sockets) {
            (Some(sockets), _) => (record.owners, sockets),
            // The owners of a capture's flows are looked up when they are sent.
            (
                None,
                Some(State {
                    sockets: Some(sockets),
                    ..
                }),
            ) => {
                let Some(inode) = self.state.namespace_of(record) else {
                    return none;
                };
                (sockets.store.join(record, inode).owners, sockets)
            }
            (None, _) => return none,
        };
        owners.map(|owner| {
            let party = skua_socket::conversation_owner(of.owner_of_flow(owner)?);
            let next = self.parties.len();
            number(*self.parties.entry(Party::of(&party)).or_insert(next))
        })
    }

    /// Adds a record, with what a drain added to its conversation.
    fn add(&mut self, record: &FlowRecord, once: Option<Once>) {
        if let Some(once) = once {
            let alone = Once::alone(record, record.updated_ns);
            self.flows.once.push((once != alone).then_some(once));
        }
        let owners = self.owners(record);
        let key = (record.key.netns, record.key.ifindex);
        self.places.entry(key).or_insert_with(|| {
            let place = self.state.place_of(record);
            InterfaceRef {
                netns: key.0,
                ifindex: key.1,
                interface: place.interface.clone(),
                node: place.node.clone(),
                since_ns: place.since_ns,
            }
        });
        self.flows.records.push(FlowRecord { owners, ..*record });
    }

    /// Ends the message and begins an empty one.
    fn finish(&mut self) -> Flows {
        let next = Flows {
            number: 0,
            known: self.flows.known,
            capture: self.flows.capture.clone(),
            places: Vec::new(),
            parties: Vec::new(),
            records: Vec::new(),
            once: Vec::new(),
        };
        let mut flows = std::mem::replace(&mut self.flows, next);
        flows.places = std::mem::take(&mut self.places).into_values().collect();
        let mut parties: Vec<_> = std::mem::take(&mut self.parties).into_iter().collect();
        parties.sort_unstable_by_key(|(_, place)| *place);
        flows.parties = parties.into_iter().map(|(party, _)| party).collect();
        flows
    }
}

impl Outbox {
    /// An empty one; `always` is what is always captured, where the sockets are.
    pub fn new(always: Shared) -> Self {
        Self {
            always,
            queue: Mutex::default(),
            more: Notify::new(),
            limit: WAITING,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics half-way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues what the last drain of a capture has changed.
    pub fn put_drain(&self, capture: Option<Uuid>, state: &State) {
        // The lock of the sockets comes after that of the capture's state, as in queries.
        let sockets = capture.map(|_| self.always.read());
        let mut packing = Packing::new(capture, false, state, sockets.as_deref());
        for (record, once) in state.store.touched_once() {
            packing.add(record, Some(once));
            if packing.flows.records.len() == RECORDS {
                self.put(packing.finish());
            }
        }
        if !packing.flows.records.is_empty() {
            self.put(packing.finish());
        }
    }

    /// Puts in some of the flows of a capture as they are now; returns where to go on.
    pub fn put_known(&self, capture: Option<Uuid>, shared: &Shared, from: u32) -> Option<u32> {
        let state = shared.read();
        let sockets = capture.map(|_| self.always.read());
        let since = unix_ns().saturating_sub(SHOWN as u64 * 1_000_000);
        let mut packing = Packing::new(capture, true, &state, sockets.as_deref());
        let next = state.store.scan(from, SCAN, &mut |record| {
            if record.end.is_none() || record.last_ns >= since {
                packing.add(record, None);
            }
            ControlFlow::Continue(())
        });
        // The lock keeps what changes meanwhile behind it.
        if !packing.flows.records.is_empty() {
            self.put(packing.finish());
        }
        next
    }

    fn put(&self, mut flows: Flows) {
        // What is sent anew cannot be lost.
        let updates = if flows.known {
            0
        } else {
            flows.records.len() as u64
        };
        let mut queue = self.queue();
        queue.last += 1;
        flows.number = queue.last;
        match rmp_serde::to_vec(&flows) {
            Ok(bytes) => {
                queue.bytes += bytes.len();
                let number = flows.number;
                queue.messages.push_back(Waiting {
                    number,
                    bytes: bytes.into(),
                    updates,
                });
            }
            Err(error) => {
                tracing::error!(%error, "flows cannot be written");
                queue.lost += updates;
            }
        }
        while queue.bytes > self.limit
            && let Some(oldest) = queue.messages.pop_front()
        {
            queue.bytes -= oldest.bytes.len();
            // One that was sent may have arrived; it is counted all the same.
            queue.sent = queue.sent.saturating_sub(1);
            queue.lost += oldest.updates;
        }
        drop(queue);
        self.more.notify_one();
    }

    /// Waits for the next message to be sent. It stays until it is confirmed.
    pub async fn next(&self) -> Arc<[u8]> {
        loop {
            {
                let mut queue = self.queue();
                let sent = queue.sent;
                if let Some(next) = queue.messages.get(sent) {
                    let bytes = next.bytes.clone();
                    queue.sent += 1;
                    return bytes;
                }
            }
            self.more.notified().await;
        }
    }

    /// Whether all was sent.
    pub fn is_sent(&self) -> bool {
        let queue = self.queue();
        queue.sent == queue.messages.len()
    }

    /// The analyzer has all up to a number.
    pub fn confirm(&self, number: u64) {
        let mut queue = self.queue();
        while queue.sent > 0
            && let Some(first) = queue.messages.front()
            && first.number <= number
        {
            queue.bytes -= first.bytes.len();
            queue.messages.pop_front();
            queue.sent -= 1;
        }
    }

    /// A new connection begins: what was not confirmed is sent again.
    pub fn again(&self) {
        self.queue().sent = 0;
    }

    /// How full it is and what was lost.
    pub fn sums(&self) -> OutboxSums {
        let queue = self.queue();
        OutboxSums {
            bytes: queue.bytes,
            lost: queue.lost,
        }
    }
}
