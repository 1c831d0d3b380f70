//! Client of a running `skua run` or analyzer.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

mod unix_transport;
pub mod websocket;

use std::{
    io::{ErrorKind, Write as _},
    net::{SocketAddr, ToSocketAddrs as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use skua_config::arguments::AnalyzerArguments;
use skua_output as output;
use skua_output::{Column, OutputFormat};
use skua_process::{certificates::certificates, watched::read_secret_line};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::unix_transport::{NoResolver, UnixConnector};

/// Longest answer that is read.
const ANSWER_LIMIT: u64 = 4 << 30;
/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable with a token.
const TOKEN_VARIABLE: &str = "SKUA_TOKEN";

type Answer = ureq::http::Response<ureq::Body>;

/// The server answered with an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// The socket of this host that an address names.
pub fn local_path(address: &str) -> Option<&Path> {
    let path = address.strip_prefix("unix:").unwrap_or(address);
    (path.starts_with('/') || path.len() < address.len()).then(|| Path::new(path))
}

/// A `skua run` that answers.
pub struct Client {
    address: String,
    /// Without TLS with a numeric address, which the API always accepts as Host header.
    url: String,
    /// The Authorization header.
    credentials: Option<String>,
    /// How to verify the server's certificate.
    tls: Option<TlsConfig>,
    /// The socket of this host, instead of TCP.
    path: Option<PathBuf>,
    agent: ureq::Agent,
    /// Longest answer that is read, in bytes.
    limit: u64,
}

/// Selection of flows.
pub struct FlowsQuery<'a> {
    pub filter: Option<&'a str>,
    pub conditions: &'a [String],
    pub sort: &'a str,
    pub limit: Option<usize>,
    pub active: bool,
    pub since: u64,
    pub csv: bool,
    /// What is summed up by: process, container or service; or `point`, which lists each conversation at each
    /// interface.
    pub by: Option<&'a str>,
}

/// Whether to use TLS, and the address: host and port.
fn endpoint_of(analyzer: &AnalyzerArguments) -> anyhow::Result<(bool, &str)> {
    endpoint_of_address(analyzer, &analyzer.address)
}

/// As [`place_of`], of one of several addresses.
pub fn endpoint_of_address<'a>(
    analyzer: &AnalyzerArguments,
    address: &'a str,
) -> anyhow::Result<(bool, &'a str)> {
    let text = address.trim_end_matches('/');
    if let Some(place) = text.strip_prefix("https://") {
        return Ok((true, place));
    }
    let tls = analyzer.ca_cert.is_some() || analyzer.client_cert.is_some();
    if let Some(place) = text.strip_prefix("http://") {
        if tls {
            bail!("--ca-cert and --client-cert are for https://, not for {text}");
        }
        return Ok((false, place));
    }
    Ok((tls, text))
}

/// Value of `Authorization`.
pub fn credentials(analyzer: &AnalyzerArguments) -> anyhow::Result<Option<String>> {
    if let (Some(name), Some(file)) = (&analyzer.username, &analyzer.password_file) {
        let pair = STANDARD.encode(format!("{name}:{}", read_secret_line(file)?));
        return Ok(Some(format!("Basic {pair}")));
    }
    let token = match &analyzer.token_file {
        Some(file) => Some(read_secret_line(file)?),
        None => std::env::var(TOKEN_VARIABLE)
            .ok()
            .filter(|token| !token.is_empty()),
    };
    match token {
        Some(token) if !token.bytes().all(|b| b.is_ascii_graphic()) => {
            bail!("this is not a token: a token has only letters, digits, - and _")
        }
        token => Ok(token.map(|token| format!("Bearer {token}"))),
    }
}

