//! What may be written at the end of a text.

use crate::key::{KEYS, Key, SIDES, Side};

/// A proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// What replaces the last word.
    pub text: String,
    /// What it means.
    pub meaning: String,
}

/// Words of pcap expressions, which may be written instead of conditions.
const EXPRESSIONS: [(&str, &str); 8] = [
    ("tcp", "pcap expression: TCP"),
    ("udp", "pcap expression: UDP"),
    ("icmp", "pcap expression: ICMP"),
    ("arp", "pcap expression: ARP"),
    ("host", "pcap expression: host ADDRESS"),
    ("net", "pcap expression: net 10.0.0.0/8"),
    ("src", "pcap expression: src host, src port"),
    ("dst", "pcap expression: dst host, dst port"),
];

const STATES: [&str; 10] = [
    "established",
    "syn-sent",
    "syn-received",
    "closing",
    "closed",
    "reset",
    "idle",
    "evicted",
    "shutdown",
    "\"\"",
];
const PROTOCOLS: [&str; 6] = ["tcp", "udp", "icmp", "icmpv6", "sctp", "arp"];

/// Where the last word of a text begins, outside of quotes.
fn last_word(text: &str) -> usize {
    let (mut quoted, mut begin) = (false, 0);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => begin = at + c.len_utf8(),
            _ => {}
        }
    }
    begin
}

/// Proposals for the last word of a text, at most 32.
pub fn completions(text: &str) -> Vec<Completion> {
    let word = text.get(last_word(text)..).unwrap_or_default();
    let minus = if word.starts_with('-') { "-" } else { "" };
    let word = word.trim_start_matches('-');
    let mut found = Vec::new();
    let mut offer = |text: String, meaning: &str| {
        if found.len() < 32 {
            found.push(Completion {
                text,
                meaning: meaning.to_owned(),
            });
        }
    };
    if let Some((key, value)) = word.split_once(':') {
        let (list, value) = match value.rsplit_once(',') {
            Some((list, value)) => (format!("{list},"), value),
            None => (String::new(), value),
        };
        let values: &[&str] = match Key::named(key) {
            Some(Key::State) => &STATES,
            Some(Key::Protocol) => &PROTOCOLS,
            _ => &[],
        };
        for known in values.iter().filter(|known| known.starts_with(value)) {
            if *known != value {
                offer(format!("{minus}{key}:{list}{known}"), "");
            }
        }
        return found;
    }
    if word.contains(['<', '>', '=', '"']) {
        return found;
    }
    if let Some((side, own)) = word.split_once('.')
        && let Some((_, _, meaning)) = SIDES.iter().find(|(known, ..)| *known == side)
    {
        for known in KEYS.iter().filter(|known| known.name.starts_with(own)) {
            if matches!(known.key, Key::Side(Side::Any, _)) {
                offer(format!("{minus}{side}.{}:", known.name), meaning);
            }
        }
        return found;
    }
    for known in KEYS.iter().filter(|known| known.name.starts_with(word)) {
        let sign = match known.key {
            Key::Rate | Key::Bytes | Key::Packets | Key::Rtt | Key::Retransmits | Key::Age => '>',
            _ => ':',
        };
        let meaning = format!("{}: {}", known.meaning, known.example);
        offer(format!("{minus}{}{sign}", known.name), &meaning);
    }
    if !word.is_empty() {
        for (side, _, meaning) in SIDES.iter().filter(|(side, ..)| side.starts_with(word)) {
            offer(format!("{minus}{side}."), meaning);
        }
        for (known, meaning) in EXPRESSIONS {
            if minus.is_empty() && known.starts_with(word) && known != word {
                offer(format!("{known} "), meaning);
            }
        }
    }
    found
}

/// The text with its last word replaced.
pub fn completed(text: &str, with: &str) -> String {
    let kept = text.get(..last_word(text)).unwrap_or_default();
    format!("{kept}{with}")
}
