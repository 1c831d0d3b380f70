//! Text of others, made harmless and cut to fit.

use unicode_width::UnicodeWidthChar as _;

/// Replaces a character that is not safe to show: names are input from outside, and some characters
/// control terminals, end the line or change the writing direction.
pub fn harmless(c: char) -> char {
    match c {
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// How a character is written without Unicode.
fn plain(c: char) -> char {
    if c.is_ascii() { c } else { '?' }
}

/// Columns of a terminal that a text occupies.
pub fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// A text without control characters, of at most `limit` columns; an ellipsis marks the cut.
/// `ascii`: other characters become `?`.
pub fn shown(text: &str, limit: usize, ascii: bool) -> String {
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let c = harmless(c);
        let c = if ascii { plain(c) } else { c };
        let wide = c.width().unwrap_or(0);
        if used + wide > limit {
            // Space for the ellipsis.
            while used + 1 > limit {
                let Some(last) = out.pop() else { return out };
                used -= last.width().unwrap_or(0);
            }
            out.push(if ascii { '~' } else { '…' });
            return out;
        }
        // Marks that combine are endless: some are enough.
        if wide == 0
            && out
                .chars()
                .rev()
                .take(4)
                .filter(|c| c.width() == Some(0))
                .count()
                >= 4
        {
            continue;
        }
        used += wide;
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(
            shown("a\x1b[31mb\n\u{9b}", 99, false),
            "a\u{fffd}[31mb\u{fffd}\u{fffd}"
        );
        assert_eq!(
            shown("\u{202e}evil\u{200b}", 99, false),
            "\u{fffd}evil\u{fffd}"
        );
        assert_eq!(shown("\u{202e}größe", 99, true), "?gr??e");
    }

    #[test]
    fn long_and_wide_texts_are_cut() {
        assert_eq!(shown("abcdef", 6, false), "abcdef");
        assert_eq!(shown("abcdefg", 6, false), "abcde…");
        assert_eq!(shown("abcdefg", 6, true), "abcde~");
        assert_eq!(shown("日本語", 5, false), "日本…");
        assert_eq!(width(&shown("日本語", 4, false)), 3);
        assert_eq!(shown("x", 0, false), "");
        assert_eq!(width(&shown(&"n".repeat(4096), 40, false)), 40);
        assert!(shown(&format!("e{}", "\u{301}".repeat(4096)), 9, false).len() < 20);
    }
}
