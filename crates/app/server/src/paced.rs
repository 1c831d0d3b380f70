//! Connections that fail when the client does not read its answer.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// Bytes that the client must read in each period in which data waits for it.
const PACE: usize = 32 << 10;

/// A connection that fails when the client does not read: a client that requests much and reads it
/// byte by byte would otherwise keep it in memory without limit.
pub struct Paced<S> {
    inner: S,
    span: Duration,
    /// Ends the span, while something waits to be written.
    end: Option<Pin<Box<Sleep>>>,
    written: usize,
}

impl<S> Paced<S> {
    /// Wraps a connection.
    pub fn new(inner: S, span: Duration) -> Self {
        Self {
            inner,
            span,
            end: None,
            written: 0,
        }
    }

    /// Accounts for the result of a write.
    fn pace<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
        size: impl Fn(&T) -> Option<usize>,
    ) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(Ok(value)) => {
                match size(&value) {
                    Some(size) => self.written += size,
                    // All is written: no data waits.
                    None => self.end = None,
                }
                if self.written >= PACE {
                    self.end = None;
                }
                Poll::Ready(Ok(value))
            }
            Poll::Pending => {
                if self.end.is_none() {
                    self.written = 0;
                }
                let span = self.span;
                let end = self.end.get_or_insert_with(|| {
                    Box::pin(tokio::time::sleep_until(Instant::now() + span))
                });
                ready!(end.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            failed => failed,
        }
    }
}

use std::future::Future as _;

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.pace(cx, result, |written| Some(*written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, parts);
        self.pace(cx, result, |written| Some(*written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.pace(cx, result, |()| None)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.pace(cx, result, |()| None)
    }
}
