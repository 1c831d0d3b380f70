//! Sends collectors what drains of `skua run` and `skua agent` bring.
//!
//! | module | |
//! |---|---|
//! | `members`, `srv` | which collectors there are, by their names |
//! | `failover` | which collector gets what, while all of them are there and while not |
//! | `known` | names and sockets of this host |
//! | `queue`, `sender` | datagrams that wait to be sent, and who sends them |
//! | `seal` | who has written a datagram |
//! | `answers`, `spool` | whether a collector answers, and what is on disk while not |
//! | `report` | its state, for /metrics and the doctor |

mod answers;
mod failover;
pub mod known;
mod members;
mod queue;
pub mod report;
pub mod seal;
mod sender;
mod spool;
mod srv;

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use anyhow::Context as _;
use skua_collect::{Drain, Exported, Exporter, ExporterConfig};
use skua_config::export::ExportSettings;
use skua_process::host::{secret_seed, unix_ns};
use skua_state::{Observers, State};
use skua_watch::session::{OwnSockets, Session};
use skua_wire::sflow::Header;

use crate::export::{
    answers::Answers,
    failover::{Failover, Present},
    known::Of,
    members::{Member, Members, addresses},
    queue::Queue,
    report::{ExportStatus, LostDatagrams, SpoolStatus},
    seal::KeyFile,
    sender::Sender,
};

/// Collectors whose name does not mean them any more that are still shown.
const LEFT: usize = 16;

/// Which collector.
struct At {
    /// Never given to another.
    number: u32,
    member: Member,
}

/// What goes to a collector.
struct Destination {
    /// Of those with the same name, which keep what is on disk apart: the lowest that is free.
    slot: usize,
    at: Mutex<At>,
    /// Where the sender is to go on.
    moves: Arc<Mutex<Option<SocketAddr>>>,
    exporter: Mutex<Exporter>,
    queue: Arc<Queue>,
    /// 1 when it has answered.
    heard: Arc<AtomicU64>,
    spool: Option<Arc<spool::Counts>>,
}

impl Destination {
    fn exporter(&self) -> MutexGuard<'_, Exporter> {
        lock(&self.exporter)
    }

    fn at(&self) -> MutexGuard<'_, At> {
        lock(&self.at)
    }

    fn member(&self) -> Member {
        self.at().member.clone()
    }

    /// Nothing more goes there than what waits, and a last report of all that was exported, by which the loss of the last is known, too.
    fn close(&self) {
        self.exporter()
            .export([].into_iter(), &Drain::at(unix_ns()), |bytes| {
                self.queue.offer(bytes)
            });
        self.queue.close();
    }

    fn status(&self, (up, failovers): (bool, u64), left: bool) -> ExportStatus {
        let Exported {
            records,
            packets,
            bytes,
            refused,
            not_ip,
            ..
        } = self.exporter().exported();
        let losses = &self.queue.losses;
        let spool = self.spool.as_deref();
        let of_spool = |read: fn(&spool::Counts) -> &AtomicU64| {
            spool.map_or(0, |counts| read(counts).load(Relaxed))
        };
        let member = self.member();
        ExportStatus {
            collector: match member.shares_name {
                true => format!("{} ({})", member.name, member.address),
                false => member.name,
            },
            address: Some(member.address),
            left,
            up,
            answers: self.heard.load(Relaxed) > 0,
            failovers,
            datagrams: self.queue.sent.load(Relaxed),
            records,
            packets,
            bytes,
            not_ip,
            waiting: self.queue.waiting(),
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
    }
}

/// All collectors, which come and go with the meaning of their names.
struct Collectors {
    settings: ExportSettings,
    own: OwnSockets,
    keys: Option<KeyFile>,
    started_ns: u64,
    /// Of each on disk at most.
    spool_share: Arc<AtomicU64>,
    /// Gets the agent addresses under which this host exports.
    on_agents: Box<dyn Fn(Vec<IpAddr>) + Send + Sync>,
    numbers: AtomicU32,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    destinations: Vec<Arc<Destination>>,
    /// The latest last.
    left: VecDeque<Arc<Destination>>,
    senders: Vec<JoinHandle<()>>,
    failover: Failover,
    /// Whose turn each record of a drain is, in its order; kept for its memory.
    turns: Vec<usize>,
    /// Names that were never found, and records that no collector could get.
    unknown: Vec<String>,
    nobody: u64,
}

