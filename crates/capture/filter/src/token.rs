//! Words and signs of an expression, about as libpcap's scanner cuts them.

/// One word or sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// Offset in bytes.
    pub(crate) start: usize,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Cuts an expression up. Inside square brackets a colon is a sign of its own, outside it belongs to
/// an address.
pub(crate) fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut in_brackets = 0_usize;
    let mut rest = expression;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return found;
        };
        match first {
            '[' => in_brackets += 1,
            ']' => in_brackets = in_brackets.saturating_sub(1),
            _ => {}
        }
        let length = if is_word(first, in_brackets > 0) {
            rest.find(|sign| !is_word(sign, in_brackets > 0))
                .unwrap_or(rest.len())
        } else {
            ["==", "!=", ">=", "<=", "<<", ">>", "&&", "||"]
                .into_iter()
                .find(|sign| rest.starts_with(sign))
                .map_or(first.len_utf8(), str::len)
        };
        let (text, after) = rest.split_at(length);
        found.push(Token {
            text,
            start: expression.len() - rest.len(),
        });
        rest = after;
    }
}

fn is_word(sign: char, in_brackets: bool) -> bool {
    match sign {
        '_' | '.' | '\\' => true,
        // Part of addresses, ranges and icmp-echo; inside brackets mostly arithmetic.
        ':' | '/' => !in_brackets,
        '-' => true,
        _ => sign.is_alphanumeric(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_words_and_signs() {
        let texts = |expression| {
            tokens(expression)
                .iter()
                .map(|token| token.text)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts("tcp port=443"), ["tcp", "port", "=", "443"]);
        assert_eq!(
            texts("ip6[6:2]&0x1fff!=0&&(net 10.0.0.0/8)"),
            [
                "ip6",
                "[",
                "6",
                ":",
                "2",
                "]",
                "&",
                "0x1fff",
                "!=",
                "0",
                "&&",
                "(",
                "net",
                "10.0.0.0/8",
                ")"
            ]
        );
        assert_eq!(
            texts("ether host 0:1:2:3:4:5 "),
            ["ether", "host", "0:1:2:3:4:5"]
        );
        assert_eq!(tokens("é tcp")[1].start, 3);
    }
}
