//! Options of an interface description block.

use super::clock::Clock;
use crate::error::Problem;
use crate::{Interface, u16_at, u64_at};

const END: u16 = 0;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const FCS_LENGTH: u16 = 13;
const OFFSET: u16 = 14;

/// Longer names are cut: hostile ones would use up memory.
const MAX_NAME_BYTES: usize = 255;

pub(super) struct Described {
    pub(super) interface: Interface,
    pub(super) clock: Clock,
    /// Bytes of frame check sequence at each packet's end.
    pub(super) fcs: u32,
}

/// Reads the options that matter; those of a wrong length are passed over as unknown ones are.
pub(super) fn interface(
    mut options: &[u8],
    big: bool,
    link_type: u16,
) -> Result<Described, Problem> {
    let mut described = Described {
        interface: Interface {
            name: None,
            link_type,
        },
        clock: Clock::DEFAULT,
        fcs: 0,
    };
    while let Some((header, rest)) = options.split_first_chunk::<4>() {
        let code = u16_at([header[0], header[1]], big);
        let length = u16_at([header[2], header[3]], big);
        if code == END {
            break;
        }
        let padded = usize::from(length).next_multiple_of(4);
        let (Some(value), Some(next)) = (rest.get(..usize::from(length)), rest.get(padded..))
        else {
            return Err(Problem::Option { code, length });
        };
        match (code, value) {
            (NAME, name) => described.interface.name = self::name(name),
            (RESOLUTION, [resolution]) => described.clock.set_resolution(*resolution),
            // Specified in bits, written in bytes by many.
            (FCS_LENGTH, [length]) => {
                described.fcs = match length {
                    16 | 32 => u32::from(length / 8),
                    bytes @ 0..=8 => u32::from(*bytes),
                    _ => 0,
                }
            }
            (OFFSET, value) => {
                if let Ok(value) = <[u8; 8]>::try_from(value) {
                    described.clock.set_offset(u64_at(value, big) as i64);
                }
            }
            _ => {}
        }
        options = next;
    }
    Ok(described)
}

fn name(bytes: &[u8]) -> Option<Box<str>> {
    let name = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME_BYTES)]);
    let name = name.trim_end_matches('\0');
    (!name.is_empty()).then(|| name.into())
}
