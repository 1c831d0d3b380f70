//! Tells collectors what drains bring.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    os::fd::AsFd as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    thread::JoinHandle,
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use skua_collect::{Drain, Teller, TellerConfig, Told};

use super::{
    failover::{Failover, Sets},
    known::Of,
    queue::Queue,
};
use crate::{
    config::size,
    session::{Session, secret_seed},
    state::{Observers, State, unix_ns},
};

/// The smallest datagrams, bytes; and the largest that UDP has.
const DATAGRAM: std::ops::RangeInclusive<u32> = 1_024..=65_000;

/// What collectors are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportSettings {
    /// Addresses.
    pub collectors: Vec<String>,
    /// Bytes of a datagram at most.
    pub datagram: u32,
    /// Memory for datagrams that wait.
    #[serde(with = "size")]
    pub queue: u64,
    /// The agent's address.
    pub agent: String,
    /// Tells agents of one address apart.
    pub sub_agent: u32,
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self {
            collectors: Vec::new(),
            datagram: 1_400,
            queue: 16 << 20,
            agent: String::new(),
            sub_agent: 0,
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
}

impl ExportSettings {
    /// Flags replace the list.
    pub fn take_arguments(&mut self, arguments: &ExportArguments) {
        if !arguments.collector.is_empty() {
            self.collectors.clone_from(&arguments.collector);
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
        Ok(())
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
    /// Whether it takes what it is sent, as far as ICMP tells; while not, the others have its part.
    pub up: bool,
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
    /// The socket had no room.
    pub would_block: u64,
    /// Anything else that the kernel said.
    pub send_failed: u64,
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
                ExportStatus {
                    collector: way.name.clone(),
                    up,
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
                        would_block: losses.would_block.load(Relaxed),
                        send_failed: losses.failed.load(Relaxed),
                    },
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
            let socket = connect(name)?;
            session.mark_own(socket.as_fd())?;
            let from = socket.local_addr()?.ip().to_canonical();
            let teller = Teller::new(TellerConfig {
                agent: settings.agent_address()?.unwrap_or(from),
                sub_agent: settings.sub_agent,
                instance: secret_seed(),
                started_ns,
                datagram: settings.datagram as usize,
            });
            let queue = Arc::new(Queue::new(usize::try_from(room).unwrap_or(usize::MAX)));
            let theirs = queue.clone();
            let sender = std::thread::Builder::new()
                .name("export".into())
                .spawn(move || theirs.send(&socket))?;
            senders.push(sender);
            ways.push(Way {
                name: name.clone(),
                teller: Mutex::new(teller),
                queue,
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

/// A socket to a collector, in the family of its first address.
fn connect(name: &str) -> anyhow::Result<UdpSocket> {
    let address = name
        .to_socket_addrs()
        .with_context(|| format!("collector {name}: write it like collector:6343"))?
        .next()
        .with_context(|| format!("collector {name} has no address"))?;
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket
        .connect(address)
        .with_context(|| format!("collector {name} cannot be reached"))?;
    Ok(socket)
}
