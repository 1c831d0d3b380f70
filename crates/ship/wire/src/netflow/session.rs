//! The state of one exporter's stream.

use std::{collections::HashMap, net::SocketAddr};

use super::{
    options::Options,
    template::{ParsedTemplate, Template},
};
use crate::Sequence;

/// Identifies a stream. IPFIX's transport session (RFC 7011 section 2) is addresses and ports;
/// NetFlow 9 uses the same here, since several exporters may run on one host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) from: SocketAddr,
    pub(super) version: u16,
    /// Observation domain, source identifier, or engine.
    pub(super) domain: u32,
}

/// A stream.
#[derive(Default)]
pub(super) struct Session {
    pub(super) sequence: Sequence,
    pub(super) templates: HashMap<u16, Template>,
    pub(super) options: Options,
    /// Time of the last datagram, ns since the Unix epoch.
    pub(super) last_ns: u64,
}

impl Session {
    /// Fields of all its templates.
    pub(super) fn fields(&self) -> usize {
        self.templates.values().map(|t| t.fields.len()).sum()
    }

    /// Stores a template, in place of the least recently refreshed one if there are too many. Keeps
    /// `fields`, the number of fields of all sessions, up to date.
    pub(super) fn set_template(&mut self, parsed: ParsedTemplate, most: usize, fields: &mut usize) {
        let ParsedTemplate { id, template } = parsed;
        if let Some(before) = self.templates.get_mut(&id)
            && before.fields == template.fields
            && before.options == template.options
        {
            before.received_ns = template.received_ns;
            return;
        }
        self.forget(id, fields);
        if template.fields.is_empty() {
            return;
        }
        if self.templates.len() >= most {
            let oldest = self.templates.iter().min_by_key(|(_, t)| t.received_ns);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.forget(oldest, fields);
            }
        }
        *fields += template.fields.len();
        self.templates.insert(id, template);
    }

    /// Forgets a template.
    pub(super) fn forget(&mut self, id: u16, fields: &mut usize) {
        if let Some(template) = self.templates.remove(&id) {
            *fields -= template.fields.len();
        }
    }

    /// Forgets templates by kind.
    pub(super) fn forget_all(&mut self, options: bool, fields: &mut usize) {
        self.templates.retain(|_, template| {
            let goes = template.options == options;
            if goes {
                *fields -= template.fields.len();
            }
            !goes
        });
    }

    /// Removes templates that were not refreshed for long.
    pub(super) fn expire(&mut self, before_ns: u64, fields: &mut usize) {
        self.templates.retain(|_, template| {
            let goes = template.received_ns < before_ns;
            if goes {
                *fields -= template.fields.len();
            }
            !goes
        });
    }
}
