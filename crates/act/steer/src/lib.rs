//! Detectors on values in packets.
//!
//! A [`Detector`] defines which packets carry a value, at which positions value and channel number are,
//! which jump of a channel's moving average fires, and what then happens to the channel's packets.
//! [`parse`] reads detectors from YAML. [`Reference`] is a detector in user space with the same numbers
//! and verdicts as the program in the kernel (`bpf/steer`), bit by bit.
//!
//! ```
//! use skua_steer::{Classification, Reference, parse};
//!
//! let all = parse("name: jumps\npreset: ewma-64\ninterface: eth0\nmatch: ''\naction: {report: true}\n")?;
//! let mut reference = Reference::new(&all[0])?;
//! let outcome = reference.packet(b"no frame", 0);
//! assert_eq!(outcome.fate, Classification::Untouched(skua_steer::Cause::Short));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod error;
mod judge;
mod locate;
mod reference;
mod value;
mod written;

pub use config::{
    Action, ByteOrder, ChannelField, Clock, Destination, Detector, Encoding, From, MOST_CHANNELS,
    MOST_DEPTH, MOST_FRACTION, MOST_TEXT, Order, Threshold, ValueField, Watchdog, WhenLost,
};
pub use error::SteerError;
pub use judge::{Channel, Sample, Verdict};
pub use reference::{Cause, Classification, Outcome, Reference, Tally};
pub use value::{MOST, decode};
pub use written::{Written, parse, parse_written};
