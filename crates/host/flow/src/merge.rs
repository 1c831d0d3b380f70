//! Which records are of one conversation. On its way through a host a packet passes several interfaces, and each
//! of them has a record: whoever sums up counts the conversation once, of each direction the most that one point
//! counted.

use crate::{
    Counters, FlowKey, FlowRecord, HashKey, Network, Service,
    index::{Index, KeyHash, Slot},
};

/// The most points of one conversation. Further points make a second conversation, so that no insertion costs
/// more than this many comparisons.
const MAX_POINTS: usize = 64;
/// How many earlier conversations between the same ports are compared with a new record.
const MAX_EARLIER: usize = 8;
/// Two records overlap when their times are no further apart: two ticks of the slowest kernel clock (HZ=100), which
/// stamps packets.
const SLACK_NS: u64 = 20_000_000;
/// No place.
const NONE: u32 = u32::MAX;

impl FlowKey {
    /// The key without what differs from point to point: interface, namespace, VLAN tags and tunnel. Loopback
    /// addresses are another host's in each namespace, so these keep theirs.
    pub fn across_points(&self) -> Self {
        let local = |address: &[u8; 16]| {
            address[..13] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127]
                || *address == std::net::Ipv6Addr::LOCALHOST.octets()
        };
        let loopback = self.network() != Network::None && local(&self.lo) && local(&self.hi);
        Self {
            ifindex: 0,
            netns: if loopback { self.netns } else { 0 },
            vlan: [0; 2],
            kind: self.kind & 3,
            tunnel_hash: [0; 6],
            ..*self
        }
    }
}

/// Links of a place.
#[derive(Clone, Copy)]
struct Link {
    /// The next record of the same conversation; the last one has the first.
    next: u32,
    /// A record of the conversation before between the same ports, which may have left since.
    earlier: u32,
}

/// Rings of places, one for each conversation.
pub(crate) struct Merge {
    secret: HashKey,
    /// The place that began the latest conversation of each key.
    latest: Index,
    links: Vec<Link>,
}

impl Merge {
    /// Bytes per place at worst: its links, and an entry of the index just after that has doubled.
    pub(crate) const BYTES: usize = size_of::<Link>() + 18;

    pub(crate) fn new(secret: HashKey) -> Self {
        Self {
            secret,
            latest: Index::default(),
            links: Vec::new(),
        }
    }

    /// Puts the record of a place into its conversation.
    pub(crate) fn join<'a>(&mut self, place: u32, record: impl Fn(u32) -> &'a FlowRecord) {
        let new = record(place);
        let key = new.key.across_points();
        let has_key = |other: u32| record(other).key.across_points() == key;
        let at = place as usize;
        if at >= self.links.len() {
            let none = Link {
                next: NONE,
                earlier: NONE,
            };
            self.links.resize(at + 1, none);
        }
        let (links, hash) = (&mut self.links, KeyHash::new(&key, &self.secret));
        let latest = match self.latest.entry(hash, has_key) {
            Slot::Free(slot) => {
                slot.insert(place);
                NONE
            }
            Slot::Taken(mut slot) => {
                let latest = slot.get().place;
                let mut ring = latest;
                for _ in 0..MAX_EARLIER {
                    if fits(links, ring, new, &record) {
                        links[at] = links[ring as usize];
                        links[ring as usize].next = place;
                        return;
                    }
                    ring = links[ring as usize].earlier;
                    let there = links.get(ring as usize).is_some_and(|l| l.next != NONE);
                    if !there || ring == place || !has_key(ring) {
                        break;
                    }
                }
                slot.get_mut().place = place;
                latest
            }
        };
        links[at] = Link {
            next: place,
            earlier: latest,
        };
    }

    /// Takes the record of a place out of its conversation, before another one gets the place.
    pub(crate) fn leave<'a>(&mut self, place: u32, record: impl Fn(u32) -> &'a FlowRecord) {
        let Some(&Link { next, .. }) = self.links.get(place as usize) else {
            return;
        };
        let mut before = place;
        while self.links[before as usize].next != place {
            before = self.links[before as usize].next;
        }
        self.links[before as usize].next = next;
        self.links[place as usize].next = NONE;
        let hash = KeyHash::new(&record(place).key.across_points(), &self.secret);
        let key_at_place = |other: u32| other == place;
        match self.latest.entry(hash, key_at_place) {
            Slot::Taken(mut slot) if next != place => slot.get_mut().place = next,
            Slot::Taken(slot) => {
                slot.remove();
            }
            Slot::Free(_) => {}
        }
    }

    /// The other places of a place's conversation.
    pub(crate) fn others(&self, place: u32) -> impl Iterator<Item = u32> + Clone {
        let mut at = place;
        std::iter::from_fn(move || {
            at = self.links.get(at as usize)?.next;
            (at != place && at != NONE).then_some(at)
        })
    }
}

