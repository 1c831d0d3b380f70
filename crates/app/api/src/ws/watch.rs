//! Lists that a client watches over `/ws/map`: requested like by `GET`, periodically, and sent as changes.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, Response, StatusCode},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tower::ServiceExt as _;

/// Time between two requests of a list.
const PAUSE: Duration = Duration::from_secs(2);
/// Lists of one connection.
const LISTS: usize = 4;
/// Rows of a list.
const ROWS: usize = 1_000;
/// Bytes of an answer.
const ANSWER: usize = 4 << 20;
/// What can be watched: answers with an object in each line.
const PATHS: [&str; 5] = [
    "/api/flows",
    "/api/sockets",
    "/api/services",
    "/api/dependencies",
    "/api/services/graph",
];

/// A client's message: everything that it watches from now on, under names that it chooses.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Subscription {
    #[serde(default)]
    watch: BTreeMap<String, String>,
    /// Whether it watches the map.
    #[serde(default = "yes")]
    map: bool,
}

fn yes() -> bool {
    true
}

/// A row as digests: of its identity, and of each value by its key's digest.
struct SentRow {
    identity: u64,
    values: Vec<(u64, u64)>,
}

#[derive(Default)]
struct List {
    path: String,
    due: Option<Instant>,
    rows: Vec<SentRow>,
    /// The last answer sent, if it was an error.
    trouble: Option<(u16, String)>,
    sent: bool,
    found: Option<u64>,
}

/// All lists that one client watches.
pub struct Watches {
    /// Whether the map is among it.
    pub map: bool,
    routes: Router,
    lists: BTreeMap<String, List>,
}

/// The changes of a list.
#[derive(Serialize, PartialEq, Debug)]
#[serde(rename_all = "PascalCase")]
struct Changes<'a> {
    key: &'a str,
    /// Number of rows without the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<u64>,
    /// For each row: the row; or its former number; or that number with the changed values.
    rows: Vec<Value>,
}

fn digest(what: &Value) -> u64 {
    fn feed(what: &Value, hasher: &mut DefaultHasher) {
        match what {
            Value::Null => 0.hash(hasher),
            Value::Bool(value) => value.hash(hasher),
            Value::Number(number) => number.hash(hasher),
            Value::String(text) => text.hash(hasher),
            Value::Array(items) => {
                items.len().hash(hasher);
                items.iter().for_each(|item| feed(item, hasher));
            }
            Value::Object(map) => {
                map.len().hash(hasher);
                for (key, value) in map {
                    key.hash(hasher);
                    feed(value, hasher);
                }
            }
        }
    }
    let mut hasher = DefaultHasher::new();
    feed(what, &mut hasher);
    hasher.finish()
}

fn digest_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Identity of a row: its identifier, or the keys of a sum.
fn identity(row: &Map<String, Value>) -> u64 {
    const NAMES: [&str; 7] = [
        "client", "server", "protocol", "port", "by", "name", "place",
    ];
    match row.get("id") {
        // Numbers of sockets are those of a namespace.
        Some(id) => digest(&json!([id, row.get("netns")])),
        None => digest(&NAMES.iter().map(|name| row.get(*name).cloned()).collect()),
    }
}

fn sent_row(row: &Map<String, Value>) -> SentRow {
    SentRow {
        identity: identity(row),
        values: row
            .iter()
            .map(|(key, value)| (digest_of(key), digest(value)))
            .collect(),
    }
}

/// Changed values of a row; none if a key was removed, since only its digest is known.
fn difference(
    before: &SentRow,
    row: &Map<String, Value>,
    after: &SentRow,
) -> Option<Map<String, Value>> {
    let known: HashMap<_, _> = before.values.iter().copied().collect();
    let pairs = row.iter().zip(&after.values);
    let other = pairs.filter(|(_, (key, value))| known.get(key) != Some(value));
    let other: Map<_, _> = other
        .map(|((key, value), _)| (key.clone(), value.clone()))
        .collect();
    let new = after
        .values
        .iter()
        .filter(|(key, _)| !known.contains_key(key));
    (after.values.len() == known.len() + new.count()).then_some(other)
}

