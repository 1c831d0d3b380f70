//! Configuration: defaults, one YAML file over them, SKUA_… variables over that, flags over all.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod actions;
pub mod addresses;
pub mod app;
pub mod arguments;
pub mod collector;
mod describe;
pub mod dpdk;
pub mod export;
pub mod lake;
pub mod networks;
pub mod plain;
mod section;
pub mod sockets;
mod startup;
pub mod steer;

pub use describe::{documentation, explain, sample, schema};
pub use startup::StartupCapture;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use skua_control::tap::Tap;
use skua_flow::{Mark, Prefix};

use crate::{
    actions::{AlertSettings, InjectionSettings},
    app::App,
    arguments::{CaptureArguments, CaptureType, ConfigArguments},
    collector::Collector,
    dpdk::Dpdk,
    export::ExportSettings,
    lake::LakeSettings,
    networks::NetworkSettings,
    section::{Key, Section as _, section},
    sockets::{IoNice, Sockets},
    steer::SteerSettings,
};

/// The default configuration file.
const DEFAULT_FILE: &str = "/etc/skua.yaml";

/// The value of `history.directory` that leaves the choice to us.
pub const AUTO: &str = "auto";

/// Prefixes in an address set at most: a gigabyte in the kernel.
const MOST_ADDRESSES: u32 = 4 << 20;

section! {
    /// The configuration.
    Config {
        /// name of this host in the graph; empty: its host name
        host: String = String::new(), flag "--host-name";
        agent: Agent;
        flow: Flow;
        sockets: Sockets;
        app: App;
        ovs: Ovs;
        ovn: Ovn;
        dpdk: Dpdk;
        topology: Topology;
        captures: Captures;
        history: History;
        export: ExportSettings;
        lake: LakeSettings;
        networks: NetworkSettings;
        collector: Collector;
        injection: InjectionSettings;
        alerts: AlertSettings;
        steer: SteerSettings;
        policy: Policy;
        /// taps that run from the start, a list; keys as in the API (docs/tap.md), in lower case: [{name: ids, from:
        /// [eth0], match: tcp or udp, to: [mon0]}]
        #[serde(with = "taps")]
        taps: Vec<Tap> = Vec::new();
        fleet: Fleet;
        api: Api;
    }
}

/// Whether an action is permitted, for all callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    #[default]
    Allowed,
    Forbidden,
}

impl Permission {
    pub fn is_allowed(self) -> bool {
        self == Self::Allowed
    }
}

section! {
    /// Permissions for changing packets; they limit the API and the rest of the configuration.
    Policy {
        /// allowed or forbidden: copying packets to monitors (`skua tap`, taps)
        tap: Permission = Permission::Allowed;
        /// allowed or forbidden: steering packets (`skua steer`, steer.detectors)
        steer: Permission = Permission::Allowed;
    }
}

section! {
    /// How an analyzer treats agents.
    Fleet {
        /// time after which the nodes of a disconnected agent are removed
        #[serde(with = "crate::time")]
        forget_after: Duration = Duration::from_secs(60);
        /// memory of an analyzer for the conversations of each capture of an agent: five eighths for flows, a quarter
        /// for owners of sockets, an eighth for interfaces
        #[serde(with = "crate::size")]
        memory: u64 = 64 << 20;
        /// PEM file with a private key of Ed25519: an analyzer signs the captures that it sends to agents
        /// (docs/fleet.md)
        signing_key: String = String::new();
    }
}

impl Config {
    /// Name of this host in the graph.
    pub fn host_name(&self) -> String {
        match &*self.host {
            "" => skua_process::host::host_name(),
            name => name.to_owned(),
        }
    }

    /// The file of a kind of resources that survive a restart, if there is one.
    pub fn resource_file(&self, kind: &str) -> Option<PathBuf> {
        // The meaning of `auto` is known once the history is open.
        let directory = self.history.directory.as_str();
        let named = !directory.is_empty() && directory != AUTO;
        named.then(|| Path::new(directory).join(format!("{kind}.json")))
    }
}

section! {
    /// Sources of packets.
    Agent {
        /// interfaces to watch, like [eth0, wlan0]; empty: all that are up, also those that come later
        interfaces: Vec<String> = Vec::new(), flag "--interface";
        /// watch the interfaces of all network namespaces (containers), not only of Skua's own
        all_netns: bool = false, flag "--all-netns";
        /// auto, ebpf, xdp, afpacket or pcap (docs/guide.md, "Capture types")
        capture_type: CaptureType = CaptureType::Auto, flag "--type";
        flow: AgentFlow;
        /// file with the kernel's BTF, for kernels without their own; empty: the kernel's own
        btf: String = String::new(), flag "--btf";
        /// lowers the agent's CPU priority: 0 (as it was started) to 19 (last)
        nice: i32 = 0;
        /// the agent's disk priority: none (as it was started), idle, best-effort:0 to 7
        ionice: String = "none".into();
        /// address of the JSON API of `skua agent`; loopback only
        listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081), flag "--listen";
        /// socket for commands to `skua agent`; auto: /run/skua-agent/skua.sock if it can be made
        socket: String = AUTO.into(), flag "--socket";
        /// PEM file with the public keys of analyzers: an agent accepts only captures that one of them
        /// signed
        analyzer_key: String = String::new(), flag "--analyzer-key";
        /// metadata of the host's node, like {rack: r7}
        metadata: serde_json::Map<String, serde_json::Value> = serde_json::Map::new();
        metadata_config: MetadataConfig;
    } skip {
        /// The only hook to use; not in the file.
        hook: Option<skua_kernel::HookKind>;
    }
}

