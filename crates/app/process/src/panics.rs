//! What a panic ends: a request, or the process.
//!
//! A panic is a bug. In a request it ends that request with 500 and is counted ([`request`]); its
//! locks stay usable by others. A thread that works alone (draining, exporting, maintaining agents)
//! has no replacement, so its panic ends the process with a log line, and a supervisor restarts it.

#[cfg(not(panic = "unwind"))]
compile_error!("panics must unwind, or one request could end the process");

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
};

/// Requests that a panic has ended.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

crate::metrics! { "Faults of the program"
    REQUESTS_ENDED counter "skua_request_panics_total" [] "Requests that ended with 500 because of a fault in Skua; the log says where.";
}

/// The exit code of a process that a panic has ended, as in Rust.
const EXIT: i32 = 101;

/// Counts a request that a panic has ended.
pub fn count_request() {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
}

/// How many requests a panic has ended.
pub fn requests() -> u64 {
    REQUESTS.load(Ordering::Relaxed)
}

/// The output of a request's work; `None` when it panicked, which is counted.
pub async fn request<F: Future>(work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    std::future::poll_fn(move |context| {
        // No state of the work is used after a panic.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_) => {
                count_request();
                Poll::Ready(None)
            }
        }
    })
    .await
}

/// Whether the work of the thread of this name has no replacement.
fn is_alone(thread: Option<&str>) -> bool {
    match thread {
        // The main thread ends the process itself, after cleaning up. Threads without a name are
        // joined by their creators, for one piece of work.
        None | Some("main") => false,
        // Tasks of the API end alone.
        Some("http") => false,
        Some(name) => !name.starts_with("tokio-"),
    }
}

/// Ends the process because one of its threads cannot continue.
pub fn end_process(thread: &str) -> ! {
    eprintln!(
        "skua: a fault in the thread \"{thread}\" ends this process: please report it with the lines \
         above"
    );
    std::process::exit(EXIT)
}

/// From now on a panic in a thread that does its work alone ends the process.
pub fn end_process_with_its_threads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        let thread = std::thread::current();
        if is_alone(thread.name()) {
            end_process(thread.name().unwrap_or_default());
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_not_supervised_end_the_process() {
        for name in ["export", "uplink", "steer", "sum 1"] {
            assert!(is_alone(Some(name)), "{name}");
        }
        for name in [None, Some("main"), Some("http"), Some("tokio-rt-worker")] {
            assert!(!is_alone(name), "{name:?}");
        }
    }
}
