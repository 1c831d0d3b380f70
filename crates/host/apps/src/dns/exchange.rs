//! Matches answers with their questions.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry as MapEntry},
    net::{IpAddr, SocketAddr},
};

use super::{Dialect, Lookup, Message, Outcome, Question};

/// Bit of a class in mDNS that is not part of it (RFC 6762 sections 5.4 and 10.2).
const MDNS_BIT: u16 = 0x8000;
/// Type that asks for all types.
const ANY: u16 = 255;
/// Capture points of a question that are told apart.
const MOST_PLACES: usize = 16;
/// Truncated answers that are remembered.
const MOST_TRUNCATED: usize = 1024;

/// Bounds of what is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// A question without an answer for so long gets none, ns.
    pub timeout_ns: u64,
    /// Questions that wait for an answer, or were answered a moment ago.
    pub questions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_ns: 5_000_000_000,
            questions: 65_536,
        }
    }
}

/// Where a message was seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// Number of the network namespace.
    pub netns: u16,
    /// Interface.
    pub ifindex: u32,
    /// It was sent there, not received.
    pub egress: bool,
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// The message.
    pub message: &'a Message,
    /// Its bytes on the wire.
    pub bytes: u32,
    /// When, ns since the Unix epoch.
    pub time_ns: u64,
    /// Where it was seen.
    pub place: Place,
    /// Over TCP.
    pub tcp: bool,
    /// Who sent it.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
}

impl Sent<'_> {
    /// The dialect.
    pub fn dialect(&self) -> Dialect {
        match self.tcp {
            // The others are over UDP alone.
            true => Dialect::Dns,
            false => Dialect::of([self.from.port(), self.to.port()]),
        }
    }
}

/// A conversation in which identifiers are distinct.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    client: SocketAddr,
    /// None when a group was asked: anybody may answer.
    server: Option<SocketAddr>,
    tcp: bool,
    id: u16,
    /// Namespace, of addresses that are the same in each.
    netns: u16,
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    /// Name in lower case: case is for those who want to recognize their own question (0x20).
    name: String,
    kind: u16,
    /// When it is forgotten.
    deadline_ns: u64,
    /// How often it was seen where: the same message passes several interfaces, and each of them once.
    places: Vec<(Place, u32)>,
    /// None: it was answered, and more copies of question and answer may come.
    lookup: Option<Box<Lookup>>,
}

/// Questions that wait for their answers.
#[derive(Debug)]
pub struct Exchanges {
    limits: Limits,
    entries: HashMap<Key, Vec<Entry>>,
    /// When to look at which, roughly in order.
    deadlines: VecDeque<(u64, Key, u64)>,
    serial: u64,
    live: usize,
    /// Answers over UDP that were truncated: who asked whom for what, until when.
    truncated: VecDeque<(u64, IpAddr, IpAddr, String, u16)>,
    /// Questions that had to go because there were too many.
    pub evicted: u64,
    /// Answers to a known question's identifier that are to another question.
    pub mismatched: u64,
}

/// Whether an address means another host in each network namespace.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

