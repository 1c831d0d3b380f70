//! Counts of datagrams received, and of those refused.

use serde::Serialize;
use skua_collect::Summary;
use skua_export::export::seal::Refusal;

use crate::gate::{self, Refused};

/// What the receivers counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Received {
    /// Datagrams that the kernel dropped.
    #[serde(skip)]
    pub dropped: u64,
    /// Datagrams of others than are allowed.
    #[serde(skip)]
    pub not_allowed: u64,
    /// Datagrams of senders that sent too many.
    #[serde(skip)]
    pub over_rate: u64,
    /// Datagrams that are not sealed as they must be, by [`Refusal`].
    #[serde(skip)]
    pub unsealed: [u64; Refusal::ALL.len()],
    /// Their senders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flooding: Vec<Refused>,
    /// The senders that are not allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<Refused>,
}

impl Received {
    /// Adds what another receiver counted.
    pub fn add(&mut self, other: &Self) {
        self.dropped += other.dropped;
        self.not_allowed += other.not_allowed;
        self.over_rate += other.over_rate;
        for (sum, more) in self.unsealed.iter_mut().zip(other.unsealed) {
            *sum += more;
        }
        gate::add(&mut self.flooding, other.flooding.clone());
        gate::add(&mut self.strangers, other.strangers.clone());
    }

    /// Adds its losses to a summary's.
    pub fn lost_to(&self, summary: &mut Summary) {
        let unsealed = Refusal::ALL
            .map(Refusal::name)
            .into_iter()
            .zip(self.unsealed);
        for (cause, units) in [
            ("receive_queue_full", self.dropped),
            ("not_allowed", self.not_allowed),
            ("over_rate", self.over_rate),
        ]
        .into_iter()
        .chain(unsealed)
        {
            if units > 0 {
                summary.lost.insert(cause, units);
            }
        }
    }
}
