//! Carries out an injection.

use crate::{
    Frames, InjectError, Point,
    frames::Mode,
    track::Track,
    witness::{Directions, IcmpError, Observed, Witness},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_afpacket::PacketSender;
use std::{
    collections::BTreeSet,
    io,
    os::fd::AsFd as _,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Longest time between two checks whether the injection must stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// What to send, where and how fast.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where packets are sent.
    pub source: Point,
    /// Where arrivals are counted.
    pub destination: Option<Point>,
    /// The frames to send.
    pub frames: Frames,
    /// How many packets; of a file, how often it is sent.
    pub count: u64,
    /// Time between two packets.
    pub interval: Duration,
    /// Packets per second at most, at least 1.
    pub rate: u32,
    /// How long is waited for the last packets to arrive and be answered.
    pub patience: Duration,
}

/// Progress of an injection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// It sends, or waits for answers.
    #[default]
    Running,
    /// All was sent.
    Done,
    /// It was ended before.
    Stopped,
    /// An error ended it.
    Failed,
}

impl State {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// What happened to packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The injection runs.
    Pending,
    /// Some were answered.
    Answered,
    /// Some arrived, none was answered.
    Arrived,
    /// None arrived, and an ICMP error came back.
    Refused,
    /// None arrived.
    Lost,
    /// None was answered, and no destination counted arrivals.
    Unanswered,
    /// They could not be sent.
    Failed,
}

impl Outcome {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "answered",
            Self::Arrived => "arrived",
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::Unanswered => "unanswered",
            Self::Failed => "failed",
        }
    }
}

/// The status of an injection.
#[derive(Clone, Default, Debug)]
pub struct Status {
    /// Progress.
    pub state: State,
    /// Why it ended early, or cannot observe its packets.
    pub error: Option<String>,
    /// Packets that the interface accepted.
    pub sent: u64,
    /// Packets that the interface refused because its queue was full.
    pub refused: u64,
    /// Packets counted at the destination, when there is one.
    pub arrived: Option<u64>,
    /// Packets of the same conversations that came back to the source.
    pub answered: u64,
    /// TCP resets among them.
    pub resets: u64,
    /// ICMP errors about the packets that came to the source.
    pub icmp_errors: Vec<IcmpError>,
    /// When the first packet was sent, ms since the Unix epoch.
    pub started: i64,
}

impl Status {
    /// What happened to the packets.
    pub fn outcome(&self) -> Outcome {
        if self.answered > 0 {
            return Outcome::Answered;
        }
        if self.arrived.is_some_and(|arrived| arrived > 0) {
            return Outcome::Arrived;
        }
        match self.state {
            State::Running => Outcome::Pending,
            State::Failed => Outcome::Failed,
            _ if !self.icmp_errors.is_empty() => Outcome::Refused,
            _ if self.arrived.is_some() => Outcome::Lost,
            _ => Outcome::Unanswered,
        }
    }
}

