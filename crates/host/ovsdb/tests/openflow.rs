//! OpenFlow rules and groups in the graph beside what `ovs-ofctl` says of a real Open vSwitch.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::{Value as Json, json};
use skua_ovsdb::{OvsConfig, OvsTopology, RulesConfig};
use skua_testkit::lab::{run, wait_for, wait_until};
use skua_topology::{Config, Direction, Graph, IndexKey, Lookup, Map, Node, SharedGraph, Value};
use std::{
    collections::BTreeSet, net::UdpSocket, ops::ControlFlow, process::Command, sync::Arc,
    time::Duration,
};
use support::Ovs;

const HOST: &str = "h";

/// A switch with a bridge, its rules in a graph.
struct Lab {
    graph: SharedGraph,
    topology: OvsTopology,
    ovs: Ovs,
}

impl Lab {
    fn new(interval: Duration, max_rules: usize) -> Self {
        let ovs = Ovs::new();
        ovs.add_bridge("br0");
        let mut graph = Graph::new(Config::default());
        let map = Map::from([("Name", HOST.into()), ("Type", "host".into())]);
        graph.add_node(Node::new("host", HOST, map), 1).unwrap();
        let graph: SharedGraph = graph.into();
        let mut config = OvsConfig::new(ovs.target(), HOST);
        config.client = ovs.client();
        config.netns = Some(ovs.ns.inode());
        config.settle = Duration::ZERO;
        config.rules = Some(RulesConfig {
            folder: ovs.dir.path().to_owned(),
            interval,
            max_rules,
        });
        let topology = OvsTopology::start(config, graph.clone()).unwrap();
        let lab = Self {
            graph,
            topology,
            ovs,
        };
        wait_until("rules", || lab.topology.counters().rules.bridges == 1);
        lab
    }

    /// `ovs-ofctl` with a command to `br0`.
    fn ofctl(&self, version: &str, command: &str, arguments: &[&str]) -> String {
        let bridge = format!("unix:{}", self.ovs.path("br0.mgmt").display());
        let mut line = Command::new("ovs-ofctl");
        line.args(["-O", version, command, &bridge]).args(arguments);
        run(line.env("OVS_RUNDIR", self.ovs.dir.path()))
    }

    fn add(&self, rule: &str) {
        // Words before the rule are options.
        match rule.strip_prefix("-O OpenFlow14 ") {
            Some(rule) => self.ofctl("OpenFlow14", "add-flow", &[rule]),
            None => self.ofctl("OpenFlow10,OpenFlow14", "add-flow", &[rule]),
        };
    }

    /// The elements of a type below the bridge.
    fn nodes(&self, kind: &str) -> Vec<Arc<Node>> {
        let graph = self.graph.read();
        let key = IndexKey::Str("ovsbridge".into());
        let mut bridges = Vec::new();
        let lookup = Lookup::Key("Type", &key);
        let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
            bridges.push(node.id.clone());
            ControlFlow::Continue(())
        });
        let mut ends = Vec::new();
        for bridge in bridges {
            let _ = graph.edges(
                &bridge,
                graph.now(),
                Direction::Out,
                None,
                &mut |edge, _| {
                    assert_eq!(*edge.parent, *bridge);
                    ends.push(edge.child.clone());
                    ControlFlow::Continue(())
                },
            );
        }
        let ends: BTreeSet<_> = ends.into_iter().collect();
        let nodes = ends.iter().filter_map(|id| graph.current_node(id));
        nodes
            .filter(|node| node.metadata.get("Type").and_then(Value::as_str) == Some(kind))
            .collect()
    }

    /// The only element of a type, when there is one.
    fn only(&self, kind: &str) -> Arc<Node> {
        wait_for("one element", || {
            let mut nodes = self.nodes(kind);
            (nodes.len() == 1).then(|| nodes.pop()).flatten()
        })
    }

    fn texts(&self) -> BTreeSet<String> {
        let nodes = self.nodes("ofrule");
        nodes.iter().map(|node| text(node, "Rule")).collect()
    }

    /// As `ovs-ofctl` shows them, with the table and priority that it leaves out.
    fn shown(&self) -> BTreeSet<String> {
        let text = self.ofctl("OpenFlow14", "dump-flows", &["--no-stats"]);
        let lines = text.lines().filter(|line| line.contains("actions="));
        lines
            .map(|line| {
                let line = line.trim();
                let (front, actions) = line.split_once("actions=").unwrap();
                let front = front.trim().replace(' ', ",");
                let (mut table, mut priority) = ("0".to_owned(), "32768".to_owned());
                let (mut own, mut fields) = (Vec::new(), Vec::new());
                for part in front.split(',').filter(|part| !part.is_empty()) {
                    match part.split_once('=') {
                        Some(("table", value)) => table = value.to_owned(),
                        Some(("priority", value)) => priority = value.to_owned(),
                        Some(("cookie", _)) => {}
                        Some(("idle_timeout" | "hard_timeout" | "importance", _)) => own.push(part),
                        _ if part == "reset_counts" => {}
                        _ => fields.push(part),
                    }
                }
                let mut words = vec![format!("table={table}")];
                words.extend(own.into_iter().map(str::to_owned));
                words.push(format!("priority={priority}"));
                words.extend(fields.into_iter().map(str::to_owned));
                format!("{} actions={actions}", words.join(","))
            })
            .collect()
    }
}

