//! Injections that run, within limits.

use super::{
    PacketInjection,
    endpoint::{self, Endpoint, Hop},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use skua_inject::{
    Addresses, Frames, InjectError, Injection, Job, MAX_FILE_BYTES, Mac, Outcome, State, Template,
    find_mac,
};
use skua_topology::SharedGraph;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// How long is waited for the last packets to arrive and be answered.
const PATIENCE: Duration = Duration::from_secs(2);

/// Injections that are shown after they have ended.
const REMEMBERED: usize = 100;

/// Ports that are chosen by chance, as hosts choose them (RFC 6335 section 6).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// What injections may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InjectionLimits {
    /// Whether there may be any.
    pub enabled: bool,
    /// Packets per second of each at most.
    pub rate: u32,
    /// How many may run at a time.
    pub at_once: usize,
    /// Packets of each at most.
    pub packets: u64,
}

impl Default for InjectionLimits {
    /// Eight at a time, of 100,000 packets at 1,000 a second.
    fn default() -> Self {
        Self {
            enabled: true,
            rate: 1_000,
            at_once: 8,
            packets: 100_000,
        }
    }
}

/// Why nothing is injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectionError {
    /// The configuration does not allow it.
    #[error("packet injection is forbidden here (injection.enabled)")]
    Forbidden,
    /// Something is wrong with what is asked for.
    #[error("{0}")]
    Wrong(String),
    /// As many run as may.
    #[error("{0} injections run already, which is the most (injection.at_once)")]
    TooMany(usize),
    /// There is no such injection.
    #[error("there is no injection {0}")]
    Unknown(String),
}

impl From<InjectError> for InjectionError {
    fn from(error: InjectError) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// An ICMP error that came back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct IcmpErrorView {
    /// Who sent it.
    #[schema(value_type = String)]
    pub from: IpAddr,
    /// Its type.
    pub r#type: u8,
    /// Its code.
    pub code: u8,
    /// What that means.
    pub meaning: &'static str,
    /// How many came.
    pub count: u64,
}

/// An injection and its status.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct InjectionView {
    /// What was asked for, with addresses and ports that were found for it.
    #[serde(flatten)]
    pub asked: PacketInjection,
    /// Tracking identifier of the (first) conversation: that of its flows.
    #[serde(rename = "TrackingID", skip_serializing_if = "String::is_empty")]
    pub tracking_id: String,
    /// `running`, `done`, `stopped` or `failed`.
    pub state: &'static str,
    /// `pending`, `answered`, `arrived`, `refused`, `lost`, `unanswered` or `failed`.
    pub outcome: &'static str,
    /// Why it could not go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Packets that the interface took.
    pub sent: u64,
    /// Packets that it had no room for.
    pub refused: u64,
    /// Packets that were seen at the destination, when `Dst` names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
    /// Packets that came back.
    pub answered: u64,
    /// TCP resets among them.
    pub resets: u64,
    /// ICMP errors that came back.
    #[serde(rename = "ICMPErrors", skip_serializing_if = "Vec::is_empty")]
    pub icmp_errors: Vec<IcmpErrorView>,
    /// When it began, ms since the Unix epoch, text in JSON.
    #[serde(with = "crate::skydive::time")]
    #[schema(value_type = String, format = DateTime)]
    pub start_time: i64,
}

struct Entry {
    asked: PacketInjection,
    injection: Injection,
    /// Order of making.
    number: u64,
}

impl Entry {
    fn view(&self) -> InjectionView {
        let status = self.injection.status();
        let id = self.injection.tracking_id();
        InjectionView {
            asked: self.asked.clone(),
            tracking_id: id.map_or_else(String::new, |id| format!("{id:016x}")),
            state: status.state.name(),
            outcome: status.outcome().name(),
            sent: status.sent,
            refused: status.refused,
            arrived: status.arrived,
            answered: status.answered,
            resets: status.resets,
            icmp_errors: status
                .icmp_errors
                .iter()
                .map(|error| IcmpErrorView {
                    from: error.from,
                    r#type: error.kind,
                    code: error.code,
                    meaning: error.meaning(),
                    count: error.count,
                })
                .collect(),
            start_time: status.started,
            error: status.error,
        }
    }

    fn runs(&self) -> bool {
        self.injection.status().state == State::Running
    }
}

#[derive(Default)]
struct Entries {
    by_id: BTreeMap<Uuid, Entry>,
    next: u64,
}

/// All injections of this process.
pub struct Injections {
    graph: SharedGraph,
    /// Name of this host.
    host: Box<str>,
    limits: InjectionLimits,
    entries: Mutex<Entries>,
    /// Injections that are being made.
    making: AtomicUsize,
}

