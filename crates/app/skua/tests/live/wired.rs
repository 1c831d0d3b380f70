//! The graph of the lab of docs/lab, beside what `ip`, `bridge` and `ovs-vsctl` say of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::ManuallyDrop,
    process::Command,
};

use serde_json::Value;

use crate::{
    lab::{Net, Skua, net, root_tests, skua, wait_for},
    queries::ask,
};

const MACHINES: [&str; 6] = ["host", "web", "db", "far", "vm1", "vm2"];

/// The lab, taken down when dropped.
struct Lab {
    name: String,
    directory: String,
    /// The script removes them.
    rooms: BTreeMap<&'static str, ManuallyDrop<Net>>,
}

impl Lab {
    fn up() -> Self {
        let name = format!("lb-{}", std::process::id());
        let directory = std::env::temp_dir().join(format!("{name}-ovs"));
        let rooms = MACHINES.into_iter().map(|machine| {
            let name = format!("{name}-{machine}");
            (machine, ManuallyDrop::new(Net { name }))
        });
        let lab = Self {
            rooms: rooms.collect(),
            directory: directory.display().to_string(),
            name,
        };
        lab.run("up");
        lab
    }

    fn run(&self, what: &str) -> String {
        net::run(&mut self.script(what))
    }

    fn script(&self, what: &str) -> Command {
        let mut command = Command::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../docs/lab/lab"
        ));
        command
            .arg(what)
            .env("LAB", &self.name)
            .env("LAB_DIR", &self.directory);
        command
    }

    fn room(&self, machine: &str) -> &Net {
        &self.rooms[machine]
    }

    /// What a program prints on a machine, as JSON.
    fn json(&self, machine: &str, line: &str) -> Value {
        let text = self.room(machine).exec(line);
        // `ip` prints nothing at all for nothing.
        serde_json::from_str(text.trim()).unwrap_or(Value::Array(Vec::new()))
    }

    /// The inode of a machine's namespace.
    fn inode(&self, machine: &str) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(self.room(machine).path()).unwrap().ino()
    }

    fn vsctl(&self, line: &str) -> BTreeSet<String> {
        let line = format!("ovs-vsctl --db=unix:{}/db.sock {line}", self.directory);
        let text = self.room("host").exec(&line);
        text.lines()
            .map(|line| line.trim_matches('"').to_owned())
            .collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A test that failed says why itself.
        let _ = self.script("down").output();
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The texts of a list.
fn texts(value: &Value) -> BTreeSet<String> {
    let texts = list(value).iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Asks, and counts how often.
struct Asked<'a> {
    lab: &'a Lab,
    skua: &'a Skua,
    queries: std::cell::RefCell<BTreeSet<String>>,
}

impl Asked<'_> {
    fn ask(&self, query: &str) -> Value {
        self.queries.borrow_mut().insert(query.to_owned());
        ask(self.lab.room("host"), self.skua, query)
    }

    /// Asks until the answer is what is expected at that moment; events are under way for a while.
    fn same<T: PartialEq + std::fmt::Debug>(
        &self,
        query: &str,
        found: impl Fn(&Value) -> T,
        expected: impl Fn() -> T,
    ) {
        let begin = std::time::Instant::now();
        loop {
            // The world may change between the two: it must not have.
            let before = expected();
            let answer = self.ask(query);
            let found = found(&answer);
            if found == before {
                return;
            }
            let last = format!("{found:?}, expected {before:?}: {answer}").replace('\n', " ");
            assert!(begin.elapsed().as_secs() < 25, "{query}: {last}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}

/// What `ip -j -d addr` and a node say of an interface, in the same words.
type Facts = BTreeMap<&'static str, Value>;

fn facts_of_ip(link: &Value) -> Facts {
    let addresses = |family: &str| -> Value {
        let all = list(&link["addr_info"]).iter();
        let all = all.filter(|a| a["family"] == family);
        let mut texts: Vec<String> = all
            .map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"]))
            .collect();
        texts.sort();
        texts.into()
    };
    let info = &link["linkinfo"];
    let mut facts = Facts::from([
        ("Name", link["ifname"].clone()),
        ("MTU", link["mtu"].clone()),
        ("State", link["operstate"].clone()),
        ("IPV4", addresses("inet")),
        ("IPV6", addresses("inet6")),
    ]);
    if link["link_type"] == "ether" {
        facts.insert("MAC", link["address"].clone());
    }
    if let Some(kind) = info["info_kind"].as_str().filter(|kind| *kind != "tun") {
        facts.insert("Type", kind.into());
    }
    if info["info_kind"] == "vxlan" {
        let data = &info["info_data"];
        facts.insert("VNI", data["id"].clone());
        facts.insert("Remote", data["remote"].clone());
        facts.insert("Local", data["local"].clone());
        facts.insert("Port", data["port"].clone());
    }
    facts
}

fn facts_of_node(node: &Value, like: &Facts) -> Facts {
    let metadata = &node["Metadata"];
    let fact = |name: &'static str| {
        let value = match name {
            "VNI" | "Remote" | "Local" | "Port" => &metadata["VXLAN"][name],
            _ => &metadata[name],
        };
        let value = match name {
            "IPV4" | "IPV6" => texts(value).into_iter().collect::<Vec<_>>().into(),
            _ => value.clone(),
        };
        (name, value)
    };
    like.keys().map(|name| fact(name)).collect()
}

fn interfaces(asked: &Asked<'_>) {
    let lab = asked.lab;
    for machine in MACHINES {
        let inode = lab.inode(machine);
        let here = format!("G.V().Has('NetNsInode', {inode}).HasKey('IfIndex')");
        let links = || lab.json(machine, "ip -j -d addr show");
        asked.same(&format!("{here}.Values('Name')"), texts, || {
            let links = links();
            let names = list(&links).iter().map(|l| l["ifname"].as_str().unwrap());
            names.map(str::to_owned).collect()
        });
        for link in list(&links()) {
            let index = &link["ifindex"];
            let ip = || {
                let links = links();
                let link = list(&links).iter().find(|l| l["ifindex"] == *index);
                facts_of_ip(link.unwrap())
            };
            let node = |answer: &Value| facts_of_node(&answer[0], &facts_of_ip(link));
            asked.same(&format!("{here}.Has('IfIndex', {index})"), node, ip);
        }
    }
}

fn relations(asked: &Asked<'_>) {
    let lab = asked.lab;
    let inode = lab.inode("host");
    let of = |name: &str| format!("G.V().Has('NetNsInode', {inode}, 'Name', '{name}')");
    let ports = || -> BTreeSet<String> {
        let links = lab.json("host", "bridge -j link show");
        let ports = list(&links).iter().filter(|l| l["master"] == "br0");
        ports
            .map(|l| l["ifname"].as_str().unwrap().to_owned())
            .collect()
    };
    let ports_of_graph = format!(
        "{}.OutE('RelationType', 'layer2').OutV().Values('Name')",
        of("br0")
    );
    assert_eq!(ports().len(), 2);
    asked.same(&ports_of_graph, texts, ports);
    // Each veth's other end, wherever that is.
    for link in list(&lab.json("host", "ip -j -d link show type veth")) {
        let name = link["ifname"].as_str().unwrap();
        let far = || -> BTreeSet<String> {
            let others = MACHINES.into_iter().skip(1).filter(|machine| {
                let ends = lab.json(machine, "ip -j link show dev eth0");
                // Indexes may be the same in several; addresses of the ends belong together.
                let mac = link["address"].as_str().unwrap();
                list(&ends)
                    .iter()
                    .any(|e| e["address"] == mac.replace(":99:00:", ":99:01:").as_str())
            });
            others
                .map(|machine| lab.room(machine).name.clone())
                .collect()
        };
        let query = format!(
            "{}.Both('Type', 'veth').In('Type', 'netns').Values('Name')",
            of(name)
        );
        assert_eq!(far().len(), 1, "{name}");
        asked.same(&query, texts, far);
    }
    asked.same(
        &format!(
            "{}.InE('RelationType', 'layer2').InV().Values('Name')",
            of("vx10")
        ),
        texts,
        || {
            let tunnel = lab.json("host", "ip -j -d link show dev vx10");
            let below = tunnel[0]["linkinfo"]["info_data"]["link"].as_str();
            below.map(str::to_owned).into_iter().collect()
        },
    );
    // Namespace by namespace, without the host.
    asked.same(
        &format!(
            "G.V().Has('Type', 'netns', 'Name', Regex('{}-.*')).Values('Name')",
            lab.name
        ),
        texts,
        || {
            let all = lab.json("host", "ip -j netns list");
            let names = list(&all).iter().filter_map(|n| n["name"].as_str());
            let mine = names.filter(|n| n.starts_with(&lab.name));
            // The host's own is the host.
            mine.filter(|n| !n.ends_with("-host"))
                .map(str::to_owned)
                .collect()
        },
    );
}

fn routes(asked: &Asked<'_>) {
    let lab = asked.lab;
    for (machine, device) in [
        ("host", "br0"),
        ("host", "vx10"),
        ("web", "eth0"),
        ("far", "vx10"),
    ] {
        let query = format!(
            "G.V().Has('NetNsInode', {}, 'Name', '{device}')",
            lab.inode(machine)
        );
        let found = |answer: &Value| -> BTreeSet<String> {
            let tables = list(&answer[0]["Metadata"]["RoutingTables"]).iter();
            let main = tables.filter(|table| table["ID"] == 254);
            main.flat_map(|table| list(&table["Routes"]))
                .map(|route| route["Prefix"].as_str().unwrap().to_owned())
                .filter(|prefix| !prefix.contains(':'))
                .collect()
        };
        asked.same(&query, found, || {
            let routes = lab.json(machine, &format!("ip -j -4 route show dev {device}"));
            let prefix = |route: &Value| match route["dst"].as_str().unwrap() {
                "default" => "0.0.0.0/0".to_owned(),
                prefix => prefix.to_owned(),
            };
            list(&routes).iter().map(prefix).collect()
        });
    }
}

/// Neighbours and forwarding tables, which traffic made.
fn learned(asked: &Asked<'_>) {
    let lab = asked.lab;
    for (machine, device) in [("host", "br0"), ("web", "eth0")] {
        let query = format!(
            "G.V().Has('NetNsInode', {}, 'Name', '{device}')",
            lab.inode(machine)
        );
        let pairs = |all: &Value, ip: &str, mac: &str| -> BTreeSet<(String, String)> {
            let text =
                |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let all = list(all)
                .iter()
                .map(|entry| (text(entry, ip), text(entry, mac)));
            all.filter(|(_, mac)| !mac.is_empty()).collect()
        };
        asked.same(
            &query,
            |answer| pairs(&answer[0]["Metadata"]["Neighbors"], "IP", "MAC"),
            || {
                let all = lab.json(machine, &format!("ip -j neigh show dev {device}"));
                pairs(&all, "dst", "lladdr")
            },
        );
    }
    let query = format!(
        "G.V().Has('NetNsInode', {}, 'Name', 'web0')",
        lab.inode("host")
    );
    let macs = |all: &Value, key: &str| -> BTreeSet<String> {
        let macs = list(all).iter().filter_map(|entry| entry[key].as_str());
        macs.map(str::to_owned).collect()
    };
    asked.same(
        &query,
        |answer| macs(&answer[0]["Metadata"]["FDB"], "MAC"),
        || {
            let all = lab.json("host", "bridge -j fdb show dev web0");
            let master = list(&all).iter();
            let master = master.filter(|e| !list(&e["flags"]).contains(&"self".into()));
            macs(&master.cloned().collect::<Vec<_>>().into(), "mac")
        },
    );
}

/// What the script says that it sent is where it has to be.
fn flows(asked: &Asked<'_>, said: &str) {
    let sent: Vec<(&str, u64, &str)> = said
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[1], words[3].parse().unwrap(), words[words.len() - 1])
        })
        .collect();
    assert!(sent.len() >= 3, "{said}");
    for (from, number, to) in &sent {
        let of = format!("G.Flows().Has('Network.B', '{to}', 'Transport.B', 9)");
        let number = *number;
        // Everywhere the same number, and nothing else.
        let query = format!("{of}.Values('Metric.ABPackets')");
        asked.same(
            &query,
            |answer| {
                list(answer)
                    .iter()
                    .map(|n| n.as_u64().unwrap())
                    .collect::<BTreeSet<_>>()
            },
            || BTreeSet::from([number]),
        );
        // Whose the MAC addresses are: each station's on the way.
        asked.same(
            &format!("{of}.Out().Dedup().Values('IfIndex')"),
            |answer| {
                list(answer)
                    .iter()
                    .map(Value::to_string)
                    .collect::<BTreeSet<_>>()
            },
            || stations(asked.lab, from, to),
        );
    }
    // From web through its cable, over the bridge, through the tunnel.
    let path = "G.Flows().Has('Network.B', '10.99.3.2', 'Transport.B', 9).Path()";
    let places = ["eth0", "web0", "br0", "vx10", "vx10"];
    asked.same(
        path,
        |answer| {
            let paths = answer[0].as_object();
            let hops = paths.and_then(|paths| paths.values().next());
            let hops = hops.map_or(&[][..], list);
            let name = |hop: &Value| hop["Node"].as_str().unwrap_or_default().to_owned();
            hops.iter().map(name).collect::<Vec<_>>()
        },
        || places.map(str::to_owned).to_vec(),
    );
}

