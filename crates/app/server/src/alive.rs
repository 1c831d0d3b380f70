//! `/health`: whether the process does its work and answers requests; `/ready`: whether it has started to. For
//! supervisors, without a login. Neither waits for a drain or a turn; a thread of its own, one at a time, tries to read the
//! state, for which an answer waits no more than half a second.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::extract::State;
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    answer::Answer,
    error::{ApiError, ErrorCode},
    work,
};

/// Where they are.
pub const PATHS: [&str; 2] = ["/health", "/ready"];

/// How late a drain may be beyond three intervals: large tables on busy machines.
const GRACE: Duration = Duration::from_secs(60);

/// Whether drains happen on time.
pub struct Drains {
    seen: watch::Receiver<u64>,
    most: Duration,
    /// The last number of drains, and when it was first read.
    last: Mutex<(u64, Instant)>,
}

impl Drains {
    /// For a probe that drains each `interval`.
    pub fn new(seen: watch::Receiver<u64>, interval: Duration) -> Self {
        let now = *seen.borrow();
        Self {
            seen,
            most: interval.saturating_mul(3).saturating_add(GRACE),
            last: Mutex::new((now, Instant::now())),
        }
    }

    /// Whether there was a drain.
    fn have_begun(&self) -> bool {
        *self.seen.borrow() > 0
    }

    /// Time without a drain, if it is too long.
    fn late(&self, now: Instant) -> Option<Duration> {
        let seen = *self.seen.borrow();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != seen {
            *last = (seen, now);
        }
        let silence = now.saturating_duration_since(last.1);
        (silence > self.most).then_some(silence)
    }
}

/// Whether the state can be read, as every request has to that is about flows or sockets.
pub struct Readable {
    read: Arc<dyn Fn() + Send + Sync>,
    /// When the present attempt began, if there is one: at most one thread waits for the state.
    since: Arc<Mutex<Option<Instant>>>,
}

impl Readable {
    /// `read` locks the state, and may wait for it.
    pub fn new(read: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            read: Arc::new(read),
            since: Arc::default(),
        }
    }

    /// For how long the state could not be read, if that is too long.
    async fn locked(&self) -> Option<Duration> {
        let attempt =
            |since: &Mutex<Option<Instant>>| *since.lock().unwrap_or_else(PoisonError::into_inner);
        if attempt(&self.since).is_none() {
            let (read, since) = (self.read.clone(), self.since.clone());
            *since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            let reading = tokio::task::spawn_blocking(move || {
                read();
                *since.lock().unwrap_or_else(PoisonError::into_inner) = None;
            });
            // Longer than a drain of a large table takes; supervisors wait no less for an answer.
            let _ = tokio::time::timeout(SHORT, reading).await;
        }
        let silence = attempt(&self.since)?.elapsed();
        (silence >= LOCKED).then_some(silence)
    }
}

/// How long one answer waits for the state.
const SHORT: Duration = Duration::from_millis(500);
/// The state is locked: no reader waits so long otherwise.
const LOCKED: Duration = Duration::from_secs(10);

/// What the health of a process is known by.
#[derive(Default)]
pub struct Signs {
    /// Of processes that watch a host.
    pub drains: Option<Drains>,
    /// Of processes with a state.
    pub state: Option<Readable>,
}

impl Signs {
    /// Why it does not do its work, if that is so.
    async fn fault(&self) -> Option<String> {
        let now = Instant::now();
        if let Some(silence) = self.drains.as_ref().and_then(|drains| drains.late(now)) {
            return Some(format!("nothing was drained for {} s", silence.as_secs()));
        }
        // A request of nobody, whose turns are those of all.
        if let Some((turns, _)) = work::client()
            && let Some(blocked) = turns.blocked(now)
        {
            let seconds = blocked.as_secs();
            return Some(format!(
                "requests are refused: no work has ended for {seconds} s"
            ));
        }
        let locked = self.state.as_ref()?.locked().await?;
        let seconds = locked.as_secs();
        Some(format!("the state could not be read for {seconds} s"))
    }
}

/// The routes.
pub fn routes(signs: Signs) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .with_state(Arc::new(signs))
}

type Watched = State<Arc<Signs>>;

/// The process is healthy.
#[derive(Serialize, ToSchema)]
struct Health {
    /// Always `ok`; else the status is 503.
    status: &'static str,
}

/// Whether it does its work and answers requests, for supervisors; needs no login
#[utoipa::path(get, path = "/health", tag = "server", security(()), responses((status = 200, description = "It does", body = Health)))]
async fn health(State(signs): Watched) -> Result<Answer<Health>, ApiError> {
    match signs.fault().await {
        None => Ok(Answer::of(&Health { status: "ok" })),
        Some(fault) => Err(ApiError::new(ErrorCode::Unavailable, fault)),
    }
}

/// Whether it has begun to do its work, for supervisors; needs no login
#[utoipa::path(get, path = "/ready", tag = "server", security(()), responses((status = 200, description = "It has", body = Health)))]
async fn ready(State(signs): Watched) -> Result<Answer<Health>, ApiError> {
    match &signs.drains {
        Some(drains) if !drains.have_begun() => Err(ApiError::new(
            ErrorCode::Unavailable,
            "nothing was drained yet",
        )),
        _ => health(State(signs)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_not_drained_for_three_intervals_and_a_minute_is_late() {
        let (sender, seen) = watch::channel(0);
        let drains = Drains::new(seen, Duration::from_secs(10));
        let begin = drains.last.lock().unwrap().1;
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(drains.late(after(90)), None);
        assert_eq!(drains.late(after(91)), Some(Duration::from_secs(91)));
        sender.send_modify(|drains| *drains += 1);
        assert_eq!(drains.late(after(92)), None);
        assert_eq!(drains.late(after(182)), None);
        assert_eq!(drains.late(after(183)), Some(Duration::from_secs(91)));
    }

    #[tokio::test]
    async fn a_process_is_ready_after_its_first_drain() {
        let (sender, seen) = watch::channel(0);
        let signs = Arc::new(Signs {
            drains: Some(Drains::new(seen, Duration::from_secs(10))),
            state: None,
        });
        let refused = ready(State(signs.clone())).await.map(|_| ());
        assert_eq!(refused.unwrap_err().code, ErrorCode::Unavailable);
        assert!(health(State(signs.clone())).await.is_ok());
        sender.send_modify(|drains| *drains += 1);
        assert!(ready(State(signs.clone())).await.is_ok());
        // A process that watches no host is ready when it answers.
        assert!(ready(State(Arc::default())).await.is_ok());
    }

    #[tokio::test]
    async fn a_state_that_cannot_be_read_is_a_fault_until_it_can() {
        let (held, lock) = std::sync::mpsc::channel::<()>();
        let lock = Mutex::new(lock);
        let readable = Readable::new(move || {
            let _ = lock.lock().unwrap().recv();
        });
        assert_eq!(readable.locked().await, None, "it may take a while");
        // As after so long a time.
        let begin = Instant::now().checked_sub(LOCKED).unwrap();
        *readable.since.lock().unwrap() = Some(begin);
        let signs = Arc::new(Signs {
            drains: None,
            state: Some(readable),
        });
        for answer in [
            health(State(signs.clone())).await,
            ready(State(signs.clone())).await,
        ] {
            let refused = answer.map(|_| ()).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Unavailable);
            assert!(
                refused
                    .message
                    .starts_with("the state could not be read for 1"),
                "{}",
                refused.message
            );
        }
        drop(held);
        while health(State(signs.clone())).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert!(ready(State(signs)).await.is_ok());
    }
}
