//! One request over a unix socket, HTTP/1 for Docker's API and HTTP/2 for gRPC, with bounds.

use std::path::Path;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::Fail;

/// Most bytes of a response's headers.
const HEADERS: u32 = 64 * 1024;

/// A socket to ask.
#[derive(Clone, Copy)]
pub(super) struct Server<'a> {
    pub(super) path: &'a Path,
    /// User that must own the other side: a link in that user's folder may lead to another's socket.
    pub(super) user: Option<u32>,
    /// Longest body, bytes.
    pub(super) max_answer: usize,
}

impl Server<'_> {
    async fn connect(&self) -> Result<TokioIo<UnixStream>, Fail> {
        let unreachable = |_| Fail::Unreachable;
        let stream = UnixStream::connect(self.path).await.map_err(unreachable)?;
        if let Some(user) = self.user {
            let peer = stream.peer_cred().map_err(unreachable)?;
            if peer.uid() != user {
                return Err(Fail::Unreachable);
            }
        }
        Ok(TokioIo::new(stream))
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Response<Collected<Bytes>>, Fail> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.max_answer).collect().await;
        Ok(Response::from_parts(head, body.map_err(|_| Fail::Rubbish)?))
    }

    /// GET by HTTP/1.
    pub(super) async fn get(&self, path: &str) -> Result<Response<Collected<Bytes>>, Fail> {
        let io = self.connect().await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEADERS as usize)
            .handshake(io)
            .await
            .map_err(|_| Fail::Rubbish)?;
        // Dropped, it ends the connection.
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        let request = Request::get(path)
            .header("Host", "localhost")
            .body(Full::<Bytes>::default())
            .map_err(|_| Fail::Unknown)?;
        let response = sender.send_request(request).await;
        self.body(response.map_err(|_| Fail::Rubbish)?).await
    }

    /// POST by HTTP/2.
    pub(super) async fn post(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Collected<Bytes>>, Fail> {
        let io = self.connect().await?;
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(HEADERS)
            .handshake(io)
            .await
            .map_err(|_| Fail::Rubbish)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        let response = sender.send_request(request).await;
        self.body(response.map_err(|_| Fail::Rubbish)?).await
    }
}
