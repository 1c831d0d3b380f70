//! Ends without a name whose service is known by now.
//!
//! The first lines of a conversation may come before anybody knows whose socket it is, or from the other end alone. They are sums
//! of an address. As soon as lines with the same address and a name come, [`Known`] gives the sums that name, also those of before.
//! Lines, edges and the rows in Kafka stay as they are: only who shows them asks for this.

use std::net::IpAddr;

use super::{EdgeKey, EdgeSums, Endpoint, GraphLine};
use crate::HashMap;

/// The service at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Who {
    One(Box<str>),
    /// Several have been there, or the address says nothing about its host.
    Several,
}

impl Who {
    fn learn(&mut self, name: &str) {
        if matches!(self, Self::One(known) if **known != *name) {
            *self = Self::Several;
        }
    }
}

/// What lines have said about the services at addresses.
#[derive(Debug)]
pub struct Known {
    /// By address, protocol and port that is called.
    servers: HashMap<(IpAddr, u8, u16), Who>,
    /// By the client's address, the server as the line has it, protocol and port.
    clients: HashMap<(IpAddr, Endpoint, u8, u16), Who>,
    /// Services that got another name.
    renamed: HashMap<Box<str>, Box<str>>,
    most: usize,
}

/// Sums of an edge under the names that are known.
pub(super) struct Named {
    pub sums: EdgeSums,
    /// An end is an address at which several services are known: it may go on under one of their names.
    pub doubtful: bool,
}

/// Names that follow each other at most: a container's id, its name, and a few more.
const RENAMES: usize = 8;

impl Known {
    /// Of at most so many servers, clients and changed names each.
    pub fn new(most: usize) -> Self {
        Self {
            servers: HashMap::default(),
            clients: HashMap::default(),
            renamed: HashMap::default(),
            most,
        }
    }

    /// Learns from a line.
    pub fn learn(&mut self, line: &GraphLine<'_>) {
        let key = EdgeKey::of(line);
        if let Endpoint::Service(name) = &key.server {
            let place = (line.server, line.protocol, line.port);
            learn(&mut self.servers, self.most, place, line.server, name);
        }
        if let Endpoint::Service(name) = &key.client {
            let place = (line.client, key.server.clone(), line.protocol, line.port);
            learn(&mut self.clients, self.most, place, line.client, name);
        }
    }

    /// A service has another name from now on.
    pub fn rename(&mut self, former: &str, now: &str) {
        if self.renamed.len() < self.most || self.renamed.contains_key(former) {
            self.renamed.insert(former.into(), now.into());
        }
        // The new name may have been the former one before.
        self.renamed.remove(now);
    }

    fn name(&self, end: Endpoint) -> Endpoint {
        let Endpoint::Service(mut name) = end else {
            return end;
        };
        for _ in 0..RENAMES {
            match self.renamed.get(&name) {
                Some(now) => name.clone_from(now),
                None => break,
            }
        }
        Endpoint::Service(name)
    }

    /// The server of an edge; and whether it may be one of several.
    fn server(&self, end: &Endpoint, protocol: u8, port: u16) -> (Endpoint, bool) {
        let Endpoint::Address(address) = end else {
            return (self.name(end.clone()), false);
        };
        match self.servers.get(&(*address, protocol, port)) {
            Some(Who::One(name)) => (self.name(Endpoint::Service(name.clone())), false),
            Some(Who::Several) => (end.clone(), true),
            None => (end.clone(), false),
        }
    }

    /// Sums up edges that are one under the names that are known.
    pub(super) fn fold(
        &self,
        edges: impl IntoIterator<Item = (EdgeKey, EdgeSums)>,
    ) -> HashMap<EdgeKey, Named> {
        // The same client, by the server's name of now.
        let mut clients: HashMap<(IpAddr, Endpoint, u8, u16), Who> = HashMap::default();
        for ((address, server, protocol, port), who) in &self.clients {
            let (server, _) = self.server(server, *protocol, *port);
            clients
                .entry((*address, server, *protocol, *port))
                .and_modify(|known| match who {
                    Who::One(name) => known.learn(name),
                    Who::Several => *known = Who::Several,
                })
                .or_insert_with(|| who.clone());
        }
        let mut all: HashMap<EdgeKey, Named> = HashMap::default();
        for (key, sums) in edges {
            let (server, mut doubtful) = self.server(&key.server, key.protocol, key.port);
            let client = match &key.client {
                Endpoint::Address(address) => {
                    let place = (*address, server.clone(), key.protocol, key.port);
                    match clients.get(&place) {
                        Some(Who::One(name)) => self.name(Endpoint::Service(name.clone())),
                        Some(Who::Several) => {
                            doubtful = true;
                            key.client.clone()
                        }
                        None => key.client.clone(),
                    }
                }
                Endpoint::Service(_) => self.name(key.client.clone()),
            };
            let key = EdgeKey {
                client,
                server,
                ..key
            };
            match all.get_mut(&key) {
                Some(named) => {
                    named.sums.merge(&sums);
                    named.doubtful |= doubtful;
                }
                None => {
                    all.insert(key, Named { sums, doubtful });
                }
            }
        }
        all
    }
}

