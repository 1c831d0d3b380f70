//! Names in expressions that libpcap would resolve outside: of hosts, networks and stations.
//!
//! libpcap calls the resolver (so perhaps the DNS) for each word that is neither a keyword nor a number nor
//! an address, unless it is the name of a port or a protocol; those are in local files.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::token::{Token, tokens};

/// The keywords of libpcap 1.9 and later, without those of link types that are not here.
const KEYWORDS: [&str; 133] = [
    "dst",
    "src",
    "link",
    "ether",
    "ppp",
    "slip",
    "fddi",
    "tr",
    "wlan",
    "arp",
    "rarp",
    "ip",
    "sctp",
    "tcp",
    "udp",
    "icmp",
    "igmp",
    "igrp",
    "pim",
    "vrrp",
    "carp",
    "radio",
    "ip6",
    "icmp6",
    "ah",
    "esp",
    "atalk",
    "aarp",
    "decnet",
    "lat",
    "sca",
    "moprc",
    "mopdl",
    "iso",
    "esis",
    "es-is",
    "isis",
    "is-is",
    "l1",
    "l2",
    "iih",
    "lsp",
    "snp",
    "csnp",
    "psnp",
    "clnp",
    "stp",
    "ipx",
    "netbeui",
    "host",
    "net",
    "mask",
    "port",
    "portrange",
    "proto",
    "protochain",
    "gateway",
    "less",
    "greater",
    "byte",
    "broadcast",
    "multicast",
    "and",
    "or",
    "not",
    "len",
    "length",
    "inbound",
    "outbound",
    "ifindex",
    "vlan",
    "mpls",
    "pppoed",
    "pppoes",
    "geneve",
    "llc",
    "tcp-fin",
    "tcp-syn",
    "tcp-rst",
    "tcp-push",
    "tcp-ack",
    "tcp-urg",
    "tcp-ece",
    "tcp-cwr",
    "tcpflags",
    "icmptype",
    "icmpcode",
    "icmp6type",
    "icmp6code",
    "icmp-echo",
    "icmp-echoreply",
    "icmp-unreach",
    "icmp-sourcequench",
    "icmp-redirect",
    "icmp-routeradvert",
    "icmp-routersolicit",
    "icmp-timxceed",
    "icmp-paramprob",
    "icmp-tstamp",
    "icmp-tstampreply",
    "icmp-ireq",
    "icmp-ireqreply",
    "icmp-maskreq",
    "icmp-maskreply",
    "icmp6-echo",
    "icmp6-echoreply",
    "icmp6-destinationunreach",
    "icmp6-packettoobig",
    "icmp6-timeexceeded",
    "icmp6-parameterproblem",
    "icmp6-multicastlistenerquery",
    "icmp6-multicastlistenerreportv1",
    "icmp6-multicastlistenerdone",
    "icmp6-routersolicit",
    "icmp6-routeradvert",
    "icmp6-neighborsolicit",
    "icmp6-neighboradvert",
    "icmp6-redirect",
    "icmp6-routerrenum",
    "icmp6-nodeinformationquery",
    "icmp6-nodeinformationresponse",
    "icmp6-ineighbordiscoverysolicit",
    "icmp6-ineighbordiscoveryadvert",
    "icmp6-multicastlistenerreportv2",
    "icmp6-homeagentdiscoveryrequest",
    "icmp6-homeagentdiscoveryreply",
    "icmp6-mobileprefixsolicit",
    "icmp6-mobileprefixadvert",
    "icmp6-certpathsolicit",
    "icmp6-certpathadvert",
    "icmp6-multicastrouteradvert",
    "icmp6-multicastroutersolicit",
    "icmp6-multicastrouterterm",
];

/// The error instead of resolving a name.
pub(crate) const REFUSED: &str =
    "names of hosts and networks are not resolved: give the address of";

/// What libpcap may be given of an expression.
pub(crate) enum Checked<'a> {
    /// All of it.
    Fine,
    /// There is a name that libpcap would resolve. `without` has an address in place of each such name, so
    /// that compiling it shows other errors of the expression.
    Name { name: &'a str, without: String },
    /// There is a word with letters that libpcap does not know.
    Foreign,
}

/// Whether words are names of ports or protocols, or else of hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Local,
    Hosts,
}