/// Whether this `skua` follows Open vSwitch.
fn knows_ovs(net: &Net) -> bool {
    let mut help = skua::command(net);
    net::run(help.args(["config", "--help"])).contains("ovs.target")
}

fn switch(asked: &Asked<'_>) {
    let lab = asked.lab;
    asked.same(
        "G.V().Has('Type', 'ovsbridge').Values('Name')",
        texts,
        || lab.vsctl("list-br"),
    );
    let ports = "G.V().Has('Type', 'ovsbridge').Out('Type', 'ovsport')";
    let all_ports = || {
        let mut ports = lab.vsctl("list-ports sw0");
        // Each bridge has a port of its own name, which the list leaves out.
        ports.insert("sw0".into());
        ports
    };
    asked.same(&format!("{ports}.Values('Name')"), texts, all_ports);
    asked.same(
        &format!("{ports}.Out('ExtID.iface-id', 'vm1').Values('Name')"),
        texts,
        || lab.vsctl("--bare --columns=name find interface external_ids:iface-id=vm1"),
    );
    rules(asked);
    captured_bridge(asked);
}

/// Numbers of the interfaces that packets from a machine to an address are sent to, one router after the other, as `ip` knows them.
fn stations(lab: &Lab, from: &str, to: &str) -> BTreeSet<String> {
    let (mut machine, mut found) = (from, BTreeSet::new());
    loop {
        let route = lab.json(machine, &format!("ip -j route get {to}"));
        let next = route[0]["gateway"].as_str().unwrap_or(to).to_owned();
        machine = MACHINES
            .into_iter()
            .find(|machine| {
                let links = lab.json(machine, "ip -j addr show");
                let owns = |link: &&Value| {
                    let addresses = list(&link["addr_info"]);
                    addresses.iter().any(|address| address["local"] == *next)
                };
                let own = list(&links).iter().find(owns);
                found.extend(own.map(|link| link["ifindex"].to_string()));
                own.is_some()
            })
            .unwrap();
        if next == to {
            return found;
        }
    }
}

