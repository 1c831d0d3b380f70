//! From what people write of a tap to what it does.

use super::{Holders, Tap, TapDirection};
use crate::injection::endpoint::mac;
use skua_flow::Prefix;
use skua_sources::ask;
use skua_tap::{AddressSelection, Direction, Role, Space, Spec, TapChoice, Target, Tunnel};
use std::net::{IpAddr, SocketAddr};

/// Addresses in all lists of a tap at most.
const ADDRESSES: usize = 100_000;
/// Sources by name, and monitors, at most.
const NAMES: usize = 1_024;
const MONITORS: usize = 32;
/// The least that a packet can be cut to: an Ethernet header with IPv6 and TCP behind two tags.
const LEAST_CUT: u32 = 64;
const MOST_CUT: u32 = 65_535;

/// In place of a monitor: who watches has the packets.
pub(super) const STREAM: &str = "stream";

/// An interface with its namespace: `eth0`, `eth0@NAME`, `eth0@pid:NUMBER`.
fn place(text: &str) -> Result<(String, Space), String> {
    let (name, space) = match text.split_once('@') {
        None => (text, Space::Own),
        Some((name, rest)) => (name, space(rest)?),
    };
    // dev_valid_name of the kernel (net/core/dev.c).
    let fits = (1..16).contains(&name.len())
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if !fits || name == "." || name == ".." {
        return Err(format!(
            "\"{text}\" is no interface; write it like eth0, or eth0@NAMESPACE"
        ));
    }
    Ok((name.to_owned(), space))
}

/// A namespace behind `@`.
fn space(text: &str) -> Result<Space, String> {
    match text.strip_prefix("pid:") {
        Some(pid) => match pid.parse() {
            Ok(pid) => Ok(Space::Process(pid)),
            Err(_) => Err(format!("\"{pid}\" is no process number")),
        },
        None if text.is_empty() => Err("there is no namespace behind @".into()),
        None => Ok(Space::Named(text.to_owned())),
    }
}

fn target(text: &str) -> Result<Target, String> {
    let tunnel = Tunnel::ALL.into_iter().find_map(|tunnel| {
        let rest = text.strip_prefix(tunnel.name())?.strip_prefix("://")?;
        Some((tunnel, rest))
    });
    match tunnel {
        Some((tunnel, rest)) => remote(tunnel, rest).map_err(|why| {
            let name = tunnel.name();
            format!("\"{text}\": {why}; write it like {name}://192.0.2.9/42")
        }),
        None => {
            let (name, space) = place(text)?;
            Ok(Target::Interface { name, space })
        }
    }
}

/// `ADDRESS[:PORT]/ID[@NAMESPACE]`; an IPv6 address stands in brackets.
fn remote(tunnel: Tunnel, text: &str) -> Result<Target, String> {
    let (text, space) = match text.split_once('@') {
        Some((text, name)) => (text, space(name)?),
        None => (text, Space::Own),
    };
    let (address, id) = text.split_once('/').unwrap_or((text, "0"));
    let alone = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let (remote, port) = match (address.parse::<SocketAddr>(), tunnel.port()) {
        (Ok(_), 0) => return Err("it has no port".into()),
        (Ok(address), _) if address.port() == 0 => return Err("0 is no port".into()),
        (Ok(address), _) => (address.ip(), address.port()),
        (Err(_), port) => match alone.unwrap_or(address).parse::<IpAddr>() {
            Ok(address) => (address, port),
            Err(_) => return Err(format!("\"{address}\" is no address")),
        },
    };
    let most = tunnel.most_id();
    let id = id.parse().ok().filter(|id| *id <= most);
    Ok(Target::Tunnel {
        tunnel,
        remote,
        port,
        id: id.ok_or_else(|| format!("its number is 0 to {most}"))?,
        space,
    })
}

/// The expression, without what the tap's own tunnels carry: else a tap of the interface that they leave
/// by, or of one further on, would copy copies.
fn expression(tap: &Tap, targets: &[Target]) -> String {
    let own: Vec<_> = targets.iter().filter_map(Target::own_packets).collect();
    let asked = tap.r#match.trim();
    match (asked, own.is_empty()) {
        (_, true) => asked.to_owned(),
        ("", false) => format!("not ({})", own.join(" or ")),
        (_, false) => format!("({asked}) and not ({})", own.join(" or ")),
    }
}