section! {
    /// Metadata of the host's node from files.
    MetadataConfig {
        /// files with values for `Config` of the host's node, a list: [{name: rack, path: /etc/rack.yml, type: yaml,
        /// selector: location.rack}] (docs/topology.md)
        files: Vec<MetadataFile> = Vec::new();
    }
}

/// A file with metadata of the host's node, as in Skydive's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataFile {
    /// Key in `Config`.
    pub name: String,
    /// Where the file is.
    pub path: PathBuf,
    /// json, yaml, toml, ini or properties.
    pub r#type: String,
    /// Path of the value, with dots; empty: all that is in the file.
    #[serde(default)]
    pub selector: String,
}

section! {
    /// How the agent counts flows.
    AgentFlow {
        ebpf: AgentFlowEbpf;
    }
}

section! {
    /// How the kernel programs are drained.
    AgentFlowEbpf {
        /// time between drains of the flow table, at least 10ms; it is drained earlier when it fills up
        #[serde(with = "crate::time")]
        kernel_scan_interval: Duration = Duration::from_secs(10), flag "--scan-interval";
    }
}

section! {
    /// How flows are counted.
    Flow {
        /// conversations that the flow table holds between drains; bursts may use half as many more; one needs 384
        /// bytes of kernel memory
        max_entries: u32 = 500_000, flag "--max-entries";
        /// count one in this many packets; counters are not scaled up
        sampling: u32 = 1, flag "--sampling";
        /// pcap expression, like 'tcp port 443 and net 10.0.0.0/8'; only matching packets are counted
        filter: String = String::new(), flag "--filter";
        addresses: Addresses;
        /// decode VXLAN, GENEVE, GRE, IP in IP and MPLS
        tunnels: bool = false, flag "--tunnels";
        /// leave out Skua's own traffic
        exclude_self: bool = false, flag "--exclude-self";
        /// time without packets after which a conversation ends
        #[serde(with = "crate::time")]
        idle_timeout: Duration = Duration::from_secs(120);
        /// time without packets after which a closed TCP connection leaves the flow table
        #[serde(with = "crate::time")]
        closed_timeout: Duration = Duration::from_secs(5);
    }
}

section! {
    /// Addresses whose packets are counted.
    Addresses {
        /// prefixes whose packets are counted, like [10.0.0.0/8, 'fd00::/8']; empty: all but the excluded
        include: Vec<String> = Vec::new(), flag "--include-net";
        /// prefixes whose packets are left out; the longest prefix that contains an address decides
        exclude: Vec<String> = Vec::new(), flag "--exclude-net";
        /// maximum number of prefixes that `skua addresses` may add to the set; 0: the set cannot be changed, and costs
        /// nothing
        max_entries: u32 = 65_536;
    }
}

impl Addresses {
    /// The prefixes with their marks.
    pub fn marks(&self) -> anyhow::Result<Vec<(Prefix, Mark)>> {
        addresses::marks("flow.addresses.", &self.include, &self.exclude)
    }

    /// Flags: each list replaces that of the file.
    fn override_with(&mut self, include: &[String], exclude: &[String]) -> anyhow::Result<()> {
        if !include.is_empty() {
            self.include = addresses::expand("--include-net", include)?;
        }
        if !exclude.is_empty() {
            self.exclude = addresses::expand("--exclude-net", exclude)?;
        }
        Ok(())
    }
}

section! {
    /// What the graph shows besides interfaces.
    Topology {
        /// containers as nodes, with the names that their runtimes give them
        containers: bool = true;
        /// listening processes as nodes; needs sockets.enabled
        processes: bool = true;
        /// virtual machines, and other processes that hold tap or tun devices, as nodes
        guests: bool = true;
        /// BPF programs on interfaces, of any owner
        bpf: bool = true;
        /// nftables rules of hosts and namespaces, as the command nft prints them
        nftables: bool = true;
        /// switches and ports that interfaces are wired to, as these say by LLDP
        lldp: bool = true;
        /// open sockets of the host as `Sockets` of its node, at most 4,096, as Skydive's probe socketinfo; off, because each one that opens or closes is a version in the history
        sockets: bool = false;
        libvirt: Libvirt;
        instances: Instances;
    }
}

