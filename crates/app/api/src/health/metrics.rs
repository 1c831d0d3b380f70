//! Metrics of the history on disk and of captures.

use std::sync::atomic::Ordering::Relaxed;

use skua_flow::{Cause, Counters};
use skua_probe::{
    account::{CauseKind, cause_kind},
    receive::ReceiveCause,
};
use skua_process::metrics::{Exposition, Metric};
use skua_store::LogStats;

use crate::health::{Counted, FoundCapture, FoundHistory};

/// Metrics of the history.
pub mod of_history {
    skua_process::metrics! { "The history on disk"
        BYTES gauge "skua_store_bytes" ["log"] "Bytes of the history on disk.";
        FILES gauge "skua_store_files" ["log"] "Files of the history on disk.";
        RECORDS gauge "skua_store_records" ["log"] "Records of the history on disk.";
        WRITTEN counter "skua_store_written_total" ["log"] "Records written to the history.";
        EXPIRED counter "skua_store_expired_total" ["log"] "Records that were removed from the history because of its limits.";
        DAMAGED gauge "skua_store_damaged_places" ["log"] "Parts of the history that cannot be read.";
        FAILING gauge "skua_store_failing" ["log"] "1 while the history cannot be written.";
        LOST counter "skua_store_lost_total" ["log", "cause"] "Records that could not be written to the history, by cause.";
        QUEUE gauge "skua_store_queue_bytes" [] "Flows waiting to be written to disk, in bytes.";
        GAPS counter "skua_store_gaps_total" [] "Gaps in the history of the graph because of lost events.";
    }
}

skua_process::metrics! { "Captures"
    CAPTURES gauge "skua_captures" [] "Captures made.";
    POINTS gauge "skua_capture_points" ["capture", "type", "state"] "Nodes of a capture, by state.";
    LOST_PACKETS counter "skua_capture_lost_packets_total" ["capture", "type", "cause"] "Packets that a capture lost: they are in no flow, by cause.";
    LEFT_OUT_PACKETS counter "skua_capture_left_out_packets_total" ["capture", "type", "cause"] "Packets that the configuration leaves out of a capture's flows, by cause.";
    NOTED_PACKETS counter "skua_capture_noted_packets_total" ["capture", "type", "cause"] "Packets in a capture's flows that have a note, by cause.";
    RECEIVE_LOST counter "skua_capture_receive_lost_total" ["capture", "type", "cause"] "Losses of a receiving capture before flows were made, by cause; the unit depends on the cause.";
    FLOW_PACKETS counter "skua_capture_flow_packets_total" ["capture", "type"] "Packets on the wire that were counted in flows of a capture.";
    FLOW_BYTES counter "skua_capture_flow_bytes_total" ["capture", "type"] "Bytes of the link layer that were counted in flows of a capture.";
    DATAGRAMS counter "skua_capture_received_datagrams_total" ["capture", "type"] "Datagrams, or connections, that a capture received from exporters.";
    RECEIVED counter "skua_capture_received_records_total" ["capture", "type"] "Flow records, samples, or packets in them that could be read.";
    KEPT counter "skua_capture_raw_packets_kept_total" ["capture", "type"] "Packets that a capture has stored.";
    FORGOTTEN counter "skua_capture_raw_packets_forgotten_total" ["capture", "type"] "Stored packets that were removed for lack of memory.";
    WATCHERS gauge "skua_capture_watchers" ["capture", "type"] "Clients that watch packets of a capture now.";
    LIVE_DROPPED counter "skua_capture_live_dropped_total" ["capture", "type"] "Packets dropped because watching clients were too slow.";
    TARGET_RECORDS counter "skua_capture_target_records_total" ["capture", "type"] "Records or packets sent to the target of a capture.";
    TARGET_LOST counter "skua_capture_target_lost_total" ["capture", "type"] "Records or packets that could not be sent to the target of a capture.";
    TARGET_LEFT_OUT counter "skua_capture_target_left_out_total" ["capture", "type"] "Records or packets that a capture does not send to its target: the protocol has no field for them, or they are copies themselves.";
}

