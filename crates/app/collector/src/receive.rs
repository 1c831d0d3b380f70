//! Threads that receive datagrams, and threads that sum them up.
//!
//! Each receiver has a socket of its own at the same address; the kernel distributes senders over them. A receiver
//! passes its datagrams in batches to all summing threads: each decodes everything, which costs little, and sums
//! up its own part of the conversations (`skua_collect::Shard`). A full queue blocks the receiver; then the
//! kernel's queue fills up, which counts losses.

use std::{
    io::Read as _,
    net::SocketAddr,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_collect::{Collector, CollectorConfig, Line, Shard, Summary};
use skua_export::export::seal::{KeyFile, Name as KeyName};
use skua_probe::receive::{Answering, MANY, ReceiveBuffers, Socket};
use skua_process::host::{secret_seed, unix_ns};
use skua_sinks::Sinks;

use crate::{
    gate::Gate,
    received::Received,
    watch::{Watched, Worker},
};

/// Bytes of a socket's queue.
const QUEUE: usize = 32 << 20;
/// Initial capacity of a batch, in bytes of datagrams.
const BATCH: usize = 96 << 10;
/// Batches that wait for a summing thread at most.
const WAITING: usize = 64;
/// Wait this long after a batch that was not full: waking two threads for each datagram costs more than it does.
const GATHER: Duration = Duration::from_millis(1);
/// How often threads publish their counters.
const REPORT: Duration = Duration::from_secs(1);
/// The longest wait.
const TICK_NS: u64 = 1_000_000_000;

/// Datagrams, one behind the other.
#[derive(Default)]
struct Batch {
    now_ns: u64,
    /// Number of the receiver.
    receiver: usize,
    bytes: Vec<u8>,
    parts: Vec<Part>,
}

/// A datagram in a batch.
#[derive(Clone, Copy)]
struct Part {
    from: SocketAddr,
    /// Where it ends.
    end: usize,
    /// The name of the key that it was sealed with.
    key: Option<KeyName>,
}

impl Batch {
    fn datagrams(&self) -> impl Iterator<Item = (Part, &[u8])> {
        let mut begin = 0;
        self.parts.iter().map(move |part| {
            let bytes = self.bytes.get(begin..part.end).unwrap_or_default();
            begin = part.end;
            (*part, bytes)
        })
    }
}

/// All threads.
pub struct Threads {
    receivers: Vec<JoinHandle<Received>>,
    summers: Vec<JoinHandle<anyhow::Result<Summary>>>,
    sinks: Arc<Mutex<Sinks>>,
    watched: Arc<Watched>,
    addresses: Vec<SocketAddr>,
}

/// State shared by all summing threads.
struct Shared {
    /// Of the thread.
    number: usize,
    watched: Arc<Watched>,
    sinks: Arc<Mutex<Sinks>>,
    /// A sink has failed permanently: receive no more.
    stop: Arc<AtomicBool>,
    /// By which agents are answered, by the number of the receiver; the first summing thread has them.
    answering: Vec<Answering>,
    /// By which answers are sealed.
    keys: Option<KeyFile>,
}

impl Threads {
    /// Starts the threads: `count` receivers at each address, which end at a signal, and as many
    /// that sum up.
    pub fn start(
        listen: &[SocketAddr],
        count: usize,
        config: &CollectorConfig,
        gate: impl Fn() -> Gate,
        keys: Option<KeyFile>,
        sinks: Sinks,
    ) -> anyhow::Result<Self> {
        let sinks = Arc::new(Mutex::new(sinks));
        let receivers = count * listen.len();
        let watched = Arc::new(Watched::new((receivers, count), config));
        let (stop, seed) = (Arc::new(AtomicBool::new(false)), secret_seed());
        let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
        for address in listen {
            let mut address = *address;
            for _ in 0..count {
                let socket = match count {
                    1 => Socket::bind(address, QUEUE)?,
                    _ => Socket::bind_shared(address, QUEUE)?,
                };
                // The kernel may have assigned the port.
                address = socket.address()?;
                sockets.push(socket);
            }
            addresses.push(address);
        }
        let answering: std::io::Result<Vec<_>> = sockets.iter().map(Socket::answering).collect();
        let (mut answering, instance) = (Some(answering?), secret_seed());
        let (mut queues, mut summers) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (way, batches) = sync_channel(WAITING);
            queues.push(way);
            let each = count.max(1);
            let collector = Collector::new(&CollectorConfig {
                shard: Shard::new(number as u32, count as u32, seed),
                instance,
                max_keys: config.max_keys.div_ceil(each),
                max_conversations: config.max_conversations.div_ceil(each),
                ..*config
            });
            let shared = Shared {
                number,
                watched: watched.clone(),
                sinks: sinks.clone(),
                stop: stop.clone(),
                answering: answering.take().unwrap_or_default(),
                keys: keys.clone(),
            };
            summers.push(
                thread::Builder::new()
                    .name(format!("sum {number}"))
                    .spawn(move || shared.sum(collector, &batches))?,
            );
        }
        let mut receivers = Vec::new();
        for (number, socket) in sockets.into_iter().enumerate() {
            let (ends, far_end) = UnixStream::pair()?;
            ends.set_nonblocking(true)?;
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
                signal_hook::low_level::pipe::register(signal, far_end.try_clone()?)?;
            }
            let (gate, queues, stop) = (gate(), queues.clone(), stop.clone());
            let watched = watched.clone();
            receivers.push(
                thread::Builder::new()
                    .name(format!("receive {number}"))
                    .spawn(move || {
                        receive((number, &socket), ends, gate, &queues, (&stop, &watched))
                    })?,
            );
        }
        Ok(Self {
            receivers,
            summers,
            sinks,
            watched,
            addresses,
        })
    }

    /// Where they listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Status of the threads.
    pub fn watched(&self) -> Arc<Watched> {
        self.watched.clone()
    }

    /// Waits until all have ended; all sums, and the sinks.
    pub fn join(self) -> anyhow::Result<(Summary, Received, Arc<Mutex<Sinks>>)> {
        let mut received = Received::default();
        for receiver in self.receivers {
            let one = receiver
                .join()
                .map_err(|_| anyhow!("a receiver panicked"))?;
            received.add(&one);
        }
        let mut summary: Option<Summary> = None;
        for summer in self.summers {
            let one = summer.join().map_err(|_| anyhow!("a thread panicked"))??;
            match &mut summary {
                Some(summary) => summary.add_shard(&one),
                None => summary = Some(one),
            }
        }
        let summary = summary.context("nothing was summed up")?;
        Ok((summary, received, self.sinks))
    }
}