impl Exchanges {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            deadlines: VecDeque::new(),
            serial: 0,
            live: 0,
            truncated: VecDeque::new(),
            evicted: 0,
            mismatched: 0,
        }
    }

    /// Questions that are remembered.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Takes a message, and hands out the records that it completes.
    pub fn take(&mut self, sent: &Sent<'_>, out: &mut dyn FnMut(Lookup)) {
        let group = sent.dialect() == Dialect::Mdns && sent.to.ip().is_multicast();
        match (sent.message.is_answer(), group) {
            (false, true) => {
                for question in &sent.message.questions {
                    self.ask(sent, question, out);
                }
            }
            (false, false) => {
                let none = Question::default();
                self.ask(sent, sent.message.question().unwrap_or(&none), out);
            }
            (true, true) => self.answer_group(sent, out),
            (true, false) => self.answer(sent, out),
        }
    }

    fn key(&self, sent: &Sent<'_>, client: SocketAddr, server: Option<SocketAddr>) -> Key {
        let local = is_local(client.ip()) || server.is_none_or(|server| is_local(server.ip()));
        Key {
            client,
            server,
            tcp: sent.tcp,
            id: sent.message.id,
            netns: if local { sent.place.netns } else { 0 },
        }
    }

    /// The key of all questions to mDNS's group: those who ask share them.
    fn group_key(sent: &Sent<'_>) -> Key {
        Key {
            client: sent.to,
            server: None,
            tcp: false,
            id: 0,
            netns: sent.place.netns,
        }
    }

    fn ask(&mut self, sent: &Sent<'_>, question: &Question, out: &mut dyn FnMut(Lookup)) {
        let to_group = sent.to.ip().is_multicast();
        // Who asks from another port than mDNS's wants the answer for itself (RFC 6762 section 6.7).
        let shared = sent.dialect() == Dialect::Mdns && sent.from.port() == super::PORT_MDNS;
        let key = match shared && to_group {
            true => Self::group_key(sent),
            false => self.key(sent, sent.from, (!to_group).then_some(sent.to)),
        };
        let name = question.name.to_lowercase();
        let entries = self.entries.get_mut(&key).map_or(&mut [][..], |e| e);
        let known = entries
            .iter_mut()
            .find(|e| e.name == name && e.kind == question.kind);
        if let Some(entry) = known {
            let asked = !entry.places.is_empty();
            let place = entry.places.iter_mut().find(|(p, _)| *p == sent.place);
            match (place, &mut entry.lookup) {
                // The same message on its way through another interface.
                (None, _) if asked => {
                    if entry.places.len() < MOST_PLACES {
                        entry.places.push((sent.place, 1));
                    }
                    return;
                }
                (Some((_, times)), Some(lookup)) => {
                    *times += 1;
                    lookup.retries = lookup.retries.max(*times - 1);
                    entry.deadline_ns = sent.time_ns.saturating_add(self.limits.timeout_ns);
                    return;
                }
                // It was answered, and is asked anew.
                _ => {
                    let serial = entry.serial;
                    self.remove(key, serial, Outcome::Open, out);
                }
            }
        }
        let mut lookup = begin(sent, question);
        lookup.after_truncation =
            sent.tcp && was_truncated(&mut self.truncated, sent, &name, question.kind);
        let places = vec![(sent.place, 1)];
        self.insert(key, sent, question, (places, Some(Box::new(lookup))), out);
    }

    fn insert(
        &mut self,
        key: Key,
        sent: &Sent<'_>,
        question: &Question,
        (places, lookup): (Vec<(Place, u32)>, Option<Box<Lookup>>),
        out: &mut dyn FnMut(Lookup),
    ) {
        self.serial += 1;
        let deadline_ns = sent.time_ns.saturating_add(self.limits.timeout_ns);
        self.entries.entry(key).or_default().push(Entry {
            serial: self.serial,
            name: question.name.to_lowercase(),
            kind: question.kind,
            deadline_ns,
            places,
            lookup,
        });
        self.live += 1;
        self.deadlines.push_back((deadline_ns, key, self.serial));
        // Identifiers that are used again leave deadlines behind.
        let most_deadlines = self.limits.questions.saturating_mul(2);
        while self.live > self.limits.questions || self.deadlines.len() > most_deadlines {
            let Some((_, key, serial)) = self.deadlines.pop_front() else {
                return;
            };
            self.evicted += u64::from(self.remove(key, serial, Outcome::Open, out));
        }
    }

    fn answer(&mut self, sent: &Sent<'_>, out: &mut dyn FnMut(Lookup)) {
        let exact = self.key(sent, sent.to, Some(sent.from));
        let of_group = Key {
            server: None,
            netns: sent.place.netns,
            ..exact
        };
        let question = sent.message.question();
        for key in [exact, of_group] {
            let Some(entries) = self.entries.get_mut(&key) else {
                continue;
            };
            let found = match question {
                Some(question) => entries
                    .iter_mut()
                    .find(|e| e.kind == question.kind && e.name == question.name.to_lowercase()),
                // Some servers leave the question out of errors.
                None => entries.iter_mut().find(|e| e.lookup.is_some()),
            };
            let Some(entry) = found else {
                self.mismatched += u64::from(question.is_some());
                continue;
            };
            if let Some(lookup) = entry.lookup.take() {
                if sent.message.is_truncated() && !sent.tcp {
                    if self.truncated.len() == MOST_TRUNCATED {
                        self.truncated.pop_front();
                    }
                    let until = sent.time_ns.saturating_add(self.limits.timeout_ns);
                    let (client, server) = (sent.to.ip(), sent.from.ip());
                    let name = entry.name.clone();
                    let truncated = (until, client, server, name, entry.kind);
                    self.truncated.push_back(truncated);
                }
                out(answered(*lookup, sent));
            }
            return;
        }
        // It may pass more interfaces: it is remembered without a place, as no question was seen at any.
        let none = Question::default();
        let question = question.unwrap_or(&none);
        out(unasked(sent, question, Outcome::Unasked));
        self.insert(exact, sent, question, (Vec::new(), None), out);
    }

    fn answer_group(&mut self, sent: &Sent<'_>, out: &mut dyn FnMut(Lookup)) {
        let key = Self::group_key(sent);
        let mut matched = false;
        for record in sent.message.answers() {
            let entries = self.entries.get_mut(&key).map_or(&mut [][..], |e| e);
            let name = record.name.to_lowercase();
            let asked = |e: &&mut Entry| e.name == name && (e.kind == record.kind || e.kind == ANY);
            let Some(entry) = entries.iter_mut().find(asked) else {
                continue;
            };
            matched = true;
            if let Some(lookup) = entry.lookup.take() {
                out(answered(*lookup, sent));
            }
        }
        let Some(first) = sent.message.answers().first().filter(|_| !matched) else {
            return;
        };
        let question = Question {
            name: first.name.clone(),
            kind: first.kind,
            class: first.class,
        };
        out(unasked(sent, &question, Outcome::Announced));
        self.insert(key, sent, &question, (Vec::new(), None), out);
    }

    /// Hands out the questions whose time is over.
    pub fn expire(&mut self, now_ns: u64, out: &mut dyn FnMut(Lookup)) {
        while let Some((deadline_ns, key, serial)) = self.deadlines.front().copied() {
            if deadline_ns > now_ns {
                return;
            }
            self.deadlines.pop_front();
            let Some(entry) = self.entry(key, serial) else {
                continue;
            };
            if entry.deadline_ns > now_ns {
                let again = (entry.deadline_ns, key, serial);
                self.deadlines.push_back(again);
                // The rest is in order of the first questions: this one is late by at most the time-out.
                continue;
            }
            self.remove(key, serial, Outcome::Timeout, out);
        }
    }

    /// Hands out all that is left.
    pub fn finish(&mut self, out: &mut dyn FnMut(Lookup)) {
        while let Some((_, key, serial)) = self.deadlines.pop_front() {
            self.remove(key, serial, Outcome::Open, out);
        }
    }

    fn entry(&mut self, key: Key, serial: u64) -> Option<&mut Entry> {
        let entries = self.entries.get_mut(&key)?;
        entries.iter_mut().find(|entry| entry.serial == serial)
    }

    fn remove(
        &mut self,
        key: Key,
        serial: u64,
        outcome: Outcome,
        out: &mut dyn FnMut(Lookup),
    ) -> bool {
        let MapEntry::Occupied(mut place) = self.entries.entry(key) else {
            return false;
        };
        let Some(at) = place.get().iter().position(|e| e.serial == serial) else {
            return false;
        };
        let entry = place.get_mut().swap_remove(at);
        if place.get().is_empty() {
            place.remove();
        }
        self.live -= 1;
        if let Some(mut lookup) = entry.lookup {
            lookup.outcome = outcome;
            out(*lookup);
        }
        true
    }
}

