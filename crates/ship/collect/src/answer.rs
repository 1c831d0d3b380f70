//! Answers to agents that check whether a collector is reachable.

use skua_wire::sflow::{
    AgentReport, Counters, CountersHead, DataSource, Datagram, Header, Hello, Sample, Writer,
};

/// Class of data sources that are logical entities (sFlow version 5).
const LOGICAL: u32 = 3;

/// First record of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First {
    /// The report of one of our agents.
    Report(AgentReport),
    /// Only a question whether the collector is reachable.
    Question(Hello),
    /// Something that others send.
    Other,
}

impl First {
    /// Of a datagram.
    pub(crate) fn of(datagram: &Datagram<'_>) -> Self {
        let Some(Ok(Sample::Counters(sample))) = datagram.samples().next() else {
            return Self::Other;
        };
        let found = sample.records().find_map(|record| match record {
            Ok(Counters::Agent(report)) => Some(Self::Report(report)),
            Ok(Counters::Hello(hello)) if !hello.answers => Some(Self::Question(hello)),
            _ => None,
        });
        found.unwrap_or(Self::Other)
    }
}

/// Writes answers.
#[derive(Debug)]
pub(crate) struct Answers {
    instance: u64,
    began_ns: Option<u64>,
    buffer: Vec<u8>,
}

impl Answers {
    /// Of this run of the collector.
    pub(crate) fn new(instance: u64) -> Self {
        Self {
            instance,
            began_ns: None,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.buffer.clear();
    }

    /// The answer, if there is one.
    pub(crate) fn written(&self) -> Option<&[u8]> {
        (!self.buffer.is_empty()).then_some(&self.buffer)
    }

    /// Answers a stream with the sequence number of its newest datagram.
    pub(crate) fn write(&mut self, asked: &Header, newest: u32, instance: u64, now_ns: u64) {
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        let hello = Hello {
            answers: true,
            sequence: newest,
            instance,
            collector: self.instance,
        };
        let header = Header {
            // Wraps after 49.7 days, as in the standard.
            uptime_ms: (now_ns.saturating_sub(began_ns) / 1_000_000) as u32,
            ..*asked
        };
        greet(&mut self.buffer, &header, &hello);
    }
}

/// Writes a datagram with a question or an answer.
pub fn greet(out: &mut Vec<u8>, header: &Header, hello: &Hello) {
    out.clear();
    let head = CountersHead {
        sequence: header.sequence,
        source: DataSource {
            class: LOGICAL,
            index: 0,
        },
    };
    Writer::new(out, header).counters_sample(&head, |out| out.hello(hello));
}