#[derive(Default)]
struct Shared {
    status: Mutex<Status>,
    ended: Condvar,
    stop: AtomicBool,
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, Status> {
        // The status stays consistent after a panic: its fields are independent.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An injection that runs or has ended. Dropping it ends it.
pub struct Injection {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    tracking_id: Option<u64>,
}

impl Injection {
    /// Begins to send.
    ///
    /// # Errors
    /// The packets are impossible, or the interfaces cannot be used.
    pub fn start(job: Job) -> Result<Self, InjectError> {
        job.frames.check(job.count)?;
        let total = job.frames.total(job.count);
        let (first, wanted) = job.frames.tracks(total, job.source.ethernet);
        let expression = expression(&job.frames);
        let there = &job.destination;
        let same = there.as_ref() == Some(&job.source);
        let arrivals = match there {
            // Otherwise the source observes the arrivals itself.
            Some(point) if !same => {
                Some(point.enter(|| Witness::open(point, Directions::Both, &expression))?)
            }
            _ => None,
        };
        let source = &job.source;
        let (sender, answers) = source.enter(|| {
            let answers = Witness::open(source, Directions::Received, &expression)?;
            let sender = PacketSender::open(source.ifindex, &source.name)?;
            Ok((sender.at_network_layer(!source.ethernet), answers))
        })?;
        let shared = Arc::new(Shared::default());
        {
            let mut status = shared.status();
            status.started = unix_ms();
            status.arrived = there.as_ref().map(|_| 0);
        }
        let mut work = Work {
            job,
            total,
            sender,
            answers: Some(answers),
            arrivals,
            same,
            wanted,
            at_source: Observed::default(),
            at_destination: Observed::default(),
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("injection".into())
            .spawn(move || work.run())
            .map_err(InjectError::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
            tracking_id: first,
        })
    }

    /// Tracking identifier of the first packet's conversation.
    pub fn tracking_id(&self) -> Option<u64> {
        self.tracking_id
    }

    /// Its status.
    pub fn status(&self) -> Status {
        self.shared.status().clone()
    }

    /// Ends it soon.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Waits until the injection has ended, at most `patience`, and returns its status.
    pub fn wait(&self, patience: Duration) -> Status {
        let status = self.shared.status();
        let running = |status: &mut Status| status.state == State::Running;
        let waited = self
            .shared
            .ended
            .wait_timeout_while(status, patience, running);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// A pcap expression that lets few other packets through to the witnesses.
fn expression(frames: &Frames) -> String {
    let Frames::Made { template, .. } = frames else {
        return String::new();
    };
    let errors = if template.kind.is_ipv6() {
        "icmp6"
    } else {
        "icmp"
    };
    let (from, to) = (template.addresses.from, template.addresses.to);
    format!("{errors} or (host {from} and host {to})")
}

struct Work {
    job: Job,
    total: u64,
    sender: PacketSender,
    /// At the source.
    answers: Option<Witness>,
    /// At the destination.
    arrivals: Option<Witness>,
    /// Source and destination are one.
    same: bool,
    wanted: BTreeSet<Track>,
    at_source: Observed,
    at_destination: Observed,
    shared: Arc<Shared>,
}

impl Work {
    fn run(&mut self) {
        let ended = self.send_all();
        let stopped = self.stopped();
        let mut status = self.shared.status();
        status.state = match ended {
            Err(error) => {
                status.error = Some(error);
                State::Failed
            }
            Ok(()) if stopped => State::Stopped,
            Ok(()) => State::Done,
        };
        drop(status);
        self.shared.ended.notify_all();
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    fn send_all(&mut self) -> Result<(), String> {
        let least = Duration::from_secs(1) / self.job.rate.max(1);
        let step = self.job.interval.max(least);
        let mut buffer = Vec::new();
        let mut due = Instant::now();
        for number in 0..self.total {
            self.watch_until(due, |_| false);
            if self.stopped() {
                return Ok(());
            }
            let frame = self.job.frames.frame(number, &mut buffer);
            let sent = self.sender.send(frame);
            let mut status = self.shared.status();
            match sent {
                Ok(()) => status.sent += 1,
                Err(error) if is_full(&error) => status.refused += 1,
                Err(error) => {
                    return Err(format!(
                        "{}: packet {} cannot be sent: {error}",
                        self.job.source.name,
                        number + 1
                    ));
                }
            }
            drop(status);
            // A late sender does not catch up: the rate is never exceeded.
            due = (due + step).max(Instant::now());
        }
        let sent = self.shared.status().sent;
        let end = Instant::now() + self.job.patience;
        self.watch_until(end, |work| {
            let arrived = match (work.same, &work.arrivals) {
                (true, _) => work.at_source.sent >= sent,
                (false, Some(_)) => work.at_destination.sent >= sent,
                (false, None) => true,
            };
            arrived && work.at_source.replies() >= sent
        });
        Ok(())
    }

    /// Counts packets until `end`, until it is enough, or until the injection must stop.
    fn watch_until(&mut self, end: Instant, enough: impl Fn(&Self) -> bool) {
        loop {
            self.observe();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stopped() || enough(self) {
                return;
            }
            let wait = left.min(STOP_CHECK);
            let time = Timespec {
                tv_sec: 0,
                tv_nsec: wait.subsec_nanos().into(),
            };
            let witnesses = self.answers.iter().chain(&self.arrivals);
            let mut fds: Vec<_> = witnesses
                .map(|witness| PollFd::from_borrowed_fd(witness.as_fd(), PollFlags::IN))
                .collect();
            // An interrupted poll only wakes up early; other errors are impossible here.
            let _ = poll(&mut fds, Some(&time));
        }
    }

    fn observe(&mut self) {
        let mut blind = None;
        for (witness, seen) in [
            (&mut self.answers, &mut self.at_source),
            (&mut self.arrivals, &mut self.at_destination),
        ] {
            if let Some(open) = witness
                && let Err(error) = open.read_new(&self.wanted, seen)
            {
                // The interface may come up again, but packets missed meanwhile could have arrived.
                blind = Some(error.to_string());
                *witness = None;
            }
        }
        let mut status = self.shared.status();
        if blind.is_some() {
            status.error = blind;
        }
        status.answered = self.at_source.returned;
        status.resets = self.at_source.resets;
        status.icmp_errors.clone_from(&self.at_source.errors);
        if let Some(arrived) = &mut status.arrived {
            *arrived = match self.same {
                true => self.at_source.sent,
                false => self.at_destination.sent,
            };
        }
    }
}

/// Whether the interface refused a packet because its queue is full.
fn is_full(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let codes = [Errno::NOBUFS, Errno::AGAIN];
    codes
        .iter()
        .any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

impl Mode {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::Random => "random",
            Self::Increment => "increment",
        }
    }
}
