//! Export to collectors.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::section::section;

/// The smallest datagrams, bytes; and the largest that UDP has.
const DATAGRAM: std::ops::RangeInclusive<u32> = skua_collect::LEAST_DATAGRAM as u32..=65_000;

section! {
    /// Export to collectors.
    ExportSettings {
        /// collectors that flows are exported to in sFlow, a list of addresses like collector:6343, or names of SRV
        /// records like _skua._udp.example.org; each address of a name is a collector, and each conversation goes to
        /// one of them
        collectors: Vec<String> = Vec::new(), flag "--collector";
        /// file with a line of a name and a secret that seals datagrams, so that collectors can verify the sender;
        /// empty: datagrams are not sealed
        key_file: String = String::new();
        /// how often names of collectors are resolved: collectors may be added, removed and moved without a
        /// restart
        #[serde(with = "crate::time")]
        look_up: Duration = Duration::from_secs(30);
        /// maximum size of datagrams to collectors in bytes, without UDP and IP headers; at least 1,152
        datagram: u32 = 1_400;
        /// whether standard samples also cover what the destination of a conversation sent, for collectors other than
        /// Skua's; false sends a third less
        both_directions: bool = true;
        /// memory for datagrams that wait to be sent
        #[serde(with = "crate::size")]
        queue: u64 = 16 << 20;
        /// address that identifies this host to collectors; empty: the source address of its datagrams
        agent: String = String::new();
        /// distinguishes several agents of one address
        sub_agent: u32 = 0;
        /// whether collectors must answer: auto, always (a collector that does not answer is unavailable) or never
        answers: Expected = Expected::Auto;
        spool: SpoolSettings;
    }
}

/// Collectors; overrides the configuration.
#[derive(Args, Debug, Clone, Default)]
pub struct ExportArguments {
    /// Export sFlow to a collector, like collector:6343, or those that an SRV record names, like
    /// _skua._udp.example.org; of several, separated by commas or addresses of one name, each conversation is
    /// exported to one
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub collector: Vec<String>,
    /// Store in this directory what a collector cannot receive, until it answers again
    #[arg(long, value_name = "DIR")]
    pub spool: Option<String>,
}

impl ExportSettings {
    /// Flags override the configuration.
    pub fn override_with(&mut self, arguments: &ExportArguments) {
        if !arguments.collector.is_empty() {
            self.collectors.clone_from(&arguments.collector);
        }
        if let Some(directory) = &arguments.spool {
            self.spool.directory.clone_from(directory);
        }
    }

    /// What cannot be.
    pub fn check(&self) -> anyhow::Result<()> {
        if !DATAGRAM.contains(&self.datagram) {
            bail!(
                "export.datagram is {}; {} to {} bytes, please",
                self.datagram,
                DATAGRAM.start(),
                DATAGRAM.end()
            );
        }
        let sealed = *DATAGRAM.start() + skua_wire::sflow::own::SEAL_SAMPLE as u32;
        if !self.key_file.is_empty() && self.datagram < sealed {
            bail!(
                "export.datagram is {}; at least {sealed} bytes, please: a seal needs room",
                self.datagram
            );
        }
        if self.look_up < Duration::from_secs(1) {
            bail!(
                "export.look_up is {}; at least 1s, please",
                humantime::format_duration(self.look_up)
            );
        }
        self.agent_address()?;
        self.spool.check()
    }

    /// By which this host calls itself; none: by that which it sends from.
    pub fn agent_address(&self) -> anyhow::Result<Option<IpAddr>> {
        match self.agent.as_str() {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .with_context(|| format!("export.agent: \"{text}\" is not an IP address")),
        }
    }
}

/// Whether answers are expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    /// Of collectors that have answered.
    #[default]
    Auto,
    /// All: one that has not answered yet is unavailable.
    Always,
    /// None: only ICMP errors show that one is unavailable.
    Never,
}

/// Bytes of a spool that are few enough.
const LEAST: u64 = 1 << 20;

section! {
    /// Records stored while a collector is unavailable.
    SpoolSettings {
        /// where records are stored for a collector that is unavailable; empty: nowhere
        directory: String = String::new(), flag "--spool";
        /// maximum size of the records there; beyond it the oldest are deleted
        #[serde(with = "crate::size")]
        max_bytes: u64 = 256 << 20;
        /// maximum number of datagrams per second that are sent from there
        rate: u32 = 500;
    }
}

impl SpoolSettings {
    /// What cannot be.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.max_bytes < LEAST {
            bail!(
                "export.spool.max_bytes is {}; at least 1 MiB, please",
                self.max_bytes
            );
        }
        if self.rate == 0 {
            bail!("export.spool.rate is 0: nothing would ever be sent");
        }
        Ok(())
    }
}