impl List {
    /// Applies new rows; returns the changes, if there are any.
    fn rows(&mut self, rows: &[Map<String, Value>], found: Option<u64>) -> Option<Vec<Value>> {
        let places: HashMap<u64, usize> = (self.rows.iter().enumerate())
            .map(|(place, sent)| (sent.identity, place))
            .collect();
        let mut now = Vec::with_capacity(rows.len());
        let mut same = self.sent
            && self.trouble.is_none()
            && self.found == found
            && rows.len() == self.rows.len();
        let encode = |(number, row): (usize, &Map<String, Value>)| {
            let after = sent_row(row);
            let place = places.get(&after.identity).copied();
            let other = place.and_then(|p| Some((p, difference(&self.rows[p], row, &after)?)));
            now.push(after);
            match other {
                Some((place, other)) if other.is_empty() => {
                    same &= place == number;
                    json!(place)
                }
                Some((place, other)) => {
                    same = false;
                    json!([place, other])
                }
                None => {
                    same = false;
                    Value::Object(row.clone())
                }
            }
        };
        let text = rows.iter().enumerate().map(encode).collect();
        self.rows = now;
        self.sent = true;
        self.found = found;
        self.trouble = None;
        (!same).then_some(text)
    }

    /// Applies an error; whether it must be sent.
    fn refused(&mut self, status: u16, text: &str) -> bool {
        self.rows.clear();
        let trouble = (status, text.to_owned());
        let new = self.trouble.as_ref() != Some(&trouble);
        self.trouble = Some(trouble);
        new
    }
}

impl Watches {
    /// The map, and no list so far of what these routes answer.
    pub fn new(routes: Router) -> Self {
        Self {
            map: true,
            routes,
            lists: BTreeMap::new(),
        }
    }

    /// Applies a client's message; the error is for the client.
    pub fn handle_message(&mut self, text: &str) -> Result<(), String> {
        let said: Subscription = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if said.watch.len() > LISTS {
            return Err(format!("at most {LISTS} lists can be watched at a time"));
        }
        for path in said.watch.values() {
            let (plain, _) = path.split_once('?').unwrap_or((path, ""));
            if !PATHS.contains(&plain) {
                return Err(format!("only {} can be watched", PATHS.join(", ")));
            }
        }
        self.map = said.map;
        let mut before = std::mem::take(&mut self.lists);
        for (key, path) in said.watch {
            let known = before.remove(&key).filter(|list| list.path == path);
            let list = known.unwrap_or_else(|| List {
                path,
                ..List::default()
            });
            self.lists.insert(key, list);
        }
        Ok(())
    }

    /// When the next list is due; none without lists.
    pub fn due(&self) -> Option<Instant> {
        let due = |list: &List| list.due.unwrap_or_else(Instant::now);
        self.lists.values().map(due).min()
    }

    /// Requests the list that is due; returns the message, if there are changes.
    pub async fn poll(&mut self) -> Option<String> {
        let first = self.lists.iter_mut().min_by_key(|(_, list)| list.due);
        let (key, list) = first?;
        let answer = get(self.routes.clone(), &list.path).await;
        // Set after the request: a slow list is not requested all the time.
        list.due = Some(Instant::now() + PAUSE);
        let message = match answer {
            Ok((rows, found)) => {
                let rows = list.rows(&rows, found)?;
                json!({ "Table": Changes { key, found, rows } })
            }
            Err((status, text)) => {
                if !list.refused(status.as_u16(), &text) {
                    return None;
                }
                json!({ "Table": { "Key": key, "Status": status.as_u16(), "Error": text } })
            }
        };
        Some(message.to_string())
    }
}

