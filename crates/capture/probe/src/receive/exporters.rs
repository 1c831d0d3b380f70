//! Exporters and their interfaces, numbered to stand in place of namespaces and interfaces in flow keys.

use std::{collections::HashMap, net::IpAddr};

use skua_flow::{CapturePoint, Direction};

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

/// The interfaces that a packet or flow passed, as far as its exporter knows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) exporter: u16,
    pub(super) input: Option<u32>,
    pub(super) output: Option<u32>,
    /// It was counted where it went out.
    pub(super) counted_at_output: bool,
    /// Its exporter says where it was counted, whether or not it knows where else it passed.
    pub(super) knows_interfaces: bool,
}

/// Where it is counted if its conversation has an entry there; see [`skua_flow::Joins`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Candidates {
    pub(super) next: Option<CapturePoint>,
    pub(super) unknown: bool,
    /// At any interface of the exporter that does not count what goes out.
    pub(super) anywhere: bool,
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

    /// Where a packet or flow is counted, and where else its conversation may be; notes the sampling rate there.
    pub(super) fn places(&mut self, passed: &Passed, rate: u32) -> (CapturePoint, Candidates) {
        let Passed {
            exporter,
            input,
            output,
            ..
        } = *passed;
        let at = |ifindex: Option<u32>, direction| CapturePoint {
            netns: exporter,
            ifindex: ifindex.unwrap_or(0),
            direction,
        };
        let (point, candidates) = if passed.counted_at_output {
            self.port(exporter, output.unwrap_or(0)).counts_egress = true;
            (at(output, Direction::Egress), Candidates::default())
        } else {
            // The egress interface does not count it again: both directions of a conversation are counted where its
            // first packet came in.
            let next = output.filter(|out| !self.counts_egress(exporter, *out));
            let alone = input.is_some_and(|input| self.counts_egress(exporter, input));
            let may_join = !passed.knows_interfaces && !alone;
            let candidates = Candidates {
                next: next.map(|_| at(next, Direction::Egress)),
                unknown: may_join && input.is_some() && self.ports.contains_key(&(exporter, 0)),
                anywhere: may_join && (input.is_none() || output.is_none()),
            };
            (at(input, Direction::Ingress), candidates)
        };
        for place in [Some(point), candidates.next].into_iter().flatten() {
            self.port(exporter, place.ifindex).rate = rate;
        }
        (point, candidates)
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
                    since_ns: 0,
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
