//! Detectors in the kernel: loading and attaching the program, renewing its watchdog, setting its
//! destinations, and reading its state.

mod device;
mod layout;
mod pins;

pub use device::{Device, Finder};
pub use pins::{Pins, release};

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
    sync::atomic::Ordering::{Relaxed, Release},
};

use libbpf_rs::{MapCore as _, MapFlags};
use skua_filter::{Filter, LinkType};
use skua_steer::{Cause, Channel, Detector, Order, Sample};

use crate::bindings::steer as c;
use crate::{
    Attachment, Direction, HookKind, KernelError,
    budget::Purpose,
    clock,
    embedded::{self, Loaded, object},
    flow::{LinkKind, Rung, filter::FilterProgram},
    grace::Grace,
    mapping::Window,
    ring::Ring,
    ticks::Ticks,
};
use layout::{Control, Plain as _, Settings, SteerChannel, SteerEvent, SteerSample};

/// Bytes of the ring of events.
const EVENT_RING: u32 = 1 << 18;
/// Channels that are read at a time.
const BATCH: u32 = 256;

/// What the programs need, as users see it.
pub const NEEDS: &str = "tc programs with redirect to peers (5.12)";

/// Result of loading the program on this kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// By which hook it is attached.
    pub hook: HookKind,
    /// Whether it sees for itself that its target is down.
    pub sees_target: bool,
}

impl Trial {
    /// In words.
    pub fn describe(self) -> String {
        let target = match self.sees_target {
            true => "sees its target go down",
            false => "gets notice when its target goes down",
        };
        format!("by {}, {target}", self.hook.name())
    }
}

/// Whether the kernel accepts the program: it is loaded, and attached to loopback of a network namespace of
/// its own.
///
/// # Errors
///
/// The reason of the refusal.
pub fn trial() -> Result<Trial, KernelError> {
    const DETECTOR: &str =
        "{name: trial, interface: lo, preset: ewma-64, match: '', action: {redirect: {to: any}}}";
    let detectors =
        skua_steer::parse(DETECTOR).map_err(|_| KernelError::Missing("a detector to try"))?;
    let detector = detectors
        .first()
        .ok_or(KernelError::Missing("a detector"))?;
    let steering = Steering::load(detector, LinkKind::Ethernet)?;
    let program = steering.program()?;
    let attached = std::thread::scope(|scope| {
        let try_hooks = || {
            crate::private_network::enter()?;
            const LOOPBACK: u32 = 1;
            let by = |hook| {
                Attachment::in_passing_namespace(program, LOOPBACK, Direction::Ingress, hook)
            };
            by(HookKind::Tcx).or_else(|_| by(HookKind::Clsact))
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, try_hooks);
        let thread = thread.map_err(|source| KernelError::System {
            what: "cannot start a thread",
            source,
        })?;
        thread
            .join()
            .unwrap_or(Err(KernelError::Missing("the thread of a trial")))
    })?;
    Ok(Trial {
        hook: attached.kind(),
        sees_target: steering.finder().is_some(),
    })
}

/// Where packets are sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Index of the interface, in the namespace where the program is attached.
    pub ifindex: u32,
    /// Into the other end of it, which is a veth in another namespace; else out of the interface.
    pub peer: bool,
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// It is a veth: it takes packets only while its other end is up.
    pub veth: bool,
    /// Where the program sees whether it is up ([`Finder::find`]).
    pub device: Device,
}

/// A channel fired, or does not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Its number.
    pub channel: u32,
    /// It fired.
    pub fired: bool,
    /// The sample, fixed point.
    pub value: i64,
    /// The average before.
    pub before: i64,
    /// The average with it.
    pub after: i64,
    /// Samples of the channel so far.
    pub count: u64,
}

/// What happened to samples for which the detector stood fired, in the order of `bpf/steer/steer.h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ActionResult {
    /// The action was done.
    Acted,
    /// There was none to do: report, or a dry run.
    Reported,
    /// The target is not there.
    NoTarget,
    /// The packet is longer than the target takes.
    TooLong,
    /// It could not be rewritten or sent.
    Refused,
    /// User space has not answered for too long.
    Unwatched,
}

