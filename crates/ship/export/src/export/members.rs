//! Which collectors there are. Names are looked up again and again, for collectors come, go and move.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
};

use anyhow::bail;

use crate::export::srv;

/// Collectors at most: each has a thread, a queue and a share of what is kept on disk.
const MOST: usize = 64;

/// A collector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// What it is called in the configuration.
    pub name: String,
    /// Where it is.
    pub address: SocketAddr,
    /// Whether the name has other addresses, too.
    pub shares_name: bool,
    /// By which conversations are shared out: the same at all hosts that have the same names in the same order.
    pub key: u64,
}

/// Looks names up.
pub type LookUp = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Names of collectors, with what they meant when they were last looked up.
pub struct Members {
    names: Vec<(String, Vec<SocketAddr>)>,
    look_up: LookUp,
}

/// The addresses of a name with a port, or of all targets of an SRV record, like `_skua._udp.example.org`.
pub fn addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    match name.starts_with('_') {
        true => srv::addresses(name),
        false => name.to_socket_addrs().map(Iterator::collect),
    }
}

impl Members {
    /// Looks all names up. One that is not found has no collector yet.
    ///
    /// # Errors
    ///
    /// One has no port, or is there twice.
    pub fn of(names: &[String], look_up: LookUp) -> anyhow::Result<Self> {
        let mut members = Self {
            names: Vec::new(),
            look_up,
        };
        for name in names {
            if !is_name(name) {
                bail!(
                    "collector {name}: write it like collector:6343, or, for an SRV record, like _skua._udp.example.org"
                );
            }
            if members.names.iter().any(|(other, _)| other == name) {
                bail!("collector {name} is named twice");
            }
            members.names.push((name.clone(), Vec::new()));
        }
        members.look_up();
        Ok(members)
    }

    /// Names that nothing is known of.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let unknown = self.names.iter().filter(|(_, found)| found.is_empty());
        unknown.map(|(name, _)| name.as_str())
    }

    /// Whether there is a name that may mean something else later.
    pub fn may_change(&self) -> bool {
        let is_address = |name: &str| name.parse::<SocketAddr>().is_ok();
        self.names.iter().any(|(name, _)| !is_address(name))
    }

    /// Looks all names up again. One that cannot be found now keeps its meaning.
    pub fn look_up(&mut self) {
        for (name, before) in &mut self.names {
            if let Ok(address) = name.parse() {
                *before = vec![address];
                continue;
            }
            match (self.look_up)(name).map(one_family) {
                Ok(found) if !found.is_empty() => *before = found,
                Ok(_) => tracing::debug!(%name, "the name has no address now"),
                Err(error) => tracing::debug!(%name, %error, "the name is not found now"),
            }
        }
    }

    /// All collectors, each once.
    pub fn all(&self) -> Vec<Member> {
        let mut all: Vec<Member> = Vec::new();
        for (place, (name, addresses)) in self.names.iter().enumerate() {
            let shares_name = addresses.len() > 1;
            for address in addresses {
                if all.len() < MOST && all.iter().all(|one| one.address != *address) {
                    all.push(Member {
                        name: name.clone(),
                        address: *address,
                        shares_name,
                        key: key(place, shares_name.then_some(address)),
                    });
                }
            }
        }
        all
    }
}

/// Whether it is written as the name of a collector.
fn is_name(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    text.starts_with('_')
        || text.parse::<SocketAddr>().is_ok()
        || text
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && !host.contains(':') && is_port(port))
}

/// Addresses in the family of the first, which this host prefers: a host has one of each mostly, and is one collector.
/// In their order, so that all hosts take the same when there are too many.
fn one_family(mut all: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let preferred = all.first().map(SocketAddr::is_ipv4);
    all.retain(|one| Some(one.is_ipv4()) == preferred);
    all.sort_unstable();
    all.dedup();
    all
}

