//! The sums at the end: seen, in flows, left out and lost by cause.

use serde::Serialize;
use serde_json::{Map, Value, json};
use skua_config::arguments::SummaryFormat;
use skua_flow::{AddressCounts, Counters, Summary};
use skua_output as output;
use skua_probe::{
    Account,
    account::{CauseKind, cause_kind},
    receive::Received,
};

use crate::{sockets::report, state::State};

fn counters(value: Counters) -> Value {
    json!({"packets": value.packets, "bytes": value.bytes})
}

/// All sums of a state.
pub fn of(state: &State) -> Value {
    let mut sums = json(&state.account, &state.totals());
    if let Some(sockets) = &state.sockets {
        sums["sockets"] = report::summary(sockets);
    }
    sums
}

/// The sums of flows as one JSON object.
fn json(account: &Account, store: &Summary) -> Value {
    let mut lost = Map::new();
    let mut left_out = Map::new();
    let mut notes = Map::new();
    for (cause, name, sum) in account.causes() {
        match cause_kind(cause) {
            CauseKind::Lost => &mut lost,
            CauseKind::LeftOut => &mut left_out,
            CauseKind::Note => &mut notes,
        }
        .insert(name.into(), counters(sum));
    }
    json!({
        "seen": counters(account.seen()),
        "in_flows": counters(account.in_flows()),
        "lost": lost,
        "left_out": left_out,
        "notes": notes,
        "flows": store.flows,
        "not_kept": {"flows": store.evicted, "packets": store.evicted_counted.packets, "bytes": store.evicted_counted.bytes},
        "inside_tunnels": counters(store.inside_tunnels),
        "addresses": {"include": account.addresses.include, "exclude": account.addresses.exclude},
        "not_watched": account.not_watched,
        "programs": {"loaded": skua_kernel::loaded_programs(), "most": skua_kernel::MOST_PROGRAMS},
        "drains": account.drains,
        "drains_under_pressure": account.pressed_drains,
        "table": {"live": account.live, "max_entries": account.max_entries, "inserted": account.inserted},
        "interfaces": interfaces(account),
        "received": received(&account.received),
    })
}

/// What a receiver of others' datagrams got and lost; null for other probes, which get none.
fn received(received: &Received) -> Value {
    if received.datagrams == 0 && received.causes().next().is_none() {
        return Value::Null;
    }
    let lost: Map<String, Value> = received
        .causes()
        .map(|(cause, units)| (cause.name().to_owned(), units.into()))
        .collect();
    json!({
        "datagrams": received.datagrams,
        "bytes": received.bytes,
        "records": received.records,
        "others": received.others,
        "skipped": received.skipped,
        "waiting": received.held,
        "out_of_order": received.out_of_order,
        "restarts": received.restarts,
        "exporters": received.exporters,
        "lost": lost,
        "last_error": received.last_error,
    })
}

/// Sums of each capture point.
pub fn interfaces(account: &Account) -> Vec<Value> {
    #[derive(Serialize)]
    struct Causes(Map<String, Value>);
    account
        .points
        .values()
        .map(|point| {
            let causes: Map<String, Value> = point
                .causes()
                .map(|(_, name, sum)| (name.to_owned(), counters(sum)))
                .collect();
            json!({
                "interface": point.interface,
                "netns": point.netns,
                "hook": point.hook,
                "attached": point.attached,
                "in_flows": counters(point.in_flows()),
                "ingress": counters(point.flows.ingress),
                "egress": counters(point.flows.egress),
                "mixed": counters(point.flows.mixed),
                "causes": Causes(causes),
                "interface_counters": {
                    "rx_packets": point.interface_counters.rx_packets,
                    "rx_bytes": point.interface_counters.rx_bytes,
                    "tx_packets": point.interface_counters.tx_packets,
                    "tx_bytes": point.interface_counters.tx_bytes,
                },
            })
        })
        .collect()
}

/// Prints the sums to standard error.
pub fn print(format: Option<SummaryFormat>, state: &State) {
    match format {
        Some(SummaryFormat::Json) => eprintln!("{}", of(state)),
        Some(SummaryFormat::Text) | None => {
            eprint!("{}", text(&state.account, &state.totals()));
            if let Some(sockets) = &state.sockets {
                eprint!("{}", sockets_text(&report::summary(sockets)));
            }
        }
    }
}

fn sockets_text(sums: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut text = format!(
        "{}: {} ended, {} open\n",
        output::counted(number(&sums["seen"]) as usize, "socket"),
        number(&sums["ended"]),
        number(&sums["open"]),
    );
    for (cause, lost) in sums["lost"].as_object().into_iter().flatten() {
        text += &format!("  lost: {cause} {lost}\n");
    }
    for (what, name) in [
        (
            "open",
            "open sockets were beyond the limit (sockets.max_sockets)",
        ),
        (
            "ended",
            "ended sockets did not fit into the history (sockets.history)",
        ),
    ] {
        if number(&sums["not_kept"][what]) > 0 {
            text += &format!("  {} {name}\n", sums["not_kept"][what]);
        }
    }
    text
}

fn text(account: &Account, store: &Summary) -> String {
    let mut lines = vec![
        ("seen".to_owned(), account.seen()),
        ("in flows".to_owned(), account.in_flows()),
    ];
    for (cause, name, sum) in account.causes() {
        let what = match cause_kind(cause) {
            CauseKind::Lost => "lost",
            CauseKind::LeftOut => "left out",
            CauseKind::Note => "note",
        };
        lines.push((format!("{what}: {name}"), sum));
    }
    let names = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("{}\n", output::counted(store.flows as usize, "flow"));
    for (name, sum) in lines {
        text += &format!(
            "  {name:<names$} {:>14} packets {:>12}\n",
            sum.packets,
            output::bytes(sum.bytes)
        );
    }
    let AddressCounts { include, exclude } = account.addresses;
    if include + exclude > 0 {
        text += &format!("  address set: {include} to include, {exclude} to exclude\n");
    }
    if account.not_watched > 0 {
        text += &format!(
            "  not watched: {} (too many programs, docs/kernels.md)\n",
            output::counted(account.not_watched as usize, "interface")
        );
    }
    if store.evicted > 0 {
        text += &format!(
            "  {} did not fit into the history (history.memory)\n",
            output::counted(store.evicted as usize, "flow")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::Cause;

    #[test]
    fn columns_stand_below_each_other() {
        let mut account = Account::default();
        for cause in Cause::ALL {
            account.gone.ingress[cause as usize] = Counters {
                packets: 1,
                bytes: 60,
            };
        }
        let text = text(&account, &Summary::default());
        let ends: Vec<_> = text.lines().skip(1).map(|l| l.find(" packets ")).collect();
        assert_eq!(ends.len(), 2 + Cause::ALL.len());
        assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
    }
}