impl ActionResult {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::Acted,
        Self::Reported,
        Self::NoTarget,
        Self::TooLong,
        Self::Refused,
        Self::Unwatched,
    ];

    /// Name in answers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acted => "acted",
            Self::Reported => "reported",
            Self::NoTarget => "no_target",
            Self::TooLong => "too_long",
            Self::Refused => "refused",
            Self::Unwatched => "unwatched",
        }
    }
}

/// What happened to packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The expression was true for them: each was sampled or untouched by one cause.
    pub matched: u64,
    /// Samples.
    pub sampled: u64,
    /// Packets left as they were, by cause; all causes are there.
    pub untouched: BTreeMap<Cause, u64>,
    /// Samples for which the detector stood fired: each is in one of `results`.
    pub fired: u64,
    /// What happened to those; all are there.
    pub results: BTreeMap<ActionResult, u64>,
    /// Events beyond the limit.
    pub events_lost: u64,
}

/// A detector, loaded. Dropping it frees the maps; attachments are separate.
pub struct Steering {
    object: Loaded,
    filter: Option<FilterProgram>,
    control: Window<Control>,
    events: Ring,
    grace: Grace,
    depth: usize,
    finder: Option<&'static Finder>,
}

impl Steering {
    /// Loads the programs of a detector for interfaces of this link type.
    ///
    /// # Errors
    ///
    /// The kernel rejects them, or the expression needs a header that this link type lacks.
    pub fn load(detector: &Detector, link: LinkKind) -> Result<Self, KernelError> {
        let sends = detector.action.destination().is_some() && !detector.dry_run;
        let finder = sends.then(Finder::get).flatten();
        // A kernel that is locked down lets no program read its memory.
        let device = finder.and_then(|finder| {
            let object = load_object(detector, link, true).ok()?;
            Some((object, finder))
        });
        let (object, finder) = match device {
            Some((object, finder)) => (object, Some(finder)),
            None => (load_object(detector, link, false)?, None),
        };
        let link_type = match link {
            LinkKind::Ethernet => LinkType::Ethernet,
            LinkKind::Ip => LinkType::RawIp,
        };
        let filter = match detector.expression.as_str() {
            "" => None,
            expression => {
                let filter = Filter::compile(expression, link_type)?;
                Some(FilterProgram::before(
                    &filter,
                    Rung::TcSwap,
                    program(&object)?,
                    Purpose::Any,
                )?)
            }
        };
        let steering = Self {
            control: Window::map(map(&object, "control")?.as_fd(), 0, 1)?,
            events: Ring::new(
                map(&object, "events")?.as_fd(),
                EVENT_RING,
                size_of::<SteerEvent>(),
            )?,
            grace: Grace::new()?,
            depth: detector.ring as usize,
            filter,
            object,
            finder,
        };
        steering.beat();
        Ok(steering)
    }

