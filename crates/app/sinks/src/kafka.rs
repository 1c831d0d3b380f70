//! A topic in Kafka.

use skua_collect::Line;
use skua_kafka::{Producer, Target};

use crate::Sink;

/// The topic, as long as the collector runs.
pub struct Kafka(Producer);

impl Kafka {
    /// Starts to connect to brokers.
    pub fn open(target: &Target) -> anyhow::Result<Self> {
        Ok(Self(Producer::open(target)?))
    }
}

impl Sink for Kafka {
    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        self.0.put(line);
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.0.poll();
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.0.finish();
        eprintln!("{} lines are in Kafka", self.0.acknowledged());
        Ok(())
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        let lost = self.0.lost().into_iter();
        lost.map(|(cause, lines)| (cause.name(), lines)).collect()
    }
}
