//! The state of the view: what is shown, data from answers, and the data to request.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Value, json};

use crate::{
    columns::text,
    fleet,
    list::List,
    make::Make,
    rates::Rates,
    theme::Theme,
    tree::Tree,
    view::{Answer, Failure, Question, Request, Topic, View, words},
};

/// Events in memory.
const EVENTS_KEPT: usize = 2000;
/// Without an answer for so long the server counts as unreachable.
const SILENCE: Duration = Duration::from_secs(5);
/// Seconds between requests of data that is expensive and changes slowly.
const SLOWLY: u64 = 3;

/// A window over the view.
#[derive(Debug)]
pub enum Overlay {
    /// Keys and what they do.
    Help {
        /// The first line shown.
        from: usize,
    },
    /// All of a record.
    Details {
        /// The record.
        row: Value,
        /// The first line shown.
        from: usize,
        /// Whether it is shown as JSON.
        raw: bool,
    },
    /// A filter that is being typed.
    Filter {
        /// So far.
        text: String,
    },
    /// Which columns are shown.
    Columns {
        /// The chosen one.
        at: usize,
    },
    /// Something is about to be made.
    Confirm(Make),
}

/// Work for the caller of the view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// End.
    Quit,
    /// Put a text into the clipboard.
    Copy(String),
    /// Make a capture or a tap.
    Make(Make),
    /// Write the rows to a file.
    Export {
        /// Beginning of its name.
        name: &'static str,
        /// End of its name.
        kind: &'static str,
        /// Its content.
        text: String,
    },
}

/// What flows are summed up by.
pub const GROUPINGS: [&str; 5] = ["process", "service", "container", "country", "as"];

/// The state of the view.
#[derive(Debug)]
pub struct App {
    /// Colours and signs.
    pub theme: Theme,
    /// The address of the server.
    pub address: String,
    /// The current view.
    pub view: View,
    /// Lists of all views; that of the overview has its flows.
    pub lists: [List; 7],
    /// Processes of the overview.
    pub processes: Vec<Value>,
    /// The last status.
    pub status: Value,
    /// Rates of all packets observed.
    pub rates: Rates,
    /// Whether requests are paused.
    pub frozen: bool,
    /// Whether the server watches no host, but has agents.
    pub fleet: bool,
    /// Whether services are shown by which service calls which.
    pub dependencies: bool,
    /// Whether flows that have ended are shown, too.
    pub ended: bool,
    /// What flows are summed up by; none: each is shown.
    pub group: Option<&'static str>,
    /// Seconds between requests.
    pub interval: u64,
    /// Seconds that the reader's clock is ahead of UTC, by the time in seconds since the Unix epoch.
    pub zone: fn(i64) -> i32,
    /// The window over the view.
    pub overlay: Option<Overlay>,
    /// The message at the bottom, and whether it is an error.
    pub message: Option<(String, bool)>,
    /// Why the server is unreachable, if it is.
    pub unreachable: Option<String>,
    /// The time of day, for events.
    pub now: String,
    /// When the last answer arrived.
    answered: Duration,
    tree: Tree,
    events: VecDeque<Value>,
    /// Whether some are not shown yet.
    events_stale: bool,
    numbers: u64,
    /// Losses of the status before.
    lost: Option<u64>,
}

/// Packets that are lost, by all causes.
pub fn lost(status: &Value) -> u64 {
    let causes = status["summary"]["lost"].as_object().into_iter().flatten();
    causes.filter_map(|(_, sum)| sum["packets"].as_u64()).sum()
}

impl App {
    /// A view of the server at `address`.
    pub fn new(address: &str, theme: Theme) -> Self {
        Self {
            theme,
            address: address.to_owned(),
            view: View::Overview,
            lists: Default::default(),
            processes: Vec::new(),
            status: Value::Null,
            rates: Rates::default(),
            frozen: false,
            fleet: false,
            dependencies: false,
            ended: false,
            group: None,
            interval: 1,
            zone: |_| 0,
            overlay: None,
            message: None,
            unreachable: None,
            now: String::new(),
            answered: Duration::ZERO,
            tree: Tree::default(),
            events: VecDeque::new(),
            events_stale: false,
            numbers: 0,
            lost: None,
        }
    }

