//! Settings of `skua collector`: sources and sinks.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, bail};
use skua_flow::Prefix;

use crate::section::section;

section! {
    /// Sources and sinks of `skua collector`.
    Collector {
        /// addresses where `skua collector` receives sFlow, NetFlow 5 and 9 and IPFIX; beyond loopback it
        /// needs collector.allow
        listen: Vec<SocketAddr> = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6343)], flag "--listen";
        /// prefixes of senders whose datagrams are accepted; empty: all
        allow: Vec<String> = Vec::new(), flag "--allow";
        /// threads that receive datagrams, and as many that sum up, 1 to 64
        threads: u8 = 1, flag "--threads";
        /// datagrams per second accepted from one sender, at least 10; beyond that only its own datagrams are dropped
        sender_rate: u32 = 20_000, flag "--sender-rate";
        /// file with lines of a name and a secret: datagrams of sFlow must be sealed with one of them
        /// (export.key_file); empty: they need no seal
        key_file: String = String::new(), flag "--keys";
        /// prefixes of senders whose datagrams need no seal all the same, like switches and NetFlow exporters
        unsealed: Vec<String> = Vec::new(), flag "--unsealed";
        /// where lines are written, a list of stdout, analyzer://HOST:PORT, kafka://BROKER:PORT/TOPIC, none, or a lake:
        /// parquet://DIR, s3://BUCKET/PREFIX, hdfs://HOST:PORT/PATH (with the keys lake.… except the directory)
        sinks: Vec<String> = vec!["stdout".into()], flag "--sink";
        /// address of /metrics, /health and /ready, without a login; auto: 127.0.0.1:6344 if that is free; none: nowhere
        metrics: String = crate::AUTO.into(), flag "--metrics";
        /// length of a window
        #[serde(with = "crate::time")]
        window: Duration = Duration::from_secs(10), flag "--window";
        /// how long a window stays open after its end; longer than the agents' scan interval
        #[serde(with = "crate::time")]
        wait: Duration = Duration::from_secs(15), flag "--wait";
        /// maximum number of services and clients in open windows
        max_keys: usize = 1_000_000, flag "--max-keys";
        /// maximum number of conversations that the collector remembers
        max_conversations: usize = 1_000_000, flag "--max-conversations";
    }
}

fn prefixes(key: &str, texts: &[String]) -> anyhow::Result<Vec<Prefix>> {
    let read = |text: &String| text.parse().with_context(|| format!("{key}: \"{text}\""));
    texts.iter().map(read).collect()
}

impl Collector {
    /// Senders whose datagrams are accepted; none: all.
    pub fn allowed(&self) -> anyhow::Result<Vec<Prefix>> {
        prefixes("collector.allow", &self.allow)
    }

    /// Senders that need no seal.
    pub fn unsealed(&self) -> anyhow::Result<Vec<Prefix>> {
        prefixes("collector.unsealed", &self.unsealed)
    }

    /// The error is the first invalid setting.
    pub fn check(&self) -> anyhow::Result<()> {
        self.allowed()?;
        self.unsealed()?;
        if self.listen.is_empty() {
            bail!("collector.listen is empty; 127.0.0.1:6343 is the usual address");
        }
        let mut listens = self.listen.iter();
        let far = listens.find(|address| !address.ip().to_canonical().is_loopback());
        if let Some(far) = far
            && self.allow.is_empty()
        {
            bail!(
                "--listen is {far}: sFlow has no authentication, so beyond loopback say with --allow \
                 (collector.allow) whose datagrams are taken, like --allow 192.0.2.0/24"
            );
        }
        if !(1..=64).contains(&self.threads) {
            bail!("collector.threads is {}, must be 1 to 64", self.threads);
        }
        if self.sender_rate < 10 {
            bail!(
                "collector.sender_rate is {}, must be at least 10",
                self.sender_rate
            );
        }
        if self.key_file.is_empty() && !self.unsealed.is_empty() {
            bail!("collector.unsealed (--unsealed) needs collector.key_file (--keys)");
        }
        Ok(())
    }
}