section! {
    /// Domains of libvirt in the graph; needs topology.guests.
    Libvirt {
        /// folder in which libvirt keeps the state of running domains; empty: none
        status: String = "/run/libvirt/qemu".into();
        /// folder in which libvirt keeps the definitions of domains; empty: none
        definitions: String = "/etc/libvirt/qemu".into();
    }
}

section! {
    /// Settings of containers of LXD and Incus in the graph; needs topology.containers.
    Instances {
        /// sockets of LXD, a list; empty: it is not asked
        lxd: Vec<String> = vec![
            "/var/lib/lxd/unix.socket".into(),
            "/var/snap/lxd/common/lxd/unix.socket".into(),
        ];
        /// sockets of Incus, a list; empty: it is not asked
        incus: Vec<String> = vec!["/var/lib/incus/unix.socket".into()];
    }
}

section! {
    /// Captures that people make.
    Captures {
        /// maximum number of captures at a time (`skua capture`)
        max: u32 = 64;
        /// maximum number of conversations in a capture's flow table
        max_entries: u32 = 65_536;
        /// memory for the conversations of a capture
        #[serde(with = "crate::size")]
        memory: u64 = 64 << 20;
        /// queries find only the flows of captures, as in Skydive, not those that Skua always counts
        on_demand: bool = false;
        /// captures that run from the start, a list: [{gremlin: "G.V().Has('Name', 'eth0')", type: ebpf, bpf: port 53}]
        /// (docs/captures.md)
        startup: Vec<StartupCapture> = Vec::new();
    }
}

section! {
    /// Open vSwitch of this host.
    Ovs {
        /// database of Open vSwitch, like unix:/run/openvswitch/db.sock or tcp:127.0.0.1:6640; empty: that socket if
        /// it is there; none: no Open vSwitch
        target: String = String::new();
        /// read the counters of Open vSwitch's interfaces
        statistics: bool = true;
        /// socket at which ovs-vswitchd takes commands, which ACLs() needs (docs/ovs.md); empty: ovs-vswitchd.PID.ctl
        /// beside the database's socket, else in /run/openvswitch
        control: String = String::new();
        openflow: OpenFlow;
    }
}

section! {
    /// OpenFlow rules and groups of Open vSwitch's bridges in the graph (docs/ovs.md).
    OpenFlow {
        /// read them; off, as in Skydive: each rule whose counters have grown is a version in the history at each interval
        enabled: bool = false;
        /// how often they are read, with their counters; changes of rules are in the graph at once
        #[serde(with = "crate::time")]
        interval: Duration = Duration::from_secs(10);
        /// maximum number of rules of a bridge, and of its groups
        max_rules: u32 = 10_000;
        /// folder with the bridges' sockets, BRIDGE.mgmt; empty: that of the database's socket, else /run/openvswitch
        directory: String = String::new();
    }
}

section! {
    /// OVN in the graph (docs/ovs.md), best where its databases are, or at an analyzer.
    Ovn {
        /// northbound database, like unix:/run/ovn/ovnnb_db.sock or tcp:127.0.0.1:6641; empty: none
        northbound: String = String::new();
        /// southbound database, like unix:/run/ovn/ovnsb_db.sock or tcp:127.0.0.1:6642; empty: none
        southbound: String = String::new();
        /// ACLs have the counters of their OpenFlow rules, as far as these are in the graph (ovs.openflow.enabled); reads
        /// all logical flows of the southbound database
        hits: bool = false;
        /// the rows of the databases are nodes; false on agents that read them only for ACLs(), since OVN is in the graph
        /// of an analyzer once
        nodes: bool = true;
        /// how often interfaces and rules in the graph are looked at
        #[serde(with = "crate::time")]
        interval: Duration = Duration::from_secs(10);
    }
}

impl Ovn {
    /// What is followed; none when no database is set.
    pub fn settings(&self, host: &str) -> anyhow::Result<Option<skua_ovsdb::OvnConfig>> {
        let target = |text: &str, key: &'static str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).context(key),
        };
        if self.interval < Duration::from_millis(100) {
            bail!("ovn.interval must be at least 100ms");
        }
        let settings = skua_ovsdb::OvnConfig {
            northbound: target(&self.northbound, "ovn.northbound")?,
            southbound: target(&self.southbound, "ovn.southbound")?,
            host: host.to_owned(),
            hits: self.hits,
            nodes: self.nodes,
            interval: self.interval,
            control: None,
        };
        if settings.hits && (settings.northbound.is_none() || settings.southbound.is_none()) {
            bail!("ovn.hits needs both ovn.northbound and ovn.southbound");
        }
        let none = settings.northbound.is_none() && settings.southbound.is_none();
        Ok((!none).then_some(settings))
    }
}

