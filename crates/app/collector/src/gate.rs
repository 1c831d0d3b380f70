//! Which senders' datagrams are accepted, and how many.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;
use skua_export::export::seal::{KeyFile, Name as KeyName, Refusal};
use skua_flow::Prefix;
use skua_probe::receive::AllowList;

/// Interval of refilling a sender's allowance.
const TICK_NS: u64 = 100_000_000;
/// A sender that was silent for this many of them may be removed from the table.
const SILENT_TICKS: u64 = 100;
/// Senders that are distinguished; those beyond share what one may send.
const SENDERS: usize = 16_384;
/// Senders that are not allowed, distinguished; datagrams of those beyond are only counted.
const STRANGERS: usize = 1_024;
/// Senders that are shown.
const SHOWN: usize = 16;

/// A sender.
#[derive(Clone, Copy, Default, Debug)]
struct Sender {
    tick: u64,
    taken: u32,
    refused: u64,
}

/// Accepts or refuses datagrams.
pub struct Gate {
    allow: AllowList,
    /// Datagrams of a sender in a tick.
    most: u32,
    senders: HashMap<IpAddr, Sender>,
    others: Sender,
    /// When the table was last swept.
    swept: u64,
    /// The worst of the removed senders.
    gone: Vec<Refused>,
    strangers: HashMap<IpAddr, u64>,
    /// Datagrams of others than are allowed.
    pub not_allowed: u64,
    /// Datagrams of senders that sent too many.
    pub over_rate: u64,
    /// Keys that seal datagrams, and senders that need no seal.
    keys: Option<KeyFile>,
    unsealed_from: AllowList,
    /// Datagrams that are not sealed as they must be, by [`Refusal`].
    pub unsealed: [u64; Refusal::ALL.len()],
}

/// A sender with refused datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Refused {
    /// Its address.
    pub from: IpAddr,
    /// Datagrams refused.
    pub datagrams: u64,
}

impl Gate {
    /// `rate`: datagrams a second that a sender may send.
    pub fn new(allow: &[Prefix], rate: u32) -> Self {
        Self {
            allow: AllowList::new(allow),
            most: (rate / 10).max(1),
            senders: HashMap::new(),
            others: Sender::default(),
            swept: 0,
            gone: Vec::new(),
            strangers: HashMap::new(),
            not_allowed: 0,
            over_rate: 0,
            keys: None,
            unsealed_from: AllowList::new(&[]),
            unsealed: [0; Refusal::ALL.len()],
        }
    }

    /// Accepts only datagrams sealed with one of these keys, except from some prefixes.
    pub fn with_keys(mut self, keys: Option<KeyFile>, unsealed_from: &[Prefix]) -> Self {
        self.keys = keys;
        self.unsealed_from = AllowList::new(unsealed_from);
        self
    }

    /// Whether an accepted datagram has a valid seal or needs none, and the name of the key.
    pub fn opens(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now_ns: u64,
    ) -> Option<Option<KeyName>> {
        let Some(keys) = &self.keys else {
            return Some(None);
        };
        match keys.get().check(datagram, now_ns) {
            Ok(name) => Some(Some(name)),
            Err(Refusal::Missing) if self.unsealed_from.names(from) => Some(None),
            Err(refusal) => {
                self.unsealed[refusal as usize] += 1;
                self.stranger(from);
                None
            }
        }
    }

    /// Counts a datagram of a sender that is not allowed.
    fn stranger(&mut self, from: SocketAddr) {
        let from = from.ip().to_canonical();
        if self.strangers.len() >= STRANGERS && !self.strangers.contains_key(&from) {
            // Keep the senders with the most.
            let mut sent: Vec<_> = self.strangers.values().copied().collect();
            sent.sort_unstable();
            let most = sent.get(STRANGERS * 3 / 4).copied().unwrap_or(0);
            self.strangers.retain(|_, datagrams| *datagrams > most);
        }
        *self.strangers.entry(from).or_default() += 1;
    }

    /// Whether a datagram received at `now_ns` is accepted.
    pub fn admits(&mut self, from: SocketAddr, now_ns: u64) -> bool {
        if !self.allow.allows(from) {
            self.not_allowed += 1;
            self.stranger(from);
            return false;
        }
        let tick = now_ns / TICK_NS;
        if self.senders.len() >= SENDERS && self.swept != tick {
            self.swept = tick;
            self.make_room(tick);
        }
        let room = self.senders.len() < SENDERS;
        let sender = match self.senders.get_mut(&from.ip()) {
            Some(sender) => sender,
            None if room => self.senders.entry(from.ip()).or_default(),
            None => &mut self.others,
        };
        if sender.tick != tick {
            (sender.tick, sender.taken) = (tick, 0);
        }
        if sender.taken >= self.most {
            sender.refused += 1;
            self.over_rate += 1;
            return false;
        }
        sender.taken += 1;
        true
    }

    /// Forgets senders that are silent.
    fn make_room(&mut self, tick: u64) {
        let mut gone = Vec::new();
        self.senders.retain(|from, sender| {
            let stays = tick.saturating_sub(sender.tick) <= SILENT_TICKS;
            if !stays && sender.refused > 0 {
                gone.push(Refused {
                    from: *from,
                    datagrams: sender.refused,
                });
            }
            stays
        });
        add(&mut self.gone, gone);
    }

    /// Senders beyond the rate limit, the worst first.
    pub fn flooding(&self) -> Vec<Refused> {
        let mut all = worst(self.senders.iter().map(|(from, one)| (*from, one.refused)));
        add(&mut all, self.gone.clone());
        all
    }