/// OpenFlow rules are those of the switch, with its counters.
fn rules(asked: &Asked<'_>) {
    let lab = asked.lab;
    let ofctl = |line: &str| {
        let bridge = format!("unix:{}/sw0.mgmt", lab.directory);
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let environment = format!("env OVS_RUNDIR={}", lab.directory);
        let line = format!("{environment} ovs-ofctl -O OpenFlow14 {command} {bridge} {rest}");
        lab.room("host").exec(line.trim())
    };
    ofctl("add-flow priority=9,udp,tp_dst=4789,cookie=0x77,actions=NORMAL");
    ofctl("add-group group_id=5,type=all,bucket=actions=1");
    let rules = "G.V().Has('Type', 'ovsbridge', 'Name', 'sw0').Out('Type', 'ofrule')";
    asked.same(&format!("{rules}.Values('Cookie')"), texts, || {
        BTreeSet::from(["0x0".to_owned(), "0x77".to_owned()])
    });
    let one = format!("{rules}.Has('Cookie', '0x77').Values('Rule')");
    asked.same(&one, texts, || {
        BTreeSet::from(["table=0,priority=9,udp,tp_dst=4789 actions=NORMAL".to_owned()])
    });
    asked.same(
        "G.V().Has('Type', 'ofgroup').Values('GroupType')",
        texts,
        || BTreeSet::from(["all".to_owned()]),
    );
    // What has passed the bridge's first rule: `n_packets=12,`.
    let counted = || {
        let text = ofctl("dump-flows");
        let packets = text
            .lines()
            .find(|line| line.contains(" priority=0 "))
            .and_then(|line| line.split("n_packets=").nth(1))
            .and_then(|text| text.split(',').next());
        packets.and_then(|packets| packets.parse::<u64>().ok())
    };
    let first = format!("{rules}.Has('Priority', 0).Values('Metric.RxPackets')");
    asked.same(
        &first,
        |found| list(found).first().and_then(Value::as_u64),
        counted,
    );
}

