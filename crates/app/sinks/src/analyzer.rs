//! Lines to the graph of services of an analyzer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Context as _;
use skua_client::Client;
use skua_collect::Line;
use skua_config::arguments::AnalyzerArguments;
use skua_export::services::exchange::{BATCH, BODY, PATH, SENDER};
use skua_process::host::secret_seed;

use crate::Sink;

/// Bytes of a batch; with another line still below the analyzer's limit.
const BATCH_BYTES: usize = BODY / 4;
/// Batches that wait at most.
const WAITING: usize = 16;
/// Attempts to send a batch, with growing pauses.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Default)]
struct Lost {
    queue_full: AtomicU64,
    refused: AtomicU64,
}

struct Batch {
    lines: u64,
    body: Vec<u8>,
}

/// An analyzer, or a `skua run`. A thread sends the waiting lines.
pub struct Analyzer {
    batch: Batch,
    queue: Option<SyncSender<Batch>>,
    sender: Option<JoinHandle<()>>,
    lost: Arc<Lost>,
}

impl Analyzer {
    /// Begins; whether it answers shows later.
    pub fn open(analyzer: AnalyzerArguments) -> anyhow::Result<Self> {
        let (queue, batches) = sync_channel(WAITING);
        let lost = Arc::new(Lost::default());
        let theirs = lost.clone();
        let sender = thread::Builder::new()
            .name("to analyzer".into())
            .spawn(move || deliver(&analyzer, &batches, &theirs))
            .context("no thread for the analyzer's sink")?;
        Ok(Self {
            batch: Batch {
                lines: 0,
                body: Vec::new(),
            },
            queue: Some(queue),
            sender: Some(sender),
            lost,
        })
    }
}

impl Sink for Analyzer {
    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.batch.body, line)?;
        self.batch.body.push(b'\n');
        self.batch.lines += 1;
        match self.batch.body.len() >= BATCH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let next = Batch {
            lines: 0,
            body: Vec::with_capacity(self.batch.body.len()),
        };
        let batch = std::mem::replace(&mut self.batch, next);
        if let Some(queue) = &self.queue
            && batch.lines > 0
            && let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
                queue.try_send(batch)
        {
            self.lost.queue_full.fetch_add(batch.lines, Relaxed);
        }
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        // The thread ends when it has sent all, or after its time limit.
        drop(self.queue.take());
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
        Ok(())
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        [
            ("analyzer_queue_full", &self.lost.queue_full),
            ("analyzer_refused", &self.lost.refused),
        ]
        .into_iter()
        .map(|(cause, lines)| (cause, lines.load(Relaxed)))
        .filter(|(_, lines)| *lines > 0)
        .collect()
    }
}

fn deliver(analyzer: &AnalyzerArguments, batches: &Receiver<Batch>, lost: &Lost) {
    // Positive as a signed number, too.
    let sender = (secret_seed() >> 1).to_string();
    let mut client = None;
    for (number, batch) in (1u64..).zip(batches) {
        let headers = [(SENDER, sender.clone()), (BATCH, number.to_string())];
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            match send(&mut client, analyzer, &headers, &batch.body) {
                Ok(()) => break,
                Err(error) if attempt == TRIES => {
                    lost.refused.fetch_add(batch.lines, Relaxed);
                    let lines = batch.lines;
                    tracing::warn!(
                        "{lines} lines did not reach {}: {error:#}",
                        analyzer.address
                    );
                }
                Err(_) => {
                    client = None;
                    thread::sleep(pause);
                    pause *= 2;
                }
            }
        }
    }
}

fn send(
    client: &mut Option<Client>,
    analyzer: &AnalyzerArguments,
    headers: &[(&str, String)],
    body: &[u8],
) -> anyhow::Result<()> {
    let there = match client {
        Some(client) => client,
        None => client.insert(Client::connect_or_fail(analyzer)?),
    };
    there.lines_to(PATH, headers, body)
}
