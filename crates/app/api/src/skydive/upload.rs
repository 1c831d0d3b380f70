//! `/api/pcap`: a capture file is processed like captured packets.

use std::{
    collections::VecDeque,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, State as Extract},
};
use serde::Serialize;
use skua_file::CaptureFile;
use skua_flow::{FlowTable, TableConfig};
use skua_probe::{Account, Selection};
use skua_process::host::secret_seed;
use skua_runtime::captures::run::LocalRunner;
use skua_server::{answer::Answer, blocking, error::ApiError};
use skua_state::{Shared, State, captures::CaptureSet};
use skua_watch::capture_file::{self, ReadSoFar};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

/// Bytes of a file at most.
const BODY: usize = 64 << 20;

/// Most files with flows in memory; the oldest are removed.
const KEPT: usize = 8;

/// Capture files that were uploaded.
#[derive(Clone)]
pub struct Uploads {
    runner: LocalRunner,
    kept: Arc<Mutex<VecDeque<Uuid>>>,
}

impl Uploads {
    /// Their flows are stored with those of the runner's captures.
    pub fn new(runner: LocalRunner) -> Self {
        Self {
            runner,
            kept: Arc::default(),
        }
    }

    /// Counts a file: the identifier that its flows have as `CaptureID`, and its packets.
    fn count(&self, bytes: &[u8]) -> anyhow::Result<(CaptureSet, ReadSoFar)> {
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
        let begins = state.store.iter().map(|record| record.first_ns);
        let first_ns = begins.min().unwrap_or(read.last_ns);
        let (near, _) = UnixStream::pair()?;
        let set = CaptureSet {
            number: 0,
            id,
            shared: Shared::new(state, near),
            packets: None,
            sent: None,
            file: Some((first_ns, read.last_ns)),
        };
        Ok((set, read))
    }

    /// Makes the flows available, and removes those of the oldest file.
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
pub fn routes(uploads: Uploads) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(count_file))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(uploads)
}

/// A capture file that was counted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct CountedFile {
    /// `CaptureID` of its flows.
    #[serde(rename = "UUID")]
    uuid: Uuid,
    /// Packets in it.
    packets: u64,
    /// Their flows.
    flows: u64,
    /// The damage; the rest of the file was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

/// Counts a capture file (pcap, pcapng): its flows are then available like those of a capture
#[utoipa::path(post, path = "/api/pcap", operation_id = "countFile", tag = "skydive",
    request_body(content = Vec<u8>, content_type = "application/vnd.tcpdump.pcap"),
    responses((status = 202, description = "Its flows are available", body = CountedFile)))]
async fn count_file(
    Extract(uploads): Extract<Uploads>,
    body: Bytes,
) -> Result<Answer<CountedFile>, ApiError> {
    blocking(move || {
        let (set, read) = uploads
            .count(&body)
            .map_err(|error| ApiError::bad_request(skua_output::one_line(&error)))?;
        let counted = CountedFile {
            uuid: set.id,
            packets: read.packets,
            flows: set.shared.read().totals().flows,
            damage: read.damage,
        };
        uploads.keep(set);
        Ok(Answer::of(&counted).accepted())
    })
    .await
}
