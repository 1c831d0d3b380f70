//! Writes changes of the graph to the log, in the background.

use super::codec::{Part, PartHead, put_event};
use crate::{
    log::{
        Cause,
        frame::{Frame, Kind},
        now_ms,
    },
    store::{Shared, Store},
};
use skua_topology::{
    Closer, Delivery, Edge, Event, Export, Graph, Node, SharedGraph, Subscription,
};
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Bytes of events in a frame, unpacked, before it is written without waiting for more.
const FRAME_BYTES: usize = 1 << 20;
/// Bytes of a part of a state, as the graph estimates them.
const PART_BYTES: usize = 1 << 20;
/// Without changes a frame confirms this often that the process still records.
const ALIVE: Duration = Duration::from_secs(10);

/// How a journal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalStats {
    /// Number of the last event that was written, or is part of a state that was written.
    pub written: u64,
    /// Gaps, where events were lost.
    pub gaps: u64,
    /// States that were written.
    pub checkpoints: u64,
    /// Whether events are being lost now.
    pub broken: bool,
}

#[derive(Default)]
struct Progress {
    stats: JournalStats,
    /// Number of the last event that was written or lost.
    seen: u64,
}

struct Common {
    progress: Mutex<Progress>,
    moved: Condvar,
}

impl Common {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subscribes to a graph and writes down what happens. Dropping it writes the rest.
pub struct GraphJournal {
    common: Arc<Common>,
    graph: SharedGraph,
    closer: Closer,
    thread: Option<JoinHandle<()>>,
}

impl GraphJournal {
    /// Starts with the graph's state, and continues with all later events.
    pub fn start(store: &Store, graph: &SharedGraph) -> std::io::Result<Self> {
        let shared = store.shared().clone();
        let common = Arc::new(Common {
            progress: Mutex::default(),
            moved: Condvar::new(),
        });
        // Both at once: no event falls between.
        let (subscription, state) = {
            let mut graph = graph.write();
            let subscription = graph.subscribe(shared.config.graph_queue);
            (subscription, State::of(&graph))
        };
        let closer = subscription.closer();
        let mut writer = Writer {
            run: now_ms() as u64 ^ u64::from(std::process::id()) << 44,
            subscription,
            graph: graph.clone(),
            common: common.clone(),
            batch: Batch::default(),
            covered: 0,
            broken: true,
            first: true,
            missing: 0,
            state_bytes: 0,
            state_since: None,
            quiet_since: Instant::now(),
            shared,
        };
        let thread = std::thread::Builder::new()
            .name("graph history".into())
            .spawn(move || writer.run(&state))?;
        Ok(Self {
            common,
            graph: graph.clone(),
            closer,
            thread: Some(thread),
        })
    }

    /// How it is.
    pub fn stats(&self) -> JournalStats {
        self.common.lock().stats
    }

