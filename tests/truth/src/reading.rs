//! Flow levels of a packet, by the rules of `docs/accounting.md` from tshark's fields and offsets.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::conversation::{Account, Endpoint, Key, Sums, TunnelId};
use crate::expected::{Correction, Difference};
use crate::tshark::{Dissection, Layer};

/// A packet, or one inside it.
#[derive(Clone, Debug, Default)]
struct Level {
    start: u32,
    tunnel: Option<TunnelId>,
    ethernet: bool,
    vlan: [u16; MAX_TAGS],
    mac: ([u8; 16], [u8; 16]),
    ethertype: u16,
    network: u8,
    address: ([u8; 16], [u8; 16]),
    protocol: u8,
    ports: (u16, u16),
    id: u16,
    fragment: Option<Fragment>,
    /// tshark's number of the TCP stream.
    stream: u64,
    malformed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fragment {
    id: u64,
    later: bool,
}

type Datagram = (String, [u8; 16], [u8; 16], u64, u8);

/// Sums up what tshark read, and tells by name where our rules depart from it.
pub struct Reader<'a> {
    tunnels: bool,
    corrections: &'a [Correction],
    /// FCS bytes at the end of each packet, which tshark counts.
    fcs: u32,
    /// One entry per key although tshark sees several TCP streams.
    one_entry: bool,
    notes: HashMap<Datagram, ((u16, u16), u16)>,
    streams: BTreeMap<Key, BTreeSet<u64>>,
    /// The departures met.
    pub differences: BTreeSet<Difference>,
}

const EXTENSIONS: &[(&str, u8, &str)] = &[
    ("ipv6.hopopts", 0, "ipv6.hopopts.nxt"),
    ("ipv6.routing", 43, "ipv6.routing.nxt"),
    ("ipv6.fraghdr", 44, "ipv6.fraghdr.nxt"),
    ("ipv6.dstopts", 60, "ipv6.dstopts.nxt"),
    ("ah", 51, "ah.next_header"),
    ("mipv6", 135, "mip6.proto"),
    ("hip", 139, "hip.proto"),
    ("shim6", 140, "shim6.nxt"),
];

/// Most extension headers, tags, labels and levels.
const MAX_EXTENSIONS: usize = 8;
const MAX_TAGS: usize = 4;
const MAX_LABELS: usize = 8;
const MAX_LEVELS: usize = 3;

impl<'a> Reader<'a> {
    /// A reader that applies these corrections.
    pub fn new(tunnels: bool, corrections: &'a [Correction], fcs: u32, one_entry: bool) -> Self {
        Self {
            tunnels,
            corrections,
            fcs,
            one_entry,
            notes: HashMap::new(),
            streams: BTreeMap::new(),
            differences: BTreeSet::new(),
        }
    }

    /// What our flows must be.
    pub fn account(&mut self, packets: &[Dissection]) -> Account {
        let mut sums = Sums::default();
        let mut truncated = (0, 0);
        for packet in packets {
            if packet.link.is_none() {
                self.differences.insert(Difference::OtherBlocks);
                continue;
            }
            let mut length = u64::from(packet.length);
            if self.fcs > 0 {
                length -= u64::from(self.fcs);
                self.differences.insert(Difference::FrameCheckSequence);
            }
            let Some(levels) = self.levels(packet) else {
                truncated.0 += 1;
                truncated.1 += length;
                continue;
            };
            let mut parent: Option<Key> = None;
            for level in levels {
                let (mut key, from_lo) = self.key(packet, &level, parent);
                let mut time_ns = packet.time_ns;
                for correction in self.corrections {
                    if correction.packet == packet.number {
                        time_ns = correction.time_ns.unwrap_or(time_ns);
                        if let Some(interface) = correction.interface {
                            key.interface = interface.to_owned();
                        }
                    }
                }
                let bytes = length - u64::from(level.start);
                let part = if key.protocol == 6 { level.stream } else { 0 };
                let streams = self.streams.entry(key.clone()).or_default();
                streams.insert(part);
                let part = match self.one_entry {
                    true => {
                        if streams.len() > 1 {
                            self.differences.insert(Difference::StreamPerSyn);
                        }
                        0
                    }
                    false => part,
                };
                sums.add(key.clone(), part, from_lo, bytes, time_ns);
                parent = Some(key);
            }
        }
        Account {
            conversations: sums.finish(),
            truncated,
        }
    }