fn client_certificate(certificate: &Path, key: &Path) -> anyhow::Result<ClientCert> {
    let chain = certificates(certificate)?;
    let chain: Vec<_> = chain
        .iter()
        .map(|one| Certificate::from_der(one).to_owned())
        .collect();
    let name = key.display();
    let text = std::fs::read(key).with_context(|| format!("cannot read {name}"))?;
    let key = PrivateKey::from_pem(&text).with_context(|| format!("no private key in {name}"))?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

fn tls_config(analyzer: &AnalyzerArguments) -> anyhow::Result<TlsConfig> {
    let mut config = TlsConfig::builder();
    if let Some(file) = &analyzer.ca_cert {
        let roots = certificates(file)?;
        let roots: Vec<_> = roots
            .iter()
            .map(|one| Certificate::from_der(one).to_owned())
            .collect();
        config = config.root_certs(RootCerts::new_with_certs(&roots));
    }
    if let (Some(certificate), Some(key)) = (&analyzer.client_cert, &analyzer.client_key) {
        config = config.client_cert(Some(client_certificate(certificate, key)?));
    }
    Ok(config.build())
}

/// The HTTP client, with a time limit for the complete answer.
fn agent(tls: Option<&TlsConfig>, path: Option<&Path>, patience: Option<Duration>) -> ureq::Agent {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(patience)
        .http_status_as_error(false)
        // A redirect must not send our credentials elsewhere.
        .max_redirects(0)
        .proxy(None);
    if let Some(tls) = tls {
        config = config.tls_config(tls.clone());
    }
    match path {
        None => config.build().new_agent(),
        Some(path) => {
            ureq::Agent::with_parts(config.build(), UnixConnector(path.to_owned()), NoResolver)
        }
    }
}

/// The message of an error: an object for clients that accept JSON, else a line of text.
fn message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Error {
        message: String,
    }
    match serde_json::from_slice::<Error>(body) {
        Ok(error) => error.message,
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    }
}

/// The first address that accepts connections.
fn listening(place: &str) -> anyhow::Result<Option<SocketAddr>> {
    let addresses = place.to_socket_addrs().with_context(|| {
        format!("\"{place}\" is not an address; write it like 127.0.0.1:8082 or https://host:8082")
    })?;
    let listens = |address: &SocketAddr| {
        std::net::TcpStream::connect_timeout(address, Duration::from_secs(2)).is_ok()
    };
    Ok(addresses.take(4).find(listens))
}

impl Client {
    /// A client; none when nothing answers at the default address. At an address that was named an answer is wanted:
    /// what this host knows is not an answer of that one.
    ///
    /// # Errors
    ///
    /// No server answers at the named address, or it refuses the request.
    pub fn connect(analyzer: &AnalyzerArguments) -> anyhow::Result<Option<Self>> {
        match Self::reach(analyzer)? {
            None if analyzer.is_named() => bail!(
                "nothing answers at {}: start `skua run` or `skua analyzer` there, or leave --analyzer out \
                 (and SKUA_ANALYZER) to see this host",
                analyzer.address
            ),
            client => Ok(client),
        }
    }

    /// A client when something listens there, none when nothing does.
    ///
    /// # Errors
    ///
    /// It refuses the request.
    pub fn reach(analyzer: &AnalyzerArguments) -> anyhow::Result<Option<Self>> {
        if let Some(path) = local_path(&analyzer.address) {
            return Self::connect_local(analyzer, path);
        }
        let (tls, place) = endpoint_of(analyzer)?;
        let Some(address) = listening(place)? else {
            return Ok(None);
        };
        let credentials = credentials(analyzer)?;
        if credentials.is_some() && !tls && !address.ip().is_loopback() {
            bail!("the password or token would go to {place} unencrypted: use https://{place}");
        }
        let tls = tls.then(|| tls_config(analyzer)).transpose()?;
        Ok(Some(Self {
            address: analyzer.address.clone(),
            url: match tls {
                Some(_) => format!("https://{place}"),
                None => format!("http://{address}"),
            },
            credentials,
            agent: agent(tls.as_ref(), None, Some(PATIENCE)),
            tls,
            path: None,
            limit: ANSWER_LIMIT,
        }))
    }

    /// The same at a socket of this host.
    fn connect_local(analyzer: &AnalyzerArguments, path: &Path) -> anyhow::Result<Option<Self>> {
        match UnixStream::connect(path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => bail!(
                "{} is for root and the group skua: use sudo, have yourself added to that group, or \
                 ask --analyzer 127.0.0.1:8082 with a token",
                path.display()
            ),
            Err(_) => return Ok(None),
        }
        Ok(Some(Self {
            address: analyzer.address.clone(),
            url: "http://localhost".into(),
            credentials: credentials(analyzer)?,
            agent: agent(None, Some(path), Some(PATIENCE)),
            tls: None,
            path: Some(path.to_owned()),
            limit: ANSWER_LIMIT,
        }))
    }

