//! What AF_PACKET and libpcap have in common.

use crate::{Error, Packet};
use std::time::Duration;

/// Counters since the capture was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureStats {
    /// Packets that passed the filter, also those that were then lost. Super-packets count as one.
    pub received: u64,
    /// Packets that were lost because the ring was full. (Where the kernel is older than 6.2 also UDP
    /// super-packets, which it then cannot describe.)
    pub drops: u64,
    /// How often the kernel found the whole ring full and froze it.
    pub freezes: u64,
    /// Packets that were handed over. Once a capture is finished, `received` =
    /// `delivered` + `drops`.
    pub delivered: u64,
    /// Packets among `delivered` that could not be read from the ring: the kernel's own
    /// description of them made no sense. Never seen.
    pub unreadable: u64,
}

/// A source of live packets.
pub trait PacketSource: Send {
    /// Waits for packets, at most `timeout`, and gives those that are there to `packets`.
    /// Returns how many there were.
    fn dispatch(
        &mut self,
        timeout: Duration,
        packets: &mut dyn FnMut(&Packet<'_>),
    ) -> Result<u64, Error>;

    /// Takes no further packets in, gives those that are still there to `packets`, and returns
    /// the final counters.
    fn finish(&mut self, packets: &mut dyn FnMut(&Packet<'_>)) -> Result<CaptureStats, Error>;

    /// Counters up to now.
    fn stats(&mut self) -> Result<CaptureStats, Error>;
}
