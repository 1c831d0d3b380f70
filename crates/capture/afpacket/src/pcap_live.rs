//! Live capture through libpcap, where its filter language or its support of unusual devices matters more
//! than speed.
//!
//! libpcap reports neither how super-packets are cut nor a packet's direction: [`Packet::gso`] is `None`
//! and [`Packet::direction`] unknown. A VLAN tag that was removed from a packet is put back into its data.

use crate::{CaptureStats, Direction, Error, Packet, PacketSource, filter, sys};
use pcap::{Active, Capture, Precision};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// libpcap counts in 32 bits; read so often, they cannot overflow unseen.
const PACKETS_BETWEEN_STATS: u64 = 1 << 24;
/// Rounds without a packet after which nothing more is expected.
const FINISH_QUIET_ROUNDS: u32 = 3;
/// Largest buffer, as libpcap takes an `int`.
const MAX_BUFFER_BYTES: u32 = 1 << 30;

/// What to capture and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the interface in the calling thread's network namespace.
    pub interface: String,
    /// Size of the buffer in bytes, 64 KiB to 1 GiB.
    pub buffer_bytes: u32,
    /// Bytes that are kept of each packet, 64 to 262,144.
    pub snaplen: u32,
    /// Milliseconds after which packets are handed over although the buffer is not full, 1 to
    /// 10,000.
    pub timeout_ms: u32,
    /// Receive also what is for other machines.
    pub promiscuous: bool,
    /// Filter expression (pcap-filter(7)); empty: all.
    pub filter: String,
}

impl Options {
    /// Defaults for an interface: all packets, 8 MiB, 512 bytes of each packet, 100 ms, not
    /// promiscuous.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            buffer_bytes: 8 << 20,
            snaplen: 512,
            timeout_ms: 100,
            promiscuous: false,
            filter: String::new(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let bounds = [
            (
                "buffer in bytes",
                self.buffer_bytes,
                64 << 10,
                MAX_BUFFER_BYTES,
            ),
            ("bytes of each packet", self.snaplen, 64, 256 << 10),
            ("timeout in ms", self.timeout_ms, 1, 10_000),
        ];
        for (what, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(Error::Options {
                    interface: self.interface.clone(),
                    what: format!("{what}: {value} is not within {least} to {most}"),
                });
            }
        }
        Ok(())
    }
}

/// A capture of one interface with libpcap.
pub struct PcapCapture {
    capture: Capture<Active>,
    interface: String,
    timeout: Duration,
    stats: CaptureStats,
    counted: RawCounters,
    stats_due: u64,
}

/// libpcap's own counters when they were last read.
#[derive(Default)]
struct RawCounters {
    received: u32,
    dropped: u32,
}

impl PcapCapture {
    /// Opens a capture in the calling thread's network namespace.
    pub fn open(options: &Options) -> Result<Self, Error> {
        options.check()?;
        let failed = |error: pcap::Error| describe(&options.interface, error);
        // The bounds above make the conversions exact.
        let mut capture = Capture::from_device(options.interface.as_str())
            .map_err(failed)?
            .promisc(options.promiscuous)
            .immediate_mode(false)
            .timeout(options.timeout_ms as i32)
            .buffer_size(options.buffer_bytes as i32)
            .snaplen(options.snaplen as i32)
            .precision(Precision::Nano)
            .open()
            .map_err(failed)?
            // libpcap would wait for ever on a quiet interface, so this code polls.
            .setnonblock()
            .map_err(failed)?;
        if !options.filter.is_empty() {
            capture
                .filter(&options.filter, true)
                .map_err(|error| Error::Filter {
                    interface: options.interface.clone(),
                    what: words(error),
                })?;
        }
        Ok(Self {
            capture,
            interface: options.interface.clone(),
            timeout: Duration::from_millis(options.timeout_ms.into()),
            stats: CaptureStats::default(),
            counted: RawCounters::default(),
            stats_due: PACKETS_BETWEEN_STATS,
        })
    }

    /// Link-layer type of the packets (LINKTYPE_…, 1 is Ethernet).
    pub fn linktype(&self) -> i32 {
        self.capture.get_datalink().0
    }