/// Whether two records of one interface, which differ in VLAN tags or tunnel, are of other packets: a packet passes an
/// interface once in each direction. It may come in with one tag and go out with another.
fn are_apart(one: &FlowRecord, other: &FlowRecord) -> bool {
    let (a, b) = (one.directions.0, other.directions.0);
    let same = |r: &FlowRecord| (r.key.netns, r.key.ifindex);
    same(one) == same(other) && (a == 0 || b == 0 || a & b != 0)
}

/// Whether a record belongs to a ring: its points see the same packets, and their times overlap.
fn fits<'a>(
    links: &[Link],
    ring: u32,
    new: &FlowRecord,
    record: &impl Fn(u32) -> &'a FlowRecord,
) -> bool {
    let (mut at, mut points) = (ring, 0);
    let (mut first_ns, mut last_ns) = (u64::MAX, 0);
    loop {
        let member = record(at);
        points += 1;
        if points == MAX_POINTS || member.key == new.key || are_apart(member, new) {
            return false;
        }
        (first_ns, last_ns) = (first_ns.min(member.first_ns), last_ns.max(member.last_ns));
        at = links[at as usize].next;
        if at == ring {
            break;
        }
    }
    new.first_ns <= last_ns.saturating_add(SLACK_NS)
        && first_ns <= new.last_ns.saturating_add(SLACK_NS)
}

/// Which of two records of a conversation stands for it: the host's own namespace first, outside of tunnels first,
/// without VLAN tags first, then the interface that was there first.
pub(crate) fn stands_before(one: &FlowRecord, other: &FlowRecord) -> bool {
    let rank = |r: &FlowRecord| {
        let key = &r.key;
        let tagged = key.vlan != [0; 2];
        (key.netns != 0, key.tunnel().is_some(), tagged, key.ifindex)
    };
    (rank(one), one.serial) < (rank(other), other.serial)
}

impl Counters {
    /// Both without a part of them.
    pub(crate) fn less(self, part: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(part.packets),
            bytes: self.bytes.saturating_sub(part.bytes),
        }
    }

    /// Brings both up to what another point counted.
    pub(crate) fn raise(&mut self, other: Self) {
        self.packets = self.packets.max(other.packets);
        self.bytes = self.bytes.max(other.bytes);
    }
}

impl FlowRecord {
    /// Adds what another point knows of the same conversation: of each direction the most that one point counted.
    pub fn merge(&mut self, other: &Self) {
        self.lo_sent.raise(other.lo_sent);
        self.hi_sent.raise(other.hi_sent);
        match self.updated_ns.cmp(&other.updated_ns) {
            std::cmp::Ordering::Less => self.interval = other.interval,
            std::cmp::Ordering::Equal => {
                self.interval.lo_sent.raise(other.interval.lo_sent);
                self.interval.hi_sent.raise(other.interval.hi_sent);
            }
            std::cmp::Ordering::Greater => {}
        }
        if other.first_ns < self.first_ns {
            self.lo_first = other.lo_first;
        }
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.updated_ns = self.updated_ns.max(other.updated_ns);
        self.end = other.end.and(self.end);
        self.tcp.merge(&other.tcp);
        // Behind a router there are other addresses: those of the record that stands for the conversation stay.
        self.link.note(&other.link);
        self.fragments = self.fragments.max(other.fragments);
        self.carries = self.carries.or(other.carries);
        for side in 0..2 {
            self.owners[side] = self.owners[side].or(other.owners[side]);
        }
        self.service = Service::better(self.service, other.service);
    }
}
