//! `/health`: whether the process does its work; `/ready`: whether it has started to. For supervisors, without a
//! login. Both wait for nothing: no lock on the state, no drain.

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

/// The routes; `drains` for processes that watch a host.
pub fn routes(drains: Option<Drains>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .with_state(drains.map(Arc::new))
}

type Watched = State<Option<Arc<Drains>>>;

/// The process is healthy.
#[derive(Serialize, ToSchema)]
struct Health {
    /// Always `ok`; else the status is 503.
    status: &'static str,
}

/// Whether it does its work, for supervisors; needs no login
#[utoipa::path(get, path = "/health", tag = "server", security(()), responses((status = 200, description = "It does", body = Health)))]
async fn health(State(drains): Watched) -> Result<Answer<Health>, ApiError> {
    match drains.and_then(|drains| drains.late(Instant::now())) {
        None => Ok(Answer::of(&Health { status: "ok" })),
        Some(silence) => Err(ApiError::new(
            ErrorCode::Unavailable,
            format_args!("nothing was drained for {} s", silence.as_secs()),
        )),
    }
}

/// Whether it has begun to do its work, for supervisors; needs no login
#[utoipa::path(get, path = "/ready", tag = "server", security(()), responses((status = 200, description = "It has", body = Health)))]
async fn ready(State(drains): Watched) -> Result<Answer<Health>, ApiError> {
    match &drains {
        Some(drains) if !drains.have_begun() => Err(ApiError::new(
            ErrorCode::Unavailable,
            "nothing was drained yet",
        )),
        _ => health(State(drains)).await,
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
        let drains = Some(Arc::new(Drains::new(seen, Duration::from_secs(10))));
        let refused = ready(State(drains.clone())).await.map(|_| ());
        assert_eq!(refused.unwrap_err().code, ErrorCode::Unavailable);
        assert!(health(State(drains.clone())).await.is_ok());
        sender.send_modify(|drains| *drains += 1);
        assert!(ready(State(drains.clone())).await.is_ok());
        // A process that watches no host is ready when it answers.
        assert!(ready(State(None)).await.is_ok());
    }
}
