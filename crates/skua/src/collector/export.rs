//! Tells collectors what drains bring.

use std::{
    net::IpAddr,
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use skua_collect::{Drain, Teller, TellerConfig, Told};
use skua_wire::sflow::Header;

use super::{
    answers::{Answers, Expected},
    failover::{Failover, Sets},
    known::Of,
    place::Place,
    queue::Queue,
    sender::Sender,
    spool::{self, SpoolSettings},
};
use crate::{
    config::size,
    session::{Session, secret_seed},
    state::{Observers, State, unix_ns},
};

/// The smallest datagrams, bytes; and the largest that UDP has.
const DATAGRAM: std::ops::RangeInclusive<u32> = skua_collect::LEAST_DATAGRAM as u32..=65_000;

/// What collectors are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportSettings {
    /// Addresses.
    pub collectors: Vec<String>,
    /// Bytes of a datagram at most.
    pub datagram: u32,
    /// Whether what the destination sent is a standard sample, too.
    pub both_directions: bool,
    /// Memory for datagrams that wait.
    #[serde(with = "size")]
    pub queue: u64,
    /// The agent's address.
    pub agent: String,
    /// Tells agents of one address apart.
    pub sub_agent: u32,
    /// Whether collectors are to answer.
    pub answers: Expected,
    /// What is kept while a collector is gone.
    pub spool: SpoolSettings,
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self {
            collectors: Vec::new(),
            datagram: 1_400,
            both_directions: true,
            queue: 16 << 20,
            agent: String::new(),
            sub_agent: 0,
            answers: Expected::default(),
            spool: SpoolSettings::default(),
        }
    }
}

/// Whom to tell; overrides the configuration.
#[derive(Args, Debug, Clone, Default)]
pub struct ExportArguments {
    /// Tell a collector in sFlow, like collector:6343; several are separated by commas, and each
    /// conversation is told to one of them
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub collector: Vec<String>,
    /// Keep on disk, in this directory, what a collector cannot be told, until it is there again
    #[arg(long, value_name = "DIR")]
    pub spool: Option<String>,
}

impl ExportSettings {
    /// Flags replace what is configured.
    pub fn take_arguments(&mut self, arguments: &ExportArguments) {
        if !arguments.collector.is_empty() {
            self.collectors.clone_from(&arguments.collector);
        }
        if let Some(directory) = &arguments.spool {
            self.spool.directory.clone_from(directory);
        }
    }

    /// What cannot be.
    pub fn check(&self) -> anyhow::Result<()> {
        if !DATAGRAM.contains(&self.datagram) {
            bail!(
                "export.datagram is {}; {} to {} bytes, please",
                self.datagram,
                DATAGRAM.start(),
                DATAGRAM.end()
            );
        }
        self.agent_address()?;
        self.spool.check()
    }

    fn agent_address(&self) -> anyhow::Result<Option<IpAddr>> {
        match self.agent.as_str() {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .with_context(|| format!("export.agent: \"{text}\" is no IP address")),
        }
    }
}

/// A collector and what goes to it.
struct Way {
    name: String,
    teller: Mutex<Teller>,
    queue: Arc<Queue>,
    /// 1 when it has answered.
    heard: Arc<AtomicU64>,
    spool: Option<Arc<spool::Counts>>,
}

impl Way {
    fn teller(&self) -> MutexGuard<'_, Teller> {
        // Nothing panics half-way through a change.
        self.teller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of the part of a drain that is this collector's.
    fn tell(&self, turn: usize, sets: &Sets, state: &State, now_ns: u64) {
        let records = state
            .store
            .touched()
            .filter(|record| sets.turn(record.key.tracking_id()) == turn);
        let drain = Drain {
            known: &Of(state),
            moved: &|record| sets.moved(record.key.tracking_id(), record.interval.since_ns),
            lost: state.store.untold(),
            now_ns,
        };
        self.teller()
            .tell(records, &drain, |bytes| self.queue.offer(bytes));
    }
}

