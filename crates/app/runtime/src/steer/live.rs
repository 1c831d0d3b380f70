//! What is known of a detector that runs.

use skua_kernel::{
    HookKind,
    steer::{Event, Steering, Target},
};
use std::collections::VecDeque;

/// Events that are remembered of each.
const EVENTS: usize = 1_000;

/// Its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// The worker searches it.
    Starting,
    /// Its interface is not there.
    Waiting(String),
    /// It runs, but packets cannot be sent where they should: they pass.
    NoTarget(String),
    /// It runs.
    Active,
    /// It cannot be loaded or attached.
    Failed(String),
}

impl State {
    /// Whether it may change in a moment without a notification.
    pub fn is_to_be_tried_again(&self) -> bool {
        matches!(self, Self::NoTarget(_) | Self::Failed(_))
    }

    /// In a word, and why.
    pub fn name_and_reason(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Starting => ("starting", None),
            Self::Waiting(why) => ("waiting", Some(why)),
            Self::NoTarget(why) => ("no target", Some(why)),
            Self::Active => ("active", None),
            Self::Failed(why) => ("failed", Some(why)),
        }
    }
}

/// What is known of it.
pub struct Live {
    /// The program, once it is loaded.
    pub steering: Option<Steering>,
    /// Its status.
    pub state: State,
    /// How it is attached.
    pub hook: Option<HookKind>,
    /// Where packets go now.
    pub target: Option<Target>,
    /// Whether it stays attached when this process is killed.
    pub outlives: bool,
    /// How often the target went away.
    pub target_losses: u64,
    /// The latest events, with when they were ns since the Unix epoch.
    events: VecDeque<(u64, Event)>,
    /// Events before those.
    forgotten: u64,
}

impl Live {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            steering: None,
            state: State::Starting,
            hook: None,
            target: None,
            outlives: false,
            target_losses: 0,
            events: VecDeque::new(),
            forgotten: 0,
        }
    }

    /// Takes the events that the program has sent.
    pub fn take_events(&mut self) {
        let Some(steering) = &mut self.steering else {
            return;
        };
        let offset = skua_kernel::unix_offset_ns();
        let (events, forgotten) = (&mut self.events, &mut self.forgotten);
        let taken = steering.events(|event| {
            if events.len() == EVENTS {
                events.pop_front();
                *forgotten += 1;
            }
            events.push_back((event.time_ns.saturating_add_signed(offset), event));
        });
        if let Err(error) = taken {
            tracing::warn!(%error, "events of a detector cannot be read");
        }
    }

    /// Events from a number on, and the number that the next one will have. Those that are
    /// forgotten are passed over.
    pub fn events_since(&self, since: u64) -> (impl Iterator<Item = (u64, &(u64, Event))>, u64) {
        let skip = usize::try_from(since.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        let numbers = self.forgotten..;
        let next = self.forgotten + self.events.len() as u64;
        (numbers.zip(&self.events).skip(skip), next)
    }
}
