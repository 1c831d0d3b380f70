//! Sends libbpf's output to our log, and its last lines into error messages.

use std::sync::Mutex;

use libbpf_rs::PrintLevel;

const KEPT_LINES: usize = 64;

static LAST_LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn print(level: PrintLevel, text: String) {
    let text = text.trim_end().to_owned();
    tracing::debug!(target: "libbpf", ?level, "{text}");
    if matches!(level, PrintLevel::Debug) {
        return;
    }
    if let Ok(mut lines) = LAST_LINES.lock() {
        if lines.len() == KEPT_LINES {
            lines.remove(0);
        }
        lines.push(text);
    }
}

/// Sends libbpf's messages to `tracing` (level debug) instead of standard error.
pub fn capture_libbpf_log() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, print)));
}

/// Empties the kept lines.
pub(crate) fn forget() {
    if let Ok(mut lines) = LAST_LINES.lock() {
        lines.clear();
    }
}

/// The most useful of the kept lines: the verifier's last line or libbpf's last error.
pub(crate) fn reason(error: &libbpf_rs::Error) -> String {
    let lines = LAST_LINES.lock().map(|l| l.clone()).unwrap_or_default();
    let verifier = lines
        .iter()
        .filter(|l| l.contains("BEGIN PROG LOAD LOG"))
        .filter_map(|l| {
            l.lines().rev().find(|l| {
                !l.starts_with("--") && !l.starts_with("processed ") && !l.trim().is_empty()
            })
        })
        .next_back();
    match verifier {
        Some(line) => format!("{error} (verifier: {line})"),
        None => error.to_string(),
    }
}
