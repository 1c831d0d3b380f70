//! Exporters and their interfaces, numbered to stand in place of namespaces and interfaces in flow keys.

use std::{collections::HashMap, net::IpAddr};

use super::FIRST_EXPORTER;
use crate::Watched;

/// The most exporters that get a number. None is used again.
const MOST_EXPORTERS: usize = 4096;
/// The most interfaces of all exporters; further ones have no name, and share one entry.
const MOST_INTERFACES: usize = 65_536;

/// Identity of an exporter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Identity {
    /// Source address of its datagrams.
    pub(super) from: IpAddr,
    /// The address in its datagrams; the same where they have none.
    pub(super) agent: IpAddr,
}

/// Properties of an exporter's interface.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Port {
    /// Packets that leave by it are counted there, in addition to where they came in.
    pub(super) counts_egress: bool,
    /// Its last sampling rate: one in so many packets.
    pub(super) rate: u32,
}

/// All exporters.
#[derive(Default)]
pub(super) struct Exporters {
    numbers: HashMap<Identity, u16>,
    ports: HashMap<(u16, u32), Port>,
    /// In place of those that exceed the limit.
    other: Port,
}

impl Exporters {
    /// The number of an exporter; none when there are too many.
    pub(super) fn number(&mut self, identity: Identity) -> Option<u16> {
        if let Some(number) = self.numbers.get(&identity) {
            return Some(*number);
        }
        let count = self.numbers.len();
        if count >= MOST_EXPORTERS {
            return None;
        }
        let number = FIRST_EXPORTER + count as u16;
        self.numbers.insert(identity, number);
        Some(number)
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// An interface's properties.
    pub(super) fn port(&mut self, exporter: u16, ifindex: u32) -> &mut Port {
        let key = (exporter, ifindex);
        if self.ports.len() >= MOST_INTERFACES && !self.ports.contains_key(&key) {
            return &mut self.other;
        }
        self.ports.entry(key).or_default()
    }

    /// Whether packets that go out of an interface are counted there.
    pub(super) fn counts_egress(&self, exporter: u16, ifindex: u32) -> bool {
        self.ports
            .get(&(exporter, ifindex))
            .is_some_and(|port| port.counts_egress)
    }

    /// One packet in so many was counted there; 0 when that is not known.
    pub(super) fn rate(&self, exporter: u16, ifindex: u32) -> u32 {
        self.ports
            .get(&(exporter, ifindex))
            .map_or(0, |port| port.rate)
    }

    /// All interfaces, with names that `name` makes of the exporter and the ifIndex.
    pub(super) fn watched(&self, name: impl Fn(&Identity, u32) -> String) -> Vec<Watched> {
        let identities: HashMap<u16, &Identity> = self
            .numbers
            .iter()
            .map(|(id, number)| (*number, id))
            .collect();
        let mut watched: Vec<Watched> = self
            .ports
            .keys()
            .filter_map(|(number, ifindex)| {
                let identity = identities.get(number)?;
                Some(Watched {
                    netns_inode: 0,
                    netns: *number,
                    ifindex: *ifindex,
                    netns_name: String::new(),
                    name: name(identity, *ifindex),
                })
            })
            .collect();
        watched.sort_unstable_by_key(|watched| (watched.netns, watched.ifindex));
        watched
    }
}

/// Name of an interface that has no better one: `agent 10.0.0.1 ifIndex 3`.
pub(super) fn plain_name(kind: &str, identity: &Identity, ifindex: u32) -> String {
    let exporter = exporter_name(kind, identity);
    match ifindex {
        0 => exporter,
        ifindex => format!("{exporter} ifIndex {ifindex}"),
    }
}

/// Name of an exporter: `agent 10.0.0.1`, with the source address of its datagrams when that differs.
pub(super) fn exporter_name(kind: &str, identity: &Identity) -> String {
    let Identity { from, agent } = identity;
    match from == agent {
        true => format!("{kind} {agent}"),
        false => format!("{kind} {agent} from {from}"),
    }
}
