//! The status of a collector: /metrics for Prometheus, /health and /ready for supervisors, and log messages.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write as _,
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    http::{Method, Request, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use skua_collect::{CollectorConfig, Summary};
use skua_output as output;
use skua_process::metrics::{Exposition, MEDIA_TYPE};
use tokio::sync::Semaphore;

use crate::received::Received;

/// Default address of the metrics.
const USUAL: &str = "127.0.0.1:6344";
/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many are answered at a time.
const CONNECTIONS: usize = 32;
/// Bytes of a request's headers.
const HEADERS: usize = 16 << 10;
/// A thread without a sign of life for this long hangs: each wakes up at least once a second.
const HANGS: Duration = Duration::from_secs(60);
/// Interval of checking for losses.
const LOSS_CHECK: Duration = Duration::from_secs(5);
/// Least time between two log messages of a cause.
const QUIET: Duration = Duration::from_secs(60);

skua_process::metrics! { "The collector"
    DATAGRAMS counter "skua_collector_datagrams_total" [] "Datagrams received.";
    DATAGRAM_BYTES counter "skua_collector_datagram_bytes_total" [] "Bytes of datagrams received.";
    RECORDS counter "skua_collector_records_total" [] "Records of conversations received.";
    OLD_RECORDS counter "skua_collector_old_records_total" [] "Records with nothing new: the collector knew their counters already.";
    UNTRACKED counter "skua_collector_untracked_total" [] "Records of conversations that could not be joined because the table was full.";
    SAMPLES counter "skua_collector_samples_total" [] "Sampled packets.";
    SKIPPED counter "skua_collector_skipped_total" [] "Samples and records of unknown kinds.";
    RESTARTS counter "skua_collector_restarts_total" [] "Restarts of agents.";
    KEPT_DATAGRAMS counter "skua_collector_kept_datagrams_total" [] "Datagrams that agents had stored on disk before they sent them.";
    CLOCK_CORRECTED counter "skua_collector_clock_corrected_total" [] "Records whose time was corrected.";
    LINES counter "skua_collector_lines_total" [] "Lines written to sinks.";
    PACKETS gauge "skua_collector_packets" ["sum"] "Packets by what happened to them, as in the sums at the end; missing ones may still arrive.";
    BYTES gauge "skua_collector_bytes" ["sum"] "Bytes by what happened to them, as in the sums at the end.";
    LOST counter "skua_collector_lost_total" ["cause"] "What was lost, by cause; units are in docs/collector.md.";
    ENTRIES gauge "skua_collector_entries" ["table"] "Entries of a table in use: keys (services and clients in open windows), conversations, agents.";
    MAX_ENTRIES gauge "skua_collector_max_entries" ["table"] "Maximum number of entries in a table.";
    COMPACT_CONVERSATIONS gauge "skua_collector_compact_conversations" [] "Conversations of which the collector only remembers that it counted them.";
    AGENTS_WITH_GAPS gauge "skua_collector_agents_with_gaps" [] "Agents with missing datagrams.";
}

/// Where to serve metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricsAddress {
    /// At this address.
    Address(SocketAddr),
    /// Nowhere.
    Nowhere,
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::Nowhere),
            _ => text.parse().map(Self::Address).map_err(|_| {
                format!("`{text}` is neither an address with a port, like {USUAL}, nor `none`")
            }),
        }
    }
}

/// A thread that wakes up at least once a second.
#[derive(Clone, Copy, Debug)]
pub enum Worker {
    /// Receives datagrams.
    Receiver(usize),
    /// Sums up.
    Summer(usize),
}

