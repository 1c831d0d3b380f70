//! How an agent gets to its analyzer: by TCP on this host, by TLS over a network.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context as _, bail};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{PrivateKeyDer, ServerName, pem::PemObject as _},
};
use skua_config::arguments::AnalyzerArguments;
use skua_process::{
    certificates::{certificates, warn_of_validity},
    watched::read_secret,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        client::IntoClientRequest as _, error::Error as WsError, http::HeaderValue,
        protocol::WebSocketConfig,
    },
};

/// Bytes of a message at most.
pub const MESSAGE: usize = 8 << 20;

/// Transport of messages.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection with an analyzer.
pub type Socket = WebSocketStream<Box<dyn Stream>>;

/// An analyzer and how to get there.
pub struct Endpoint {
    /// The address as given.
    pub address: String,
    /// Host and port.
    place: String,
    /// The socket of this host, instead.
    path: Option<PathBuf>,
    /// None: without TLS, on this host.
    tls: Option<TlsConnector>,
    /// Value of `Authorization`.
    credentials: Option<HeaderValue>,
}

fn tls(arguments: &AnalyzerArguments) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match &arguments.ca_cert {
        Some(file) => {
            for root in certificates(file)? {
                roots
                    .add(root)
                    .with_context(|| file.display().to_string())?;
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match (&arguments.client_cert, &arguments.client_key) {
        (Some(certificate), Some(key)) => {
            let text = read_secret(key)?;
            let private = PrivateKeyDer::from_pem_slice(text.as_bytes())
                .with_context(|| format!("no private key in {}", key.display()))?;
            let chain = certificates(certificate)?;
            warn_of_validity(certificate, &chain);
            builder.with_client_auth_cert(chain, private)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn beyond_loopback(address: &SocketAddr) -> anyhow::Result<()> {
    if !address.ip().to_canonical().is_loopback() {
        bail!(
            "{address} is not on this host, and what an agent reports must not go over a network in \
             the clear; give https://{address} (docs/fleet.md)"
        );
    }
    Ok(())
}

/// Host of `HOST:PORT`, without the brackets of IPv6.
fn host_of(place: &str) -> Option<&str> {
    let (host, port) = place.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|port| *port > 0)?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    Some(bare.unwrap_or(host)).filter(|host| !host.is_empty())
}

/// The analyzers that arguments name, in their order.
pub fn endpoints(arguments: &AnalyzerArguments) -> anyhow::Result<Vec<Endpoint>> {
    let credentials = crate::credentials(arguments)?;
    let mut endpoints = Vec::new();
    for address in arguments.address.split(',').map(str::trim) {
        if address.is_empty() {
            continue;
        }
        let header = |text: &String| -> anyhow::Result<HeaderValue> {
            let mut header =
                HeaderValue::from_str(text).context("this is not a password or token")?;
            header.set_sensitive(true);
            Ok(header)
        };
        let credentials = credentials.as_ref().map(header).transpose()?;
        if let Some(path) = crate::local_path(address) {
            endpoints.push(Endpoint {
                address: address.to_owned(),
                place: String::new(),
                path: Some(path.to_owned()),
                tls: None,
                credentials,
            });
            continue;
        }
        let (secure, place) = crate::endpoint_of_address(arguments, address)?;
        if host_of(place).is_none() {
            bail!(
                "\"{address}\" is not an address of an analyzer; write it like \
                 unix:/run/skua/skua.sock, 127.0.0.1:8082 or https://host:8082"
            );
        }
        if !secure && let Ok(address) = place.parse::<SocketAddr>() {
            beyond_loopback(&address)?;
        }
        endpoints.push(Endpoint {
            address: address.to_owned(),
            place: place.to_owned(),
            path: None,
            tls: secure.then(|| tls(arguments)).transpose()?,
            credentials,
        });
    }
    if endpoints.is_empty() {
        bail!("which analyzer? Give --analyzer unix:/run/skua/skua.sock");
    }
    Ok(endpoints)
}

impl Endpoint {
    /// Opens the WebSocket at a path there.
    pub async fn connect(&self, path: &str) -> anyhow::Result<Socket> {
        if let Some(local) = &self.path {
            let stream = UnixStream::connect(local)
                .await
                .with_context(|| format!("cannot connect to {}", local.display()))?;
            return self
                .handshake(Box::new(stream), format!("ws://localhost{path}"))
                .await;
        }
        let found = tokio::net::lookup_host(&self.place)
            .await
            .with_context(|| format!("cannot find {}", self.place))?;
        let mut last = anyhow::anyhow!("{} has no address", self.place);
        for address in found.take(4) {
            match self.connect_to(address, path).await {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: SocketAddr, path: &str) -> anyhow::Result<Socket> {
        if self.tls.is_none() {
            beyond_loopback(&address)?;
        }
        let stream = TcpStream::connect(address).await?;
        // Messages are written in one piece.
        let _ = stream.set_nodelay(true);
        let (stream, url): (Box<dyn Stream>, _) = match &self.tls {
            None => (Box::new(stream), format!("ws://{address}{path}")),
            Some(tls) => {
                let host = host_of(&self.place).unwrap_or_default().to_owned();
                let stream = tls.connect(ServerName::try_from(host)?, stream).await?;
                let url = format!("wss://{}{path}", self.place);
                (Box::new(stream), url)
            }
        };
        self.handshake(stream, url).await
    }

    async fn handshake(&self, stream: Box<dyn Stream>, url: String) -> anyhow::Result<Socket> {
        let mut request = url.into_client_request()?;
        if let Some(credentials) = &self.credentials {
            let headers = request.headers_mut();
            headers.insert("authorization", credentials.clone());
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE))
            .max_frame_size(Some(MESSAGE));
        let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        match opened.await {
            Ok((socket, _)) => Ok(socket),
            Err(WsError::Http(answer)) => {
                let why = answer.body().as_deref().unwrap_or_default();
                let why = String::from_utf8_lossy(why);
                let why: String = why.trim().chars().filter(|c| !c.is_control()).collect();
                bail!("{} {why}", answer.status())
            }
            Err(error) => Err(error.into()),
        }
    }
}