/// Finds names that libpcap would resolve.
pub(crate) fn check(expression: &str) -> Checked<'_> {
    let mut names = Names::Hosts;
    let mut outside = Vec::new();
    let mut brackets = 0_usize;
    let mut found: Option<(&str, String)> = None;
    let mut copied = 0;
    for Token { text, start } in tokens(expression) {
        match text {
            "(" => outside.push(names),
            // A list continues after a bracket.
            ")" => names = outside.pop().unwrap_or(Names::Hosts),
            "[" => brackets += 1,
            "]" => brackets = brackets.saturating_sub(1),
            "port" | "portrange" | "proto" | "protochain" => names = Names::Local,
            "and" | "or" | "not" => {}
            _ if KEYWORDS.contains(&text) => names = Names::Hosts,
            _ if !text.starts_with(|c: char| c.is_alphanumeric() || "_.\\:".contains(c)) => {}
            // (A word cannot begin with a minus: that is arithmetic, or no expression at all.)
            _ if !text.is_ascii() => return Checked::Foreign,
            // Words there are none of, in arithmetic.
            _ if brackets > 0 || names == Names::Local || is_literal(text) => {}
            _ => {
                let (_, without) = found.get_or_insert_with(|| (text, String::new()));
                without.push_str(expression.get(copied..start).unwrap_or_default());
                without.push_str("192.0.2.1");
                copied = start + text.len();
            }
        }
    }
    match found {
        None => Checked::Fine,
        Some((name, mut without)) => {
            without.push_str(expression.get(copied..).unwrap_or_default());
            Checked::Name { name, without }
        }
    }
}

/// Whether libpcap accepts the word without resolving it.
fn is_literal(word: &str) -> bool {
    // `/8` after a space is a word of its own here.
    let (address, mask) = match word.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (word, None),
    };
    if mask.is_some_and(|mask| !mask.is_empty() && !is_number(mask)) {
        return false;
    }
    address.is_empty()
        || is_number(address)
        || is_dotted(address)
        || is_ipv6(address)
        || is_mac(address)
}

fn is_number(word: &str) -> bool {
    let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// An address of which the end may be missing: `10.1`.
fn is_dotted(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    word.parse::<Ipv4Addr>().is_ok()
        || (parts.len() <= 4 && parts.iter().all(|part| is_number(part)))
}

fn is_ipv6(word: &str) -> bool {
    word.parse::<Ipv6Addr>().is_ok()
}

fn is_mac(word: &str) -> bool {
    let hexadecimal = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let bytes = [':', '-', '.'].into_iter().any(|sign| {
        word.split(sign).count() == 6 && word.split(sign).all(|part| hexadecimal(part, 2))
    });
    let words =
        word.split('.').count() == 3 && word.split('.').all(|p| p.len() == 4 && hexadecimal(p, 4));
    bytes || words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(expression: &str) -> Option<&str> {
        match check(expression) {
            Checked::Name { name, .. } => Some(name),
            _ => None,
        }
    }

    #[test]
    fn what_libpcap_would_look_up_is_found() {
        for (expression, expected) in [
            ("host example.com", "example.com"),
            ("port 80 and src example", "example"),
            ("net backbone or udp", "backbone"),
            ("ether host gateway7", "gateway7"),
            ("host 1.2.3.4 or (port 80) or http", "http"),
            ("(port http) or http", "http"),
            ("host 10.0.0.1-9", "10.0.0.1-9"),
            ("len - 14 > 3 and host a-b", "a-b"),
            ("host \\tcp", "\\tcp"),
            ("host 1.2.3.4.5", "1.2.3.4.5"),
            ("host 10.0.0.1x", "10.0.0.1x"),
            ("host TCP", "TCP"),
            ("host aabbccddeeff", "aabbccddeeff"),
        ] {
            assert_eq!(name(expression), Some(expected), "{expression}");
        }
    }

    #[test]
    fn addresses_and_names_of_ports_are_left() {
        for expression in [
            "host 10.0.0.1 and not net 10/8",
            "net 10.1.0.0 mask 255.255.0.0",
            "host 2001:db8::1 or net 2001:db8::/32",
            "ether host 02:00:00:00:00:01 or ether src 0200.0000.0001",
            "port http or https",
            "portrange http-https",
            "ip proto \\tcp or ospf",
            "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
            "ether[0] & 1 = 0 and vlan 7",
            "icmp6[icmp6type] = icmp6-neighborsolicit or icmp6[0] = icmp6-redirect",
            "host 0x7f000001",
        ] {
            assert_eq!(name(expression), None, "{expression}");
        }
    }
}
