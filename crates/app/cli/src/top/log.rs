//! The log while the terminal is drawn on: its lines become events instead of writing across the screen.

use std::{
    collections::VecDeque,
    io,
    sync::{Mutex, PoisonError},
};

/// Lines that wait for the view; beyond that the oldest are dropped.
const LINES: usize = 200;
/// Bytes of a line at most.
const LONGEST: usize = 4096;

static WAITING: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Where `skua top` logs to.
pub struct LogBuffer;

/// A writer into the buffer.
pub fn writer() -> LogBuffer {
    LogBuffer
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if lines.len() == LINES {
                lines.pop_front();
            }
            lines.push_back(line.trim().to_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes and returns the lines.
pub fn drain() -> Vec<String> {
    let mut lines = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    lines.drain(..).collect()
}
