//! The routes of a namespace, in bounds, by the interfaces that they go out of.

use super::names;
use skua_link::{NextHop, Route};
use skua_topology::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
    sync::Arc,
};

/// What the kernel distinguishes routes by; there can be several of one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    table: u32,
    destination: IpAddr,
    prefix: u8,
    tos: u8,
    priority: u32,
}

impl Key {
    fn of(route: &Route) -> Self {
        Self {
            table: route.table,
            destination: route.destination,
            prefix: route.prefix,
            tos: route.tos,
            priority: route.priority,
        }
    }
}

#[derive(Debug)]
struct Entry {
    route: Route,
    value: Value,
}

impl Entry {
    fn new(route: Route) -> Self {
        Self {
            value: metadata(&route),
            route,
        }
    }
}

/// Interfaces whose routes have changed; 0: routes without an interface.
pub(super) type Touched = BTreeSet<u32>;

/// The routes of a namespace.
#[derive(Debug)]
pub(super) struct Routes {
    by_key: BTreeMap<Key, Vec<Entry>>,
    /// Keys of the routes with a way out of an interface.
    out: BTreeMap<u32, BTreeSet<Key>>,
    omitted: BTreeMap<u32, u64>,
    most: usize,
}

impl Routes {
    /// An empty table of at most so many routes for each interface.
    pub fn new(most: usize) -> Self {
        Self {
            by_key: BTreeMap::new(),
            out: BTreeMap::new(),
            omitted: BTreeMap::new(),
            most,
        }
    }

    /// How many routes out of an interface did not fit.
    pub fn omitted(&self, ifindex: u32) -> u64 {
        self.omitted.get(&ifindex).copied().unwrap_or(0)
    }

    /// Whether omitted routes would fit now.
    pub fn wants_listing(&self) -> bool {
        self.omitted.keys().any(|ifindex| {
            let kept = self.out.get(ifindex).map_or(0, BTreeSet::len);
            kept < self.most / 2
        })
    }

    /// All interfaces that have routes.
    pub fn interfaces(&self) -> Touched {
        self.out
            .keys()
            .chain(self.omitted.keys())
            .copied()
            .collect()
    }

    /// Adds a route; the second value says that the limit was reached.
    pub fn add(&mut self, route: Route, replaces: bool) -> (Touched, bool) {
        let key = Key::of(&route);
        let mut touched = Touched::new();
        let list = self.by_key.get(&key).map_or(&[][..], Vec::as_slice);
        if list.iter().any(|known| known.route == route) {
            return (touched, false);
        }
        // The known routes that it replaces.
        let v6 = route.destination.is_ipv6();
        let old: Vec<usize> = match (replaces, v6) {
            (true, true) => (0..list.len()).collect(),
            (true, false) => (0..list.len().min(1)).collect(),
            (false, _) => {
                let same = |known: &Entry| {
                    known.route.kind == route.kind
                        && (known.route.hops == route.hops
                            || (v6 && grows(&known.route.hops, &route.hops)))
                };
                list.iter().position(same).into_iter().collect()
            }
        };
        for at in old.into_iter().rev() {
            touched.extend(self.remove_entry(&key, at));
        }
        let first = route.hops.first().map_or(0, |hop| hop.ifindex);
        if self.out.get(&first).map_or(0, BTreeSet::len) >= self.most {
            *self.omitted.entry(first).or_default() += 1;
            touched.insert(first);
            return (touched, true);
        }
        for hop in &route.hops {
            self.out.entry(hop.ifindex).or_default().insert(key.clone());
            touched.insert(hop.ifindex);
        }
        self.by_key.entry(key).or_default().push(Entry::new(route));
        (touched, false)
    }

    /// Removes a route; the second value says that it is not clear which one it was.
    pub fn remove(&mut self, route: &Route) -> (Touched, bool) {
        let key = Key::of(route);
        let list = self.by_key.get(&key).map_or(&[][..], Vec::as_slice);
        let v6 = route.destination.is_ipv6();
        let same = |known: &Entry| known.route.kind == route.kind && known.route.hops == route.hops;
        let some = |known: &Entry| {
            v6 && known.route.kind == route.kind && grows(&route.hops, &known.route.hops)
        };
        if let Some(at) = list.iter().position(same) {
            return (self.remove_entry(&key, at), false);
        }
        if let Some(at) = list.iter().position(some) {
            // The kernel takes single ways out of an IPv6 route.
            let mut rest = list[at].route.clone();
            rest.hops.retain(|hop| !route.hops.contains(hop));
            let mut touched = self.remove_entry(&key, at);
            touched.extend(self.add(rest, false).0);
            return (touched, false);
        }
        match list.len() {
            0 => {
                let first = route.hops.first().map_or(0, |hop| hop.ifindex);
                let Some(omitted) = self.omitted.get_mut(&first) else {
                    return (Touched::new(), false);
                };
                *omitted -= 1;
                if *omitted == 0 {
                    self.omitted.remove(&first);
                }
                (Touched::from([first]), false)
            }
            1 if !v6 => (self.remove_entry(&key, 0), false),
            _ => (Touched::new(), true),
        }
    }

