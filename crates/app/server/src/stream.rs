//! Streamed answers, which are never in memory completely.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use http_body::{Body as HttpBody, Frame};
use skua_process::panics;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::work::turn;

/// Bytes that are sent in one piece.
const PIECE: usize = 64 << 10;

/// Pieces that wait for a client at most: 8 MiB.
const PIECES: usize = 128;

/// Time limit from the turn to the last byte that the client reads.
const TIME: Duration = Duration::from_secs(60);

/// Receives the answer of a piece of work.
pub struct Answering {
    head: oneshot::Sender<Response>,
    end: Instant,
    runtime: Handle,
}

/// The body of an answer. A short one is sent at once, with its length. Dropped before [`finish`](Self::finish) the connection breaks, so
/// that the client notices that the answer is incomplete.
pub struct Writer {
    answering: Option<(Answering, HeaderMap)>,
    pieces: mpsc::Sender<Option<Bytes>>,
    receiver: Option<mpsc::Receiver<Option<Bytes>>>,
    piece: Vec<u8>,
    end: Instant,
    runtime: Handle,
}

/// What a client gets.
struct Pieces {
    pieces: mpsc::Receiver<Option<Bytes>>,
    ended: bool,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some(Some(piece)) => Some(Ok(Frame::data(piece))),
            Some(None) => {
                self.ended = true;
                None
            }
            None => {
                self.ended = true;
                Some(Err(io::Error::other("the answer was not finished")))
            }
        })
    }
}

impl Answering {
    /// Answers with a complete response.
    pub fn ready(self, response: Response) {
        // The client may have disconnected.
        let _ = self.head.send(response);
    }

    /// Begins an answer of a media type.
    pub fn begin(self, kind: &'static str) -> Writer {
        self.begin_with(kind, [])
    }

    /// The same with further headers, each a number.
    pub fn begin_with<const N: usize>(
        self,
        kind: &'static str,
        numbers: [(&'static str, u64); N],
    ) -> Writer {
        let mut headers = HeaderMap::with_capacity(1 + N);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, number) in numbers {
            headers.insert(name, number.into());
        }
        let (pieces, receiver) = mpsc::channel(PIECES);
        Writer {
            pieces,
            receiver: Some(receiver),
            piece: Vec::with_capacity(PIECE),
            end: self.end,
            runtime: self.runtime.clone(),
            answering: Some((self, headers)),
        }
    }
}

impl Writer {
    fn send(&mut self, piece: Option<Bytes>) -> io::Result<()> {
        if let (Some((answering, headers)), Some(pieces)) =
            (self.answering.take(), self.receiver.take())
        {
            let ended = false;
            let body = Body::new(Pieces { pieces, ended });
            answering.ready((headers, body).into_response());
        }
        let piece = match self.pieces.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Err(mpsc::error::TrySendError::Full(piece)) => piece,
        };
        let sent = async { tokio::time::timeout_at(self.end, self.pieces.send(piece)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// The answer is complete.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some((answering, headers)) = self.answering.take() {
            let whole = std::mem::take(&mut self.piece);
            answering.ready((headers, whole).into_response());
            return Ok(());
        }
        io::Write::flush(&mut self)?;
        self.send(None)
    }
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // No more than fits: what waits is bounded by the number of pieces.
        let length = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..length]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.send(Some(piece.into()))
    }
}

/// Runs blocking work that streams its answer. The turn ends with the work.
pub async fn streaming(work: impl FnOnce(Answering) + Send + 'static) -> Response {
    let turn = match turn().await {
        Ok(turn) => turn,
        Err(busy) => return busy.into_response(),
    };
    let (head, answer) = oneshot::channel();
    let answering = Answering {
        head,
        end: Instant::now() + TIME,
        runtime: Handle::current(),
    };
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        // Its answer breaks then, and no one awaits the result of the work.
        if catch_unwind(AssertUnwindSafe(|| work(answering))).is_err() {
            panics::count_request();
        }
    });
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
    answer.await.unwrap_or_else(failed)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Lengths of the frames of an answer.
    async fn lengths(response: Response) -> Vec<usize> {
        let mut body = response.into_body();
        let mut lengths = Vec::new();
        while let Some(frame) =
            std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            lengths.push(frame.unwrap().into_data().unwrap().len());
        }
        lengths
    }

    #[test]
    fn buffered_answers_are_in_pieces_of_a_fixed_size() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let found = runtime.block_on(async {
            let (head, answer) = oneshot::channel();
            let answering = Answering {
                head,
                end: Instant::now() + TIME,
                runtime: Handle::current(),
            };
            let work = tokio::task::spawn_blocking(move || {
                let mut writer = answering.begin("text/plain");
                writer.write_all(&vec![b'x'; 3 * PIECE + 5])?;
                writer.write_all(b"12345")?;
                writer.write_all(&vec![b'y'; PIECE])?;
                writer.finish()
            });
            let found = lengths(answer.await.unwrap()).await;
            work.await.unwrap().unwrap();
            found
        });
        assert_eq!(found, [PIECE, PIECE, PIECE, PIECE, 10]);
    }
}
