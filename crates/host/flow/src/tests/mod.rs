//! Packets through the table to records, case by case of `docs/accounting.md` and with any packets.

mod accounting;
mod addresses;
mod cold;
mod conservation;
mod endpoints;
mod finding;
mod first;
mod merge;
mod packets;
mod rates;
mod records;
mod tcp;
mod travel;

use crate::{
    CapturePoint, Captured, Cause, Counters, FlowTable, FlowUpdate, PointCounters, TableConfig,
};
use skua_packet::{Frame, LinkType};

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1000 * MS;
/// A time of day for tests, ns.
pub(super) const NOON: u64 = 1_795_255_200 * S;

pub(super) const ETH0: CapturePoint = CapturePoint {
    netns: 0,
    ifindex: 2,
    direction: crate::Direction::Ingress,
};

pub(super) fn table() -> FlowTable {
    table_with(|_| {})
}

pub(super) fn table_with(change: impl FnOnce(&mut TableConfig)) -> FlowTable {
    let mut config = TableConfig {
        seed: 0x5eed,
        tunnels: true,
        ..TableConfig::default()
    };
    change(&mut config);
    FlowTable::new(&config)
}

/// Feeds frames that come one ms after the other, beginning at noon.
pub(super) fn feed(table: &mut FlowTable, frames: &[Vec<u8>]) {
    for (ms, frame) in frames.iter().enumerate() {
        table.packet(ETH0, &Frame::ethernet(frame), NOON + ms as u64 * MS);
    }
}

pub(super) fn drain(table: &mut FlowTable, now_ns: u64) -> Vec<FlowUpdate> {
    let mut updates = Vec::new();
    table.drain(now_ns, |update| updates.push(*update));
    updates
}

pub(super) fn finish(table: &mut FlowTable) -> Vec<FlowUpdate> {
    let mut updates = Vec::new();
    table.finish(|update| updates.push(*update));
    updates
}

/// The only flow that some frames make.
#[track_caller]
pub(super) fn only(frames: &[Vec<u8>]) -> FlowUpdate {
    let mut table = table();
    feed(&mut table, frames);
    let updates = finish(&mut table);
    assert_eq!(updates.len(), 1, "{updates:#?}");
    updates[0]
}

/// Losses and notes of all points together.
pub(super) fn points(table: &FlowTable) -> PointCounters {
    let mut sum = PointCounters::default();
    for (_, counters) in table.points() {
        for (cause, counted) in counters.iter() {
            sum.add(cause, counted);
        }
    }
    sum
}

pub(super) fn raw(data: &[u8]) -> Frame<'_> {
    Frame {
        link: LinkType::RawIp,
        ..Frame::ethernet(data)
    }
}

pub(super) fn captured<'a>(frame: Frame<'a>, now_ns: u64) -> Captured<'a> {
    Captured {
        point: ETH0,
        frame,
        now_ns,
    }
}

pub(super) fn counted(packets: u64, bytes: u64) -> Counters {
    Counters::new(packets, bytes)
}

pub(super) fn lost(table: &FlowTable, cause: Cause) -> Counters {
    points(table)[cause]
}
