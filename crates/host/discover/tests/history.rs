//! What a script does is what the history says, in its order; and at the end the graph is what iproute2
//! says. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_discover::DiscoveryConfig;
use skua_testkit::{
    Random,
    lab::{Net, root_tests, run},
};
use skua_topology::{Change, Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    time::{Duration, Instant},
};
use support::{Lab, PATIENCE, config, interface, text};

/// Reads events as what was done: `NAMESPACE +link NAME`, `NAMESPACE -address NAME ADDRESS`…
#[derive(Default)]
struct Reader {
    /// Names of namespaces by inode, those of the test.
    namespaces: BTreeMap<i64, String>,
    /// What an interface was like, by identifier.
    before: BTreeMap<String, BTreeSet<String>>,
}

impl Reader {
    fn read(&mut self, change: &Change) -> Vec<String> {
        let node = match change {
            Change::NodeAdded(node) | Change::NodeUpdated(node) | Change::NodeDeleted(node) => node,
            _ => return Vec::new(),
        };
        let map = &node.metadata;
        let inode = map.get("NetNsInode").and_then(Value::as_int);
        let Some(inode) = inode else {
            return Vec::new();
        };
        let name = text(map, "Name");
        if text(map, "Type") == "netns" && name.starts_with(&Net::prefix()) {
            return match change {
                // One that is made has no name for a moment: its process gives it one, and then has another name.
                Change::NodeAdded(_) | Change::NodeUpdated(_) => {
                    let known = self.namespaces.insert(inode, name.to_owned());
                    let new = known.is_none_or(|known| known != name);
                    new.then(|| format!("{name} +namespace"))
                        .into_iter()
                        .collect()
                }
                Change::NodeDeleted(_) => {
                    self.namespaces.remove(&inode);
                    vec![format!("{name} -namespace")]
                }
                _ => Vec::new(),
            };
        }
        let Some(namespace) = self.namespaces.get(&inode) else {
            return Vec::new();
        };
        if name == "lo" || ["netns", "host"].contains(&text(map, "Type")) {
            return Vec::new();
        }
        let id = node.id.to_string();
        let (gone, come): (Vec<String>, Vec<String>) = match change {
            Change::NodeDeleted(_) => {
                self.before.remove(&id);
                (vec!["link".into()], vec![])
            }
            _ => {
                let facts = facts(map);
                let before = self.before.insert(id, facts.clone()).unwrap_or_default();
                let gone = before.difference(&facts).cloned().collect();
                (gone, facts.difference(&before).cloned().collect())
            }
        };
        let line = |sign: char, fact: &String| {
            let (kind, rest) = fact.split_once(' ').unwrap_or((fact, ""));
            format!("{namespace} {sign}{kind} {name} {rest}")
                .trim_end()
                .to_owned()
        };
        let gone = gone.iter().map(|fact| line('-', fact));
        // `link` is the first in the alphabet that a new one has.
        gone.chain(come.iter().map(|fact| line('+', fact)))
            .collect()
    }
}

/// What a script can do to an interface.
fn facts(map: &Map) -> BTreeSet<String> {
    let mut facts = BTreeSet::from(["link".to_owned()]);
    facts.insert(format!("mtu {}", map.get("MTU").unwrap().as_int().unwrap()));
    if let Some(Value::List(flags)) = map.get("LinkFlags")
        && flags.contains(&"UP".into())
    {
        facts.insert("up".into());
    }
    if let Some(master) = map.get("MasterIndex").and_then(Value::as_int) {
        facts.insert(format!("master {master}"));
    }
    if let Some(Value::List(addresses)) = map.get("IPV4") {
        facts.extend(
            addresses
                .iter()
                .map(|a| format!("address {}", a.as_str().unwrap())),
        );
    }
    let Some(Value::List(tables)) = map.get("RoutingTables") else {
        return facts;
    };
    let tables = tables.iter().filter_map(Value::as_map);
    for table in tables.filter(|table| table.get("ID") == Some(&7.into())) {
        let Some(Value::List(routes)) = table.get("Routes") else {
            continue;
        };
        facts.extend(routes.iter().map(|route| {
            let prefix = text(route.as_map().unwrap(), "Prefix");
            format!("route {prefix}")
        }));
    }
    facts
}

