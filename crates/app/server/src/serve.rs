//! Accepts connections and speaks HTTP on them.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use skua_process::panics;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::{
    Limits,
    auth::Peer,
    connections::{Activity, ConnectionSlot, Connections},
    error,
    gate::Gate,
    local::{LocalSocket, Rules},
    paced::Paced,
    tls::{TlsFiles, client_name},
};

/// How long to wait after an accept that failed: mostly there are no descriptors left.
const BREATH: Duration = Duration::from_millis(100);
/// The address of clients at the unix socket.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Bytes of headers at most.
const HEADERS: usize = 32 << 10;

/// The service and its settings.
pub struct Service {
    /// All routes.
    pub app: Router,
    /// Certificates.
    pub tls: Option<Arc<TlsFiles>>,
    /// Open connections.
    pub connections: Arc<Connections>,
    /// Time limits.
    pub limits: Limits,
}

/// Serves until a listener fails for good.
pub async fn serve(
    (listeners, local): (Vec<TcpListener>, Option<LocalSocket>),
    service: Service,
    gate: Arc<Gate>,
    reload: Option<UnixStream>,
) -> io::Result<()> {
    let service = Arc::new(service);
    if let Some(signal) = reload {
        tokio::spawn(read_again(signal, service.clone(), gate));
    }
    let mut tasks = Vec::new();
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tasks.push(tokio::spawn(accept(listener, service.clone())));
    }
    if let Some(local) = local {
        let listener = tokio::net::UnixListener::from_std(local.listener)?;
        tasks.push(tokio::spawn(accept_local(
            listener,
            local.rules,
            service.clone(),
        )));
    }
    for task in tasks {
        task.await?;
    }
    Ok(())
}

/// Reads the files again at each signal.
async fn read_again(signal: UnixStream, service: Arc<Service>, gate: Arc<Gate>) {
    let signal = match tokio::net::UnixStream::from_std(signal) {
        Ok(signal) => signal,
        Err(error) => return tracing::warn!("cannot wait for SIGHUP: {error}"),
    };
    while signal.readable().await.is_ok() {
        let mut ignored = [0; 64];
        if !matches!(signal.try_read(&mut ignored), Ok(1..)) {
            continue;
        }
        if let Some(tls) = &service.tls {
            tls.reload();
        }
        gate.authenticator.reload();
    }
}

async fn accept(listener: tokio::net::TcpListener, service: Arc<Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let place = service.connections.admit(address.ip());
                let task =
                    tokio::spawn(connection(stream, address, service.clone(), place.clone()));
                place.set_task(task.abort_handle());
            }
            Err(error) => {
                tracing::debug!("a connection could not be accepted: {error}");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

async fn accept_local(listener: tokio::net::UnixListener, rules: Rules, service: Arc<Service>) {
    loop {
        let accepted = listener.accept().await;
        let known = accepted.and_then(|(stream, _)| Ok((rules.user(&stream)?, stream)));
        match known {
            Ok((user, stream)) => {
                let peer = Peer {
                    address: HERE,
                    certificate: None,
                    local: Some(user),
                };
                let place = service.connections.admit(HERE);
                let theirs = (service.clone(), place.clone());
                let task = tokio::spawn(async move {
                    let (service, place) = theirs;
                    let stream = Paced::new(stream, service.limits.reading);
                    http(stream, peer, &service, place).await;
                });
                place.set_task(task.abort_handle());
            }
            Err(error) => {
                tracing::debug!("a connection could not be accepted: {error}");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    service: Arc<Service>,
    place: Arc<ConnectionSlot>,
) {
    // Answers are written in one piece anyway.
    let _ = stream.set_nodelay(true);
    let stream = Paced::new(stream, service.limits.reading);
    let mut peer = Peer {
        address: address.ip().to_canonical(),
        certificate: None,
        local: None,
    };
    let Some(tls) = &service.tls else {
        return http(stream, peer, &service, place).await;
    };
    let handshake = TlsAcceptor::from(tls.get()).accept(stream);
    match tokio::time::timeout(service.limits.handshake, handshake).await {
        Ok(Ok(stream)) => {
            peer.certificate = client_name(stream.get_ref().1);
            http(stream, peer, &service, place).await;
        }
        Ok(Err(error)) => tracing::debug!(%address, "no TLS: {error}"),
        Err(_) => tracing::debug!(%address, "the TLS handshake took too long"),
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    service: &Service,
    place: Arc<ConnectionSlot>,
) {
    let app = &service.app;
    let answer = service_fn(move |mut request: Request<Incoming>| {
        place.set(Activity::Answered);
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(place.clone());
        let app = app.clone();
        async move { respond(app, request.map(Body::new)).await }
    });
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(service.limits.headers)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades()
        .await;
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

async fn respond(app: Router, request: Request) -> Result<Response, Infallible> {
    let wants_json = error::wants_json(request.headers());
    let answer = match panics::request(app.oneshot(request)).await {
        Some(answer) => answer?,
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    Ok(match wants_json {
        true => error::error_as_json(answer).await,
        false => answer,
    })
}
