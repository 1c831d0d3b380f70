//! Which flows a query may want, by the record alone: most are passed over before anything else is made of
//! them.

use skua_flow::{Endpoint, FlowRecord, FlowStore, Network};
use skua_topology::IndexKey;
use std::{net::IpAddr, ops::ControlFlow};

/// Flows that may be wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// All.
    All,
    /// Those with an address on side A (or B).
    Address {
        /// Whether on side A.
        a: bool,
        /// The address.
        ip: IpAddr,
        /// The address as keys have it.
        bytes: [u8; 16],
    },
    /// Those with a port on side A (or B).
    Port {
        /// Whether on side A.
        a: bool,
        /// The port.
        port: u16,
    },
}

/// At most so many flows are found by an address, and by a port: the planner chooses the first look-up by that.
const BY_ADDRESS: usize = 1_000_000;
const BY_PORT: usize = 100_000_000;

fn number(value: &IndexKey) -> Option<u16> {
    match value {
        IndexKey::Int(number) => u16::try_from(*number).ok(),
        IndexKey::Str(text) => text.parse().ok(),
        _ => None,
    }
}

impl Wanted {
    /// Those with a value under a key; none when the record alone does not show that.
    pub fn by(key: &str, value: &IndexKey) -> Option<Self> {
        let (layer, side) = key.split_once('.')?;
        let a = match side {
            "A" => true,
            "B" => false,
            _ => return None,
        };
        match (layer, value) {
            ("Network", IndexKey::Str(text)) => {
                let ip: IpAddr = text.parse().ok()?;
                let bytes = match ip {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                };
                Some(Self::Address { a, ip, bytes })
            }
            ("Transport", value) => Some(Self::Port {
                a,
                port: number(value)?,
            }),
            _ => None,
        }
    }

    /// About how many there may be.
    pub(crate) fn estimate(&self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Address { .. } => Some(BY_ADDRESS),
            Self::Port { .. } => Some(BY_PORT),
        }
    }

    /// The address that one of the sides has.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address { ip, .. } => Some(*ip),
            Self::All | Self::Port { .. } => None,
        }
    }

    /// Visits those of a store in the places from `from` on, at most so many places, as [`FlowStore::scan`].
    pub fn scan(
        &self,
        store: &FlowStore,
        from: u32,
        places: u32,
        visit: &mut dyn FnMut(&FlowRecord) -> ControlFlow<()>,
    ) -> Option<u32> {
        let endpoint = match self {
            Self::All => return store.scan(from, places, visit),
            Self::Address { bytes, .. } => Endpoint::Address(*bytes),
            Self::Port { port, .. } => Endpoint::Port(*port),
        };
        store.scan_endpoint(
            from,
            places,
            endpoint,
            &mut |record| match self.has(record) {
                true => visit(record),
                false => ControlFlow::Continue(()),
            },
        )
    }

    /// Whether a flow is one of them.
    pub fn has(&self, record: &FlowRecord) -> bool {
        let side = |a: bool| if a { record.a() } else { record.b() };
        match self {
            Self::All => true,
            Self::Address { a, ip, bytes } => {
                let network = match ip {
                    IpAddr::V4(_) => Network::V4,
                    IpAddr::V6(_) => Network::V6,
                };
                side(*a).0 == bytes && record.key.network() == network
            }
            Self::Port { a, port } => record.key.has_ports() && side(*a).1 == *port,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::{Counters, FlowKey, FlowUpdate, StoreLimits};
    use skua_topology::Value;

    fn update(number: u16) -> FlowUpdate {
        let [high, low] = number.to_be_bytes();
        let ipv6 = number.is_multiple_of(7);
        let mut key = FlowKey {
            lo_port: (number % 50).to_be_bytes(),
            hi_port: (number % 11).to_be_bytes(),
            // ICMP has its type and code in the place of ports.
            proto: [6, 17, 1][usize::from(number % 3)],
            kind: if ipv6 { 2 } else { 1 },
            ifindex: number.into(),
            ..FlowKey::default()
        };
        for (address, end) in [(&mut key.lo, [high, low % 8]), (&mut key.hi, [0, low % 5])] {
            address[14..].copy_from_slice(&end);
            if !ipv6 {
                address[10..12].copy_from_slice(&[0xff; 2]);
            }
        }
        FlowUpdate {
            key,
            lo_sent: Counters::new(1, 60),
            lo_first: number.is_multiple_of(2),
            ..FlowUpdate::default()
        }
    }

    #[test]
    fn the_store_is_asked_for_all_that_are_wanted() {
        let mut store = FlowStore::new(StoreLimits::default(), 99, 1);
        store.begin_drain(1);
        for number in 0..3_000 {
            store.apply(&update(number));
        }
        let keys = [
            ("Network.A", Value::from("0.0.0.3")),
            ("Network.B", Value::from("0.0.2.1")),
            ("Network.A", Value::from("::2")),
            ("Network.B", Value::from("::4")),
            ("Transport.A", Value::Int(7)),
            ("Transport.B", Value::from("10")),
        ];
        for (key, value) in keys {
            let wanted = Wanted::by(key, &IndexKey::of(&value).unwrap()).unwrap();
            let (mut found, mut from) = (Vec::new(), Some(0));
            while let Some(next) = from {
                from = wanted.scan(&store, next, 700, &mut |record| {
                    found.push(record.key.ifindex);
                    ControlFlow::Continue(())
                });
            }
            let known = store.iter().filter(|record| wanted.has(record));
            let known: Vec<u32> = known.map(|record| record.key.ifindex).collect();
            assert!(!known.is_empty(), "{key} {value:?}");
            assert_eq!(found, known, "{key} {value:?}");
        }
    }
}