    /// Senders that are not allowed, the worst first.
    pub fn strangers(&self) -> Vec<Refused> {
        worst(self.strangers.iter().map(|(from, one)| (*from, *one)))
    }
}

/// The senders with the most refused datagrams.
fn worst(all: impl Iterator<Item = (IpAddr, u64)>) -> Vec<Refused> {
    let all = all.filter(|(_, datagrams)| *datagrams > 0);
    let mut all: Vec<_> = all
        .map(|(from, datagrams)| Refused { from, datagrams })
        .collect();
    all.sort_by_key(|one| (Reverse(one.datagrams), one.from));
    all.truncate(SHOWN);
    all
}

/// Adds the refusals of another receiver; the kernel may distribute one sender's ports over
/// several.
pub fn add(all: &mut Vec<Refused>, more: Vec<Refused>) {
    let mut sums = HashMap::<_, u64>::new();
    for one in all.drain(..).chain(more) {
        *sums.entry(one.from).or_default() += one.datagrams;
    }
    *all = worst(sums.into_iter());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flooding_sender_is_limited_and_others_are_not() {
        let mut gate = Gate::new(&["127.0.0.0/8".parse().unwrap()], 1_000);
        let [loud, quiet]: [SocketAddr; 2] =
            ["127.0.0.1:1", "127.0.0.2:1"].map(|text| text.parse().unwrap());
        let mut taken = [0; 2];
        for now in 0..1_000u64 {
            let now = now * 1_000_000;
            for _ in 0..50 {
                taken[0] += u32::from(gate.admits(loud, now));
            }
            taken[1] += u32::from(gate.admits(quiet, now));
        }
        assert_eq!(taken, [1_000, 1_000]);
        let refused = |from: SocketAddr, datagrams| Refused {
            from: from.ip(),
            datagrams,
        };
        assert_eq!(gate.flooding(), [refused(loud, 49_000)]);
        assert_eq!(gate.over_rate, 49_000);
        let stranger = "192.0.2.1:1".parse().unwrap();
        assert!(!gate.admits(stranger, 0));
        assert_eq!(gate.not_allowed, 1);
        assert_eq!(gate.strangers(), [refused(stranger, 1)]);
        // From two receivers.
        let mut all = gate.flooding();
        add(&mut all, vec![refused(quiet, 50_000), refused(loud, 2)]);
        assert_eq!(all, [refused(quiet, 50_000), refused(loud, 49_002)]);
    }

    #[test]
    fn with_keys_only_listed_senders_need_no_seal() {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = std::env::temp_dir().join(format!("skua-gate-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let mut opened = options
            .write(true)
            .create(true)
            .mode(0o600)
            .open(&file)
            .unwrap();
        let line = b"fleet 00112233445566778899aabbccddeeff\n";
        std::io::Write::write_all(&mut opened, line).unwrap();
        let keys = skua_export::export::seal::open("--keys", &file).unwrap();
        std::fs::remove_file(file).unwrap();
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let mut gate = Gate::new(&[prefix("10.0.0.0/8")], 1_000)
            .with_keys(Some(keys.clone()), &[prefix("10.9.0.0/16")]);
        let from = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (host, switch) = (from("10.0.0.1:1"), from("10.9.0.1:1"));
        let plain = vec![7; 100];
        let mut sealed = plain.clone();
        keys.get().seal(&mut sealed, 1_000);
        assert_eq!(
            gate.opens(host, &sealed, 1_000),
            Some(Some(*b"fleet\0\0\0"))
        );
        assert_eq!(gate.opens(host, &plain, 1_000), None);
        assert_eq!(gate.opens(switch, &plain, 1_000), Some(None));
        // A seal must be valid also where none is needed.
        sealed[0] ^= 1;
        assert_eq!(gate.opens(switch, &sealed, 1_000), None);
        assert_eq!(gate.unsealed, [1, 0, 1, 0]);
        assert_eq!(gate.strangers().len(), 2);
        // Without keys no sender needs one.
        let mut open = Gate::new(&[], 1_000);
        assert_eq!(open.opens(host, &plain, 1_000), Some(None));
    }

    #[test]
    fn senders_that_are_silent_make_room_for_others() {
        let mut gate = Gate::new(&["10.0.0.0/8".parse().unwrap()], 10);
        let from = |number: u32| (std::net::Ipv4Addr::from(0x0a00_0000 + number), 1).into();
        for number in 0..SENDERS as u32 {
            assert!(gate.admits(from(number), 0));
        }
        assert!(!gate.admits(from(7), 0));
        // Those beyond share what one may send, until others are silent.
        assert!(gate.admits(from(100_000), 0));
        assert!(!gate.admits(from(100_001), 0));
        let later = (SILENT_TICKS + 1) * TICK_NS;
        for number in 0..1_000 {
            assert!(gate.admits(from(200_000 + number), later));
        }
        assert_eq!(gate.senders.len(), 1_000);
        assert_eq!(gate.flooding()[0].from, from(7).ip());
    }

    #[test]
    fn the_number_of_strangers_that_are_listed_is_limited() {
        let mut gate = Gate::new(&["127.0.0.0/8".parse().unwrap()], 1_000);
        for number in 0..10_000u32 {
            let from = std::net::Ipv4Addr::from(0xc612_0000 + number);
            assert!(!gate.admits((from, 1).into(), 0));
        }
        assert_eq!(gate.not_allowed, 10_000);
        assert!(gate.strangers.len() <= STRANGERS);
        let loud = "198.19.0.1:1".parse().unwrap();
        for _ in 0..100 {
            assert!(!gate.admits(loud, 0));
        }
        assert_eq!(gate.strangers()[0].from, loud.ip());
        assert_eq!(gate.strangers().len(), SHOWN);
    }
}
