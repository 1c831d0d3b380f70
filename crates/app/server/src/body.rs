//! Bodies of requests, with a time limit.

use std::{
    future::Future as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;

use crate::connections::{Activity, ConnectionSlot};

/// The body took too long.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct BodyTimeout;

/// A body that fails when it is not all there after a while.
struct Timed {
    inner: Body,
    end: Pin<Box<Sleep>>,
    late: Arc<AtomicBool>,
    place: Option<Arc<ConnectionSlot>>,
}

/// Wraps a body. The connection counts as waiting until the body is read; the flag is set if it took
/// too long.
pub fn timed(
    inner: Body,
    limit: Duration,
    place: Option<Arc<ConnectionSlot>>,
) -> (Body, Arc<AtomicBool>) {
    let late = Arc::new(AtomicBool::new(false));
    if inner.is_end_stream() {
        return (inner, late);
    }
    if let Some(place) = &place {
        place.set(Activity::Sending);
    }
    let timed = Timed {
        inner,
        end: Box::pin(tokio::time::sleep(limit)),
        late: late.clone(),
        place,
    };
    (Body::new(timed), late)
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            if (frame.is_none() || self.inner.is_end_stream())
                && let Some(place) = self.place.take()
            {
                place.set(Activity::Answered);
            }
            return Poll::Ready(frame);
        }
        if self.end.as_mut().poll(cx).is_ready() {
            self.late.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(axum::Error::new(BodyTimeout))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
