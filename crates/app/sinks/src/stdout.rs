//! One JSON object a line on standard output.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use skua_collect::Line;

use crate::Sink;

/// Bytes of lines that are passed to the writing thread together.
const BATCH: usize = 64 << 10;
/// Bytes that wait to be written at most.
const WAITING: usize = 64 << 20;
/// Bytes of one write: a pipe accepts these completely or not at all (PIPE_BUF), so the written lines are known.
const AT_ONCE: usize = 4_096;
/// At the end, waiting lines are dropped when the reader reads nothing for this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of that check.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Shared {
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// Lines written completely.
    written: AtomicU64,
    /// Bytes that were written.
    bytes: AtomicU64,
    /// The reader has closed it.
    closed: AtomicBool,
}

/// Standard output. A thread writes, so that a slow reader delays nothing else.
pub struct Stdout {
    batch: Vec<u8>,
    lines: u64,
    most: usize,
    put: u64,
    queue_full: u64,
    /// Lines dropped at the end.
    not_read: u64,
    queue: Option<Sender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    patience: Duration,
    /// The only sink: without a reader the collector ends.
    only: bool,
}

impl Stdout {
    /// Opens it; `only`: there is no other sink.
    pub fn open(only: bool) -> anyhow::Result<Self> {
        let out = io::stdout().as_fd().try_clone_to_owned();
        let out = out.context("cannot write to standard output")?;
        Self::to(out.into(), WAITING, PATIENCE, only)
    }

    fn to(out: File, most: usize, patience: Duration, only: bool) -> anyhow::Result<Self> {
        let (queue, batches) = channel();
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let writer = thread::Builder::new()
            .name("to stdout".into())
            .spawn(move || write(out, &batches, &theirs))
            .context("no thread for standard output")?;
        Ok(Self {
            batch: Vec::new(),
            lines: 0,
            most,
            put: 0,
            queue_full: 0,
            not_read: 0,
            queue: Some(queue),
            writer: Some(writer),
            shared,
            patience,
            only,
        })
    }

    /// Passes the waiting lines to the writing thread.
    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let lines = std::mem::take(&mut self.lines);
        let room = self.shared.waiting.load(Relaxed) + batch.len() <= self.most;
        match &self.queue {
            Some(queue) if room && !self.shared.closed.load(Relaxed) => {
                self.shared.waiting.fetch_add(batch.len(), Relaxed);
                // The thread lives as long as we may send.
                let _ = queue.send(batch);
            }
            _ => self.queue_full += lines,
        }
    }
}

impl Sink for Stdout {
    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.batch, line)?;
        self.batch.push(b'\n');
        self.lines += 1;
        self.put += 1;
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if !self.batch.is_empty() {
            self.hand_over();
        }
        if self.only && self.shared.closed.load(Relaxed) {
            bail!("standard output was closed by its reader");
        }
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let flushed = self.flush();
        drop(self.queue.take());
        let (mut bytes, mut since) = (0, Instant::now());
        while let Some(writer) = &self.writer
            && !writer.is_finished()
            && since.elapsed() < self.patience
        {
            let now = self.shared.bytes.load(Relaxed);
            if now != bytes {
                (bytes, since) = (now, Instant::now());
            }
            thread::sleep(PAUSE);
        }
        let written = self.shared.written.load(Relaxed);
        self.not_read = self.put.saturating_sub(self.queue_full + written);
        flushed
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        [
            ("stdout_queue_full", self.queue_full),
            ("stdout_not_read", self.not_read),
        ]
        .into_iter()
        .filter(|(_, lines)| *lines > 0)
        .collect()
    }
}

