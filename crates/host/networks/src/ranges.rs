//! Ranges of addresses with names of the user's own: bogons, clouds, sites.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use serde::Deserialize;

use crate::names::plain;

/// Prefixes of a file at most.
const MOST: usize = 1_000_000;

/// Names by prefix: for each length a table, since there are few lengths.
#[derive(Debug, Default)]
pub struct Ranges {
    v4: BTreeMap<u8, HashMap<IpAddr, Arc<str>>>,
    v6: BTreeMap<u8, HashMap<IpAddr, Arc<str>>>,
    names: HashSet<Arc<str>>,
    count: usize,
}

/// An entry of a list in JSON.
#[derive(Deserialize)]
struct Range {
    prefix: String,
    name: String,
}

impl Ranges {
    /// Reads a file: CSV of prefix and name, or JSON, a list of `{"prefix": …, "name": …}` or an object of names by prefix.
    ///
    /// # Errors
    ///
    /// What is wrong, and in which line or entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut ranges = Self::default();
        ranges.add(bytes)?;
        ranges.names = HashSet::new();
        Ok(ranges)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let text = str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
        match text.trim_start().chars().next() {
            Some('[') => {
                let list: Vec<Range> = serde_json::from_str(text).map_err(|error| wrong(&error))?;
                list.iter().enumerate().try_for_each(|(place, range)| {
                    self.insert(&range.prefix, &range.name)
                        .map_err(|error| format!("entry {}: {error}", place + 1))
                })
            }
            Some('{') => {
                let map: HashMap<String, String> =
                    serde_json::from_str(text).map_err(|error| wrong(&error))?;
                map.iter()
                    .try_for_each(|(prefix, name)| self.insert(prefix, name))
            }
            _ => self.add_csv(text),
        }
    }

    fn add_csv(&mut self, text: &str) -> Result<(), String> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let said = |error: String| format!("line {}: {error}", number + 1);
            let (prefix, rest) = line
                .split_once(',')
                .ok_or_else(|| said("a prefix, a comma and a name are needed".into()))?;
            if number == 0 && prefix.trim().eq_ignore_ascii_case("prefix") {
                continue;
            }
            let rest = rest.trim();
            let quoted = rest
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            let named = quoted.map_or_else(|| rest.to_owned(), |name| name.replace("\"\"", "\""));
            self.insert(prefix.trim(), &named).map_err(said)?;
        }
        Ok(())
    }

    fn insert(&mut self, prefix: &str, named: &str) -> Result<(), String> {
        let net: IpNet = match prefix.parse::<IpAddr>() {
            Ok(address) => address.into(),
            Err(_) => prefix
                .parse()
                .map_err(|_| format!("{prefix:?} is no prefix such as 192.0.2.0/24"))?,
        };
        let named: Arc<str> = plain(named).into();
        if named.is_empty() {
            return Err(format!("{prefix} has no name"));
        }
        if self.count >= MOST {
            return Err(format!("more than {MOST} prefixes"));
        }
        let named = match self.names.get(&named) {
            Some(known) => known.clone(),
            None => {
                self.names.insert(named.clone());
                named
            }
        };
        let tables = match net {
            IpNet::V4(_) => &mut self.v4,
            IpNet::V6(_) => &mut self.v6,
        };
        let table = tables.entry(net.prefix_len()).or_default();
        // The first name of a range counts.
        if let Entry::Vacant(place) = table.entry(net.network()) {
            place.insert(named);
            self.count += 1;
        }
        Ok(())
    }

    /// The smallest range with an address: its length and its name.
    pub(crate) fn find(&self, address: IpAddr) -> Option<(u8, &str)> {
        let tables = match address {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        tables.iter().rev().find_map(|(length, table)| {
            let net = IpNet::new(address, *length).ok()?;
            Some((*length, &**table.get(&net.network())?))
        })
    }
}

fn wrong(error: &serde_json::Error) -> String {
    format!("no list of prefixes and names: {error}")
}
