//! Names that others chose, made safe to show.

use std::{collections::HashSet, fmt::Write, sync::Arc};

/// Texts that many have in common, each kept once.
#[derive(Default)]
pub(crate) struct Texts {
    texts: HashSet<Arc<str>>,
    bytes: usize,
}

impl Texts {
    /// That text, as others have it already.
    pub fn keep(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.bytes += text.len();
        self.texts.insert(text.clone());
        text
    }

    /// Drops texts that have no other user.
    pub fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.texts.retain(|text| {
            let used = Arc::strong_count(text) > 1;
            *bytes -= if used { 0 } else { text.len() };
            used
        });
        if self.texts.capacity() > 4 * self.texts.len().max(16) {
            self.texts.shrink_to_fit();
        }
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        // The texts with the two counts of an Arc, and the table.
        self.bytes + self.texts.len() * 16 + self.texts.capacity() * (size_of::<Arc<str>>() + 1)
    }
}

/// `bytes` as text of at most `limit` characters. What could drive a terminal, break a line, or turn
/// the direction of writing is escaped as `\x1b` or `\u{202e}`; bytes that are no UTF-8 as `\xff`.
pub(crate) fn shown(bytes: &[u8], limit: usize) -> String {
    let mut text = String::with_capacity(bytes.len().min(limit));
    let mut count = 0;
    let mut piece = String::new();
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(Ok);
        let invalid = chunk.invalid().iter().map(|&byte| Err(byte));
        for unit in valid.chain(invalid) {
            piece.clear();
            // Writing to a String cannot fail.
            let _ = match unit {
                Ok(c) if !misleads(c) => write!(piece, "{c}"),
                Ok(c) if c.is_ascii() => write!(piece, "\\x{:02x}", u32::from(c)),
                Ok(c) => write!(piece, "\\u{{{:x}}}", u32::from(c)),
                Err(byte) => write!(piece, "\\x{byte:02x}"),
            };
            let length = piece.chars().count();
            if count + length > limit {
                while count + 1 > limit && text.pop().is_some() {
                    count -= 1;
                }
                text.push('…');
                return text;
            }
            count += length;
            text.push_str(&piece);
        }
    }
    text
}

/// Control characters, and those without a width that change how their neighbours are displayed.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// The bytes before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_stay() {
        assert_eq!(shown(b"nginx", 16), "nginx");
        assert_eq!(shown("größe-日本".as_bytes(), 16), "größe-日本");
        assert_eq!(
            shown(br"system-getty\x2dx.slice", 99),
            r"system-getty\x2dx.slice"
        );
        assert_eq!(shown(b"", 16), "");
    }

    #[test]
    fn what_drives_a_terminal_is_escaped() {
        assert_eq!(
            shown(b"a\x1b[31mb\n\t\x07\x7f", 99),
            r"a\x1b[31mb\x0a\x09\x07\x7f"
        );
        assert_eq!(
            shown("\u{9b}2J\u{202e}x\u{200b}".as_bytes(), 99),
            r"\u{9b}2J\u{202e}x\u{200b}"
        );
    }

    #[test]
    fn invalid_utf8_is_escaped() {
        assert_eq!(shown(b"a\xff\xfeb\xc3", 99), r"a\xff\xfeb\xc3");
    }

    #[test]
    fn long_names_are_cut_with_a_sign() {
        assert_eq!(shown(b"abcdefgh", 8), "abcdefgh");
        assert_eq!(shown(b"abcdefghi", 8), "abcdefg…");
        assert_eq!(shown(b"abcdef\xff\xff", 8), "abcdef…");
        assert_eq!(shown(b"abcd\xffe", 8), "abcd\\xf…");
        assert_eq!(shown(b"abcd\xff", 8), "abcd\\xff");
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe_and_bounded(bytes in any::<Vec<u8>>(), limit in 1_usize..64) {
            let text = shown(&bytes, limit);
            prop_assert!(text.chars().count() <= limit);
            prop_assert!(!text.chars().any(misleads));
        }
    }
}