    /// The list of the current view.
    pub fn list(&self) -> &List {
        &self.lists[self.view as usize]
    }

    /// The same, to change it.
    pub fn list_mut(&mut self) -> &mut List {
        &mut self.lists[self.view as usize]
    }

    /// The data to request: what the view shows, and no more.
    pub fn requests(&self) -> Vec<Request> {
        if self.frozen {
            return Vec::new();
        }
        let mut requests = vec![Request {
            topic: Topic::Status,
            question: Question::Object {
                path: "/api/status",
            },
            pause: self.interval,
        }];
        let mut ask = |topic, question, pause: u64| {
            let pause = pause.max(self.interval);
            requests.push(Request {
                topic,
                question,
                pause,
            });
        };
        let list = self.list();
        let rows = Topic::Rows(self.view);
        match self.view {
            View::Overview | View::Flows if self.fleet => {
                let sort = self.view.sorts().get(list.sort).copied().unwrap_or("rate");
                let query = fleet::flows_query(sort, &list.filter, list.limit());
                ask(rows, Question::Query(query), SLOWLY);
            }
            View::Overview => {
                let rate = |limit: usize| {
                    vec![
                        ("sort".to_owned(), "rate".to_owned()),
                        ("limit".to_owned(), limit.to_string()),
                    ]
                };
                let path = "/api/flows";
                let mut parameters = rate(list.height.max(1));
                if !list.filter.is_empty() {
                    parameters.push(("filter".into(), list.filter.clone()));
                }
                if !self.ended {
                    parameters.push(("active".into(), "true".into()));
                }
                ask(Topic::TopFlows, Question::Lines { path, parameters }, 1);
                let mut parameters = rate(20);
                parameters.push(("by".into(), "process".into()));
                ask(
                    Topic::TopProcesses,
                    Question::Lines { path, parameters },
                    SLOWLY,
                );
            }
            View::Flows | View::Sockets | View::Services => {
                let sort = self.view.sorts().get(list.sort).copied().unwrap_or("rate");
                let mut parameters = vec![
                    ("sort".to_owned(), sort.to_owned()),
                    ("limit".to_owned(), list.limit().to_string()),
                ];
                let path = match self.view {
                    View::Flows => "/api/flows",
                    View::Sockets => "/api/sockets",
                    _ if self.dependencies => "/api/dependencies",
                    _ => "/api/services",
                };
                if self.view == View::Flows && !self.ended {
                    parameters.push(("active".into(), "true".into()));
                }
                if let Some(by) = self.group.filter(|_| self.view == View::Flows) {
                    parameters.push(("by".into(), by.into()));
                } else if list.base > 0 {
                    parameters.push(("offset".to_owned(), list.base.to_string()));
                }
                if self.view != View::Flows {
                    parameters.extend(words(&list.filter));
                } else if !list.filter.is_empty() {
                    parameters.push(("filter".into(), list.filter.clone()));
                }
                ask(rows, Question::Lines { path, parameters }, 1);
            }
            View::Topology => {
                ask(
                    rows,
                    Question::Query(Tree::roots_query(&list.filter)),
                    SLOWLY,
                );
                if let Some([edges, nodes]) = self.tree.queries() {
                    ask(Topic::Edges, Question::Query(edges), SLOWLY);
                    ask(Topic::Nodes, Question::Query(nodes), SLOWLY);
                }
            }
            View::Interfaces | View::Events => {}
        }
        requests
    }

