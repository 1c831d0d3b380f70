//! Guesses what was meant. Every suggestion has been compiled by libpcap.

use std::net::Ipv4Addr;

use crate::diagnose::Attempts;
use crate::token::Token;

/// Words of the expression language that a typing error may have come from.
const KEYWORDS: [&str; 50] = [
    "and",
    "or",
    "not",
    "host",
    "net",
    "mask",
    "port",
    "portrange",
    "proto",
    "protochain",
    "src",
    "dst",
    "ether",
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "vlan",
    "mpls",
    "pppoes",
    "pppoed",
    "geneve",
    "broadcast",
    "multicast",
    "less",
    "greater",
    "len",
    "tcp-syn",
    "tcp-ack",
    "tcp-fin",
    "tcp-rst",
    "tcp-push",
    "tcp-urg",
    "tcpflags",
    "icmptype",
    "icmpcode",
    "icmp-echo",
    "icmp-echoreply",
    "icmp6type",
    "ah",
    "esp",
    "pim",
    "stp",
    "vrrp",
];

/// Words of other tools (Wireshark's above all), and what they are here.
const ALIASES: [(&str, &str); 41] = [
    ("ipv4", "ip"),
    ("ipv6", "ip6"),
    ("icmpv6", "icmp6"),
    ("icmpv4", "icmp"),
    ("ethernet", "ether"),
    ("eth", "ether"),
    ("source", "src"),
    ("destination", "dst"),
    ("dest", "dst"),
    ("address", "host"),
    ("addr", "host"),
    ("subnet", "net"),
    ("network", "net"),
    ("ports", "port"),
    ("length", "len"),
    ("http", "tcp port 80"),
    ("https", "tcp port 443"),
    ("tls", "tcp port 443"),
    ("ssh", "tcp port 22"),
    ("dns", "port 53"),
    ("dhcp", "udp port 67"),
    ("ntp", "udp port 123"),
    ("quic", "udp port 443"),
    ("gre", "ip proto 47"),
    ("vxlan", "udp port 4789"),
    ("ip.addr", "host"),
    ("ip.host", "host"),
    ("ip.src", "src host"),
    ("ip.dst", "dst host"),
    ("ipv6.addr", "host"),
    ("ipv6.src", "src host"),
    ("ipv6.dst", "dst host"),
    ("ip.proto", "ip proto"),
    ("tcp.port", "tcp port"),
    ("tcp.srcport", "tcp src port"),
    ("tcp.dstport", "tcp dst port"),
    ("udp.port", "udp port"),
    ("udp.srcport", "udp src port"),
    ("udp.dstport", "udp dst port"),
    ("eth.addr", "ether host"),
    ("vlan.id", "vlan"),
];

/// Keywords that take an operand directly: a sign between is a slip.
const TAKES_OPERAND: [&str; 9] = [
    "host",
    "net",
    "port",
    "portrange",
    "proto",
    "vlan",
    "mpls",
    "less",
    "greater",
];

/// Words of a corrected expression.
type Words = Vec<String>;

/// One kind of slip: the words without it. `wrong` is the index of the word at which libpcap stopped,
/// if known; the count of words for the end.
type Correction = fn(&Words, wrong: Option<usize>) -> Words;

/// Tried one after another, each on top of those before: an expression may have several slips.
const CORRECTIONS: [Correction; 9] = [
    lower_case,
    aliases,
    signs_before_operands,
    commas,
    ranges_and_networks,
    src_ip,
    missing_port,
    typing_errors,
    brackets,
];

