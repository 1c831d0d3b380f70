//! Whose datagrams are taken, and how many.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;
use skua_flow::Prefix;
use skua_probe::receive::AllowList;

/// What a sender may send is counted anew so often.
const TICK_NS: u64 = 100_000_000;
/// Senders that are told apart; those beyond share what one may send.
const SENDERS: usize = 16_384;
/// Senders that are shown.
const SHOWN: usize = 16;

/// A sender.
#[derive(Clone, Copy, Default, Debug)]
struct Sender {
    tick: u64,
    taken: u32,
    refused: u64,
}

/// Takes or refuses.
pub struct Gate {
    allow: AllowList,
    /// Datagrams of a sender in a tick.
    most: u32,
    senders: HashMap<IpAddr, Sender>,
    others: Sender,
    /// Datagrams of others than are allowed.
    pub not_allowed: u64,
    /// Datagrams of senders that sent too many.
    pub over_rate: u64,
}

/// A sender that sent too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Flooding {
    /// Who.
    pub from: IpAddr,
    /// Datagrams that were not taken.
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
            not_allowed: 0,
            over_rate: 0,
        }
    }

    /// Whether a datagram that came at `now_ns` is taken.
    pub fn takes(&mut self, from: SocketAddr, now_ns: u64) -> bool {
        if !self.allow.allows(from) {
            self.not_allowed += 1;
            return false;
        }
        let room = self.senders.len() < SENDERS;
        let sender = match self.senders.get_mut(&from.ip()) {
            Some(sender) => sender,
            None if room => self.senders.entry(from.ip()).or_default(),
            None => &mut self.others,
        };
        let tick = now_ns / TICK_NS;
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

    /// Who sent too many, the worst first.
    pub fn flooding(&self) -> Vec<Flooding> {
        let all = self.senders.iter().filter(|(_, one)| one.refused > 0);
        let mut all: Vec<_> = all
            .map(|(from, one)| Flooding {
                from: *from,
                datagrams: one.refused,
            })
            .collect();
        all.sort_by_key(|one| (Reverse(one.datagrams), one.from));
        all.truncate(SHOWN);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_floods_is_cut_and_others_are_not() {
        let mut gate = Gate::new(&["127.0.0.0/8".parse().unwrap()], 1_000);
        let [loud, quiet]: [SocketAddr; 2] =
            ["127.0.0.1:1", "127.0.0.2:1"].map(|text| text.parse().unwrap());
        let mut taken = [0; 2];
        for now in 0..1_000u64 {
            let now = now * 1_000_000;
            for _ in 0..50 {
                taken[0] += u32::from(gate.takes(loud, now));
            }
            taken[1] += u32::from(gate.takes(quiet, now));
        }
        assert_eq!(taken, [1_000, 1_000]);
        let flooding = Flooding {
            from: loud.ip(),
            datagrams: 49_000,
        };
        assert_eq!(gate.flooding(), [flooding]);
        assert_eq!(gate.over_rate, 49_000);
        assert!(!gate.takes("192.0.2.1:1".parse().unwrap(), 0));
        assert_eq!(gate.not_allowed, 1);
    }
}