    /// Applies an answer received at a moment (of a monotonic clock). Answers to outdated requests
    /// are ignored.
    pub fn handle_answer(
        &mut self,
        request: &Request,
        answer: Result<Answer, Failure>,
        at: Duration,
    ) {
        if !self.requests().contains(request) {
            return;
        }
        match answer {
            Ok(answer) => {
                self.answered(at);
                self.apply_answer(request.topic, answer, at);
            }
            Err(Failure::Unreachable(why)) => self.lose(why),
            Err(Failure::Refused(why)) => {
                self.answered(at);
                match request.topic {
                    Topic::Status | Topic::TopProcesses => self.message = Some((why, true)),
                    // An outdated answer would be taken for the current one.
                    Topic::TopFlows | Topic::Rows(_) | Topic::Edges | Topic::Nodes => {
                        let list = self.list_mut();
                        list.error = Some(why);
                        list.rows.clear();
                    }
                }
            }
        }
    }

    fn answered(&mut self, at: Duration) {
        self.answered = at;
        if self.unreachable.take().is_some() {
            self.message = Some((format!("{} answers again", self.address), false));
            let address = self.address.clone();
            self.event("answers again", "", &address, "");
        }
    }

    fn lose(&mut self, why: String) {
        if self.unreachable.is_none() {
            let address = self.address.clone();
            self.event("unreachable", "", &address, &why);
            self.rates.pause();
            // A restarted process counts losses from 0.
            self.lost = None;
        }
        self.unreachable = Some(why);
    }

    /// Detects that no answer has arrived for long.
    pub fn tick(&mut self, at: Duration) {
        if self.frozen {
            // Requests are paused.
            self.answered = at;
        }
        if at.saturating_sub(self.answered) > SILENCE && self.unreachable.is_none() {
            self.lose("no answer for 5 s".into());
        }
    }

    /// What distinguishes the rows of the current view.
    pub(crate) fn identity(&self) -> fn(&Value) -> String {
        match (self.view, self.group) {
            (View::Flows, Some(_)) => |row| {
                format!(
                    "{} {} {} {}",
                    row["name"], row["place"], row["protocol"], row["port"]
                )
            },
            (view, _) => view.identity(),
        }
    }

