//! The sums at the end: seen, in flows, left out and lost by cause.

use std::{collections::BTreeMap, io::Write as _};

use serde::Serialize;
use skua_collect::Sum;
use skua_config::arguments::SummaryFormat;
use skua_flow::{AddressCounts, Counters, Summary};
use skua_output as output;
use skua_probe::{
    Account,
    account::{CauseKind, PointAccount, cause_kind},
    receive::Received,
};
use skua_state::{Counts, State};
use utoipa::ToSchema;

use crate::sockets::report::{self, SocketSummary};

/// What a probe, or a capture of its own, has seen: every packet is in a flow, lost, or left out.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FlowSums {
    /// Packets that were seen.
    pub seen: Sum,
    /// Those in flows, without those inside tunnels.
    pub in_flows: Sum,
    /// Those of `in_flows` with each conversation once, however many interfaces have seen it: of each direction the most that one
    /// of them counted. Null when conversations are not kept.
    pub conversations: Option<Sum>,
    /// Those lost, by cause.
    pub lost: BTreeMap<&'static str, Sum>,
    /// Those left out as the configuration wants it, by cause.
    pub left_out: BTreeMap<&'static str, Sum>,
    /// Those that something was noted of and that are in flows, by note.
    pub notes: BTreeMap<&'static str, Sum>,
    /// Flows since the start.
    pub flows: u64,
    /// Flows that left the history for lack of room.
    pub not_kept: FlowsNotKept,
    /// The flow table.
    pub table: TableSums,
    /// What a receiver of others' datagrams got and lost; null for other probes, which get none.
    pub received: Option<ReceivedSums>,
}

/// Flows that left the history for lack of room.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FlowsNotKept {
    /// How many.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The flow table.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TableSums {
    /// Entries now.
    pub live: u64,
    /// Entries that it may have.
    pub max_entries: u64,
    /// Entries made since the start.
    pub inserted: u64,
}

/// What a receiver of others' datagrams got.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ReceivedSums {
    /// Datagrams, or connections accepted; of all senders.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flow samples, flow records, or packets that were decoded.
    pub records: u64,
    /// Other things that were understood: counters samples, templates, options.
    pub others: u64,
    /// Things that are not decoded.
    pub skipped: u64,
    /// Sets that wait for their template now.
    pub waiting: u64,
    /// Datagrams that came after others that were sent later, or twice.
    pub out_of_order: u64,
    /// Times that an exporter was seen to start anew.
    pub restarts: u64,
    /// Exporters known now.
    pub exporters: u64,
    /// Losses by cause.
    pub lost: BTreeMap<&'static str, u64>,
    /// What was last wrong with a datagram, and who sent it.
    pub last_error: Option<String>,
}

/// All sums of a probe.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Summary)]
pub struct ProbeSummary {
    /// Those that captures have, too.
    #[serde(flatten)]
    pub sums: FlowSums,
    /// Packets in flows inside tunnels, which are part of the tunnels' own.
    pub inside_tunnels: Sum,
    /// Prefixes in the address set.
    pub addresses: PrefixCounts,
    /// Interfaces that are not watched, because there would be too many programs in the kernel.
    pub not_watched: u64,
    /// Programs that the process has loaded into the kernel.
    pub programs: ProgramCounts,
    /// Drains of the flow table.
    pub drains: u64,
    /// Those because the table filled up.
    pub drains_under_pressure: u64,
    /// Each capture point.
    pub interfaces: Vec<InterfaceSums>,
    /// Sums of sockets, when they are watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketSummary>,
}

/// Prefixes in the address set.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PrefixCounts {
    /// To include.
    pub include: u64,
    /// To exclude.
    pub exclude: u64,
}

/// Programs that the process has loaded into the kernel.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProgramCounts {
    /// Now.
    pub loaded: u64,
    /// At most.
    pub most: u64,
}

/// Sums of a capture point.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct InterfaceSums {
    /// Name of the interface.
    pub interface: String,
    /// Name of its network namespace; empty: that of this process.
    pub netns: String,
    /// How the program is attached.
    pub hook: String,
    /// Whether it is now.
    pub attached: bool,
    /// Packets in flows.
    pub in_flows: Sum,
    /// Of them those that came in.
    pub ingress: Sum,
    /// Of them those that went out.
    pub egress: Sum,
    /// Of them those whose direction is not known.
    pub mixed: Sum,
    /// Packets by cause of their loss, of being left out, or of a note.
    pub causes: BTreeMap<&'static str, Sum>,
    /// The interface's own counters.
    pub interface_counters: InterfaceCounters,
}

/// The counters that the kernel keeps of an interface.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct InterfaceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

fn sum(value: Counters) -> Sum {
    Sum {
        packets: value.packets,
        bytes: value.bytes,
    }
}

