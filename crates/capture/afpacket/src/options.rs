//! How a ring is set up.

use crate::{BpfInstruction, Error};

/// Largest ring per socket in bytes.
pub const MAX_RING_BYTES: usize = 1 << 30;
/// A frame's headers and some data must fit a block with room to spare.
const MIN_BLOCK_BYTES: usize = 16 << 10;
/// The kernel's limit; larger blocks are hard to allocate in fragmented memory.
const MAX_BLOCK_BYTES: usize = 4 << 20;
/// Longest snaplen that can be requested.
const MAX_SNAPLEN: u32 = 256 << 10;

/// How the packets of an interface are spread over several sockets (PACKET_FANOUT_…).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fanout {
    /// By a hash of addresses and ports, the same in both directions: each conversation stays on
    /// one socket.
    Hash,
    /// By the CPU that the packet came on.
    Cpu,
}

/// What to capture and how. Everything but the interface has a default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Index of the interface in the calling thread's network namespace.
    pub ifindex: u32,
    /// Its name, for messages only.
    pub interface: String,
    /// It is the loopback interface: what is sent there is received there, so that packets are
    /// taken only when they are received. Otherwise each would be counted twice.
    pub loopback: bool,
    /// Size of the ring in bytes, per socket; rounded down to whole blocks, at least two.
    pub ring_bytes: usize,
    /// Size of one block in bytes: a power of two from 16 KiB to 4 MiB. A block is handed over
    /// when it is full or `block_timeout_ms` old. Larger blocks wake the reader less often: with
    /// 1,500-byte packets 1 MiB took 55 ns of CPU per packet, 256 KiB 92 and 64 KiB 190.
    pub block_bytes: usize,
    /// Milliseconds, 1 to 10,000.
    pub block_timeout_ms: u32,
    /// Bytes that are kept of each packet: enough for all headers. What is not kept is not
    /// copied, and the ring holds more packets: with 1,500-byte packets 128 bytes took 19 ns of
    /// CPU per packet, 512 bytes 55 and all of them 120.
    pub snaplen: u32,
    /// Receive also what is for other machines.
    pub promiscuous: bool,
    /// Classic BPF program that selects the packets; empty: all. It sees a packet without the VLAN tag that
    /// was removed from it.
    pub filter: Vec<BpfInstruction>,
}

impl Options {
    /// Defaults for an interface: all packets, 8 MiB in blocks of 1 MiB at most 100 ms old, 512
    /// bytes of each packet, not promiscuous.
    pub fn new(ifindex: u32, interface: impl Into<String>) -> Self {
        Self {
            ifindex,
            interface: interface.into(),
            loopback: false,
            ring_bytes: 8 << 20,
            block_bytes: 1 << 20,
            block_timeout_ms: 100,
            snaplen: 512,
            promiscuous: false,
            filter: Vec::new(),
        }
    }

    /// Whether everything is within its bounds.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| {
            Err(Error::Options {
                interface: self.interface.clone(),
                what,
            })
        };
        // Index 0 would mean all interfaces.
        if self.ifindex == 0 || i32::try_from(self.ifindex).is_err() {
            return refuse(format!(
                "interface index {}: from 1 to {}",
                self.ifindex,
                i32::MAX
            ));
        }
        if !self.block_bytes.is_power_of_two()
            || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&self.block_bytes)
        {
            return refuse(format!(
                "block of {} bytes: a power of two from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}",
                self.block_bytes
            ));
        }
        if self.ring_bytes < 2 * self.block_bytes || self.ring_bytes > MAX_RING_BYTES {
            return refuse(format!(
                "ring of {} bytes: from two blocks ({}) to {MAX_RING_BYTES}",
                self.ring_bytes,
                2 * self.block_bytes
            ));
        }
        if !(1..=10_000).contains(&self.block_timeout_ms) {
            return refuse(format!(
                "block timeout of {} ms: from 1 to 10000",
                self.block_timeout_ms
            ));
        }
        if !(64..=MAX_SNAPLEN).contains(&self.snaplen) {
            return refuse(format!(
                "{} bytes of each packet: from 64 to {MAX_SNAPLEN}",
                self.snaplen
            ));
        }
        Ok(())
    }

    /// Number of blocks in the ring.
    pub(crate) fn blocks(&self) -> usize {
        self.ring_bytes / self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept() {
        let good = Options::new(1, "lo");
        assert!(good.check().is_ok());
        let bad = [
            Options {
                ifindex: 0,
                ..good.clone()
            },
            Options {
                ifindex: 1 << 31,
                ..good.clone()
            },
            Options {
                block_bytes: 100_000,
                ..good.clone()
            },
            Options {
                block_bytes: 8 << 10,
                ..good.clone()
            },
            Options {
                block_bytes: 8 << 20,
                ring_bytes: 64 << 20,
                ..good.clone()
            },
            Options {
                ring_bytes: 256 << 10,
                ..good.clone()
            },
            Options {
                ring_bytes: usize::MAX,
                ..good.clone()
            },
            Options {
                block_timeout_ms: 0,
                ..good.clone()
            },
            Options {
                snaplen: 63,
                ..good.clone()
            },
        ];
        for options in bad {
            assert!(
                matches!(options.check(), Err(Error::Options { .. })),
                "{options:?}"
            );
        }
    }
}