fn text(node: &Node, key: &str) -> String {
    let found = node.lookup(key);
    found
        .and_then(|v| v.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn int(node: &Node, key: &str) -> Option<i64> {
    node.lookup(key)?.as_int()
}

fn json(node: &Node, key: &str) -> Json {
    let found = node.lookup(key);
    found.map_or(Json::Null, |value| serde_json::to_value(&*value).unwrap())
}

/// Rules of all kinds, as people write them.
const RULES: &[&str] = &[
    "table=0,priority=0,in_port=1,actions=resubmit(,1)",
    "priority=7,in_port=LOCAL,actions=NORMAL",
    "tcp,nw_src=192.168.200.0/24,nw_dst=10.0.0.1,tp_dst=80,actions=output:1,LOCAL",
    "udp,tp_src=0x1000/0xf000,actions=drop",
    "udp6,ipv6_src=2001:db8::/32,tp_dst=53,actions=CONTROLLER:128",
    "tcp6,ipv6_dst=2001:db8::1,tcp_flags=+syn-ack,actions=IN_PORT",
    "icmp,icmp_type=8,icmp_code=0,actions=FLOOD",
    "icmp6,icmp_type=135,nd_target=fe80::1,nd_sll=02:00:00:00:00:01,actions=ALL",
    "arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/8,arp_sha=02:00:00:00:00:09,actions=2",
    "ip,nw_tos=32,nw_ecn=1,nw_ttl=64,nw_frag=later,actions=dec_ttl,output:3",
    "ip,nw_proto=47,actions=mod_dl_src:02:00:00:00:00:05,mod_dl_dst:02:00:00:00:00:06,output:1",
    "sctp,tp_dst=9,actions=mod_tp_dst:10,mod_nw_src=10.0.0.1,output:1",
    "dl_type=0x88cc,actions=drop",
    "dl_vlan=100,dl_vlan_pcp=3,actions=strip_vlan,output:1",
    "vlan_tci=0x1000/0x1000,actions=mod_vlan_vid:7,output:1",
    "vlan_tci=0,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:1",
    "dl_src=02:00:00:00:00:00/ff:00:00:00:00:00,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=drop",
    "mpls,mpls_label=55,mpls_tc=1,mpls_bos=1,actions=pop_mpls:0x0800,output:1",
    "reg0=0x5,reg7=0x10/0xf0,metadata=0x3,tun_id=0x64,actions=load:0x1->NXM_NX_REG13[],load:0x2->OXM_OF_METADATA[],resubmit(,9)",
    "tun_src=10.0.0.1,tun_dst=10.0.0.2,pkt_mark=0x5,actions=set_field:0x7->tun_id,set_field:0x5->pkt_mark,output:2",
    "ct_state=+new-rel,ip,actions=ct(commit,zone=1,nat(src=10.1.1.240-10.1.1.255)),2",
    "ct_state=+est+trk,ct_zone=5,ct_mark=0x1/0x1,ip,actions=ct(table=2,zone=NXM_NX_REG4[0..15],nat)",
    "ct_state=-trk,ip,actions=ct(table=1,zone=5),ct_clear",
    "ip,actions=ct(commit,zone=NXM_NX_REG4[0..15],exec(move:NXM_NX_REG3[]->NXM_NX_CT_MARK[],move:NXM_NX_REG1[]->NXM_NX_CT_LABEL[96..127]))",
    "table=1,tcp6,actions=ct(commit,nat(dst=[fd00::1]:80-90,random),alg=ftp)",
    "table=2,actions=learn(table=1,hard_timeout=60,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "table=2,priority=3,ip,actions=learn(table=3,priority=9,cookie=0x5,idle_timeout=10,eth_type=0x800,NXM_OF_IP_SRC[]=NXM_OF_IP_DST[],load:0x1->NXM_NX_REG0[0..15])",
    "table=3,ip,actions=push:NXM_OF_IP_DST[],pop:NXM_OF_IP_SRC[]",
    "table=4,actions=enqueue:123:456",
    "table=5,actions=bundle_load(eth_src,50,active_backup,ofport,reg0,slaves:1)",
    "table=6,actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[7])",
    "table=7,actions=move:eth_dst->eth_src[]",
    "table=8,actions=sample(probability=65535,collector_set_id=1,obs_domain_id=0,obs_point_id=0,sampling_port=1)",
    "table=9,ip,actions=clone(set_field:192.168.3.3->ip_src),output:1",
    "table=10,actions=controller(userdata=11.11.11.11)",
    "table=11,actions=controller(max_len=64,id=3,reason=no_match)",
    "table=12,conj_id=5,actions=note:11.22.33",
    "table=13,ip,actions=conjunction(5,1/2)",
    "table=14,actions=output:NXM_NX_REG0[0..15]",
    "table=15,actions=output(port=1,max_len=100)",
    "table=16,actions=resubmit(2,5),resubmit:3",
    "table=17,actions=check_pkt_larger(1500)->NXM_NX_REG0[0]",
    "table=18,tcp,actions=fin_timeout(idle_timeout=5),exit",
    "-O OpenFlow14 table=19,actions=write_actions(output:6)",
    "-O OpenFlow14 table=19,priority=8,actions=push_vlan:0x8100,pop_vlan,clear_actions,write_metadata:0x5/0xff,goto_table:20",
    "-O OpenFlow14 reset_counts,table=20,priority=100,importance=200,idle_timeout=600,hard_timeout=700,actions=",
    "table=23,reg3=0,actions=load:0->NXM_NX_REG1[],set_field:0->reg2,learn(table=9,eth_dst=02:00:00:00:00:01,reg0[0..3]=0x2)",
    "table=21,xxreg1=0x5,xreg2=0x100,actions=set_field:0x1/0x1->reg0",
];

#[test]
fn rules_read_as_ovs_ofctl_shows_them() {
    let lab = Lab::new(Duration::from_millis(300), 10_000);
    for rule in RULES {
        lab.add(rule);
    }
    let wanted = lab.shown();
    assert_eq!(
        wanted.len(),
        RULES.len() + 1,
        "with the bridge's first rule"
    );
    let mut found = BTreeSet::new();
    for _ in 0..300 {
        found = lab.texts();
        if found == wanted {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let missing: Vec<_> = wanted.difference(&found).collect();
    let wrong: Vec<_> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "not {missing:#?}\nbut {wrong:#?}"
    );
    // What is shown can be added again, and is the same then.
    lab.ofctl("OpenFlow14", "del-flows", &[]);
    wait_until("no rules", || lab.texts().is_empty());
    for rule in &found {
        lab.ofctl(
            "OpenFlow14",
            "add-flow",
            &[&rule.replacen(" actions", ",actions", 1)],
        );
    }
    assert_eq!(lab.shown(), wanted);
    wait_until("the same rules", || lab.texts() == wanted);
}

/// What Skydive's own tests expect of a rule: the rule, a key, and its value.
fn expected() -> Vec<(&'static str, &'static str, Json)> {
    let action = |kind: &str, arguments: Json| json!([{"Type": kind, "Arguments": arguments}]);
    vec![
        (
            "ct_state=+new-rel,actions=",
            "Filters",
            json!([{
                "Type": "conn_tracking_state_masked",
                "Value": {"New": true},
                "Mask": {"New": true, "Related": true},
            }]),
        ),
        (
            "in_port=1,ip,actions=resubmit(,1)",
            "Filters",
            json!([{"Type": "in_port", "Value": 1}, {"Type": "eth_type", "Value": "ip"}]),
        ),
        (
            "ip,nw_src=192.168.200.0/24,actions=drop",
            "Filters",
            json!([
                {"Type": "eth_type", "Value": "ip"},
                {"Type": "ipv4_src_masked", "Value": "192.168.200.0", "Mask": "255.255.255.0"},
            ]),
        ),
        (
            "-O OpenFlow14 reset_counts,priority=100,importance=200,actions=",
            "Flags",
            json!({"ResetCounts": true}),
        ),
        (
            "-O OpenFlow14 reset_counts,priority=100,importance=200,actions=",
            "Importance",
            json!(200),
        ),
        (
            "priority=32768,actions=drop",
            "Actions",
            json!([{"Type": "drop"}]),
        ),
        (
            "actions=controller(userdata=11.11.11.11)",
            "Actions",
            action(
                "nx_controller2",
                json!({"Properties": [{"Type": 3, "Length": 8, "Userdata": "EREREQ=="}]}),
            ),
        ),
        (
            "ip,actions=mod_nw_src=10.0.0.1",
            "Actions",
            action(
                "set_field",
                json!({"Field": {"Type": "ipv4_src", "Value": "10.0.0.1"}}),
            ),
        ),
        (
            "-O OpenFlow14 priority=32768,actions=push_vlan:0x8100,pop_vlan",
            "Actions",
            json!([{"Type": "push_vlan", "Arguments": {"Ethertype": 33024}}, {"Type": "pop_vlan"}]),
        ),
        (
            "mpls,actions=pop_mpls:1234",
            "Actions",
            action("pop_mpls", json!({"Ethertype": 1234})),
        ),
        (
            "ip,actions=push:NXM_OF_IP_DST[],pop:NXM_OF_IP_SRC[]",
            "Actions",
            json!([
                {"Type": "nx_stack_push", "Arguments": {"Field": "ip_dst", "NBits": 32, "Offset": 0}},
                {"Type": "nx_stack_pop", "Arguments": {"Field": "ip_src", "NBits": 32, "Offset": 0}},
            ]),
        ),
        (
            "actions=enqueue:123:456",
            "Actions",
            json!([
                {"Type": "set_queue", "Arguments": {"QueueId": 456}},
                {"Type": "output", "Arguments": {"MaxLen": 65535, "Port": 123}},
                {"Type": "nx_pop_queue"},
            ]),
        ),
        (
            "actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[7])",
            "Actions",
            action(
                "nx_multipath",
                json!({
                    "Algorithm": "modulo_n", "Arg": 0, "Basis": 50, "Dst": "reg0", "Fields": "eth_src",
                    "MaxLink": 0, "OfsNbits": 448,
                }),
            ),
        ),
        (
            "actions=learn(table=1,hard_timeout=60,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
             output:NXM_OF_IN_PORT[])",
            "Actions",
            action(
                "nx_learn",
                json!({
                    "Cookie": 0, "FinHardTimeout": 0, "FinIdleTimeout": 0, "Flags": 0,
                    "FlowMods": [
                        {"SrcDst": 0, "NBits": 12, "Src": "vlan_tci", "SrcOfs": 0, "Dst": "vlan_tci", "DstOfs": 0},
                        {"SrcDst": 0, "NBits": 48, "Src": "eth_src", "SrcOfs": 0, "Dst": "eth_dst", "DstOfs": 0},
                        {"SrcDst": 16, "NBits": 16, "Src": "in_port", "SrcOfs": 0},
                    ],
                    "HardTimeout": 60, "IdleTimeout": 0, "Priority": 32768, "TableId": 1,
                }),
            ),
        ),
        (
            "actions=move:eth_dst->eth_src[]",
            "Actions",
            action(
                "nx_reg_move",
                json!({"NBits": 48, "Src": "eth_dst", "SrcOfs": 0, "Dst": "eth_src", "DstOfs": 0}),
            ),
        ),
        (
            "in_port=1,ip,actions=ct(commit,zone=1,nat(src=10.1.1.240-10.1.1.255)),2",
            "Actions",
            json!([
                {"Type": "nx_ct", "Arguments": {
                    "Alg": 0, "Flags": {"Commit": true}, "RecircTable": 255, "Value": 1, "ZoneSrc": "",
                    "Actions": [{"Type": "nx_nat", "Arguments": {
                        "Flags": 1, "Ipv4Min": "10.1.1.240", "Ipv4Max": "10.1.1.255", "Ipv6Min": "", "Ipv6Max": "",
                        "ProtoMin": 0, "ProtoMax": 0, "RangePresent": {"Ipv4Min": true, "Ipv4Max": true},
                    }}],
                }},
                {"Type": "output", "Arguments": {"MaxLen": 0, "Port": 2}},
            ]),
        ),
        (
            "ip,actions=ct(commit,zone=NXM_NX_REG4[0..15],exec(move:NXM_NX_REG3[]->NXM_NX_CT_MARK[],\
             move:NXM_NX_REG1[]->NXM_NX_CT_LABEL[96..127]))",
            "Actions",
            action(
                "nx_ct",
                json!({
                    "Alg": 0, "Flags": {"Commit": true}, "RecircTable": 255, "Value": 15, "ZoneSrc": "reg4",
                    "Actions": [
                        {"Type": "nx_reg_move", "Arguments": {
                            "Dst": "conn_tracking_mark", "DstOfs": 0, "NBits": 32, "Src": "reg3", "SrcOfs": 0,
                        }},
                        {"Type": "nx_reg_move", "Arguments": {
                            "Dst": "conn_tracking_label", "DstOfs": 96, "NBits": 32, "Src": "reg1", "SrcOfs": 0,
                        }},
                    ],
                }),
            ),
        ),
        (
            "actions=sample(probability=65535,collector_set_id=1,obs_domain_id=0,obs_point_id=0,sampling_port=1)",
            "Actions",
            action(
                "nx_sample2",
                json!({
                    "CollectorSetId": 1, "Direction": 0, "ObsDomainId": 0, "ObsPointId": 0,
                    "Probability": 65535, "SamplingPort": 1,
                }),
            ),
        ),
        (
            "ip,actions=clone(set_field:192.168.3.3->ip_src)",
            "Actions",
            action(
                "nx_clone",
                json!({"Actions": [{"Type": "set_field", "Arguments": {
                    "Field": {"Type": "ipv4_src", "Value": "192.168.3.3"},
                }}]}),
            ),
        ),
        (
            "actions=load:0x1->NXM_NX_REG13[],load:0x2->OXM_OF_METADATA[]",
            "Actions",
            json!([
                {"Type": "nx_reg_load", "Arguments": {"OfsNbits": 31, "SrcField": "reg13", "Value": 1}},
                {"Type": "nx_reg_load", "Arguments": {"OfsNbits": 63, "SrcField": "metadata", "Value": 2}},
            ]),
        ),
        (
            "-O OpenFlow14 actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210))),\
             encap(ethernet)",
            "Actions",
            json!([
                {"Type": "nx_encap", "Arguments": {"HdrSize": 0, "PacketType": "nsh", "Props": [
                    {"PropClass": 4, "Type": 1, "Len": 5, "MdType": 2},
                    {"PropClass": 4, "Type": 2, "Len": 16, "TlvClass": 4096, "TlvType": 10, "TlvLen": 4,
                     "Value": "EjRWeA=="},
                    {"PropClass": 4, "Type": 2, "Len": 16, "TlvClass": 8192, "TlvType": 20, "TlvLen": 8,
                     "Value": "/ty6mHZUMhA="},
                ]}},
                {"Type": "nx_encap", "Arguments": {"HdrSize": 0, "PacketType": "ethernet", "Props": null}},
            ]),
        ),
        (
            "-O OpenFlow14 actions=write_actions(output:6)",
            "WriteActions",
            action("output", json!({"MaxLen": 0, "Port": 6})),
        ),
        (
            "-O OpenFlow14 actions=push_vlan:0x8100,pop_vlan,goto_table=2",
            "GotoTable",
            json!(2),
        ),
    ]
}

#[test]
fn parts_of_rules_are_as_skydives_tests_expect_them() {
    // What is new is told by the bridge itself; only flags and importance wait for the next reading.
    let lab = Lab::new(Duration::from_millis(500), 10_000);
    for (rule, key, wanted) in expected() {
        lab.ofctl("OpenFlow14", "del-flows", &[]);
        wait_until("no rules", || lab.nodes("ofrule").is_empty());
        lab.add(rule);
        let mut found = Json::Null;
        for _ in 0..200 {
            found = json(&lab.only("ofrule"), key);
            if found == wanted {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(found, wanted, "{key} of {rule}");
    }
}

#[test]
fn changes_are_told_and_counters_grow() {
    // No reading but the first: what happens comes as it happens.
    let lab = Lab::new(Duration::from_secs(600), 10_000);
    let rules = |wanted: &[&str]| {
        let wanted: BTreeSet<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
        for _ in 0..500 {
            if lab.texts() == wanted {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{:?}, not {wanted:?}", lab.texts());
    };
    let first = "table=0,priority=0 actions=NORMAL";
    rules(&[first]);
    lab.add("table=0,priority=1,actions=resubmit(,1)");
    lab.add("table=0,priority=2,actions=resubmit(,2)");
    lab.add("table=0,priority=0,in_port=1,actions=resubmit(,3)");
    lab.add("table=0,priority=3,actions=resubmit(,4)");
    lab.ofctl(
        "OpenFlow10",
        "del-flows",
        &["--strict", "table=0,priority=2"],
    );
    rules(&[
        first,
        "table=0,priority=1 actions=resubmit(,1)",
        "table=0,priority=0,in_port=1 actions=resubmit(,3)",
        "table=0,priority=3 actions=resubmit(,4)",
    ]);
    // The same rule does something else; its cookie and node stay.
    let node = |text: &str| {
        let nodes = lab.nodes("ofrule").into_iter();
        nodes
            .into_iter()
            .find(|n| n.lookup("Rule").is_some_and(|v| v.as_str() == Some(text)))
    };
    let before = node("table=0,priority=1 actions=resubmit(,1)").unwrap();
    lab.ofctl(
        "OpenFlow10",
        "mod-flows",
        &["--strict", "table=0,priority=1,actions=resubmit(,9)"],
    );
    wait_until("the change", || {
        node("table=0,priority=1 actions=resubmit(,9)").is_some()
    });
    let after = node("table=0,priority=1 actions=resubmit(,9)").unwrap();
    assert_eq!(
        (&before.id, before.created_at),
        (&after.id, after.created_at)
    );
    let of_bridge = |key: &str| {
        let graph = lab.graph.read();
        let key = key.to_owned();
        let bridge = IndexKey::Str("br0".into());
        let mut found = None;
        let lookup = Lookup::Key("Name", &bridge);
        let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
            if text(node, "Type") == "ovsbridge" {
                found = node.lookup(&key).map(|v| v.into_owned());
            }
            ControlFlow::Continue(())
        });
        found
    };
    assert_eq!(of_bridge("OpenFlow.Version"), Some("1.4".into()));
    assert_eq!(of_bridge("OpenFlow.State"), Some("connected".into()));

    // With the bridge go all of its rules, and with the switch back it has only its first one.
    lab.ovs.vsctl(&["del-br", "br0"]);
    wait_until("no rules", || lab.nodes("ofrule").is_empty());
    let graph = lab.graph.read().export();
    assert!(
        graph
            .nodes
            .iter()
            .all(|node| text(node, "Type") != "ofrule")
    );
    lab.ovs.add_bridge("br0");
    rules(&[first]);
}

#[test]
fn rules_and_groups_have_the_counters_of_the_switch() {
    let lab = Lab::new(Duration::from_millis(200), 10_000);
    lab.ovs.ns.ip("link set br0 up");
    lab.ovs.ns.ip("addr add 192.0.2.1/24 dev br0");
    lab.ofctl("OpenFlow14", "del-flows", &[]);
    lab.ofctl(
        "OpenFlow14",
        "add-group",
        &["group_id=123,type=all,bucket=actions=1,bucket=actions=resubmit(,1)"],
    );
    lab.add("priority=5,udp,nw_dst=192.0.2.255,tp_dst=9,actions=group:123");
    let group = lab.only("ofgroup");
    assert_eq!(int(&group, "GroupId"), Some(123));
    assert_eq!(text(&group, "GroupType"), "all");
    assert_eq!(
        text(&group, "Group"),
        "group_id=123,type=all,bucket=actions=output:1,bucket=actions=resubmit(,1)"
    );
    assert_eq!(
        json(&group, "Buckets"),
        json!([
            {"Len": 0, "Weight": 0, "WatchPort": u32::MAX, "WatchGroup": u32::MAX,
             "Actions": [{"Type": "output", "Arguments": {"MaxLen": 0, "Port": 1}}]},
            {"Len": 0, "Weight": 0, "WatchPort": u32::MAX, "WatchGroup": u32::MAX,
             "Actions": [{"Type": "resubmit", "Arguments": {"InPort": 0xfff8, "Table": 1}}]},
        ])
    );
    const PACKETS: i64 = 7;
    let send = || {
        let socket = UdpSocket::bind("192.0.2.1:0")?;
        socket.set_broadcast(true)?;
        (0..PACKETS).try_for_each(|_| socket.send_to(&[0; 58], "192.0.2.255:9").map(drop))
    };
    lab.ovs.ns.inside(send).unwrap();
    for kind in ["ofrule", "ofgroup"] {
        wait_until("all packets", || {
            int(&lab.only(kind), "Metric.RxPackets") == Some(PACKETS)
        });
        let node = lab.only(kind);
        assert_eq!(int(&node, "Metric.RxBytes"), Some(100 * PACKETS), "{kind}");
        let update = int(&node, "LastUpdateMetric.RxPackets").unwrap();
        assert!((1..=PACKETS).contains(&update), "{update}");
        let (start, last) = (
            int(&node, "LastUpdateMetric.Start"),
            int(&node, "LastUpdateMetric.Last"),
        );
        assert!(start < last && last == int(&node, "Metric.Last"));
        assert!(int(&node, "Created").is_some_and(|created| Some(created) < last));
    }
    // Without traffic nothing is written.
    let events = lab.graph.write().subscribe(1 << 12);
    std::thread::sleep(Duration::from_millis(700));
    while let Some(event) = events.try_next() {
        let skua_topology::Delivery::Event(event) = event else {
            continue;
        };
        assert!(
            !text(event.change.element(), "Type").starts_with("of"),
            "{event:?}"
        );
    }
    lab.ofctl("OpenFlow14", "del-groups", &[]);
    wait_until("no group", || lab.nodes("ofgroup").is_empty());
}

#[test]
fn beyond_the_limit_rules_are_counted() {
    let lab = Lab::new(Duration::from_millis(300), 10);
    let rules: Vec<String> = (1..=25)
        .map(|n| format!("priority={n},actions=drop"))
        .collect();
    let file = lab.ovs.path("rules");
    std::fs::write(&file, rules.join("\n")).unwrap();
    lab.ofctl("OpenFlow14", "add-flows", &[file.to_str().unwrap()]);
    let summary = |key: &str| {
        let graph = lab.graph.read();
        let nodes = graph.export().nodes;
        let bridge = nodes.iter().find(|node| text(node, "Type") == "ovsbridge");
        bridge.and_then(|node| int(node, key))
    };
    wait_until("the rest", || summary("OpenFlow.RulesOmitted") == Some(16));
    assert_eq!(summary("OpenFlow.Rules"), Some(10));
    assert_eq!(lab.nodes("ofrule").len(), 10);
    lab.ofctl("OpenFlow14", "del-flows", &[]);
    lab.add("priority=77,actions=drop");
    wait_until("all of it", || summary("OpenFlow.RulesOmitted") == Some(0));
    wait_until("one", || summary("OpenFlow.Rules") == Some(1));
}

#[test]
fn a_bridge_without_a_common_version_says_so() {
    let lab = Lab::new(Duration::from_millis(300), 10);
    lab.ovs
        .vsctl(&["set", "bridge", "br0", "protocols=OpenFlow10"]);
    let summary = |key: &str| {
        let graph = lab.graph.read();
        let nodes = graph.export().nodes;
        let bridge = nodes.iter().find(|node| text(node, "Type") == "ovsbridge");
        bridge.map(|node| text(node, key)).unwrap_or_default()
    };
    wait_until("an error", || {
        summary("OpenFlow.Error").contains("neither OpenFlow 1.3 nor 1.4")
    });
    lab.ovs
        .vsctl(&["set", "bridge", "br0", "protocols=OpenFlow10,OpenFlow13"]);
    wait_until("1.3", || summary("OpenFlow.Version") == "1.3");
    lab.add("priority=9,in_port=4,actions=drop");
    wait_until("its rules", || {
        lab.texts()
            .contains("table=0,priority=9,in_port=4 actions=drop")
    });
}