    /// Adds what libpcap has counted since the last time.
    fn read_stats(&mut self) -> Result<(), Error> {
        let new = self
            .capture
            .stats()
            .map_err(|e| describe(&self.interface, e))?;
        self.stats.received += u64::from(new.received.wrapping_sub(self.counted.received));
        self.stats.drops += u64::from(new.dropped.wrapping_sub(self.counted.dropped));
        self.counted = RawCounters {
            received: new.received,
            dropped: new.dropped,
        };
        self.stats_due = self.stats.delivered + PACKETS_BETWEEN_STATS;
        Ok(())
    }
}

impl PacketSource for PcapCapture {
    fn dispatch(
        &mut self,
        timeout: Duration,
        packets: &mut dyn FnMut(&Packet<'_>),
    ) -> Result<u64, Error> {
        let mut fds = [PollFd::new(&self.capture, PollFlags::IN | PollFlags::ERR)];
        // A timeout that does not fit is as good as none.
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(Error::System {
                    interface: self.interface.clone(),
                    action: "waiting for packets",
                    source: e.into(),
                });
            }
        }
        // Even when the poll timed out: libpcap checks whether the interface still exists.
        let mut count = 0;
        let read = self.capture.dispatch(None, |packet| {
            count += 1;
            packets(&convert(&packet));
        });
        self.stats.delivered += count;
        read.map_err(|error| describe(&self.interface, error))?;
        if self.stats.delivered >= self.stats_due {
            self.read_stats()?;
        }
        Ok(count)
    }

    fn finish(&mut self, packets: &mut dyn FnMut(&Packet<'_>)) -> Result<CaptureStats, Error> {
        // Not through libpcap: it would apply the new filter also to what is already there.
        sys::attach_filter(&self.capture, &filter::DROP_ALL).map_err(|source| Error::System {
            interface: self.interface.clone(),
            action: "attaching a filter",
            source,
        })?;
        let mut quiet = 0;
        while quiet < FINISH_QUIET_ROUNDS {
            self.read_stats()?;
            if self.stats.delivered >= self.stats.received - self.stats.drops {
                break;
            }
            match self.dispatch(self.timeout, packets) {
                Ok(0) => quiet += 1,
                Ok(_) => quiet = 0,
                // The block that was being filled still comes when its time is over; libpcap does
                // not wait for it.
                Err(Error::InterfaceDown { .. } | Error::InterfaceGone { .. }) => {
                    quiet += 1;
                    std::thread::sleep(self.timeout);
                }
                Err(error) => return Err(error),
            }
        }
        self.stats()
    }

    fn stats(&mut self) -> Result<CaptureStats, Error> {
        self.read_stats()?;
        Ok(self.stats)
    }
}

impl AsFd for PcapCapture {
    /// Descriptor that becomes readable when there are packets.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.capture.as_fd()
    }
}

/// A packet of libpcap's as one of ours.
fn convert<'a>(packet: &pcap::Packet<'a>) -> Packet<'a> {
    let time = packet.header.ts;
    Packet {
        data: packet.data,
        length: packet.header.len,
        // With Precision::Nano the field of microseconds holds nanoseconds.
        timestamp_ns: (time.tv_sec as u64) * 1_000_000_000 + time.tv_usec as u64,
        vlan: None,
        direction: Direction::Unknown,
        ifindex: 0,
        gso: None,
    }
}

/// libpcap's words without those of the crate around it.
fn words(error: pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(words) => words,
        other => other.to_string(),
    }
}

/// The error that libpcap's words mean: it has numbers for them, but does not give them away here.
fn describe(interface: &str, error: pcap::Error) -> Error {
    let interface = interface.to_owned();
    let what = words(error);
    let says = |part: &str| what.contains(part);
    if says("No such device") {
        Error::NoInterface { interface }
    } else if says("permission") || says("Operation not permitted") {
        Error::Denied { interface }
    } else if says("disappeared") {
        Error::InterfaceGone { interface }
    } else if says("went down") || says("not up") || says("Network is down") {
        Error::InterfaceDown { interface }
    } else {
        Error::Libpcap { interface, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept() {
        let good = Options::new("lo");
        assert!(good.check().is_ok());
        for bad in [
            Options {
                buffer_bytes: 1000,
                ..good.clone()
            },
            Options {
                buffer_bytes: u32::MAX,
                ..good.clone()
            },
            Options {
                snaplen: 0,
                ..good.clone()
            },
            Options {
                timeout_ms: 0,
                ..good.clone()
            },
        ] {
            assert!(matches!(bad.check(), Err(Error::Options { .. })), "{bad:?}");
        }
    }
}
