//! The thread of a detector: finds its interfaces again when they come back, writes into the program's map where
//! packets go and that we are there, and takes its events.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_kernel::{
    Attachment,
    flow::LinkKind,
    steer::{Pins, Steering, Target},
};
use skua_link::Link;
use skua_steer::{Action, Detector, WhenLost};

use crate::steer::{
    live::{Live, State},
    namespace::{DetectorNamespace, link_kind},
};

/// Time until the thread checks again whether a namespace is there, or tries again what failed.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between two reads of the events.
const EVENT_PAUSE: Duration = Duration::from_millis(50);
/// Heartbeats in the time after which user space counts as gone.
const BEATS: u32 = 3;

/// A detector that runs. Dropping it detaches it.
pub struct Running {
    live: Arc<Mutex<Live>>,
    /// Closing the socket ends the thread.
    thread: Mutex<Option<(UnixStream, JoinHandle<()>)>>,
}

impl Running {
    /// Starts it, and returns when it is attached or waits for what is not there.
    pub fn start(detector: &Detector) -> anyhow::Result<Self> {
        let (stopped, stop) = UnixStream::pair().context("cannot make a socket pair")?;
        let live = Arc::new(Mutex::new(Live::new()));
        let worker = Worker {
            detector: detector.clone(),
            live: live.clone(),
            place: None,
            attached: None,
            kind: None,
            wake: None,
            stopped,
        };
        let (started, first_state) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("steer".into())
            .spawn(move || worker.run(&started))?;
        // An error is that it ended at once; its state says why.
        let _ = first_state.recv();
        Ok(Self {
            live,
            thread: Mutex::new(Some((stop, thread))),
        })
    }

    /// Detaches it; when this returns, it does nothing any more.
    pub fn end(&self) {
        let thread = self.thread.lock();
        if let Some((stop, thread)) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            drop(stop);
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }

    /// What is known of it.
    pub fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How it is attached.
struct Attached {
    /// To which interface.
    ifindex: u32,
    _attachment: Attachment,
    /// What keeps it there when this process is killed.
    _pins: Option<Pins>,
}

struct Worker {
    detector: Detector,
    live: Arc<Mutex<Live>>,
    place: Option<DetectorNamespace>,
    attached: Option<Attached>,
    /// What the program was loaded for.
    kind: Option<LinkKind>,
    /// Readable when there are events.
    wake: Option<OwnedFd>,
    /// At its end when it is to end.
    stopped: UnixStream,
}

/// What is to be done.
#[derive(Default)]
struct Ready {
    stop: bool,
    links: bool,
    events: bool,
}

impl Worker {
    fn run(mut self, started: &mpsc::Sender<()>) {
        let mut due = true;
        let mut events_read = Instant::now();
        loop {
            if due {
                let state = self.reconcile();
                self.change(state);
                let _ = started.send(());
            }
            if let Some(steering) = &lock(&self.live).steering {
                steering.beat();
            }
            let events = events_read.elapsed() >= EVENT_PAUSE;
            let ready = match self.wait(events) {
                Ok(ready) => ready,
                Err(error) => return self.change(State::Failed(format!("{error:#}"))),
            };
            if ready.stop {
                break;
            }
            if ready.events {
                lock(&self.live).take_events();
                events_read = Instant::now();
            }
            let gone = self.place.as_ref().is_some_and(|place| !place.is_there());
            if gone {
                self.attached = None;
                self.place = None;
            }
            let state = lock(&self.live).state.clone();
            let restless = state.is_to_be_tried_again() || self.place.is_none();
            due = ready.links || gone || restless;
        }
        lock(&self.live).take_events();
    }

    /// Keeps its status, and says so when it is other than before.
    fn change(&self, state: State) {
        let mut live = lock(&self.live);
        if live.state == state {
            return;
        }
        let name = &self.detector.name;
        let (word, why) = state.name_and_reason();
        match &state {
            State::Active | State::Starting => tracing::info!(detector = name, "{word}"),
            _ => tracing::warn!(detector = name, why = why.unwrap_or_default(), "{word}"),
        }
        if matches!((&live.state, &state), (State::Active, State::NoTarget(_))) {
            live.target_losses += 1;
        }
        live.state = state;
    }

    /// Longest time until the next round.
    fn patience(&self) -> Option<Duration> {
        let named = self.place.as_ref().is_none_or(DetectorNamespace::is_named);
        let failed = lock(&self.live).state.is_to_be_tried_again();
        let again = (named || failed).then_some(AGAIN);
        let watchdog = self.detector.watchdog;
        let beat = match watchdog.when_lost {
            WhenLost::Release => Some(watchdog.after / BEATS),
            WhenLost::Stay => None,
        };
        again.into_iter().chain(beat).min()
    }

