//! The history of the graph: its states now and then, and all events between them.

mod codec;
mod journal;
mod load;

pub use journal::{GraphJournal, JournalStats};
pub(crate) use load::load;
pub use load::{GapCause, HistoryGap, Restored};