    fn key(&mut self, packet: &Dissection, level: &Level, parent: Option<Key>) -> (Key, bool) {
        let (ports, id) = self.fragment_ports(packet, level);
        let (from, to, detail) = match level.network {
            0 => (level.mac.0, level.mac.1, level.ethertype),
            _ => (level.address.0, level.address.1, id),
        };
        let (from, to) = (Endpoint(from, ports.0), Endpoint(to, ports.1));
        let from_lo = from <= to;
        let (lo, hi) = if from_lo { (from, to) } else { (to, from) };
        let key = Key {
            interface: packet.interface.clone(),
            parent: level
                .tunnel
                .zip(parent)
                .map(|(tunnel, outer)| outer.around(tunnel)),
            vlan: level.vlan,
            ethernet: level.ethernet,
            network: level.network,
            protocol: level.protocol,
            detail,
            lo,
            hi,
        };
        (key, from_lo)
    }

    /// Ports and identifier: of first fragments noted, of later ones taken from the notes.
    fn fragment_ports(&mut self, packet: &Dissection, level: &Level) -> ((u16, u16), u16) {
        let own = (level.ports, level.id);
        let Some(fragment) = level.fragment else {
            return own;
        };
        let datagram = (
            packet.interface.clone(),
            level.address.0,
            level.address.1,
            fragment.id,
            level.protocol,
        );
        if !fragment.later {
            // A first fragment without a readable header notes nothing.
            if !level.malformed {
                self.notes.insert(datagram, own);
            }
            return own;
        }
        match self.notes.get(&datagram) {
            Some(noted) if *noted != own => {
                self.differences.insert(Difference::LaterFragment);
                *noted
            }
            _ => own,
        }
    }

    /// The levels of a packet; none when its link header is not all there.
    fn levels(&mut self, packet: &Dissection) -> Option<Vec<Level>> {
        let mut walk = Walk {
            packet,
            at: 0,
            differences: &mut self.differences,
        };
        let mut outer = Level::default();
        walk.link(&mut outer)?;
        walk.network(&mut outer);
        let mut levels = vec![outer];
        if self.tunnels {
            while let Some(inner) = walk.inner(&levels[levels.len() - 1]) {
                if levels.len() == MAX_LEVELS {
                    walk.differences.insert(Difference::TunnelDepth);
                    break;
                }
                levels.push(inner);
            }
        }
        for correction in self.corrections {
            if correction.packet == packet.number {
                self.differences.insert(correction.difference);
                correct(&mut levels, correction);
            }
        }
        Some(levels)
    }
}

fn correct(levels: &mut Vec<Level>, correction: &Correction) {
    if let Some(keep) = correction.levels {
        levels.truncate(keep);
    }
    let Some(level) = levels.last_mut() else {
        return;
    };
    if let Some(protocol) = correction.protocol {
        level.protocol = protocol;
    }
    if let Some(ports) = correction.ports {
        level.ports = ports;
    }
    if let Some(id) = correction.id {
        level.id = id;
    }
    if let Some((source, destination)) = correction.addresses {
        level.network = if source.contains(':') { 6 } else { 4 };
        level.address = (address(source), address(destination));
    }
    if let Some(ethertype) = correction.no_ip {
        (level.network, level.protocol, level.ports, level.id) = (0, 0, (0, 0), 0);
        level.ethertype = ethertype;
    }
}

/// A walk through the layers of one packet.
struct Walk<'a> {
    packet: &'a Dissection,
    at: usize,
    differences: &'a mut BTreeSet<Difference>,
}