/// Receives datagrams until a signal, or until the summing threads have ended.
fn receive(
    (receiver, socket): (usize, &Socket),
    mut ends: UnixStream,
    mut gate: Gate,
    queues: &[SyncSender<Arc<Batch>>],
    (stop, watched): (&AtomicBool, &Watched),
) -> Received {
    let (mut buffers, mut full, mut reported) = (ReceiveBuffers::default(), false, Instant::now());
    let counted = |gate: &Gate| Received {
        dropped: socket.dropped().unwrap_or(0),
        not_allowed: gate.not_allowed,
        over_rate: gate.over_rate,
        unsealed: gate.unsealed,
        ..Received::default()
    };
    loop {
        watched.beat(Worker::Receiver(receiver));
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            watched.receives(receiver, counted(&gate));
        }
        let timeout = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let mut fds = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN),
        ];
        // An interrupted poll only wakes up early.
        let _ = poll(&mut fds, Some(&timeout));
        if !full {
            thread::sleep(GATHER);
        }
        let (mut batch, more) = receive_batch(socket, &mut gate, &mut buffers);
        batch.receiver = receiver;
        if !batch.parts.is_empty() {
            let batch = Arc::new(batch);
            for way in queues {
                if way.send(batch.clone()).is_err() {
                    stop.store(true, Relaxed);
                }
            }
        }
        full = more;
        // Read the socket's queue before ending.
        let ended = !more && matches!(ends.read(&mut [0; 8]), Ok(n) if n > 0);
        if ended || stop.load(Relaxed) {
            watched.ends();
            return Received {
                flooding: gate.flooding(),
                strangers: gate.strangers(),
                ..counted(&gate)
            };
        }
    }
}

