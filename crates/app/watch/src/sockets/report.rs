//! What is said of the socket probe: in the summary, in /api/status, in /metrics and by the doctor.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;
use serde_json::Value;
use skua_config::{Config, sockets::Mode};
use skua_output as output;
use skua_output::{each, text_of};
use skua_socket::HookState;
use utoipa::ToSchema;

use crate::sockets::{Sockets, start};

/// Sums of sockets.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SocketSummary {
    /// Sockets since the start.
    pub seen: u64,
    /// Open now.
    pub open: u64,
    /// Ended.
    pub ended: u64,
    /// Of the ended those whose end was only seen by their absence.
    pub vanished: u64,
    /// Those summed up in the kernel by client and service.
    pub in_pairs: u64,
    /// Lost, by cause.
    pub lost: BTreeMap<&'static str, u64>,
    /// What is not kept for lack of room.
    pub not_kept: SocketsNotKept,
}

/// What is not kept of sockets for lack of room.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SocketsNotKept {
    /// Open sockets.
    pub open: u64,
    /// Ended sockets.
    pub ended: u64,
    /// Sockets that flows cannot be joined with.
    pub joins: u64,
    /// Conversations whose process is not known, because their ports were used again or are shared.
    pub ambiguous: u64,
    /// Processes.
    pub owners: u64,
    /// Processes whose sockets have all ended.
    pub owners_forgotten: u64,
    /// Dependencies that are summed up as "(others)".
    pub dependencies: u64,
}

/// How sockets are watched.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SocketProbe {
    /// By what.
    pub probe: String,
    /// Why not by a better one; empty when there is none.
    pub fallback: String,
    /// `events` of each socket, or sums made in the kernel (`aggregate`).
    pub mode: &'static str,
    /// The hooks of the ladder.
    pub hooks: Vec<HookStatus>,
    /// Maps in the kernel.
    pub maps: Vec<MapMemory>,
    /// Bytes of memory.
    pub memory: SocketMemory,
    /// Processes.
    pub owners: OwnerCounts,
}

/// A hook of the ladder.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HookStatus {
    /// What it is for.
    pub capability: String,
    /// Where it is.
    pub hook: String,
    /// `active`, `silent`, `unsupported` or `not needed`.
    pub state: &'static str,
    /// Why.
    pub reason: String,
}

/// A map in the kernel.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MapMemory {
    /// Name.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
}

/// Bytes of memory.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SocketMemory {
    /// Of sockets.
    pub sockets: u64,
    /// Of processes.
    pub owners: u64,
}

/// Processes of sockets.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OwnerCounts {
    /// Known now.
    pub processes: u64,
    /// Not kept for lack of room.
    pub not_kept: u64,
    /// Forgotten, as their sockets have all ended.
    pub forgotten: u64,
    /// Gone before they could be read.
    pub gone: u64,
}

/// Name of a hook's state.
fn state_name(state: HookState) -> &'static str {
    match state {
        HookState::Active => "active",
        HookState::Silent => "silent",
        HookState::Unsupported => "unsupported",
        HookState::NotNeeded => "not needed",
    }
}

/// Sums, as part of the summary.
pub fn summary(sockets: &Sockets) -> SocketSummary {
    let counts = sockets.store.counts();
    let owners = sockets.owners.counters();
    let lost = sockets.losses.by_cause().into_iter();
    SocketSummary {
        seen: counts.seen,
        open: sockets.store.open_count() as u64,
        ended: counts.ended,
        vanished: counts.vanished,
        in_pairs: counts.in_pairs,
        lost: lost.filter(|(_, lost)| *lost > 0).collect(),
        not_kept: SocketsNotKept {
            open: counts.not_kept,
            ended: counts.evicted,
            joins: counts.not_joined,
            ambiguous: counts.ambiguous,
            owners: owners.owners_full,
            owners_forgotten: owners.owners_forgotten,
            dependencies: counts.other_dependencies,
        },
    }
}

/// How sockets are watched, for /api/status.
pub fn status(sockets: &Sockets) -> SocketProbe {
    let hooks = sockets.hooks.iter().map(|hook| HookStatus {
        capability: hook.capability.to_string(),
        hook: hook.hook.to_string(),
        state: state_name(hook.state),
        reason: hook.reason.to_string(),
    });
    let maps = sockets.map_memory.iter().map(|(name, bytes)| MapMemory {
        name: name.to_string(),
        bytes: *bytes,
    });
    let owners = sockets.owners.counters();
    SocketProbe {
        probe: sockets.probe.to_string(),
        fallback: sockets.fallback.to_string(),
        mode: match sockets.mode {
            Mode::Events => "events",
            Mode::Aggregate => "aggregate",
        },
        hooks: hooks.collect(),
        maps: maps.collect(),
        memory: SocketMemory {
            sockets: sockets.store.memory() as u64,
            owners: sockets.owners.memory() as u64,
        },
        owners: OwnerCounts {
            processes: sockets.owners.len() as u64,
            not_kept: owners.owners_full,
            forgotten: owners.owners_forgotten,
            gone: owners.processes_gone,
        },
    }
}

