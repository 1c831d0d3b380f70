//! Asks what the view wants to know, again and again, on a thread of its own.

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

/// The longest answer that is read, in bytes.
pub const LONGEST: u64 = 64 << 20;
/// Records that are taken of an answer.
const RECORDS: usize = 5000;
/// Time until it is tried again where nobody answered.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Wanted {
    requests: Vec<Request>,
    over: bool,
}

#[derive(Default)]
struct Desk {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

/// Asks on a thread of its own; ends when it is dropped.
pub struct Asker {
    desk: Arc<Desk>,
}

impl Asker {
    /// Begins to ask; answers go to `sender`.
    pub fn start(client: Arc<Client>, sender: Sender) -> anyhow::Result<Self> {
        let desk = Arc::new(Desk::default());
        let work = {
            let desk = desk.clone();
            move || desk.work(&client, &sender)
        };
        std::thread::Builder::new().name("ask".into()).spawn(work)?;
        Ok(Self { desk })
    }

    /// Says what is wanted from now on.
    pub fn want(&self, requests: Vec<Request>) {
        let mut wanted = self.desk.lock();
        if wanted.requests != requests {
            wanted.requests = requests;
            self.desk.changed.notify_one();
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.desk.lock().over = true;
        self.desk.changed.notify_one();
    }
}

impl Desk {
    fn lock(&self) -> std::sync::MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request, when its time has come; waits for it. `None`: nothing is wanted any more.
    fn next(&self, asked: &mut Vec<(Request, Instant)>) -> Option<Request> {
        let mut wanted = self.lock();
        loop {
            if wanted.over {
                return None;
            }
            asked.retain(|(request, _)| wanted.requests.contains(request));
            // When each is due; what was never asked comes first, then what has waited longest, so that
            // none is left out where answers take their time.
            let due = |request: &Request| {
                let (_, last) = asked.iter().find(|(asked, _)| asked == request)?;
                Some(*last + Duration::from_secs(request.pause))
            };
            let first = wanted
                .requests
                .iter()
                .map(|request| (due(request), request))
                .min_by_key(|(due, _)| *due);
            let waited = match first {
                None => {
                    let waited = self.changed.wait(wanted);
                    wanted = waited.unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Some((due, request)) => {
                    let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
                    match wait.filter(|wait| !wait.is_zero()) {
                        None => return Some(request.clone()),
                        Some(wait) => self.changed.wait_timeout(wanted, wait),
                    }
                }
            };
            (wanted, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, client: &Client, sender: &Sender) {
        let mut asked: Vec<(Request, Instant)> = Vec::new();
        while let Some(request) = self.next(&mut asked) {
            let begin = Instant::now();
            let answer = ask(client, &request.question).map_err(|error| failure(&error));
            asked.retain(|(other, _)| *other != request);
            asked.push((request.clone(), begin));
            let gone = matches!(answer, Err(Failure::Gone(_)));
            if sender.send(Input::Answered(request, answer)).is_err() {
                return;
            }
            if gone {
                std::thread::sleep(AGAIN);
            }
        }
    }
}

fn failure(error: &anyhow::Error) -> Failure {
    let text = output::one_line(error);
    match error.downcast_ref::<Refusal>() {
        Some(_) => Failure::Refused(text),
        None => Failure::Gone(text),
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
                bail!(Refusal(format!("{path} is no object")));
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
            match serde_json::from_slice(&answer).context("the answer is no JSON")? {
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