/// Whether the answer to this question over UDP was truncated a moment ago.
fn was_truncated(
    truncated: &mut VecDeque<(u64, IpAddr, IpAddr, String, u16)>,
    sent: &Sent<'_>,
    name: &str,
    kind: u16,
) -> bool {
    let (client, server) = (sent.from.ip(), sent.to.ip());
    let at = truncated.iter().position(|(until, c, s, n, k)| {
        *until >= sent.time_ns && *c == client && *s == server && n == name && *k == kind
    });
    at.is_some_and(|at| truncated.remove(at).is_some())
}

/// The record of a question that was just seen.
fn begin(sent: &Sent<'_>, question: &Question) -> Lookup {
    let mdns = sent.dialect() == Dialect::Mdns;
    Lookup {
        time_ns: sent.time_ns,
        netns: sent.place.netns,
        ifindex: sent.place.ifindex,
        dialect: sent.dialect(),
        tcp: sent.tcp,
        client: sent.from,
        server: sent.to,
        id: sent.message.id,
        opcode: sent.message.opcode(),
        name: question.name.clone(),
        kind: question.kind,
        class: question.class & if mdns { !MDNS_BIT } else { u16::MAX },
        outcome: Outcome::Open,
        code: None,
        flags: 0,
        answers: Vec::new(),
        answer_count: 0,
        latency_ns: None,
        retries: 0,
        after_truncation: false,
        udp_size: sent.message.edns.map_or(0, |edns| edns.udp_size),
        bytes: [sent.bytes, 0],
        cut: sent.message.fault.is_some(),
    }
}

/// The record, now with its answer.
fn answered(mut lookup: Lookup, sent: &Sent<'_>) -> Lookup {
    lookup.outcome = Outcome::Answered;
    lookup.server = sent.from;
    lookup.latency_ns = Some(sent.time_ns.saturating_sub(lookup.time_ns));
    lookup.answer(sent.message, sent.bytes);
    lookup
}

/// The record of an answer without a question.
fn unasked(sent: &Sent<'_>, question: &Question, outcome: Outcome) -> Lookup {
    let mut lookup = Lookup {
        outcome,
        client: sent.to,
        server: sent.from,
        bytes: [0; 2],
        udp_size: 0,
        ..begin(sent, question)
    };
    lookup.answer(sent.message, sent.bytes);
    lookup
}
