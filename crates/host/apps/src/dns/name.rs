//! Names of DNS (RFC 1035 section 4.1.4).

use std::fmt::Write as _;

/// Octets of a name on the wire at most, with the lengths of its labels (RFC 1035 section 2.3.4).
pub const MOST_NAME: usize = 255;
/// Pointers that are followed in a name: a name has at most 127 labels, and no server needs a pointer for each.
const MOST_POINTERS: usize = 32;

/// Reads the name at `at` of a message: its text, and where what follows it begins. None when it is cut off, longer
/// than [`MOST_NAME`], or when a pointer does not lead backwards, or there are too many. Each pointer leads to before the one that was followed
/// last, so no name is read in a circle.
pub(super) fn read(message: &[u8], at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let (mut here, mut before, mut after) = (at, at, None);
    let (mut octets, mut pointers) = (1, 0);
    loop {
        let length = usize::from(*message.get(here)?);
        match length >> 6 {
            0 if length == 0 => {
                return Some((text, after.unwrap_or(here + 1)));
            }
            0 => {
                let label = message.get(here + 1..here + 1 + length)?;
                octets += length + 1;
                if octets > MOST_NAME {
                    return None;
                }
                if !text.is_empty() {
                    text.push('.');
                }
                write_label(&mut text, label);
                here += 1 + length;
            }
            3 => {
                let to = (length & 0x3f) << 8 | usize::from(*message.get(here + 1)?);
                after.get_or_insert(here + 2);
                pointers += 1;
                if to >= before || pointers > MOST_POINTERS {
                    return None;
                }
                (here, before) = (to, to);
            }
            // Extended label types (RFC 6891 section 5) are not in use.
            _ => return None,
        }
    }
}

/// Writes a label as text: what is not printable, a dot or a backslash is escaped (RFC 4343 section 2.1). Labels of
/// mDNS are UTF-8 (RFC 6762 section 16).
fn write_label(text: &mut String, label: &[u8]) {
    for chunk in label.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '.' | '\\' => {
                    text.push('\\');
                    text.push(char);
                }
                _ if char.is_control() => {
                    let mut bytes = [0; 4];
                    escape(text, char.encode_utf8(&mut bytes).as_bytes());
                }
                _ => text.push(char),
            }
        }
        escape(text, chunk.invalid());
    }
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\{byte:03}");
    }
}

/// Text of a character string (TXT and the like): the same escapes, without those for dots.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() {
                let mut bytes = [0; 4];
                escape(&mut text, char.encode_utf8(&mut bytes).as_bytes());
            } else {
                text.push(char);
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}