    /// Limits answers: longer ones are refused.
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// A client; an error if no server listens.
    pub fn connect_or_fail(analyzer: &AnalyzerArguments) -> anyhow::Result<Self> {
        let address = &analyzer.address;
        Self::connect(analyzer)?.with_context(|| {
            format!("nothing answers at {address}: start `skua run`, or give --analyzer")
        })
    }

    /// Prints all objects of a path that has them by identifier.
    pub fn list(
        &self,
        path: &str,
        format: OutputFormat,
        columns: &'static [Column],
        what: &str,
    ) -> anyhow::Result<()> {
        let all = self.object(path)?;
        let mut lines = Vec::new();
        for object in all.as_object().into_iter().flat_map(|all| all.values()) {
            writeln!(lines, "{object}")?;
        }
        let mut out = std::io::stdout().lock();
        match format {
            OutputFormat::Table if lines.is_empty() => writeln!(out, "no {what}")?,
            OutputFormat::Table => {
                output::table(&mut out, columns, &lines, usize::MAX, output::width())?;
            }
            OutputFormat::Json => out.write_all(&lines)?,
            OutputFormat::Csv => bail!("{what} cannot be printed as CSV: use table or json"),
        }
        Ok(())
    }

    /// Changes a resource by a JSON patch, and returns the resource as it is then.
    pub fn patch(
        &self,
        path: &str,
        patch: &serde_json::Value,
    ) -> anyhow::Result<serde_json::Value> {
        let request = self.signed(self.agent.patch(format!("{}{path}", self.url)));
        let request = request.content_type("application/json");
        let sent = request.send(patch.to_string());
        // Nothing was changed, and nothing comes back.
        if matches!(&sent, Ok(answer) if answer.status() == 304) {
            return self.object(path);
        }
        let (_, body) = self.answer(sent)?;
        serde_json::from_slice(&body).context("the answer is not JSON")
    }