    /// Waits until all events so far are written; whether they are. Does not wait while writes fail.
    pub fn flush(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let target = self.graph.read().last_event();
        let mut progress = self.common.lock();
        while !progress.stats.broken && (progress.seen < target || progress.stats.checkpoints == 0)
        {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.common.moved.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        progress.stats.written >= target && !progress.stats.broken
    }
}

impl Drop for GraphJournal {
    fn drop(&mut self) {
        self.closer.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Events that are to be written together.
#[derive(Default)]
struct Batch {
    payload: Vec<u8>,
    count: u32,
    span: (i64, i64),
    last: u64,
}

impl Batch {
    fn add(&mut self, event: &Event) -> bool {
        let before = self.payload.len();
        if put_event(&mut self.payload, event).is_err() {
            self.payload.truncate(before);
            return false;
        }
        if self.count == 0 {
            self.span.0 = event.time;
        }
        self.span.1 = event.time;
        self.count += 1;
        self.last = event.seq;
        true
    }
}

struct Writer {
    shared: Arc<Shared>,
    graph: SharedGraph,
    subscription: Subscription,
    common: Arc<Common>,
    run: u64,
    batch: Batch,
    /// Events up to this one are written, themselves or as part of a state.
    covered: u64,
    /// The log needs a complete state before further events.
    broken: bool,
    /// Whether no state was written yet.
    first: bool,
    /// Events that are missing before the next state.
    missing: u64,
    /// Bytes of the last state.
    state_bytes: u64,
    /// When it was written.
    state_since: Option<Instant>,
    quiet_since: Instant,
}

impl Writer {
    fn run(&mut self, state: &State) {
        self.begin(state);
        // Queued events are delivered also when it is closed.
        while !self.subscription.is_closed() {
            let retry = self.shared.config.retry_interval.min(ALIVE);
            let patience = if self.broken { retry } else { ALIVE };
            if let Some(delivery) = self.subscription.next(patience) {
                self.gather(delivery);
            }
            self.write_batch();
            if self.broken {
                self.recover();
            }
            self.say_alive();
        }
        while let Some(delivery) = self.subscription.try_next() {
            self.append(delivery);
        }
        self.write_batch();
    }

    /// Collects events for a short time, or until there are many.
    fn gather(&mut self, first: Delivery) {
        let end = Instant::now() + self.shared.config.gather;
        self.append(first);
        while self.batch.payload.len() < FRAME_BYTES {
            let left = end.saturating_duration_since(Instant::now());
            match self.subscription.next(left) {
                Some(delivery) => self.append(delivery),
                None => return,
            }
        }
    }

    fn append(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Event(event) if event.seq <= self.covered => {}
            Delivery::Event(event) if self.broken => {
                self.missing += 1;
                let mut log = self.shared.graph();
                // The log knows why writes fail.
                let cause = log.failing_cause().unwrap_or(Cause::Queue);
                log.lose(cause, 1);
                drop(log);
                self.seen(event.seq);
            }
            Delivery::Event(event) => {
                if !self.batch.add(&event) {
                    self.lost(1, Cause::TooLarge);
                } else if self.batch.payload.len() >= FRAME_BYTES {
                    self.write_batch();
                }
            }
            Delivery::Lost(count) => {
                self.write_batch();
                self.lost(count, Cause::Queue);
            }
        }
    }

    /// After this only a new state helps.
    fn lost(&mut self, count: u64, cause: Cause) {
        self.shared.graph().lose(cause, count);
        self.missing += count;
        self.set_broken(true);
    }

    fn set_broken(&mut self, broken: bool) {
        self.broken = broken;
        self.common.lock().stats.broken = broken;
        self.common.moved.notify_all();
    }

    fn seen(&self, seq: u64) {
        let mut progress = self.common.lock();
        progress.seen = progress.seen.max(seq);
        self.common.moved.notify_all();
    }

    fn covered(&mut self, seq: u64) {
        self.covered = self.covered.max(seq);
        let mut progress = self.common.lock();
        progress.stats.written = self.covered;
        progress.seen = progress.seen.max(self.covered);
        self.common.moved.notify_all();
    }

    fn write_batch(&mut self) {
        if self.batch.count == 0 {
            return;
        }
        let had_file = self.shared.graph().has_file();
        self.write_plain_batch();
        let full = self
            .shared
            .graph()
            .wants_new_file(now_ms(), self.state_bytes);
        // Each file must have its own state: the file before it may be deleted.
        if !self.broken && (full || !had_file) {
            self.next_file(full);
        }
    }

    /// Writes the state, in a new file if `new_file`.
    fn next_file(&mut self, new_file: bool) {
        let state = self.state();
        // Write the events that led to the state before it.
        while self.covered < state.seq && !self.broken {
            match self.subscription.try_next() {
                Some(Delivery::Event(event)) if event.seq <= self.covered => {}
                Some(Delivery::Event(event)) => {
                    let seq = event.seq;
                    if !self.batch.add(&event) {
                        self.lost(1, Cause::TooLarge);
                    }
                    if seq >= state.seq || self.batch.payload.len() >= FRAME_BYTES {
                        self.write_plain_batch();
                    }
                }
                Some(Delivery::Lost(count)) => {
                    self.write_plain_batch();
                    self.lost(count, Cause::Queue);
                }
                None => break,
            }
        }
        self.write_plain_batch();
        if !self.broken {
            self.write_state(&state, new_file);
        }
    }

    /// Like [`Writer::write_batch`], but never in a new file.
    fn write_plain_batch(&mut self) {
        let Batch {
            payload,
            count,
            span,
            last,
        } = &mut self.batch;
        let (count, last) = (std::mem::take(count), *last);
        if count == 0 {
            return;
        }
        let frame = Frame::new(Kind::Events, count, *span, payload);
        payload.clear();
        let written = match frame {
            Some(mut frame) => self.shared.graph().append(&mut frame, false),
            None => {
                self.shared.graph().lose(Cause::TooLarge, count.into());
                Err(Cause::TooLarge)
            }
        };
        if written.is_ok() {
            self.shared.written();
            self.quiet_since = Instant::now();
            self.covered(last);
        } else {
            self.missing += u64::from(count);
            self.set_broken(true);
            self.seen(last);
        }
    }

    fn state(&self) -> State {
        State::of(&self.graph.read())
    }

    /// Starts again with a complete state.
    fn recover(&mut self) {
        // A permanent flood of events must not cause endless states.
        let pause = self.shared.config.retry_interval;
        let rested = self
            .state_since
            .is_none_or(|since| since.elapsed() >= pause);
        if rested && self.shared.graph().is_ready() {
            let state = self.state();
            self.begin(&state);
        }
    }

    fn begin(&mut self, state: &State) {
        if !self.first && self.missing > 0 {
            let (missing, time) = (self.missing, state.time);
            let frame = Frame::new(Kind::Gap, 0, (time, time), &missing.to_le_bytes());
            let written = frame.map(|mut frame| self.shared.graph().append(&mut frame, true));
            if written != Some(Ok(())) {
                return;
            }
        }
        let new_file = self.first || self.missing == 0;
        if self.write_state(state, new_file) {
            let gap = self.missing > 0;
            self.missing = 0;
            self.first = false;
            self.set_broken(false);
            self.common.lock().stats.gaps += u64::from(gap);
        }
    }

    fn write_state(&mut self, state: &State, new_file: bool) -> bool {
        let frames = state.frames(self.run);
        let most = self.shared.config.graph.max_bytes / 4;
        let bytes: u64 = frames
            .iter()
            .flatten()
            .map(|frame| frame.size() as u64)
            .sum();
        let mut log = self.shared.graph();
        let Some(frames) = frames.filter(|_| bytes <= most) else {
            log.refuse(&format!(
                "the graph needs {bytes} bytes, more than a quarter of the {} that its history may use: raise the limit",
                self.shared.config.graph.max_bytes
            ));
            drop(log);
            self.set_broken(true);
            return false;
        };
        for (at, mut frame) in frames.into_iter().enumerate() {
            if log.append(&mut frame, new_file && at == 0).is_err() {
                drop(log);
                self.set_broken(true);
                return false;
            }
        }
        drop(log);
        self.shared.written();
        self.quiet_since = Instant::now();
        (self.state_bytes, self.state_since) = (bytes, Some(self.quiet_since));
        self.common.lock().stats.checkpoints += 1;
        self.covered(state.seq);
        true
    }

    fn say_alive(&mut self) {
        if self.broken || self.quiet_since.elapsed() < ALIVE {
            return;
        }
        self.quiet_since = Instant::now();
        let now = now_ms();
        let mut log = self.shared.graph();
        if log.wants_new_file(now, self.state_bytes) {
            drop(log);
            self.next_file(true);
            return;
        }
        if let Some(mut frame) = Frame::new(Kind::Alive, 0, (now, now), &[]) {
            // Losing this frame loses no data; the next failure reports the cause.
            let _ = log.append(&mut frame, false);
            drop(log);
            self.shared.written();
        }
    }
}

/// The graph at a moment.
struct State {
    export: Export,
    seq: u64,
    time: i64,
}

impl State {
    fn of(graph: &Graph) -> Self {
        let (export, seq, time) = (graph.export(), graph.last_event(), graph.now().to);
        // Before its first event a graph has no time.
        let time = if time == i64::MIN { now_ms() } else { time };
        Self { export, seq, time }
    }

    /// As frames; none when an element cannot be written.
    fn frames(&self, run: u64) -> Option<Vec<Frame>> {
        let mut frames = Vec::new();
        let mut part = Part::default();
        let mut bytes = 0;
        let mut number = 0;
        let mut close = |part: &mut Part, last: bool| -> Option<()> {
            let head = PartHead {
                run,
                seq: self.seq,
                time: self.time,
                part: number,
                last,
            };
            number += 1;
            let payload = head.write(&std::mem::take(part)).ok()?;
            let span = (self.time, self.time);
            frames.push(Frame::new(Kind::Checkpoint, 0, span, &payload)?);
            Some(())
        };
        let mut more = |element: &Node| {
            bytes += element.heap_bytes();
            let full = bytes > PART_BYTES;
            if full {
                bytes = 0;
            }
            full
        };
        for node in &self.export.nodes {
            part.nodes.push(Arc::<Node>::clone(node));
            if more(node) {
                close(&mut part, false)?;
            }
        }
        for edge in &self.export.edges {
            part.edges.push(Arc::<Edge>::clone(edge));
            if more(&edge.element) {
                close(&mut part, false)?;
            }
        }
        close(&mut part, true)?;
        Some(frames)
    }
}
