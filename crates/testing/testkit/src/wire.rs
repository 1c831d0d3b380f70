//! Two namespaces and a wire, and what the kernel counts on it.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;

use crate::lab::{Net, wait_for};

/// Packets and link-layer bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Packets.
    pub packets: u64,
    /// Bytes, link-layer headers included.
    pub bytes: u64,
}

impl Sum {
    /// Nothing.
    pub const ZERO: Self = Self {
        packets: 0,
        bytes: 0,
    };

    /// So many.
    pub fn new(packets: u64, bytes: u64) -> Self {
        Self { packets, bytes }
    }

    /// From an object with `packets` and `bytes`; nothing is nothing.
    pub fn of(value: &Value) -> Self {
        if value.is_null() {
            return Self::ZERO;
        }
        Self {
            packets: value["packets"].as_u64().unwrap(),
            bytes: value["bytes"].as_u64().unwrap(),
        }
    }

    /// Both not greater than the other's.
    pub fn within(self, other: Self) -> bool {
        self.packets <= other.packets && self.bytes <= other.bytes
    }
}

impl std::ops::Add for Sum {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.packets + other.packets, self.bytes + other.bytes)
    }
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::Sub for Sum {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::new(self.packets - other.packets, self.bytes - other.bytes)
    }
}

impl std::iter::Sum for Sum {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, |a, b| a + b)
    }
}

/// Counters of an interface as `ip -s link` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Received.
    pub rx: Sum,
    /// Sent.
    pub tx: Sum,
    /// Packets that were received and dropped.
    pub rx_dropped: u64,
    /// Packets that were not sent.
    pub tx_dropped: u64,
}

impl std::ops::Sub for Counters {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            rx: self.rx - other.rx,
            tx: self.tx - other.tx,
            rx_dropped: self.rx_dropped - other.rx_dropped,
            tx_dropped: self.tx_dropped - other.tx_dropped,
        }
    }
}

impl Net {
    /// What an interface has counted.
    #[track_caller]
    pub fn counters(&self, interface: &str) -> Counters {
        let link = self.link(interface);
        let (rx, tx) = (&link["stats64"]["rx"], &link["stats64"]["tx"]);
        Counters {
            rx: Sum::of(rx),
            tx: Sum::of(tx),
            rx_dropped: rx["dropped"].as_u64().unwrap(),
            tx_dropped: tx["dropped"].as_u64().unwrap(),
        }
    }

    /// The counters once they have stopped to change.
    #[track_caller]
    pub fn settled_counters(&self, interface: &str) -> Counters {
        let mut before = self.counters(interface);
        wait_for("end of the traffic", || {
            std::thread::sleep(std::time::Duration::from_millis(60));
            let now = self.counters(interface);
            (std::mem::replace(&mut before, now) == now).then_some(now)
        })
    }
}

/// Two namespaces and a wire: `g0` where traffic is made, `x0` where it is watched.
#[derive(Debug)]
pub struct Wire {
    /// Has `g0`.
    pub far: Net,
    /// Has `x0`.
    pub near: Net,
}

impl Wire {
    /// Both ends up, without addresses.
    #[allow(clippy::new_without_default, reason = "it is no value")]
    pub fn new() -> Self {
        let wire = Self {
            far: Net::new(),
            near: Net::new(),
        };
        wire.far.veth("g0", &wire.near, "x0");
        wire
    }

    /// Gives both ends addresses, 10.7.0.1 to `g0` and 10.7.0.2 to `x0`, and tells them each
    /// other's MAC so that nobody asks.
    pub fn with_addresses(self) -> Self {
        self.far.ip("addr add 10.7.0.1/24 dev g0");
        self.near.ip("addr add 10.7.0.2/24 dev x0");
        self.far
            .ip("neigh add 10.7.0.2 lladdr 02:00:00:00:0b:01 dev g0 nud permanent");
        self.near
            .ip("neigh add 10.7.0.1 lladdr 02:00:00:00:0a:01 dev x0 nud permanent");
        self
    }
}