/// What a capture writes at a bridge stays there when internal ports come and go.
fn captured_bridge(asked: &Asked<'_>) {
    let (lab, host) = (asked.lab, asked.lab.room("host"));
    let bridge = "G.V().Has('Type', 'ovsbridge', 'Name', 'sw0')";
    let create = [
        "capture",
        "create",
        "--gremlin",
        bridge,
        "--type",
        "ovssflow",
    ];
    net::run(
        skua::command(host)
            .args(create)
            .env("SKUA_ANALYZER", &asked.skua.address),
    );
    let captures =
        || list(&asked.ask(&format!("{bridge}.HasKey('Captures').Values('Name')"))).len();
    wait_for("the bridge's capture", || (captures() == 1).then_some(()));
    for port in ["in1", "in2", "in3", "in4"] {
        lab.vsctl(&format!(
            "add-port sw0 {port} -- set interface {port} type=internal"
        ));
        let port = format!("G.V().Has('Type', 'ovsport', 'Name', '{port}').Values('Name')");
        wait_for("the port", || {
            (list(&asked.ask(&port)).len() == 1).then_some(())
        });
        assert_eq!(captures(), 1, "after {port}");
    }
    for port in ["in1", "in2", "in3", "in4"] {
        lab.vsctl(&format!("del-port sw0 {port}"));
    }
    let gone = "G.V().Has('Type', 'ovsport', 'Name', Regex('in[1-4]'))";
    wait_for("no ports", || {
        list(&asked.ask(gone)).is_empty().then_some(())
    });
    assert_eq!(captures(), 1);
}

