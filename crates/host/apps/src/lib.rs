//! What is said in conversations: parsers of application protocols, fed with the heads of packets.
//!
//! Nothing here reads or writes: packets and times are arguments, records come out. Each protocol has a folder, and its
//! parser the same shape: the bytes of one direction go in, cut at any place; events come out; what it remembers has a
//! bound. A protocol is found by what is said, not by port.

mod connections;
pub mod dns;
pub mod eve;
pub mod hellos;
mod log;
pub mod names;
mod stream;
pub mod tls;
mod watcher;

/// No more of a name than its last two labels: `*.example.com`.
pub fn redacted(name: &str) -> String {
    let dots = name.rmatch_indices('.').map(|(at, _)| at);
    // An escaped dot is no end of a label; then less remains.
    match dots.filter(|at| !name[..*at].ends_with('\\')).nth(1) {
        Some(at) => format!("*{}", &name[at..]),
        None => name.to_owned(),
    }
}

pub use log::{LATENCY_BOUNDS, Log, Sums};
pub use names::Names;
pub use stream::Stream;
pub use watcher::{Config, Event, HelloSent, Stats, Watcher};

#[cfg(test)]
mod tests {
    #[test]
    fn no_more_than_two_labels_remain() {
        for (name, less) in [
            ("a.b.example.com", "*.example.com"),
            ("example.com", "example.com"),
            ("a\\.b.example.com", "*.example.com"),
            ("b\\.example.com", "b\\.example.com"),
            ("", ""),
        ] {
            assert_eq!(super::redacted(name), less);
        }
    }
}