/// By its place in the list, since hosts may know one collector by different addresses; those of one name by their
/// addresses, of which nobody knows an order (FNV-1a).
fn key(place: usize, address: Option<&SocketAddr>) -> u64 {
    let key = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = address.map(ToString::to_string).unwrap_or_default();
    text.bytes().fold(key, |key, byte| {
        (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn stand_in(name: &str) -> io::Result<Vec<SocketAddr>> {
        let at = |all: &[&str]| Ok(all.iter().map(|one| one.parse().unwrap()).collect());
        match name {
            "pods:9" => at(&["10.0.0.3:9", "10.0.0.1:9", "[fd00::1]:9", "10.0.0.3:9"]),
            "one:9" => at(&["[fd00::7]:9", "10.0.0.7:9"]),
            "none:9" => Ok(Vec::new()),
            "many:9" => Ok((0..100).map(|host| ([10, 0, 1, host], 9).into()).collect()),
            _ => Err(io::Error::other("no such name")),
        }
    }

    #[test]
    fn each_address_of_a_name_is_a_collector_and_of_two_families_one_is_taken() {
        let members = Members::of(&names(&["pods:9", "one:9"]), stand_in).unwrap();
        let all = members.all();
        let found: Vec<_> = all
            .iter()
            .map(|one| (one.name.as_str(), one.address.to_string(), one.shares_name))
            .collect();
        assert_eq!(
            found,
            [
                ("pods:9", "10.0.0.1:9".into(), true),
                ("pods:9", "10.0.0.3:9".into(), true),
                ("one:9", "[fd00::7]:9".into(), false),
            ]
        );
        // A name's only one goes by its place: hosts may know it by different addresses.
        assert_eq!(all[2].key, key(1, None));
        assert_ne!(all[0].key, all[1].key);
    }

    #[test]
    fn there_are_no_more_collectors_than_threads_for_them() {
        let members = Members::of(&names(&["many:9"]), stand_in).unwrap();
        let all = members.all();
        assert_eq!(all.len(), MOST);
        assert_eq!(all[MOST - 1].address.to_string(), "10.0.1.63:9");
    }

    #[test]
    fn what_is_no_name_is_refused_and_one_that_is_not_found_is_looked_up_again() {
        fn error(all: &[&str]) -> String {
            format!("{:#}", Members::of(&names(all), stand_in).err().unwrap())
        }
        for text in [
            "nobody",
            "nobody:0",
            ":9",
            "nobody:x",
            "::1:9",
            "nobody:70000",
        ] {
            assert!(
                error(&[text]).contains("write it like collector:6343"),
                "{text}"
            );
        }
        assert!(error(&["one:9", "one:9"]).contains("named twice"));
        let mut later = Members::of(&names(&["none:9", "nobody:9", "one:9"]), stand_in).unwrap();
        assert_eq!(later.unknown().collect::<Vec<_>>(), ["none:9", "nobody:9"]);
        assert_eq!(later.all().len(), 1);
        later.look_up = |_| stand_in("pods:9");
        later.look_up();
        // The same addresses by several names are one collector each.
        assert_eq!((later.all().len(), later.unknown().count()), (2, 0));
        let mut members = Members::of(&names(&["one:9"]), stand_in).unwrap();
        let before = members.all();
        for look_up in [(|_: &str| Ok(Vec::new())) as LookUp, |_| {
            Err(io::Error::other("no server answers"))
        }] {
            members.look_up = look_up;
            members.look_up();
            assert_eq!(members.all(), before);
        }
        members.look_up = |_| stand_in("pods:9");
        members.look_up();
        assert_eq!(members.all().len(), 2);
        // An address means itself.
        let mut fixed = Members::of(&names(&["127.0.0.1:9"]), addresses).unwrap();
        assert!(!fixed.may_change() && members.may_change());
        fixed.look_up();
        assert_eq!(fixed.all()[0].address.to_string(), "127.0.0.1:9");
    }
}