type Rows = (Vec<Map<String, Value>>, Option<u64>);

/// Requests a list as a client would.
async fn get(routes: Router, path: &str) -> Result<Rows, (StatusCode, String)> {
    let failed = |text: String| (StatusCode::INTERNAL_SERVER_ERROR, text);
    let request = Request::get(path).body(Body::empty());
    let request = request.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let answer: Response<Body> = match routes.oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let (parts, body) = answer.into_parts();
    let body = to_bytes(body, ANSWER).await;
    let body = body.map_err(|_| failed("the answer is too large: request fewer rows".into()))?;
    if !parts.status.is_success() {
        let text = String::from_utf8_lossy(&body).trim().to_owned();
        return Err((parts.status, text));
    }
    let lines = body.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty()).take(ROWS);
    let rows: Result<_, _> = lines.map(serde_json::from_slice).collect();
    let found = parts.headers.get("x-skua-found");
    let found = found.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok((rows.map_err(|error| failed(error.to_string()))?, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: Value) -> Vec<Map<String, Value>> {
        serde_json::from_value(values).unwrap()
    }

    #[test]
    fn only_changed_values_are_sent() {
        let mut list = List::default();
        let mut encode = |values: Value| {
            let count = values.as_array().map(|rows| rows.len() as u64);
            list.rows(&rows(values), count)
        };
        let a = json!({"id": "a", "ab": {"bytes": 1}, "start": "x"});
        let b = json!({"id": "b", "ab": {"bytes": 1}});
        assert_eq!(encode(json!([])), Some(vec![]));
        assert_eq!(encode(json!([])), None);
        assert_eq!(encode(json!([a, b])), Some(vec![a.clone(), b.clone()]));
        assert_eq!(encode(json!([a, b])), None);
        assert_eq!(encode(json!([b, a])), Some(vec![json!(1), json!(0)]));
        let more = json!({"id": "a", "ab": {"bytes": 2}, "start": "x", "end": "fin"});
        let other = json!([1, {"ab": {"bytes": 2}, "end": "fin"}]);
        assert_eq!(encode(json!([b, more])), Some(vec![json!(0), other]));
        // A removed key, alone and with an added one.
        assert_eq!(encode(json!([b, a])), Some(vec![json!(0), a.clone()]));
        let renamed = json!({"id": "b", "ba": {"bytes": 1}});
        assert_eq!(encode(json!([renamed])), Some(vec![renamed.clone()]));
    }

    #[test]
    fn sums_are_identified_by_their_keys() {
        let mut list = List::default();
        let sum = |name: &str, bytes: u64| json!({"by": "process", "name": name, "bytes": bytes});
        list.rows(&rows(json!([sum("curl", 1), sum("nc", 1)])), None);
        let sent = list.rows(&rows(json!([sum("nc", 2), sum("curl", 1)])), None);
        assert_eq!(sent, Some(vec![json!([1, {"bytes": 2}]), json!(0)]));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut watches = Watches::new(Router::new());
        for wrong in [
            "",
            r#"{"Watches": {}}"#,
            r#"{"Watch": {"1": "/api/capture"}}"#,
            r#"{"Watch": {"1": "/api/flowsx?a"}}"#,
            r#"{"Watch": {"1": "http://elsewhere/api/flows"}}"#,
            r#"{"Watch": {"1": "/api/flows", "2": "/api/flows", "3": "/api/flows",
                "4": "/api/flows", "5": "/api/flows"}}"#,
        ] {
            assert!(watches.handle_message(wrong).is_err(), "{wrong}");
        }
        assert!(watches.due().is_none());
        watches
            .handle_message(r#"{"Watch": {"1": "/api/flows?limit=3"}}"#)
            .unwrap();
        assert!(watches.due().is_some());
        assert!(watches.map);
        watches.handle_message(r#"{"Map": false}"#).unwrap();
        assert!(watches.due().is_none() && !watches.map);
    }
}