fn write(mut out: File, batches: &Receiver<Vec<u8>>, shared: &Shared) {
    for batch in batches {
        let mut rest = &*batch;
        while !rest.is_empty() && !shared.closed.load(Relaxed) {
            match out.write(rest.get(..AT_ONCE).unwrap_or(rest)) {
                Ok(length) => {
                    let (done, more) = rest.split_at(length.min(rest.len()));
                    let lines = done.iter().filter(|byte| **byte == b'\n').count();
                    shared.written.fetch_add(lines as u64, Relaxed);
                    shared.bytes.fetch_add(done.len() as u64, Relaxed);
                    rest = more;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!("cannot write to standard output any longer: {error}");
                    shared.closed.store(true, Relaxed);
                }
            }
        }
        shared.waiting.fetch_sub(batch.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use skua_collect::{Collector, CollectorConfig};
    use skua_wire::sflow::{DataSource, FlowHead, Header, IpPacket, Port, Writer};

    use super::*;

    const NOW: u64 = 1_800_000_000_000_000_000;

    /// Lines of `clients` clients.
    fn put(sink: &mut Stdout, clients: u32) {
        let mut collector = Collector::new(&CollectorConfig::default());
        for client in 0..clients {
            let mut datagram = Vec::new();
            let header = Header {
                agent: [10, 0, 0, 1].into(),
                sub_agent: 0,
                sequence: client + 1,
                uptime_ms: 1,
            };
            let head = FlowHead {
                sequence: client,
                source: DataSource { class: 0, index: 2 },
                rate: 1,
                pool: client,
                drops: 0,
                input: Port::default(),
                output: Port::default(),
            };
            let ip = IpPacket {
                length: 100,
                protocol: 17,
                source: std::net::Ipv4Addr::from(0x0a01_0000 + client).into(),
                destination: [10, 0, 0, 9].into(),
                source_port: 40_000,
                destination_port: 53,
                tcp_flags: 0,
                tos: 0,
            };
            Writer::new(&mut datagram, &header).flow_sample(&head, |out| out.ip(&ip));
            collector.datagram(std::net::IpAddr::from([10, 0, 0, 1]), &datagram, NOW);
        }
        collector.finish(NOW, &mut |line| sink.put(line).unwrap());
    }

    #[test]
    fn a_stalled_reader_delays_nothing_and_each_line_is_written_or_lost() {
        for reads in [false, true] {
            let (mut reader, writer) = io::pipe().unwrap();
            let out = File::from(std::os::fd::OwnedFd::from(writer));
            let patience = match reads {
                true => Duration::from_secs(600),
                false => Duration::from_millis(100),
            };
            let mut sink = Stdout::to(out, 300_000, patience, true).unwrap();
            put(&mut sink, 10_000);
            sink.flush().unwrap();
            assert!(sink.queue_full > 0);
            let mut text = String::new();
            if reads {
                thread::scope(|scope| {
                    let read = scope.spawn(|| {
                        let mut text = String::new();
                        reader.read_to_string(&mut text).unwrap();
                        text
                    });
                    sink.finish().unwrap();
                    text = read.join().unwrap();
                });
            } else {
                // A pipe buffers some of it.
                sink.finish().unwrap();
                assert!(sink.not_read > 0);
                text = "\n".repeat(sink.shared.written.load(Relaxed) as usize);
            }
            let lost: u64 = sink.lost().iter().map(|(_, lines)| lines).sum();
            assert_eq!(text.lines().count() as u64 + lost, 10_000);
        }
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_only_sink_and_no_other() {
        for only in [true, false] {
            let (reader, writer) = io::pipe().unwrap();
            drop(reader);
            let out = File::from(std::os::fd::OwnedFd::from(writer));
            let mut sink = Stdout::to(out, 300_000, Duration::from_secs(600), only).unwrap();
            put(&mut sink, 10);
            let finished = sink.finish();
            // Lines passed on before the error was noticed are lost all the same.
            let lost: u64 = sink.lost().iter().map(|(_, lines)| lines).sum();
            assert_eq!(lost, 10);
            // The end is an error only if the thread that writes had found it out by then.
            assert!(finished.is_ok() || only);
            assert_eq!(sink.flush().is_err(), only);
        }
    }
}
