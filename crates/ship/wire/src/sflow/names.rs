//! Names of a conversation's sides, and measurements of their sockets. `docs/wire.md` has the
//! layout.

use super::own::{OWN_VERSION, version};
use crate::{DecodeError, Problem, reader::Reader};

/// Bytes of each part of a name at most.
pub const NAME: usize = 80;
/// Names in a datagram at most.
pub const NAMES: u8 = 250;
/// Bytes of a record with two definitions at most, without its tag and length.
pub const NAMES_RECORD: usize = 4 + 2 * definition(3 * NAME);

/// Bytes of a definition with `text` bytes of text.
const fn definition(text: usize) -> usize {
    8 + text.next_multiple_of(4)
}

/// Which part of a name is the service's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ServiceName {
    /// The process.
    #[default]
    Process,
    /// The container.
    Container,
    /// The unit of systemd.
    Unit,
}

/// Owner of one side of a conversation. Unknown parts are empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Name<'a> {
    /// The part that names the service in a service graph.
    pub by: ServiceName,
    /// Name of the process.
    pub process: &'a str,
    /// Name of the container, with that of its pod.
    pub container: &'a str,
    /// Unit of systemd.
    pub unit: &'a str,
}

impl<'a> Name<'a> {
    /// The part that [`by`](Self::by) names.
    pub fn service(&self) -> &'a str {
        match self.by {
            ServiceName::Process => self.process,
            ServiceName::Container => self.container,
            ServiceName::Unit => self.unit,
        }
    }

    /// The same with parts that are too long cut, at a character's end.
    pub fn bounded(self) -> Self {
        let cut = |text: &'a str| {
            let end = (0..=NAME.min(text.len())).rfind(|at| text.is_char_boundary(*at));
            text.get(..end.unwrap_or(0)).unwrap_or_default()
        };
        Self {
            by: self.by,
            process: cut(self.process),
            container: cut(self.container),
            unit: cut(self.unit),
        }
    }

    /// Bytes of its definition.
    pub fn len(&self) -> usize {
        definition(self.process.len() + self.container.len() + self.unit.len())
    }

    /// Whether all parts are unknown.
    pub fn is_empty(&self) -> bool {
        self.process.is_empty() && self.container.is_empty() && self.unit.is_empty()
    }
}

/// Owners of both sides of a conversation: numbers of names, which are defined where they are first
/// used in a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Names<'a> {
    /// Numbers of the source's and the destination's name; 0: unknown.
    pub sides: [u8; 2],
    defined: u8,
    definitions: Reader<'a>,
}

impl<'a> Names<'a> {
    #[inline]
    pub(super) fn decode(body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let [source, destination, defined] = version(body, "names of a conversation")?;
        Ok(Self {
            sides: [source, destination],
            defined,
            definitions: *body,
        })
    }

    /// Names that are defined here, with their numbers.
    pub fn definitions(&self) -> Definitions<'a> {
        Definitions {
            left: self.defined,
            reader: self.definitions,
        }
    }

    pub(super) fn encode(out: &mut Vec<u8>, sides: [u8; 2], defined: &[(u8, Name<'_>)]) {
        let count = u8::try_from(defined.len()).unwrap_or(u8::MAX);
        out.extend_from_slice(&[OWN_VERSION, sides[0], sides[1], count]);
        for (number, name) in defined.iter().take(count.into()) {
            let name = name.bounded();
            let parts = [name.process, name.container, name.unit];
            // Each is cut to less than 256 bytes.
            let [process, container, unit] = parts.map(|part| part.len() as u8);
            out.extend_from_slice(&[*number, name.by as u8, process, container, unit, 0, 0, 0]);
            let text = out.len();
            for part in parts {
                out.extend_from_slice(part.as_bytes());
            }
            let padding = (out.len() - text).wrapping_neg() % 4;
            out.extend_from_slice(&[0; 4][..padding]);
        }
    }
}

/// Iterates over definitions.
#[derive(Clone, Copy, Debug)]
pub struct Definitions<'a> {
    left: u8,
    reader: Reader<'a>,
}

impl<'a> Iterator for Definitions<'a> {
    type Item = Result<(u8, Name<'a>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = definition_of(&mut self.reader);
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}

fn definition_of<'a>(body: &mut Reader<'a>) -> Result<(u8, Name<'a>), DecodeError> {
    const WHAT: &str = "a name";
    let [number, by, process, container, unit, ..] = *body.array::<8>(WHAT)?;
    let lengths = [process, container, unit].map(usize::from);
    let mut part = |length| -> Result<&'a str, DecodeError> {
        let before = *body;
        if length > NAME {
            return Err(before.error(Problem::Length { what: WHAT, length }));
        }
        let bytes = body.read(length, WHAT)?;
        std::str::from_utf8(bytes).map_err(|_| before.error(Problem::Text(WHAT)))
    };
    let [process, container, unit] = lengths;
    let name = Name {
        by: match by {
            1 => ServiceName::Container,
            2 => ServiceName::Unit,
            _ => ServiceName::Process,
        },
        process: part(process)?,
        container: part(container)?,
        unit: part(unit)?,
    };
    let padding = lengths.iter().sum::<usize>().wrapping_neg() % 4;
    body.read(padding.min(body.left()), WHAT)?;
    Ok((number, name))
}