/// An interface in the script's mind.
#[derive(Clone, Debug)]
struct Link {
    name: String,
    namespace: usize,
    kind: &'static str,
    up: bool,
    mtu: u32,
    addresses: Vec<String>,
    routes: Vec<String>,
    /// Name of the other end, or of the interface below.
    on: Option<String>,
    master: Option<String>,
}

/// A script of random steps that the kernel can all do.
struct Script {
    random: Random,
    namespaces: Vec<Option<Net>>,
    links: Vec<Link>,
    next: u32,
}

/// What to run, and what the history must say then.
struct Step {
    command: Vec<String>,
    says: Vec<String>,
}

impl Script {
    fn new(seed: u64, namespaces: Vec<Net>) -> Self {
        Self {
            random: Random::new(seed),
            namespaces: namespaces.into_iter().map(Some).collect(),
            links: Vec::new(),
            next: 0,
        }
    }

    fn name(&self, namespace: usize) -> &str {
        &self.namespaces[namespace].as_ref().unwrap().name
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
    }

    fn link(&mut self, kind: &'static str, namespace: usize, mtu: u32) -> Link {
        Link {
            name: self.fresh(&kind[..2]),
            namespace,
            kind,
            up: false,
            mtu,
            addresses: Vec::new(),
            routes: Vec::new(),
            on: None,
            master: None,
        }
    }

    /// Whether nothing hangs on a link.
    fn is_bare(&self, link: &Link) -> bool {
        let under = |other: &Link| {
            other.namespace == link.namespace
                && (other.master.as_ref() == Some(&link.name)
                    || (other.kind == "macvlan" && other.on.as_ref() == Some(&link.name)))
        };
        link.addresses.is_empty() && link.routes.is_empty() && !self.links.iter().any(under)
    }

    fn some_namespace(&mut self) -> usize {
        let there: Vec<usize> = (0..self.namespaces.len())
            .filter(|at| self.namespaces[*at].is_some())
            .collect();
        *self.random.pick(&there)
    }