    /// The program that packets are given to: that of the expression, when there is one.
    ///
    /// # Errors
    ///
    /// The build is damaged.
    pub fn program(&self) -> Result<BorrowedFd<'_>, KernelError> {
        match &self.filter {
            Some(filter) => Ok(filter.as_fd()),
            None => program(&self.object),
        }
    }

    /// The program behind that of the expression.
    ///
    /// # Errors
    ///
    /// The build is damaged.
    pub fn bare_program(&self) -> Result<BorrowedFd<'_>, KernelError> {
        program(&self.object)
    }

    /// Finds the state of targets for [`Target::device`]; none where programs cannot read it.
    pub fn finder(&self) -> Option<&'static Finder> {
        self.finder
    }

    fn state(&self) -> Option<&Control> {
        self.control.elements().first()
    }

    /// Says that user space is there.
    pub fn beat(&self) {
        if let Some(control) = self.state() {
            control.heartbeat.store(clock::monotonic_ns(), Relaxed);
        }
    }

    /// Sets where packets are sent; none: they take their usual way. When this returns, no packet goes to
    /// the previous target.
    ///
    /// # Errors
    ///
    /// Waiting for running programs failed.
    pub fn set_target(&self, target: Option<&Target>) -> Result<(), KernelError> {
        let Some(control) = self.state() else {
            return Ok(());
        };
        // No program may see the MAC addresses of one target with the index of another.
        control.target.store(0, Relaxed);
        self.grace.wait()?;
        let Some(target) = target else {
            return Ok(());
        };
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&target.destination);
        macs[6..].copy_from_slice(&target.source);
        for (place, bytes) in control.macs.iter().zip(macs.as_chunks::<4>().0) {
            place.store(u32::from_ne_bytes(*bytes), Relaxed);
        }
        control.peer.store(target.peer.into(), Relaxed);
        let (flags, state) = target.device.what_counts(target.peer);
        for (place, flags) in control.flags.iter().zip(flags) {
            place.store(flags, Relaxed);
        }
        control.state.store(state, Relaxed);
        control.target.store(target.ifindex, Release);
        Ok(())
    }

    /// Sums of all CPUs.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn counts(&self) -> Result<Counts, KernelError> {
        let per_cpu = map(&self.object, "counters")?
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| failed("cannot read counters of a detector", &error))?
            .unwrap_or_default();
        let mut sums = [0u64; c::STEER_COUNTS as usize];
        for bytes in &per_cpu {
            for (sum, word) in sums.iter_mut().zip(bytes.chunks_exact(8)) {
                *sum += word
                    .first_chunk()
                    .map_or(0, |word| u64::from_ne_bytes(*word));
            }
        }
        let of = |count: u32| sums[count as usize];
        let causes = sums[c::STEER_AGGREGATED as usize..].iter().copied();
        let results = sums[c::STEER_ACTED as usize..].iter().copied();
        Ok(Counts {
            matched: of(c::STEER_MATCHED),
            sampled: of(c::STEER_SAMPLED),
            untouched: Cause::ALL.into_iter().zip(causes).collect(),
            fired: of(c::STEER_FIRED),
            results: ActionResult::ALL.into_iter().zip(results).collect(),
            events_lost: of(c::STEER_EVENTS_LOST),
        })
    }

    /// State of a channel; none when there is no such channel. Programs write meanwhile: average and
    /// whether it stands fired are of one moment, the rest may be of the next.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn channel(&self, number: u32) -> Result<Option<Channel>, KernelError> {
        let key = number.to_ne_bytes();
        let read = |name| {
            map(&self.object, name)?
                .lookup(&key, MapFlags::ANY)
                .map_err(|error| failed("cannot read a channel of a detector", &error))
        };
        let Some(state) = read("channels")? else {
            return Ok(None);
        };
        let Some(mut channel) = SteerChannel::read(&state).map(Channel::from) else {
            return Ok(None);
        };
        if channel.count > 0 {
            let ring = read("rings")?.unwrap_or_default();
            channel.ring = read_ring(&ring, self.depth);
        }
        Ok(Some(channel))
    }

    /// State of all channels that have had samples, without their rings.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn channels(&self) -> Result<Vec<(u32, Channel)>, KernelError> {
        let map = map(&self.object, "channels")?;
        let mut found = Vec::new();
        let all = map
            .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(|error| failed("cannot read channels of a detector", &error))?;
        for (key, state) in all {
            let number = key.first_chunk().map(|key| u32::from_ne_bytes(*key));
            let channel = SteerChannel::read(&state).map(Channel::from);
            found.extend(number.zip(channel).filter(|(_, channel)| channel.count > 0));
        }
        Ok(found)
    }

    /// Hands out the pending events.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn events(&mut self, mut sink: impl FnMut(Event)) -> Result<(), KernelError> {
        let mut read = |bytes: &[u8]| {
            if let Some(event) = SteerEvent::read(bytes) {
                sink(event.into());
            }
        };
        while self.events.drain(&mut read)? {}
        Ok(())
    }

    /// Readable when there are events.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.events.wake()
    }

    /// Kernel memory of each map.
    pub fn map_memory(&self) -> Vec<(String, u64)> {
        embedded::map_memory(&self.object)
    }
}