impl Ovs {
    /// Where its database is; none when there is none.
    pub fn database(&self) -> anyhow::Result<Option<skua_ovsdb::Target>> {
        let usual = skua_ovsdb::Target::default();
        match (self.target.as_str(), &usual) {
            ("none", _) => Ok(None),
            ("", skua_ovsdb::Target::Unix(path)) => Ok(path.exists().then_some(usual)),
            ("", _) => Ok(None),
            (text, _) => Ok(Some(text.parse().context("ovs.target")?)),
        }
    }

    /// Where ovs-vswitchd takes commands; none when there is no Open vSwitch here.
    pub fn control(&self) -> anyhow::Result<Option<skua_ovsdb::ControlSocket>> {
        Ok(match (&*self.control, self.database()?) {
            ("", None) => None,
            ("", Some(skua_ovsdb::Target::Unix(socket))) => {
                let folder = socket.parent().map(std::path::Path::to_owned);
                folder.map(skua_ovsdb::ControlSocket::Folder)
            }
            ("", Some(_)) => Some(skua_ovsdb::ControlSocket::Folder("/run/openvswitch".into())),
            (socket, _) => Some(skua_ovsdb::ControlSocket::File(socket.into())),
        })
    }

    /// How OpenFlow rules are read; none when they are not.
    pub fn rules(&self) -> anyhow::Result<Option<skua_ovsdb::RulesConfig>> {
        let OpenFlow {
            enabled,
            interval,
            max_rules,
            directory,
        } = &self.openflow;
        if *interval < Duration::from_millis(100) {
            bail!("ovs.openflow.interval must be at least 100ms");
        }
        if !*enabled {
            return Ok(None);
        }
        let usual = skua_ovsdb::RulesConfig::default();
        let folder = match (&**directory, self.database()?) {
            ("", Some(skua_ovsdb::Target::Unix(socket))) => match socket.parent() {
                Some(folder) => folder.to_owned(),
                None => usual.folder,
            },
            ("", _) => usual.folder,
            (folder, _) => folder.into(),
        };
        Ok(Some(skua_ovsdb::RulesConfig {
            folder,
            interval: *interval,
            max_rules: *max_rules as usize,
        }))
    }
}

section! {
    /// Storage on disk.
    History {
        /// memory for conversations, also ended ones: a number of bytes, or with KiB, MiB, GiB; 0: no history
        #[serde(with = "crate::size")]
        memory: u64 = 64 << 20;
        /// directory for the history of graph and flows, and for captures; one process uses it; auto: /var/lib/skua
        /// if it is writable and no other process uses it; empty: nothing is stored
        directory: String = AUTO.into();
        /// older data is deleted from the directory
        #[serde(with = "crate::time")]
        max_age: Duration = Duration::from_secs(24 * 3_600);
        /// maximum size of the graph's history there
        #[serde(with = "crate::size")]
        graph_size: u64 = 512 << 20;
        /// maximum size of the flows' history there
        #[serde(with = "crate::size")]
        flow_size: u64 = 4 << 30;
    }
}

section! {
    /// The API and its clients.
    Api {
        /// addresses of the JSON API and /metrics, one or a list; beyond loopback they need TLS and one of users,
        /// tokens and tls.client_ca (docs/api.md)
        #[serde(deserialize_with = "one_or_many")]
        listen: Vec<SocketAddr> = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8082)], flag "--listen";
        /// socket for commands on this host, without a login for root and the group skua; auto:
        /// /run/skua/skua.sock if it can be made; empty: none
        socket: String = AUTO.into(), flag "--socket";
        /// rights of users of this host who are neither root nor in the group skua at that socket: none, read or
        /// admin
        others: Others = Others::None;
        /// who can read /metrics without a login: loopback (clients on this host), login (nobody) or open (everybody)
        metrics: Metrics = Metrics::Loopback;
        /// host names by which clients reach the API, like [skua.example]; requests with another name as Host are refused
        names: Vec<String> = Vec::new();
        tls: Tls;
        /// file of users, made by `skua user`
        users: String = String::new();
        /// file of tokens, made by `skua token`
        tokens: String = String::new();
    }
}

/// Rights of users of this host at the socket who are neither root nor in the group skua.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// Nothing without a login.
    #[default]
    None,
    /// Read only.
    Read,
    /// Everything.
    Admin,
}

/// Who gets `/metrics` without a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Metrics {
    /// Clients on this host.
    #[default]
    Loopback,
    /// No one.
    Login,
    /// Everybody.
    Open,
}

section! {
    /// Files of TLS, empty when there is none.
    Tls {
        /// PEM file with the server's certificate and the intermediate ones; read again when it changes;
        /// empty: no TLS
        certificate: String = String::new();
        /// PEM file with the certificate's private key, mode 0600
        key: String = String::new();
        /// PEM file with CAs; clients with a certificate of one of them need no password
        client_ca: String = String::new();
    }
}

