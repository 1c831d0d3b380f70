//! Sums, and waiting.

use serde_json::Value;

/// Whether tests that need root shall run. Without rights they fail, on purpose: they are only left
/// out when SKUA_NO_ROOT_TESTS=1 says so.
pub fn root_tests() -> bool {
    let wanted = std::env::var_os("SKUA_NO_ROOT_TESTS").is_none_or(|value| value != "1");
    if !wanted {
        eprintln!("left out: SKUA_NO_ROOT_TESTS=1");
    }
    wanted
}

/// Packets and link-layer bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    pub packets: u64,
    pub bytes: u64,
}

impl Sum {
    pub const ZERO: Self = Self {
        packets: 0,
        bytes: 0,
    };

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

/// Looks again and again until something is there; fails when it does not come in a minute, which
/// is far more than any machine needs.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < patience, "no {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