fn load_object(
    detector: &Detector,
    link: LinkKind,
    checks_target: bool,
) -> Result<Loaded, KernelError> {
    let settings = Settings::new(detector, link, checks_target, Ticks::measured()?);
    let ring_bytes = detector.ring * size_of::<SteerSample>() as u32;
    embedded::load(
        ("steer", object!("steer")),
        settings.bytes(),
        None,
        |open| {
            for mut map in open.maps_mut() {
                match map.name().to_str() {
                    Some("channels") => map.set_max_entries(detector.channels)?,
                    Some("rings") => {
                        map.set_max_entries(detector.channels)?;
                        map.set_value_size(ring_bytes)?;
                    }
                    Some("events") => map.set_max_entries(EVENT_RING)?,
                    _ => {}
                }
            }
            Ok(())
        },
    )
}

/// Attaches a program ([`Steering::program`]) to what an interface of the calling thread's namespace
/// receives: by tcx, or where there is none, by clsact.
///
/// # Errors
///
/// The kernel's reason for refusing the last.
pub fn attach(
    program: BorrowedFd<'_>,
    order: Order,
    ifindex: u32,
) -> Result<Attachment, KernelError> {
    let tcx = match order {
        Order::Last => Attachment::last(program, ifindex, Direction::Ingress),
        Order::First => Attachment::new(program, ifindex, Direction::Ingress, HookKind::Tcx),
    };
    match tcx {
        Ok(attachment) => Ok(attachment),
        Err(error) => {
            tracing::info!(%error, "no tcx, clsact is tried");
            Attachment::new(program, ifindex, Direction::Ingress, HookKind::Clsact)
        }
    }
}

fn failed(what: &'static str, error: &libbpf_rs::Error) -> KernelError {
    KernelError::System {
        what,
        source: std::io::Error::other(error.to_string()),
    }
}

fn map<'a>(object: &'a Loaded, name: &'static str) -> Result<libbpf_rs::Map<'a>, KernelError> {
    let mut maps = object.maps();
    maps.find(|map| map.name() == name)
        .ok_or(KernelError::Missing(name))
}

fn program(object: &Loaded) -> Result<BorrowedFd<'_>, KernelError> {
    object
        .progs()
        .find(|program| program.name() == "steer")
        // SAFETY: the descriptor lives as long as the object, which the result borrows; the
        // temporary `Program` does not own it.
        .map(|program| unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) })
        .ok_or(KernelError::Missing("steer"))
}

impl From<SteerChannel> for Channel {
    /// Without its ring. The word is explained in `bpf/steer/judge.h`.
    fn from(channel: SteerChannel) -> Self {
        const PHASE_BITS: u32 = 7;
        const FIRED: i64 = 65;
        let word = channel.word.cast_signed();
        Self {
            count: channel.count,
            fired: channel.fired,
            until: channel.until,
            ewma: word >> PHASE_BITS,
            active: word & ((1 << PHASE_BITS) - 1) == FIRED,
            ring: Vec::new(),
        }
    }
}

fn read_ring(bytes: &[u8], depth: usize) -> Vec<Sample> {
    let samples = bytes.chunks_exact(size_of::<SteerSample>());
    let samples = samples.filter_map(SteerSample::read).take(depth);
    samples
        .map(|sample| Sample {
            time_ns: sample.time,
            value: sample.value,
        })
        .collect()
}

impl From<SteerEvent> for Event {
    fn from(event: SteerEvent) -> Self {
        Self {
            time_ns: event.time,
            value: event.value,
            before: event.before,
            after: event.after,
            count: event.count,
            channel: event.channel,
            fired: event.fired != 0,
        }
    }
}