/// A similar expression that libpcap takes.
pub(crate) fn suggest(
    attempts: &Attempts<'_>,
    tokens: &[Token<'_>],
    wrong: Option<usize>,
) -> Option<String> {
    let original: Words = tokens.iter().map(|token| token.text.to_owned()).collect();
    let mut words = original.clone();
    for correction in CORRECTIONS {
        // The index is valid only until the first change.
        let corrected = correction(&words, wrong.filter(|_| words == original));
        if corrected != words {
            let expression = join(&corrected);
            if attempts.compile(&expression)?.is_ok() {
                return Some(expression);
            }
            words = corrected;
        }
    }
    operators(attempts, &original, wrong?)
}

fn join(words: &Words) -> String {
    let mut joined = String::new();
    let mut brackets = 0_usize;
    let mut previous = "(";
    for word in words {
        let tight = brackets > 0
            || matches!(word.as_str(), ")" | "]" | "[")
            || matches!(previous, "(" | "[" | "!");
        if !tight {
            joined.push(' ');
        }
        match word.as_str() {
            "[" => brackets += 1,
            "]" => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        joined.push_str(word);
        previous = word;
    }
    joined
}

fn map_words(words: &Words, change: impl Fn(&str) -> Option<String>) -> Words {
    let change = |word: &String| change(word).unwrap_or_else(|| word.clone());
    words.iter().map(change).collect()
}

fn lower_case(words: &Words, _: Option<usize>) -> Words {
    map_words(words, |word| Some(word.to_lowercase()))
}

fn aliases(words: &Words, _: Option<usize>) -> Words {
    let renamed = map_words(words, |word| {
        ALIASES
            .iter()
            .find(|(alias, _)| *alias == word)
            .map(|(_, here)| (*here).to_owned())
    });
    renamed
        .iter()
        .flat_map(|word| word.split(' '))
        .map(str::to_owned)
        .collect()
}

/// `port=443`, `port == 443`, `port:443`
fn signs_before_operands(words: &Words, _: Option<usize>) -> Words {
    let mut kept = Words::new();
    for word in words {
        let after_keyword = kept
            .last()
            .is_some_and(|last| TAKES_OPERAND.contains(&last.as_str()));
        match word.split_once(':') {
            _ if after_keyword && matches!(word.as_str(), "=" | "==" | "eq" | "is") => {}
            Some((keyword, operand)) if TAKES_OPERAND.contains(&keyword) => {
                kept.push(keyword.to_owned());
                kept.extend((!operand.is_empty()).then(|| operand.to_owned()));
            }
            _ => kept.push(word.clone()),
        }
    }
    kept
}

/// `port 80,443`
fn commas(words: &Words, _: Option<usize>) -> Words {
    map_words(words, |word| (word == ",").then(|| "or".to_owned()))
}

/// `port 80-90`, `host 10.0.0.0/8`, `net 10.0.0.1/8`, `host any`
fn ranges_and_networks(words: &Words, _: Option<usize>) -> Words {
    let mut corrected = words.clone();
    for at in 1..corrected.len() {
        let operand = corrected[at].clone();
        let range = operand
            .split_once('-')
            .is_some_and(|(low, high)| low.parse::<u16>().is_ok() && high.parse::<u16>().is_ok());
        let network = operand.split_once('/').and_then(|(address, bits)| {
            let address = address.parse::<Ipv4Addr>().ok()?;
            let bits = bits.parse::<u32>().ok().filter(|&bits| bits <= 32)?;
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Some(format!(
                "{}/{bits}",
                Ipv4Addr::from_bits(address.to_bits() & mask)
            ))
        });
        match corrected[at - 1].as_str() {
            "port" if range => corrected[at - 1] = "portrange".to_owned(),
            "host" | "net" | "src" | "dst" if operand.contains('/') => {
                match corrected[at - 1].as_str() {
                    "host" => corrected[at - 1] = "net".to_owned(),
                    "src" | "dst" => corrected[at - 1].push_str(" net"),
                    _ => {}
                }
                if let Some(network) = network {
                    corrected[at] = network;
                }
            }
            _ => {}
        }
    }
    corrected
}

/// `src ip 1.2.3.4`
fn src_ip(words: &Words, _: Option<usize>) -> Words {
    let mut corrected = words.clone();
    for at in 1..corrected.len() {
        if matches!(corrected[at - 1].as_str(), "src" | "dst")
            && matches!(corrected[at].as_str(), "ip" | "ip6")
        {
            corrected[at] = "host".to_owned();
        }
    }
    corrected
}

/// `tcp 443`
fn missing_port(words: &Words, _: Option<usize>) -> Words {
    let mut corrected = Words::new();
    for word in words {
        let after_protocol = corrected
            .last()
            .is_some_and(|last| matches!(last.as_str(), "tcp" | "udp" | "sctp"));
        if after_protocol && word.parse::<u16>().is_ok() {
            corrected.push("port".to_owned());
        }
        corrected.push(word.clone());
    }
    corrected
}

/// `tpc prot 443`
fn typing_errors(words: &Words, wrong: Option<usize>) -> Words {
    let mut corrected = words.clone();
    for (at, word) in corrected.iter_mut().enumerate() {
        // Before the place at which libpcap stopped everything was well, but for one word back.
        let suspect = wrong.is_none_or(|wrong| at + 1 >= wrong);
        if suspect && let Some(keyword) = nearest_keyword(word) {
            *word = keyword.to_owned();
        }
    }
    corrected
}

/// The keyword that one or two typing errors make of the word; `None` for what is no typing error.
fn nearest_keyword(word: &str) -> Option<&'static str> {
    let length = word.chars().count();
    let looks_like_name = word
        .chars()
        .all(|sign| sign.is_ascii_alphabetic() || sign == '-');
    if KEYWORDS.contains(&word) || !looks_like_name || !(2..=15).contains(&length) {
        return None;
    }
    let allowed = if length <= 4 { 1 } else { 2 };
    KEYWORDS
        .iter()
        .map(|keyword| (typing_distance(word, keyword), *keyword))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, keyword)| keyword)
}

