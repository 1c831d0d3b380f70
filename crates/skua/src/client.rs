//! Asking a running `skua run`.

use std::{io::Write as _, net::ToSocketAddrs as _, time::Duration};

use anyhow::{Context as _, bail};

use crate::{
    args::OutputFormat,
    output::{self, Column},
};

/// Most of an answer that is read.
const ANSWER_LIMIT: u64 = 4 << 30;

type Answer = ureq::http::Response<ureq::Body>;

/// A `skua run` that answers.
pub struct Client {
    address: String,
    /// With the address as a number, as the API wants it in the Host header.
    url: String,
    agent: ureq::Agent,
}

/// Which flows to ask for.
pub struct FlowsQuery<'a> {
    pub filter: Option<&'a str>,
    pub sort: &'a str,
    pub limit: Option<usize>,
    pub active: bool,
    pub since: u64,
    pub csv: bool,
    pub by: Option<crate::groups::By>,
}

impl Client {
    /// A client when something listens there, none when nothing does.
    pub fn connect(address: &str) -> anyhow::Result<Option<Self>> {
        let place = address
            .to_socket_addrs()
            .with_context(|| format!("\"{address}\" is no address; write it like 127.0.0.1:8082"))?
            .next();
        let Some(place) = place else { return Ok(None) };
        if std::net::TcpStream::connect_timeout(&place, Duration::from_secs(2)).is_err() {
            return Ok(None);
        }
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(60)))
            .http_status_as_error(false)
            .proxy(None)
            .build()
            .new_agent();
        Ok(Some(Self {
            address: address.to_owned(),
            url: format!("http://{place}"),
            agent,
        }))
    }

    /// A client; that nothing answers is an error.
    pub fn must(address: &str) -> anyhow::Result<Self> {
        Self::connect(address)?.with_context(|| {
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
            OutputFormat::Csv => bail!("{what} have no CSV form: table or json"),
        }
        Ok(())
    }

    /// Changes something by a JSON patch, and returns it as it is then.
    pub fn patch(
        &self,
        path: &str,
        patch: &serde_json::Value,
    ) -> anyhow::Result<serde_json::Value> {
        let request = self.agent.patch(format!("{}{path}", self.url));
        let request = request.content_type("application/json");
        let (_, body) = self.answer(request.send(patch.to_string()))?;
        serde_json::from_slice(&body).context("the answer is no JSON")
    }

    fn get(
        &self,
        path: &str,
        parameters: &[(&str, String)],
    ) -> anyhow::Result<(Vec<u8>, Option<u64>)> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        for (name, value) in parameters {
            request = request.query(*name, value);
        }
        let (answer, body) = self.answer(request.call())?;
        let drained = answer
            .headers()
            .get("x-skua-drained")
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.parse().ok());
        Ok((body, drained))
    }

    /// An answer and its body; what it says when it is a refusal is the error.
    fn answer(&self, answer: Result<Answer, ureq::Error>) -> anyhow::Result<(Answer, Vec<u8>)> {
        let mut answer =
            answer.with_context(|| format!("{} does not answer as a `skua run`", self.address))?;
        let body = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_LIMIT)
            .read_to_vec()?;
        if !answer.status().is_success() {
            bail!("{}", String::from_utf8_lossy(&body).trim());
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
        let request = request.content_type("application/json");
        let (_, body) = self.answer(request.send(body.to_string()))?;
        serde_json::from_slice(&body).context("the answer is no JSON")
    }

    /// Asks something: an object there, an answer of a media type back.
    pub fn ask(
        &self,
        path: &str,
        accept: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<Vec<u8>> {
        let request = self.agent.post(format!("{}{path}", self.url));
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
        let mut request = self.agent.post(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.content_type("application/json");
        let (_, body) = self.answer(request.send(body.to_string()))?;
        serde_json::from_slice(&body).context("the answer is no JSON")
    }

    /// Asks for what goes on as long as somebody reads it: an object there, or none.
    pub fn stream(
        &self,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> anyhow::Result<impl std::io::Read + use<>> {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .build()
            .new_agent();
        let url = format!("{}{path}", self.url);
        let answer = match body {
            Some(body) => {
                let request = agent.post(url).content_type("application/json");
                request.send(body.to_string())
            }
            None => agent.get(url).call(),
        };
        let mut answer =
            answer.with_context(|| format!("{} does not answer as a `skua run`", self.address))?;
        if !answer.status().is_success() {
            let body = answer.body_mut().read_to_vec()?;
            bail!("{}", String::from_utf8_lossy(&body).trim());
        }
        Ok(answer.into_body().into_reader())
    }

    /// Deletes what is there.
    pub fn delete(&self, path: &str) -> anyhow::Result<()> {
        let request = self.agent.delete(format!("{}{path}", self.url));
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
        if let Some(limit) = query.limit {
            parameters.push(("limit", limit.to_string()));
        }
        if query.active {
            parameters.push(("active", "true".to_owned()));
        }
        if let Some(by) = query.by {
            parameters.push(("by", by.name().to_owned()));
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
        serde_json::from_slice(&body).context("the answer is no JSON")
    }
}
