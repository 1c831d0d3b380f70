//! What is kept of one exporter's stream.

use std::{collections::HashMap, net::SocketAddr};

use super::{
    options::Options,
    template::{ParsedTemplate, Template},
};
use crate::Sequence;

/// What distinguishes streams. IPFIX's transport session (RFC 7011 section 2) is addresses and ports;
/// NetFlow 9's source is kept apart likewise, for several exporters may run on one host.
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
    /// When it was heard last, ns since the Unix epoch.
    pub(super) heard_ns: u64,
}

impl Session {
    /// Fields of all its templates.
    pub(super) fn fields(&self) -> usize {
        self.templates.values().map(|t| t.fields.len()).sum()
    }

    /// Puts a template in, in place of the one that was told the longest ago when there are too
    /// many. `fields` is the number of fields of all sessions, which is kept right.
    pub(super) fn learn(&mut self, told: ParsedTemplate, most: usize, fields: &mut usize) {
        let ParsedTemplate { id, template } = told;
        if let Some(before) = self.templates.get_mut(&id)
            && before.fields == template.fields
            && before.options == template.options
        {
            before.told_ns = template.told_ns;
            return;
        }
        self.forget(id, fields);
        if template.fields.is_empty() {
            return;
        }
        if self.templates.len() >= most {
            let oldest = self.templates.iter().min_by_key(|(_, t)| t.told_ns);
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

    /// Forgets templates that were not told for long.
    pub(super) fn expire(&mut self, before_ns: u64, fields: &mut usize) {
        self.templates.retain(|_, template| {
            let goes = template.told_ns < before_ns;
            if goes {
                *fields -= template.fields.len();
            }
            !goes
        });
    }
}