fn addresses(tap: &Tap) -> Result<AddressSelection, String> {
    let mut addresses = AddressSelection::default();
    let nets = [
        (&tap.nets, Role::EITHER),
        (&tap.source_nets, Role::SOURCE),
        (&tap.destination_nets, Role::DESTINATION),
    ];
    let macs = [
        (&tap.macs, Role::EITHER),
        (&tap.source_macs, Role::SOURCE),
        (&tap.destination_macs, Role::DESTINATION),
    ];
    let lists = nets.iter().chain(&macs);
    if lists.map(|(list, _)| list.len()).sum::<usize>() > ADDRESSES {
        return Err(format!("more than {ADDRESSES} addresses"));
    }
    for (list, role) in nets {
        for text in list {
            let prefix: Prefix = text.parse().map_err(|error| format!("{error}"))?;
            addresses.add_prefix(prefix, role);
        }
    }
    for (list, role) in macs {
        for text in list {
            addresses.add_mac(mac(text)?, role);
        }
    }
    Ok(addresses)
}

/// What a tap is to do.
///
/// # Errors
/// What is wrong with it, in words.
pub fn spec(tap: &Tap) -> Result<Spec, String> {
    if tap.from.is_empty() && tap.gremlin_query.trim().is_empty() {
        return Err("From or GremlinQuery is missing: whose packets are to be copied?".into());
    }
    if tap.from.len() > NAMES {
        return Err(format!("From: at most {NAMES} interfaces"));
    }
    if !tap.gremlin_query.trim().is_empty() {
        ask::check_nodes(&tap.gremlin_query)?;
    }
    if tap.to.is_empty() {
        return Err("To is missing: where are copies to go?".into());
    }
    if tap.to.len() > MONITORS {
        return Err(format!("To: at most {MONITORS} monitors"));
    }
    let wrong = |key: &str| {
        let key = key.to_owned();
        move |error: String| format!("{key}: {error}")
    };
    let sources: Result<Vec<_>, _> = tap.from.iter().map(|text| place(text)).collect();
    let sources = sources.map_err(wrong("From"))?;
    let streams = tap.to.iter().filter(|text| *text == STREAM).count();
    if streams > 0 && tap.to.len() > 1 {
        return Err(format!("To: \"{STREAM}\" goes with no monitor"));
    }
    if streams > 0 && (tap.vlan > 0 || tap.whole) {
        return Err(format!("To: \"{STREAM}\" has neither VLAN nor Whole"));
    }
    let monitors = tap.to.iter().filter(|text| *text != STREAM);
    let targets: Result<Vec<_>, _> = monitors.map(|text| target(text)).collect();
    let mut targets = targets.map_err(wrong("To"))?;
    targets.sort();
    targets.dedup();
    for target in &targets {
        let Target::Interface { name, space } = target else {
            continue;
        };
        if sources
            .iter()
            .any(|source| *source == (name.clone(), space.clone()))
        {
            return Err(format!(
                "{name} is a source and a monitor: its copies would be copied again"
            ));
        }
    }
    if tap.sampling == 0 {
        return Err("Sampling: one packet of how many? At least 1".into());
    }
    if tap.cut != 0 && !(LEAST_CUT..=MOST_CUT).contains(&tap.cut) {
        return Err(format!(
            "Cut: {LEAST_CUT} to {MOST_CUT} bytes, or 0 for whole packets"
        ));
    }
    if tap.vlan > 4_094 {
        return Err("VLAN: 1 to 4094, or 0 for no tag".into());
    }
    let tunnels = targets.iter().any(|target| target.own_packets().is_some());
    if tap.whole && tunnels {
        return Err("Whole: a tunnel takes no super-packets".into());
    }
    if tap.whole && tap.cut > 0 {
        return Err("Whole and Cut: what is cut is not whole".into());
    }
    if !tap.r#match.trim().is_empty() {
        let ethernet = skua_filter::LinkType::Ethernet;
        skua_filter::Filter::compile(&tap.r#match, ethernet)
            .map_err(|error| format!("Match: {error}"))?;
    }
    let holders = Holders::of(tap);
    holders.check()?;
    let choice = TapChoice {
        filter: expression(tap, &targets),
        addresses: addresses(tap)?,
        sockets: !holders.is_empty(),
        sampling: tap.sampling,
        packet_rate: tap.packet_rate,
        bit_rate: tap.bit_rate,
        dedup: tap.dedup,
        balance: targets.len() > 1,
        cut: tap.cut,
        vlan: tap.vlan,
        ..TapChoice::default()
    };
    Ok(Spec {
        sources,
        choice,
        directions: match tap.direction {
            TapDirection::Both => vec![Direction::Ingress, Direction::Egress],
            TapDirection::In => vec![Direction::Ingress],
            TapDirection::Out => vec![Direction::Egress],
        },
        targets,
        whole: tap.whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tap(from: &[&str], to: &[&str]) -> Tap {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Tap {
            from: texts(from),
            to: texts(to),
            ..Tap::default()
        }
    }

    fn wrong(change: impl FnOnce(&mut Tap)) -> String {
        let mut tap = tap(&["eth0"], &["mon0"]);
        change(&mut tap);
        spec(&tap).unwrap_err()
    }

    #[test]
    fn places_are_understood() {
        let spec = spec(&tap(&["eth0", "tap3@vm", "a@pid:17"], &["mon0@ids"])).unwrap();
        let spaces: Vec<_> = spec
            .sources
            .iter()
            .map(|(_, space)| space.clone())
            .collect();
        assert_eq!(
            spaces,
            [Space::Own, Space::Named("vm".into()), Space::Process(17)]
        );
        assert_eq!(spec.targets[0].to_string(), "mon0@ids");
        for name in [
            "",
            "a/b",
            "a b",
            "@x",
            "eth0@",
            "e@pid:x",
            "sixteen-letters-",
        ] {
            assert!(place(name).is_err(), "{name}");
        }
    }

    #[test]
    fn tunnels_are_understood_and_leave_themselves_out() {
        for (text, shown) in [
            ("vxlan://192.0.2.9/42", "vxlan://192.0.2.9:4789/42"),
            (
                "vxlan://192.0.2.9:8472/42@ids",
                "vxlan://192.0.2.9:8472/42@ids",
            ),
            ("geneve://[fd00::9]/7", "geneve://[fd00::9]:6081/7"),
            ("erspan://fd00::9/1023", "erspan://[fd00::9]/1023"),
        ] {
            assert_eq!(target(text).unwrap().to_string(), shown);
            assert_eq!(target(shown).unwrap().to_string(), shown);
        }
        for text in [
            "vxlan://x/1",
            "vxlan://192.0.2.9/16777216",
            "erspan://192.0.2.9/1024",
            "erspan://192.0.2.9:5/1",
            "geneve://192.0.2.9:0/1",
            "geneve://192.0.2.9/1@",
        ] {
            assert!(
                target(text).unwrap_err().contains("write it like"),
                "{text}"
            );
        }
        let mut tap = tap(&["eth0"], &["vxlan://192.0.2.9/42", "erspan://fd00::9/1"]);
        let own = "not ((ip dst host 192.0.2.9 and udp dst port 4789) or \
                   (ip6 dst host fd00::9 and ip6 proto 47))";
        // Sorted by kind.
        assert_eq!(spec(&tap).unwrap().choice.filter, own);
        tap.r#match = "tcp or udp".into();
        let both = spec(&tap).unwrap().choice.filter;
        assert_eq!(both, format!("(tcp or udp) and {own}"));
        let ethernet = skua_filter::LinkType::Ethernet;
        assert!(skua_filter::Filter::compile(&both, ethernet).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(wrong(|tap| tap.from.clear()).contains("From or GremlinQuery is missing"));
        assert!(wrong(|tap| tap.to.clear()).contains("To is missing"));
        assert!(wrong(|tap| tap.to = vec!["eth0".into()]).contains("copied again"));
        assert!(wrong(|tap| tap.gremlin_query = "G.Flows()".into()).contains("yields no nodes"));
        assert!(wrong(|tap| tap.r#match = "tcp prot 80".into()).contains("Match"));
        assert!(wrong(|tap| tap.sampling = 0).contains("Sampling"));
        assert!(wrong(|tap| tap.cut = 10).contains("Cut"));
        assert!(wrong(|tap| tap.vlan = 4_095).contains("VLAN"));
        assert!(wrong(|tap| tap.nets = vec!["10.0.0.0/33".into()]).contains("prefix"));
        assert!(wrong(|tap| tap.macs = vec!["xx".into()]).contains("MAC"));
        assert!(wrong(|tap| tap.processes = vec![" ".into()]).contains("Processes"));
        assert!(wrong(|tap| tap.services = vec!["a".into(); 257]).contains("at most 256"));
    }
}
