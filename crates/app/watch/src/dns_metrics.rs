//! Metrics of what is said in conversations.

use skua_apps::{
    LATENCY_BOUNDS, Log,
    dns::{Outcome, numbers},
    hellos, names,
};
use skua_process::metrics::Exposition;

skua_process::metrics! { "DNS and TLS"
    LOOKUPS counter "skua_dns_lookups_total" ["outcome"] "Questions to name servers, and answers without one, by outcome.";
    ANSWERS counter "skua_dns_answers_total" ["code"] "Answers by code.";
    RETRIES counter "skua_dns_retries_total" [] "Questions that were sent again.";
    TRUNCATED counter "skua_dns_truncated_total" [] "Answers that did not fit into a datagram.";
    LATENCY counter "skua_dns_latency_seconds_total" [] "Time until answers, of all answers together.";
    WITHIN counter "skua_dns_answered_within_total" ["seconds"] "Answers that took no longer than this.";
    MESSAGES counter "skua_dns_messages_total" [] "Messages of DNS, at each interface that they pass.";
    MALFORMED counter "skua_dns_malformed_total" [] "Datagrams and messages on ports of DNS that are none.";
    MISMATCHED counter "skua_dns_mismatched_total" [] "Answers to another question than their identifier belongs to.";
    GAPS counter "skua_dns_gaps_total" [] "TCP connections of which too much was missing.";
    CONFLICTS counter "skua_dns_conflicts_total" [] "TCP segments with other bytes than those that came first.";
    EVICTED counter "skua_dns_evicted_total" ["what"] "Questions, connections, records and names that were forgotten for others.";
    HELLOS counter "skua_tls_hellos_total" [] "First messages of TLS clients, at each interface that they pass.";
    NAMES gauge "skua_dns_names" [] "Addresses, by client and in all, with the names that led to them.";
}

pub fn write(out: &mut Exposition, log: &Log) {
    let (sums, stats) = log.sums();
    let mut lookups = out.family(&LOOKUPS);
    for (outcome, number) in Outcome::ALL.iter().zip(sums.outcomes) {
        lookups.value([outcome.name()], number);
    }
    let mut answers = out.family(&ANSWERS);
    for (code, number) in sums.codes.iter().enumerate() {
        let last = code + 1 == sums.codes.len();
        let name = numbers::code(code as u16);
        match last {
            true => answers.value(["other"], *number),
            // What was never seen and has no name is no series.
            false if *number > 0 || code < 6 => answers.value([&name], *number),
            false => {}
        }
    }
    out.single(&RETRIES, sums.retries);
    out.single(&TRUNCATED, sums.truncated);
    out.single(&LATENCY, sums.latency_ns as f64 / 1e9);
    let (mut within, mut all) = (out.family(&WITHIN), 0);
    for (bound, number) in LATENCY_BOUNDS.iter().zip(sums.latencies) {
        all += number;
        within.value([&bound.to_string()], all);
    }
    out.single(&MESSAGES, stats.dns_messages);
    out.single(&MALFORMED, stats.dns_malformed);
    out.single(&MISMATCHED, stats.dns_mismatched);
    out.single(&GAPS, stats.gaps);
    out.single(&CONFLICTS, stats.conflicts);
    let (known, forgotten) = names::counts();
    let mut evicted = out.family(&EVICTED);
    for (what, number) in [
        ("questions", stats.dns_evicted),
        ("connections", stats.connections_evicted),
        ("records", sums.forgotten),
        ("names", forgotten),
        ("hellos", hellos::counts().1),
    ] {
        evicted.value([what], number);
    }
    out.single(&HELLOS, stats.hellos);
    out.single(&NAMES, known as u64);
}