impl<'a> Walk<'a> {
    fn peek(&self) -> Option<&'a Layer> {
        self.packet.layers.get(self.at)
    }

    fn is(&self, name: &str) -> bool {
        self.peek().is_some_and(|layer| layer.name == name)
    }

    /// Whether `count` bytes from the layer's start were captured.
    fn has(&self, layer: &Layer, count: u32) -> bool {
        layer.pos + count <= self.packet.captured
    }

    fn link(&mut self, level: &mut Level) -> Option<()> {
        // tshark's numbers of link types: Ethernet, cooked, BSD and OpenBSD loopback.
        let least = match self.packet.link {
            Some(1) => 14,
            Some(25) => 16,
            Some(210) => 20,
            Some(15 | 174) => 4,
            _ => 0,
        };
        if self.packet.captured < least {
            return None;
        }
        let layer = self.peek();
        match layer.map(|layer| layer.name.as_str()) {
            Some("eth") => return self.ethernet(level),
            Some("raw" | "null") => self.at += 1,
            Some("nflog") => {
                self.at += 1;
                // It gives IPv6 to its dissector of IPv4, which passes it on.
                let next = self.packet.layers.get(self.at + 1);
                if next.is_some_and(|layer| layer.name == "ipv6") {
                    self.at += 1;
                }
            }
            Some("radiotap" | "wlan") => self.wireless(level),
            Some("sll") => {
                self.at += 1;
                let number = layer.and_then(|layer| layer.number("sll.etype"));
                level.ethertype = number.unwrap_or(0) as u16;
                self.tags(level);
            }
            _ => {}
        }
        Some(())
    }

    /// IEEE 802.11: what is behind LLC with SNAP.
    fn wireless(&mut self, level: &mut Level) {
        while self.is("radiotap") || self.is("wlan_radio") || self.is("wlan") {
            self.at += 1;
        }
        if let Some(layer) = self.peek().filter(|layer| layer.name == "llc") {
            self.at += 1;
            level.ethertype = layer.number("llc.type").unwrap_or(0) as u16;
            self.tags(level);
        }
    }

    fn ethernet(&mut self, level: &mut Level) -> Option<()> {
        let layer = self.peek()?;
        self.at += 1;
        // In a tunnel this may be cut off.
        if !self.has(layer, 14) {
            return None;
        }
        level.ethernet = true;
        level.mac = (mac(layer.field("eth.src")?), mac(layer.field("eth.dst")?));
        // 802.3 frames have a length instead.
        level.ethertype = layer.number("eth.type").unwrap_or(0) as u16;
        self.tags(level);
        Some(())
    }

    fn tags(&mut self, level: &mut Level) {
        let mut count = 0;
        while let Some(layer) = self.peek() {
            let (id, ethertype) = match layer.name.as_str() {
                "vlan" => ("vlan.id", "vlan.etype"),
                "ieee8021ad" => ("ieee8021ad.id", "ieee8021ah.etype"),
                _ => break,
            };
            if count == MAX_TAGS {
                self.differences.insert(Difference::FifthTag);
                break;
            }
            self.at += 1;
            if !self.has(layer, 4) {
                break;
            }
            let id = layer.number(id).or(layer.number("ieee8021ad.svid"));
            level.vlan[count] = 0x1000 | id.unwrap_or(0) as u16;
            count += 1;
            // Two 802.1ad tags are one layer for tshark, with the second tag inside.
            if let Some(inner) = layer.number("ieee8021ad.cvid")
                && count < MAX_TAGS
            {
                level.vlan[count] = 0x1000 | inner as u16;
                count += 1;
            }
            level.ethertype = layer
                .number(ethertype)
                .or(layer.number("vlan.len").map(|_| 0))
                .unwrap_or(0) as u16;
        }
        if level.ethertype < 0x0600 {
            level.ethertype = 0;
        }
    }

    fn network(&mut self, level: &mut Level) {
        let Some(layer) = self.peek() else { return };
        match layer.name.as_str() {
            "ip" => {
                level.ethertype = 0x0800;
                self.at += 1;
                self.ipv4(level, layer);
            }
            "ipv6" => {
                level.ethertype = 0x86dd;
                self.at += 1;
                self.ipv6(level, layer);
            }
            _ => {}
        }
    }

    fn ipv4(&mut self, level: &mut Level, layer: &Layer) {
        let header = layer.number("ip.hdr_len").unwrap_or(0) as u32;
        let whole = self.has(layer, header.max(20));
        let (Some(source), Some(destination)) = (layer.field("ip.src"), layer.field("ip.dst"))
        else {
            // tshark refuses what we refuse.
            level.malformed = true;
            return;
        };
        if !whole {
            self.differences.insert(Difference::CutHeader);
            level.malformed = true;
            return;
        }
        level.network = 4;
        level.address = (address(source), address(destination));
        level.protocol = layer.number("ip.proto").unwrap_or(0) as u8;
        let later = layer.number("ip.frag_offset").unwrap_or(0) != 0;
        let more = matches!(layer.field("ip.flags.mf"), Some("1" | "True"));
        if later || more {
            let id = layer.number("ip.id").unwrap_or(0);
            level.fragment = Some(Fragment { id, later });
        }
        self.transport(level);
    }

    fn ipv6(&mut self, level: &mut Level, layer: &Layer) {
        let (Some(source), Some(destination)) = (layer.field("ipv6.src"), layer.field("ipv6.dst"))
        else {
            if layer.field("ipv6.src").is_some() {
                self.differences.insert(Difference::CutHeader);
            }
            level.malformed = true;
            return;
        };
        level.network = 6;
        level.address = (address(source), address(destination));
        level.protocol = layer.number("ipv6.nxt").unwrap_or(59) as u8;
        // HIP is a layer of its own for tshark.
        let hip = self.peek().filter(|layer| layer.name == "hip");
        let mut count = 0;
        for extension in layer.inside.iter().chain(hip) {
            let Some((_, number, next)) =
                EXTENSIONS.iter().find(|(name, ..)| extension.name == *name)
            else {
                continue;
            };
            if *number != level.protocol {
                continue;
            }
            if !self.has(extension, extension_length(extension, *number)) {
                level.malformed = true;
                return;
            }
            if count == MAX_EXTENSIONS {
                self.differences.insert(Difference::NinthExtension);
                level.malformed = true;
                return;
            }
            count += 1;
            let Some(next) = extension.number(next) else {
                level.malformed = true;
                return;
            };
            level.protocol = next as u8;
            if *number == 44 {
                let later = extension.number("ipv6.fraghdr.offset").unwrap_or(0) != 0;
                let more = matches!(extension.field("ipv6.fraghdr.more"), Some("1" | "True"));
                if later || more {
                    let id = extension.number("ipv6.fraghdr.ident").unwrap_or(0);
                    level.fragment = Some(Fragment { id, later });
                }
                if later {
                    return;
                }
            }
        }
        let extension = EXTENSIONS
            .iter()
            .any(|(_, number, _)| *number == level.protocol);
        if extension {
            // Cut off before tshark could make a layer of it.
            level.malformed = true;
            return;
        }
        self.transport(level);
    }

    /// Ports, or type, code and identifier.
    fn transport(&mut self, level: &mut Level) {
        if level.fragment.is_some_and(|fragment| fragment.later) {
            return;
        }
        let (names, prefix, least): (&[&str], &str, u32) = match (level.network, level.protocol) {
            (_, 6) => (&["tcp"], "tcp", 20),
            (_, 17) => (&["udp"], "udp", 8),
            (_, 136) => (&["udplite"], "udp", 8),
            (_, 132) => (&["sctp"], "sctp", 12),
            (_, 33) => (&["dccp"], "dccp", 12),
            (4, 1) => (&["icmp"], "icmp", 4),
            (6, 58) => (&["icmpv6"], "icmpv6", 4),
            _ => return,
        };
        let Some(layer) = self
            .peek()
            .filter(|layer| names.contains(&layer.name.as_str()))
        else {
            level.malformed = true;
            return;
        };
        self.at += 1;
        let field = |name: &str| layer.number(&format!("{prefix}.{name}"));
        if matches!(prefix, "icmp" | "icmpv6") {
            self.icmp(level, layer);
            return;
        }
        let offset = field("hdr_len").filter(|_| prefix == "tcp");
        if !self.has(layer, least) || offset.is_some_and(|offset| offset < 20) {
            level.malformed = true;
            if field("srcport").is_some() {
                self.differences.insert(Difference::CutHeader);
            }
            return;
        }
        let (Some(source), Some(destination)) = (field("srcport"), field("dstport")) else {
            level.malformed = true;
            return;
        };
        level.ports = (source as u16, destination as u16);
        level.stream = field("stream").unwrap_or(0);
    }

    fn icmp(&mut self, level: &mut Level, layer: &Layer) {
        let v6 = level.network == 6;
        let prefix = if v6 { "icmpv6" } else { "icmp" };
        let field = |name: &str| layer.number(&format!("{prefix}.{name}"));
        let (Some(kind), Some(code)) = (field("type"), field("code")) else {
            level.malformed = true;
            return;
        };
        let (pairs, identified): (&[(u64, u64)], &[u64]) = match v6 {
            false => (
                &[(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)],
                &[8, 13, 15, 17],
            ),
            true => (
                &[
                    (128, 129),
                    (130, 131),
                    (133, 134),
                    (135, 136),
                    (139, 140),
                    (144, 145),
                ],
                &[128],
            ),
        };
        let pair = pairs.iter().find(|(q, r)| kind == *q || kind == *r);
        let request = pair.map_or(kind, |(request, _)| *request);
        let with_id = identified.contains(&request);
        if !self.has(layer, if with_id { 8 } else { 4 }) {
            self.differences.insert(Difference::CutHeader);
            level.malformed = true;
            return;
        }
        let ports = (request << 8 | code) as u16;
        level.ports = (ports, ports);
        if with_id {
            let id = field("ident").or(layer.number("icmpv6.echo.identifier"));
            level.id = id.unwrap_or(0) as u16;
        }
    }

    /// The packet inside of a tunnel, if it is one of those that we look into.
    fn inner(&mut self, outer: &Level) -> Option<Level> {
        let before = self.at;
        let inner = self.tunnel(outer);
        if inner.is_none() {
            // tshark goes on where we stop.
            let more = self.packet.layers[before..]
                .iter()
                .any(|layer| matches!(layer.name.as_str(), "eth" | "ip" | "ipv6") && layer.pos > 0);
            let one_tag_more = self.is("vlan") || self.is("ieee8021ad");
            if more && outer.malformed {
                self.differences.insert(Difference::Nibble);
            } else if more && !one_tag_more {
                self.differences.insert(Difference::NotOurTunnel);
            }
        }
        inner
    }

    fn tunnel(&mut self, outer: &Level) -> Option<Level> {
        if outer.malformed || outer.fragment.is_some_and(|fragment| fragment.later) {
            return None;
        }
        let layer = self.peek()?;
        let tunnel: TunnelId = match (layer.name.as_str(), outer.network, outer.protocol) {
            ("mpls", 0, _) => ("mpls", self.labels()?),
            ("mpls", 4 | 6, 17) if outer.ports.1 == 6635 => ("mpls", self.labels()?),
            ("vxlan", 4 | 6, 17) if matches!(outer.ports.1, 4789 | 8472) => {
                self.at += 1;
                let valid = matches!(layer.field("vxlan.flag_i"), Some("1" | "True"));
                let vni = layer.number("vxlan.vni").filter(|_| valid)?;
                ("vxlan", vni as u32)
            }
            ("geneve", 4 | 6, 17) if outer.ports.1 == 6081 => {
                self.at += 1;
                if layer.number("geneve.version") != Some(0) {
                    return None;
                }
                ("geneve", layer.number("geneve.vni")? as u32)
            }
            ("gre", 4 | 6, 47) => {
                self.at += 1;
                let version = layer.number("gre.flags.version");
                if version != Some(0) {
                    return None;
                }
                if self.is("mpls") {
                    self.labels()?;
                }
                match self.peek().filter(|layer| layer.name == "erspan") {
                    Some(erspan) => {
                        self.at += 1;
                        // Type I has none.
                        let session = erspan.number("erspan.spanid").unwrap_or(0);
                        ("erspan", session as u32)
                    }
                    None => ("gre", layer.number("gre.key").unwrap_or(0) as u32),
                }
            }
            ("ip" | "ipv6", 4 | 6, 4 | 41) => ("ip-in-ip", 0),
            _ => return None,
        };
        let first = self.peek()?;
        let mut level = Level {
            start: first.pos,
            tunnel: Some(tunnel),
            ..Level::default()
        };
        match (tunnel.0, first.name.as_str()) {
            ("vxlan" | "geneve" | "gre" | "erspan", "eth") => self.ethernet(&mut level)?,
            ("vxlan" | "erspan", _) => return None,
            (_, "ip" | "ipv6") => {}
            _ => return None,
        }
        self.network(&mut level);
        Some(level)
    }

    /// Steps over a label stack; the bottom label.
    fn labels(&mut self) -> Option<u32> {
        for _ in 0..MAX_LABELS {
            let layer = self.peek().filter(|layer| layer.name == "mpls")?;
            self.at += 1;
            if layer.number("mpls.bottom") == Some(1) {
                return Some(layer.number("mpls.label")? as u32);
            }
        }
        None
    }
}

/// Length of an extension header as it tells it.
fn extension_length(layer: &Layer, number: u8) -> u32 {
    let field = |name: &str| layer.number(name).unwrap_or(0) as u32;
    match number {
        44 => 8,
        51 => (field("ah.length") + 2) * 4,
        0 => (field("ipv6.hopopts.len") + 1) * 8,
        43 => (field("ipv6.routing.len") + 1) * 8,
        60 => (field("ipv6.dstopts.len") + 1) * 8,
        135 => (field("mip6.hlen") + 1) * 8,
        139 => (field("hip.hdr_len") + 1) * 8,
        _ => (field("shim6.len") + 1) * 8,
    }
}

/// An IP address as the flow key holds it.
fn address(text: &str) -> [u8; 16] {
    use std::net::IpAddr;
    match text.parse() {
        Ok(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
        Ok(IpAddr::V6(v6)) => v6.octets(),
        Err(_) => [0; 16],
    }
}

/// A MAC address as the flow key holds it.
fn mac(text: &str) -> [u8; 16] {
    let mut address = [0; 16];
    for (byte, digits) in address[10..].iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(digits, 16).unwrap_or(0);
    }
    address
}
