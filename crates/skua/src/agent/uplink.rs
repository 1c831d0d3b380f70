//! The agent's end of the connection with its analyzer.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use skua_analyzer::capture::{CaptureRunner, NodePoint, Running};
use skua_topology::{Delivery, Export, SharedGraph};
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::{Message, protocol::WebSocketConfig};
use uuid::Uuid;

use super::protocol::{
    self, Assigned, BEAT, Flows, FromAgent, MESSAGE, PART, PROTOCOL, Party, Place, SILENCE, State,
    ToAgent,
};
use crate::{
    captures::run::CaptureSets,
    graph::node_of,
    state::{Shared, State as Captured},
};

/// Time until a lost connection is tried again, doubled each time.
const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(30);

/// Changes of the graph that wait; when more come, the whole is told again.
const EVENTS: usize = 65_536;

/// Flows that wait to be sent, bytes; beyond, the oldest go and are counted.
const WAITING: usize = 32 << 20;

/// Records in one message.
const RECORDS: usize = 20_000;

/// How long changes are gathered for one message.
const GATHER: Duration = Duration::from_millis(50);

/// Flows that are ready to be sent.
#[derive(Default)]
struct Queue {
    messages: VecDeque<(Vec<u8>, u64)>,
    bytes: usize,
}

struct Inner {
    address: String,
    host: String,
    graph: SharedGraph,
    always: Shared,
    sets: CaptureSets,
    runner: Arc<dyn CaptureRunner>,
    queue: Mutex<Queue>,
    lost: AtomicU64,
    queued: Notify,
    stop: AtomicBool,
    stopped: Notify,
}

/// Keeps an analyzer informed; ends when it is dropped.
pub struct Uplink {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

/// What an uplink tells of.
pub struct Told {
    /// Address of the analyzer.
    pub analyzer: String,
    /// Name of this host.
    pub host: String,
    /// The graph of this host.
    pub graph: SharedGraph,
    /// What is always captured.
    pub always: Shared,
    /// What else is captured.
    pub sets: CaptureSets,
    /// Starts captures that the analyzer wants.
    pub runner: Arc<dyn CaptureRunner>,
}

impl Uplink {
    /// Begins to connect.
    pub fn start(told: Told) -> anyhow::Result<Self> {
        let inner = Arc::new(Inner {
            address: told.analyzer,
            host: told.host,
            graph: told.graph,
            always: told.always,
            sets: told.sets,
            runner: told.runner,
            queue: Mutex::default(),
            lost: AtomicU64::new(0),
            queued: Notify::new(),
            stop: AtomicBool::new(false),
            stopped: Notify::new(),
        });
        let theirs = inner.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(4)
            .build()?;
        let thread = std::thread::Builder::new()
            .name("uplink".into())
            .spawn(move || runtime.block_on(theirs.keep_connected()))?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }

    /// Takes the flows that the last drain of a capture changed.
    pub fn tell(&self, capture: Option<Uuid>, state: &mut Captured) {
        self.inner.tell(capture, state);
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        self.inner.stopped.notify_one();
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}