/// Tells collectors until it is dropped, which sends what still waits.
pub struct Export {
    ways: Arc<Vec<Way>>,
    failover: Arc<Mutex<Failover>>,
    senders: Vec<JoinHandle<()>>,
}

/// For who wants to know how it fares.
#[derive(Clone)]
pub struct ExportView {
    ways: Arc<Vec<Way>>,
    failover: Arc<Mutex<Failover>>,
}

/// How a collector is told.
#[derive(Clone, Debug, Serialize)]
pub struct ExportStatus {
    /// Address of the collector.
    pub collector: String,
    /// Whether it takes what it is sent, as far as its answers and ICMP tell; while not, the others have its part.
    pub up: bool,
    /// Whether it has answered: else only ICMP tells whether it is there.
    pub answers: bool,
    /// How often others took its part.
    pub failovers: u64,
    /// Datagrams that were sent and not refused.
    pub datagrams: u64,
    /// Records in datagrams, sent or waiting.
    pub records: u64,
    /// Packets that records have added.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that are not of IP, and not told of.
    pub not_ip: u64,
    /// Datagrams that wait.
    pub waiting: usize,
    /// Records that found no room in the queue.
    pub lost_records: u64,
    /// Datagrams that were lost here, by cause.
    pub lost: LostDatagrams,
    /// What is kept on disk, when there is a place for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolStatus>,
}

/// What is kept on disk for a collector.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SpoolStatus {
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Datagrams that were put there since the start.
    pub kept: u64,
}

/// Datagrams by cause of their loss.
#[derive(Clone, Debug, Serialize)]
pub struct LostDatagrams {
    /// The queue was full.
    pub queue_full: u64,
    /// Nobody was there.
    pub send_refused: u64,
    /// The host, or a way to it, was not there.
    pub unreachable: u64,
    /// They were sent, and no answer came.
    pub unanswered: u64,
    /// The socket had no room.
    pub would_block: u64,
    /// Anything else that the kernel said.
    pub send_failed: u64,
    /// The spool was full: the oldest go.
    pub spool_full: u64,
    /// They could not be written into the spool.
    pub spool_failed: u64,
    /// Places in the spool that could not be read, of at least one datagram each.
    pub spool_corrupt: u64,
}

impl ExportView {
    /// How each collector is told now.
    pub fn status(&self) -> Vec<ExportStatus> {
        let states = lock(&self.failover).states();
        self.ways
            .iter()
            .zip(states)
            .map(|(way, (up, failovers))| {
                let Told {
                    records,
                    packets,
                    bytes,
                    refused,
                    not_ip,
                    ..
                } = way.teller().told();
                let losses = &way.queue.losses;
                let spool = way.spool.as_deref();
                let of_spool = |read: fn(&spool::Counts) -> &AtomicU64| {
                    spool.map_or(0, |counts| read(counts).load(Relaxed))
                };
                ExportStatus {
                    collector: way.name.clone(),
                    up,
                    answers: way.heard.load(Relaxed) > 0,
                    failovers,
                    datagrams: way.queue.sent.load(Relaxed),
                    records,
                    packets,
                    bytes,
                    not_ip,
                    waiting: way.queue.waiting(),
                    lost_records: refused,
                    lost: LostDatagrams {
                        queue_full: losses.queue_full.load(Relaxed),
                        send_refused: losses.refused.load(Relaxed),
                        unreachable: losses.unreachable.load(Relaxed),
                        unanswered: losses.unanswered.load(Relaxed),
                        would_block: losses.would_block.load(Relaxed),
                        send_failed: losses.failed.load(Relaxed),
                        spool_full: of_spool(|counts| &counts.full),
                        spool_failed: of_spool(|counts| &counts.failed),
                        spool_corrupt: of_spool(|counts| &counts.corrupt),
                    },
                    spool: spool.map(|counts| SpoolStatus {
                        datagrams: counts.datagrams.load(Relaxed),
                        bytes: counts.bytes.load(Relaxed),
                        kept: counts.kept.load(Relaxed),
                    }),
                }
            })
            .collect()
    }
}

