//! Configuration of what is read of what is said in conversations.

use std::time::Duration;

use crate::section::section;

section! {
    /// What is said in conversations: DNS and TLS (docs/dns.md).
    App {
        /// read what is said in conversations: questions to name servers and their answers, what clients of TLS say first
        enabled: bool = false;
        /// keep no more of names than their last two labels, and no answers: `*.example.com`
        redact: bool = false;
        /// packets that are read per second and processor; more are counted (`head_limit`)
        rate: u32 = 50_000;
        /// memory of the ring through which the kernel sends them; what does not fit is counted (`head_lost`)
        #[serde(with = "crate::size")]
        ring: u64 = 4 << 20;
        /// lookups that are kept in memory
        records: u32 = 20_000;
        /// pairs of client and address whose names are remembered
        names: u32 = 65_536;
        /// a question without an answer for so long gets none
        #[serde(with = "crate::time")]
        timeout: Duration = Duration::from_secs(5);
    }
}

/// Records and names that may be kept: a gigabyte of memory.
const MOST: u32 = 1 << 20;

impl App {
    /// Refuses what cannot be.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.enabled && self.rate == 0 {
            anyhow::bail!("app.rate is 0: set app.enabled to false to read nothing");
        }
        for (key, value) in [("records", self.records), ("names", self.names)] {
            if value > MOST {
                anyhow::bail!("app.{key} is {value}, must be at most {MOST}");
            }
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&self.timeout) {
            anyhow::bail!("app.timeout must be 100ms to 60s");
        }
        Ok(())
    }
}
