//! Captures that run on this host beside what is always watched.

use serde::Serialize;
use skua_probe::Packets;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::state::Shared;

/// What is captured, for queries.
#[derive(Clone)]
pub struct CaptureSet {
    /// Other for each; a capture may have several.
    pub number: u64,
    /// Identifier of the capture.
    pub id: Uuid,
    /// Its flows.
    pub shared: Shared,
    /// Its packets, when some are kept.
    pub packets: Option<Packets>,
    /// What happened to what it sends elsewhere, if it does.
    pub sent: Option<Arc<Sent>>,
    /// If it is a file, whose flows are all in memory: times of its first and its last packet, ns since the Unix epoch.
    pub file: Option<(u64, u64)>,
}

/// All captures that run on this host.
#[derive(Clone, Default)]
pub struct CaptureSets(Arc<RwLock<Vec<CaptureSet>>>);

impl CaptureSets {
    /// Those that run now.
    pub fn all(&self) -> Vec<CaptureSet> {
        let sets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sets.clone()
    }

    /// One of them.
    pub fn get(&self, id: Uuid) -> Option<CaptureSet> {
        self.all().into_iter().find(|set| set.id == id)
    }

    /// Changes which there are.
    pub fn change(&self, change: impl FnOnce(&mut Vec<CaptureSet>)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What happened to what was to be sent.
pub struct Sent {
    /// Datagrams that were sent.
    pub datagrams: AtomicU64,
    /// Records in them, or packets.
    pub records: AtomicU64,
    /// Records or packets that could not be sent, or that the collector's host refused (the kernel
    /// reports that of one when the next one is sent).
    pub failed: AtomicU64,
    /// Packets that waited too long to be sent.
    pub dropped: AtomicU64,
    /// What is not sent by design.
    pub left_out: AtomicU64,
    /// What that is.
    why_left_out: &'static str,
}

impl Sent {
    /// Nothing yet. What is left out has a name.
    pub fn new(why_left_out: &'static str) -> Self {
        Self {
            datagrams: AtomicU64::new(0),
            records: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            why_left_out,
        }
    }

    /// A datagram with one packet.
    pub fn count<E>(&self, result: Result<(), E>) {
        let add = |number: &AtomicU64| number.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(()) => {
                add(&self.datagrams);
                add(&self.records);
            }
            Err(_) => drop(add(&self.failed)),
        }
    }

    /// Lost in all.
    pub fn lost(&self) -> u64 {
        self.failed.load(Ordering::Relaxed) + self.dropped.load(Ordering::Relaxed)
    }

    /// For the status.
    pub fn status(&self) -> SentStatus {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        SentStatus {
            datagrams: read(&self.datagrams),
            records: read(&self.records),
            lost: BTreeMap::from([
                ("send_failed", read(&self.failed)),
                ("queue_full", read(&self.dropped)),
            ]),
            left_out: BTreeMap::from([(self.why_left_out, read(&self.left_out))]),
        }
    }
}

/// What a capture has sent to its target.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SentStatus {
    /// Datagrams.
    pub datagrams: u64,
    /// Records in them.
    pub records: u64,
    /// Records lost, by cause.
    pub lost: BTreeMap<&'static str, u64>,
    /// What the format cannot carry, by cause.
    pub left_out: BTreeMap<&'static str, u64>,
}