    /// The columns of the current view.
    pub fn columns(&self) -> &'static [crate::columns::Column] {
        match self.view {
            View::Services if self.dependencies => &crate::columns::DEPENDENCIES,
            View::Flows if self.group.is_some() && !self.fleet => &crate::columns::GROUPS,
            view => view.columns(),
        }
    }

    fn apply_answer(&mut self, topic: Topic, answer: Answer, at: Duration) {
        let identity = self.identity();
        let mut found = None;
        let answer = match answer {
            Answer::Page(rows, all) => {
                found = Some(all);
                Answer::Rows(rows)
            }
            answer => answer,
        };
        let answer = match answer {
            Answer::Rows(mut rows) => {
                // The server's answer may have any form.
                rows.retain(Value::is_object);
                Answer::Rows(rows)
            }
            object => object,
        };
        let flow = |rows: Vec<Value>| rows.into_iter().map(fleet::flow).collect();
        match (topic, answer) {
            (Topic::Status, Answer::Object(status)) => self.apply_status(status, at),
            (Topic::TopProcesses, Answer::Rows(rows)) => self.processes = rows,
            (Topic::TopFlows, Answer::Rows(rows)) => self.list_mut().replace(rows, identity),
            (Topic::Rows(View::Topology), Answer::Rows(roots)) => {
                self.tree.set_roots(roots);
                self.show_tree();
            }
            (Topic::Edges, Answer::Rows(edges)) => self.tree.set_edges(&edges),
            (Topic::Nodes, Answer::Rows(nodes)) => {
                self.tree.set_nodes(nodes);
                self.show_tree();
            }
            (Topic::Rows(view @ (View::Overview | View::Flows)), Answer::Rows(rows))
                if self.fleet =>
            {
                self.lists[view as usize].replace(flow(rows), identity);
            }
            (Topic::Rows(view), Answer::Rows(rows)) => {
                let list = &mut self.lists[view as usize];
                match found.filter(|_| view == View::Flows && self.group.is_none()) {
                    Some(found) => list.replace_page(rows, found, identity),
                    None => list.replace(rows, identity),
                }
            }
            _ => {}
        }
    }

    fn apply_status(&mut self, status: Value, at: Duration) {
        if let Some(mut interfaces) = self.rates.update(&status, at) {
            self.order_interfaces(&mut interfaces);
            let list = &mut self.lists[View::Interfaces as usize];
            list.replace(interfaces, View::Interfaces.identity());
        }
        let now = lost(&status);
        if let Some(before) = self.lost.replace(now)
            && now > before
        {
            let what = format!("{} packets were lost", now - before);
            self.event("lost", "", "", &what);
        }
        self.fleet = fleet::watches_nothing(&status);
        self.status = status;
    }

    fn order_interfaces(&self, interfaces: &mut Vec<Value>) {
        let list = &self.lists[View::Interfaces as usize];
        let name = |i: &Value| (text(&i["netns"]), text(&i["interface"]));
        if !list.filter.is_empty() {
            interfaces.retain(|i| {
                let (netns, interface) = name(i);
                format!("{netns} {interface} {}", text(&i["hook"])).contains(&list.filter)
            });
        }
        let sum = |i: &Value, keys: [[&str; 2]; 2]| -> f64 {
            keys.iter()
                .filter_map(|[map, key]| i[*map][*key].as_f64())
                .sum()
        };
        let rank = |i: &Value| match list.sort {
            0 => sum(
                i,
                [
                    ["rate", "in_bits_per_second"],
                    ["rate", "out_bits_per_second"],
                ],
            ),
            1 => sum(i, [["ingress", "bytes"], ["egress", "bytes"]]),
            _ => 0.0,
        };
        interfaces.sort_by(|a, b| {
            rank(b)
                .total_cmp(&rank(a))
                .then_with(|| name(a).cmp(&name(b)))
        });
    }

    /// Shows the tree as it is now.
    pub(crate) fn show_tree(&mut self) {
        let rows = self.tree.rows(self.theme);
        self.lists[View::Topology as usize].replace(rows, View::Topology.identity());
    }

    /// Opens or closes the chosen node.
    pub(crate) fn open_node(&mut self, open: bool) {
        let Some(id) = self.list().row().map(|row| text(&row["ID"])) else {
            return;
        };
        self.tree.set_open(&id, open);
        self.show_tree();
    }

    /// Starts the tree again, from other roots.
    pub(crate) fn restart_tree(&mut self) {
        self.tree.restart();
    }

    /// Adds an event, and removes the oldest beyond the limit.
    pub fn event(&mut self, event: &str, kind: &str, name: &str, what: &str) {
        self.numbers += 1;
        let time = self.now.clone();
        self.push_event(json!({
            "time": time, "event": event, "type": kind, "name": name, "what": what,
            "number": self.numbers,
        }));
    }

    fn push_event(&mut self, event: Value) {
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.events_stale = true;
    }

    /// Updates the lists for the next drawing.
    pub(crate) fn prepare(&mut self) {
        if !self.frozen && std::mem::take(&mut self.events_stale) {
            self.show_events();
        }
    }

    /// Shows the events, the latest first.
    pub(crate) fn show_events(&mut self) {
        let filter = &self.lists[View::Events as usize].filter;
        let fits = |event: &&Value| {
            filter.is_empty()
                || ["event", "type", "name", "what"]
                    .iter()
                    .any(|key| text(&event[*key]).contains(filter))
        };
        let rows = self.events.iter().rev().filter(fits).cloned().collect();
        self.lists[View::Events as usize].replace(rows, View::Events.identity());
    }

    /// Shows the result of making a capture or tap.
    pub fn made(&mut self, make: &Make, done: Result<Value, String>) {
        let what = if make.tap { "tap" } else { "capture" };
        self.message = Some(match done {
            Ok(made) => {
                let id = text(&made["UUID"]);
                match made["Error"].as_str().filter(|error| !error.is_empty()) {
                    Some(error) => (format!("{what} {id} waits: {error}"), true),
                    None => (
                        format!(
                            "made; `skua {what} list` shows it, `skua {what} delete {id}` ends it"
                        ),
                        false,
                    ),
                }
            }
            Err(error) => (format!("no {what}: {error}"), true),
        });
    }
}
