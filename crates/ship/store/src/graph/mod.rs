//! The history of the graph: its states now and then, and all events between them.

mod codec;
mod journal;
mod load;

pub use journal::{GraphJournal, JournalStats};
pub(crate) use load::load;
pub use load::{GapCause, HistoryGap, Restored};

/// Reads bytes as events and as a part of a state.
pub(crate) fn check(bytes: &[u8]) {
    let _ = codec::events(bytes, &mut drop);
    if let Some((_, rest)) = codec::PartHead::read(bytes) {
        let _ = codec::Part::read(rest);
    }
}
