//! `/health`, whether the process does its work, and `/ready`, whether it has begun to: for supervisors. Anyone may
//! ask, and they wait for nobody: no lock on the state, no drain.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;
use tokio::sync::watch;

/// Where they are.
pub const PATHS: [&str; 2] = ["/health", "/ready"];

/// What a drain may be late beyond three intervals: large tables on busy machines.
const GRACE: Duration = Duration::from_secs(60);

/// Whether drains come when they should.
pub struct Drains {
    seen: watch::Receiver<u64>,
    most: Duration,
    /// The last number of drains, and when it was first seen.
    last: Mutex<(u64, Instant)>,
}

impl Drains {
    /// Of a probe that drains each `interval`.
    pub fn new(seen: watch::Receiver<u64>, interval: Duration) -> Self {
        let now = *seen.borrow();
        Self {
            seen,
            most: interval.saturating_mul(3).saturating_add(GRACE),
            last: Mutex::new((now, Instant::now())),
        }
    }

    /// Whether there was one.
    fn have_begun(&self) -> bool {
        *self.seen.borrow() > 0
    }

    /// How long there was none, when that is too long.
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

/// The routes; `drains` of who watches a host.
pub fn routes(drains: Option<Drains>) -> Router {
    let [health, ready] = PATHS;
    Router::new()
        .route(health, get(answer_health))
        .route(ready, get(answer_ready))
        .with_state(drains.map(Arc::new))
}

type Watched = State<Option<Arc<Drains>>>;

fn unavailable(reason: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

async fn answer_health(State(drains): Watched) -> Response {
    match drains.and_then(|drains| drains.late(Instant::now())) {
        None => Json(json!({"status": "ok"})).into_response(),
        Some(silence) => unavailable(format!("nothing was drained for {} s\n", silence.as_secs())),
    }
}

async fn answer_ready(State(drains): Watched) -> Response {
    match &drains {
        Some(drains) if !drains.have_begun() => unavailable("nothing was drained yet\n".into()),
        _ => answer_health(State(drains)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_who_has_not_drained_for_three_intervals_and_a_minute() {
        let (tell, seen) = watch::channel(0);
        let drains = Drains::new(seen, Duration::from_secs(10));
        let begin = drains.last.lock().unwrap().1;
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(drains.late(after(90)), None);
        assert_eq!(drains.late(after(91)), Some(Duration::from_secs(91)));
        tell.send_modify(|drains| *drains += 1);
        assert_eq!(drains.late(after(92)), None);
        assert_eq!(drains.late(after(182)), None);
        assert_eq!(drains.late(after(183)), Some(Duration::from_secs(91)));
    }

    #[tokio::test]
    async fn ready_is_who_has_drained_once() {
        let (tell, seen) = watch::channel(0);
        let drains = Some(Arc::new(Drains::new(seen, Duration::from_secs(10))));
        let ready = async || answer_ready(State(drains.clone())).await.status();
        assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer_health(State(drains.clone())).await.status(), 200);
        tell.send_modify(|drains| *drains += 1);
        assert_eq!(ready().await, StatusCode::OK);
        // Who watches no host is ready when it answers.
        assert_eq!(answer_ready(State(None)).await.status(), StatusCode::OK);
    }
}