impl Api {
    /// Whether anyone can log in besides the users of this host.
    pub fn authenticates(&self) -> bool {
        [&self.users, &self.tokens, &self.tls.client_ca]
            .iter()
            .any(|file| !file.is_empty())
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.listen.is_empty() {
            bail!("api.listen is empty; 127.0.0.1:8082 is the usual address");
        }
        let tls = !self.tls.certificate.is_empty();
        if tls == self.tls.key.is_empty() {
            bail!("api.tls.certificate and api.tls.key belong together; set both or none");
        }
        if !self.tls.client_ca.is_empty() && !tls {
            bail!("api.tls.client_ca needs api.tls.certificate and api.tls.key");
        }
        let mut missing = Vec::new();
        if !tls {
            missing.push("api.tls.certificate and api.tls.key");
        }
        if !self.authenticates() {
            missing.push("api.users, api.tokens or api.tls.client_ca");
        }
        let far = self
            .listen
            .iter()
            .find(|a| !a.ip().to_canonical().is_loopback());
        if let Some(far) = far.filter(|_| !missing.is_empty()) {
            bail!(
                "api.listen is {far}: beyond loopback the API needs TLS and authentication; set {} \
                 (docs/api.md), or use 127.0.0.1 and an SSH tunnel",
                missing.join(" and ")
            );
        }
        Ok(())
    }
}

/// A list, or its only item.
fn one_or_many<'a, D: serde::Deserializer<'a>>(
    deserializer: D,
) -> Result<Vec<SocketAddr>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "an address like 127.0.0.1:8082, or a list of them"
    )]
    enum Written {
        One(SocketAddr),
        Many(Vec<SocketAddr>),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::One(one) => vec![one],
        Written::Many(many) => many,
    })
}

/// Taps with their keys in lower case, without defaults.
mod taps {
    use serde::{Deserialize, Deserializer, Serializer, ser::Error as _};
    use serde_json::{Map, Value};
    use skua_control::tap::Tap;

    /// `GremlinQuery`, `SourceMACs`: `gremlin_query`, `source_macs`.
    fn small(key: &str) -> String {
        let mut small = String::new();
        let mut after_small = false;
        for letter in key.chars() {
            if letter.is_ascii_uppercase() && after_small {
                small.push('_');
            }
            after_small = letter.is_ascii_lowercase();
            small.push(letter.to_ascii_lowercase());
        }
        small
    }

    fn said(tap: &Tap) -> Result<Map<String, Value>, serde_json::Error> {
        let none = serde_json::to_value(Tap::default())?;
        let all = serde_json::to_value(tap)?;
        let pairs = all.as_object().into_iter().flatten();
        let said = pairs.filter(|(key, value)| none.get(*key) != Some(*value));
        Ok(said
            .map(|(key, value)| (small(key), value.clone()))
            .collect())
    }

    pub fn serialize<S: Serializer>(taps: &[Tap], serializer: S) -> Result<S::Ok, S::Error> {
        let all: Result<Vec<_>, _> = taps.iter().map(said).collect();
        serializer.collect_seq(all.map_err(S::Error::custom)?)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<Tap>, D::Error> {
        Vec::deserialize(deserializer)
    }
}

/// Durations as text, like `10s`.
pub mod time {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*value))
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map_err(|e| {
            D::Error::custom(format!(
                "\"{text}\" is not a duration ({e}); write it like 10s"
            ))
        })
    }
}

/// Sizes as text, like `64MiB`, or a number of bytes.
pub mod size {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        match UNITS
            .iter()
            .find(|(_, unit)| *value != 0 && value.is_multiple_of(*unit))
        {
            Some((name, unit)) => serializer.collect_str(&format_args!("{}{name}", value / unit)),
            None => serializer.serialize_u64(*value),
        }
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Bytes(u64),
        Text(String),
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<u64, D::Error> {
        let text = match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => return Ok(bytes),
            Written::Text(text) => text,
        };
        parse(&text).map_err(D::Error::custom)
    }

    /// Bytes, in the syntax of flags.
    pub fn parse(text: &str) -> Result<u64, String> {
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
            .unwrap_or((text, 1));
        number
            .trim()
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(unit))
            .ok_or_else(|| format!("\"{text}\" is not a size; write it like 64MiB"))
    }
}

