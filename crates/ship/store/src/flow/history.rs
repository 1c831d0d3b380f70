//! Writing flows down.

use super::{
    FlowChange,
    block::{BlockWriter, ROWS},
    queue::{Queue, Waiting},
};
use crate::{
    log::{
        Cause,
        frame::{Frame, Kind},
    },
    store::Shared,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

/// The changes of a drain, packed. Reuse it: it keeps its memory.
#[derive(Default)]
pub struct FlowBatch {
    current: BlockWriter,
    full: Vec<Waiting>,
}

fn ms_span((from, to): (u64, u64)) -> (i64, i64) {
    let ms = |ns: u64| (ns / 1_000_000) as i64;
    (ms(from), ms(to).saturating_add(1))
}

impl FlowBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change. Changes of one flow must be in order of time.
    pub fn push(&mut self, change: &FlowChange<'_>) {
        self.current.push(change);
        if self.current.rows() >= ROWS {
            self.close();
        }
    }

    /// Whether it has no changes.
    pub fn is_empty(&self) -> bool {
        self.current.rows() == 0 && self.full.is_empty()
    }

    fn close(&mut self) {
        let (payload, rows, span) = self.current.finish();
        self.full.push(Waiting {
            payload,
            rows,
            span: ms_span(span),
        });
    }

    fn drain(&mut self) -> std::vec::Drain<'_, Waiting> {
        if self.current.rows() > 0 {
            self.close();
        }
        self.full.drain(..)
    }
}

pub(crate) struct Writer {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The history of flows. Clones are the same history.
#[derive(Clone)]
pub struct FlowHistory {
    pub(super) shared: Arc<Shared>,
    writer: Arc<Writer>,
}

impl FlowHistory {
    pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(shared.config.flow_queue_bytes));
        let thread = {
            let (queue, shared) = (queue.clone(), shared.clone());
            std::thread::Builder::new()
                .name("flow history".into())
                .spawn(move || write_all(&queue, &shared))?
        };
        Ok(Self {
            shared,
            writer: Arc::new(Writer {
                queue,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    /// Queues the changes of a batch for writing, and empties it. Never blocks: changes that do not
    /// fit into the queue are counted as lost.
    pub fn append(&self, batch: &mut FlowBatch) {
        for block in batch.drain() {
            if let Err(block) = self.writer.queue.push(block) {
                let mut log = self.shared.flows();
                log.lose(Cause::Queue, block.rows.into());
            }
        }
    }

    /// Waits until all that was appended is written or counted as lost; whether it is.
    pub fn flush(&self, patience: Duration) -> bool {
        self.writer.queue.flush(patience)
    }

    /// Bytes that wait for the disk.
    pub fn queued_bytes(&self) -> usize {
        self.writer.queue.len().1
    }
}

fn write_all(queue: &Queue, shared: &Shared) {
    while let Some(block) = queue.pop() {
        let frame = Frame::new(Kind::Flows, block.rows, block.span, &block.payload);
        let mut log = shared.flows();
        match frame {
            Some(mut frame) => {
                let new_file = log.wants_new_file(crate::log::now_ms(), 0);
                // What failed is counted there.
                let written = log.append(&mut frame, new_file);
                drop(log);
                if written.is_ok() {
                    shared.written();
                }
            }
            None => log.lose(Cause::TooLarge, block.rows.into()),
        }
        queue.done();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}
