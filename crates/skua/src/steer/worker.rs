//! The thread of a detector: finds its interfaces again when they come back, tells the program where
//! packets go and that we are there, and takes its events.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_kernel::{Attachment, flow::LinkKind, steer::Steering};
use skua_link::Link;
use skua_steer::{Detector, WhenLost};

use super::{
    live::{Live, State},
    place::{Place, link_kind},
};

/// How often it is looked whether a namespace is there, or what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at the events.
const EVENT_PAUSE: Duration = Duration::from_millis(50);
/// Heartbeats in the time after which user space counts as gone.
const BEATS: u32 = 3;

/// A detector that runs. Dropping it detaches it.
pub struct Running {
    live: Arc<Mutex<Live>>,
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
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
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("steer".into())
            .spawn(move || worker.run(&tell))?;
        // An error is that it ended at once; its state says why.
        let _ = told.recv();
        Ok(Self {
            live,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// What is known of it.
    pub fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Worker {
    detector: Detector,
    live: Arc<Mutex<Live>>,
    place: Option<Place>,
    /// To which interface.
    attached: Option<(u32, Attachment)>,
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
    fn run(mut self, tell: &mpsc::Sender<()>) {
        let mut look = true;
        let mut looked_at_events = Instant::now();
        loop {
            if look {
                let state = self.look();
                self.change(state);
                let _ = tell.send(());
            }
            if let Some(steering) = &lock(&self.live).steering {
                steering.beat();
            }
            let events = looked_at_events.elapsed() >= EVENT_PAUSE;
            let ready = match self.wait(events) {
                Ok(ready) => ready,
                Err(error) => return self.change(State::Failed(format!("{error:#}"))),
            };
            if ready.stop {
                break;
            }
            if ready.events {
                lock(&self.live).take_events();
                looked_at_events = Instant::now();
            }
            let gone = self.place.as_ref().is_some_and(|place| !place.is_there());
            if gone {
                self.attached = None;
                self.place = None;
            }
            let state = lock(&self.live).state.clone();
            let restless = state.is_to_be_tried_again() || self.place.is_none();
            look = ready.links || gone || restless;
        }
        lock(&self.live).take_events();
    }

    /// Keeps how it fares, and says so when it is other than before.
    fn change(&self, state: State) {
        let mut live = lock(&self.live);
        if live.state == state {
            return;
        }
        let name = &self.detector.name;
        let (word, why) = state.told();
        match &state {
            State::Active | State::Starting => tracing::info!(detector = name, "{word}"),
            _ => tracing::warn!(detector = name, why = why.unwrap_or_default(), "{word}"),
        }
        if matches!((&live.state, &state), (State::Active, State::NoTarget(_))) {
            live.target_losses += 1;
        }
        live.state = state;
    }

    /// Longest time without a look.
    fn patience(&self) -> Option<Duration> {
        let named = self.place.as_ref().is_none_or(Place::is_named);
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
            // They may be there: we look again in a moment.
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

    /// Brings everything into the state that the interfaces have.
    fn look(&mut self) -> State {
        match self.find() {
            Ok(Ok(())) => State::Active,
            Ok(Err(state)) => state,
            Err(error) => State::Failed(format!("{error:#}")),
        }
    }

    fn find(&mut self) -> anyhow::Result<Result<(), State>> {
        let place = match &mut self.place {
            Some(place) => place,
            None => match Place::open(&self.detector.netns) {
                Ok(place) => self.place.insert(place),
                Err(error) => return Ok(Err(State::Waiting(format!("{error:#}")))),
            },
        };
        let gone = place.changes()?;
        if let Some((ifindex, _)) = &self.attached
            && gone.contains(ifindex)
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
        if matches!(&self.attached, Some((ifindex, _)) if *ifindex == link.ifindex) {
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
        live.hook = Some(attachment.kind());
        self.attached = Some((ifindex, attachment));
        Ok(())
    }

    /// Tells the program where packets go; the error is why they cannot.
    fn set_target(&self, links: &[Link]) -> anyhow::Result<Result<(), String>> {
        let action = &self.detector.action;
        let (Some(destination), Some(place)) = (action.destination(), &self.place) else {
            return Ok(Ok(()));
        };
        let found = place.target(action, destination, links);
        let mut live = lock(&self.live);
        let target = found.as_ref().ok().copied();
        if live.target != target
            && let Some(steering) = &live.steering
        {
            steering.set_target(target.as_ref())?;
            live.target = target;
        }
        Ok(found.map(drop).map_err(|error| format!("{error:#}")))
    }
}
