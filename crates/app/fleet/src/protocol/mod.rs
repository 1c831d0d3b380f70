//! What an agent and an analyzer say to one another, over one WebSocket (`/ws/agent`).
//!
//! Text messages are JSON, binary ones are flows as MessagePack. The agent begins with
//! [`FromAgent::Hello`], sends its whole graph in parts ([`FromAgent::Sync`], the last one says so),
//! and then each change; when it lost track of those it begins with the whole graph again. Flows that a
//! drain has changed follow, numbered, and stay with the agent until the analyzer has them; after a
//! connect those that go on are sent once as they are. The analyzer says which nodes are to be captured
//! ([`ToAgent::Captures`]), all of them each time. Who sends what the other does not understand gets the reason, and is cut off.

pub mod signing;

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use skua_control::capture::{Capture, NodePoint, PointState};
use skua_flow::{FlowRecord, Once};
use skua_topology::{Change, Export};
use uuid::Uuid;

/// Version of these messages.
pub const PROTOCOL: u32 = 5;

/// Path of the WebSocket.
pub const PATH: &str = "/ws/agent";

/// Elements of the graph in one message.
pub const PART: usize = 500;

/// Records of flows in one message.
pub const RECORDS: usize = 4_096;

pub use skua_client::websocket::MESSAGE;

/// Bytes of a text at most: names of interfaces, processes, users, containers, pods and units.
pub const TEXT: usize = 1 << 10;

/// Seconds between signs of life.
pub const BEAT: u64 = 10;

/// Seconds without a sign of life until the other side counts as gone.
pub const SILENCE: u64 = 35;

/// An agent speaks.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum FromAgent {
    /// Who it is.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Version of its program.
        version: String,
        /// Name of its host, by which its nodes are known.
        host: String,
        /// Other in each run.
        instance: Uuid,
        /// Other in each connection; signatures of captures are for it.
        challenge: Uuid,
    },
    /// A part of the graph as it is now.
    Sync {
        /// Nodes and edges.
        graph: Export,
        /// All is said: what was not said is not there.
        last: bool,
    },
    /// Changes, in order.
    Changes(Vec<Change>),
    /// The states of captures.
    States(Vec<State>),
    /// What could not be sent since the beginning.
    Lost {
        /// Updates of flows, for lack of room while they waited.
        flow_updates: u64,
    },
}

/// The status of a capture on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Which capture.
    pub capture: Uuid,
    /// Identifier of the node.
    pub node: Arc<str>,
    /// How.
    pub state: PointState,
    /// Where it listens, if it does.
    pub listens_at: Option<SocketAddr>,
}

/// An analyzer speaks.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum ToAgent {
    /// It is known now.
    Welcome {
        /// Version of the analyzer's program.
        version: String,
    },
    /// It is not wanted, and why.
    Refused(String),
    /// What is to be captured on its host: these and no others.
    Captures(SignedCaptures),
    /// Flows are taken, up to the message with this number.
    Taken(u64),
}

/// Captures as they are signed (`signing`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedCaptures {
    /// One more than that of the message before in this connection, from 1.
    pub number: u64,
    /// A JSON array of [`Assigned`].
    pub text: String,
    /// Signature in base64; none when the analyzer has no key.
    pub signature: Option<String>,
}

/// A capture and where.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assigned {
    /// The capture.
    pub capture: Capture,
    /// Interfaces.
    pub points: Vec<NodePoint>,
}

/// Flows of one capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// One more than that of the message before. A message that is not confirmed
    /// ([`ToAgent::Taken`]) is sent again with the same number.
    pub number: u64,
    /// Whether these are flows as they are, sent anew, and not what a drain has changed.
    pub known: bool,
    /// Identifier of the capture, empty for what is always captured.
    pub capture: Arc<str>,
    /// Interfaces that records name by number, in the order of namespace and index.
    pub places: Vec<InterfaceRef>,
    /// Who owns sockets; records name them by number from 1 on.
    pub parties: Vec<Party>,
    /// The records, as they are now.
    pub records: Vec<FlowRecord>,
    /// What the drain added to the conversation of each record, if other points of the host see it, too. Of flows that
    /// are sent anew there is nothing.
    pub once: Vec<Option<Once>>,
}

impl Flows {
    /// The records that a drain changed, each with what it added to its conversation.
    pub fn changes(&self) -> impl Iterator<Item = (&FlowRecord, Once)> {
        let once = self.once.iter().copied().chain(std::iter::repeat(None));
        self.records.iter().zip(once).map(|(record, once)| {
            (
                record,
                once.unwrap_or_else(|| Once::alone(record, record.updated_ns)),
            )
        })
    }

