//! Configuration of the socket probe.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::section::section;

/// How ended connections are reported.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Each as an event of its own
    #[default]
    Events,
    /// Summed up in the kernel by process and peer
    Aggregate,
}

section! {
    /// How sockets are watched.
    Sockets {
        /// watch sockets: which processes communicate, and how healthy their TCP connections are
        enabled: bool = true;
        /// events: each ended connection is a record; aggregate: the kernel sums them up by process and peer, for
        /// tens of thousands of connections per second
        mode: Mode = Mode::Events;
        /// also UDP sockets that send without connect, detected by their first datagram
        udp_sends: bool = true;
        /// maximum number of open sockets that are watched at a time
        max_sockets: u32 = 262_144;
        /// memory for sockets that have ended; 0: none
        #[serde(with = "crate::size")]
        history: u64 = 32 << 20;
        /// conversations that the graph of services (`skua services --graph`) remembers, about 1 KB each; 0: no graph
        graph: u32 = 16_384;
    }
}

/// Most sockets that may be configured: a gigabyte of memory.
const MOST_SOCKETS: u32 = 4 << 20;

impl Sockets {
    /// Refuses what cannot be.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.max_sockets == 0 || self.max_sockets > MOST_SOCKETS {
            anyhow::bail!(
                "sockets.max_sockets is {}, must be 1 to {MOST_SOCKETS}",
                self.max_sockets
            );
        }
        Ok(())
    }
}

/// When the agent's disk accesses are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoNice {
    /// As the kernel does it.
    #[default]
    None,
    /// Best effort, of a level from 0 (first) to 7.
    BestEffort(u8),
    /// Only when no other process uses the disk.
    Idle,
}

impl std::str::FromStr for IoNice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = |level: &str| level.parse().ok().filter(|level| *level <= 7);
        match text {
            "none" | "" => Ok(Self::None),
            "idle" => Ok(Self::Idle),
            _ => text
                .strip_prefix("best-effort:")
                .and_then(level)
                .map(Self::BestEffort)
                .ok_or_else(|| {
                    format!(
                        "\"{text}\" is not an I/O priority: none, idle, or best-effort:0 to \
                         best-effort:7"
                    )
                }),
        }
    }
}

/// Lowers the priority of this process, before it starts threads.
pub fn lower_priority(nice: i32, ionice: &str) -> anyhow::Result<()> {
    if nice != 0 {
        rustix::process::setpriority_process(None, nice)
            .map_err(|error| anyhow::anyhow!("cannot set agent.nice to {nice}: {error}"))?;
    }
    let priority = match ionice
        .parse()
        .map_err(|e| anyhow::anyhow!("agent.ionice: {e}"))?
    {
        IoNice::None => return Ok(()),
        IoNice::BestEffort(level) => skua_kernel::priority::IoPriority::BestEffort(level),
        IoNice::Idle => skua_kernel::priority::IoPriority::Idle,
    };
    skua_kernel::priority::set_io_priority(priority)
        .map_err(|error| anyhow::anyhow!("cannot set agent.ionice to {ionice}: {error}"))
}

/// BTF to use instead of the kernel's own.
pub fn btf(path: &str) -> Option<PathBuf> {
    (!path.is_empty()).then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_priorities_are_read() {
        assert_eq!("none".parse(), Ok(IoNice::None));
        assert_eq!("idle".parse(), Ok(IoNice::Idle));
        assert_eq!("best-effort:7".parse(), Ok(IoNice::BestEffort(7)));
        for wrong in ["best-effort:8", "best-effort", "realtime:1", "7"] {
            assert!(wrong.parse::<IoNice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_number_of_sockets_is_bounded() {
        for (max_sockets, good) in [
            (0, false),
            (1, true),
            (MOST_SOCKETS, true),
            (u32::MAX, false),
        ] {
            let sockets = Sockets {
                max_sockets,
                ..Sockets::default()
            };
            assert_eq!(sockets.check().is_ok(), good, "{max_sockets}");
        }
    }
}