    fn some_link(&mut self, wanted: impl Fn(&Self, &Link) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..self.links.len())
            .filter(|at| wanted(self, &self.links[*at]))
            .collect();
        (!fitting.is_empty()).then(|| *self.random.pick(&fitting))
    }

    fn in_namespace(&self, link: &Link) -> Vec<String> {
        vec!["-n".into(), self.name(link.namespace).into()]
    }

    /// A step about a link: words of `ip`, and what is said.
    fn about(&self, at: usize, words: &str, says: &str) -> Step {
        let link = &self.links[at];
        let mut command = self.in_namespace(link);
        command.extend(
            words
                .replace("LINK", &link.name)
                .split(' ')
                .map(str::to_owned),
        );
        let says = says.replace("LINK", &link.name);
        let says = format!("{} {says}", self.name(link.namespace));
        Step {
            command,
            says: vec![says],
        }
    }

    /// The next step; none when what was drawn cannot be done now.
    fn step(&mut self, across: bool) -> Option<Step> {
        match self.random.below(if across { 14 } else { 12 }) {
            0..=2 => self.add(across),
            3 => self.delete(),
            4 => {
                let at = self.some_link(|_, link| !link.up)?;
                self.links[at].up = true;
                Some(self.about(at, "link set LINK up", "+up LINK"))
            }
            5 => {
                let at = self.some_link(|_, link| link.up && link.routes.is_empty())?;
                self.links[at].up = false;
                Some(self.about(at, "link set LINK down", "-up LINK"))
            }
            6 => {
                // Of a pair only where nothing has to follow.
                let at = self.some_link(|_, link| link.kind == "veth")?;
                let mtu = 1300 + self.random.below(150) as u32;
                let was = std::mem::replace(&mut self.links[at].mtu, mtu);
                if was == mtu {
                    return None;
                }
                let mut step = self.about(
                    at,
                    &format!("link set LINK mtu {mtu}"),
                    &format!("-mtu LINK {was}"),
                );
                let plus = step.says[0].replace("-mtu", "+mtu");
                step.says
                    .push(plus.replace(&format!(" {was}"), &format!(" {mtu}")));
                Some(step)
            }
            7 | 8 => {
                let at = self.some_link(|_, link| link.addresses.len() < 3)?;
                self.next += 1;
                let address = format!("10.{}.{}.1/24", self.next / 250, self.next % 250);
                self.links[at].addresses.push(address.clone());
                let words = format!("addr add {address} dev LINK");
                Some(self.about(at, &words, &format!("+address LINK {address}")))
            }
            9 => {
                let some =
                    |_: &Self, link: &Link| link.routes.is_empty() && !link.addresses.is_empty();
                let at = self.some_link(some)?;
                let address = self.links[at].addresses.remove(0);
                let words = format!("addr del {address} dev LINK");
                Some(self.about(at, &words, &format!("-address LINK {address}")))
            }
            10 => {
                let at = self.some_link(|_, link| link.up)?;
                self.next += 1;
                let route = format!("172.{}.{}.0/24", self.next / 250, self.next % 250);
                self.links[at].routes.push(route.clone());
                let words = format!("route add {route} dev LINK table 7");
                Some(self.about(at, &words, &format!("+route LINK {route}")))
            }
            11 => {
                let at = self.some_link(|_, link| !link.routes.is_empty())?;
                let route = self.links[at].routes.remove(0);
                let words = format!("route del {route} dev LINK table 7");
                Some(self.about(at, &words, &format!("-route LINK {route}")))
            }
            12 => self.move_or_enslave(),
            _ => self.namespace(),
        }
    }

    fn add(&mut self, across: bool) -> Option<Step> {
        let namespace = self.some_namespace();
        let kinds = ["veth", "veth", "bridge", "vxlan", "macvlan", "tap", "ifb"];
        let kind = *self.random.pick(&kinds);
        let here = self.name(namespace).to_owned();
        let mut link = self.link(kind, namespace, 1500);
        let mut command: Vec<String> = vec!["-n".into(), here.clone()];
        let mut words = |words: String| command.extend(words.split(' ').map(str::to_owned));
        let name = link.name.clone();
        let mut says = Vec::new();
        match kind {
            "veth" => {
                let there = if across {
                    self.some_namespace()
                } else {
                    namespace
                };
                let mut other = self.link(kind, there, 1500);
                let there = self.name(there).to_owned();
                words(format!(
                    "link add {name} type veth peer name {} netns {there}",
                    other.name
                ));
                other.on = Some(name.clone());
                link.on = Some(other.name.clone());
                says.push(format!("{there} +link {}", other.name));
                self.links.push(other);
            }
            "vxlan" => {
                self.next += 1;
                words(format!(
                    "link add {name} type vxlan id {} remote 192.0.2.1 dstport 4789",
                    self.next
                ));
            }
            "macvlan" => {
                let lower = self.some_link(|_, link| {
                    link.namespace == namespace && link.kind == "veth" && link.master.is_none()
                })?;
                let lower = self.links[lower].name.clone();
                words(format!(
                    "link add {name} link {lower} type macvlan mode bridge"
                ));
                link.on = Some(lower);
            }
            "tap" => words(format!("tuntap add {name} mode tap")),
            kind => words(format!("link add {name} type {kind}")),
        }
        says.push(format!("{here} +link {name}"));
        self.links.push(link);
        Some(Step { command, says })
    }

    fn delete(&mut self) -> Option<Step> {
        let at = self.some_link(|script, link| {
            let other =
                |other: &&Link| link.kind == "veth" && link.on.as_ref() == Some(&other.name);
            let other = script.links.iter().find(other);
            // Those that are up would first go down.
            let may = |link: &Link| !link.up && script.is_bare(link);
            may(link) && other.is_none_or(may)
        })?;
        let link = self.links[at].clone();
        let mut step = self.about(at, "link del LINK", "-link LINK");
        self.links.remove(at);
        if link.kind == "veth"
            && let Some(other) = self
                .links
                .iter()
                .position(|o| Some(&o.name) == link.on.as_ref())
        {
            let other = self.links.remove(other);
            let there = self.name(other.namespace);
            step.says.push(format!("{there} -link {}", other.name));
        }
        Some(step)
    }

    fn move_or_enslave(&mut self) -> Option<Step> {
        let free = |script: &Self, link: &Link| {
            link.kind == "veth" && link.master.is_none() && script.is_bare(link)
        };
        let at = self.some_link(free)?;
        if self.random.one_in(2) {
            let to = self.some_namespace();
            if to == self.links[at].namespace {
                return None;
            }
            let there = self.name(to).to_owned();
            let mut step = self.about(at, &format!("link set LINK netns {there}"), "-link LINK");
            step.says
                .push(format!("{there} +link {}", self.links[at].name));
            self.links[at].namespace = to;
            self.links[at].up = false;
            return Some(step);
        }
        let namespace = self.links[at].namespace;
        let bridge = self.some_link(|_, link| {
            link.namespace == namespace && link.kind == "bridge" && link.addresses.is_empty()
        })?;
        let bridge = self.links[bridge].name.clone();
        let name = &self.links[at].name;
        let words = format!("link set {name} master {bridge}");
        let mut command = self.in_namespace(&self.links[at]);
        command.extend(words.split(' ').map(str::to_owned));
        let index = index(self.name(namespace), &bridge);
        let says = vec![format!("{} +master {name} {index}", self.name(namespace))];
        self.links[at].master = Some(bridge);
        Some(Step { command, says })
    }

    fn namespace(&mut self) -> Option<Step> {
        // One of those that nothing lives in goes, or one that is gone comes again.
        let used: BTreeSet<usize> = self.links.iter().map(|link| link.namespace).collect();
        let last = self.namespaces.len() - 1;
        match &self.namespaces[last] {
            Some(empty) if !used.contains(&last) => {
                let says = vec![format!("{} -namespace", empty.name)];
                // Which deletes it.
                self.namespaces[last] = None;
                Some(Step {
                    command: vec![],
                    says,
                })
            }
            None => {
                let made = Net::bare();
                let says = vec![format!("{} +namespace", made.name)];
                self.namespaces[last] = Some(made);
                Some(Step {
                    command: vec![],
                    says,
                })
            }
            Some(_) => None,
        }
    }
}