impl FlowSums {
    /// Of what was counted.
    pub fn of(counts: &Counts) -> Self {
        let (account, store) = (&counts.account, &counts.totals);
        let (mut lost, mut left_out, mut notes) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (cause, name, counted) in account.causes() {
            match cause_kind(cause) {
                CauseKind::Lost => &mut lost,
                CauseKind::LeftOut => &mut left_out,
                CauseKind::Note => &mut notes,
            }
            .insert(name, sum(counted));
        }
        Self {
            seen: sum(account.seen()),
            in_flows: sum(account.in_flows()),
            conversations: store.conversations.map(sum),
            lost,
            left_out,
            notes,
            flows: store.flows,
            not_kept: FlowsNotKept {
                flows: store.evicted,
                packets: store.evicted_counted.packets,
                bytes: store.evicted_counted.bytes,
            },
            table: TableSums {
                live: account.live,
                max_entries: account.max_entries,
                inserted: account.inserted,
            },
            received: received(&account.received),
        }
    }
}

/// All sums.
pub fn of(counts: &Counts, sockets: Option<SocketSummary>) -> ProbeSummary {
    let (account, store) = (&counts.account, &counts.totals);
    ProbeSummary {
        sums: FlowSums::of(counts),
        inside_tunnels: sum(store.inside_tunnels),
        addresses: PrefixCounts {
            include: account.addresses.include,
            exclude: account.addresses.exclude,
        },
        not_watched: account.not_watched,
        programs: ProgramCounts {
            loaded: skua_kernel::loaded_programs() as u64,
            most: skua_kernel::MOST_PROGRAMS as u64,
        },
        drains: account.drains,
        drains_under_pressure: account.pressed_drains,
        interfaces: account.points.values().map(interface).collect(),
        sockets,
    }
}

fn received(received: &Received) -> Option<ReceivedSums> {
    if received.datagrams == 0 && received.causes().next().is_none() {
        return None;
    }
    let causes = received.causes();
    Some(ReceivedSums {
        datagrams: received.datagrams,
        bytes: received.bytes,
        records: received.records,
        others: received.others,
        skipped: received.skipped,
        waiting: received.held,
        out_of_order: received.out_of_order,
        restarts: received.restarts,
        exporters: received.exporters,
        lost: causes.map(|(cause, units)| (cause.name(), units)).collect(),
        last_error: received.last_error.clone(),
    })
}

fn interface(point: &PointAccount) -> InterfaceSums {
    let causes = point.causes();
    let counters = &point.interface_counters;
    InterfaceSums {
        interface: point.interface.to_string(),
        netns: point.netns.clone(),
        hook: point.hook.to_string(),
        attached: point.attached,
        in_flows: sum(point.in_flows()),
        ingress: sum(point.flows.ingress),
        egress: sum(point.flows.egress),
        mixed: sum(point.flows.mixed),
        causes: causes
            .map(|(_, name, counted)| (name, sum(counted)))
            .collect(),
        interface_counters: InterfaceCounters {
            rx_packets: counters.rx_packets,
            rx_bytes: counters.rx_bytes,
            tx_packets: counters.tx_packets,
            tx_bytes: counters.tx_bytes,
        },
    }
}

/// Prints the sums to standard error.
pub fn print(format: Option<SummaryFormat>, state: &State) {
    let sockets = state.sockets.as_ref().map(report::summary);
    let said = match format {
        Some(SummaryFormat::Json) => {
            let json = serde_json::to_string(&of(&state.counts(), sockets));
            json.unwrap_or_default() + "\n"
        }
        Some(SummaryFormat::Text) | None => {
            let sockets = sockets.as_ref().map(sockets_text);
            text(&state.account, &state.totals()) + &sockets.unwrap_or_default()
        }
    };
    // Whoever reads it may have seen enough.
    let _ = std::io::stderr().write_all(said.as_bytes());
}

fn sockets_text(sums: &SocketSummary) -> String {
    let mut text = format!(
        "{}: {} ended, {} open\n",
        output::counted(sums.seen as usize, "socket"),
        sums.ended,
        sums.open,
    );
    for (cause, lost) in &sums.lost {
        text += &format!("  lost: {cause} {lost}\n");
    }
    for (number, name) in [
        (
            sums.not_kept.open,
            "open sockets were beyond the limit (sockets.max_sockets)",
        ),
        (
            sums.not_kept.ended,
            "ended sockets did not fit into the history (sockets.history)",
        ),
    ] {
        if number > 0 {
            text += &format!("  {number} {name}\n");
        }
    }
    text
}

fn text(account: &Account, store: &Summary) -> String {
    let mut lines = vec![
        ("seen".to_owned(), account.seen()),
        ("in flows".to_owned(), account.in_flows()),
    ];
    if let Some(once) = store
        .conversations
        .filter(|once| *once != account.in_flows())
    {
        lines.push(("each conversation once".to_owned(), once));
    }
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
            account.removed.ingress[cause as usize] = Counters {
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