impl Config {
    /// Defaults, file, variables.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let file = match file {
            Some(file) => Some(file.to_owned()),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|f| f.exists()),
        };
        let config = match file {
            None => Self::default(),
            Some(file) => {
                let text = std::fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                Self::parse(&text).with_context(|| file.display().to_string())?
            }
        };
        config
            .with_variables(|name| std::env::var(name).ok())?
            .checked()
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_yaml_ng::from_str(text)
            .map_err(|error| anyhow::anyhow!(plain::in_plain_words(&error.to_string())))
    }

    /// Applies variables: SKUA_ and the key in capitals with `_` for `.`, like
    /// SKUA_FLOW_MAX_ENTRIES.
    fn with_variables(self, read: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let mut config = self;
        for key in keys() {
            let name = key.variable();
            let Some(text) = read(&name) else { continue };
            config = config
                .with_value(&key.path, &text)
                .with_context(|| format!("variable {name}"))?;
        }
        Ok(config)
    }

    fn with_value(&self, path: &str, text: &str) -> anyhow::Result<Self> {
        let mut root = serde_yaml_ng::to_value(self)?;
        let mut place = &mut root;
        for part in path.split('.') {
            place = place
                .get_mut(part)
                .with_context(|| format!("no key {path}"))?;
        }
        *place = match place {
            serde_yaml_ng::Value::Sequence(_) => {
                let parts = text
                    .split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty());
                parts.map(serde_yaml_ng::Value::from).collect()
            }
            serde_yaml_ng::Value::String(_) => text.into(),
            _ => serde_yaml_ng::from_str(text)?,
        };
        serde_yaml_ng::from_value(root).map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Applies flags.
    pub fn with_arguments(mut self, arguments: &CaptureArguments) -> anyhow::Result<Self> {
        if !arguments.interface.is_empty() {
            self.agent.interfaces.clone_from(&arguments.interface);
        }
        self.agent.all_netns |= arguments.all_netns;
        self.flow.tunnels |= arguments.tunnels;
        self.flow.exclude_self |= arguments.exclude_self;
        if let Some(filter) = &arguments.filter {
            self.flow.filter.clone_from(filter);
        }
        let (include, exclude) = (&arguments.include_net, &arguments.exclude_net);
        self.flow.addresses.override_with(include, exclude)?;
        if let Some(sampling) = arguments.sampling {
            self.flow.sampling = sampling;
        }
        if let Some(entries) = arguments.max_entries {
            self.flow.max_entries = entries;
        }
        if let Some(interval) = arguments.scan_interval {
            self.agent.flow.ebpf.kernel_scan_interval = interval;
        }
        if let Some(kind) = arguments.r#type {
            self.agent.capture_type = kind;
        }
        if let Some(btf) = &arguments.btf {
            self.agent.btf = btf
                .to_str()
                .with_context(|| format!("--btf {}: not UTF-8", btf.display()))?
                .to_owned();
        }
        if let Some(host) = &arguments.host_name {
            self.host.clone_from(host);
        }
        if let Some(hook) = arguments.hook {
            self.agent.hook = Some(hook.kind());
        }
        self.checked()
    }

    /// The error is the first invalid setting.
    pub fn checked(self) -> anyhow::Result<Self> {
        if self.flow.max_entries == 0 || self.flow.max_entries > 500_000_000 {
            bail!(
                "flow.max_entries is {}, must be 1 to 500000000",
                self.flow.max_entries
            );
        }
        if self.flow.addresses.max_entries > MOST_ADDRESSES {
            bail!("flow.addresses.max_entries must be at most {MOST_ADDRESSES}");
        }
        self.flow.addresses.marks()?;
        self.ovs.database()?;
        self.ovs.rules()?;
        self.ovn.settings("")?;
        self.dpdk.check()?;
        if self.flow.sampling == 0 {
            bail!("flow.sampling is 0, must be at least 1");
        }
        if self.agent.flow.ebpf.kernel_scan_interval < Duration::from_millis(10) {
            bail!("agent.flow.ebpf.kernel_scan_interval must be at least 10ms");
        }
        self.sockets.check()?;
        self.app.check()?;
        if !(0..=19).contains(&self.agent.nice) {
            bail!("agent.nice is {}, must be 0 to 19", self.agent.nice);
        }
        if let Err(error) = self.agent.ionice.parse::<IoNice>() {
            bail!("agent.ionice: {error}");
        }
        if !self.agent.listen.ip().to_canonical().is_loopback() {
            bail!(
                "agent.listen is {}: an agent answers on loopback only; ask the analyzer",
                self.agent.listen
            );
        }
        if self.host.len() > 255 || self.host.chars().any(char::is_control) {
            bail!("host is not a host name");
        }
        self.lake.check()?;
        self.collector.check()?;
        self.steer.declared(self.policy.steer)?;
        self.api.check()?;
        if self.alerts.commands && !self.api.authenticates() {
            bail!(
                "alerts.commands lets whoever may make alerts run programs with our rights: set \
                 api.users, api.tokens or api.tls.client_ca first (docs/alerts.md)"
            );
        }
        Ok(self)
    }
}

/// All keys, in the order of the file.
pub fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    Config::keys("", &mut keys);
    keys
}

/// Variables that are no keys of the configuration. The last are for tests and tools.
const OTHER_VARIABLES: [&str; 11] = [
    "SKUA_ANALYZER",
    "SKUA_TOKEN",
    "SKUA_CONFIG",
    "SKUA_LOG",
    "SKUA_NO_ROOT_TESTS",
    "SKUA_KERNEL_MATRIX",
    "SKUA_CACHE",
    "SKUA_DPDK",
    "SKUA_NO_DPDK",
    "SKUA_STATIC_LIBRARIES",
    "SKUA_TEST_SEED",
];

