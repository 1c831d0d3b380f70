//! A detector in user space.

use std::collections::BTreeMap;

use serde::Serialize;
use skua_filter::Filter;

use crate::{Channel, Detector, Sample, SteerError, Verdict, decode, locate::locate, value};

/// Why a matching packet is not sampled; it is left unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Several segments or datagrams in one (GSO, GRO): the others would be steered with it.
    Aggregated,
    /// Neither UDP nor TCP over IP.
    NoPayload,
    /// A fragment.
    Fragment,
    /// The packet ends within its headers, or is shorter than its length field.
    Short,
    /// Channel or value would be behind the packet's end.
    Beyond,
    /// The channel's number is beyond the number of channels.
    Channel,
    /// The value is no number.
    NoNumber,
    /// The value is too large for fixed point.
    Overflow,
    /// Too many CPUs added samples to the channel at once; never in this reference.
    Contended,
}

impl Cause {
    /// All, in the order of `bpf/steer/steer.h`.
    pub const ALL: [Self; 9] = [
        Self::Aggregated,
        Self::NoPayload,
        Self::Fragment,
        Self::Short,
        Self::Beyond,
        Self::Channel,
        Self::NoNumber,
        Self::Overflow,
        Self::Contended,
    ];

    /// Name in answers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aggregated => "aggregated",
            Self::NoPayload => "no_payload",
            Self::Fragment => "fragment",
            Self::Short => "short",
            Self::Beyond => "beyond",
            Self::Channel => "channel",
            Self::NoNumber => "no_number",
            Self::Overflow => "overflow",
            Self::Contended => "contended",
        }
    }
}

/// What a packet is to a detector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Classification {
    /// The expression is false for it.
    NoMatch,
    /// The packet is left unchanged.
    Untouched(Cause),
    /// It is a sample.
    Sampled {
        /// Of this channel.
        channel: u32,
        /// The value, fixed point.
        value: i64,
        /// The result of the sample.
        verdict: Verdict,
    },
}

/// The result of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// That.
    pub fate: Classification,
}

impl Outcome {
    /// Whether the action is for this packet.
    pub fn fired(&self) -> bool {
        matches!(self.fate, Classification::Sampled { verdict, .. } if verdict.fired)
    }
}

/// What happened to packets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Tally {
    /// The expression is true for them.
    pub matched: u64,
    /// Those that are samples.
    pub sampled: u64,
    /// Samples for which the channel stood fired.
    pub fired: u64,
    /// Others by cause.
    pub untouched: BTreeMap<Cause, u64>,
}

/// A detector in user space with the same results as the program in the kernel.
#[derive(Debug)]
pub struct Reference {
    detector: Detector,
    filter: Option<Filter>,
    channels: BTreeMap<u32, Channel>,
    tally: Tally,
}

impl Reference {
    /// Without samples.
    ///
    /// # Errors
    ///
    /// The expression is wrong.
    pub fn new(detector: &Detector) -> Result<Self, SteerError> {
        Ok(Self {
            filter: detector.filter()?,
            detector: detector.clone(),
            channels: BTreeMap::new(),
            tally: Tally::default(),
        })
    }

    /// Processes an Ethernet frame received at `time_ns`.
    pub fn packet(&mut self, frame: &[u8], time_ns: u64) -> Outcome {
        if self.filter.as_ref().is_some_and(|f| !f.matches(frame)) {
            let fate = Classification::NoMatch;
            return Outcome { fate };
        }
        self.matched(frame, time_ns)
    }

    /// As [`packet`](Self::packet), for which the expression is true.
    pub fn matched(&mut self, frame: &[u8], time_ns: u64) -> Outcome {
        self.tally.matched += 1;
        let fate = match self.read(frame) {
            Ok((channel, value)) => self.sample(channel, Sample { time_ns, value }),
            Err(cause) => {
                *self.tally.untouched.entry(cause).or_default() += 1;
                Classification::Untouched(cause)
            }
        };
        Outcome { fate }
    }

    fn sample(&mut self, number: u32, sample: Sample) -> Classification {
        let channel = self
            .channels
            .entry(number)
            .or_insert_with(|| Channel::new(&self.detector));
        let verdict = channel.judge(&self.detector, sample);
        self.tally.sampled += 1;
        self.tally.fired += u64::from(verdict.fired);
        Classification::Sampled {
            channel: number,
            value: sample.value,
            verdict,
        }
    }

    /// Channel and value (fixed point) of a frame, without taking it.
    ///
    /// # Errors
    ///
    /// Why it has none.
    pub fn read(&self, frame: &[u8]) -> Result<(u32, i64), Cause> {
        let detector = &self.detector;
        let rewrites = detector.action.destination();
        let transport = !detector.dry_run
            && rewrites.is_some_and(|to| to.address.is_some() || to.port.is_some());
        let part = locate(frame, detector.from, transport)?;
        let channel = match &detector.channel {
            None => 0,
            Some(field) => {
                let at = field.offset as usize;
                let bytes = part.get(at..at + usize::from(field.width));
                value::unsigned(bytes.ok_or(Cause::Beyond)?, field.order)
            }
        };
        if channel >= u64::from(detector.channels) {
            return Err(Cause::Channel);
        }
        let behind = part.get(detector.value.offset as usize..);
        let value = decode(
            behind.unwrap_or_default(),
            &detector.value,
            detector.fraction,
        )?;
        Ok((u32::try_from(channel).unwrap_or(u32::MAX), value))
    }

    /// Channels with samples, by number.
    pub fn channels(&self) -> &BTreeMap<u32, Channel> {
        &self.channels
    }

    /// Sums.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What it detects.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }
}
