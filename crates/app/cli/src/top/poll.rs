//! Polls the data that the view needs, on a thread of its own.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use skua_client::{Client, Refusal};
use skua_output as output;
use skua_top::view::{Answer, Failure, Question, Request};

use crate::{
    health,
    top::{Input, Sender},
};

/// Longest answer that is read, in bytes.
pub const LONGEST: u64 = 64 << 20;
/// Most records that are used of an answer.
const RECORDS: usize = 5000;
/// Pause after a failed connection.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Pending {
    requests: Vec<Request>,
    over: bool,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

/// Polls on a thread of its own; ends when it is dropped.
pub struct Poller {
    shared: Arc<Shared>,
}

impl Poller {
    /// Starts to poll; answers go to `sender`.
    pub fn start(client: Arc<Client>, sender: Sender) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let work = {
            let shared = shared.clone();
            move || shared.work(&client, &sender)
        };
        std::thread::Builder::new()
            .name("poll".into())
            .spawn(work)?;
        Ok(Self { shared })
    }

    /// Sets the requests to poll from now on.
    pub fn set_requests(&self, requests: Vec<Request>) {
        let mut pending = self.shared.lock();
        if pending.requests != requests {
            pending.requests = requests;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next request that is due. `None`: polling has ended.
    fn next(&self, sent: &mut Vec<(Request, Instant)>) -> Option<Request> {
        let mut pending = self.lock();
        loop {
            if pending.over {
                return None;
            }
            sent.retain(|(request, _)| pending.requests.contains(request));
            // When each is due: first requests never sent, then the one that has waited longest, so
            // that slow answers starve none.
            let due = |request: &Request| {
                let (_, last) = sent.iter().find(|(sent, _)| sent == request)?;
                Some(*last + Duration::from_secs(request.pause))
            };
            let first = pending
                .requests
                .iter()
                .map(|request| (due(request), request))
                .min_by_key(|(due, _)| *due);
            let waited = match first {
                None => {
                    let waited = self.changed.wait(pending);
                    pending = waited.unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Some((due, request)) => {
                    let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
                    match wait.filter(|wait| !wait.is_zero()) {
                        None => return Some(request.clone()),
                        Some(wait) => self.changed.wait_timeout(pending, wait),
                    }
                }
            };
            (pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, client: &Client, sender: &Sender) {
        let mut sent: Vec<(Request, Instant)> = Vec::new();
        while let Some(request) = self.next(&mut sent) {
            let begin = Instant::now();
            let answer = ask(client, &request.question).map_err(|error| failure(&error));
            sent.retain(|(other, _)| *other != request);
            sent.push((request.clone(), begin));
            let unreachable = matches!(answer, Err(Failure::Unreachable(_)));
            if sender.send(Input::Answered(request, answer)).is_err() {
                return;
            }
            if unreachable {
                std::thread::sleep(RETRY);
            }
        }
    }
}

fn failure(error: &anyhow::Error) -> Failure {
    let text = output::one_line(error);
    match error.downcast_ref::<Refusal>() {
        Some(_) => Failure::Refused(text),
        None => Failure::Unreachable(text),
    }
}

fn ask(client: &Client, question: &Question) -> anyhow::Result<Answer> {
    match question {
        Question::Lines { path, parameters } => {
            let parameters: Vec<_> = parameters
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone()))
                .collect();
            let (lines, found) = client.with_header(path, &parameters, "x-skua-found")?;
            let lines = lines
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty());
            let rows = lines.take(RECORDS).map(serde_json::from_slice);
            let rows: Result<Vec<Value>, _> = rows.collect();
            let rows = rows.context("cannot read a record")?;
            Ok(match found.and_then(|found| found.parse().ok()) {
                Some(found) => Answer::Page(rows, found),
                None => Answer::Rows(rows),
            })
        }
        Question::Object { path } => {
            let mut status = client.object(path)?;
            if !status.is_object() {
                bail!(Refusal(format!("{path} is not an object")));
            }
            status["advice"] = health::advice(&status).into();
            Ok(Answer::Object(status))
        }
        Question::Query(query) => {
            let body = json!({"GremlinQuery": query});
            let answer = client.ask("/api/topology", "application/json", &body)?;
            if answer.is_empty() {
                return Ok(Answer::Rows(Vec::new()));
            }
            match serde_json::from_slice(&answer).context("the answer is not JSON")? {
                Value::Array(mut rows) => {
                    rows.retain(Value::is_object);
                    rows.truncate(RECORDS);
                    Ok(Answer::Rows(rows))
                }
                other => Ok(Answer::Rows(vec![other])),
            }
        }
    }
}