    /// A request with our credentials.
    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.credentials {
            Some(credentials) => request.header("Authorization", credentials),
            None => request,
        }
    }

    fn get(
        &self,
        path: &str,
        parameters: &[(&str, String)],
    ) -> anyhow::Result<(Vec<u8>, Option<u64>)> {
        let (body, drained) = self.with_header(path, parameters, "x-skua-drained")?;
        Ok((body, drained.and_then(|ns| ns.parse().ok())))
    }

    /// A body, and a header of the answer, if present.
    pub fn with_header(
        &self,
        path: &str,
        parameters: &[(&str, String)],
        header: &str,
    ) -> anyhow::Result<(Vec<u8>, Option<String>)> {
        let mut request = self.signed(self.agent.get(format!("{}{path}", self.url)));
        for (name, value) in parameters {
            request = request.query(*name, value);
        }
        let (answer, body) = self.answer(request.call())?;
        let value = answer.headers().get(header);
        Ok((body, value.and_then(|v| v.to_str().ok()).map(str::to_owned)))
    }

    /// An answer and its body; a refusal's message is the error.
    fn answer(&self, answer: Result<Answer, ureq::Error>) -> anyhow::Result<(Answer, Vec<u8>)> {
        let mut answer = answer
            .with_context(|| format!("{} does not answer like a `skua run`", self.address))?;
        let body = answer
            .body_mut()
            .with_config()
            .limit(self.limit)
            .read_to_vec()?;
        if !answer.status().is_success() {
            let said = message(&body);
            bail!(Refusal(match said.is_empty() {
                true => format!("{} answers {}", self.address, answer.status()),
                false => said,
            }));
        }
        Ok((answer, body))
    }

    /// Changes something: an object there, an object back.
    pub fn change(
        &self,
        method: &str,
        path: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<serde_json::Value> {
        let url = format!("{}{path}", self.url);
        let request = match method {
            "PUT" => self.agent.put(url),
            "DELETE" => self.agent.delete(url).force_send_body(),
            _ => self.agent.post(url),
        };
        let request = self.signed(request).content_type("application/json");
        let (_, body) = self.answer(request.send(body.to_string()))?;
        serde_json::from_slice(&body).context("the answer is not JSON")
    }

    /// Sends an object, and returns an answer of a media type.
    pub fn ask(
        &self,
        path: &str,
        accept: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<Vec<u8>> {
        let request = self.signed(self.agent.post(format!("{}{path}", self.url)));
        let request = request
            .content_type("application/json")
            .header("Accept", accept);
        let (_, body) = self.answer(request.send(body.to_string()))?;
        Ok(body)
    }

    /// Makes something, and returns it as it was made.
    pub fn create(
        &self,
        path: &str,
        headers: &[(&str, String)],
        body: &serde_json::Value,
    ) -> anyhow::Result<serde_json::Value> {
        let mut request = self.signed(self.agent.post(format!("{}{path}", self.url)));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.content_type("application/json");
        let (_, body) = self.answer(request.send(body.to_string()))?;
        serde_json::from_slice(&body).context("the answer is not JSON")
    }

    /// Sends bytes of a media type, and returns the answer.
    pub fn upload(
        &self,
        path: &str,
        media_type: &str,
        bytes: &[u8],
    ) -> anyhow::Result<serde_json::Value> {
        let request = self.signed(self.agent.post(format!("{}{path}", self.url)));
        let (_, body) = self.answer(request.content_type(media_type).send(bytes))?;
        serde_json::from_slice(&body).context("the answer is not JSON")
    }

    /// Sends lines of JSON.
    pub fn lines_to(
        &self,
        path: &str,
        headers: &[(&str, String)],
        lines: &[u8],
    ) -> anyhow::Result<()> {
        let mut request = self.signed(self.agent.post(format!("{}{path}", self.url)));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.content_type("application/x-ndjson");
        self.answer(request.send(lines)).map(|_| ())
    }

    /// Requests a stream, without an end; `body` is sent if given.
    pub fn stream(
        &self,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> anyhow::Result<impl std::io::Read + use<>> {
        let agent = agent(self.tls.as_ref(), self.path.as_deref(), None);
        let url = format!("{}{path}", self.url);
        let answer = match body {
            Some(body) => {
                let request = self
                    .signed(agent.post(url))
                    .content_type("application/json");
                request.send(body.to_string())
            }
            None => self.signed(agent.get(url)).call(),
        };
        let mut answer = answer
            .with_context(|| format!("{} does not answer like a `skua run`", self.address))?;
        if !answer.status().is_success() {
            let body = answer.body_mut().read_to_vec()?;
            bail!("{}", message(&body));
        }
        Ok(answer.into_body().into_reader())
    }

    /// Deletes the resource at the path.
    pub fn delete(&self, path: &str) -> anyhow::Result<()> {
        let request = self.signed(self.agent.delete(format!("{}{path}", self.url)));
        let request = request.header("Content-Type", "application/json");
        self.answer(request.call())?;
        Ok(())
    }

    /// Flows as lines, and the time of the drain that they are from.
    pub fn flows(&self, query: &FlowsQuery<'_>) -> anyhow::Result<(Vec<u8>, u64)> {
        let mut parameters = vec![
            ("sort", query.sort.to_owned()),
            ("since", query.since.to_string()),
            ("format", if query.csv { "csv" } else { "json" }.to_owned()),
        ];
        if let Some(filter) = query.filter {
            parameters.push(("filter", filter.to_owned()));
        }
        let conditions = query.conditions.iter().cloned();
        parameters.extend(conditions.map(|text| ("where", text)));
        if let Some(limit) = query.limit {
            parameters.push(("limit", limit.to_string()));
        }
        if query.active {
            parameters.push(("active", "true".to_owned()));
        }
        if let Some(by) = query.by {
            parameters.push(("by", by.to_owned()));
        }
        let (lines, drained) = self.get("/api/flows", &parameters)?;
        Ok((lines, drained.unwrap_or(query.since)))
    }

    /// Lines of any list of the API, and the time of the drain that they are from.
    pub fn lines(
        &self,
        path: &str,
        parameters: &[(String, String)],
    ) -> anyhow::Result<(Vec<u8>, Option<u64>)> {
        let parameters: Vec<_> = parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        self.get(path, &parameters)
    }

    /// Any object of the API.
    pub fn object(&self, path: &str) -> anyhow::Result<serde_json::Value> {
        let (body, _) = self.get(path, &[])?;
        serde_json::from_slice(&body).context("the answer is not JSON")
    }
}
