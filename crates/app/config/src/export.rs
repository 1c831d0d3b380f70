//! What is to be told to which collectors.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{size, time};

/// The smallest datagrams, bytes; and the largest that UDP has.
const DATAGRAM: std::ops::RangeInclusive<u32> = skua_collect::LEAST_DATAGRAM as u32..=65_000;

/// What collectors are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportSettings {
    /// Addresses.
    pub collectors: Vec<String>,
    /// Bytes of a datagram at most.
    pub datagram: u32,
    /// Whether what the destination sent is a standard sample, too.
    pub both_directions: bool,
    /// Memory for datagrams that wait.
    #[serde(with = "size")]
    pub queue: u64,
    /// The agent's address.
    pub agent: String,
    /// Tells agents of one address apart.
    pub sub_agent: u32,
    /// File with the key that datagrams are sealed with; empty: they are not.
    pub key_file: String,
    /// Names of collectors are looked up again so often.
    #[serde(with = "time")]
    pub look_up: Duration,
    /// Whether collectors are to answer.
    pub answers: Expected,
    /// What is kept while a collector is gone.
    pub spool: SpoolSettings,
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self {
            collectors: Vec::new(),
            datagram: 1_400,
            both_directions: true,
            queue: 16 << 20,
            agent: String::new(),
            sub_agent: 0,
            key_file: String::new(),
            look_up: Duration::from_secs(30),
            answers: Expected::default(),
            spool: SpoolSettings::default(),
        }
    }
}

/// Whom to tell; overrides the configuration.
#[derive(Args, Debug, Clone, Default)]
pub struct ExportArguments {
    /// Tell a collector in sFlow, like collector:6343, or those that an SRV record names, like
    /// _skua._udp.example.org; of several, separated by commas or addresses of one name, each conversation is
    /// told to one
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub collector: Vec<String>,
    /// Keep on disk, in this directory, what a collector cannot be told, until it is there again
    #[arg(long, value_name = "DIR")]
    pub spool: Option<String>,
}

impl ExportSettings {
    /// Flags replace what is configured.
    pub fn take_arguments(&mut self, arguments: &ExportArguments) {
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
                .with_context(|| format!("export.agent: \"{text}\" is no IP address")),
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
    /// Of all: one that has not answered yet is gone.
    Always,
    /// Of none: that one is gone only ICMP says.
    Never,
}

/// Bytes of a spool that are few enough.
const LEAST: u64 = 1 << 20;

/// What is kept while a collector is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpoolSettings {
    /// Where; nothing is kept when that is empty.
    pub directory: String,
    /// Bytes on disk at most, for all collectors.
    #[serde(with = "size")]
    pub max_bytes: u64,
    /// Datagrams a second that are sent out of it at most.
    pub rate: u32,
}

impl Default for SpoolSettings {
    fn default() -> Self {
        Self {
            directory: String::new(),
            max_bytes: 256 << 20,
            rate: 500,
        }
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
