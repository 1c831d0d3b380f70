//! Conditions on conversations: `process:curl port:443 rate>1Mbit -user:root "text"`.
//!
//! | module | |
//! |---|---|
//! | `syntax` | from a text to terms: keys, signs and values, with where they are |
//! | `test` | what a value is compared with |
//! | `key` | the keys, and what they mean of a flow record |
//! | `evaluate` | whether a conversation meets conditions; allocates nothing |
//! | `complete` | what may be written at the end of a text |
//! | `looks` | which language a text is in: conditions or a pcap expression |
//!
//! The lake has the same language with its own columns: it takes `syntax`, `test` and `key` from here.

mod complete;
mod error;
mod evaluate;
pub mod key;
mod looks;
pub mod syntax;
mod test;
#[cfg(test)]
mod tests;

pub use complete::{Completion, completed, completions};
pub use error::ConditionError;
pub use evaluate::{Conditions, Subject, Term};
pub use key::{Key, SideField};
pub use looks::{Looks, looks};
pub use test::{Kind, Test, Unit};