    fn wait(&self, events: bool) -> anyhow::Result<Ready> {
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        let place = self.place.as_ref().map(|place| {
            fds.push(PollFd::new(place, PollFlags::IN));
            fds.len() - 1
        });
        let mut patience = self.patience();
        let wake = match &self.wake {
            Some(wake) if events => {
                fds.push(PollFd::new(wake, PollFlags::IN));
                Some(fds.len() - 1)
            }
            // They may be there: the next round comes in a moment.
            Some(_) => {
                patience = Some(patience.map_or(EVENT_PAUSE, |p| p.min(EVENT_PAUSE)));
                None
            }
            None => None,
        };
        let timeout = patience.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait"),
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ok(Ready {
            stop: is_ready(0),
            links: place.is_some_and(is_ready),
            events: wake.is_some_and(is_ready),
        })
    }

    /// Loads, attaches and aims the program as the interfaces are now.
    fn reconcile(&mut self) -> State {
        match self.find() {
            Ok(Ok(())) => State::Active,
            Ok(Err(state)) => state,
            Err(error) => State::Failed(format!("{error:#}")),
        }
    }

    fn find(&mut self) -> anyhow::Result<Result<(), State>> {
        let place = match &mut self.place {
            Some(place) => place,
            None => match DetectorNamespace::open(&self.detector.netns) {
                Ok(place) => self.place.insert(place),
                Err(error) => return Ok(Err(State::Waiting(format!("{error:#}")))),
            },
        };
        let gone = place.changes()?;
        if let Some(attached) = &self.attached
            && gone.contains(&attached.ifindex)
        {
            self.attached = None;
        }
        let links = place.links()?;
        let wanted = &self.detector.interface;
        let Some(link) = links.iter().find(|link| link.name == *wanted) else {
            self.attached = None;
            let why = format!("{wanted} is not there");
            return Ok(Err(State::Waiting(why)));
        };
        self.load(link)?;
        // First the target: nothing is lost that fires at once.
        let target = self.set_target(&links)?;
        self.attach(link)?;
        Ok(target.map_err(State::NoTarget))
    }

    /// Loads the program. It keeps what it knows when its interface goes and comes back.
    fn load(&mut self, link: &Link) -> anyhow::Result<()> {
        let kind = link_kind(&self.detector, link)?;
        if self.kind == Some(kind) {
            return Ok(());
        }
        self.attached = None;
        let steering = Steering::load(&self.detector, kind)?;
        self.wake = Some(steering.wake().try_clone_to_owned()?);
        let mut live = lock(&self.live);
        live.steering = Some(steering);
        live.target = None;
        self.kind = Some(kind);
        Ok(())
    }

    fn attach(&mut self, link: &Link) -> anyhow::Result<()> {
        let attached = self.attached.as_ref();
        if attached.is_some_and(|attached| attached.ifindex == link.ifindex) {
            return Ok(());
        }
        self.attached = None;
        let mut live = lock(&self.live);
        let (Some(steering), Some(place)) = (&live.steering, &self.place) else {
            return Ok(());
        };
        let program = steering.program()?;
        let (order, ifindex) = (self.detector.order, link.ifindex);
        let attachment = place.enter(|| skua_kernel::steer::attach(program, order, ifindex))??;
        let pins = self.pin(steering, &attachment);
        live.hook = Some(attachment.kind());
        live.outlives = pins.is_some();
        self.attached = Some(Attached {
            ifindex,
            _attachment: attachment,
            _pins: pins,
        });
        Ok(())
    }

    /// Keeps it attached when this process is killed, if that is asked.
    fn pin(&self, steering: &Steering, attachment: &Attachment) -> Option<Pins> {
        let Detector {
            name,
            action,
            watchdog,
            dry_run,
            ..
        } = &self.detector;
        let stays = watchdog.when_lost == WhenLost::Stay;
        if !stays || *dry_run || *action == Action::Report {
            return None;
        }
        Pins::new(name, steering, attachment)
            .inspect_err(|error| {
                tracing::warn!(detector = name, %error, "it will not outlive this process");
            })
            .ok()
    }

    /// Tells the program where packets go; the error is why they cannot.
    fn set_target(&self, links: &[Link]) -> anyhow::Result<Result<(), String>> {
        let action = &self.detector.action;
        let (Some(destination), Some(place)) = (action.destination(), &self.place) else {
            return Ok(Ok(()));
        };
        let found = place.target(action, destination, links);
        let mut live = lock(&self.live);
        let finder = live.steering.as_ref().and_then(Steering::finder);
        let target = match (&found, finder) {
            (Ok(target), Some(finder)) => Some(Target {
                // Not known is well: netlink reports when it goes down.
                device: place
                    .enter(|| finder.find(target.ifindex, target.veth))?
                    .unwrap_or_default(),
                ..*target
            }),
            (Ok(target), None) => Some(*target),
            (Err(_), _) => None,
        };
        if live.target != target
            && let Some(steering) = &live.steering
        {
            steering.set_target(target.as_ref())?;
            live.target = target;
        }
        Ok(found.map(drop).map_err(|error| format!("{error:#}")))
    }
}
