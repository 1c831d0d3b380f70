//! `/api/pcap`: a capture file goes the way of captured packets.

use std::{
    collections::VecDeque,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State as Extract},
    http::StatusCode,
    response::Response,
    routing::post,
};
use serde_json::json;
use skua_file::CaptureFile;
use skua_flow::{FlowTable, TableConfig};
use skua_probe::{Account, Selection};
use skua_process::host::secret_seed;
use skua_runtime::{
    capture_file::{self, ReadSoFar},
    captures::run::{CaptureSet, LocalRunner},
    state::{Shared, State},
};
use skua_server::{answer::bad_request, blocking};
use uuid::Uuid;

use crate::resource;

/// Bytes of a file at most.
const BODY: usize = 64 << 20;

/// Files whose flows are there at a time; the oldest go.
const KEPT: usize = 8;

/// Capture files that were uploaded.
#[derive(Clone)]
pub struct Uploads {
    runner: LocalRunner,
    kept: Arc<Mutex<VecDeque<Uuid>>>,
}

impl Uploads {
    /// Their flows go where those of the runner's captures go.
    pub fn new(runner: LocalRunner) -> Self {
        Self {
            runner,
            kept: Arc::default(),
        }
    }

    /// Counts a file: the identifier that its flows have as `CaptureID`, and its packets.
    fn take(&self, bytes: &[u8]) -> anyhow::Result<(CaptureSet, ReadSoFar)> {
        let mut file = CaptureFile::new("the body", bytes)?;
        let runner = &self.runner;
        let config = &runner.config;
        let seed = secret_seed();
        let mut table = FlowTable::new(&TableConfig {
            max_entries: config.captures.max_entries as usize,
            idle_timeout: None,
            tunnels: config.flow.tunnels,
            seed,
        });
        let mut selection = Selection::new("", 1, 0)?;
        let read = capture_file::count(&mut file, &mut table, &mut selection)?;
        let id = Uuid::new_v4();
        let mut state = State::new(config.captures.memory, usize::MAX >> 16, seed, 1);
        state.set_origin(
            &runner.config.host_name(),
            Some(id),
            Some(runner.graph.clone()),
            runner.observers.clone(),
        );
        capture_file::name_interfaces(&file, "upload", &mut state);
        let mut account = Account {
            max_entries: u64::from(config.captures.max_entries),
            ..Account::default()
        };
        state.begin_drain_at(read.last_ns);
        capture_file::settle(&mut table, &mut account, &mut state);
        state.end_with(account);
        let (near, _) = UnixStream::pair()?;
        let set = CaptureSet {
            number: 0,
            id,
            shared: Shared::new(state, near),
            packets: None,
            sent: None,
        };
        Ok((set, read))
    }

    /// Has the flows found, and those of the oldest no more.
    fn keep(&self, set: CaptureSet) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(set.id);
        let gone = (kept.len() > KEPT).then(|| kept.pop_front()).flatten();
        self.runner.sets.change(|sets| {
            sets.retain(|set| Some(set.id) != gone);
            sets.push(set);
        });
    }
}

/// The path of this module.
pub fn routes(uploads: Uploads) -> Router {
    Router::new()
        .route("/api/pcap", post(upload))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(uploads)
}

async fn upload(Extract(uploads): Extract<Uploads>, body: Bytes) -> Response {
    blocking(move || match uploads.take(&body) {
        Ok((set, read)) => {
            let flows = set.shared.lock().totals().flows;
            let mut answer = json!({"UUID": set.id, "Packets": read.packets, "Flows": flows});
            if let Some(damage) = read.damage {
                // Nothing after it was read.
                answer["Damage"] = damage.into();
            }
            uploads.keep(set);
            resource::answer(StatusCode::OK, &answer)
        }
        Err(error) => bad_request(skua_output::one_line(&error)),
    })
    .await
}