/// A batch; and whether there may be more now.
fn receive_batch(socket: &Socket, gate: &mut Gate, buffers: &mut ReceiveBuffers) -> (Batch, bool) {
    let mut batch = Batch {
        now_ns: unix_ns(),
        ..Batch::default()
    };
    let taken = socket.receive_many(buffers, |bytes, from| {
        if gate.admits(from, batch.now_ns)
            && let Some(key) = gate.opens(from, bytes, batch.now_ns)
        {
            if batch.parts.is_empty() {
                batch.bytes.reserve(BATCH);
            }
            batch.bytes.extend_from_slice(bytes);
            batch.parts.push(Part {
                from,
                end: batch.bytes.len(),
                key,
            });
        }
    });
    let taken = taken.unwrap_or_else(|error| {
        tracing::debug!(%error, "receiving failed");
        0
    });
    (batch, taken == MANY)
}

impl Shared {
    /// Sums up until all receivers have ended.
    fn sum(
        &self,
        mut collector: Collector,
        batches: &Receiver<Arc<Batch>>,
    ) -> anyhow::Result<Summary> {
        let mut reported = None::<Instant>;
        loop {
            self.watched.beat(Worker::Summer(self.number));
            if reported.is_none_or(|reported| reported.elapsed() >= REPORT) {
                reported = Some(Instant::now());
                self.watched.sums(self.number, collector.summary());
                if self.number == 0 {
                    let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
                    self.watched.sinks(sinks.lost());
                }
            }
            let now = unix_ns();
            self.write(|each| collector.close(now, each))
                .inspect_err(|_| self.stop.store(true, Relaxed))?;
            let wait = collector
                .next_close()
                .map_or(TICK_NS, |at| at.saturating_sub(now).min(TICK_NS));
            match batches.recv_timeout(Duration::from_nanos(wait)) {
                Ok(batch) => {
                    for (part, bytes) in batch.datagrams() {
                        let answer = collector.datagram(part.from, bytes, batch.now_ns);
                        if let Some(answer) = answer {
                            self.answer(batch.receiver, answer, part);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.write(|each| collector.finish(unix_ns(), each))?;
        Ok(collector.summary())
    }

    /// A lost answer does no harm: the agent asks again.
    fn answer(&self, receiver: usize, answer: &[u8], Part { from: to, key, .. }: Part) {
        let mut answer = answer.to_vec();
        if let (Some(keys), Some(key)) = (&self.keys, key) {
            keys.get().seal_with(key, &mut answer, unix_ns());
        }
        if let Some(socket) = self.answering.get(receiver)
            && let Err(error) = socket.send(&answer, to)
        {
            tracing::debug!(%error, "{to} cannot be answered");
        }
    }

    /// Writes lines to the sinks.
    fn write(&self, hand_out: impl FnOnce(&mut dyn FnMut(&Line<'_>))) -> anyhow::Result<()> {
        let mut sinks = None;
        let mut done = Ok(());
        hand_out(&mut |line| {
            // Locked only when there is a line.
            let sinks = sinks
                .get_or_insert_with(|| self.sinks.lock().unwrap_or_else(PoisonError::into_inner));
            if done.is_ok() {
                done = sinks.put(line);
            }
        });
        match sinks {
            Some(mut sinks) => done.and_then(|()| sinks.flush()),
            None => done,
        }
    }
}
