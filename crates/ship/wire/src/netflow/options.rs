//! Records of options: sampling rates, when the exporter started, names of interfaces.

use super::{
    element::{Draft, Element, Sampling, number},
    template::Template,
};
use crate::{DecodeError, reader::Reader};

/// The most samplers of a session.
const SAMPLERS: usize = 64;
/// Most bytes of a name.
pub(super) const NAME_BYTES: usize = 64;

/// An options record.
#[derive(Default)]
pub(super) struct OptionRecord<'a> {
    sampler: Option<u64>,
    sampling: Sampling,
    boot_ms: Option<u64>,
    pub(super) interface: Option<u32>,
    pub(super) name: Option<&'a [u8]>,
}

/// Reads one.
pub(super) fn record<'a>(
    template: &Template,
    reader: &mut Reader<'a>,
) -> Result<OptionRecord<'a>, DecodeError> {
    let mut record = OptionRecord::default();
    template.record(reader, |element, bytes| match element {
        Element::SamplerId => record.sampler = Some(number(bytes)),
        Element::Boot => record.boot_ms = Some(number(bytes)),
        Element::Input | Element::Output => record.interface = u32::try_from(number(bytes)).ok(),
        Element::InterfaceName => record.name = Some(bytes),
        Element::Skip => {}
        element => {
            // Others are of flows.
            if bytes.len() <= 8 {
                record.sampling.set(element, number(bytes));
            }
        }
    })?;
    Ok(record)
}

/// A session's options so far.
#[derive(Default)]
pub(super) struct Options {
    /// When the exporter started, ms since the Unix epoch.
    pub(super) boot_ms: Option<u64>,
    /// Sampling rate of the whole exporter.
    rate: Option<u32>,
    /// Rates by sampler.
    samplers: Vec<(u64, u32)>,
}

impl Options {
    pub(super) fn apply(&mut self, record: &OptionRecord<'_>) {
        self.boot_ms = record.boot_ms.or(self.boot_ms);
        let Some(rate) = record.sampling.rate() else {
            return;
        };
        let Some(sampler) = record.sampler else {
            self.rate = Some(rate);
            return;
        };
        let known = self.samplers.iter_mut().find(|(id, _)| *id == sampler);
        if let Some((_, known)) = known {
            *known = rate;
        } else if self.samplers.len() < SAMPLERS {
            self.samplers.push((sampler, rate));
        }
    }

    /// The rate of a record: its own word, its sampler's rate, or that of the exporter.
    #[inline]
    pub(super) fn rate(&self, draft: &Draft) -> u32 {
        if let Some(rate) = draft.sampling.rate() {
            return rate;
        }
        let of_sampler = draft.sampler.and_then(|id| {
            let known = self.samplers.iter().find(|(known, _)| *known == id);
            known.map(|(_, rate)| *rate)
        });
        of_sampler.or(self.rate).unwrap_or(1)
    }
}
