//! Templates.

use super::{
    Clock, Section,
    element::{Draft, Element},
};
use crate::{DecodeError, Problem, reader::Reader};

/// Length of fields with a length before each value (RFC 7011 section 7).
const VARIABLE: u16 = 0xffff;
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;
/// The first number that templates may have.
pub(super) const FIRST_ID: u16 = 256;

/// A field of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    pub(super) element: Element,
    pub(super) length: u16,
}

/// How records of a set are laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Template {
    pub(super) fields: Box<[Field]>,
    /// So many of them are the scope; none in templates of flows.
    pub(super) options: bool,
    /// Bytes that a record has at least.
    pub(super) min_length: usize,
    /// When it was last received, ns since the Unix epoch.
    pub(super) received_ns: u64,
}

/// A template with its number, as read; no fields: the template is withdrawn.
pub(super) struct ParsedTemplate {
    pub(super) id: u16,
    pub(super) template: Template,
}

impl Template {
    pub(super) fn new(fields: Vec<Field>, options: bool, received_ns: u64) -> Self {
        let min_length = fields
            .iter()
            .map(|field| match field.length {
                VARIABLE => 1,
                length => usize::from(length),
            })
            .sum();
        Self {
            fields: fields.into(),
            options,
            min_length,
            received_ns,
        }
    }

    /// Calls `take` with each field of a record.
    #[inline]
    pub(super) fn record<'a>(
        &self,
        reader: &mut Reader<'a>,
        mut take: impl FnMut(Element, &'a [u8]),
    ) -> Result<(), DecodeError> {
        const WHAT: &str = "a field";
        for field in &self.fields {
            let length = match field.length {
                VARIABLE => variable(reader)?,
                length => usize::from(length),
            };
            take(field.element, reader.read(length, WHAT)?);
        }
        Ok(())
    }

    /// Reads a record of a flow, with the section of its packet if it has one.
    #[inline]
    pub(super) fn flow<'a>(
        &self,
        reader: &mut Reader<'a>,
        clock: &Clock,
    ) -> Result<(Draft, Option<Section<'a>>), DecodeError> {
        let mut draft = Draft::default();
        let mut section = None;
        self.record(reader, |element, bytes| match element {
            Element::FrameSection | Element::PacketSection => {
                section = Some(Section {
                    bytes,
                    is_frame: element == Element::FrameSection,
                    length: 0,
                });
            }
            element => draft.set(element, bytes, clock),
        })?;
        let section = section.map(|section| Section {
            length: match (section.is_frame, draft.frame_length, draft.packet_length) {
                (true, 0, 1..) => ETHERNET + draft.packet_length,
                (true, length, _) | (false, _, length) => length,
            },
            ..section
        });
        Ok((draft, section))
    }
}

/// Length before a value: one byte, or 255 and two bytes.
fn variable(reader: &mut Reader<'_>) -> Result<usize, DecodeError> {
    const WHAT: &str = "a variable length";
    Ok(match reader.u8(WHAT)? {
        u8::MAX => usize::from(reader.u16(WHAT)?),
        length => usize::from(length),
    })
}

/// A field that may have a variable length only if its value needs none of the numbers.
fn field(element: Element, length: u16) -> Field {
    let element = match (element, length) {
        (Element::InterfaceName | Element::FrameSection | Element::PacketSection, _) => element,
        (_, VARIABLE) => Element::Skip,
        _ => element,
    };
    Field { element, length }
}

/// The next template of a NetFlow 9 set (RFC 3954 section 5.2 and 6.1), none when the rest is
/// padding.
pub(super) fn v9(
    reader: &mut Reader<'_>,
    options: bool,
    most_fields: usize,
    now_ns: u64,
) -> Result<Option<ParsedTemplate>, DecodeError> {
    const WHAT: &str = "a template";
    let head = if options { 6 } else { 4 };
    if reader.left() < head {
        return Ok(None);
    }
    let begin = *reader;
    let id = reader.u16(WHAT)?;
    if id == 0 {
        // Padding.
        return Ok(None);
    }
    let (scopes, others) = match options {
        false => (0, usize::from(reader.u16(WHAT)?)),
        true => {
            let scope_bytes = usize::from(reader.u16(WHAT)?);
            (scope_bytes / 4, usize::from(reader.u16(WHAT)?) / 4)
        }
    };
    check(&begin, id, scopes + others, most_fields)?;
    let mut fields = Vec::with_capacity((scopes + others).min(reader.left() / 4));
    for place in 0..scopes + others {
        let (kind, length) = (reader.u16(WHAT)?, reader.u16(WHAT)?);
        let element = match place < scopes {
            true => Element::of_v9_scope(kind, length),
            false => Element::of(kind, None, length),
        };
        // Not of version 9, but some exporters have fields of IPFIX's variable length in it: 65,535 would be a
        // length that no datagram has.
        fields.push(field(element, length));
    }
    let template = Template::new(fields, options, now_ns);
    usable(&begin, id, &template)?;
    Ok(Some(ParsedTemplate { id, template }))
}

/// The next template of an IPFIX set (RFC 7011 section 3.4), none when the rest is padding.
pub(super) fn ipfix(
    reader: &mut Reader<'_>,
    options: bool,
    most_fields: usize,
    now_ns: u64,
) -> Result<Option<ParsedTemplate>, DecodeError> {
    const WHAT: &str = "a template";
    if reader.left() < 4 {
        return Ok(None);
    }
    let begin = *reader;
    let id = reader.u16(WHAT)?;
    if id == 0 {
        return Ok(None);
    }
    let count = usize::from(reader.u16(WHAT)?);
    if count == 0 {
        return Ok(Some(ParsedTemplate {
            id,
            template: Template::new(Vec::new(), options, now_ns),
        }));
    }
    if options {
        // Which of them are the scope makes no difference to us.
        reader.u16(WHAT)?;
    }
    check(&begin, id, count, most_fields)?;
    let mut fields = Vec::with_capacity(count.min(reader.left() / 4));
    for _ in 0..count {
        let (number, length) = (reader.u16(WHAT)?, reader.u16(WHAT)?);
        let enterprise = match number & 0x8000 {
            0 => None,
            _ => Some(reader.u32(WHAT)?),
        };
        let element = Element::of(number & 0x7fff, enterprise, length);
        fields.push(field(element, length));
    }
    let template = Template::new(fields, options, now_ns);
    usable(&begin, id, &template)?;
    Ok(Some(ParsedTemplate { id, template }))
}

fn check(begin: &Reader<'_>, id: u16, count: usize, most_fields: usize) -> Result<(), DecodeError> {
    let refuse = |why| Err(begin.error(Problem::Template { id, why }));
    if id < FIRST_ID {
        return refuse("the number is less than 256");
    }
    if count > most_fields {
        return refuse("too many fields");
    }
    Ok(())
}

fn usable(begin: &Reader<'_>, id: u16, template: &Template) -> Result<(), DecodeError> {
    let refuse = |why| Err(begin.error(Problem::Template { id, why }));
    if template.min_length == 0 {
        return refuse("its records have no bytes");
    }
    Ok(())
}