/// What a user can do, by the status and the summary.
pub fn advice(status: &Value, summary: &Value) -> Vec<String> {
    let mut advice = Vec::new();
    let lost = |cause: &str| summary["lost"][cause].as_u64().unwrap_or(0);
    let mut say = |number: u64, text: &str| {
        if number > 0 {
            advice.push(format!("{number} {text}"));
        }
    };
    let ring = if status["fallback"].as_str().unwrap_or_default().is_empty() {
        "ends of sockets were lost as the ring buffer was full: with sockets.mode: aggregate the kernel \
         sums up connections, and none is lost so"
    } else {
        "ends of sockets came faster than sock_diag could report them: socket programs in the kernel \
         would not lose them"
    };
    say(lost("ring_full"), ring);
    say(
        lost("table_full"),
        "sockets were beyond the limit in the kernel: raise sockets.max_sockets",
    );
    say(
        lost("pairs_full"),
        "connections were beyond the limit of the kernel's sums: raise sockets.max_sockets, or drain more \
         often (agent.flow.ebpf.kernel_scan_interval)",
    );
    let not_kept = |what: &str| summary["not_kept"][what].as_u64().unwrap_or(0);
    say(
        not_kept("open"),
        "open sockets were beyond the limit: raise sockets.max_sockets",
    );
    say(
        not_kept("ended"),
        "ended sockets left the history for lack of room (their sums stay in `skua services`): raise \
         sockets.history",
    );
    say(
        not_kept("joins"),
        "sockets were beyond the limit of the index for flows: raise sockets.max_sockets",
    );
    say(
        not_kept("ambiguous"),
        "conversations have no process of their own: their ports were used again, or several processes wait \
         at one port (SO_REUSEPORT); named is what these share, if anything",
    );
    say(
        not_kept("owners"),
        "sockets have no process: more processes have open sockets and active flows than are kept, or have \
         too long names",
    );
    say(
        not_kept("owners_forgotten"),
        "processes whose sockets and flows have all ended are not named any more: the history has more than \
         are kept",
    );
    say(
        not_kept("dependencies"),
        "connections are summed up under \"(others)\": there are too many clients and services to tell \
         all apart",
    );
    if let Some(reason) = status["fallback"].as_str().filter(|r| !r.is_empty()) {
        advice.push(format!(
            "sockets are looked at by sock_diag, so short ones may be missed: {reason}"
        ));
    }
    advice
}

/// Status of a probe that is started for a moment.
pub fn trial(config: &Config) -> Value {
    match start(config) {
        Some(started) => serde_json::to_value(status(&started.state)).unwrap_or_default(),
        None => Value::Null,
    }
}

/// Prints the doctor's part about the probe.
pub fn print(out: &mut impl Write, status: &Value) -> io::Result<()> {
    if status.is_null() {
        return writeln!(out, "sockets   not watched");
    }
    let memory: u64 = each(&status["maps"])
        .iter()
        .filter_map(|map| map["bytes"].as_u64())
        .sum();
    writeln!(
        out,
        "sockets   {} ({}), maps take {}",
        text_of(status, "probe"),
        text_of(status, "mode"),
        output::bytes(memory)
    )?;
    for hook in each(&status["hooks"]) {
        let arrow = if hook["state"] == "active" {
            "->"
        } else {
            "  "
        };
        write!(
            out,
            "          {arrow} {:<11} {}: {}",
            text_of(hook, "state"),
            text_of(hook, "capability"),
            text_of(hook, "hook")
        )?;
        match text_of(hook, "reason") {
            "" => writeln!(out)?,
            reason => writeln!(out, ": {reason}")?,
        }
    }
    Ok(())
}

/// Prints the doctor's part about what was seen and lost.
pub fn print_sums(out: &mut impl Write, sums: &Value) -> io::Result<()> {
    if sums.is_null() {
        return Ok(());
    }
    let number = |value: &Value| output::count(value.as_u64().unwrap_or(0));
    writeln!(
        out,
        "          {} sockets seen, {} open, {} ended, of them {} without a word",
        number(&sums["seen"]),
        number(&sums["open"]),
        number(&sums["ended"]),
        number(&sums["vanished"])
    )?;
    for (cause, lost) in sums["lost"].as_object().into_iter().flatten() {
        writeln!(out, "          sockets lost: {cause} {}", number(lost))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_ring_leads_to_the_aggregate_mode() {
        let status = json!({"fallback": ""});
        let advice = advice(&status, &json!({"lost": {"ring_full": 7}, "not_kept": {}}));
        assert_eq!(advice.len(), 1);
        assert!(
            advice[0].starts_with("7 ends") && advice[0].contains("sockets.mode: aggregate"),
            "{advice:?}"
        );
    }

    #[test]
    fn sock_diag_is_not_advised_to_aggregate() {
        let status = json!({"fallback": "CAP_BPF missing"});
        let advice = advice(&status, &json!({"lost": {"ring_full": 7}}));
        assert!(!advice[0].contains("aggregate"), "{advice:?}");
        assert!(advice[1].contains("CAP_BPF missing"), "{advice:?}");
    }
}