impl Export {
    /// Begins to tell the collectors that are named; none when none is.
    pub fn start(
        settings: &ExportSettings,
        session: &Session,
        observers: &Observers,
    ) -> anyhow::Result<Option<Self>> {
        settings.check()?;
        if settings.collectors.is_empty() {
            return Ok(None);
        }
        let started_ns = unix_ns();
        let (mut ways, mut senders) = (Vec::new(), Vec::new());
        let room = settings.queue / u64::from(settings.datagram);
        let room = (room / settings.collectors.len() as u64).max(1);
        for name in &settings.collectors {
            let place = Place::of(name)?;
            let socket = place.connect()?;
            session.mark_own(socket.as_fd())?;
            let from = socket.local_addr()?.ip().to_canonical();
            let config = TellerConfig {
                agent: settings.agent_address()?.unwrap_or(from),
                sub_agent: settings.sub_agent,
                instance: secret_seed(),
                started_ns,
                datagram: settings.datagram as usize,
                both_directions: settings.both_directions,
            };
            let queue = Arc::new(Queue::new(usize::try_from(room).unwrap_or(usize::MAX)));
            let spool = settings.spool.open(name, settings.collectors.len())?;
            let (spool, counts) = spool.unzip();
            let heard = Arc::<AtomicU64>::default();
            let sender = Sender {
                socket,
                place: Some(place),
                queue: queue.clone(),
                header: Header {
                    agent: config.agent,
                    sub_agent: config.sub_agent,
                    sequence: 0,
                    uptime_ms: 0,
                },
                instance: config.instance,
                answers: Answers::new(settings.answers),
                spool,
                rate: settings.spool.rate,
                heard: heard.clone(),
            };
            let sender = std::thread::Builder::new()
                .name("export".into())
                .spawn(move || sender.run())?;
            senders.push(sender);
            ways.push(Way {
                name: name.clone(),
                teller: Mutex::new(Teller::new(config)),
                queue,
                heard,
                spool: counts,
            });
        }
        let ways = Arc::new(ways);
        let failover = Arc::new(Mutex::new(Failover::new(ways.len())));
        let (theirs, theirs_too) = (ways.clone(), failover.clone());
        observers.add(Arc::new(move |capture, state| {
            // Packets of captures that people make are among those that are always captured.
            if capture.is_none() {
                let now_ns = unix_ns();
                let refused = theirs.iter().map(|way| way.queue.refusals());
                let mut failover = lock(&theirs_too);
                let sets = failover.look(refused, now_ns);
                for (turn, way) in theirs.iter().enumerate() {
                    way.tell(turn, sets, state, now_ns);
                }
            }
        }));
        Ok(Some(Self {
            ways,
            failover,
            senders,
        }))
    }

    /// How this host calls itself to each collector.
    pub fn agents(&self) -> Vec<IpAddr> {
        self.ways.iter().map(|way| way.teller().agent()).collect()
    }

    /// For who wants to know how it fares.
    pub fn view(&self) -> ExportView {
        ExportView {
            ways: self.ways.clone(),
            failover: self.failover.clone(),
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        for way in self.ways.iter() {
            // Says what was told in all, so that the loss of the last is known, too.
            way.teller()
                .tell([].into_iter(), &Drain::at(unix_ns()), |bytes| {
                    way.queue.offer(bytes)
                });
            way.queue.close();
        }
        for sender in self.senders.drain(..) {
            // What panicked there is in the log.
            let _ = sender.join();
        }
    }
}

fn lock(failover: &Mutex<Failover>) -> MutexGuard<'_, Failover> {
    // Nothing panics half-way through a change.
    failover.lock().unwrap_or_else(PoisonError::into_inner)
}