    /// Those that are not in `present`.
    pub fn missing(&self, present: &HashSet<Route>) -> HashSet<Route> {
        let kept = self.by_key.values().flatten().map(|entry| &entry.route);
        kept.filter(|route| !present.contains(route))
            .cloned()
            .collect()
    }

    /// Takes these away.
    pub fn drop_all(&mut self, gone: &HashSet<Route>) -> Touched {
        let mut touched = Touched::new();
        for route in gone {
            let key = Key::of(route);
            let list = self.by_key.get(&key).map_or(&[][..], Vec::as_slice);
            if let Some(at) = list.iter().position(|entry| entry.route == *route) {
                touched.extend(self.remove_entry(&key, at));
            }
        }
        touched
    }

    /// Whether the route is kept.
    pub fn has(&self, route: &Route) -> bool {
        let list = self.by_key.get(&Key::of(route));
        list.is_some_and(|list| list.iter().any(|entry| entry.route == *route))
    }

    /// Takes an entry out of the table.
    fn remove_entry(&mut self, key: &Key, at: usize) -> Touched {
        let mut touched = Touched::new();
        let Some(list) = self.by_key.get_mut(key) else {
            return touched;
        };
        let gone = list.remove(at);
        let left: HashSet<u32> = list
            .iter()
            .flat_map(|entry| entry.route.hops.iter().map(|hop| hop.ifindex))
            .collect();
        if list.is_empty() {
            self.by_key.remove(key);
        }
        for hop in &gone.route.hops {
            touched.insert(hop.ifindex);
            if !left.contains(&hop.ifindex)
                && let Some(keys) = self.out.get_mut(&hop.ifindex)
            {
                keys.remove(key);
                if keys.is_empty() {
                    self.out.remove(&hop.ifindex);
                }
            }
        }
        touched
    }

    /// The routing tables with routes out of an interface, as metadata; none when there are none.
    pub fn tables(&self, ifindex: u32) -> Option<Value> {
        let mut tables: Vec<(u32, Vec<Value>)> = Vec::new();
        for key in self.out.get(&ifindex)? {
            if tables.last().is_none_or(|(table, _)| *table != key.table) {
                tables.push((key.table, Vec::new()));
            }
            let list = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
            let through = |entry: &&Entry| entry.route.hops.iter().any(|h| h.ifindex == ifindex);
            if let Some((_, routes)) = tables.last_mut() {
                routes.extend(list.iter().filter(through).map(|entry| entry.value.clone()));
            }
        }
        let table = |(id, routes): (u32, Vec<Value>)| {
            Value::from(Map::from([
                ("ID", Value::Int(id.into())),
                ("Routes", Value::List(routes.into())),
            ]))
        };
        Some(tables.into_iter().map(table).collect())
    }
}

/// Whether a route by `more` is one by `few` with ways added, as the kernel does it with IPv6 routes
/// that have routers.
fn grows(few: &[NextHop], more: &[NextHop]) -> bool {
    let routed = |hops: &[NextHop]| hops.iter().all(|hop| hop.gateway.is_some());
    routed(few) && routed(more) && few.iter().all(|hop| more.contains(hop))
}