/// Status that the threads update once a second.
pub struct Watched {
    began: Instant,
    /// When each has last been at work, ms since the begin: receivers, then those that sum up.
    beats: Vec<AtomicU64>,
    received: Vec<Mutex<Received>>,
    parts: Vec<Mutex<Option<Summary>>>,
    /// Lines lost by sinks.
    sinks: Mutex<BTreeMap<&'static str, u64>>,
    /// The collector is ending.
    ending: AtomicBool,
    limits: [(&'static str, usize); 3],
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// The status of receivers and of summing threads.
    pub fn new((receivers, summers): (usize, usize), config: &CollectorConfig) -> Self {
        Self {
            began: Instant::now(),
            beats: (0..receivers + summers)
                .map(|_| AtomicU64::new(0))
                .collect(),
            received: (0..receivers).map(|_| Mutex::default()).collect(),
            parts: (0..summers).map(|_| Mutex::default()).collect(),
            sinks: Mutex::default(),
            ending: AtomicBool::new(false),
            limits: [
                ("keys", config.max_keys),
                ("conversations", config.max_conversations),
                ("agents", config.max_agents),
            ],
        }
    }

    /// A thread is at work.
    pub fn beat(&self, worker: Worker) {
        let place = match worker {
            Worker::Receiver(number) => number,
            Worker::Summer(number) => self.received.len() + number,
        };
        if let Some(beat) = self.beats.get(place) {
            beat.store(self.began.elapsed().as_millis() as u64, Relaxed);
        }
    }

    /// What a receiver has counted so far.
    pub fn receives(&self, number: usize, received: Received) {
        if let Some(place) = self.received.get(number) {
            *lock(place) = received;
        }
    }

    /// What a thread has summed up so far.
    pub fn sums(&self, number: usize, summary: Summary) {
        if let Some(place) = self.parts.get(number) {
            *lock(place) = Some(summary);
        }
    }

    /// Lines that sinks have lost.
    pub fn sinks(&self, lost: BTreeMap<&'static str, u64>) {
        *lock(&self.sinks) = lost;
    }

    /// The collector is ending.
    pub fn ends(&self) {
        self.ending.store(true, Relaxed);
    }

    /// How many threads hang.
    fn hanging(&self) -> usize {
        let now = self.began.elapsed();
        let late = |beat: &&AtomicU64| {
            now.saturating_sub(Duration::from_millis(beat.load(Relaxed))) > HANGS
        };
        self.beats.iter().filter(late).count()
    }

    /// All sums as they were a second ago; none before the first second is over.
    fn summary(&self) -> Option<Summary> {
        let mut all: Option<Summary> = None;
        for part in &self.parts {
            let part = lock(part).clone()?;
            match &mut all {
                Some(all) => all.add_shard(&part),
                None => all = Some(part),
            }
        }
        let mut all = all?;
        let mut received = Received::default();
        for one in &self.received {
            received.add(&lock(one));
        }
        received.lost_to(&mut all);
        all.lost.extend(lock(&self.sinks).clone());
        Some(all)
    }

    fn answer(&self, method: &Method, path: &str) -> Response {
        if ![Method::GET, Method::HEAD].contains(method) {
            return (StatusCode::METHOD_NOT_ALLOWED, "only GET\n").into_response();
        }
        let unavailable = |text: String| (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        match path {
            "/metrics" => {
                let kind = [(header::CONTENT_TYPE, MEDIA_TYPE)];
                match self.summary() {
                    Some(summary) => (kind, self.metrics(&summary)).into_response(),
                    None => unavailable("nothing was counted yet\n".into()),
                }
            }
            "/health" | "/ready" => match self.hanging() {
                0 if path == "/ready" && self.ending.load(Relaxed) => {
                    unavailable("it is shutting down: it receives no more\n".into())
                }
                0 => "ok\n".into_response(),
                hanging => unavailable(format!(
                    "{} did nothing for {} s\n",
                    output::counted(hanging, "thread"),
                    HANGS.as_secs()
                )),
            },
            _ => (
                StatusCode::NOT_FOUND,
                "not found; there are /metrics, /health and /ready\n",
            )
                .into_response(),
        }
    }

    /// In the text format of OpenMetrics.
    fn metrics(&self, summary: &Summary) -> String {
        let mut out = Exposition::default();
        for (metric, value) in [
            (&DATAGRAMS, summary.datagrams),
            (&DATAGRAM_BYTES, summary.datagram_bytes),
            (&RECORDS, summary.records),
            (&OLD_RECORDS, summary.old_records),
            (&UNTRACKED, summary.untracked),
            (&SAMPLES, summary.samples),
            (&SKIPPED, summary.skipped),
            (&RESTARTS, summary.restarts),
            (&KEPT_DATAGRAMS, summary.kept_datagrams),
            (&CLOCK_CORRECTED, summary.clock_corrected),
            (&LINES, summary.lines),
        ] {
            out.single(metric, value);
        }
        let sums = [
            ("exported", &summary.exported),
            ("exported_before", &summary.exported_before),
            ("missing", &summary.missing),
            ("got", &summary.got),
            ("elsewhere", &summary.elsewhere),
            ("late", &summary.late),
            ("keys_full", &summary.keys_full),
            ("conversations_full", &summary.conversations_full),
            ("counted", &summary.counted),
            ("estimated", &summary.estimated),
        ];
        let mut packets = out.family(&PACKETS);
        for (sum, value) in sums {
            packets.value([sum], value.packets);
        }
        let mut bytes = out.family(&BYTES);
        for (sum, value) in sums {
            bytes.value([sum], value.bytes);
        }
        let mut lost = out.family(&LOST);
        for (cause, units) in &summary.lost {
            lost.value([cause], *units);
        }
        let used = [summary.keys, summary.conversations, summary.agents.len()];
        let mut entries = out.family(&ENTRIES);
        for ((table, _), used) in self.limits.iter().zip(used) {
            entries.value([table], used);
        }
        let mut most = out.family(&MAX_ENTRIES);
        for (table, limit) in self.limits {
            most.value([table], limit);
        }
        out.single(&COMPACT_CONVERSATIONS, summary.compact_conversations);
        let with_gaps = summary
            .agents
            .iter()
            .filter(|agent| agent.lost_datagrams > 0);
        out.single(&AGENTS_WITH_GAPS, with_gaps.count());
        out.into_text()
    }
}

/// Counts at the last log message.
#[derive(Default)]
struct Logged {
    lost: BTreeMap<&'static str, (u64, Option<Instant>)>,
    gaps: BTreeMap<(IpAddr, IpAddr, u32), u64>,
}

impl Logged {
    /// New messages for the log.
    fn changes(&mut self, summary: &Summary, now: Instant) -> Vec<String> {
        let mut all = Vec::new();
        for (cause, units) in &summary.lost {
            let (before, at) = self.lost.entry(cause).or_default();
            let quiet = at.is_some_and(|at| now.saturating_duration_since(at) < QUIET);
            if *units <= *before || quiet {
                continue;
            }
            let mut text = format!("lost: {cause} {} more", output::count(*units - *before));
            (*before, *at) = (*units, Some(now));
            if *cause == "sequence_gap" {
                let gaps = |agent: &skua_collect::AgentLine| {
                    let before = self.gaps.get(&(agent.agent, agent.from, agent.sub_agent));
                    let before = before.copied().unwrap_or(0);
                    agent.lost_datagrams.saturating_sub(before)
                };
                let most = summary.agents.iter().max_by_key(|agent| gaps(agent));
                if let Some(agent) = most {
                    let lost = output::count(gaps(agent));
                    let _ = write!(text, ", most of agent {}: {lost}", agent.agent);
                }
                let lost = summary.agents.iter();
                let lost = lost.filter(|agent| agent.lost_datagrams > 0);
                let lost = lost.map(|agent| {
                    let key = (agent.agent, agent.from, agent.sub_agent);
                    (key, agent.lost_datagrams)
                });
                self.gaps = lost.collect();
            }
            all.push(text);
        }
        all
    }
}

/// Serves, and logs losses, while the process lives. Returns the address.
///
/// # Errors
///
/// If it cannot listen at a configured address.
pub fn start(
    at: Option<MetricsAddress>,
    watched: Arc<Watched>,
) -> anyhow::Result<Option<SocketAddr>> {
    let (address, wanted) = match at {
        Some(MetricsAddress::Address(address)) => (Some(address), true),
        Some(MetricsAddress::Nowhere) => (None, false),
        None => (USUAL.parse().ok(), false),
    };
    let listener = match address.map(TcpListener::bind) {
        None => None,
        Some(Ok(listener)) => Some(listener),
        Some(Err(error)) if wanted => {
            return Err(anyhow::Error::new(error).context(format!(
                "--metrics {}",
                address.map_or_else(String::new, |a| a.to_string())
            )));
        }
        Some(Err(error)) => {
            tracing::warn!(
                "no metrics at {USUAL}: {error}; give another address with --metrics, or --metrics none"
            );
            None
        }
    };
    let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
    if let Some(listener) = &listener {
        listener.set_nonblocking(true)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    thread::Builder::new().name("watch".into()).spawn(move || {
        runtime.block_on(async move {
            if let Some(listener) = listener {
                tokio::spawn(serve(listener, watched.clone()));
            }
            let mut logged = Logged::default();
            loop {
                tokio::time::sleep(LOSS_CHECK).await;
                if let Some(summary) = watched.summary() {
                    for text in logged.changes(&summary, Instant::now()) {
                        tracing::warn!("{text}");
                    }
                }
            }
        })
    })?;
    Ok(address)
}

async fn serve(listener: TcpListener, watched: Arc<Watched>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(place) = places.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let watched = watched.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let answer = watched.answer(request.method(), request.uri().path());
                async move { Ok::<Response<Body>, Infallible>(answer) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(HEADERS)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer);
            let _ = tokio::time::timeout(PATIENCE, served).await;
            drop(place);
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use skua_collect::Collector;

    use super::*;

    #[test]
    fn losses_are_logged_once_a_minute_each_with_whose_they_are() {
        let mut summary = Collector::new(&CollectorConfig::default()).summary();
        let (mut logged, now) = (Logged::default(), Instant::now());
        assert!(logged.changes(&summary, now).is_empty());
        summary.lost.insert("late", 3);
        assert_eq!(logged.changes(&summary, now), ["lost: late 3 more"]);
        summary.lost.insert("late", 5);
        summary.lost.insert("keys_full", 1);
        assert_eq!(logged.changes(&summary, now), ["lost: keys_full 1 more"]);
        assert_eq!(logged.changes(&summary, now + QUIET), ["lost: late 2 more"]);
        assert!(logged.changes(&summary, now + QUIET * 2).is_empty());
    }

    #[test]
    fn a_process_with_a_hanging_thread_is_unhealthy_and_one_that_ends_is_not_ready() {
        let mut watched = Watched::new((1, 1), &CollectorConfig::default());
        let status = |watched: &Watched, path| watched.answer(&Method::GET, path).status();
        assert_eq!(status(&watched, "/metrics"), 503);
        assert_eq!(status(&watched, "/ready"), 200);
        watched.ends();
        assert_eq!(
            (status(&watched, "/ready"), status(&watched, "/health")),
            (503.try_into().unwrap(), StatusCode::OK)
        );
        watched.began = Instant::now().checked_sub(HANGS * 2).unwrap();
        assert_eq!(status(&watched, "/health"), 503);
        watched.beat(Worker::Receiver(0));
        assert_eq!(status(&watched, "/health"), 503);
        watched.beat(Worker::Summer(0));
        assert_eq!(status(&watched, "/health"), 200);
        assert_eq!(watched.answer(&Method::POST, "/health").status(), 405);
    }
}