pub(super) fn history(out: &mut Exposition, found: &FoundHistory) {
    use of_history::{
        BYTES, DAMAGED, EXPIRED, FAILING, FILES, GAPS, LOST, QUEUE, RECORDS, WRITTEN,
    };
    type Read = fn(&LogStats) -> u64;
    let of_each: [(&'static Metric<1>, Read); 7] = [
        (&BYTES, |log| log.bytes),
        (&FILES, |log| log.files as u64),
        (&RECORDS, |log| log.records),
        (&WRITTEN, |log| log.written),
        (&EXPIRED, |log| log.expired),
        (&DAMAGED, |log| log.damage.places),
        (&FAILING, |log| u64::from(log.failing.is_some())),
    ];
    for (metric, read) in of_each {
        let mut samples = out.family(metric);
        for (log, stats) in found.logs() {
            samples.value([log], read(stats));
        }
    }
    let mut samples = out.family(&LOST);
    for (log, stats) in found.logs() {
        for (cause, lost) in stats.lost.by_cause() {
            samples.value([log, cause], lost);
        }
        // Only flows wait in memory for a drain.
        if log == "flows" {
            samples.value([log, "unwritten"], found.unwritten);
        }
    }
    out.single(&QUEUE, found.store.flow_queue_bytes);
    out.single(&GAPS, found.journal.gaps);
}

/// Each with the labels `capture` and `type`.
type Labelled<'a> = (String, &'static str, &'a FoundCapture);

pub(super) fn captures(out: &mut Exposition, found: &[FoundCapture]) {
    out.single(&CAPTURES, found.len());
    if found.is_empty() {
        return;
    }
    let all: Vec<Labelled<'_>> = found
        .iter()
        .map(|found| {
            let capture = &found.capture;
            (capture.uuid.to_string(), capture.r#type.name(), found)
        })
        .collect();
    let mut points = out.family(&POINTS);
    for (id, kind, found) in &all {
        for (state, number) in found.points() {
            points.value([id, kind, state], number);
        }
    }
    causes(out, &all);
    receive_losses(out, &all);
    type Read = fn(&Counted) -> Option<u64>;
    let of_each: [(&'static Metric<2>, Read); 11] = [
        (&FLOW_PACKETS, |c| Some(c.account.in_flows().packets)),
        (&FLOW_BYTES, |c| Some(c.account.in_flows().bytes)),
        (&DATAGRAMS, |c| {
            receives(c).then_some(c.account.received.datagrams)
        }),
        (&RECEIVED, |c| {
            receives(c).then_some(c.account.received.records)
        }),
        (&KEPT, |c| c.packets.map(|p| p.kept)),
        (&FORGOTTEN, |c| c.packets.map(|p| p.forgotten)),
        (&WATCHERS, |c| c.packets.map(|_| c.watchers as u64)),
        (&LIVE_DROPPED, |c| c.packets.map(|_| c.live_dropped)),
        (&TARGET_RECORDS, |c| {
            c.sent.as_ref().map(|sent| sent.records.load(Relaxed))
        }),
        (&TARGET_LOST, |c| c.sent.as_ref().map(|sent| sent.lost())),
        (&TARGET_LEFT_OUT, |c| {
            c.sent.as_ref().map(|sent| sent.left_out.load(Relaxed))
        }),
    ];
    for (metric, read) in of_each {
        let mut samples = out.family(metric);
        for (id, kind, found) in &all {
            if let Some(value) = found.running.as_ref().and_then(read) {
                samples.value([id, kind], value);
            }
        }
    }
}

/// Whether a capture receives what others send.
fn receives(counted: &Counted) -> bool {
    let received = &counted.account.received;
    received.datagrams > 0 || received.causes().next().is_some()
}

/// What receivers lost before it could become a flow.
fn receive_losses(out: &mut Exposition, all: &[Labelled<'_>]) {
    let mut samples = out.family(&RECEIVE_LOST);
    for (id, kind, found) in all {
        let Some(counted) = found.running.as_ref().filter(|c| receives(c)) else {
            continue;
        };
        for cause in ReceiveCause::ALL {
            let lost = counted.account.received.of(cause);
            samples.value([id, kind, cause.name()], lost);
        }
    }
}

fn causes(out: &mut Exposition, all: &[Labelled<'_>]) {
    for (of, metric) in [
        (CauseKind::Lost, &LOST_PACKETS),
        (CauseKind::LeftOut, &LEFT_OUT_PACKETS),
        (CauseKind::Note, &NOTED_PACKETS),
    ] {
        let mut samples = out.family(metric);
        for (id, kind, found) in all {
            let Some(counted) = &found.running else {
                continue;
            };
            let known = counted.account.causes();
            for cause in Cause::ALL.into_iter().filter(|c| cause_kind(*c) == of) {
                let sum = known.iter().find(|(known, ..)| *known == cause);
                let sum = sum.map_or(Counters::default(), |(.., sum)| *sum);
                samples.value([id, kind, cause.name()], sum.packets);
            }
        }
    }
}