fn metadata(route: &Route) -> Value {
    let hop = |hop: &NextHop| {
        let mut entries: Vec<(Arc<str>, Value)> = vec![
            ("IfIndex".into(), Value::Int(hop.ifindex.into())),
            ("Priority".into(), Value::Int(route.priority.into())),
        ];
        entries.extend(
            hop.gateway
                .map(|ip| ("IP".into(), ip.to_string().as_str().into())),
        );
        if route.hops.len() > 1 {
            entries.push(("Weight".into(), Value::Int(hop.weight.into())));
        }
        Value::from(Map::new(entries))
    };
    let prefix = format!("{}/{}", route.destination, route.prefix);
    let mut entries: Vec<(Arc<str>, Value)> = vec![
        ("Prefix".into(), prefix.as_str().into()),
        ("Protocol".into(), Value::Int(route.protocol.into())),
        ("NextHops".into(), route.hops.iter().map(hop).collect()),
    ];
    let mut add = |key: &str, value: Option<Value>| {
        entries.extend(value.map(|value| (Arc::from(key), value)));
    };
    add("Type", names::route_kind(route.kind).map(Value::from));
    add("Src", route.source.map(|ip| ip.to_string().as_str().into()));
    add(
        "TOS",
        (route.tos != 0).then(|| Value::Int(route.tos.into())),
    );
    Map::new(entries).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(ifindex: u32, gateway: &str) -> NextHop {
        NextHop {
            ifindex,
            gateway: gateway.parse().ok(),
            weight: 1,
        }
    }

    fn route(to: &str, hops: Vec<NextHop>) -> Route {
        let (destination, prefix) = to.split_once('/').unwrap();
        Route {
            table: 254,
            destination: destination.parse().unwrap(),
            prefix: prefix.parse().unwrap(),
            tos: 0,
            priority: 0,
            protocol: 4,
            kind: 1,
            source: None,
            hops,
        }
    }

    fn prefixes(routes: &Routes, ifindex: u32) -> String {
        let tables = routes.tables(ifindex);
        let tables = Map::from([("t", tables.unwrap_or_default())]);
        let found = tables.lookup("t.Routes.Prefix");
        serde_json::to_string(&found.as_deref()).unwrap()
    }

    #[test]
    fn a_route_is_where_its_ways_go_out() {
        let mut routes = Routes::new(10);
        let wide = route("10.0.0.0/8", vec![hop(2, "192.0.2.1"), hop(3, "192.0.2.5")]);
        assert_eq!(routes.add(wide.clone(), false).0, [2, 3].into());
        assert_eq!(routes.add(wide.clone(), false).0, [].into());
        let narrow = route("10.1.0.0/16", vec![hop(3, "")]);
        routes.add(narrow.clone(), false);
        assert_eq!(prefixes(&routes, 2), r#"["10.0.0.0/8"]"#);
        assert_eq!(prefixes(&routes, 3), r#"["10.0.0.0/8","10.1.0.0/16"]"#);
        let other = route("10.1.0.0/16", vec![hop(2, "192.0.2.1")]);
        assert_eq!(routes.add(other, true).0, [2, 3].into());
        assert_eq!(prefixes(&routes, 3), r#"["10.0.0.0/8"]"#);
        assert_eq!(routes.remove(&wide), ([2, 3].into(), false));
        assert_eq!(prefixes(&routes, 3), "null");
        assert_eq!(routes.interfaces(), [2].into());
    }

    #[test]
    fn ways_of_ipv6_routes_come_and_go_one_by_one() {
        let mut routes = Routes::new(10);
        let (a, b) = (hop(2, "2001:db8::1"), hop(3, "2001:db8::2"));
        routes.add(route("2001:db8:1::/48", vec![a.clone()]), false);
        routes.add(route("2001:db8:1::/48", vec![a.clone(), b.clone()]), false);
        assert_eq!(prefixes(&routes, 2), r#"["2001:db8:1::/48"]"#);
        assert_eq!(prefixes(&routes, 3), r#"["2001:db8:1::/48"]"#);
        routes.remove(&route("2001:db8:1::/48", vec![a]));
        assert_eq!(prefixes(&routes, 2), "null");
        assert_eq!(prefixes(&routes, 3), r#"["2001:db8:1::/48"]"#);
        // Without routers they are routes of their own.
        for ifindex in [2, 3] {
            routes.add(route("fe80::/64", vec![hop(ifindex, "")]), false);
        }
        assert_eq!(prefixes(&routes, 2), r#"["fe80::/64"]"#);
        let (touched, unclear) = routes.remove(&route("fe80::/64", vec![hop(9, "")]));
        assert!(touched.is_empty() && unclear);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut routes = Routes::new(3);
        for net in 0..10 {
            let route = route(&format!("10.{net}.0.0/16"), vec![hop(2, "")]);
            assert_eq!(routes.add(route, false).1, net >= 3);
        }
        assert_eq!(routes.omitted(2), 7);
        routes.remove(&route("10.9.0.0/16", vec![hop(2, "")]));
        assert_eq!((routes.omitted(2), routes.wants_listing()), (6, false));
        let missing = routes.missing(&HashSet::new());
        assert_eq!(missing.len(), 3);
        assert_eq!(routes.drop_all(&missing), [2].into());
        assert!(routes.wants_listing());
    }
}
