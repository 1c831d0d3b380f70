//! Metrics of detectors.

use skua_kernel::steer::Counts;
use skua_process::metrics::Exposition;

skua_process::metrics! { "Detectors (steer)"
    MATCHED counter "skua_steer_matched_total" ["detector"] "Packets that the expression of a detector is true for.";
    SAMPLED counter "skua_steer_sampled_total" ["detector"] "Packets whose value a detector took.";
    EVENTS_LOST counter "skua_steer_events_lost_total" ["detector"] "Events of a detector that were lost as the ring buffer was full.";
    UNTOUCHED counter "skua_steer_untouched_total" ["detector", "cause"] "Packets that a detector left as they were, by cause.";
    FIRED counter "skua_steer_fired_total" ["detector", "result"] "Packets of channels that had jumped, by what was done with them.";
}

/// Of each detector by its name.
pub fn write(out: &mut Exposition, all: &[(String, Counts)]) {
    let mut matched = out.family(&MATCHED);
    for (detector, counts) in all {
        matched.value([detector], counts.matched);
    }
    let mut sampled = out.family(&SAMPLED);
    for (detector, counts) in all {
        sampled.value([detector], counts.sampled);
    }
    let mut lost = out.family(&EVENTS_LOST);
    for (detector, counts) in all {
        lost.value([detector], counts.events_lost);
    }
    let mut untouched = out.family(&UNTOUCHED);
    for (detector, counts) in all {
        for (cause, count) in &counts.untouched {
            untouched.value([detector, cause.name()], *count);
        }
    }
    let mut fired = out.family(&FIRED);
    for (detector, counts) in all {
        for (result, count) in &counts.results {
            fired.value([detector, result.name()], *count);
        }
    }
}