    /// Leaves out records.
    pub fn retain(&mut self, mut keep: impl FnMut(&FlowRecord) -> bool) {
        let kept: Vec<bool> = self.records.iter().map(&mut keep).collect();
        let mut keeps = kept.iter();
        self.records
            .retain(|_| keeps.next().is_some_and(|keep| *keep));
        let mut keeps = kept.iter();
        self.once.retain(|_| keeps.next().is_some_and(|keep| *keep));
    }

    /// Where a record of these was captured; places are in order.
    pub fn place_of(&self, record: &FlowRecord) -> Option<&InterfaceRef> {
        let key = (record.key.netns, record.key.ifindex);
        let at = self
            .places
            .binary_search_by_key(&key, |place| (place.netns, place.ifindex));
        at.ok().and_then(|at| self.places.get(at))
    }

    /// Cuts texts that are longer than an agent has them.
    pub fn limit_texts(&mut self) {
        let places = self.places.iter_mut();
        let places = places.flat_map(|place| [&mut place.interface, &mut place.node]);
        let parties = self.parties.iter_mut();
        for text in places.chain(parties.flat_map(|party| &mut party.texts)) {
            if text.len() > TEXT {
                let end = (0..=TEXT).rfind(|at| text.is_char_boundary(*at));
                *text = text[..end.unwrap_or(0)].into();
            }
        }
    }

    /// Who owns the sockets of a record of these.
    pub fn parties_of(&self, record: &FlowRecord) -> [skua_flow::ConversationOwner<'_>; 2] {
        record.owners.map(|owner| {
            let party = owner.and_then(|number| self.parties.get(number.get() as usize - 1));
            party.map(Party::show).unwrap_or_default()
        })
    }
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceRef {
    /// Number of the namespace in records.
    pub netns: u16,
    /// Index of the interface.
    pub ifindex: u32,
    /// Its name.
    pub interface: Box<str>,
    /// `TID` of its node.
    pub node: Box<str>,
    /// Since when packets are counted there, ns since the Unix epoch; 0: not known.
    #[serde(default)]
    pub since_ns: u64,
}

/// Who owns a socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Party {
    /// Process, user, container, pod, unit.
    pub texts: [Box<str>; 5],
    /// Process identifier.
    pub pid: u32,
    /// Number of the user.
    pub uid: Option<u32>,
}

/// What was understood of a message.
pub enum Incoming {
    Message(FromAgent),
    Flows(Flows),
    /// A sign of life.
    Nothing,
    /// It hangs up.
    End,
}

pub fn read_text(text: &str) -> anyhow::Result<Incoming> {
    let message = serde_json::from_str(text).context("a message is not understood");
    message.map(Incoming::Message)
}

pub fn read_flows(bytes: &[u8]) -> anyhow::Result<Incoming> {
    let flows = rmp_serde::from_slice(bytes).context("flows are not understood");
    flows.map(Incoming::Flows)
}

/// Sums that no host can have counted, times that no clock can have shown.
const NEVER: u64 = 1 << 62;

/// How far ahead of ours the clock of an agent may be, ns.
const AHEAD: u64 = 24 * 3_600_000_000_000;

/// Whether a record can be true: its sums can be added up, its times are in order and have passed.
pub fn is_sound(record: &FlowRecord, now_ns: u64) -> bool {
    let interval = &record.interval;
    let sums = [
        record.lo_sent,
        record.hi_sent,
        interval.lo_sent,
        interval.hi_sent,
    ];
    sums.iter()
        .all(|sum| sum.packets < NEVER && sum.bytes < NEVER)
        && interval.ns < NEVER
        && interval.since_ns <= record.last_ns
        && record.first_ns <= record.last_ns
        && record.last_ns.max(record.updated_ns) <= now_ns.saturating_add(AHEAD)
}

/// Number of a party in a message.
pub fn number(place: usize) -> Option<NonZeroU32> {
    u32::try_from(place + 1).ok().and_then(NonZeroU32::new)
}

impl Party {
    /// With texts of its own.
    pub fn of(party: &skua_flow::ConversationOwner<'_>) -> Self {
        let texts = [
            party.process,
            party.user,
            party.container,
            party.pod,
            party.unit,
        ];
        Self {
            texts: texts.map(Into::into),
            pid: party.pid,
            uid: party.uid,
        }
    }

    /// As records show it.
    pub fn show(&self) -> skua_flow::ConversationOwner<'_> {
        let [process, user, container, pod, unit] = self.texts.each_ref().map(|text| &**text);
        skua_flow::ConversationOwner {
            process,
            pid: self.pid,
            user,
            uid: self.uid,
            container,
            pod,
            unit,
        }
    }
}