fn index(namespace: &str, name: &str) -> i64 {
    let said = run(Command::new("ip").args(["-n", namespace, "-j", "link", "show", name]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    said[0]["ifindex"].as_i64().unwrap()
}

/// Reads the history until it has said all of `says` in this order; what else it says of the same
/// kinds must be what follows from them.
fn expect(lab: &Lab, reader: &mut Reader, says: &[String], seen: &mut Vec<String>) {
    let mut left: Vec<&String> = says.iter().collect();
    let begun = Instant::now();
    while !left.is_empty() {
        let Some(change) = lab.next(Duration::from_secs(1)) else {
            let last = &seen[seen.len().saturating_sub(20)..];
            assert!(
                begun.elapsed() < PATIENCE,
                "history never says {:?}; last: {last:#?}",
                &left[..left.len().min(3)]
            );
            continue;
        };
        for line in reader.read(&change) {
            // Each namespace has an order of its own.
            let same = |said: &&String| said.split(' ').next() == line.split(' ').next();
            if let Some(at) = left.iter().position(same).filter(|at| *left[*at] == line) {
                left.remove(at);
            }
            seen.push(line);
        }
    }
}

#[test]
fn a_thousand_random_steps() {
    if !root_tests() {
        return;
    }
    let seed = 20_261_121;
    println!("seed {seed}");
    let lab = Lab::start(DiscoveryConfig {
        // The kernel does not report that a tap stays when its maker ends; it is looked for.
        metric_interval: Duration::from_millis(300),
        ..config()
    });
    let namespaces: Vec<_> = (0..4).map(|_| Net::bare()).collect();
    let mut reader = Reader::default();
    let mut seen = Vec::new();
    let names: Vec<String> = namespaces.iter().map(|ns| ns.name.clone()).collect();
    for name in &names {
        lab_expects_namespace(&lab, &mut reader, name, &mut seen);
    }
    let mut script = Script::new(seed, namespaces);
    let mut done = 0;
    while done < 1_000 {
        let Some(step) = script.step(true) else {
            continue;
        };
        if !step.command.is_empty() {
            run(Command::new("ip").args(&step.command));
        }
        expect(&lab, &mut reader, &step.says, &mut seen);
        done += 1;
        if done % 100 == 0 {
            let there = script.namespaces.iter().flatten();
            let there: Vec<&str> = there.map(|ns| ns.name.as_str()).collect();
            lab_is_true(&lab, &mut reader, &there, &mut seen);
        }
    }
    let counters = lab.discovery.counters();
    assert_eq!(
        (counters.lost, counters.resyncs, counters.errors),
        (0, 0, 0)
    );
}

fn lab_expects_namespace(lab: &Lab, reader: &mut Reader, name: &str, seen: &mut Vec<String>) {
    expect(lab, reader, &[format!("{name} +namespace")], seen);
    // Listed, that is: what the script does while a namespace is looked at for the first time may
    // be seen twice.
    while interface(&lab.graph.read(), name, "lo").is_none() {
        std::thread::yield_now();
    }
}

/// Waits for the truth without losing sight of the history.
fn lab_is_true(lab: &Lab, reader: &mut Reader, names: &[&str], seen: &mut Vec<String>) {
    lab.until_true_with(names, |change| seen.extend(reader.read(&change)));
}

#[test]
fn what_is_done_at_once_is_in_the_history_in_order() {
    if !root_tests() {
        return;
    }
    let seed = 7;
    println!("seed {seed}");
    let lab = Lab::start(DiscoveryConfig {
        // The kernel does not report that a tap stays when its maker ends; it is looked for.
        metric_interval: Duration::from_millis(300),
        ..config()
    });
    let ns = Net::bare();
    let name = ns.name.clone();
    let mut reader = Reader::default();
    let mut seen = Vec::new();
    lab_expects_namespace(&lab, &mut reader, &name, &mut seen);
    seen.clear();
    let mut script = Script::new(seed, vec![ns]);
    let (mut batch, mut says) = (String::new(), Vec::new());
    let mut done = 0;
    while done < 600 {
        let Some(step) = script.step(false) else {
            continue;
        };
        batch.push_str(&step.command[2..].join(" "));
        batch.push('\n');
        says.extend(step.says);
        done += 1;
    }
    script.namespaces[0].as_ref().unwrap().ip_batch(&batch);
    expect(&lab, &mut reader, &says, &mut seen);
    // The history has nothing else of what the script does.
    let done: BTreeSet<&String> = says.iter().collect();
    let ours = [
        "+link", "-link", "+address", "-address", "+route", "-route", "+up", "-up",
    ];
    let seen: Vec<&String> = seen
        .iter()
        .filter(|line| line.starts_with(&name)) // other tests run, too
        .filter(|line| ours.contains(&line.split(' ').nth(1).unwrap()))
        .collect();
    let says: Vec<&String> = says.iter().filter(|line| !line.contains("mtu")).collect();
    for line in &seen {
        assert!(done.contains(line), "nobody did {line}");
    }
    assert_eq!(seen, says);
    lab_is_true(&lab, &mut reader, &[&name], &mut Vec::new());
    assert_eq!(lab.discovery.counters().lost, 0);
}

#[test]
fn lost_notifications_end_in_the_truth() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(DiscoveryConfig {
        // The kernel's least.
        queue_bytes: 1,
        ..config()
    });
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    ns.ip("link add stays type bridge");
    let stays = lab.until_there(&ns.name, "stays");
    let mut batch = String::new();
    for at in 0..200 {
        batch.push_str(&format!("link add b{at} type bridge\nlink set b{at} up\n"));
        batch.push_str(&format!("addr add 10.8.{at}.1/24 dev b{at}\n"));
        if at % 3 == 0 {
            batch.push_str(&format!("link del b{at}\n"));
        }
    }
    ns.ip_batch(&batch);
    lab.until_true(&[&ns.name]);
    let counters = lab.discovery.counters();
    assert!(counters.lost > 0 && counters.resyncs > 0, "{counters:?}");
    // What was there all along is the same node, and nothing of it was written anew.
    let now = lab.until_there(&ns.name, "stays");
    assert_eq!(now.id, stays.id);
    assert_eq!(now.created_at, stays.created_at);
}