#[test]
fn the_lab_is_what_ip_and_bridge_say() {
    if !root_tests() {
        return;
    }
    let lab = Lab::up();
    let host = lab.room("host");
    let ovs = knows_ovs(host);
    let rooms: Vec<&Net> = lab.rooms.values().map(|room| &**room).collect();
    let target = format!("unix:{}/db.sock", lab.directory);
    let environment = [
        ("SKUA_OVS_TARGET", target.as_str()),
        ("SKUA_OVS_OPENFLOW_ENABLED", "true"),
        ("SKUA_OVS_OPENFLOW_INTERVAL", "500ms"),
    ];
    let environment = if ovs { &environment[..] } else { &[] };
    let skua = Skua::run_among_with(host, &rooms, "--scan-interval 1s", environment);
    let asked = Asked {
        lab: &lab,
        skua: &skua,
        queries: Default::default(),
    };
    interfaces(&asked);
    relations(&asked);
    routes(&asked);
    // What passes before a place is watched is not seen there.
    wait_for("all places to be watched", || {
        let summary = skua.summary();
        let places = summary.0["interfaces"].as_array().unwrap();
        let watched = places.iter().filter(|i| i["attached"] == true);
        let ports = ["web0", "db0", "up0", "vx10", "br0", "eth0"];
        let named = watched.filter(|i| ports.iter().any(|p| i["interface"] == *p));
        // Five on the host, eth0 of five machines, the tunnel's other end.
        (named.count() == 11).then_some(())
    });
    let said = lab.run("traffic");
    flows(&asked, &said);
    learned(&asked);
    if ovs {
        switch(&asked);
    }
    let number = asked.queries.borrow().len();
    assert!(number >= 30, "{number} queries");
}
