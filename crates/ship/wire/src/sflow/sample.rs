//! Flow samples and counters samples, compact and expanded.

use super::{
    COUNTERS_SAMPLE, Counters, EXPANDED_COUNTERS_SAMPLE, EXPANDED_FLOW_SAMPLE, FLOW_SAMPLE, Record,
    Records, counters, record,
};
use crate::{DecodeError, reader::Reader};

/// Where samples are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DataSource {
    /// Class: 0 is an interface (ifIndex), 1 a VLAN (smonVlanDataSource), 2 a physical entity
    /// (entPhysicalEntry), 3 a logical entity.
    pub class: u32,
    /// Number within the class.
    pub index: u32,
}

impl DataSource {
    /// The interface, if it is one.
    pub fn interface(self) -> Option<u32> {
        (self.class == 0 && self.index != 0).then_some(self.index)
    }

    fn compact(id: u32) -> Self {
        Self {
            class: id >> 24,
            index: id & 0x00ff_ffff,
        }
    }
}

/// Ingress or egress of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// 0: `value` is an ifIndex, 0 for unknown; 1: discarded, for the reason `value`; 2: sent to
    /// `value` interfaces, 0 for an unknown number.
    pub format: u32,
    /// See `format`.
    pub value: u32,
}

impl Port {
    /// ifIndex of packets that begin or end in the agent itself.
    pub const INTERNAL: u32 = 0x3fff_ffff;

    /// An interface.
    pub fn interface(ifindex: u32) -> Self {
        Self {
            format: 0,
            value: ifindex,
        }
    }

    /// The interface, if it is a single known one.
    pub fn index(self) -> Option<u32> {
        (self.format == 0 && self.value != 0 && self.value != Self::INTERNAL).then_some(self.value)
    }

    fn compact(port: u32) -> Self {
        Self {
            format: port >> 30,
            value: port & 0x3fff_ffff,
        }
    }
}

/// The head of a flow sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowHead {
    /// Number of the sample at its source.
    pub sequence: u32,
    /// Where it was taken.
    pub source: DataSource,
    /// One packet of this many is sampled.
    pub rate: u32,
    /// Packets that could have been sampled so far; wraps after 2³².
    pub pool: u32,
    /// Samples that were dropped so far for lack of resources.
    pub drops: u32,
    /// Ingress port.
    pub input: Port,
    /// Egress port.
    pub output: Port,
}

/// A sampled packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSample<'a> {
    /// The head.
    pub head: FlowHead,
    /// Records that it announces.
    pub count: u32,
    records: Reader<'a>,
}

impl<'a> FlowSample<'a> {
    /// The records of the packet.
    pub fn records(&self) -> Records<'a> {
        Records::new(self.count, self.records)
    }
}

/// The head of a counters sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CountersHead {
    /// Number of the sample at its source.
    pub sequence: u32,
    /// Source of the counters.
    pub source: DataSource,
}

/// Counters of a data source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountersSample<'a> {
    /// The head.
    pub head: CountersHead,
    /// Records that it announces.
    pub count: u32,
    records: Reader<'a>,
}

impl<'a> CountersSample<'a> {
    /// The counters.
    pub fn records(&self) -> CountersRecords<'a> {
        CountersRecords(Framed {
            left: self.count,
            reader: self.records,
        })
    }
}

/// A sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sample<'a> {
    /// A packet.
    Flow(FlowSample<'a>),
    /// Counters.
    Counters(CountersSample<'a>),
    /// An unsupported sample, skipped.
    Other {
        /// Its tag, see [`tag`](super::tag).
        tag: u32,
    },
}

/// Iterates over records by tag and length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framed<'a> {
    pub(super) left: u32,
    pub(super) reader: Reader<'a>,
}

impl<'a> Framed<'a> {
    #[inline]
    pub(super) fn next(&mut self) -> Option<Result<(u32, Reader<'a>), DecodeError>> {
        self.left = self.left.checked_sub(1)?;
        let framed = self
            .reader
            .u32("a record's tag")
            .and_then(|tag| Ok((tag, self.reader.opaque("a record")?)));
        if framed.is_err() {
            self.left = 0;
        }
        Some(framed)
    }
}

/// Iterates over the records of a counters sample.
#[derive(Clone, Copy, Debug)]
pub struct CountersRecords<'a>(Framed<'a>);

impl Iterator for CountersRecords<'_> {
    type Item = Result<Counters, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let framed = self.0.next()?;
        Some(framed.and_then(|(tag, body)| counters::decode(tag, body)))
    }
}

impl<'a> Records<'a> {
    fn new(left: u32, reader: Reader<'a>) -> Self {
        Self(Framed { left, reader })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let framed = self.0.next()?;
        Some(framed.and_then(|(tag, body)| record::decode(tag, body)))
    }
}

#[inline]
pub(super) fn decode(tag: u32, mut body: Reader<'_>) -> Result<Sample<'_>, DecodeError> {
    const FLOW: &str = "a flow sample";
    const COUNTERS: &str = "a counters sample";
    match tag {
        FLOW_SAMPLE | EXPANDED_FLOW_SAMPLE => {
            let expanded = tag == EXPANDED_FLOW_SAMPLE;
            let head = FlowHead {
                sequence: body.u32(FLOW)?,
                source: source(&mut body, expanded, FLOW)?,
                rate: body.u32(FLOW)?,
                pool: body.u32(FLOW)?,
                drops: body.u32(FLOW)?,
                input: port(&mut body, expanded)?,
                output: port(&mut body, expanded)?,
            };
            Ok(Sample::Flow(FlowSample {
                head,
                count: body.u32(FLOW)?,
                records: body,
            }))
        }
        COUNTERS_SAMPLE | EXPANDED_COUNTERS_SAMPLE => {
            let head = CountersHead {
                sequence: body.u32(COUNTERS)?,
                source: source(&mut body, tag == EXPANDED_COUNTERS_SAMPLE, COUNTERS)?,
            };
            Ok(Sample::Counters(CountersSample {
                head,
                count: body.u32(COUNTERS)?,
                records: body,
            }))
        }
        tag => Ok(Sample::Other { tag }),
    }
}

#[inline]
fn source(
    body: &mut Reader<'_>,
    expanded: bool,
    what: &'static str,
) -> Result<DataSource, DecodeError> {
    let first = body.u32(what)?;
    Ok(match expanded {
        false => DataSource::compact(first),
        true => DataSource {
            class: first,
            index: body.u32(what)?,
        },
    })
}

#[inline]
fn port(body: &mut Reader<'_>, expanded: bool) -> Result<Port, DecodeError> {
    const WHAT: &str = "a flow sample";
    let first = body.u32(WHAT)?;
    Ok(match expanded {
        false => Port::compact(first),
        true => Port {
            format: first,
            value: body.u32(WHAT)?,
        },
    })
}
