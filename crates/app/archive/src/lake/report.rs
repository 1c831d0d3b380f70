//! The status of the lake: in /metrics, and by the doctor.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::PoisonError,
};
use utoipa::ToSchema;

use serde::Serialize;
use serde_json::Value;
use skua_output as output;
use skua_process::metrics::Exposition;

use crate::lake::LakeWriter;

/// Its status.
#[derive(Serialize, ToSchema)]
pub struct LakeStatus {
    location: String,
    rows: u64,
    files: u64,
    bytes: u64,
    waiting: u64,
    lost: BTreeMap<&'static str, u64>,
    tcp_unknown: u64,
    failing: Option<String>,
    compacted: u64,
    deleted: u64,
    tidying_failed: u64,
}

impl LakeWriter {
    /// Its status.
    pub fn status(&self) -> LakeStatus {
        let stats = self.writer.stats();
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = keeper
            .as_ref()
            .map(skua_lake::Keeper::stats)
            .unwrap_or_default();
        LakeStatus {
            location: self.location.to_string(),
            rows: stats.rows,
            files: stats.files,
            bytes: stats.bytes,
            waiting: stats.waiting,
            lost: stats.lost.into_iter().collect(),
            tcp_unknown: stats.tcp_unknown,
            failing: stats.failing,
            compacted: kept.compacted,
            deleted: kept.deleted,
            tidying_failed: kept.failed,
        }
    }
}

skua_process::metrics! { "The lake"
    ROWS counter "skua_lake_rows_total" [] "Rows that were written to the lake.";
    FILES counter "skua_lake_files_total" [] "Files that were written to the lake.";
    BYTES counter "skua_lake_bytes_total" [] "Bytes of these files.";
    WAITING gauge "skua_lake_waiting_rows" [] "Rows that wait to be written to the lake.";
    FAILING gauge "skua_lake_failing" [] "1 while the lake cannot be written.";
    TCP_UNKNOWN counter "skua_lake_tcp_unknown_total" [] "Rows without TCP's retransmissions and the like, as too many conversations had some.";
    COMPACTED counter "skua_lake_compacted_files_total" [] "Files that were compacted.";
    DELETED counter "skua_lake_deleted_files_total" [] "Files that were deleted.";
    TIDYING_FAILED counter "skua_lake_tidying_failed_total" [] "Compactions and deletions that failed, and damaged files that they met.";
    LOST counter "skua_lake_lost_rows_total" ["cause"] "Rows that were not written to the lake, by cause.";
}

/// For /metrics.
pub fn write_metrics(out: &mut Exposition, status: &LakeStatus) {
    out.single(&ROWS, status.rows);
    out.single(&FILES, status.files);
    out.single(&BYTES, status.bytes);
    out.single(&WAITING, status.waiting);
    out.single(&FAILING, status.failing.is_some());
    out.single(&TCP_UNKNOWN, status.tcp_unknown);
    out.single(&COMPACTED, status.compacted);
    out.single(&DELETED, status.deleted);
    out.single(&TIDYING_FAILED, status.tidying_failed);
    let mut lost = out.family(&LOST);
    for cause in [
        "queue_full",
        "disk_full",
        "storage_failed",
        "scattered_times",
    ] {
        let rows = status.lost.get(cause).copied().unwrap_or(0);
        lost.value([cause], rows);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Lines of the doctor.
pub fn print(out: &mut impl Write, status: &Value) -> io::Result<()> {
    if status.is_null() {
        return Ok(());
    }
    writeln!(
        out,
        "lake      {}: {} rows in {} files, {} since the start",
        status["location"].as_str().unwrap_or_default(),
        output::count(number(&status["rows"])),
        output::count(number(&status["files"])),
        output::bytes(number(&status["bytes"])),
    )
}

/// What is lost, and what helps.
pub fn advise(status: &Value, advice: &mut Vec<String>) {
    if let Some(error) = status["failing"].as_str() {
        advice.push(format!("the lake cannot be written: {error}"));
    }
    for (cause, what) in [
        (
            "queue_full",
            "were dropped for lack of memory (lake.memory)",
        ),
        ("disk_full", "were lost while the disk was full"),
        ("storage_failed", "were lost while storage failed"),
        (
            "scattered_times",
            "had times of too many hours: is a clock wrong?",
        ),
    ] {
        let lost = number(&status["lost"][cause]);
        if lost > 0 {
            advice.push(format!("{lost} rows of the lake {what}"));
        }
    }
    let failed = number(&status["tidying_failed"]);
    if failed > 0 {
        advice.push(format!(
            "{failed} times files of the lake could not be compacted or deleted; the log says why"
        ));
    }
}
