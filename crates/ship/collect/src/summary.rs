//! All sums of a collector, to be written.

use std::{cmp::Reverse, net::IpAddr};

use serde::Serialize;

use crate::{
    Collector,
    counts::{Cause, Counts, Sum},
    stream::{AgentLine, RemovedAgents},
};

/// Senders of unreadable datagrams that are shown.
const SHOWN: usize = 16;

/// All sums, to be written.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Datagrams received.
    pub datagrams: u64,
    /// Their bytes.
    pub datagram_bytes: u64,
    /// Records of conversations.
    pub records: u64,
    /// Records that added nothing new.
    pub old_records: u64,
    /// Records of conversations beyond the limit: not joined.
    pub untracked: u64,
    /// Sampled packets of others.
    pub samples: u64,
    /// Samples and records that were stepped over.
    pub skipped: u64,
    /// Restarts of agents.
    pub restarts: u64,
    /// Datagrams that agents had stored before they sent them.
    pub kept_datagrams: u64,
    /// Records whose time was corrected.
    pub clock_corrected: u64,
    /// Sums exported by agents, as they report, since this collector knows them.
    pub exported: Sum,
    /// Sums exported before: to a former collector, or to none.
    pub exported_before: Sum,
    /// Sums received: `exported` less `missing`.
    pub got: Sum,
    /// Sums that did not arrive.
    pub missing: Sum,
    /// Of `got`, counted already from another agent or interface.
    pub elsewhere: Sum,
    /// Of `got`, too late.
    pub late: Sum,
    /// Of `got`, of keys beyond the most.
    pub keys_full: Sum,
    /// Of `got`, of conversations beyond the most.
    pub conversations_full: Sum,
    /// Of `got`, in lines.
    pub counted: Sum,
    /// Estimates from samples of others, in lines, too.
    pub estimated: Sum,
    /// Losses by cause; causes without losses are left out.
    pub lost: std::collections::BTreeMap<&'static str, u64>,
    /// Lines that were written.
    pub lines: u64,
    /// Keys in open windows.
    pub keys: usize,
    /// Conversations that are remembered.
    pub conversations: usize,
    /// Those of which only that they were counted is remembered: ended ones, and those beyond the most.
    pub compact_conversations: usize,
    /// Agents.
    pub agents: Vec<AgentLine>,
    /// Sums of agents that were silent for long and removed; they are in `exported` and `missing`, too.
    #[serde(skip_serializing_if = "RemovedAgents::is_none")]
    pub removed_agents: RemovedAgents,
    /// Unreadable datagrams by sender: the senders with the most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The last error in a datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Datagrams of a sender that could not be read, wholly or in part.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Unreadable {
    /// The sender.
    pub from: IpAddr,
    /// How many.
    pub datagrams: u64,
}

impl Collector {
    /// All sums as they are now.
    pub fn summary(&self) -> Summary {
        let counts = &self.counts;
        let agents = self.streams.lines();
        let removed = self.streams.removed();
        let (mut exported, mut exported_before) = (removed.exported, removed.exported_before);
        for agent in &agents {
            exported.add(agent.exported.packets, agent.exported.bytes);
            exported_before.add(agent.exported_before.packets, agent.exported_before.bytes);
        }
        Summary {
            datagrams: counts.datagrams,
            datagram_bytes: counts.datagram_bytes,
            records: counts.records,
            old_records: counts.old_records,
            untracked: counts.untracked,
            samples: counts.samples,
            skipped: counts.skipped,
            restarts: counts.restarts,
            kept_datagrams: counts.kept,
            clock_corrected: counts.clock_corrected,
            exported,
            exported_before,
            got: counts.got,
            missing: missing(&agents, &removed),
            elsewhere: counts.elsewhere,
            late: counts.late,
            keys_full: counts.keys_full,
            conversations_full: counts.conversations_full,
            counted: counts.counted,
            estimated: counts.estimated,
            lost: Cause::ALL
                .into_iter()
                .map(|cause| (cause.name(), counts.of(cause)))
                .filter(|(_, units)| *units > 0)
                .collect(),
            lines: self.lines,
            keys: self.windows.keys(),
            conversations: self.conversations.len(),
            compact_conversations: self.conversations.compact(),
            unreadable: worst(counts),
            agents,
            removed_agents: removed,
            last_error: counts.last_error.clone(),
        }
    }
}

impl Summary {
    /// Adds another shard, which has read the same datagrams: counts by datagram are in `self`.
    pub fn add_shard(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.records, other.records),
            (&mut self.old_records, other.old_records),
            (&mut self.untracked, other.untracked),
            (&mut self.samples, other.samples),
            (&mut self.clock_corrected, other.clock_corrected),
            (&mut self.lines, other.lines),
        ] {
            *sum += more;
        }
        self.keys += other.keys;
        self.conversations += other.conversations;
        self.compact_conversations += other.compact_conversations;
        for (sum, more) in [
            (&mut self.got, other.got),
            (&mut self.elsewhere, other.elsewhere),
            (&mut self.late, other.late),
            (&mut self.keys_full, other.keys_full),
            (&mut self.conversations_full, other.conversations_full),
            (&mut self.counted, other.counted),
            (&mut self.estimated, other.estimated),
        ] {
            sum.add(more.packets, more.bytes);
        }
        for cause in [
            Cause::Late,
            Cause::KeysFull,
            Cause::NotJoined,
            Cause::ConversationsFull,
        ] {
            let units = other.lost.get(cause.name()).copied().unwrap_or(0);
            if units > 0 {
                *self.lost.entry(cause.name()).or_default() += units;
            }
        }
        for agent in &mut self.agents {
            // They are in this order.
            let index = other
                .agents
                .binary_search_by_key(&agent.key(), AgentLine::key);
            if let Some(found) = index.ok().and_then(|index| other.agents.get(index)) {
                agent.records += found.records;
                agent.got.add(found.got.packets, found.got.bytes);
                agent.lost_records = agent.exported_records.saturating_sub(agent.records);
            }
        }
        let got = other.removed_agents.got;
        self.removed_agents.got.add(got.packets, got.bytes);
        self.missing = missing(&self.agents, &self.removed_agents);
    }
}

/// Sums exported that did not arrive.
fn missing(agents: &[AgentLine], removed: &RemovedAgents) -> Sum {
    let mut missing = Sum::default();
    let agents = agents.iter().map(|agent| (agent.exported, agent.got));
    for (exported, got) in agents.chain([(removed.exported, removed.got)]) {
        missing.add(
            exported.packets.saturating_sub(got.packets),
            exported.bytes.saturating_sub(got.bytes),
        );
    }
    missing
}

fn worst(counts: &Counts) -> Vec<Unreadable> {
    let mut all: Vec<_> = counts
        .unreadable
        .iter()
        .map(|(from, datagrams)| Unreadable {
            from: *from,
            datagrams: *datagrams,
        })
        .collect();
    all.sort_by_key(|one| (Reverse(one.datagrams), one.from));
    all.truncate(SHOWN);
    all
}
