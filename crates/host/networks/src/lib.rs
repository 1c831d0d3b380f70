//! What files of the user say of addresses and ports: countries and autonomous systems (MMDB, as MaxMind and IPinfo
//! publish them), ranges with names of the user's own, and names of ports (`/etc/services`).
//!
//! A record has nothing of it: what is known is looked up when a record is written for somebody or compared with a
//! condition about it, never when packets are counted. So a new file is right for old records, too, and a table costs the
//! same with and without files. Without files a question costs one load of a number. A thread remembers what it asked last
//! ([`REMEMBERED`] addresses), so that the many fields of an address, and the many records of a few addresses, cost one
//! search; names are kept once each ([`names`]).

mod database;
mod files;
mod names;
mod ranges;
mod services;

use std::{
    cell::RefCell,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

pub use database::Database;
pub use files::{FileError, Files, follow};
pub use ranges::Ranges;
pub use services::Services;

/// What is known of an address. Empty: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// ISO 3166-1, two letters.
    pub country: &'static str,
    /// Number of the autonomous system.
    pub asn: Option<u32>,
    /// Who runs it.
    pub organization: &'static str,
    /// Name of the smallest range with it.
    pub network: &'static str,
}

/// The content of the files.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    /// Of the first that knows something it counts.
    pub databases: Vec<Arc<Database>>,
    /// Of all the smallest range counts, in equal ranges the first.
    pub ranges: Vec<Arc<Ranges>>,
    /// Names of ports.
    pub services: Arc<Services>,
}

impl Networks {
    /// What is known of an address.
    pub fn known(&self, address: IpAddr) -> Known {
        let address = address.to_canonical();
        let ranges = self.ranges.iter().filter_map(|ranges| ranges.find(address));
        let smallest = ranges.reduce(|best, other| if other.0 > best.0 { other } else { best });
        let mut known = Known {
            network: smallest.map_or("", |(_, name)| names::keep(name)),
            ..Known::default()
        };
        for database in &self.databases {
            database.look_up(address, &mut known);
        }
        known
    }

    /// The name of a port, empty for none.
    pub fn port(&self, protocol: u8, port: u16) -> &'static str {
        self.services.name(protocol, port)
    }

    fn is_empty(&self) -> bool {
        self.databases.is_empty() && self.ranges.is_empty() && self.services.is_empty()
    }
}

/// What records are written with.
static CURRENT: RwLock<Option<Arc<Networks>>> = RwLock::new(None);
/// How often it has changed; 0: there is nothing and never was.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// From now on records are written with what these know.
pub fn install(networks: Networks) {
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    if current.is_none() && networks.is_empty() {
        return;
    }
    *current = Some(Arc::new(networks));
    GENERATION.fetch_add(1, Ordering::Release);
}

/// Addresses that a thread remembers.
pub const REMEMBERED: usize = 4_096;

/// What a thread asked last.
#[derive(Default)]
struct Recent {
    generation: u64,
    networks: Option<Arc<Networks>>,
    known: Vec<Option<(IpAddr, Known)>>,
}

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

impl Recent {
    fn refresh(&mut self, generation: u64) {
        let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
        self.generation = generation;
        self.networks.clone_from(&current);
        drop(current);
        let empty = (self.networks.iter())
            .all(|networks| networks.databases.is_empty() && networks.ranges.is_empty());
        self.known.clear();
        self.known.resize(if empty { 0 } else { REMEMBERED }, None);
    }

    fn known(&mut self, address: IpAddr) -> Option<Known> {
        let bits = match address {
            IpAddr::V4(v4) => u64::from(u32::from(v4)),
            IpAddr::V6(v6) => (u128::from(v6) ^ u128::from(v6) >> 64) as u64,
        };
        // The spread of a multiplication is in its upper bits.
        let place = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        let slot = self.known.get_mut(place % REMEMBERED)?;
        if let Some((asked, known)) = slot
            && *asked == address
        {
            return Some(*known);
        }
        let known = self.networks.as_ref()?.known(address);
        *slot = Some((address, known));
        Some(known)
    }
}

fn with<T>(ask: impl FnOnce(&mut Recent) -> Option<T>) -> Option<T> {
    let generation = GENERATION.load(Ordering::Acquire);
    if generation == 0 {
        return None;
    }
    RECENT.with_borrow_mut(|recent| {
        if recent.generation != generation {
            recent.refresh(generation);
        }
        ask(recent)
    })
}

/// What is known of an address.
pub fn of(address: IpAddr) -> Known {
    with(|recent| recent.known(address)).unwrap_or_default()
}

/// Whether there are databases, and ranges.
pub fn installed() -> (bool, bool) {
    with(|recent| {
        let networks = recent.networks.as_ref()?;
        Some((!networks.databases.is_empty(), !networks.ranges.is_empty()))
    })
    .unwrap_or_default()
}

/// The name of a port, empty for none.
pub fn port(protocol: u8, port: u16) -> &'static str {
    with(|recent| Some(recent.networks.as_ref()?.port(protocol, port))).unwrap_or_default()
}

#[cfg(test)]
mod tests;
