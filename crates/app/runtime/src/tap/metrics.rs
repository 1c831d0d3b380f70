//! Metrics of taps.

use skua_control::tap::{Amount, Counts, TapView};
use skua_process::metrics::{Exposition, Metric};

skua_process::metrics! { "Taps"
    ACTIVE gauge "skua_tap_active" ["tap", "name"] "1 while all sources and monitors of a tap are there.";
    MATCHED_PACKETS counter "skua_tap_matched_packets_total" ["tap", "source"] "Packets that a tap is to copy.";
    COPIED_PACKETS counter "skua_tap_copied_packets_total" ["tap", "source"] "Packets that a tap copied.";
    DROPPED_PACKETS counter "skua_tap_dropped_packets_total" ["tap", "source", "cause"] "Packets that a tap did not copy, by cause.";
    MONITOR_PACKETS counter "skua_tap_monitor_packets_total" ["tap", "monitor", "result"] "Copies to a monitor by what happened to them.";
    MATCHED_BYTES counter "skua_tap_matched_bytes_total" ["tap", "source"] "Bytes that a tap is to copy.";
    COPIED_BYTES counter "skua_tap_copied_bytes_total" ["tap", "source"] "Bytes that a tap copied.";
    DROPPED_BYTES counter "skua_tap_dropped_bytes_total" ["tap", "source", "cause"] "Bytes that a tap did not copy, by cause.";
    MONITOR_BYTES counter "skua_tap_monitor_bytes_total" ["tap", "monitor", "result"] "Bytes of copies to a monitor by what happened to them.";
}

/// The metrics of one unit.
struct OfUnit {
    pick: fn(&Amount) -> u64,
    matched: &'static Metric<2>,
    copied: &'static Metric<2>,
    dropped: &'static Metric<3>,
    monitor: &'static Metric<3>,
}

const UNITS: [OfUnit; 2] = [
    OfUnit {
        pick: |amount| amount.packets,
        matched: &MATCHED_PACKETS,
        copied: &COPIED_PACKETS,
        dropped: &DROPPED_PACKETS,
        monitor: &MONITOR_PACKETS,
    },
    OfUnit {
        pick: |amount| amount.bytes,
        matched: &MATCHED_BYTES,
        copied: &COPIED_BYTES,
        dropped: &DROPPED_BYTES,
        monitor: &MONITOR_BYTES,
    },
];

/// Of all taps.
pub fn write(out: &mut Exposition, taps: &[TapView]) {
    let taps: Vec<_> = taps
        .iter()
        .map(|tap| (tap.tap.uuid.to_string(), tap))
        .collect();
    let mut active = out.family(&ACTIVE);
    for (id, tap) in &taps {
        active.value([id, &tap.tap.name], tap.state == "active");
    }
    for unit in &UNITS {
        let pick = unit.pick;
        let mut by_source = |metric, of: fn(&Counts) -> &Amount| {
            let mut samples = out.family(metric);
            for (id, tap) in &taps {
                for source in &tap.sources {
                    samples.value([id, &source.name], pick(of(&source.all)));
                }
            }
        };
        by_source(unit.matched, |counts| &counts.matched);
        by_source(unit.copied, |counts| &counts.copied);
        let mut dropped = out.family(unit.dropped);
        for (id, tap) in &taps {
            for source in &tap.sources {
                for (cause, amount) in &source.all.dropped {
                    dropped.value([id, &source.name, cause], pick(amount));
                }
            }
        }
        let mut monitors = out.family(unit.monitor);
        for (id, tap) in &taps {
            for monitor in &tap.monitors {
                for (result, amount) in [
                    ("sent", &monitor.sent),
                    ("cut", &monitor.cut),
                    ("too_big", &monitor.too_big),
                    ("failed", &monitor.failed),
                    ("strange", &monitor.strange),
                ] {
                    monitors.value([id, &monitor.name, result], pick(amount));
                }
            }
        }
    }
}