/// Counts one that is being made.
struct Making<'a>(&'a AtomicUsize);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Injections {
    /// None yet.
    pub fn new(graph: SharedGraph, host: &str, limits: InjectionLimits) -> Self {
        Self {
            graph,
            host: host.into(),
            limits,
            entries: Mutex::default(),
            making: AtomicUsize::new(0),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Nothing panics half-way through a change.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an injection, which may take a second when the MAC address of the next hop must be resolved.
    pub fn create(
        &self,
        asked: PacketInjection,
        who: &str,
    ) -> Result<InjectionView, InjectionError> {
        if !self.limits.enabled {
            tracing::warn!(who, "packet injection was asked for, which is forbidden");
            return Err(InjectionError::Forbidden);
        }
        let _making = self.reserve()?;
        let (asked, job) = self.plan(asked).map_err(InjectionError::Wrong)?;
        let asked = PacketInjection {
            uuid: Uuid::new_v4(),
            ..asked
        };
        let interface = job.source.name.clone();
        let injection = Injection::start(job)?;
        tracing::info!(
            who,
            id = %asked.uuid,
            interface,
            kind = asked.r#type,
            from = asked.src_ip,
            to = asked.dst_ip,
            count = asked.count,
            file = asked.pcap.is_some(),
            "packets are injected"
        );
        let asked = PacketInjection {
            // The file is not needed again.
            pcap: None,
            ..asked
        };
        let mut entries = self.entries();
        entries.next += 1;
        let entry = Entry {
            number: entries.next,
            asked,
            injection,
        };
        let view = entry.view();
        entries.by_id.insert(entry.asked.uuid, entry);
        let forgotten = Self::forget(&mut entries);
        drop(entries);
        drop(forgotten);
        Ok(view)
    }

    /// Namespaces of other hosts may have the numbers of ours.
    fn is_here(&self, endpoint: &Endpoint) -> Result<(), String> {
        let host = &*endpoint.node.host;
        match *host == *self.host {
            true => Ok(()),
            false => Err(format!(
                "{} is on {host}; packets are injected on {} only",
                endpoint.point.name, self.host
            )),
        }
    }

    fn reserve(&self) -> Result<Making<'_>, InjectionError> {
        let making = self.making.fetch_add(1, Ordering::AcqRel);
        let reserved = Making(&self.making);
        let running = self.entries().by_id.values().filter(|e| e.runs()).count();
        match making + running >= self.limits.at_once {
            true => Err(InjectionError::TooMany(self.limits.at_once)),
            false => Ok(reserved),
        }
    }

    /// Takes away the oldest that have ended and are too many.
    fn forget(entries: &mut Entries) -> Vec<Entry> {
        let mut ended: Vec<(u64, Uuid)> = entries
            .by_id
            .iter()
            .filter(|(_, entry)| !entry.runs())
            .map(|(id, entry)| (entry.number, *id))
            .collect();
        ended.sort_unstable();
        ended.truncate(ended.len().saturating_sub(REMEMBERED));
        let ids = ended.into_iter();
        ids.filter_map(|(_, id)| entries.by_id.remove(&id))
            .collect()
    }

    /// All that run or have ended not long ago.
    pub fn list(&self) -> Vec<InjectionView> {
        self.entries().by_id.values().map(Entry::view).collect()
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Result<InjectionView, InjectionError> {
        let id = known(id)?;
        let entries = self.entries();
        let entry = entries.by_id.get(&id);
        entry
            .map(Entry::view)
            .ok_or_else(|| InjectionError::Unknown(id.to_string()))
    }

    /// Ends one and forgets it.
    pub fn delete(&self, id: &str) -> Result<InjectionView, InjectionError> {
        let id = known(id)?;
        let entry = self.entries().by_id.remove(&id);
        let entry = entry.ok_or_else(|| InjectionError::Unknown(id.to_string()))?;
        entry.injection.stop();
        Ok(InjectionView {
            state: entry.injection.wait(PATIENCE).state.name(),
            ..entry.view()
        })
    }

    /// Finds everything that was not said.
    fn plan(&self, mut asked: PacketInjection) -> Result<(PacketInjection, Job), String> {
        asked.count = asked.count.max(1);
        if asked.src.is_empty() {
            return Err("Src is missing: a query that finds the interface to send at".into());
        }
        let source = Endpoint::find(&self.graph, &asked.src, "Src")?;
        self.is_here(&source)?;
        let destination = match &*asked.dst {
            "" => None,
            query => Some(Endpoint::find(&self.graph, query, "Dst")?),
        };
        if let Some(destination) = &destination {
            self.is_here(destination)?;
        }
        let frames = match &asked.pcap {
            Some(text) => file(text, source.point.ethernet)?,
            None => {
                let template = self.template(&mut asked, &source, destination.as_ref())?;
                Frames::Made {
                    template,
                    payload: asked.payload()?,
                    growth: asked.increment_payload,
                    mode: asked.mode()?,
                    seed: Uuid::new_v4().as_u64_pair().0,
                }
            }
        };
        let (total, most) = (frames.total(asked.count), self.limits.packets);
        if total > most {
            return Err(format!(
                "{total} packets: at most {most} (injection.packets)"
            ));
        }
        let job = Job {
            source: source.point,
            destination: destination.map(|end| end.point),
            frames,
            count: asked.count,
            interval: Duration::from_millis(asked.interval),
            rate: self.limits.rate,
            patience: PATIENCE,
        };
        Ok((asked, job))
    }

    fn template(
        &self,
        asked: &mut PacketInjection,
        source: &Endpoint,
        destination: Option<&Endpoint>,
    ) -> Result<Template, String> {
        let kind = asked.kind()?;
        let flags = asked.flags()?;
        let ipv6 = kind.is_ipv6();
        let mut from = given(&asked.src_ip, "SrcIP")?;
        let mut to = given(&asked.dst_ip, "DstIP")?;
        match destination {
            Some(end) if from.is_none() && to.is_none() => {
                (from, to) = source.addresses_to(end, ipv6);
            }
            _ => {
                to = to.or_else(|| destination?.address(ipv6, from));
                from = from.or_else(|| source.address(ipv6, to));
            }
        }
        let version = if ipv6 { "IPv6" } else { "IPv4" };
        let from = from
            .ok_or_else(|| format!("{} has no {version} address; give SrcIP", source.point.name))?;
        let to = to.ok_or_else(|| match destination {
            Some(end) => format!("{} has no {version} address; give DstIP", end.point.name),
            None => "where to? Dst finds an interface, DstIP is an address".into(),
        })?;
        let macs = match source.point.ethernet {
            true => Some(self.macs(asked, source, from, to)?),
            false => None,
        };
        if kind.has_ports() {
            let chosen = |port: &mut u16| {
                if *port == 0 {
                    let chance = Uuid::new_v4().as_u128() as u16;
                    *port = EPHEMERAL.start() + chance % EPHEMERAL.len() as u16;
                }
                *port
            };
            chosen(&mut asked.src_port);
            chosen(&mut asked.dst_port);
        }
        (asked.src_ip, asked.dst_ip) = (from.to_string(), to.to_string());
        if let Some((source, destination)) = macs {
            asked.src_mac = written(source);
            asked.dst_mac = written(destination);
        }
        asked.icmp_id = asked.icmp_id.max(1);
        if asked.ttl == 0 {
            asked.ttl = 64;
        }
        Ok(Template {
            kind,
            addresses: Addresses { macs, from, to },
            source_port: asked.src_port,
            destination_port: asked.dst_port,
            icmp_id: asked.icmp_id,
            sequence: 1,
            flags,
            ttl: asked.ttl,
        })
    }

    /// MAC addresses of the sender and the next hop.
    fn macs(
        &self,
        asked: &PacketInjection,
        source: &Endpoint,
        from: IpAddr,
        to: IpAddr,
    ) -> Result<(Mac, Mac), String> {
        let own = match &*asked.src_mac {
            "" if source.point.loopback => [0; 6],
            "" => source
                .mac
                .ok_or_else(|| format!("{} has no MAC address; give SrcMAC", source.point.name))?,
            text => endpoint::mac(text)?,
        };
        let next = match &*asked.dst_mac {
            "" => match source.next_hop(&self.graph, to)? {
                Hop::Mac(mac) => mac,
                Hop::Ask(hop) => {
                    find_mac(&source.point, own, from, hop).map_err(|error| error.to_string())?
                }
            },
            text => endpoint::mac(text)?,
        };
        Ok((own, next))
    }
}

fn known(id: &str) -> Result<Uuid, InjectionError> {
    let shown = || id.chars().filter(|c| !c.is_control()).take(64).collect();
    Uuid::parse_str(id).map_err(|_| InjectionError::Unknown(shown()))
}

/// An address that was said, also with the length of its prefix.
fn given(text: &str, what: &str) -> Result<Option<IpAddr>, String> {
    let address = text.split('/').next().unwrap_or_default();
    match address {
        "" => Ok(None),
        address => match address.parse() {
            Ok(address) => Ok(Some(address)),
            Err(_) => Err(format!("{what}: \"{text}\" is no IP address")),
        },
    }
}

fn written([a, b, c, d, e, f]: Mac) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn file(text: &str, ethernet: bool) -> Result<Frames, String> {
    // Four letters for three bytes.
    if text.len() / 4 * 3 > MAX_FILE_BYTES + 3 {
        return Err(format!("Pcap: at most {MAX_FILE_BYTES} bytes"));
    }
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| format!("Pcap: no base64: {error}"))?;
    Frames::from_file(&bytes, ethernet).map_err(|error| error.to_string())
}

/// Whether a check of a path that has ended went well: an answer came, or for what has none, packets
/// arrived.
pub fn went_well(outcome: &str, arrival_is_enough: bool) -> bool {
    outcome == Outcome::Answered.name() || (arrival_is_enough && outcome == Outcome::Arrived.name())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn injections(limits: InjectionLimits) -> Injections {
        let graph = SharedGraph::new(skua_topology::Config::default());
        let metadata = serde_json::json!({
            "Name": "a0", "NetNsInode": 1, "IfIndex": 2, "MAC": "02:00:00:00:00:01",
            "IPV4": ["10.0.0.1/24"],
        });
        let metadata = serde_json::from_value(metadata).unwrap();
        let node = skua_topology::Node::new("a", "h", metadata);
        graph.write().add_node(node, 1).unwrap();
        Injections::new(graph, "h", limits)
    }

    fn refused(limits: InjectionLimits, asked: serde_json::Value) -> String {
        let asked = serde_json::from_value(asked).unwrap();
        let error = injections(limits).create(asked, "a test").unwrap_err();
        error.to_string()
    }

    #[test]
    fn nothing_is_injected_for_a_node_of_another_host() {
        let elsewhere = injections(InjectionLimits::default());
        let elsewhere = Injections::new(elsewhere.graph, "other", InjectionLimits::default());
        let asked = serde_json::json!({"Src": "G.V('a')", "DstIP": "10.0.0.2", "Type": "icmp4"});
        let asked = serde_json::from_value(asked).unwrap();
        let error = elsewhere.create(asked, "a test").unwrap_err().to_string();
        assert_eq!(error, "a0 is on h; packets are injected on other only");
    }

    #[test]
    fn limits_are_kept() {
        let usual = InjectionLimits::default();
        let good = serde_json::json!({
            "Src": "G.V()", "DstIP": "10.0.0.2", "DstMAC": "02:00:00:00:00:02", "Count": 7,
        });
        // All is right but the namespace, which is checked last.
        assert!(refused(usual, good.clone()).contains("inode number 1"));
        let none = InjectionLimits {
            at_once: 0,
            ..usual
        };
        assert!(refused(none, good.clone()).contains("injection.at_once"));
        let few = InjectionLimits {
            packets: 6,
            ..usual
        };
        assert!(refused(few, good.clone()).contains("7 packets: at most 6"));
        let forbidden = InjectionLimits {
            enabled: false,
            ..usual
        };
        assert!(refused(forbidden, good).contains("forbidden"));
    }

    #[test]
    fn wrong_injections_are_refused() {
        let usual = InjectionLimits::default();
        for (change, says) in [
            (serde_json::json!({"Src": ""}), "Src is missing"),
            (serde_json::json!({"DstIP": ""}), "where to?"),
            (serde_json::json!({"DstIP": "10.0.0.300"}), "no IP address"),
            (serde_json::json!({"Type": "igmp"}), "is not a type"),
            (serde_json::json!({"Type": "udp6"}), "no IPv6 address"),
            (serde_json::json!({"Mode": "x"}), "is no mode"),
            (serde_json::json!({"TCPFlags": "X"}), "no TCP flag"),
            (serde_json::json!({"DstMAC": "x"}), "no MAC address"),
            (serde_json::json!({"Pcap": "?"}), "no base64"),
            (serde_json::json!({"Pcap": "AAAA"}), "capture file"),
            (
                serde_json::json!({"Payload": "x", "PayloadSize": 1}),
                "not both",
            ),
            (serde_json::json!({"PayloadSize": 65_001}), "at most 65000"),
            (
                serde_json::json!({"IncrementPayload": 40_000, "Count": 3}),
                "at most 65000",
            ),
        ] {
            let mut asked = serde_json::json!({
                "Src": "G.V()", "DstIP": "10.0.0.2", "DstMAC": "02:00:00:00:00:02",
            });
            for (key, value) in change.as_object().unwrap() {
                asked[key] = value.clone();
            }
            let error = refused(usual, asked);
            assert!(error.contains(says), "{change}: {error}");
        }
    }
}
