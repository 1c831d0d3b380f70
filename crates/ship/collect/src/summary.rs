//! All sums of a collector, to be written.

use std::{cmp::Reverse, net::IpAddr};

use serde::Serialize;

use crate::{
    Collector,
    counts::{Cause, Counts, Sum},
    stream::{AgentLine, GoneAgents},
};

/// Senders of unreadable datagrams that are shown.
const SHOWN: usize = 16;

/// All sums, to be written.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Their bytes.
    pub datagram_bytes: u64,
    /// Records of conversations.
    pub records: u64,
    /// Those that told nothing that was not known.
    pub old_records: u64,
    /// Those that could not be joined for lack of room.
    pub untracked: u64,
    /// Sampled packets of others.
    pub samples: u64,
    /// Samples and records that were stepped over.
    pub skipped: u64,
    /// Times that an agent started anew.
    pub restarts: u64,
    /// Datagrams that their agents had kept for a time.
    pub kept_datagrams: u64,
    /// Records whose time was set right.
    pub clock_corrected: u64,
    /// What agents say that they told, since this collector knows of them.
    pub exported: Sum,
    /// What they say that they had told before: to a collector that is gone, or to nobody.
    pub exported_before: Sum,
    /// What of it came: `exported` less `missing`.
    pub got: Sum,
    /// What did not come.
    pub missing: Sum,
    /// Of `got`, told by several.
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
    /// Units lost by cause, those of nothing left out.
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
    /// Sums of agents that were silent for long and made room for others: in `exported` and `missing`, too.
    #[serde(skip_serializing_if = "GoneAgents::is_none")]
    pub gone_agents: GoneAgents,
    /// Unreadable datagrams by who sent them: those who sent most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// What was last wrong with a datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Datagrams of a sender that could not be read, wholly or in part.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Unreadable {
    /// Who sent them.
    pub from: IpAddr,
    /// How many.
    pub datagrams: u64,
}

impl Collector {
    /// All sums as they are now.
    pub fn summary(&self) -> Summary {
        let counts = &self.counts;
        let agents = self.streams.lines();
        let gone = self.streams.gone();
        let (mut exported, mut exported_before) = (gone.exported, gone.exported_before);
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
            missing: missing(&agents, &gone),
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
            gone_agents: gone,
            last_error: counts.last_error.clone(),
        }
    }
}

impl Summary {
    /// Adds those of another shard, which has seen the same datagrams: what is counted by datagram is in
    /// `self`.
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
            let place = other
                .agents
                .binary_search_by_key(&agent.key(), AgentLine::key);
            if let Some(found) = place.ok().and_then(|place| other.agents.get(place)) {
                agent.records += found.records;
                agent.got.add(found.got.packets, found.got.bytes);
                agent.lost_records = agent.exported_records.saturating_sub(agent.records);
            }
        }
        let got = other.gone_agents.got;
        self.gone_agents.got.add(got.packets, got.bytes);
        self.missing = missing(&self.agents, &self.gone_agents);
    }
}

/// What agents say that they told, and did not come.
fn missing(agents: &[AgentLine], gone: &GoneAgents) -> Sum {
    let mut missing = Sum::default();
    let agents = agents.iter().map(|agent| (agent.exported, agent.got));
    for (exported, got) in agents.chain([(gone.exported, gone.got)]) {
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