impl Collectors {
    /// From now on there are these.
    ///
    /// # Errors
    ///
    /// Nothing can be exported to one that is new; the others are set.
    fn set(&self, names: &Members) -> anyhow::Result<()> {
        let members = names.all();
        let share = self.settings.spool.max_bytes / members.len().max(1) as u64;
        self.spool_share.store(share, Relaxed);
        let before = lock(&self.inner).destinations.clone();
        let (mut destinations, mut gone, mut new) = (Vec::new(), Vec::new(), members);
        for destination in before {
            let address = destination.member().address;
            match new.iter().position(|member| member.address == address) {
                Some(at) => {
                    let now = new.swap_remove(at);
                    destination.at().member = now;
                    destinations.push(destination);
                }
                None => gone.push(destination),
            }
        }
        new.sort_by_key(|member| member.address);
        gone.retain(|destination| {
            let name = destination.member().name;
            let Some(at) = new.iter().position(|one| one.name == name) else {
                return true;
            };
            self.go_on(destination, new.remove(at));
            destinations.push(destination.clone());
            false
        });
        // Not under the lock: a spool may take long to open, and drains must not wait for it.
        let (mut done, mut senders) = (Ok(()), Vec::new());
        for member in new {
            match self.begin(member, &destinations) {
                Ok((destination, sender)) => {
                    destinations.push(Arc::new(destination));
                    senders.push(sender);
                }
                Err(error) => done = done.and(Err(error)),
            }
        }
        destinations.sort_by_key(|destination| destination.member().address);
        let room = self.settings.queue / u64::from(self.settings.datagram);
        let room = room / destinations.len().max(1) as u64;
        for destination in &destinations {
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            destination.queue.limit(room.max(1));
        }
        (self.on_agents)(
            destinations
                .iter()
                .map(|destination| destination.exporter().agent())
                .collect(),
        );
        let mut inner = lock(&self.inner);
        inner.destinations = destinations;
        inner.unknown = names.unknown().map(str::to_owned).collect();
        inner.senders.retain(|sender| !sender.is_finished());
        inner.senders.append(&mut senders);
        for destination in gone {
            let member = destination.member();
            tracing::info!(collector = %member.name, address = %member.address, "the name does not mean this collector any more");
            destination.close();
            inner.left.push_back(destination);
        }
        while inner.left.len() > LEFT {
            inner.left.pop_front();
        }
        done
    }

    /// What went to a collector goes to another one of its name, with what waits for it: it has moved, or that has
    /// come in its place.
    fn go_on(&self, destination: &Destination, now: Member) {
        let mut at = destination.at();
        tracing::info!(collector = %now.name, from = %at.member.address, to = %now.address, "the collector has moved");
        *lock(&destination.moves) = Some(now.address);
        *at = At {
            number: self.number(),
            member: now,
        };
    }

    fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Begins to export to a collector that is new.
    fn begin(
        &self,
        member: Member,
        destinations: &[Arc<Destination>],
    ) -> anyhow::Result<(Destination, JoinHandle<()>)> {
        let settings = &self.settings;
        let same_name = |destination: &&Arc<Destination>| destination.member().name == member.name;
        let taken: Vec<_> = destinations
            .iter()
            .filter(same_name)
            .map(|destination| destination.slot)
            .collect();
        let slot = (0..).find(|slot| !taken.contains(slot)).unwrap_or(0);
        let at_start = lock(&self.inner).destinations.is_empty();
        let socket = connect(member.address)
            .with_context(|| format!("collector {} cannot be reached", member.name))?;
        self.own.mark(socket.as_fd())?;
        let from = socket.local_addr()?.ip().to_canonical();
        let config = ExporterConfig {
            agent: settings.agent_address()?.unwrap_or(from),
            sub_agent: settings.sub_agent,
            instance: secret_seed(),
            started_ns: self.started_ns,
            datagram: settings.datagram as usize - self.keys.as_ref().map_or(0, |_| seal::LENGTH),
            both_directions: settings.both_directions,
        };
        let spool = match spool::open(
            &settings.spool,
            &member.name,
            slot,
            self.spool_share.clone(),
        ) {
            // One that has left may still be writing what it was not able to send.
            Err(error) if !at_start => {
                tracing::warn!(collector = %member.name, error = %format!("{error:#}"), "nothing is kept for it on disk");
                None
            }
            other => other?,
        };
        let (spool, counts) = spool.unzip();
        let queue = Arc::new(Queue::new(1));
        let (heard, moves) = (Arc::<AtomicU64>::default(), Arc::default());
        let sender = Sender {
            socket,
            moves: Arc::clone(&moves),
            queue: queue.clone(),
            header: Header {
                agent: config.agent,
                sub_agent: config.sub_agent,
                sequence: 0,
                uptime_ms: 0,
            },
            instance: config.instance,
            answers: Answers::new(settings.answers),
            keys: self.keys.clone(),
            spool,
            rate: settings.spool.rate,
            heard: heard.clone(),
        };
        let sender = std::thread::Builder::new()
            .name("export".into())
            .spawn(move || sender.run())?;
        tracing::info!(collector = %member.name, address = %member.address, "exporting to a collector");
        let destination = Destination {
            slot,
            at: Mutex::new(At {
                number: self.number(),
                member,
            }),
            moves,
            exporter: Mutex::new(Exporter::new(config)),
            queue,
            heard,
            spool: counts,
        };
        Ok((destination, sender))
    }