/// Letters added, left out, changed or exchanged with their neighbour (optimal string alignment).
fn typing_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = usize::from(a[i - 1] != b[j - 1]);
                let mut best = (rows[i - 1][j] + 1)
                    .min(rows[i][j - 1] + 1)
                    .min(rows[i - 1][j - 1] + change);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

/// A bracket too few at the end, or one too many.
fn brackets(words: &Words, wrong: Option<usize>) -> Words {
    let mut corrected = words.clone();
    let mut open = Vec::new();
    for word in words {
        match word.as_str() {
            "(" => open.push(")"),
            "[" => open.push("]"),
            ")" | "]" => drop(open.pop()),
            _ => {}
        }
    }
    match wrong {
        Some(at) if matches!(words.get(at).map(String::as_str), Some(")" | "]")) => {
            corrected.remove(at);
        }
        _ => corrected.extend(open.into_iter().rev().map(str::to_owned)),
    }
    corrected
}

/// `tcp port 80 host 10.0.0.1`, `tcp or or udp`
fn operators(attempts: &Attempts<'_>, words: &Words, wrong: usize) -> Option<String> {
    let unexpected = words.get(wrong)?;
    let mut candidates = Vec::new();
    if matches!(unexpected.as_str(), "and" | "or" | "&&" | "||") {
        let mut without = words.clone();
        without.remove(wrong);
        candidates.push(without);
    }
    for operator in ["and", "or"] {
        let mut with = words.clone();
        with.insert(wrong, operator.to_owned());
        candidates.push(with);
    }
    for candidate in candidates {
        let expression = join(&candidate);
        if attempts.compile(&expression)?.is_ok() {
            return Some(expression);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_typing_errors() {
        assert_eq!(typing_distance("prot", "port"), 1);
        assert_eq!(typing_distance("tpc", "tcp"), 1);
        assert_eq!(typing_distance("brodcst", "broadcast"), 2);
        assert_eq!(typing_distance("", "ip"), 2);
        assert_eq!(nearest_keyword("hots"), Some("host"));
        assert_eq!(nearest_keyword("example"), None);
        assert_eq!(nearest_keyword("tcp"), None);
    }

    #[test]
    fn joins_as_one_would_write() {
        let words = [
            "(", "ip", "[", "6", ":", "2", "]", "=", "1", ")", "or", "!", "tcp",
        ];
        let words: Words = words.into_iter().map(str::to_owned).collect();
        assert_eq!(join(&words), "(ip[6:2] = 1) or !tcp");
    }
}
