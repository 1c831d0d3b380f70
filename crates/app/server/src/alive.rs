//! `/api/health`: whether the process does its work, for supervisors. Anyone may ask, and it waits for
//! nobody: no lock on the state, no drain.

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

/// Where it is.
pub const PATH: &str = "/api/health";

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

/// The route; `drains` of who watches a host.
pub fn routes(drains: Option<Drains>) -> Router {
    Router::new()
        .route(PATH, get(health))
        .with_state(drains.map(Arc::new))
}

async fn health(State(drains): State<Option<Arc<Drains>>>) -> Response {
    match drains.and_then(|drains| drains.late(Instant::now())) {
        None => Json(json!({"status": "ok"})).into_response(),
        Some(silence) => {
            let seconds = silence.as_secs();
            let reason = format!("nothing was drained for {seconds} s\n");
            (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
        }
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
}