    /// Exports its part of a drain to each collector.
    fn export(&self, state: &State) {
        let now_ns = unix_ns();
        let mut inner = lock(&self.inner);
        let Inner {
            destinations,
            failover,
            turns,
            nobody,
            ..
        } = &mut *inner;
        let present = destinations.iter().map(|destination| {
            let at = destination.at();
            Present {
                number: at.number,
                key: at.member.key,
                refused: destination.queue.refusals(),
            }
        });
        let sets = failover.update(present, now_ns);
        let turn = |id| sets.turn(id);
        turns.clear();
        turns.extend(
            state
                .store
                .touched()
                .map(|record| turn(record.key.tracking_id())),
        );
        if destinations.is_empty() {
            *nobody += turns.len() as u64;
        }
        let drain = Drain {
            enrichment: &Of(state),
            moved: &|record| sets.moved(record.key.tracking_id(), record.interval.since_ns),
            lost: state.store.dropped_unreported(),
            now_ns,
        };
        for (own, destination) in destinations.iter().enumerate() {
            let records = state.store.touched().zip(&*turns);
            let records = records.filter(|(_, turn)| **turn == own);
            destination
                .exporter()
                .export(records.map(|(record, _)| record), &drain, |bytes| {
                    destination.queue.offer(bytes)
                });
        }
    }
}

/// A socket that sends there.
fn connect(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    Ok(socket)
}

/// Exports to collectors until it is dropped, which sends what still waits.
pub struct Export {
    collectors: Arc<Collectors>,
    /// Dropped, it ends the thread that looks names up.
    _look_up: Option<SyncSender<()>>,
}

/// For who wants to know its status.
#[derive(Clone)]
pub struct ExportView(Arc<Collectors>);

impl ExportView {
    /// What was exported to each collector.
    pub fn status(&self) -> Vec<ExportStatus> {
        let inner = lock(&self.0.inner);
        let there = inner.destinations.iter().map(|destination| {
            let number = destination.at().number;
            destination.status(inner.failover.state(number), false)
        });
        let left = inner
            .left
            .iter()
            .map(|destination| destination.status((false, 0), true));
        // The latest of a name and address says all that there is to say.
        let mut all: Vec<ExportStatus> = there.collect();
        let mut nobody = inner.nobody;
        all.extend(inner.unknown.iter().map(|name| ExportStatus {
            collector: name.clone(),
            lost_records: std::mem::take(&mut nobody),
            ..ExportStatus::default()
        }));
        for one in left.rev() {
            if all.iter().all(|other| other.collector != one.collector) {
                all.push(one);
            }
        }
        all
    }
}

impl Export {
    /// Begins to export to the collectors that are named; none when none is. `on_agents` gets the agent addresses under which
    /// this host exports, now and whenever they change.
    pub fn start(
        settings: &ExportSettings,
        session: &Session,
        observers: &Observers,
        on_agents: impl Fn(Vec<IpAddr>) + Send + Sync + 'static,
    ) -> anyhow::Result<Option<Self>> {
        settings.check()?;
        if settings.collectors.is_empty() {
            return Ok(None);
        }
        let members = Members::of(&settings.collectors, addresses)?;
        let collectors = Arc::new(Collectors {
            settings: settings.clone(),
            own: session.own_sockets(),
            keys: match settings.key_file.as_str() {
                "" => None,
                file => Some(seal::open("export.key_file", Path::new(file))?),
            },
            started_ns: unix_ns(),
            spool_share: Arc::default(),
            on_agents: Box::new(on_agents),
            numbers: AtomicU32::new(0),
            inner: Mutex::default(),
        });
        collectors.set(&members)?;
        for name in members.unknown() {
            tracing::warn!(collector = %name, "the name is not found; it is looked up again every {}", humantime::format_duration(settings.look_up));
        }
        let look_up = match members.may_change() {
            true => Some(look_up(members, collectors.clone())?),
            false => None,
        };
        let theirs = collectors.clone();
        observers.add(Arc::new(move |capture, state| {
            // Packets of captures that people make are among those that are always captured.
            if capture.is_none() {
                theirs.export(state);
            }
        }));
        Ok(Some(Self {
            collectors,
            _look_up: look_up,
        }))
    }

    /// For who wants to know its status.
    pub fn view(&self) -> ExportView {
        ExportView(self.collectors.clone())
    }
}

/// Looks names up now and then, until what it returns is dropped: a question may take long, and what is to be sent must
/// not wait for it.
fn look_up(mut members: Members, collectors: Arc<Collectors>) -> anyhow::Result<SyncSender<()>> {
    let (stop, stopped) = sync_channel(0);
    std::thread::Builder::new()
        .name("collector-names".into())
        .spawn(move || {
            let again = collectors.settings.look_up;
            while stopped.recv_timeout(again) == Err(RecvTimeoutError::Timeout) {
                members.look_up();
                if let Err(error) = collectors.set(&members) {
                    tracing::warn!(error = %format!("{error:#}"), "cannot export to a collector");
                }
            }
        })?;
    Ok(stop)
}

impl Drop for Export {
    fn drop(&mut self) {
        let mut inner = lock(&self.collectors.inner);
        for destination in &inner.destinations {
            destination.close();
        }
        let senders = std::mem::take(&mut inner.senders);
        drop(inner);
        for sender in senders {
            // What panicked there is in the log.
            let _ = sender.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