fn learn<K: Eq + std::hash::Hash>(
    all: &mut HashMap<K, Who>,
    most: usize,
    place: K,
    address: IpAddr,
    name: &str,
) {
    let room = all.len() < most;
    match all.get_mut(&place) {
        Some(who) => who.learn(name),
        None if room => {
            let who = match names_a_host(address) {
                true => Who::One(name.into()),
                false => Who::Several,
            };
            all.insert(place, who);
        }
        None => {}
    }
}

/// Whether an address is of one host: each host and namespace has those of the loopback and of the link for itself.
fn names_a_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SECOND,
        graph::{Change, Edge, Graph, tests::line},
    };

    struct Both(Graph, Known);

    impl Both {
        fn new() -> Self {
            let begin = line("", 0, &[]).window;
            Self(Graph::new(100, begin), Known::new(100))
        }

        /// A line `s` after the first: names of client and server, the last byte of the client's address.
        fn add(&mut self, s: u64, client: &str, server: &str, address: u8) {
            let line = line("", 0, &[]);
            let line = GraphLine {
                window: line.window + s * SECOND,
                client_service: client.to_owned().into(),
                server_service: server.to_owned().into(),
                client: [10, 0, 0, address].into(),
                ..line
            };
            self.0.add(&line);
            self.1.learn(&line);
        }

        fn edges(&self, s: u64) -> Vec<Edge> {
            let begin = line("", 0, &[]).window;
            let none = Graph::new(0, 0);
            self.0.known_edges(&none, &self.1, begin + s * SECOND)
        }

        fn ends(&self, s: u64) -> Vec<(String, u64, Option<Change>)> {
            let edges = self.edges(s).into_iter();
            let told = edges.map(|e| {
                let ends = format!("{} {}", e.key.client, e.key.server);
                (ends, e.sums.connections, e.change)
            });
            let mut told: Vec<_> = told.collect();
            told.sort_by(|a, b| a.0.cmp(&b.0));
            told
        }
    }

    #[test]
    fn addresses_become_services_once_these_are_known_and_none_has_vanished() {
        let mut both = Both::new();
        both.add(0, "", "", 1);
        // Each end is known by another agent.
        both.add(10, "", "orders", 1);
        both.add(20, "gateway", "", 1);
        assert_eq!(both.ends(30), [("gateway orders".into(), 6, None)]);
        both.add(900, "gateway", "orders", 1);
        assert_eq!(both.ends(910), [("gateway orders".into(), 8, None)]);
        // Who really ends has vanished.
        let vanished = Some(Change::Vanished);
        assert_eq!(both.ends(1_400), [("gateway orders".into(), 8, vanished)]);
        // As they are, for those who compare rows.
        assert_eq!(both.0.edges(&Graph::new(0, 0), 0).len(), 4);
    }

    #[test]
    fn an_address_with_several_services_stays_an_address() {
        let mut both = Both::new();
        both.add(0, "", "orders", 1);
        both.add(10, "gateway", "orders", 1);
        both.add(20, "curl", "orders", 1);
        both.add(0, "", "orders", 2);
        both.add(900, "gateway", "orders", 1);
        both.add(900, "curl", "orders", 1);
        let vanished = Some(Change::Vanished);
        assert_eq!(
            both.ends(910),
            [
                // It may be one of both: that is no reason to say that it has gone.
                ("10.0.0.1 orders".into(), 2, None),
                ("10.0.0.2 orders".into(), 2, vanished),
                ("curl orders".into(), 4, None),
                ("gateway orders".into(), 4, None),
            ]
        );
    }

    #[test]
    fn loopback_addresses_are_of_many_hosts() {
        let mut both = Both::new();
        let own = |client: &'static str| GraphLine {
            client_service: client.into(),
            client: [127, 0, 0, 1].into(),
            ..line("", 0, &[])
        };
        for line in [own(""), own("curl")] {
            both.0.add(&line);
            both.1.learn(&line);
        }
        let ends: Vec<_> = both
            .ends(1_000)
            .into_iter()
            .map(|(ends, ..)| ends)
            .collect();
        assert_eq!(ends, ["127.0.0.1 10.0.0.2", "curl 10.0.0.2"]);
    }

    #[test]
    fn a_name_that_was_learnt_late_is_that_of_before_too() {
        let mut both = Both::new();
        both.add(0, "0123456789ab", "orders", 1);
        both.1.rename("0123456789ab", "shop");
        both.1.rename("shop", "gateway");
        both.add(10, "gateway", "orders", 1);
        assert_eq!(both.ends(30), [("gateway orders".into(), 4, None)]);
        // Names that are exchanged lead to an end, too.
        both.1.rename("gateway", "shop");
        assert_eq!(both.ends(30), [("shop orders".into(), 4, None)]);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut known = Known::new(10);
        for address in 0..=255 {
            known.learn(&GraphLine {
                client: [10, 0, 0, address].into(),
                server: [10, 0, 1, address].into(),
                client_service: "a".into(),
                server_service: "b".into(),
                ..line("", 0, &[])
            });
            known.rename(&address.to_string(), "x");
        }
        let sizes = [
            known.servers.len(),
            known.clients.len(),
            known.renamed.len(),
        ];
        assert_eq!(sizes, [10, 10, 10]);
    }
}