/// Warns of unknown SKUA_… variables: mostly misspelt ones.
pub fn warn_of_unknown_variables() {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(warning) = unknown_variable(&name) {
            tracing::warn!("{warning}");
        }
    }
}

/// The warning about a variable's name, if it is an unknown one of ours.
fn unknown_variable(name: &str) -> Option<String> {
    let rest = name.strip_prefix("SKUA_")?;
    let keys = keys().into_iter().map(|key| key.variable());
    let known: Vec<String> = keys
        .chain(OTHER_VARIABLES.into_iter().map(str::to_owned))
        .collect();
    if known.iter().any(|k| k == name) || rest.starts_with("MIRROR_") {
        return None;
    }
    let alike = |k: &String| strsim::normalized_damerau_levenshtein(&k["SKUA_".len()..], rest);
    let nearest = known.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    Some(match nearest {
        Some(nearest) if alike(nearest) > 0.6 => {
            format!("variable {name} is unknown and ignored (did you mean {nearest}?)")
        }
        _ => format!(
            "variable {name} is unknown and ignored; `skua config --help` lists those that mean \
             something"
        ),
    })
}

/// `skua config`: prints the effective configuration.
pub fn print(arguments: &ConfigArguments) -> anyhow::Result<()> {
    use std::io::Write as _;
    let text = if arguments.schema {
        format!("{:#}\n", schema())
    } else {
        let config = Config::load(arguments.config.as_deref())?;
        // `skua run` refuses such a file, too.
        skua_probe::Selection::new(&config.flow.filter, 1, 1).context("flow.filter")?;
        config.flow.addresses.marks()?;
        serde_yaml_ng::to_string(&config)?
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_declared_as_it_is_read() {
        fn paths(value: &serde_yaml_ng::Value, prefix: &str, found: &mut Vec<String>) {
            match value {
                // An empty one is a value: a map that the user fills.
                serde_yaml_ng::Value::Mapping(map) if !map.is_empty() => {
                    for (key, value) in map {
                        let key = key.as_str().unwrap();
                        let dot = if prefix.is_empty() { "" } else { "." };
                        paths(value, &format!("{prefix}{dot}{key}"), found);
                    }
                }
                _ => found.push(prefix.to_owned()),
            }
        }
        let mut found = Vec::new();
        let default = serde_yaml_ng::to_value(Config::default()).unwrap();
        paths(&default, "", &mut found);
        let declared: Vec<_> = keys().into_iter().map(|key| key.path).collect();
        assert_eq!(found, declared);
    }

    #[test]
    fn the_sample_is_the_default_and_fits_the_schema() {
        assert_eq!(Config::parse(&sample()).unwrap(), Config::default());
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let fits = |text: &str| {
            let value = serde_yaml_ng::from_str::<serde_json::Value>(text).unwrap();
            validator.is_valid(&value)
        };
        assert!(fits(&sample()));
        assert!(fits("{}"));
        assert!(fits("history: {memory: 1000}\napi: {listen: '[::1]:9'}"));
        for wrong in [
            "flow: {max_entires: 5}",
            "flow: {max_entries: many}",
            "agent: {interfaces: eth0}",
            "floww: {}",
        ] {
            assert!(!fits(wrong), "{wrong}");
            assert!(Config::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_key_has_a_meaning_and_a_variable_of_its_own() {
        let mut variables = std::collections::HashSet::new();
        for key in keys() {
            assert!(
                !key.meaning.is_empty() && !key.meaning.ends_with('.'),
                "{key:?}"
            );
            assert!(variables.insert(key.variable()), "{key:?}");
        }
    }

    #[test]
    fn commands_of_alerts_need_users() {
        let check = |text: &str| Config::parse(text).unwrap().checked();
        let refused = check("alerts: {commands: true}").unwrap_err().to_string();
        assert!(
            refused.contains("alerts.commands") && refused.contains("api.users"),
            "{refused}"
        );
        assert!(check("alerts: {commands: true}\napi: {users: /etc/skua/users}").is_ok());
        assert!(check("alerts: {commands: false}").is_ok());
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place_and_a_suggestion() {
        let error = Config::parse("flow:\n  max_entires: 5\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("max_entires"), "{error}");
        assert!(error.contains("line 2"), "{error}");
        assert!(error.contains("did you mean max_entries?"), "{error}");
        for (text, expected) in [
            ("flow: [1]", "flow: a list where keys should be at line 1"),
            (
                "flow: {max_entries: many}",
                "flow.max_entries: string \"many\" where a whole number of 0 or more should be",
            ),
            (
                "flow: {zzz: 1}",
                "flow: there is no key `zzz` at line 1 column 8; there are: max_entries, sampling",
            ),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn variables_stand_over_the_file() {
        let config = Config::parse(
            "flow:\n  max_entries: 5\nagent:\n  flow:\n    ebpf:\n      kernel_scan_interval: 2s\n",
        )
        .unwrap();
        let config = config
            .with_variables(|name| match name {
                "SKUA_FLOW_MAX_ENTRIES" => Some("7".into()),
                "SKUA_AGENT_INTERFACES" => Some("eth0, eth1".into()),
                "SKUA_FLOW_IDLE_TIMEOUT" => Some("1m".into()),
                "SKUA_HISTORY_MEMORY" => Some("1GiB".into()),
                _ => None,
            })
            .unwrap();
        assert_eq!(config.flow.max_entries, 7);
        assert_eq!(config.agent.interfaces, ["eth0", "eth1"]);
        assert_eq!(config.flow.idle_timeout, Duration::from_secs(60));
        assert_eq!(config.history.memory, 1 << 30);
        assert_eq!(
            config.agent.flow.ebpf.kernel_scan_interval,
            Duration::from_secs(2)
        );
    }

    #[test]
    fn unknown_variables_are_named_with_a_suggestion() {
        assert_eq!(unknown_variable("SKUA_FLOW_MAX_ENTRIES"), None);
        assert_eq!(unknown_variable("SKUA_LOG"), None);
        assert_eq!(unknown_variable("PATH"), None);
        let warning = unknown_variable("SKUA_FLOW_MAX_ENTRYS").unwrap();
        assert!(
            warning.contains("did you mean SKUA_FLOW_MAX_ENTRIES?"),
            "{warning}"
        );
        let warning = unknown_variable("SKUA_MAX_ENTRIES").unwrap();
        assert!(
            warning.contains("did you mean SKUA_FLOW_MAX_ENTRIES?"),
            "{warning}"
        );
        let warning = unknown_variable("SKUA_XYZZY").unwrap();
        assert!(!warning.contains("did you mean"), "{warning}");
    }

    #[test]
    fn taps_have_keys_in_lower_case() {
        let text = "taps:\n- from: [eth0]\n  to: [mon0]\n  match: tcp\n  source_macs: ['02:00:00:00:00:01']\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.taps[0].from, ["eth0"]);
        assert_eq!(config.taps[0].source_macs.len(), 1);
        let printed = serde_yaml_ng::to_string(&config).unwrap();
        assert!(printed.contains("source_macs:"), "{printed}");
        assert_eq!(Config::parse(&printed).unwrap(), config);
        assert!(Config::parse("taps: [{form: [eth0]}]").is_err());
        let forbidden = Config::parse("policy: {tap: forbidden}").unwrap();
        assert!(!forbidden.policy.tap.is_allowed());
    }

    #[test]
    fn a_printed_configuration_can_be_read_again() {
        let text = serde_yaml_ng::to_string(&Config::default()).unwrap();
        assert_eq!(Config::parse(&text).unwrap(), Config::default());
    }

    fn api(text: &str) -> anyhow::Result<Config> {
        Config::parse(&format!("api: {{{text}}}"))?.checked()
    }

    #[test]
    fn listening_beyond_loopback_needs_tls_and_authentication() {
        let refusal = |text: &str| api(text).unwrap_err().to_string();
        let both = refusal("listen: '0.0.0.0:8082'");
        assert!(
            both.contains("set api.tls.certificate and api.tls.key and api.users, "),
            "{both}"
        );
        let tls = refusal("listen: ['127.0.0.1:1', '[::]:8082'], users: u");
        assert!(
            tls.contains("[::]:8082") && !tls.contains("api.users"),
            "{tls}"
        );
        let users = refusal("listen: '10.0.0.1:1', tls: {certificate: c, key: k}");
        assert!(users.contains("set api.users, api.tokens or"), "{users}");
        for text in [both, tls, users] {
            assert_eq!(text.lines().count(), 1);
        }
        for fine in [
            "listen: '0.0.0.0:8082', tls: {certificate: c, key: k}, users: u",
            "listen: '0.0.0.0:8082', tls: {certificate: c, key: k}, tokens: t",
            "listen: '0.0.0.0:8082', tls: {certificate: c, key: k, client_ca: a}",
            "listen: ['127.0.0.1:1', '[::1]:1'], users: u",
        ] {
            assert!(api(fine).is_ok(), "{fine}");
        }
        for half in [
            "tls: {certificate: c}",
            "tls: {key: k}",
            "tls: {client_ca: a}",
            "listen: []",
        ] {
            assert!(api(half).is_err(), "{half}");
        }
    }

    #[test]
    fn one_address_need_not_be_a_list() {
        let one = api("listen: '127.0.0.1:9'").unwrap().api.listen;
        assert_eq!(one, ["127.0.0.1:9".parse().unwrap()]);
        let error = Config::parse("api: {listen: here}")
            .unwrap_err()
            .to_string();
        assert!(error.contains("an address like 127.0.0.1:8082"), "{error}");
    }
}
